/* Training: what is refused, and why.
 *
 * Holds: training.h. */
#include <math.h>

#include "support/device.h"
#include "support/nn/training_case.h"
#include "support/suite.h"

/* A model of one stack, a decoder if its output is another one than NONE. */
static void refuses_model(const clattn_stack_desc *stack, clattn_dtype dtype, clattn_model_output output,
                          const char *reason)
{
    const bool decodes = output != CLATTN_MODEL_OUTPUT_NONE;
    nn_store store = {.seed = 3};
    clattn_trainer *trainer = (clattn_trainer *)&store;
    const clattn_transformer_desc desc = {.size = sizeof desc,
                                          .encoder = decodes ? NULL : stack,
                                          .decoder = decodes ? stack : NULL,
                                          .output = output,
                                          .dtype = dtype};
    nn_store_add_stack(&store, decodes ? "decoder" : "encoder", stack);
    clattn_transformer *model = nn_transformer(device_context(), &desc, &store);
    assert_status(device_context(), clattn_trainer_create(model, &trainer), CLATTN_ERROR_UNSUPPORTED);
    assert_null(trainer);
    assert_message_has(device_context(), reason);
    clattn_transformer_release(&model);
    nn_store_clear(&store);
}

static void refuses_models(void **state)
{
    static const clattn_stack_desc plain = {SHAPE(RELU), .layers = 1, .input = CLATTN_STACK_INPUT_TOKENS,
                                            .vocabulary = TRAINING_VOCABULARY};
    clattn_stack_desc d = plain;
    clattn_trainer *trainer = NULL;
    (void)state;
    refuses_model(&plain, CLATTN_DTYPE_F16, CLATTN_MODEL_OUTPUT_TIED, "not both float32");
    d.layer_scale = 1;
    refuses_model(&d, CLATTN_DTYPE_F32, CLATTN_MODEL_OUTPUT_TIED, "layer_scale");
    d = plain;
    d.projection = 4;
    refuses_model(&d, CLATTN_DTYPE_F32, CLATTN_MODEL_OUTPUT_NONE, "projection");
    assert_int_equal(clattn_trainer_create(NULL, &trainer), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_trainer_parameter_count(NULL), 0);
    assert_int_equal(clattn_trainer_bytes(NULL), 0);
    assert_null(clattn_trainer_squares(NULL).buffer);
    clattn_trainer_release(NULL);
    clattn_trainer_release(&trainer);
}

static void refuses_desc(const training_world *w, const clattn_training_desc *desc, const char *reason)
{
    clattn_plan *plan = NULL;
    assert_status(device_context(), clattn_training_plan_create(w->trainer, desc, NULL, &plan),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(plan);
    assert_message_has(device_context(), reason);
}

static void refusals(const void *test, const char *solver)
{
    training_world w;
    clattn_plan *plan = (clattn_plan *)&w;
    clattn_training_desc d;
    clattn_training_args args;
    clattn_parameter p = CLATTN_PARAMETER_INIT;
    (void)solver;
    training_open(&w, test);
#define REFUSES(change, reason) \
    d = w.desc; \
    change; \
    refuses_desc(&w, &d, reason)
    REFUSES(d.batch = 0, "batch");
    REFUSES(d.source_length = w.has_encoder ? 0 : 4, w.has_encoder ? "source_length 0 is" : "source_length 4 is not 0");
    REFUSES(d.target_length = 0, "target_length 0 is not 1 or more");
    REFUSES(d.target_length = (size_t)1 << 31, "is above 2^30");
    if (w.has_features) {
        REFUSES(d.source_length = 50, "source_length 50 is beyond the table of positions");
    }
    REFUSES(d.label_smoothing = 1, "label_smoothing");
    REFUSES(d.dropout = -0.1f, "dropout");
    REFUSES(d.dropout = NAN, "dropout");
    REFUSES(d.recompute = 2, "recompute");
#undef REFUSES
    assert_int_equal(clattn_training_plan_create(NULL, &w.desc, NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(plan);
    assert_status(device_context(), clattn_training_plan_create(w.trainer, &w.desc, NULL, &plan), CLATTN_SUCCESS);
    args = training_bind(&w, 0);
    const clattn_binding losses = args.losses;
    args.losses = (clattn_binding){0};
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "losses");
    args.losses = clattn_binding_buffer(losses.buffer, 1);
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_BUFFER_TOO_SMALL);
    args.losses = losses;
    if (!w.test->encoder.segments) {
        args.source_segments = args.target;
        assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                      CLATTN_ERROR_INVALID_ARGUMENT);
        assert_message_has(device_context(), "source_segments");
        args.source_segments = (clattn_binding){0};
    }
    w.target_lengths[1] = TRAINING_TARGET + 1;
    assert_status(device_context(), clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "target_lengths[1] is 6, not 0 to 5");
    assert_status(device_context(), clattn_trainer_parameter(w.trainer, 1000, &p), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(device_context(), clattn_trainer_parameter(w.trainer, 0, NULL), CLATTN_ERROR_INVALID_STRUCT);
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, NULL, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    const clattn_update_args none = (clattn_update_args)CLATTN_UPDATE_ARGS_INIT;
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &none, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_plan_release(&plan);
    training_unbind(&args);
    training_close(&w);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < TRAINING_CASES; i++)
        suite_add_case(refusals, &training_cases[i], "", "refusals: %s", training_cases[i].name);
    suite_add(refuses_models, "models that cannot be trained");
    return suite_run("training_refusals", argc, argv);
}
