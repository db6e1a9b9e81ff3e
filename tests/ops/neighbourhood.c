/* Every solver computes neighbourhood attention with all windows, dilations, kinds of edges, tiles, biases, types and
 * strides.
 *
 * Holds neighbourhood.h's definition of a window, and of docs/numerics.md Meaning 4 and 5, the accuracy rule, and that
 * a key outside the window cannot leak. */
#include <math.h>
#include <string.h>

#include "support/ops/neighbourhood_case.h"
#include "support/operator.h"

#define MAP(h, w, kh, kw) .map = {h, w}, .window = {kh, kw}

/* Windows of 3 x 3 and 7 x 7, which determine rows of queries and the register tile, and head sizes of 4, so that the
 * cases share programs. */
static const neighbourhood_case windows[] = {
    {"whole", ALL, MAP(3, 3, 3, 3)},
    {"one key", ALL, MAP(3, 4, 1, 1)},
    {"small", ALL, MAP(5, 6, 3, 3)},
    {"small", ALL, MAP(5, 6, 3, 3), .clip = true},
    {"a vector", BIG, MAP(9, 16, 3, 3)},
    {"a vector + 1", BIG, MAP(7, 17, 3, 3)},
    {"edges", BIG, MAP(9, 40, 7, 7)},
    {"edges", BIG, MAP(9, 40, 7, 7), .clip = true},
    {"between edges", BIG, MAP(11, 67, 7, 7)},
    {"clipped on both sides", ALL, MAP(4, 5, 9, 7), .clip = true},
    {"clipped above and below", BIG, MAP(7, 37, 13, 7), .clip = true},
    {"a column", BIG, MAP(33, 1, 7, 1)},
    {"a line", BIG, MAP(1, 67, 1, 7)},
    {"flat", BIG, MAP(9, 40, 1, 7)},
    {"upright", BIG, MAP(19, 20, 7, 1)},
    {"wider than the score tile", BIG, MAP(3, 131, 3, 105), .long_loops = true},
    {"large", FULL, MAP(40, 70, 35, 35)},
};

static const neighbourhood_case dilations[] = {
    {"dilated", ALL, MAP(6, 7, 3, 3), .dilation = {2, 2}},
    {"dilated", ALL, MAP(6, 7, 3, 3), .dilation = {2, 2}, .clip = true},
    {"dilated apart", BIG, MAP(10, 41, 3, 3), .dilation = {3, 2}},
    {"dilated apart", BIG, MAP(7, 41, 3, 3), .dilation = {2, 5}, .clip = true},
    {"dilated, edges", BIG, MAP(23, 37, 7, 7), .dilation = {3, 5}},
    {"dilated, edges", BIG, MAP(15, 44, 7, 7), .dilation = {2, 3}, .clip = true},
    {"beyond the map", BIG, MAP(5, 19, 3, 3), .dilation = {7, 30}, .clip = true},
    {"rows only", BIG, MAP(21, 33, 7, 7), .dilation = {3, 1}},
    {"columns only", BIG, MAP(9, 45, 7, 7), .dilation = {1, 6}},
};

static const neighbourhood_case heads[] = {
    {"batch and heads", ALL, MAP(4, 5, 3, 3), .batch = 2, .heads = 2},
    {"batch and heads", BIG, MAP(9, 21, 7, 7), .batch = 2, .heads = 3},
    {"grouped heads", ALL, MAP(4, 5, 3, 3), .heads = 4, .kv_heads = 2},
    {"grouped heads", BIG, MAP(9, 21, 7, 7), .batch = 2, .heads = 6, .kv_heads = 2},
    {"no batch", ALL, MAP(4, 5, 3, 3), .batch = 2, .explicit_sizes = true, .actual_map = {4, 5}, .actual_tile = {4, 5}},
    {"no queries", ALL, MAP(4, 5, 3, 3), .explicit_sizes = true, .actual_batch = 1, .actual_map = {4, 5},
     .actual_tile = {4, 0}},
    {"size 1", BIG, MAP(5, 19, 3, 3), .d_k = 1, .d_v = 1},
    {"pixels as values", BIG, MAP(9, 40, 7, 7), .d_k = 27, .d_v = 3, .bias = BIAS_FINITE},
    {"odd sizes", FULL, MAP(9, 19, 7, 7), .d_k = 17, .d_v = 13},
    {"many columns", FULL, MAP(5, 19, 3, 3), .d_k = 3, .d_v = 70},
};

