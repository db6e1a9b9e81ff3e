#include "support/group/grid.h"

#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/harness.h"

int grid_make(void *user)
{
    grid_rank *k = user;
    training_world *w = &k->rank->w;
    const clattn_transformer_desc desc = training_model(w->test);
    const clattn_weight_source source = nn_source(&w->store);
    clattn_transformer_release(&w->model);
    k->status = clattn_group_transformer_create(device_context(), &k->row, &desc, &source, &w->model);
    if (k->status == CLATTN_SUCCESS && k->column.ranks > 1)
        k->status = clattn_group_trainer_create(w->model, &k->column, &w->trainer);
    else if (k->status == CLATTN_SUCCESS)
        k->status = clattn_trainer_create(w->model, &w->trainer);
    if (k->status == CLATTN_SUCCESS)
        k->status = clattn_training_plan_create(w->trainer, &w->desc, NULL, &k->plan);
    clattn_context_message(device_context(), k->rank->message, sizeof k->rank->message);
    return 0;
}

int grid_compute(void *user)
{
    grid_rank *k = user;
    k->status = clattn_training_enqueue(k->plan, k->rank->queue, &k->args, 0, NULL, NULL);
    clattn_context_message(device_context(), k->rank->message, sizeof k->rank->message);
    return 0;
}

int grid_move(void *user)
{
    grid_rank *k = user;
    team_move(k->rank);
    k->status = k->rank->status;
    return 0;
}

void grid_do(grid_rank *ranks, int count, int (*action)(void *))
{
    thrd_t threads[TEAM_MOST_RANKS];
    for (int i = 0; i < count; i++)
        assert_int_equal(thrd_create(&threads[i], action, &ranks[i]), thrd_success);
    for (int i = 0; i < count; i++)
        thrd_join(threads[i], NULL);
    for (int i = 0; i < count; i++)
        if (ranks[i].status != CLATTN_SUCCESS)
            fail_msg("rank %d: %s: %s", i, clattn_status_string(ranks[i].status), ranks[i].rank->message);
}

void grid_open(grid_team *g, const training_case *test, int rows, int columns, float dropout, int32_t recompute)
{
    team_open_models(&g->t, test, rows * columns, 20000);
    g->columns = columns;
    for (int i = 0; i < g->t.ranks; i++) {
        grid_rank *k = &g->rank[i];
        *k = (grid_rank){.rank = &g->t.rank[i]};
        k->rank->w.desc.batch = rows > 1 ? 1 : TRAINING_BATCH;
        k->rank->w.desc.dropout = dropout;
        k->rank->w.desc.recompute = recompute;
        assert_int_equal(clattn_group_grid_create(&k->rank->group, columns, &k->grid), CLATTN_SUCCESS);
        assert_int_equal(clattn_group_grid_row(k->grid, &k->row), CLATTN_SUCCESS);
        assert_int_equal(clattn_group_grid_column(k->grid, &k->column), CLATTN_SUCCESS);
        assert_int_equal(k->row.ranks, columns);
        assert_int_equal(k->column.ranks, rows);
        assert_int_equal(k->column.rank * columns + k->row.rank, i);
    }
    grid_do(g->rank, g->t.ranks, grid_make);
}

void grid_close(grid_team *g)
{
    for (int i = 0; i < g->t.ranks; i++) {
        clattn_plan_release(&g->rank[i].plan);
        clattn_group_grid_release(&g->rank[i].grid);
        assert_null(g->rank[i].grid);
    }
    team_close(&g->t);
}

void grid_step(grid_team *g, int64_t number)
{
    for (int i = 0; i < g->t.ranks; i++) {
        grid_rank *k = &g->rank[i];
        const size_t item = g->t.ranks > g->columns ? (size_t)k->column.rank : 0;
        k->args = training_bind(&k->rank->w, item);
        k->args.explicit_scale = 1;
        k->args.scale = 0.125f;
        k->args.seed = (uint64_t)number;
        k->rank->update = team_update_args(number);
    }
    grid_do(g->rank, g->t.ranks, grid_compute);
    for (int i = 0; i < g->t.ranks; i++) {
        grid_rank *k = &g->rank[i];
        const size_t count = k->rank->w.desc.batch * TRAINING_TARGET;
        assert_cl(clFinish(k->rank->queue));
        float *losses = training_read(k->args.losses, count);
        memcpy(k->rank->w.losses, losses, count * sizeof *losses);
        free(losses);
        training_unbind(&k->args);
        assert_memory_equal(k->rank->w.losses, g->t.rank[i - i % g->columns].w.losses, count * sizeof *losses);
    }
    grid_do(g->rank, g->t.ranks, grid_move);
}
