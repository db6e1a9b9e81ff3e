/* Every operator's and every model's plan can be made by a job, and is the one that plan_create makes. */
#include <stdlib.h>
#include <string.h>

#include "support/core/one_context.h"
#include "support/nn/run.h"
#include "support/operator.h"

/* Asserts that a job gives what plan_create gives, from a description that is gone by then. */
static void by_job(const char *name, const struct operator_calls *op, void *desc, size_t bytes)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL, *same = NULL;
    clattn_job *job = NULL;
    print_message("%s\n", name);
    options.background.job = &job;
    void *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, desc, bytes);
    assert_status(context, op->plan_create(context, copy, &options, NULL), CLATTN_SUCCESS);
    memset(copy, 0xff, bytes);
    free(copy);
    if (clattn_job_wait(job, &plan) == CLATTN_ERROR_UNSUPPORTED && op == &image_operator)
        plan = NULL; /* a device without images */
    else
        assert_non_null(plan);
    if (plan) {
        assert_status(context, op->plan_create(context, desc, NULL, &same), CLATTN_SUCCESS);
        assert_string_equal(clattn_plan_explain(plan), clattn_plan_explain(same));
        assert_int_equal(clattn_plan_workspace_size(plan), clattn_plan_workspace_size(same));
    }
    clattn_job_release(&job);
    clattn_plan_release(&plan);
    clattn_plan_release(&same);
}
#define BY_JOB(name) by_job(#name, &name##_operator, &name, sizeof name)

static clattn_status feed_forward_plan_create(clattn_context *with, const void *desc,
                                              const clattn_plan_options *options, clattn_plan **plan)
{
    return clattn_feed_forward_plan_create(with, desc, options, plan);
}

static void every_operator_has_jobs(void **state)
{
    const size_t sides[] = {1, 1, 6, 6, 8};
    const struct operator_calls feed_forward_operator = {.plan_create = feed_forward_plan_create};
    const clattn_layout one = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){6});
    const clattn_layout two = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){6, 6});
    const clattn_layout three = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){1, 6, 6});
    const clattn_layout four = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 6, 8);
    const clattn_layout five = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, sides);
    (void)state;
    clattn_activation_desc activation = {
        .size = sizeof activation, .function = CLATTN_ACTIVATION_RELU, .x = two, .y = two};
    BY_JOB(activation);
    clattn_adam_desc adam = {
        .size = sizeof adam, .parameter = one, .gradient = one, .first_moment = one, .second_moment = one};
    BY_JOB(adam);
    clattn_square_sum_desc square_sum = {.size = sizeof square_sum, .x = one};
    square_sum.result = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){1});
    BY_JOB(square_sum);
    clattn_attention_desc attention = {
        .size = sizeof attention, .query = four, .key = four, .value = four, .output = four};
    BY_JOB(attention);
    clattn_embedding_desc embedding = {.size = sizeof embedding, .table = two, .y = three};
    embedding.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[]){1, 6});
    BY_JOB(embedding);
    const clattn_layout one_pixel = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[]){6, 6, 1, 1});
    clattn_conv2d_desc conv2d = {.size = sizeof conv2d, .x = one_pixel, .weight = one_pixel, .y = one_pixel};
    BY_JOB(conv2d);
    clattn_image_desc image = {.size = sizeof image};
    image.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){6, 6, 3});
    BY_JOB(image);
    clattn_kv_append_desc kv_append = {
        .size = sizeof kv_append, .key = four, .value = four, .key_cache = four, .value_cache = four};
    BY_JOB(kv_append);
    clattn_matmul_desc matmul = {.size = sizeof matmul, .a = two, .b = two, .c = two};
    BY_JOB(matmul);
    clattn_merge_desc merge = {.size = sizeof merge, .partial = five, .output = five};
    merge.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, sides);
    merge.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, sides + 1);
    BY_JOB(merge);
    clattn_mha_desc mha = {.size = sizeof mha, .batch = 1, .query_length = 6, .d_model = 8, .heads = 2};
    BY_JOB(mha);
    clattn_neighbourhood_desc neighbourhood = {
        .size = sizeof neighbourhood, .window = {3, 3}, .query = five, .key = five, .value = five, .output = five};
    BY_JOB(neighbourhood);
    clattn_norm_desc norm = {.size = sizeof norm, .x = two, .y = two, .scale = one};
    BY_JOB(norm);
    clattn_pool_desc pool = {.size = sizeof pool, .window = {1, 1}, .x = four, .y = four};
    BY_JOB(pool);
    clattn_resize_desc resize = {.size = sizeof resize, .x = four, .y = four};
    BY_JOB(resize);
    clattn_rope_desc rope = {.size = sizeof rope, .x = four, .y = four};
    BY_JOB(rope);
    clattn_softmax_desc softmax = {.size = sizeof softmax, .x = two, .y = two};
    BY_JOB(softmax);
    clattn_feed_forward_desc feed_forward = {
        .size = sizeof feed_forward, .activation = CLATTN_ACTIVATION_RELU, .rows = 6, .d_model = 8, .d_ff = 8};
    BY_JOB(feed_forward);
}

