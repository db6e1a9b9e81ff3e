/* Training by a group: what its ranks compute together is what one trainer computes of all items.
 *
 * Holds: group.h, training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/core/threads.h"
#include "support/device.h"
#include "support/nn/training_case.h"
#include "support/suite.h"

enum { MOST_RANKS = 4, UPDATES = 3 };

/* A rank, and what a thread does for it: makes its trainer, or moves the parameters. */
typedef struct member {
    training_world w;
    clattn_group group;
    cl_command_queue queue;
    clattn_update_args update;
    clattn_status status;
    char message[512];
} member;

typedef struct team {
    int ranks;
    clattn_group_local *local;
    member rank[MOST_RANKS];
} team;

static int make(void *user)
{
    member *m = user;
    m->status = clattn_group_trainer_create(m->w.model, &m->group, &m->w.trainer);
    clattn_context_message(device_context(), m->message, sizeof m->message);
    return 0;
}

static int move(void *user)
{
    member *m = user;
    cl_event event = NULL;
    m->status = clattn_trainer_update(m->w.trainer, m->queue, &m->update, 0, NULL, &event);
    clattn_context_message(device_context(), m->message, sizeof m->message);
    if (event) {
        clWaitForEvents(1, &event);
        clReleaseEvent(event);
    }
    return 0;
}

static void all_do(team *t, int (*action)(void *))
{
    thrd_t threads[MOST_RANKS];
    for (int i = 0; i < t->ranks; i++)
        assert_int_equal(thrd_create(&threads[i], action, &t->rank[i]), thrd_success);
    for (int i = 0; i < t->ranks; i++)
        thrd_join(threads[i], NULL);
}

static void assert_all(const team *t, clattn_status expected)
{
    for (int i = 0; i < t->ranks; i++)
        if (t->rank[i].status != expected)
            fail_msg("rank %d: %s: %s", i, clattn_status_string(t->rank[i].status), t->rank[i].message);
}

/* Makes the ranks' models and no trainers. */
static void open_models(team *t, const training_case *test, int ranks, uint32_t timeout_ms)
{
    memset(t, 0, sizeof *t);
    t->ranks = ranks;
    assert_int_equal(clattn_group_local_create(ranks, timeout_ms, &t->local), CLATTN_SUCCESS);
    for (int i = 0; i < ranks; i++) {
        member *m = &t->rank[i];
        training_open(&m->w, test);
        m->w.desc.batch = 1;
        clattn_trainer_release(&m->w.trainer);
        assert_int_equal(clattn_group_local_rank(t->local, i, &m->group), CLATTN_SUCCESS);
        m->queue = new_queue(device_context(), i % 2); /* every other one out of order, if the device has such queues */
        if (!m->queue)
            m->queue = new_queue(device_context(), false);
    }
}

static void open_team(team *t, const training_case *test, int ranks)
{
    open_models(t, test, ranks, 20000);
    all_do(t, make);
    assert_all(t, CLATTN_SUCCESS);
}

static void close_team(team *t)
{
    for (int i = 0; i < t->ranks; i++) {
        training_close(&t->rank[i].w);
        clReleaseCommandQueue(t->rank[i].queue);
    }
    clattn_group_local_release(&t->local);
}

static clattn_update_args update_args(int64_t number)
{
    clattn_update_args args = CLATTN_UPDATE_ARGS_INIT;
    args.learning_rate = 0.01;
    args.weight_decay = 0.1;
    args.clip_norm = 0.5;
    args.epsilon = 1e-3; /* so that moves do not depend on the signs of gradients near 0 */
    args.step = number;
    return args;
}

/* Computes the gradients of a rank's items: every `ranks`-th, or one that does not count. */
static void compute(team *t, int rank, uint64_t seed)
{
    member *m = &t->rank[rank];
    if (rank >= TRAINING_BATCH)
        for (size_t i = 0; i < TRAINING_LABELS; i++)
            m->w.labels[i] = TRAINING_IGNORED;
    if (rank >= TRAINING_BATCH)
        training_step(&m->w, 0, false, seed);
    for (int item = rank; item < TRAINING_BATCH; item += t->ranks)
        training_step(&m->w, (size_t)item, item > rank, seed);
}

static void step(team *t, int64_t number)
{
    for (int i = 0; i < t->ranks; i++) {
        t->rank[i].update = update_args(number);
        compute(t, i, (uint64_t)number);
    }
    assert_cl(clFinish(clattn_context_queue(device_context()))); /* the ranks' queues are others */
    all_do(t, move);
    assert_all(t, CLATTN_SUCCESS);
}

/* All parameters one after the other, which the caller frees. */
static float *values(const training_world *w, size_t *total)
{
    float *all = NULL;
    *total = 0;
    for (size_t i = 0; i < clattn_trainer_parameter_count(w->trainer); i++) {
        size_t count;
        const clattn_parameter p = training_parameter(w, i, &count);
        float *value = training_read(p.value, count);
        all = realloc(all, (*total + count) * sizeof *all);
        assert_non_null(all);
        memcpy(all + *total, value, count * sizeof *all);
        *total += count;
        free(value);
    }
    return all;
}

