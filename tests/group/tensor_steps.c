/* Steps of training of models that ranks have together: parts that are added up, recomputation with dropout, evaluation, the norm of
 * all gradients, gradients that are not finite, and moments that are saved.
 *
 * Holds: group.h, training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/group/grid.h"
#include "support/group/split.h"
#include "support/suite.h"

static const double tolerance = 3e-6;

static float squares_of(const training_world *w)
{
    float *squares = training_read(clattn_trainer_squares(w->trainer), 1);
    const float value = *squares;
    free(squares);
    return value;
}

static double most_apart(const grid_team *g, const training_world *one)
{
    double apart = 0, mean;
    for (int i = 0; i < g->t.ranks; i++)
        for (size_t p = 0; p < clattn_trainer_parameter_count(g->t.rank[i].w.trainer); p++) {
            size_t count;
            const clattn_parameter part = training_parameter(&g->t.rank[i].w, p, &count),
                                   whole = split_find(one, part.name);
            apart = fmax(apart, split_apart(&part, &whole, &mean));
        }
    return apart;
}

/* ---- ways to compute gradients ---- */

/* Each item is a part of a step, with dropout and recomputation. */
static void steps_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * TRAINING_CASES; i++) {
        const training_case *test = &training_cases[i / 2];
        const int rows = 1 + i % 2, columns = 2;
        training_world one;
        grid_team g;
        training_open(&one, test);
        one.desc.batch = 1;
        one.desc.dropout = 0.25f;
        one.desc.recompute = 1;
        grid_open(&g, test, rows, columns, 0.25f, 1);
        for (int k = 0; k < g.t.ranks; k++) { /* plans of one item */
            clattn_plan_release(&g.rank[k].plan);
            g.t.rank[k].w.desc.batch = 1;
            assert_status(
                device_context(),
                clattn_training_plan_create(g.t.rank[k].w.trainer, &g.t.rank[k].w.desc, NULL, &g.rank[k].plan),
                CLATTN_SUCCESS);
        }
        double norms = 0;
        for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
            clattn_update_args args = team_update_args(number);
            args.clip_norm = number == 2 ? 0.05 : 0.5;
            for (size_t item = 0; item < (rows == 2 ? 2 : 3); item++)
                training_step(&one, item, item > 0, (uint64_t)number);
            assert_status(device_context(), clattn_trainer_update(one.trainer, NULL, &args, 0, NULL, NULL),
                          CLATTN_SUCCESS);
            for (size_t item = 0; item < (rows == 2 ? 1 : 3); item++) {
                for (int k = 0; k < g.t.ranks; k++) {
                    grid_rank *r = &g.rank[k];
                    r->args = training_bind(&r->rank->w, item + (size_t)r->column.rank);
                    r->args.explicit_scale = 1;
                    r->args.scale = 0.125f;
                    r->args.accumulate = item > 0;
                    r->args.seed = (uint64_t)number;
                    r->rank->update = args;
                }
                grid_do(g.rank, g.t.ranks, grid_compute);
                for (int k = 0; k < g.t.ranks; k++) {
                    assert_cl(clFinish(g.t.rank[k].queue));
                    training_unbind(&g.rank[k].args);
                }
            }
            grid_do(g.rank, g.t.ranks, grid_move);
            const float expected = squares_of(&one), first = squares_of(&g.t.rank[0].w);
            norms = fmax(norms, fabs((double)first - (double)expected) / (double)expected);
            for (int k = 1; k < g.t.ranks; k++) {
                const float other = squares_of(&g.t.rank[k].w);
                assert_memory_equal(&other, &first, sizeof first);
            }
        }
        const double apart = most_apart(&g, &one);
        print_message("# %s, %d x %d: %.2g from one device's, squares %.2g\n", test->name, rows, columns, apart, norms);
        assert_true(apart <= tolerance && norms <= 1e-5);
        grid_close(&g);
        training_close(&one);
    }
}

/* ---- evaluation ---- */

static void evaluation_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < TRAINING_CASES; i++) {
        const training_case *test = &training_cases[i];
        training_world one;
        grid_team g;
        training_open(&one, test);
        one.desc.evaluation = 1;
        grid_open(&g, test, 1, 2, 0, 0);
        training_step(&one, 0, false, 0);
        for (int k = 0; k < 2; k++) {
            clattn_plan_release(&g.rank[k].plan);
            g.t.rank[k].w.desc.evaluation = 1;
            assert_status(
                device_context(),
                clattn_training_plan_create(g.t.rank[k].w.trainer, &g.t.rank[k].w.desc, NULL, &g.rank[k].plan),
                CLATTN_SUCCESS);
            g.rank[k].args = training_bind(&g.t.rank[k].w, 0);
        }
        grid_do(g.rank, 2, grid_compute);
        for (int k = 0; k < 2; k++) {
            assert_cl(clFinish(g.t.rank[k].queue));
            float *losses = training_read(g.rank[k].args.losses, TRAINING_LABELS);
            for (size_t n = 0; n < TRAINING_LABELS; n++)
                assert_true(fabsf(losses[n] - one.losses[n]) <= 1e-5f);
            free(losses);
            training_unbind(&g.rank[k].args);
        }
        grid_close(&g);
        training_close(&one);
    }
}

/* ---- gradients that are not finite ---- */