/* The jobs of a model's plans keep the model, and a cancelled one gives it back. */
static void every_model_has_jobs(void **state)
{
    const clattn_stack_desc encoder_stack = {SHAPE(RELU), .layers = 2};
    const clattn_stack_desc decoder_stack = {SHAPE(RELU), .layers = 1, .causal = 1, .cross = 1};
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_encoder_desc encoder = nn_encoder_desc(1, 5);
    clattn_decoder_desc decoder = CLATTN_DECODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL, *same = NULL;
    clattn_job *encodes = NULL, *decodes = NULL, *cancelled = NULL;
    nn_store store = {.seed = 3};
    (void)state;
    desc.encoder = &encoder_stack;
    desc.decoder = &decoder_stack;
    decoder.items = 1;
    decoder.length = decoder.cache_length = 4;
    decoder.memory_length = 5;
    nn_store_add_stack(&store, "encoder", &encoder_stack);
    nn_store_add_stack(&store, "decoder", &decoder_stack);
    clattn_transformer *model = nn_transformer(context, &desc, &store);
    options.background.job = &cancelled;
    encoder.length = 0;
    assert_status(context, clattn_encoder_plan_create(model, &encoder, &options, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(cancelled);
    encoder.length = 5;
    options.background.job = &encodes;
    assert_status(context, clattn_encoder_plan_create(model, &encoder, &options, NULL), CLATTN_SUCCESS);
    options.background.job = &decodes;
    assert_status(context, clattn_decoder_plan_create(model, &decoder, &options, NULL), CLATTN_SUCCESS);
    options.background.job = &cancelled;
    assert_status(context, clattn_decoder_plan_create(model, &decoder, &options, NULL), CLATTN_SUCCESS);
    clattn_job_cancel(cancelled);
    clattn_transformer *again = nn_transformer(context, &desc, &store);
    clattn_transformer_release(&model);
    assert_int_equal(clattn_job_wait(encodes, &plan), CLATTN_SUCCESS);
    assert_status(context, clattn_encoder_plan_create(again, &encoder, NULL, &same), CLATTN_SUCCESS);
    assert_string_equal(clattn_plan_explain(plan), clattn_plan_explain(same));
    clattn_plan_release(&plan);
    clattn_plan_release(&same);
    assert_int_equal(clattn_job_wait(decodes, &plan), CLATTN_SUCCESS);
    assert_status(context, clattn_decoder_plan_create(again, &decoder, NULL, &same), CLATTN_SUCCESS);
    assert_string_equal(clattn_plan_explain(plan), clattn_plan_explain(same));
    clattn_plan_release(&plan);
    clattn_plan_release(&same);
    assert_int_equal(clattn_job_wait(cancelled, &plan), CLATTN_ERROR_CANCELLED);
    clattn_job_release(&encodes);
    clattn_job_release(&decodes);
    clattn_job_release(&cancelled);
    clattn_transformer_release(&again);
    nn_store_clear(&store);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_operator_has_jobs, open_context, close_context),
        cmocka_unit_test_setup_teardown(every_model_has_jobs, open_context, close_context),
    };
    return RUN_TESTS("jobs", tests, argc, argv);
}
