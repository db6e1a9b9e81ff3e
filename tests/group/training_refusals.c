/* Training by a group: what it refuses, and what becomes of it after a failure.
 *
 * Holds: group.h, training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/device.h"
#include "support/group/team.h"
#include "support/suite.h"

static void a_broken_gradient_changes_nothing(void **state)
{
    team t;
    size_t count, after;
    const float broken = NAN;
    (void)state;
    team_open(&t, &training_cases[0], 2);
    float *before = training_values(&t.rank[0].w, &count);
    for (int i = 0; i < 2; i++) {
        t.rank[i].update = team_update_args(1);
        team_compute(&t, i, 0);
    }
    const clattn_parameter p = training_parameter(&t.rank[1].w, 3, &(size_t){0});
    write_buffer(clattn_context_queue(device_context()), p.gradient.buffer, (size_t)p.gradient.offset * sizeof broken,
                 sizeof broken, &broken);
    t.rank[1].update.changed_gradients = 1;
    team_do(&t, team_move);
    team_assert(&t, CLATTN_SUCCESS);
    for (int i = 0; i < 2; i++) {
        float *now = training_values(&t.rank[i].w, &after),
              *squares = training_read(clattn_trainer_squares(t.rank[i].w.trainer), 1);
        assert_memory_equal(before, now, count * sizeof *now);
        assert_true(isnan(*squares));
        free(now);
        free(squares);
    }
    free(before);
    team_close(&t);
}

/* Nothing is exchanged then, and the next update is as if there had been none. */
static void wrong_numbers_change_nothing(void **state)
{
    team t;
    size_t count;
    (void)state;
    float *expected = team_after_updates(&training_cases[0], 2, &count);
    team_open(&t, &training_cases[0], 2);
    for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
        for (int i = 0; i < 2; i++) {
            t.rank[i].update = team_update_args(number);
            t.rank[i].update.learning_rate = NAN;
            team_compute(&t, i, (uint64_t)number);
        }
        assert_cl(clFinish(clattn_context_queue(device_context())));
        team_do(&t, team_move);
        team_assert(&t, CLATTN_ERROR_INVALID_ARGUMENT);
        for (int i = 0; i < 2; i++)
            t.rank[i].update = team_update_args(number);
        team_do(&t, team_move);
        team_assert(&t, CLATTN_SUCCESS);
    }
    float *found = training_values(&t.rank[1].w, &count);
    assert_memory_equal(found, expected, count * sizeof *found);
    free(found);
    free(expected);
    team_close(&t);
}

/* Exchanges of another call would meet what other ranks still wait for. */
static void a_failure_is_the_last(void **state)
{
    int last_ones = 0;
    bool reached = true;
    (void)state;
    for (unsigned long at = 1; reached; at++) {
        team t;
        team_open(&t, &training_cases[2], 1);
        t.rank[0].update = team_update_args(1);
        team_compute(&t, 0, 0);
        assert_cl(clFinish(clattn_context_queue(device_context())));
        inject_start(at, CL_OUT_OF_RESOURCES);
        team_move(&t.rank[0]);
        inject_stop();
        reached = inject_failed() != NULL;
        if (t.rank[0].status != CLATTN_SUCCESS) {
            team_move(&t.rank[0]);
            if (t.rank[0].status != CLATTN_SUCCESS) { /* otherwise it had not begun to exchange */
                last_ones++;
                assert_int_equal(t.rank[0].status, CLATTN_ERROR_GROUP);
                assert_string_equal(t.rank[0].message, "rank 0: the group has failed before");
            }
        }
        team_close(&t);
    }
    assert_true(last_ones >= 5); /* gradients, squares, Adam, parameters: each has calls of OpenCL */
}

static void other_models_are_refused(void **state)
{
    team t;
    (void)state;
    team_open_models(&t, &training_cases[0], 2, 20000);
    training_close(&t.rank[1].w);
    training_open(&t.rank[1].w, &training_cases[2]);
    clattn_trainer_release(&t.rank[1].w.trainer);
    team_do(&t, team_make);
    team_assert(&t, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(t.rank[0].message, "rank 0 has parameters="));
    assert_non_null(strstr(t.rank[0].message, ", and rank 1 has parameters="));
    team_close(&t);
    /* One number is another one. */
    team_open_models(&t, &training_cases[0], 2, 20000);
    assert_int_equal(clattn_trainer_create(t.rank[1].w.model, &t.rank[1].w.trainer), CLATTN_SUCCESS);
    const clattn_parameter p = training_parameter(&t.rank[1].w, 2, &(size_t){0});
    write_buffer(clattn_context_queue(device_context()), p.value.buffer, (size_t)p.value.offset * sizeof(float),
                 sizeof(float), &(float){0.125f});
    clattn_trainer_release(&t.rank[1].w.trainer);
    team_do(&t, team_make);
    team_assert(&t, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(t.rank[0].message, "rank 0 has values="));
    assert_non_null(strstr(t.rank[1].message, ", and rank 0 has values="));
    for (int i = 0; i < 2; i++)
        assert_null(t.rank[i].w.trainer);
    team_close(&t);
}

static void a_missing_rank_is_named(void **state)
{
    team t;
    (void)state;
    team_open_models(&t, &training_cases[0], 2, 100);
    team_make(&t.rank[0]);
    assert_int_equal(t.rank[0].status, CLATTN_ERROR_GROUP);
    assert_string_equal(t.rank[0].message, "rank 0: rank 1 did not answer within 100 ms");
    assert_null(t.rank[0].w.trainer);
    team_close(&t);
    team_open_models(&t, &training_cases[0], 2, 2000);
    team_do(&t, team_make);
    team_assert(&t, CLATTN_SUCCESS);
    t.rank[0].update = team_update_args(1);
    team_compute(&t, 0, 0);
    team_move(&t.rank[0]);
    assert_int_equal(t.rank[0].status, CLATTN_ERROR_GROUP);
    assert_string_equal(t.rank[0].message, "rank 0: rank 1 did not answer within 2000 ms");
    team_move(&t.rank[0]);
    assert_string_equal(t.rank[0].message, "rank 0: the group has failed before");
    team_close(&t);
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
    suite_add(a_broken_gradient_changes_nothing, "group training: a gradient that is not finite changes nothing");
    suite_add(wrong_numbers_change_nothing, "group training: wrong numbers change nothing");
    suite_add(a_failure_is_the_last, "group training: after a failure there is no further update");
    suite_add(other_models_are_refused, "group training: other models are refused");
    suite_add(a_missing_rank_is_named, "group training: a missing rank is named");
    suite_add(wrong_arguments_are_refused, "group training: wrong arguments are refused");
    return suite_run("group_training_refusals", argc, argv);
}
