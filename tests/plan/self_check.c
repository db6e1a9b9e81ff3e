/* A solver whose kernel disagrees with the reference is refused with the reason, and the next solver does the work; the
 * wrong program is not saved, and the check can be turned off.  A folder of kernel sources with one wrong constant
 * stands in for a driver that miscompiles.
 *
 * Holds: of docs/decisions.md, "Kernels are compared before their first use". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plan/sources.h"

static clattn_status plan_for(clattn_context *context, const char *solver, size_t queries, clattn_plan **plan)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, queries, 8);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 8, 8);
    options.solver = solver;
    return clattn_attention_plan_create(context, &desc, &options, plan);
}

/* Makes a plan with more queries than decoding has. */
static clattn_status plan_by(clattn_context *context, const char *solver, clattn_plan **plan)
{
    return plan_for(context, solver, 24, plan);
}

static void a_wrong_solver_is_refused_with_the_reason(void **state)
{
    struct sources sources;
    clattn_plan *plan;
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, plan_by(context, "cpu", &plan), CLATTN_ERROR_MISCOMPILED);
    assert_null(plan);
    assert_message_has(context, "attention_cpu disagrees with the reference on this device: output[");
    assert_status(context, plan_for(context, "cpu", 1, &plan), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "attention_cpu_decode disagrees with the reference on this device: output[");
    assert_status(context, plan_by(context, "generic", &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    release_context(&context);

    sources_damage(&sources, SCALAR_EXP);
    context = sources_context(&sources, NULL, true);
    assert_status(context, plan_by(context, "generic", &plan), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "attention_generic disagrees with the reference");
    /* The second plan gets the same answer without another run of the check. */
    assert_status(context, plan_by(context, "generic", &plan), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "attention_generic disagrees with the reference");
    release_context(&context);
}

/* Softmax and matrix products are checked too. */
static void other_operators_are_checked(void **state)
{
    struct sources sources;
    static const size_t extent[2] = {7, 20};
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    clattn_plan *plan;
    (void)state;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
    matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){9, 9});
    options.solver = "cpu";
    sources_damage(&sources, "softmax/softmax.h", "(floatv)(EXP2_C3)", "(floatv)(EXP2_C3 * 4.0f)");
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, clattn_softmax_plan_create(context, &softmax, &options, &plan), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "softmax_cpu_short disagrees with the reference on this device: y[");
    assert_status(context, clattn_matmul_plan_create(context, &matmul, &options, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    release_context(&context);

    /* The damage is not in fma.h because devices that do not fuse use its other half. */
    sources_damage(&sources, "matmul/cpu/packed.cl", "ADD_PRODUCT(x, y[v], acc[r][v])",
                   "ADD_PRODUCT(x, y[v], acc[r][v] * 1.001f)");
    context = sources_context(&sources, NULL, true);
    assert_status(context, clattn_matmul_plan_create(context, &matmul, &options, &plan), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "matmul_cpu disagrees with the reference on this device: c[");
    release_context(&context);
}

/* Each of the two kinds of kernels of the small operators gets a wrong constant of its own. */
static void small_operators_are_checked(void **state)
{
    struct sources sources;
    static const size_t extent[2] = {7, 20};
    static const struct {
        const char *solver, *file, *from, *to, *message;
        int kind;
    } cases[] = {
        {"cpu", "norm/cpu_short.cl", "- drift) * *factor", "- drift) * (*factor * 1.001f)",
         "norm_cpu_short disagrees with the reference on this device: y[", 0},
        {"tile", "norm/tile.cl", "inverse[inverse_at] = m.factor", "inverse[inverse_at] = m.factor * 1.001f",
         "norm_tile disagrees with the reference on this device: inv_std_dev[", 0},
        {"cpu", "rope/rope.h", "#define SIN_3 -1.66", "#define SIN_3 -1.65",
         "rope_cpu disagrees with the reference on this device: y[", 1},
        {"generic", "rope/rope.h", "turn * (ulong)position) >> 32", "turn * (ulong)(position % 4096)) >> 32",
         "rope_generic disagrees with the reference on this device: y[", 1},
        {"cpu", "lib/activation.h", "TANH_3 0x1.2444f2p-4f", "TANH_3 0x1.2454f2p-4f",
         "activation_cpu disagrees with the reference on this device: y[", 2},
        {"generic", "embedding/embedding.cl", "v = gather_table(", "v = 1.001f * gather_table(",
         "embedding disagrees with the reference on this device: y[", 3},
        {"generic", "embedding/embedding.cl", "row == id", "row <= id",
         "embedding disagrees with the reference on this device: y[", 3},
        {"generic", "rope/rope.h", "#define COS_4 4.16", "#define COS_4 4.36",
         "embedding disagrees with the reference on this device: y[", 3},
        {"generic", "lib/activation.h", "max(e->power, (intv)(-100))", "max(e->power, (intv)(-10))",
         "activation_generic disagrees with the reference on this device: y[", 2},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_plan_options options = {.size = sizeof options, .solver = cases[i].solver};
        clattn_norm_desc norm = CLATTN_NORM_DESC_INIT;
        clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
        clattn_activation_desc activation = CLATTN_ACTIVATION_DESC_INIT;
        clattn_embedding_desc embedding = CLATTN_EMBEDDING_DESC_INIT;
        clattn_plan *plan;
        clattn_status status;
        norm.x = norm.y = activation.x = activation.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
        norm.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){7, 1});
        rope.x = rope.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 3, 8);
        activation.function = CLATTN_ACTIVATION_GELU_TANH;
        embedding.positions = CLATTN_POSITIONS_SINUSOIDS;
        embedding.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[2]){1, 3});
        embedding.table = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){5, 8});
        embedding.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){1, 3, 8});
        sources_damage(&sources, cases[i].file, cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        switch (cases[i].kind) {
        case 0: status = clattn_norm_plan_create(context, &norm, &options, &plan); break;
        case 1: status = clattn_rope_plan_create(context, &rope, &options, &plan); break;
        case 3: status = clattn_embedding_plan_create(context, &embedding, &options, &plan); break;
        default: status = clattn_activation_plan_create(context, &activation, &options, &plan);
        }
        assert_status(context, status, CLATTN_ERROR_MISCOMPILED);
        assert_null(plan);
        assert_message_has(context, cases[i].message);
        release_context(&context);
    }
}

