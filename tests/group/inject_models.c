/* Calls of OpenCL and of the system, and exchanges, fail while a rank makes its part of a model, and runs or trains it: the answer is a
 * status that names the call, every reference comes back, every exchange that was started is waited for, and the context works again.
 *
 * Holds: group.h, "after a failure". */
#include <stdlib.h>
#include <string.h>

#include "support/core/inject_run.h"
#include "support/device.h"
#include "support/group/fails.h"
#include "support/harness.h"
#include "support/nn/run.h"
#include "support/suite.h"

enum { RUNS = 2, ITEMS = 2, LENGTH = 5, COLUMNS = 32, VOCABULARY = 17 };

/* ---- a part of a model ---- */

/* A call that has started exchanges and fails makes each one that follows fail, before it exchanges anything; where memory goes on to
 * lack, perhaps by that. */
static void check_again(clattn_status status, const other_rank *other, int before, clattn_status (*again)(void *),
                        void *user)
{
    const int started = other->started;
    if (status == CLATTN_SUCCESS || started == before)
        return;
    const clattn_status second = again(user);
    assert_true(second == CLATTN_ERROR_GROUP || (inject_failed() && second == CLATTN_ERROR_OUT_OF_MEMORY));
    assert_int_equal(other->started, started);
}

static void take_event(cl_event *event)
{
    if (!*event)
        return;
    assert_cl(clWaitForEvents(1, event));
    clReleaseEvent(*event);
    *event = NULL;
    inject_event_taken();
}

struct encoding {
    clattn_plan *plan;
    clattn_encoder_args args;
};

static clattn_status encode_again(void *user)
{
    const struct encoding *e = user;
    return clattn_encoder_enqueue(e->plan, NULL, &e->args, 0, NULL, NULL);
}

