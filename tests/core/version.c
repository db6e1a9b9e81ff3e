/* Versions, status strings, element types, layouts and init functions, none of which needs a device. */
#include <stdio.h>
#include <string.h>

#include "support/harness.h"

static void versions_agree(void **state)
{
    char text[32];
    (void)state;
    assert_int_equal(clattn_version(), CLATTN_VERSION);
    assert_string_equal(clattn_version_string(), CLATTN_VERSION_STRING);
    assert_string_equal(CLATTN_VERSION_STRING, BUILD_VERSION);
    snprintf(text, sizeof text, "%d.%d.%d", CLATTN_VERSION_MAJOR, CLATTN_VERSION_MINOR, CLATTN_VERSION_PATCH);
    assert_string_equal(text, CLATTN_VERSION_STRING);
}

static void every_status_has_its_own_description(void **state)
{
    const char *unknown = clattn_status_string((clattn_status)1000);
    (void)state;
    assert_string_equal(unknown, "unknown status");
    assert_string_equal(clattn_status_string((clattn_status)-1), "unknown status");
    for (int i = CLATTN_SUCCESS; i <= CLATTN_ERROR_GROUP; i++) {
        assert_string_not_equal(clattn_status_string((clattn_status)i), unknown);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(clattn_status_string((clattn_status)i), clattn_status_string((clattn_status)j));
    }
}

static void element_types_have_sizes_and_names(void **state)
{
    static const struct {
        clattn_dtype dtype;
        size_t size;
        const char *name;
    } types[] = {{CLATTN_DTYPE_F32, 4, "float32"}, {CLATTN_DTYPE_F16, 2, "float16"}, {CLATTN_DTYPE_BF16, 2, "bfloat16"},
                 {CLATTN_DTYPE_F64, 8, "float64"}, {CLATTN_DTYPE_BOOL, 1, "bool"},   {CLATTN_DTYPE_I32, 4, "int32"},
                 {CLATTN_DTYPE_I64, 8, "int64"},   {CLATTN_DTYPE_U8, 1, "uint8"},    {CLATTN_DTYPE_I8, 1, "int8"},
                 {CLATTN_DTYPE_NONE, 0, "none"},   {(clattn_dtype)77, 0, "unknown"}};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_int_equal(clattn_dtype_size(types[i].dtype), types[i].size);
        assert_string_equal(clattn_dtype_name(types[i].dtype), types[i].name);
    }
}

static void layouts_walk_memory_as_their_names_say(void **state)
{
    const size_t extent[] = {2, 3, 5, 7, 11};
    (void)state;
    clattn_layout layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    assert_int_equal(layout.dtype, CLATTN_DTYPE_F32);
    assert_int_equal(layout.rank, 5);
    int64_t stride = 1;
    for (int i = 4; i >= 0; i--) {
        assert_int_equal(layout.extent[i], extent[i]);
        assert_int_equal(layout.stride[i], stride);
        stride *= (int64_t)extent[i];
    }
    layout = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 3, 5, 7);
    const int64_t bhsd[] = {105, 35, 7, 1}, bshd[] = {105, 7, 21, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(layout.extent[i], extent[i]);
        assert_int_equal(layout.stride[i], bhsd[i]);
    }
    layout = clattn_layout_bshd(CLATTN_DTYPE_F32, 2, 3, 5, 7);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(layout.extent[i], extent[i]);
        assert_int_equal(layout.stride[i], bshd[i]);
    }
    const int64_t nhwc[] = {105, 1, 21, 3};
    for (int channels_last = 0; channels_last < 2; channels_last++) {
        layout = (channels_last ? clattn_layout_nhwc : clattn_layout_nchw)(CLATTN_DTYPE_F16, 2, 3, 5, 7);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(layout.extent[i], extent[i]);
            assert_int_equal(layout.stride[i], channels_last ? nhwc[i] : bhsd[i]);
        }
    }
    const clattn_layout none = {0};
    const int32_t bad_ranks[] = {0, -1, CLATTN_MAX_RANK + 1};
    for (int i = 0; i < 3; i++) {
        layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, bad_ranks[i], extent);
        assert_memory_equal(&layout, &none, sizeof none);
    }
    layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, NULL);
    assert_memory_equal(&layout, &none, sizeof none);
}