/* Merging and appending have one solver each, so that no other one takes over. */
static void merging_is_checked(void **state)
{
    struct sources sources;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"1.0f / row_sum", "1.001f / row_sum", "merge disagrees with the reference on this device: output["},
        {"sinks[a.sinks_offset + h * a.sinks_stride]", "sinks[a.sinks_offset]",
         "merge disagrees with the reference on this device: output["},
        {"row_max + log(row_sum)", "row_max + native_log(row_sum) * 1.01f",
         "merge disagrees with the reference on this device: lse["},
        {"if (x == -INFINITY)", "if (isnan(x))", "merge disagrees with the reference on this device: output["},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
        const size_t extent[5] = {3, 1, 4, 2, 20};
        clattn_plan *plan;
        desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
        desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
        desc.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent + 2);
        desc.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent + 1);
        desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent + 1);
        sources_damage(&sources, "merge/merge.cl", cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        assert_status(context, clattn_merge_plan_create(context, &desc, NULL, &plan), CLATTN_ERROR_MISCOMPILED);
        assert_null(plan);
        assert_message_has(context, cases[i].message);
        release_context(&context);
    }
}

static void appending_is_checked(void **state)
{
    struct sources sources;
#define WRONG(what) "kv_append disagrees with the reference on this device: " what "["
    static const struct {
        const char *file, *from, *to, *message;
        int32_t cache, dtype;
    } cases[] = {
        {"kv_append/kv_append.cl", "VALUE_UNIT + c) * a.value.col", "VALUE_UNIT) * a.value.col", WRONG("value_cache"),
         CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_F32},
        {"kv_append/kv_append.cl", ": j >= a.capacity)", ": j >= a.capacity - 1)", WRONG("key_cache"),
         CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_BF16},
        {"lib/storage.h", "bf16_bits(x)", "bf16_bits((x) * 0.998f)", WRONG("value_cache"), CLATTN_CACHE_KIND_PLAIN,
         CLATTN_DTYPE_BF16},
        {"kv_append/kv_append.cl", "count = min(count, LOAD_INT", "count = max(count, LOAD_INT",
         WRONG("a row that is not appended to"), CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_F16},
        {"kv_append/kv_append.cl", "i < count - a.capacity :", "i < count - a.capacity + 1 :", WRONG("key_cache"),
         CLATTN_CACHE_KIND_RING, CLATTN_DTYPE_F32},
        {"kv_append/kv_append.cl", "+ block * a.block_table.col", "", WRONG("key_cache"), CLATTN_CACHE_KIND_PAGED,
         CLATTN_DTYPE_F32},
        {"kv_append/kv_append.cl", "level((x)[c_], scale, 127)", "level((x)[c_] * 0.98f, scale, 127)",
         WRONG("key_cache"), CLATTN_CACHE_KIND_PAGED, CLATTN_DTYPE_I8},
        {"kv_append/kv_append.cl", "return finite ?", "return levels ?", WRONG("key_scale"), CLATTN_CACHE_KIND_PLAIN,
         CLATTN_DTYPE_I8},
        {"kv_append/kv_append.cl", "15) << 4)", "15) << 3)", WRONG("key_cache"), CLATTN_CACHE_KIND_RING,
         CLATTN_DTYPE_I4},
        {"rope/rope.h", "#define SIN_3 -1.66", "#define SIN_3 -1.65", WRONG("key_cache"), CLATTN_CACHE_KIND_PLAIN,
         CLATTN_DTYPE_F32},
    };
#undef WRONG
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
        bool paged = cases[i].cache == CLATTN_CACHE_KIND_PAGED;
        size_t heads = 2, pages = paged ? 5 : 1;
        clattn_plan *plan;
        desc.cache = cases[i].cache;
        desc.rotate = 1;
        desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, heads, 3, 16);
        desc.key_cache = desc.value_cache = clattn_layout_bhsd(cases[i].dtype, pages, heads, 9, 16);
        if (cases[i].dtype == CLATTN_DTYPE_I8 || cases[i].dtype == CLATTN_DTYPE_I4)
            desc.key_scale = desc.value_scale = clattn_layout_bhsd(CLATTN_DTYPE_F16, pages, heads, 9, 2);
        if (paged)
            desc.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[2]){1, 3});
        desc.past_lengths = desc.new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I64, 1, (const size_t[1]){1});
        sources_damage(&sources, cases[i].file, cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        assert_status(context, clattn_kv_append_plan_create(context, &desc, NULL, &plan), CLATTN_ERROR_MISCOMPILED);
        assert_null(plan);
        assert_message_has(context, cases[i].message);
        release_context(&context);
    }
}