static clattn_status run_encoder(clattn_context *context, const void *unused, other_rank *other, float *results)
{
    static const clattn_stack_desc stack = {SHAPE(RELU), POST, .layers = 2};
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    const clattn_encoder_desc sizes = nn_encoder_desc(ITEMS, LENGTH);
    const clattn_group group = other_group(other);
    const size_t bytes = ITEMS * LENGTH * COLUMNS * sizeof(float);
    struct encoding e = {.args = CLATTN_ENCODER_ARGS_INIT};
    (void)unused;
    clattn_transformer *model = NULL;
    nn_store store = {.seed = 6};
    nn_store_add_stack(&store, "encoder", &stack);
    const clattn_weight_source source = nn_source(&store);
    float *x = nn_floats(ITEMS * LENGTH * COLUMNS, 8);
    cl_mem in = nn_buffer(context, bytes, x), out = nn_buffer(context, bytes, NULL);
    e.args.input = clattn_binding_buffer(in, 0);
    e.args.output = clattn_binding_buffer(out, 0);
    clattn_status status = clattn_group_transformer_create(context, &group, &desc, &source, &model);
    assert_true((status == CLATTN_SUCCESS) == (model != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_encoder_plan_create(model, &sizes, NULL, &e.plan);
    for (int i = 0; i < RUNS && status == CLATTN_SUCCESS; i++) {
        cl_event event = NULL;
        const int before = other->started;
        status = clattn_encoder_enqueue(e.plan, NULL, &e.args, 0, NULL, &event);
        assert_true((status == CLATTN_SUCCESS) == (event != NULL));
        check_again(status, other, before, encode_again, &e);
        take_event(&event);
    }
    clattn_plan_release(&e.plan);
    clattn_transformer_release(&model);
    assert_int_equal(other->started, other->waited);
    clFinish(clattn_context_queue(context));
    memset(results, 0, OTHER_FLOATS * sizeof *results);
    if (status == CLATTN_SUCCESS)
        read_buffer(clattn_context_queue(context), out, bytes, results);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    nn_store_clear(&store);
    free(x);
    return status;
}

struct training {
    clattn_trainer *trainer;
    clattn_plan *plan;
    clattn_training_args args;
    clattn_update_args update;
};

static clattn_status step_again(void *user)
{
    const struct training *t = user;
    return clattn_training_enqueue(t->plan, NULL, &t->args, 0, NULL, NULL);
}

static clattn_status update_again(void *user)
{
    const struct training *t = user;
    return clattn_trainer_update(t->trainer, NULL, &t->update, 0, NULL, NULL);
}

/* A step of training, and the update. */
static clattn_status run_step(struct training *t, const other_rank *other)
{
    cl_event event = NULL;
    int before = other->started;
    clattn_status status = clattn_training_enqueue(t->plan, NULL, &t->args, 0, NULL, &event);
    assert_true((status == CLATTN_SUCCESS) == (event != NULL));
    check_again(status, other, before, step_again, t);
    take_event(&event);
    if (status != CLATTN_SUCCESS)
        return status;
    before = other->started;
    t->update.step++;
    status = clattn_trainer_update(t->trainer, NULL, &t->update, 0, NULL, &event);
    assert_true((status == CLATTN_SUCCESS) == (event != NULL));
    check_again(status, other, before, update_again, t);
    take_event(&event);
    return status;
}

/* Trains a model that ranks have together by a trainer alone or, if `way` points to true, by one of a group. */
static clattn_status run_training(clattn_context *context, const void *way, other_rank *other, float *results)
{
    const bool column = *(const bool *)way;
    static const clattn_stack_desc stack = {SHAPE(RELU),
                                            PRE,
                                            .layers = 1,
                                            .final_norm = 1,
                                            .causal = 1,
                                            .input = CLATTN_STACK_INPUT_TOKENS,
                                            .vocabulary = VOCABULARY};
    static const int32_t ids[ITEMS * LENGTH] = {1, 16, 5, 15, 2, 12, 9, 9, 3, 6};
    const clattn_transformer_desc desc = {
        .size = sizeof desc, .decoder = &stack, .output = CLATTN_MODEL_OUTPUT_TIED, .dtype = CLATTN_DTYPE_BF16};
    const clattn_group group = other_group(other);
    clattn_training_desc sizes = CLATTN_TRAINING_DESC_INIT;
    struct training t = {.args = CLATTN_TRAINING_ARGS_INIT, .update = CLATTN_UPDATE_ARGS_INIT};
    clattn_transformer *model = NULL;
    nn_store store = {.seed = 6};
    nn_store_add_stack(&store, "decoder", &stack);
    const clattn_weight_source source = nn_source(&store);
    cl_mem tokens = nn_buffer(context, sizeof ids, ids),
           losses = nn_buffer(context, ITEMS * LENGTH * sizeof(float), NULL);
    sizes.batch = ITEMS;
    sizes.target_length = LENGTH;
    t.args.target = t.args.labels = clattn_binding_buffer(tokens, 0);
    t.args.losses = clattn_binding_buffer(losses, 0);
    t.update.learning_rate = 0.001;
    t.update.clip_norm = 1;
    clattn_status status = clattn_group_transformer_create(context, &group, &desc, &source, &model);
    if (status == CLATTN_SUCCESS)
        status =
            column ? clattn_group_trainer_create(model, &group, &t.trainer) : clattn_trainer_create(model, &t.trainer);
    assert_true((status == CLATTN_SUCCESS) == (t.trainer != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_training_plan_create(t.trainer, &sizes, NULL, &t.plan);
    for (int i = 0; i < RUNS && status == CLATTN_SUCCESS; i++)
        status = run_step(&t, other);
    clattn_plan_release(&t.plan);
    clattn_trainer_release(&t.trainer);
    clattn_transformer_release(&model);
    assert_int_equal(other->started, other->waited);
    clFinish(clattn_context_queue(context));
    memset(results, 0, OTHER_FLOATS * sizeof *results);
    if (status == CLATTN_SUCCESS)
        read_buffer(clattn_context_queue(context), losses, ITEMS * LENGTH * sizeof(float), results);
    clReleaseMemObject(tokens);
    clReleaseMemObject(losses);
    nn_store_clear(&store);
    return status;
}

static const bool alone = false, in_column = true;

static const struct way {
    fails_case calls;
    const char *name;
} ways[] = {
    {{run_encoder, NULL}, "a part of an encoder"},
    {{run_training, &alone}, "training of a part of a model"},
    {{run_training, &in_column}, "training of a part of a model by a column"},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(fails_of_exchanges, &ways[i].calls, "", "group: exchanges fail, %s", ways[i].name);
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(fails_of_calls, &ways[i].calls, "", "group: calls fail, %s", ways[i].name);
    return suite_run("group_inject_models", argc, argv);
}