static float *after_updates(const training_case *test, int ranks, size_t *count)
{
    team t;
    open_team(&t, test, ranks);
    for (int64_t i = 1; i <= UPDATES; i++)
        step(&t, i);
    float *first = values(&t.rank[0].w, count), losses[TRAINING_TARGET];
    for (int i = 1; i < ranks; i++) {
        float *other = values(&t.rank[i].w, count);
        assert_memory_equal(first, other, *count * sizeof *other);
        free(other);
    }
    for (int i = 0; i < ranks && i < TRAINING_BATCH; i++) { /* they compute with them, too; the fourth has no labels */
        training_step(&t.rank[i].w, 0, false, 0);
        if (i == 0)
            memcpy(losses, t.rank[i].w.losses, sizeof losses);
        assert_memory_equal(losses, t.rank[i].w.losses, sizeof losses);
    }
    close_team(&t);
    return first;
}

/* A trainer alone, of all items. */
static float *expected_values(const training_case *test, size_t *count)
{
    training_world w;
    training_open(&w, test);
    w.desc.batch = 1;
    for (int64_t number = 1; number <= UPDATES; number++) {
        const clattn_update_args args = update_args(number);
        for (size_t item = 0; item < TRAINING_BATCH; item++)
            training_step(&w, item, item > 0, (uint64_t)number);
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
    float *all = values(&w, count);
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
        float *found = after_updates(test, ranks, &others), *again = after_updates(test, ranks, &others);
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
    agrees_with_one(&training_cases[0], MOST_RANKS, tolerance);
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

/* ---- moments ---- */

typedef struct moment_reader {
    member *rank;
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
    moment_reader readers[MOST_RANKS];
    thrd_t threads[MOST_RANKS];
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
    open_team(&from, &large, 3);
    open_team(&to, &large, 2);
    training_open(&alone, &large);
    training_open(&trained, &large);
    trained.desc.batch = 1;
    const clattn_update_args args = update_args(1);
    step(&from, 1);
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
    close_team(&from);
    close_team(&to);
}

/* ---- refusals ---- */

static void a_broken_gradient_changes_nothing(void **state)
{
    team t;
    size_t count, after;
    const float broken = NAN;
    (void)state;
    open_team(&t, &training_cases[0], 2);
    float *before = values(&t.rank[0].w, &count);
    for (int i = 0; i < 2; i++) {
        t.rank[i].update = update_args(1);
        compute(&t, i, 0);
    }
    const clattn_parameter p = training_parameter(&t.rank[1].w, 3, &(size_t){0});
    write_buffer(clattn_context_queue(device_context()), p.gradient.buffer, (size_t)p.gradient.offset * sizeof broken,
                 sizeof broken, &broken);
    t.rank[1].update.changed_gradients = 1;
    all_do(&t, move);
    assert_all(&t, CLATTN_SUCCESS);
    for (int i = 0; i < 2; i++) {
        float *now = values(&t.rank[i].w, &after),
              *squares = training_read(clattn_trainer_squares(t.rank[i].w.trainer), 1);
        assert_memory_equal(before, now, count * sizeof *now);
        assert_true(isnan(*squares));
        free(now);
        free(squares);
    }
    free(before);
    close_team(&t);
}

/* Nothing is exchanged then, and the next update is as if there had been none. */
static void wrong_numbers_change_nothing(void **state)
{
    team t;
    size_t count;
    (void)state;
    float *expected = after_updates(&training_cases[0], 2, &count);
    open_team(&t, &training_cases[0], 2);
    for (int64_t number = 1; number <= UPDATES; number++) {
        for (int i = 0; i < 2; i++) {
            t.rank[i].update = update_args(number);
            t.rank[i].update.learning_rate = NAN;
            compute(&t, i, (uint64_t)number);
        }
        assert_cl(clFinish(clattn_context_queue(device_context())));
        all_do(&t, move);
        assert_all(&t, CLATTN_ERROR_INVALID_ARGUMENT);
        for (int i = 0; i < 2; i++)
            t.rank[i].update = update_args(number);
        all_do(&t, move);
        assert_all(&t, CLATTN_SUCCESS);
    }
    float *found = values(&t.rank[1].w, &count);
    assert_memory_equal(found, expected, count * sizeof *found);
    free(found);
    free(expected);
    close_team(&t);
}

/* Exchanges of another call would meet what other ranks still wait for. */
static void a_failure_is_the_last(void **state)
{
    int last_ones = 0;
    bool reached = true;
    (void)state;
    for (unsigned long at = 1; reached; at++) {
        team t;
        open_team(&t, &training_cases[2], 1);
        t.rank[0].update = update_args(1);
        compute(&t, 0, 0);
        assert_cl(clFinish(clattn_context_queue(device_context())));
        inject_start(at, CL_OUT_OF_RESOURCES);
        move(&t.rank[0]);
        inject_stop();
        reached = inject_failed() != NULL;
        if (t.rank[0].status != CLATTN_SUCCESS) {
            move(&t.rank[0]);
            if (t.rank[0].status != CLATTN_SUCCESS) { /* otherwise it had not begun to exchange */
                last_ones++;
                assert_int_equal(t.rank[0].status, CLATTN_ERROR_GROUP);
                assert_string_equal(t.rank[0].message, "rank 0: the group has failed before");
            }
        }
        close_team(&t);
    }
    assert_true(last_ones >= 5); /* gradients, squares, Adam, parameters: each has calls of OpenCL */
}

static void other_models_are_refused(void **state)
{
    team t;
    (void)state;
    open_models(&t, &training_cases[0], 2, 20000);
    training_close(&t.rank[1].w);
    training_open(&t.rank[1].w, &training_cases[2]);
    clattn_trainer_release(&t.rank[1].w.trainer);
    all_do(&t, make);
    assert_all(&t, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(t.rank[0].message, "rank 0 has parameters="));
    assert_non_null(strstr(t.rank[0].message, ", and rank 1 has parameters="));
    close_team(&t);
    /* One number is another one. */
    open_models(&t, &training_cases[0], 2, 20000);
    assert_int_equal(clattn_trainer_create(t.rank[1].w.model, &t.rank[1].w.trainer), CLATTN_SUCCESS);
    const clattn_parameter p = training_parameter(&t.rank[1].w, 2, &(size_t){0});
    write_buffer(clattn_context_queue(device_context()), p.value.buffer, (size_t)p.value.offset * sizeof(float),
                 sizeof(float), &(float){0.125f});
    clattn_trainer_release(&t.rank[1].w.trainer);
    all_do(&t, make);
    assert_all(&t, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(t.rank[0].message, "rank 0 has values="));
    assert_non_null(strstr(t.rank[1].message, ", and rank 0 has values="));
    for (int i = 0; i < 2; i++)
        assert_null(t.rank[i].w.trainer);
    close_team(&t);
}

static void a_missing_rank_is_named(void **state)
{
    team t;
    (void)state;
    open_models(&t, &training_cases[0], 2, 100);
    make(&t.rank[0]);
    assert_int_equal(t.rank[0].status, CLATTN_ERROR_GROUP);
    assert_string_equal(t.rank[0].message, "rank 0: rank 1 did not answer within 100 ms");
    assert_null(t.rank[0].w.trainer);
    close_team(&t);
    open_models(&t, &training_cases[0], 2, 2000);
    all_do(&t, make);
    assert_all(&t, CLATTN_SUCCESS);
    t.rank[0].update = update_args(1);
    compute(&t, 0, 0);
    move(&t.rank[0]);
    assert_int_equal(t.rank[0].status, CLATTN_ERROR_GROUP);
    assert_string_equal(t.rank[0].message, "rank 0: rank 1 did not answer within 2000 ms");
    move(&t.rank[0]);
    assert_string_equal(t.rank[0].message, "rank 0: the group has failed before");
    close_team(&t);
}

static void wrong_arguments_are_refused(void **state)
{
    training_world w;
    float moment;
    clattn_trainer *made = NULL;
    clattn_group group = CLATTN_GROUP_INIT;
    (void)state;
    training_open(&w, &training_cases[0]);
    assert_int_equal(clattn_group_trainer_create(w.model, NULL, &made), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_trainer_create(w.model, &group, &made), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_trainer_create(NULL, &group, &made), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_trainer_create(w.model, &group, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_read(NULL, NULL, 0, 0, &moment, &moment), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_read(w.trainer, NULL, 0, 1, &moment, &moment),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_read(w.trainer, NULL, 0, 0, NULL, &moment), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_read(w.trainer, NULL, 1000, 0, &moment, &moment),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_write(NULL, NULL, 0, &moment, &moment), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_write(w.trainer, NULL, 0, NULL, &moment), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_moments_write(w.trainer, NULL, 1000, &moment, &moment),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    training_close(&w);
}

int main(int argc, char **argv)
{
    device_use_functions(inject_get_proc);
    suite_add(groups_agree_with_one, "group training: groups of 1 to 4 ranks agree with one trainer");
    suite_add(pieces_agree_with_one, "group training: so do those that exchange in pieces");
    suite_add(narrow_groups_agree_with_one, "group training: so do those of bfloat16 models");
    suite_add(moments_travel, "group training: moments are gathered, and given to others");
    suite_add(a_broken_gradient_changes_nothing, "group training: a gradient that is not finite changes nothing");
    suite_add(wrong_numbers_change_nothing, "group training: wrong numbers change nothing");
    suite_add(a_failure_is_the_last, "group training: after a failure there is no further update");
    suite_add(other_models_are_refused, "group training: other models are refused");
    suite_add(a_missing_rank_is_named, "group training: a missing rank is named");
    suite_add(wrong_arguments_are_refused, "group training: wrong arguments are refused");
    return suite_run("group_training", argc, argv);
}