static const neighbourhood_case tiles[] = {
    {"a tile", ALL, MAP(5, 6, 3, 3), .tile = {2, 3}, .tile_at = {1, 2}},
    {"a tile at the corner", ALL, MAP(5, 6, 3, 3), .tile = {2, 3}, .tile_at = {3, 3}, .clip = true},
    {"a tile", BIG, MAP(20, 50, 7, 7), .tile = {7, 21}, .tile_at = {5, 17}},
    {"a tile, dilated", BIG, MAP(21, 50, 7, 7), .dilation = {2, 3}, .tile = {7, 21}, .tile_at = {5, 17}},
    {"a tile, dilated", BIG, MAP(21, 50, 7, 7), .dilation = {3, 2}, .tile = {7, 21}, .tile_at = {4, 29}, .clip = true},
    {"smaller than planned", ALL, MAP(6, 7, 3, 3), .batch = 2, .explicit_sizes = true, .actual_batch = 1,
     .actual_map = {4, 5}, .actual_tile = {2, 3}, .tile_at = {2, 1}, .bias = BIAS_FINITE, .bias_batch = 2},
    {"smaller than planned", BIG, MAP(20, 50, 3, 3), .batch = 2, .heads = 2, .explicit_sizes = true, .actual_batch = 2,
     .actual_map = {13, 33}, .actual_tile = {5, 18}, .tile_at = {8, 3}, .dilation = {3, 2}, .bias = BIAS_FINITE,
     .bias_batch = 2, .bias_heads = 2},
};

static const neighbourhood_case biases[] = {
    {"a bias", ALL, MAP(5, 6, 3, 3), .bias = BIAS_FINITE},
    {"a bias that drops", ALL, MAP(5, 6, 3, 3), .bias = BIAS_DROPS, .inject = NEIGHBOURHOOD_DROPPED},
    {"a bias that drops", BIG, MAP(9, 40, 3, 3), .bias = BIAS_DROPS, .inject = NEIGHBOURHOOD_DROPPED},
    {"everything dropped", ALL, MAP(4, 5, 3, 3), .bias = BIAS_NOTHING, .lse = true},
    {"a bias for each", BIG, MAP(5, 19, 3, 3), .batch = 2, .heads = 2, .bias = BIAS_DROPS, .bias_batch = 2,
     .bias_heads = 2, .lse = true},
    {"a bias for each batch item", BIG, MAP(5, 19, 3, 3), .batch = 2, .heads = 2, .bias = BIAS_FINITE, .bias_batch = 2,
     .lse = true},
    {"a bias for each head", BIG, MAP(5, 19, 3, 3), .batch = 2, .heads = 4, .kv_heads = 2, .bias = BIAS_FINITE,
     .bias_heads = 4, .lse = true},
    {"log-sum-exp", ALL, MAP(5, 6, 3, 3), .lse = true},
    {"log-sum-exp", BIG, MAP(9, 40, 3, 3), .lse = true, .clip = true},
};

static const neighbourhood_case values[] = {
    {"NaN", ALL, MAP(5, 6, 3, 3), .inject = NEIGHBOURHOOD_NAN},
    {"NaN", BIG, MAP(19, 40, 7, 7), .inject = NEIGHBOURHOOD_NAN},
    {"NaN, dilated", BIG, MAP(21, 45, 7, 7), .dilation = {2, 3}, .inject = NEIGHBOURHOOD_NAN},
    {"NaN in a corner", ALL, MAP(5, 6, 3, 3), .inject = NEIGHBOURHOOD_CORNER},
    {"NaN in a corner", BIG, MAP(19, 40, 7, 7), .inject = NEIGHBOURHOOD_CORNER, .clip = true},
    {"Inf", BIG, MAP(19, 40, 7, 7), .inject = NEIGHBOURHOOD_INF},
    {"scale 0", BIG, MAP(9, 40, 7, 7), .scaled = true, .scale = 0},
    {"negative scale", ALL, MAP(5, 6, 3, 3), .scaled = true, .scale = -1.5f},
    {"logits of 1e4", BIG, MAP(9, 40, 7, 7), .spread = 100, .scaled = true, .scale = 1},
};

#define STORED(type) .d_k = 33, .d_v = 20, .q = type, .k = type, .v = type, .o = type
#define HALF STORED(CLATTN_DTYPE_F16)
#define BFLOAT STORED(CLATTN_DTYPE_BF16)