static void bindings_keep_what_they_are_given(void **state)
{
    int object;
    (void)state;
    clattn_binding binding = clattn_binding_buffer((cl_mem)(void *)&object, -3);
    assert_int_equal(binding.kind, CLATTN_BINDING_KIND_BUFFER);
    assert_ptr_equal(binding.buffer, &object);
    assert_int_equal(binding.offset, -3);
    binding = clattn_binding_svm(&object, 5);
    assert_int_equal(binding.kind, CLATTN_BINDING_KIND_SVM);
    assert_ptr_equal(binding.svm, &object);
    assert_int_equal(binding.offset, 5);
}

/* Each init macro has an exported function that does the same. */
static void init_functions_do_what_their_macros_do(void **state)
{
    (void)state;
#define TWINS(type, macro) \
    { \
        clattn_##type by_macro = macro, by_function; \
        memset(&by_function, 0xa5, sizeof by_function); \
        clattn_##type##_init(&by_function); \
        clattn_##type##_init(NULL); \
        assert_int_equal(by_function.size, sizeof by_function); \
        assert_memory_equal(&by_macro, &by_function, sizeof by_function); \
    }
    TWINS(context_params, CLATTN_CONTEXT_PARAMS_INIT)
    TWINS(plan_options, CLATTN_PLAN_OPTIONS_INIT)
    TWINS(attention_desc, CLATTN_ATTENTION_DESC_INIT)
    TWINS(attention_args, CLATTN_ATTENTION_ARGS_INIT)
    TWINS(softmax_desc, CLATTN_SOFTMAX_DESC_INIT)
    TWINS(softmax_args, CLATTN_SOFTMAX_ARGS_INIT)
    TWINS(matmul_desc, CLATTN_MATMUL_DESC_INIT)
    TWINS(matmul_args, CLATTN_MATMUL_ARGS_INIT)
    TWINS(mha_desc, CLATTN_MHA_DESC_INIT)
    TWINS(mha_args, CLATTN_MHA_ARGS_INIT)
    TWINS(activation_desc, CLATTN_ACTIVATION_DESC_INIT)
    TWINS(activation_args, CLATTN_ACTIVATION_ARGS_INIT)
    TWINS(norm_desc, CLATTN_NORM_DESC_INIT)
    TWINS(norm_args, CLATTN_NORM_ARGS_INIT)
    TWINS(pool_desc, CLATTN_POOL_DESC_INIT)
    TWINS(pool_args, CLATTN_POOL_ARGS_INIT)
    TWINS(resize_desc, CLATTN_RESIZE_DESC_INIT)
    TWINS(resize_args, CLATTN_RESIZE_ARGS_INIT)
    TWINS(rope_desc, CLATTN_ROPE_DESC_INIT)
    TWINS(rope_args, CLATTN_ROPE_ARGS_INIT)
    TWINS(cross_entropy_desc, CLATTN_CROSS_ENTROPY_DESC_INIT)
    TWINS(cross_entropy_args, CLATTN_CROSS_ENTROPY_ARGS_INIT)
    TWINS(dropout_desc, CLATTN_DROPOUT_DESC_INIT)
    TWINS(dropout_args, CLATTN_DROPOUT_ARGS_INIT)
    TWINS(embedding_desc, CLATTN_EMBEDDING_DESC_INIT)
    TWINS(embedding_args, CLATTN_EMBEDDING_ARGS_INIT)
    TWINS(image_desc, CLATTN_IMAGE_DESC_INIT)
    TWINS(image_args, CLATTN_IMAGE_ARGS_INIT)
    TWINS(kv_append_desc, CLATTN_KV_APPEND_DESC_INIT)
    TWINS(kv_append_args, CLATTN_KV_APPEND_ARGS_INIT)
    TWINS(adam_desc, CLATTN_ADAM_DESC_INIT)
    TWINS(adam_args, CLATTN_ADAM_ARGS_INIT)
    TWINS(square_sum_desc, CLATTN_SQUARE_SUM_DESC_INIT)
    TWINS(square_sum_args, CLATTN_SQUARE_SUM_ARGS_INIT)
    TWINS(merge_desc, CLATTN_MERGE_DESC_INIT)
    TWINS(merge_args, CLATTN_MERGE_ARGS_INIT)
    TWINS(conv2d_desc, CLATTN_CONV2D_DESC_INIT)
    TWINS(conv2d_args, CLATTN_CONV2D_ARGS_INIT)
    TWINS(neighbourhood_desc, CLATTN_NEIGHBOURHOOD_DESC_INIT)
    TWINS(neighbourhood_args, CLATTN_NEIGHBOURHOOD_ARGS_INIT)
    TWINS(feed_forward_desc, CLATTN_FEED_FORWARD_DESC_INIT)
    TWINS(feed_forward_args, CLATTN_FEED_FORWARD_ARGS_INIT)
    TWINS(stack_desc, CLATTN_STACK_DESC_INIT)
    TWINS(transformer_desc, CLATTN_TRANSFORMER_DESC_INIT)
    TWINS(weight_source, CLATTN_WEIGHT_SOURCE_INIT)
    TWINS(encoder_desc, CLATTN_ENCODER_DESC_INIT)
    TWINS(encoder_args, CLATTN_ENCODER_ARGS_INIT)
    TWINS(decoder_desc, CLATTN_DECODER_DESC_INIT)
    TWINS(decoder_begin_args, CLATTN_DECODER_BEGIN_ARGS_INIT)
    TWINS(decoder_args, CLATTN_DECODER_ARGS_INIT)
    TWINS(generate_desc, CLATTN_GENERATE_DESC_INIT)
    TWINS(generated, CLATTN_GENERATED_INIT)
#undef TWINS
}