static void images_are_checked(void **state)
{
    struct sources sources;
    static const struct {
        const char *from, *to, *message;
        int32_t operation;
    } cases[] = {
        {"clamp(a.origin_x + x + j - a.patch / 2, 0,", "clamp(a.origin_x + x + j - a.patch / 2, 1,",
         "image_pack disagrees with the reference on this device: array[", CLATTN_IMAGE_OPERATION_PACK},
        {"FMA(stored, stored, sum[into])", "FMA(stored, pixel[c] * 1.001f, sum[into])",
         "image_pack disagrees with the reference on this device: norm[", CLATTN_IMAGE_OPERATION_PACK},
        {"m[10] * v.z) + m[11]", "m[10] * v.z)", "image_pack disagrees with the reference on this device: array[",
         CLATTN_IMAGE_OPERATION_PACK},
        {"rint(inside * a->levels)", "floor(inside * a->levels)",
         "image_unpack disagrees with the reference on this device: image[", CLATTN_IMAGE_OPERATION_UNPACK},
        {"vstore_half_rte", "vstore_half_rtz", "image_unpack disagrees with the reference on this device: image[",
         CLATTN_IMAGE_OPERATION_UNPACK},
        {"v > 1.0f ? 1.0f", "v > 1.0f ? 0.9f", "image_unpack disagrees with the reference on this device: image[",
         CLATTN_IMAGE_OPERATION_UNPACK},
        {"a.origin_x + x, a.origin_y + y)", "a.origin_x + x + 1, a.origin_y + y)",
         "image_unpack disagrees with the reference on this device: image[", CLATTN_IMAGE_OPERATION_UNPACK},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_image_desc desc = CLATTN_IMAGE_DESC_INIT;
        bool pack = cases[i].operation == CLATTN_IMAGE_OPERATION_PACK;
        const char *reason;
        clattn_plan *plan;
        desc.operation = cases[i].operation;
        desc.patch = pack ? 5 : 1;
        desc.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){4, 3, pack ? 75 : 3});
        if (pack)
            desc.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){4, 3, 3});
        sources_damage(&sources, "image/image.cl", cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        if (clattn_image_supports(context, &desc, &reason) == CLATTN_SUCCESS) {
            assert_status(context, clattn_image_plan_create(context, &desc, NULL, &plan), CLATTN_ERROR_MISCOMPILED);
            assert_null(plan);
            assert_message_has(context, cases[i].message);
        } else {
            assert_non_null(strstr(reason, "no images"));
        }
        release_context(&context);
    }
}

