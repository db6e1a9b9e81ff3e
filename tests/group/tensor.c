/* Models that ranks have together: what they compute is what one device computes with the whole model.
 *
 * Holds: group.h, transformer.h, training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/group/team.h"
#include "support/suite.h"

/* ---- training ---- */

static clattn_transformer_desc model_of(const training_case *test)
{
    return (clattn_transformer_desc){.size = sizeof(clattn_transformer_desc),
                                     .encoder = test->encoder.layers ? &test->encoder : NULL,
                                     .decoder = &test->decoder,
                                     .output = test->output,
                                     .output_bias = test->bias,
                                     .dtype = test->dtype};
}

/* What a rank does in a step; the ranks of a row have the model together, and those of a column have the same part of it. */
typedef struct worker {
    team_rank *rank;
    clattn_group row, column;
    clattn_group_grid *grid;
    clattn_plan *plan;
    clattn_training_args args;
    clattn_status status;
} worker;

static int make(void *user)
{
    worker *k = user;
    training_world *w = &k->rank->w;
    const clattn_transformer_desc desc = model_of(w->test);
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

static int compute(void *user)
{
    worker *k = user;
    k->status = clattn_training_enqueue(k->plan, k->rank->queue, &k->args, 0, NULL, NULL);
    clattn_context_message(device_context(), k->rank->message, sizeof k->rank->message);
    return 0;
}

static int move(void *user)
{
    worker *k = user;
    team_move(k->rank);
    k->status = k->rank->status;
    return 0;
}

static void all(worker *workers, int count, int (*action)(void *))
{
    thrd_t threads[TEAM_MOST_RANKS];
    for (int i = 0; i < count; i++)
        assert_int_equal(thrd_create(&threads[i], action, &workers[i]), thrd_success);
    for (int i = 0; i < count; i++)
        thrd_join(threads[i], NULL);
    for (int i = 0; i < count; i++)
        if (workers[i].status != CLATTN_SUCCESS)
            fail_msg("rank %d: %s: %s", i, clattn_status_string(workers[i].status), workers[i].rank->message);
}

/* A grid of ranks that train: a row for each item of a step, and `columns` that have the model together. */
typedef struct tensor_team {
    team t;
    int columns;
    worker worker[TEAM_MOST_RANKS];
} tensor_team;

static void open(tensor_team *g, const training_case *test, int rows, int columns, float dropout)
{
    team_open_models(&g->t, test, rows * columns, 20000);
    g->columns = columns;
    for (int i = 0; i < g->t.ranks; i++) {
        worker *k = &g->worker[i];
        *k = (worker){.rank = &g->t.rank[i]};
        k->rank->w.desc.batch = rows > 1 ? 1 : TRAINING_BATCH;
        k->rank->w.desc.dropout = dropout;
        assert_int_equal(clattn_group_grid_create(&k->rank->group, columns, &k->grid), CLATTN_SUCCESS);
        assert_int_equal(clattn_group_grid_row(k->grid, &k->row), CLATTN_SUCCESS);
        assert_int_equal(clattn_group_grid_column(k->grid, &k->column), CLATTN_SUCCESS);
        assert_int_equal(k->row.ranks, columns);
        assert_int_equal(k->column.ranks, rows);
        assert_int_equal(k->column.rank * columns + k->row.rank, i);
    }
    all(g->worker, g->t.ranks, make);
}

static void close_team(tensor_team *g)
{
    for (int i = 0; i < g->t.ranks; i++) {
        clattn_plan_release(&g->worker[i].plan);
        clattn_group_grid_release(&g->worker[i].grid);
        assert_null(g->worker[i].grid);
    }
    team_close(&g->t);
}

/* A step of all ranks; the losses of a row's items are the same bits on its ranks. */
static void step(tensor_team *g, int64_t number)
{
    for (int i = 0; i < g->t.ranks; i++) {
        worker *k = &g->worker[i];
        const size_t item = g->t.ranks > g->columns ? (size_t)k->column.rank : 0;
        k->args = training_bind(&k->rank->w, item);
        k->args.explicit_scale = 1;
        k->args.scale = 0.125f;
        k->args.seed = (uint64_t)number;
        k->rank->update = team_update_args(number);
    }
    all(g->worker, g->t.ranks, compute);
    for (int i = 0; i < g->t.ranks; i++) {
        worker *k = &g->worker[i];
        const size_t count = k->rank->w.desc.batch * TRAINING_TARGET;
        assert_cl(clFinish(k->rank->queue));
        float *losses = training_read(k->args.losses, count);
        memcpy(k->rank->w.losses, losses, count * sizeof *losses);
        free(losses);
        training_unbind(&k->args);
        assert_memory_equal(k->rank->w.losses, g->t.rank[i - i % g->columns].w.losses, count * sizeof *losses);
    }
    all(g->worker, g->t.ranks, move);
}

/* The parameter of that name. */
static clattn_parameter find(const training_world *w, const char *name)
{
    for (size_t i = 0;; i++) {
        size_t count;
        const clattn_parameter p = training_parameter(w, i, &count);
        if (!strcmp(p.name, name))
            return p;
    }
}

/* How far a rank's part of a parameter is from that of the whole one. */
static double part_apart(const clattn_parameter *part, const clattn_parameter *whole)
{
    float *found = training_read_ordered(part, part->value), *expected = training_read_ordered(whole, whole->value);
    const size_t columns = part->layout.rank > 1 ? part->layout.extent[1] : 1,
                 stride = whole->layout.rank > 1 ? whole->layout.extent[1] : 1;
    double apart = 0;
    assert_int_equal(part->layout.rank, whole->layout.rank);
    for (int32_t i = 0; i < part->layout.rank; i++)
        assert_int_equal(part->whole[i], whole->layout.extent[i]);
    assert_int_equal(whole->first[0] + whole->first[1], 0);
    if (part->layout.rank == 3)
        assert_int_equal(columns, stride);
    const size_t inner = part->layout.rank == 3 ? part->layout.extent[2] : 1;
    for (size_t row = 0; row < part->layout.extent[0]; row++)
        for (size_t i = 0; i < columns * inner; i++) {
            const size_t at = (part->first[0] + row) * stride * inner + part->first[1] + i;
            apart = fmax(apart, fabs((double)found[row * columns * inner + i] - (double)expected[at]));
        }
    free(found);
    free(expected);
    return apart;
}

static void trains_as_one(const training_case *test, int rows, int columns, float dropout, double tolerance)
{
    tensor_team g;
    training_world one;
    double apart = 0;
    training_open(&one, test);
    one.desc.batch = rows > 1 ? 1 : TRAINING_BATCH;
    one.desc.dropout = dropout;
    open(&g, test, rows, columns, dropout);
    for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
        const clattn_update_args args = team_update_args(number);
        for (int i = 0; i < rows; i++)
            training_step(&one, (size_t)i, i > 0, (uint64_t)number);
        assert_status(device_context(), clattn_trainer_update(one.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        step(&g, number);
        for (int i = 0; i < rows; i++) {
            const size_t count = one.desc.batch * TRAINING_TARGET;
            for (size_t n = 0; n < count; n++)
                assert_true(fabsf(g.t.rank[i * columns].w.losses[n] -
                                  one.losses[(size_t)i * TRAINING_TARGET + n]) <= (float)tolerance * 10);
        }
    }
    size_t parts = 0, shared = 0;
    for (int i = 0; i < g.t.ranks; i++)
        for (size_t p = 0; p < clattn_trainer_parameter_count(g.t.rank[i].w.trainer); p++) {
            size_t count;
            const clattn_parameter part = training_parameter(&g.t.rank[i].w, p, &count),
                                   whole = find(&one, part.name);
            const bool cut = memcmp(part.whole, part.layout.extent, (size_t)part.layout.rank * sizeof *part.whole);
            apart = fmax(apart, part_apart(&part, &whole));
            parts += cut;
            shared += !cut;
        }
    print_message("# %s: %d x %d ranks: %.2g from one device's\n", test->name, rows, columns, apart);
    assert_true(apart <= tolerance);
    assert_true((parts > 0) == (columns > 1) && shared > 0);
    close_team(&g);
    training_close(&one);
}

static const double tolerance = 3e-6; /* a number moves by at most 0.01 in an update, and the numbers are below 1 */

static void parts_train_as_one(void **state)
{
    (void)state;
    for (int i = 0; i < TRAINING_CASES; i++)
        for (int ranks = 1; ranks <= (training_cases[i].decoder.kv_heads ? 2 : i == 0 ? TEAM_MOST_RANKS : 3); ranks++)
            trains_as_one(&training_cases[i], 1, ranks, i % 2 ? 0.25f : 0, tolerance);
}

static void grids_train_as_one(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        trains_as_one(&training_cases[i], 2, 2, 0, tolerance);
    trains_as_one(&training_cases[0], 3, 1, 0, tolerance);
}

int main(int argc, char **argv)
{
    suite_add(parts_train_as_one, "group tensor: ranks that have a model together train it as one device does");
    suite_add(grids_train_as_one, "group tensor: so do the rows of a grid, and its columns share out the items");
    return suite_run("group_tensor", argc, argv);
}