static const neighbourhood_case storage[] = {
    {"heads inside", ALL, MAP(5, 6, 3, 3), .batch = 2, .heads = 2, .form = FORM_BSHD},
    {"gaps", ALL, MAP(5, 6, 3, 3), .form = FORM_PADDED, .bias = BIAS_FINITE, .lse = true},
    {"sizes apart", BIG, MAP(5, 19, 3, 3), .form = FORM_SPREAD},
    {"planes", ALL, MAP(5, 6, 3, 3), .form = FORM_TRANSPOSED},
    {"planes", BIG, MAP(9, 40, 7, 7), .form = FORM_TRANSPOSED},
    {"backwards", BIG, MAP(5, 19, 3, 3), .form = FORM_MIRRORED},
    {"one batch item for all", BIG, MAP(5, 19, 3, 3), .batch = 3, .form = FORM_SHARED_FIRST},
    {"float16", ALL, MAP(5, 6, 3, 3), HALF},
    {"float16", BIG, MAP(9, 40, 3, 3), HALF},
    {"bfloat16", ALL, MAP(5, 6, 3, 3), BFLOAT},
    {"bfloat16, planes", BIG, MAP(9, 40, 3, 3), BFLOAT, .form = FORM_TRANSPOSED},
    {"each its own", BIG, MAP(9, 40, 7, 7), .q = CLATTN_DTYPE_F16, .k = CLATTN_DTYPE_BF16, .v = CLATTN_DTYPE_F16,
     .o = CLATTN_DTYPE_F32},
};

/* Returns the first position of a window; written after get_window_start in the C++ of NATTEN 0.14. */
static int natten_window_start(int index, int length, int kernel, int neighborhood, int dilation)
{
    if (dilation <= 1) {
        return (index - neighborhood > 0 ? index - neighborhood : 0) +
               (index + neighborhood >= length) * (length - index - neighborhood - 1);
    }
    int start = index - neighborhood * dilation;
    if (start < 0) {
        return index % dilation;
    }
    if (index + neighborhood * dilation >= length) {
        int remainder = index % dilation, whole = length / dilation * dilation, rest = length - whole;
        return remainder < rest ? length - rest + remainder - 2 * neighborhood * dilation
                                : whole + remainder - kernel * dilation;
    }
    return start;
}

static void windows_are_nattens(void **state)
{
    (void)state;
    for (int dilation = 1; dilation <= 5; dilation++) {
        for (int kernel = 1; kernel <= 9; kernel += 2) {
            for (int length = kernel * dilation; length < kernel * dilation + 23; length++) {
                for (int p = 0; p < length; p++) {
                    int start = natten_window_start(p, length, kernel, kernel / 2, dilation);

                    for (int j = 0; j < length; j++) {
                        bool theirs = j >= start && j < start + kernel * dilation && (j - start) % dilation == 0;
                        if (theirs != neighbourhood_attends(p, j, length, kernel, dilation, false)) {
                            fail_msg("length %d, kernel %d, dilation %d: %d to %d", length, kernel, dilation, p, j);
                        }
                    }
                }
            }
        }
    }
}

/* A plan's cost does not depend on the number of scores: a larger window takes no more memory and no more kernels. */
static void cost_is_not_in_the_map_squared(void **state)
{
    size_t workspace[2], kernels[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;

        desc.query = desc.key = desc.value = desc.output =
            clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (size_t[]){1, 1, 21, 40, 4});
        desc.window[0] = desc.window[1] = i ? 21 : 7;
        clattn_plan *plan = operator_plan(&neighbourhood_operator, &desc, NULL);
        workspace[i] = clattn_plan_workspace_size(plan);
        kernels[i] = clattn_plan_launch_count(plan);
        assert_true(workspace[i] <= 4 * sizeof(float) * 21 * 4 * (40 + 64));
        clattn_plan_release(&plan);
    }
    assert_int_equal(workspace[0], workspace[1]);
    assert_int_equal(kernels[0], kernels[1]);
}

/* Returns a valid description: 5 x 6, window 3. */
static clattn_neighbourhood_desc plain(void)
{
    clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;

    desc.query = desc.key = desc.value = desc.output =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (size_t[]){1, 2, 5, 6, 4});
    desc.window[0] = desc.window[1] = 3;
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(neighbourhood, status, plain(), change)

