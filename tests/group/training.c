/* Training by a group: what its ranks compute together is what one trainer computes of all items.
 *
 * Holds: group.h, training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/core/user_events.h"
#include "support/device.h"
#include "support/group/team.h"
#include "support/suite.h"

/* A trainer alone, of all items. */
static float *expected_values(const training_case *test, size_t *count)
{
    training_world w;
    training_open(&w, test);
    w.desc.batch = 1;
    for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
        const clattn_update_args args = team_update_args(number);
        for (size_t item = 0; item < TRAINING_BATCH; item++)
            training_step(&w, item, item > 0, (uint64_t)number);
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
    float *all = training_values(&w, count);
    training_close(&w);
    return all;
}

/* 1.3 million numbers: two pieces, of which one has shares of different lengths. */
#define WIDE .d_model = 32, .heads = 4, .d_ff = 20000, .activation = CLATTN_ACTIVATION_RELU
static const training_case large = {
    "a decoder of a wide feed-forward network",
    {0},
    {.size = sizeof(clattn_stack_desc),
     WIDE,
     PRE,
     .layers = 1,
     .final_norm = 1,
     .causal = 1,
     .positions = CLATTN_POSITIONS_SINUSOIDS,
     .input = CLATTN_STACK_INPUT_TOKENS,
     .vocabulary = TRAINING_VOCABULARY},
    CLATTN_MODEL_OUTPUT_TIED,
    0,
    false,
    CLATTN_DTYPE_F32,
};

static void agrees_with_one(const training_case *test, int most, double tolerance)
{
    size_t count, others;
    float *expected = expected_values(test, &count);
    for (int ranks = 1; ranks <= most; ranks++) {
        float *found = team_after_updates(test, ranks, &others), *again = team_after_updates(test, ranks, &others);
        double apart = 0;
        assert_int_equal(count, others);
        assert_memory_equal(found, again, count * sizeof *found); /* every time */
        for (size_t i = 0; i < count; i++)
            apart = fmax(apart, fabs((double)found[i] - (double)expected[i]));
        print_message("# %d ranks: %.2g from one trainer's\n", ranks, apart);
        assert_true(apart <= tolerance);
        free(found);
        free(again);
    }
    free(expected);
}

static const double tolerance = 2e-6; /* a number moves by at most 0.01 in an update, and the numbers are below 1 */

static void groups_agree_with_one(void **state)
{
    (void)state;
    agrees_with_one(&training_cases[0], TEAM_MOST_RANKS, tolerance);
    for (int i = 1; i < TRAINING_CASES; i++)
        agrees_with_one(&training_cases[i], 2, tolerance);
}

static void pieces_agree_with_one(void **state)
{
    (void)state;
    agrees_with_one(&large, 3, tolerance);
}

/* A parameter that is near the middle of two bfloat16 may be rounded to either, and what is computed with it differs by so much. */
static void narrow_groups_agree_with_one(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        training_case narrow = i == 0 ? training_cases[0] : large;
        narrow.dtype = CLATTN_DTYPE_BF16;
        agrees_with_one(&narrow, 3, 1e-4);
    }
}

/* ---- queues ---- */

typedef cl_int(CL_API_CALL *enqueue_kernel)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                                            const size_t *, cl_uint, const cl_event *, cl_event *);

static enqueue_kernel launch;
static cl_command_queue held_queue; /* whose next kernel waits for `held`; NULL: none does */
static cl_event held;

static cl_int CL_API_CALL hold_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                      const size_t *offset, const size_t *global, const size_t *local,
                                      cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    if (!held_queue || queue != held_queue || wait_count)
        return launch(queue, kernel, dimensions, offset, global, local, wait_count, wait_list, event);
    held_queue = NULL;
    return launch(queue, kernel, dimensions, offset, global, local, 1, &held, event);
}

static void *holding(void *user, const char *name)
{
    void *found = inject_get_proc(user, name);
    if (strcmp(name, "clEnqueueNDRangeKernel"))
        return found;
    memcpy(&launch, &found, sizeof launch);
    const enqueue_kernel own = hold_kernel;
    memcpy(&found, &own, sizeof found);
    return found;
}

static int let_go(void *user)
{
    (void)user;
    event_waits(held); /* for a tenth of a second */
    clSetUserEventStatus(held, CL_COMPLETE);
    return 0;
}