static void nothing_moves(void **state)
{
    (void)state;
    for (int bad = 0; bad < 4; bad++) { /* the rank that has it */
        for (int shared = 0; shared < 2; shared++) {
            grid_team g;
            float *before[4], *after;
            size_t count, index = 0;
            const float nan = NAN;
            grid_open(&g, &training_cases[1], 2, 2, 0, 0);
            grid_step(&g, 1);
            for (int k = 0; k < 4; k++)
                before[k] = training_values(&g.t.rank[k].w, &count);
            clattn_parameter p = training_parameter(&g.t.rank[bad].w, 0, &count);
            while ((p.whole[0] != p.layout.extent[0] || p.whole[1] != p.layout.extent[1]) == shared)
                p = training_parameter(&g.t.rank[bad].w, ++index, &count);
            assert_cl(clEnqueueWriteBuffer(g.t.rank[bad].queue, p.gradient.buffer, CL_TRUE,
                                           ((size_t)p.gradient.offset + count - 1) * sizeof nan, sizeof nan, &nan, 0,
                                           NULL, NULL));
            assert_cl(clFinish(g.t.rank[bad].queue));
            for (int k = 0; k < 4; k++) {
                g.t.rank[k].update.step = 2;
                g.t.rank[k].update.changed_gradients = 1;
            }
            grid_do(g.rank, 4, grid_move);
            for (int k = 0; k < 4; k++) {
                assert_false(isfinite(squares_of(&g.t.rank[k].w)));
                after = training_values(&g.t.rank[k].w, &count);
                assert_memory_equal(before[k], after, count * sizeof *after);
                free(after);
                free(before[k]);
            }
            grid_close(&g);
        }
    }
}

/* ---- moments ---- */

typedef struct saved {
    grid_rank *rank;
    size_t index;
    float *moments[2];
} saved;

static int read_moments(void *user)
{
    saved *s = user;
    s->rank->status = clattn_trainer_moments_read(s->rank->rank->w.trainer, s->rank->rank->queue, s->index, 0,
                                                  s->moments[0], s->moments[1]);
    return 0;
}

/* Another team goes on from the parameters and the moments of one as that one itself. */
static void goes_on(int rows, int columns)
{
    grid_team from, to;
    grid_open(&from, &training_cases[1], rows, columns, 0, 0);
    grid_open(&to, &training_cases[1], rows, columns, 0, 0);
    for (int64_t number = 1; number <= 2; number++)
        grid_step(&from, number);
    for (int column = 0; column < columns; column++)
        for (size_t i = 0; i < clattn_trainer_parameter_count(from.t.rank[column].w.trainer); i++) {
            saved s[TEAM_MOST_RANKS];
            thrd_t threads[TEAM_MOST_RANKS];
            size_t count;
            const clattn_parameter p = training_parameter(&from.t.rank[column].w, i, &count);
            assert_null(p.first_moment.buffer);
            float *values = training_read(p.value, count), *moments[2] = {nn_floats(count, 1), nn_floats(count, 2)};
            for (int row = 0; row < rows; row++) {
                s[row] = (saved){.rank = &from.rank[row * columns + column], .index = i};
                for (int k = 0; k < 2 && !row; k++)
                    s[row].moments[k] = moments[k];
                assert_int_equal(thrd_create(&threads[row], read_moments, &s[row]), thrd_success);
            }
            for (int row = 0; row < rows; row++) {
                thrd_join(threads[row], NULL);
                assert_int_equal(s[row].rank->status, CLATTN_SUCCESS);
            }
            for (int row = 0; row < rows; row++) {
                team_rank *r = &to.t.rank[row * columns + column];
                const clattn_parameter other = training_parameter(&r->w, i, &count);
                assert_string_equal(other.name, p.name);
                assert_int_equal(clattn_trainer_moments_write(r->w.trainer, r->queue, i, moments[0], moments[1]),
                                 CLATTN_SUCCESS);
                assert_cl(clEnqueueWriteBuffer(r->queue, other.value.buffer, CL_TRUE,
                                               (size_t)other.value.offset * sizeof *values, count * sizeof *values,
                                               values, 0, NULL, NULL));
                assert_cl(clFinish(r->queue));
            }
            free(values);
            free(moments[0]);
            free(moments[1]);
        }
    grid_step(&from, 3);
    grid_step(&to, 3);
    for (int i = 0; i < rows * columns; i++) {
        size_t count;
        float *one = training_values(&from.t.rank[i].w, &count), *other = training_values(&to.t.rank[i].w, &count);
        assert_memory_equal(one, other, count * sizeof *one);
        free(one);
        free(other);
    }
    grid_close(&from);
    grid_close(&to);
}

static void moments_travel(void **state)
{
    (void)state;
    goes_on(1, 3);
    goes_on(2, 2);
}

int main(int argc, char **argv)
{
    suite_add(steps_agree,
              "group tensor: parts, dropout with recomputation, and the norm of gradients are one device's");
    suite_add(evaluation_agrees, "group tensor: so are the losses of evaluation");
    suite_add(nothing_moves, "group tensor: no rank moves by a gradient of any that is not finite");
    suite_add(moments_travel, "group tensor: training goes on from moments that were saved");
    return suite_run("group_tensor_steps", argc, argv);
}
