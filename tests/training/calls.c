/* Calls of a step of training return at once.
 *
 * Holds: training.h: neither clattn_training_enqueue nor clattn_trainer_update waits for the device. */
#include <stdlib.h>
#include <string.h>

#include "support/core/user_events.h"
#include "support/device.h"
#include "support/nn/training_case.h"
#include "support/suite.h"

static clattn_update_args first_update(void)
{
    clattn_update_args args = CLATTN_UPDATE_ARGS_INIT;
    args.step = 1;
    args.learning_rate = 0.01;
    args.clip_norm = 0.5;
    return args;
}

/* The parameters after a step and its update, whose losses are in w->losses then; the caller frees them. */
static float *parameters_of_a_step(training_world *w, size_t *count)
{
    const clattn_update_args update = first_update();
    training_step(w, 0, false, 0);
    assert_status(device_context(), clattn_trainer_update(w->trainer, NULL, &update, 0, NULL, NULL), CLATTN_SUCCESS);
    return training_values(w, count);
}

/* A step and its update are enqueued behind an event of the user's: a call that waited for the device would never return.  When the event
 * is complete, they have the results that they have without it. */
static void waits_for_nothing(const void *test, const char *solver)
{
    const clattn_update_args update = first_update();
    training_world alone, w;
    size_t count;
    (void)solver;
    training_open(&alone, test);
    float *expected = parameters_of_a_step(&alone, &count);
    training_open(&w, test);
    clattn_training_args args = training_bind(&w, 0);
    clattn_plan *plan = NULL;
    args.explicit_scale = 1;
    args.scale = 0.125f;
    assert_status(device_context(), clattn_training_plan_create(w.trainer, &w.desc, NULL, &plan), CLATTN_SUCCESS);
    cl_event updated = NULL, user_event = make_user_event(device_context());
    const clattn_status enqueued =
        clattn_training_enqueue(plan, NULL, &args, user_event != NULL, user_event ? &user_event : NULL, NULL);
    const clattn_status moved = clattn_trainer_update(w.trainer, NULL, &update, 0, NULL, &updated);
    const bool waits = event_waits(updated) || !user_event;
    complete_user_event(user_event);
    assert_status(device_context(), enqueued, CLATTN_SUCCESS);
    assert_status(device_context(), moved, CLATTN_SUCCESS);
    assert_true(waits);
    assert_cl(clWaitForEvents(1, &updated));
    assert_cl(clReleaseEvent(updated));
    float *found = training_values(&w, &count), *losses = training_read(args.losses, TRAINING_LABELS);
    assert_memory_equal(losses, alone.losses, sizeof alone.losses);
    assert_memory_equal(found, expected, count * sizeof *found);
    free(losses);
    free(found);
    free(expected);
    clattn_plan_release(&plan);
    training_unbind(&args);
    training_close(&w);
    training_close(&alone);
}

int main(int argc, char **argv)
{
    suite_add_case(waits_for_nothing, &training_cases[0], "", "a step waits for nothing: %s", training_cases[0].name);
    suite_add_case(waits_for_nothing, &training_cases[2], "", "a step waits for nothing: %s", training_cases[2].name);
    return suite_run("training calls", argc, argv);
}