/* A bfloat16 model is rounded from parameters that have moved, on a queue that is out of order, too. */
static void rounding_waits(void **state)
{
    training_case narrow = training_cases[0];
    float losses[2][TRAINING_TARGET];
    (void)state;
    narrow.dtype = CLATTN_DTYPE_BF16;
    for (int holds = 0; holds < 2; holds++) {
        team t;
        thrd_t thread;
        cl_int code;
        team_open(&t, &narrow, 1);
        cl_command_queue queue = new_queue(device_context(), true);
        if (queue) {
            clReleaseCommandQueue(t.rank[0].queue);
            t.rank[0].queue = queue;
        }
        team_compute(&t, 0, 1);
        assert_cl(clFinish(clattn_context_queue(device_context())));
        t.rank[0].update = team_update_args(1);
        held = clCreateUserEvent(clattn_context_opencl_context(device_context()), &code);
        assert_cl(code);
        held_queue = holds ? t.rank[0].queue : NULL;
        assert_int_equal(thrd_create(&thread, let_go, NULL), thrd_success);
        team_do(&t, team_move);
        thrd_join(thread, NULL);
        assert_null(held_queue);
        clReleaseEvent(held);
        team_assert(&t, CLATTN_SUCCESS);
        assert_cl(clFinish(t.rank[0].queue));
        training_step(&t.rank[0].w, 0, false, 0);
        memcpy(losses[holds], t.rank[0].w.losses, sizeof losses[holds]);
        team_close(&t);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

/* ---- moments ---- */

typedef struct moment_reader {
    team_rank *rank;
    size_t index;
    int32_t to;
    float *moments[2];
    clattn_status status;
} moment_reader;

static int read_moments(void *user)
{
    moment_reader *r = user;
    r->status =
        clattn_trainer_moments_read(r->rank->w.trainer, r->rank->queue, r->index, r->to, r->moments[0], r->moments[1]);
    return 0;
}

/* Reads a parameter's moments to rank `to`. */
static void gather(team *t, size_t index, int to, float *moments[2])
{
    moment_reader readers[TEAM_MOST_RANKS];
    thrd_t threads[TEAM_MOST_RANKS];
    for (int i = 0; i < t->ranks; i++) {
        readers[i] = (moment_reader){.rank = &t->rank[i], .index = index, .to = to};
        for (int k = 0; k < 2 && i == to; k++)
            readers[i].moments[k] = moments[k];
        assert_int_equal(thrd_create(&threads[i], read_moments, &readers[i]), thrd_success);
    }
    for (int i = 0; i < t->ranks; i++) {
        thrd_join(threads[i], NULL);
        assert_int_equal(readers[i].status, CLATTN_SUCCESS);
    }
}

/* A group's moments, written to a trainer alone and to another group, are there as they were, and near those of one trainer. */
static void moments_travel(void **state)
{
    team from, to;
    training_world alone, trained;
    (void)state;
    team_open(&from, &large, 3);
    team_open(&to, &large, 2);
    training_open(&alone, &large);
    training_open(&trained, &large);
    trained.desc.batch = 1;
    const clattn_update_args args = team_update_args(1);
    team_step(&from, 1);
    for (size_t item = 0; item < TRAINING_BATCH; item++)
        training_step(&trained, item, item > 0, 1);
    assert_status(device_context(), clattn_trainer_update(trained.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    for (size_t i = 0; i < clattn_trainer_parameter_count(alone.trainer); i++) {
        size_t count;
        training_parameter(&alone, i, &count);
        float *moments[2] = {nn_floats(count, 1), nn_floats(count, 2)},
              *found[2] = {nn_floats(count, 3), nn_floats(count, 4)};
        gather(&from, i, (int)i % 3, moments);
        assert_int_equal(clattn_trainer_moments_read(trained.trainer, NULL, i, 0, found[0], found[1]), CLATTN_SUCCESS);
        for (size_t n = 0; n < count; n++) {
            assert_true(fabsf(moments[0][n] - found[0][n]) <= 1e-7f);
            assert_true(fabsf(moments[1][n] - found[1][n]) <= 1e-8f);
        }
        assert_int_equal(clattn_trainer_moments_write(alone.trainer, NULL, i, moments[0], moments[1]), CLATTN_SUCCESS);
        for (int k = 0; k < to.ranks; k++)
            assert_int_equal(
                clattn_trainer_moments_write(to.rank[k].w.trainer, to.rank[k].queue, i, moments[0], moments[1]),
                CLATTN_SUCCESS);
        assert_int_equal(clattn_trainer_moments_read(alone.trainer, NULL, i, 0, found[0], found[1]), CLATTN_SUCCESS);
        for (int k = 0; k < 2; k++)
            assert_memory_equal(found[k], moments[k], count * sizeof **found);
        gather(&to, i, 1, found);
        for (int k = 0; k < 2; k++) {
            assert_memory_equal(found[k], moments[k], count * sizeof **found);
            free(found[k]);
            free(moments[k]);
        }
    }
    const clattn_parameter p = training_parameter(&from.rank[0].w, 0, &(size_t){0});
    assert_null(p.first_moment.buffer);
    assert_null(p.second_moment.buffer);
    /* A rank of three has a third of the moments. */
    const size_t all = clattn_trainer_bytes(alone.trainer), third = clattn_trainer_bytes(from.rank[1].w.trainer);
    assert_true(third < all / 3 + all / 9 * 2 + 4096);
    training_close(&alone);
    training_close(&trained);
    team_close(&from);
    team_close(&to);
}

int main(int argc, char **argv)
{
    device_use_functions(holding);
    suite_add(groups_agree_with_one, "group training: groups of 1 to 4 ranks agree with one trainer");
    suite_add(pieces_agree_with_one, "group training: so do those that exchange in pieces");
    suite_add(narrow_groups_agree_with_one, "group training: so do those of bfloat16 models");
    suite_add(rounding_waits, "group training: a bfloat16 model is rounded behind the update on any queue");
    suite_add(moments_travel, "group training: moments are gathered, and given to others");
    return suite_run("group_training", argc, argv);
}
