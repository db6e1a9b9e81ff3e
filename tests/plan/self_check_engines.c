/* The self-check notices damage in kernels for the matrix engines of processors and GPUs, as far as they run here, with
 * emulated instructions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/plan/sources.h"

/* Some pairs of bfloat16 have their halves in the wrong order: those of K and of a row, and those of V. */
static void pairs_are_checked(void **state)
{
    struct sources sources;
    static const struct {
        const char *file, *from, *to, *attention, *matmul;
    } cases[] = {
        {"lib/bf16_pairs.h", "as_uint(vload2(0, p))", "as_uint(vload2(0, p).s10)",
         "attention_cpu disagrees with the reference", "matmul_cpu disagrees with the reference"},
        {"attention/cpu/bf16_pairs.h", "value_lanes(odd, d) << 16", "value_lanes(even, d) << 16",
         "attention_cpu disagrees with the reference", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
        clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
        attention.query = attention.key = attention.value = attention.output =
            clattn_layout_bhsd(CLATTN_DTYPE_BF16, 1, 1, 33, 8);
        matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_BF16, 2, (const size_t[2]){9, 9});
        sources_damage(&sources, cases[i].file, cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        assert_status(context, operator_makes(context, &attention_operator, &attention, "cpu-bf16"),
                      CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, cases[i].attention);
        assert_status(context, operator_makes(context, &matmul_operator, &matmul, "cpu-bf16"),
                      cases[i].matmul ? CLATTN_ERROR_MISCOMPILED : CLATTN_SUCCESS);
        if (cases[i].matmul)
            assert_message_has(context, cases[i].matmul);
        release_context(&context);
    }
}

/* An element of an engine's emulated fragments is in a wrong place or in a wrong lane.  No damage reaches beyond an array: a GPU
 * ends the kernel then, and with it the process's context. */
static void matrix_fragments_are_checked(void **state)
{
#define MATRIX DISAGREES("matmul_matrix") "c["
#define WGMMA DISAGREES("matmul_wgmma") "c["
    static const struct damage cases[] = {
        {"emulated-mma", "engine/nvidia/mma.h", "down = beside ? w >> 1 : w & 1", "down = beside ? w & 1 : w >> 1",
         MATRIX},
        {"emulated-wmma", "engine/amd/matrix.h", "(lane & 15), k + 8), 1, word)", "(lane & 15), k), 1, word)", MATRIX},
        {"emulated-mfma", "engine/amd/matrix.h", "tile, width, row, k, lane)", "tile, width, row, k, lane ^ 16)",
         MATRIX},
        {"emulated-dpas8", "engine/intel/dpas.h", "k + 2 * (w & 7)", "k + 2 * (w & 7 ^ 4)", MATRIX},
        {"emulated-dpas16", "engine/intel/dpas.h", "matrix_down(tile, width, row + 2 * w, k + lane)",
         "matrix_down(tile, width, row + 2 * w, k + (lane ^ 1))", MATRIX},
        {"emulated-mma", "engine/copy.h", "matrix_eight(from, 1, bytes >> 1)", "matrix_eight(from - 8, 1, 8)", MATRIX},
        /* For wgmma the damage is in what the descriptors say, how they are read, and how the tiles lie. */
        {"emulated-wgmma", "matmul/gpu/wgmma.cl", "8 * SPAN_OF(A_WIDTH)", "4 * SPAN_OF(A_WIDTH)", WGMMA},
        {"emulated-wgmma", "engine/nvidia/wgmma.h", "(ulong)(leading >> 4) << 16 | (ulong)(stride >> 4) << 32",
         "(ulong)(stride >> 4) << 16 | (ulong)(leading >> 4) << 32", WGMMA},
        {"emulated-wgmma", "engine/nvidia/wgmma.h", "at ^= (at >> 7 & turned) << 4;", "", WGMMA},
        {"emulated-wgmma", "matmul/gpu/tiles.h", "TILE_AT(row, column, width, height)", "(row * width + column)",
         WGMMA},
    };
#undef MATRIX
#undef WGMMA
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    (void)state;
    desc.a = desc.b = desc.c = clattn_layout_contiguous(CLATTN_DTYPE_BF16, 2, (const size_t[2]){9, 9});
    /* B is a weight here, because the damaged load is right for a B that is read like A. */
    desc.b.stride[0] = 1;
    desc.b.stride[1] = 9;
    damage_is_found(&matmul_operator, &desc, cases, COUNT_OF(cases));
}

/* A value of an emulated sub-group comes from the wrong item, or a part of it is left out. */
static void sub_groups_are_checked(void **state)
{
    struct sources sources;
    static const struct {
        const char *file, *from, *to;
    } cases[] = {
        {"lib/sub_group.h", "return scratch[item ^ distance];", "return scratch[item];"},
        {"lib/reduce.h", "partial_ = 1; partial_ < REDUCE_PARTIALS", "partial_ = 2; partial_ < REDUCE_PARTIALS"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
        clattn_norm_desc norm = CLATTN_NORM_DESC_INIT;
        softmax.x = softmax.y = norm.x = norm.y =
            clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){7, 40});
        sources_damage(&sources, cases[i].file, cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        assert_status(context, operator_makes(context, &softmax_operator, &softmax, "emulated-sub-group"),
                      CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, DISAGREES("softmax_tile") "y[");
        assert_status(context, operator_makes(context, &norm_operator, &norm, "emulated-sub-group"),
                      CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, DISAGREES("norm_tile") "y[");
        if (!strcmp(cases[i].file, "lib/sub_group.h") && !device_breaks("emulated-sub-group")) {
            clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
            attention.query = attention.key = attention.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 33, 8);
            attention.output = attention.query;
            assert_status(context, operator_makes(context, &attention_operator, &attention, "emulated-sub-group"),
                          CLATTN_ERROR_MISCOMPILED);
            assert_message_has(context, DISAGREES("attention_tile"));
        }
        /* The solver that reduces through local memory uses another program. */
        assert_status(context, operator_makes(context, &softmax_operator, &softmax, "tile"), CLATTN_SUCCESS);
        release_context(&context);
    }
}