static void releasers_accept_nothing(void **state)
{
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    clattn_devices *devices = NULL;
    (void)state;
    clattn_context_release(NULL);
    clattn_context_release(&context);
    clattn_plan_release(NULL);
    clattn_plan_release(&plan);
    clattn_devices_release(NULL);
    clattn_devices_release(&devices);
    assert_int_equal(clattn_devices_count(NULL), 0);
    assert_int_equal(clattn_devices_skipped_count(NULL), 0);
    assert_null(clattn_devices_skipped(NULL, 0));
    assert_null(clattn_context_opencl_context(NULL));
    assert_null(clattn_context_opencl_device(NULL));
    assert_null(clattn_context_queue(NULL));
}

/* Without a context the message belongs to the calling thread; it is copied as snprintf would. */
static void messages_are_truncated_and_terminated(void **state)
{
    char small[8];
    (void)state;
    assert_status(NULL, clattn_context_create(NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    size_t length = clattn_context_message(NULL, NULL, 0);
    assert_true(length > sizeof small);
    memset(small, 'x', sizeof small);
    assert_int_equal(clattn_context_message(NULL, small, sizeof small), length);
    assert_int_equal(strlen(small), sizeof small - 1);
    memset(small, 'x', sizeof small);
    assert_int_equal(clattn_context_message(NULL, small, 1), length);
    assert_int_equal(small[0], '\0');
    assert_int_equal(small[1], 'x');
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_agree),
        cmocka_unit_test(every_status_has_its_own_description),
        cmocka_unit_test(element_types_have_sizes_and_names),
        cmocka_unit_test(layouts_walk_memory_as_their_names_say),
        cmocka_unit_test(bindings_keep_what_they_are_given),
        cmocka_unit_test(init_functions_do_what_their_macros_do),
        cmocka_unit_test(releasers_accept_nothing),
        cmocka_unit_test(messages_are_truncated_and_terminated),
    };
    return RUN_TESTS("version", tests, argc, argv);
}