static void refused_descriptions(void **state)
{
    (void)state;
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_ARGUMENT, gradients.query = desc.query);
    REFUSED(INVALID_ARGUMENT, gradients.output = desc.output);
    REFUSED(INVALID_ARGUMENT, edge = 2);
    REFUSED(INVALID_ARGUMENT, window[0] = 0);
    REFUSED(INVALID_ARGUMENT, window[1] = 4);
    REFUSED(INVALID_ARGUMENT, edge = (desc.window[1] = 32769, CLATTN_EDGE_CLIP));
    REFUSED(INVALID_ARGUMENT, dilation[0] = -1);
    REFUSED(INVALID_ARGUMENT, explicit_scale = 7);
    REFUSED(INVALID_ARGUMENT, scale = (desc.explicit_scale = 1, NAN));
    REFUSED(INVALID_LAYOUT, window[0] = 7);
    REFUSED(INVALID_LAYOUT, dilation[0] = 2);
    REFUSED(INVALID_LAYOUT, query.rank = 4);
    REFUSED(INVALID_LAYOUT, query.extent[2] = desc.output.extent[2] = 6);
    REFUSED(INVALID_LAYOUT, output.extent[3] = 5);
    REFUSED(INVALID_LAYOUT, key.extent[4] = 3);
    REFUSED(INVALID_LAYOUT, key.extent[1] = desc.value.extent[1] = 3);
    REFUSED(INVALID_LAYOUT, output.stride[3] = 0);
    REFUSED(UNSUPPORTED, value.dtype = CLATTN_DTYPE_I32);
    REFUSED(INVALID_LAYOUT, bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 1, 5, 6}));
    REFUSED(INVALID_LAYOUT, bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 5, 1}));
    REFUSED(INVALID_LAYOUT, bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){5, 6}));
    REFUSED(UNSUPPORTED, bias = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 4, (size_t[]){1, 1, 5, 6}));
    REFUSED(INVALID_LAYOUT, lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 2, 5, 5}));
    REFUSED(UNSUPPORTED, lse = clattn_layout_contiguous(CLATTN_DTYPE_F16, 4, (size_t[]){1, 2, 5, 6}));
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(neighbourhood, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_neighbourhood_desc desc = plain();
    clattn_neighbourhood_args good = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    test_job job = {0};
    test_array array = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 5, desc.key.extent, FORM_PLAIN);
    test_array closed = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 5, desc.key.extent, FORM_PLAIN);

    (void)state;
    good.query = good.key = good.value = good.output = array_binding(&array);
    good.batch = 1;
    good.query_height = good.key_height = 5;
    good.query_width = good.key_width = 6;
    job.plan = operator_plan(&neighbourhood_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_sizes = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_sizes = 1, 2));
    REFUSED_ARGS(INVALID_ARGUMENT, key_width = (args.explicit_sizes = 1, 7));
    REFUSED_ARGS(INVALID_ARGUMENT, query_y = (args.explicit_sizes = 1, 1));
    REFUSED_ARGS(INVALID_ARGUMENT, query_x = (args.explicit_sizes = 1, SIZE_MAX));
    REFUSED_ARGS(INVALID_ARGUMENT, key_height = args.query_height = (args.explicit_sizes = 1, 2));
    REFUSED_ARGS(INVALID_ARGUMENT, bias = args.key);
    REFUSED_ARGS(INVALID_ARGUMENT, lse = args.key);
    REFUSED_ARGS(INVALID_ARGUMENT, key = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, key = clattn_binding_image(args.key.buffer));
    REFUSED_ARGS(BUFFER_TOO_SMALL, value.offset = 1000000);
    REFUSED_ARGS(BUFFER_ACCESS, output = array_binding(&closed));
    job_release(&job);
}

int main(int argc, char **argv)
{
    neighbourhood_add(windows, COUNT_OF(windows));
    neighbourhood_add(dilations, COUNT_OF(dilations));
    neighbourhood_add(heads, COUNT_OF(heads));
    neighbourhood_add(tiles, COUNT_OF(tiles));
    neighbourhood_add(biases, COUNT_OF(biases));
    neighbourhood_add(values, COUNT_OF(values));
    neighbourhood_add(storage, COUNT_OF(storage));
    suite_add(windows_are_nattens, "neighbourhood: windows are NATTEN's");
    suite_add(cost_is_not_in_the_map_squared, "neighbourhood: workspace and kernels do not grow with the window");
    suite_add(refused_descriptions, "neighbourhood: wrong descriptions are refused");
    suite_add(refused_arguments, "neighbourhood: wrong arguments are refused");
    return suite_run("neighbourhood", argc, argv);
}