/* PoCL at least assembles AMX's instructions, which this processor may not have, in a launch with nothing to do. */
static void amx_assembles(void **state)
{
    struct sources sources;
    clattn_device_info info = {.size = sizeof info};
    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    (void)state;
#ifndef __x86_64__
    skip();
#endif
    attention.query = attention.key = attention.value = attention.output =
        clattn_layout_bhsd(CLATTN_DTYPE_BF16, 1, 1, 33, 8);
    matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_BF16, 2, (const size_t[2]){9, 9});
    sources_damage(&sources, "engine/x86/amx.h", "#ifndef X86_AMX\n",
                   "#undef X86_AMX\n#define X86_AMX 1\n#ifndef X86_AMX\n");
    clattn_context *context = sources_context(&sources, NULL, false);
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    if (info.device_class != CLATTN_DEVICE_CLASS_POCL) {
        release_context(&context);
        skip();
    }
    assert_status(context, operator_makes(context, &attention_operator, &attention, "cpu-amx"), CLATTN_SUCCESS);
    attention.direction = CLATTN_DIRECTION_BACKWARD;
    attention.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, attention.query.extent);
    attention.gradients.output = attention.gradients.query = attention.gradients.key = attention.gradients.value =
        attention.query;
    assert_status(context, operator_makes(context, &attention_operator, &attention, "cpu-amx"), CLATTN_SUCCESS);
    assert_status(context, operator_makes(context, &matmul_operator, &matmul, "cpu-amx"), CLATTN_SUCCESS);
    release_context(&context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_checked),
        cmocka_unit_test(matrix_fragments_are_checked),
        cmocka_unit_test(sub_groups_are_checked),
        cmocka_unit_test(amx_assembles),
    };
    return RUN_TESTS("self-check of engines", tests, argc, argv);
}