static void the_next_solver_takes_over(void **state)
{
    struct sources sources;
    clattn_plan *plan;
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, plan_by(context, NULL, &plan), CLATTN_SUCCESS);
    assert_string_not_equal(clattn_plan_solver(plan), "cpu");
    clattn_device_info info = {.size = sizeof info};
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    if (info.type & CL_DEVICE_TYPE_CPU)
        assert_non_null(strstr(clattn_plan_explain(plan), "cpu: failed, attention_cpu disagrees with the reference"));
    clattn_plan_release(&plan);
    release_context(&context);
}

static void a_wrong_program_is_not_saved(void **state)
{
    struct sources sources;
    clattn_plan *plan;
    char cache[FOLDER_SIZE];
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    new_folder(cache);
    for (int round = 0; round < 2; round++) {
        clattn_context *context = sources_context(&sources, cache, true);
        clattn_program_statistics statistics = {.size = sizeof statistics};
        assert_status(context, plan_by(context, "cpu", &plan), CLATTN_ERROR_MISCOMPILED);
        assert_status(context, clattn_context_program_statistics(context, &statistics), CLATTN_SUCCESS);
        assert_int_equal(statistics.loaded, 0);
        release_context(&context);
    }
    /* A context that checks does not trust a program that was saved without a check. */
    clattn_context *context = sources_context(&sources, cache, false);
    assert_status(context, plan_by(context, "cpu", &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    release_context(&context);
    context = sources_context(&sources, cache, true);
    assert_status(context, plan_by(context, "cpu", &plan), CLATTN_ERROR_MISCOMPILED);
    release_context(&context);
}

static void an_unknown_self_check_is_refused(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context;
    (void)state;
    params.self_check = CLATTN_SELF_CHECK_ALWAYS + 1;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    params.self_check = CLATTN_SELF_CHECK_ON;
    params.reserved = 1;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_solver_is_refused_with_the_reason),
        cmocka_unit_test(other_operators_are_checked),
        cmocka_unit_test(small_operators_are_checked),
        cmocka_unit_test(merging_is_checked),
        cmocka_unit_test(appending_is_checked),
        cmocka_unit_test(images_are_checked),
        cmocka_unit_test(the_next_solver_takes_over),
        cmocka_unit_test(a_wrong_program_is_not_saved),
        cmocka_unit_test(an_unknown_self_check_is_refused),
    };
    return RUN_TESTS("self-check", tests, argc, argv);
}
