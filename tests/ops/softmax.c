/* Every solver computes softmax of rows of 1 to a million elements, of any rank and strides, with masks and scales,
 * also in place.
 *
 * Holds: Meaning 2 (masks), 4 (a plain row of −inf is NaN, a row with nothing attended +0), 5 (NaN, Inf), 8 (nothing to
 * do; refused scales) and the accuracy rule of docs/numerics.md; guard bands. */
#include <float.h>
#include <math.h>

#include "support/operator.h"
#include "support/ops/softmax_case.h"

/* Rank and extents, the last of which is the row's length. */
#define DIMS(n, ...) .rank = (n), .extent = {__VA_ARGS__}

static const softmax_case rows[] = {
    {"one element", ALL, DIMS(2, 3, 1)},
    {"short rows", ALL, DIMS(2, 5, 2)},
    {"short rows", ALL, DIMS(2, 7, 3)},
    {"a vector - 1", ALL, DIMS(2, 3, 15)},
    {"a vector", ALL, DIMS(2, 3, 16)},
    {"a vector + 1", ALL, DIMS(2, 3, 17)},
    {"work-group - 1", BIG, DIMS(2, 5, 255)},
    {"work-group", BIG, DIMS(2, 5, 256)},
    {"work-group + 1", BIG, DIMS(2, 5, 257)},
    {"prime", ALL, DIMS(2, 2, 61)},
    {"prime", BIG, DIMS(2, 11, 4099)},
    {"many rows", BIG, DIMS(2, 10007, 5)},
    {"a long row", BIG, DIMS(1, 65537), .long_loops = true},
    {"a million", FULL, DIMS(2, 2, 1000000)},
    {"ranks", ALL, DIMS(1, 9)},
    {"ranks", ALL, DIMS(3, 2, 3, 5)},
    {"ranks", ALL, DIMS(5, 2, 3, 2, 3, 7)},
    {"scaled", ALL, DIMS(2, 3, 19), .scaled = true, .scale = 0.125f},
    {"scale 0", ALL, DIMS(2, 3, 19), .scaled = true, .scale = 0},
    {"negative scale", ALL, DIMS(2, 3, 19), .scaled = true, .scale = -2},
    {"negative scale", BIG, DIMS(2, 7, 1031), .scaled = true, .scale = -2},
    {"smallest scale", BIG, DIMS(2, 3, 131), .scaled = true, .scale = FLT_TRUE_MIN},
    {"logits of 1e4", ALL, DIMS(2, 3, 19), .spread = 1e4f},
    {"logits of 1e4", BIG, DIMS(2, 37, 1031), .spread = 1e4f},
    {"logits of 1e4, scaled", BIG, DIMS(2, 37, 1031), .spread = 1e4f, .scaled = true, .scale = 0.75f},
    {"huge logits", BIG, DIMS(2, 37, 131), .spread = 1e37f},
};

/* There are more rows than a vector has lanes; CPU devices process a row in each lane. */
static const softmax_case side_by_side[] = {
    {"1 column", ALL, DIMS(2, 37, 1)},
    {"2 columns", ALL, DIMS(2, 37, 2)},
    {"3 columns", ALL, DIMS(2, 37, 3)},
    {"4 columns", ALL, DIMS(2, 37, 4)},
    {"5 columns", ALL, DIMS(2, 37, 5)},
    {"8 columns", BIG, DIMS(2, 37, 8)},
    {"9 columns", ALL, DIMS(2, 21, 9)},
    {"15 columns", BIG, DIMS(2, 37, 15)},
    {"16 columns", BIG, DIMS(2, 53, 16)},
    {"17 columns", BIG, DIMS(2, 37, 17)},
    {"31 columns", BIG, DIMS(2, 5, 31)},
    {"32 columns", BIG, DIMS(2, 5, 32)},
    {"32 columns", BIG, DIMS(2, 37, 32)},
    {"33 columns", BIG, DIMS(2, 37, 33)},
    {"100 columns", BIG, DIMS(2, 37, 100)},
    {"127 columns", BIG, DIMS(2, 16, 127)},
    {"128 columns", BIG, DIMS(2, 37, 128)},
    {"many rows", BIG, DIMS(2, 4099, 8)},
    {"many rows", BIG, DIMS(5, 7, 5, 11, 3, 6)},
    {"gaps", ALL, DIMS(2, 21, 6), .x = FORM_PADDED, .y = FORM_PADDED},
    {"gaps", BIG, DIMS(4, 3, 2, 37, 16), .x = FORM_PADDED, .y = FORM_PADDED},
    {"heads inside", BIG, DIMS(4, 2, 3, 37, 7), .x = FORM_BSHD, .y = FORM_BSHD},
    {"heads inside, as they lie", BIG, DIMS(4, 2, 37, 3, 7), .x = FORM_BSHD, .y = FORM_PLAIN},
    {"rows contiguous", ALL, DIMS(2, 37, 5), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED},
    {"rows contiguous", BIG, DIMS(3, 2, 37, 20), .x = FORM_TRANSPOSED, .y = FORM_PLAIN},
    {"columns apart", BIG, DIMS(2, 37, 9), .x = FORM_SPREAD, .y = FORM_SPREAD},
    {"columns backwards", BIG, DIMS(2, 37, 9), .x = FORM_MIRRORED, .y = FORM_MIRRORED},
    {"rows backwards", ALL, DIMS(2, 37, 5), .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"one row for all", BIG, DIMS(2, 37, 9), .x = FORM_SHARED_ROWS, .y = FORM_PLAIN},
    {"in place", ALL, DIMS(2, 37, 5), .in_place = true},
    {"in place", BIG, DIMS(2, 4099, 15), .in_place = true},
    {"negative scale, logits of 1e4", BIG, DIMS(2, 37, 11), .spread = 1e4f, .scaled = true, .scale = -0.75f},
    {"boolean mask", ALL, DIMS(2, 37, 5), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {37, 5}},
    {"float mask", ALL, DIMS(2, 37, 5), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {37, 5}},
    {"float mask", BIG, DIMS(3, 3, 37, 24), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {37, 24}},
    {"float mask", BIG, DIMS(2, 37, 127), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {37, 127}},
    {"one row of mask", BIG, DIMS(3, 3, 37, 24), .mask = MASK_BOOL, .mask_rank = 1, .mask_extent = {24}},
    {"a mask for each row", BIG, DIMS(3, 3, 37, 24), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {37, 1}},
    {"a mask for each head", BIG, DIMS(3, 3, 37, 24), .mask = MASK_FLOAT, .mask_rank = 3, .mask_extent = {3, 1, 24}},
    {"fewer columns, boolean", ALL, DIMS(2, 37, 9), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {37, 3}},
    {"fewer columns, float", BIG, DIMS(2, 37, 30), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {37, 19}},
    {"mask strided", BIG, DIMS(2, 37, 12), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {37, 12},
     .mask_form = FORM_TRANSPOSED},
    {"fully masked", BIG, DIMS(2, 37, 12), .mask = MASK_INF, .mask_rank = 2, .mask_extent = {37, 12}},
    {"all -FLT_MAX", BIG, DIMS(2, 37, 12), .mask = MASK_LOWEST, .mask_rank = 1, .mask_extent = {12}},
    {"NaN", ALL, DIMS(2, 37, 5), .inject = SOFTMAX_NAN},
    {"+inf", BIG, DIMS(2, 37, 12), .inject = SOFTMAX_INF},
    {"-inf: probability 0", BIG, DIMS(2, 37, 12), .inject = SOFTMAX_MINUS_INF},
    {"-inf alone: NaN", ALL, DIMS(2, 37, 5), .inject = SOFTMAX_EMPTY},
    {"-inf alone, masked: NaN", BIG, DIMS(2, 37, 12), .inject = SOFTMAX_EMPTY, .mask = MASK_FINITE, .mask_rank = 1,
     .mask_extent = {12}},
    {"masked elements", ALL, DIMS(2, 37, 5), .inject = SOFTMAX_MASKED, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {37, 5}},
    {"masked elements", BIG, DIMS(2, 37, 28), .inject = SOFTMAX_MASKED, .mask = MASK_FLOAT, .mask_rank = 2,
     .mask_extent = {37, 28}},
    {"beyond the batch", BIG, DIMS(3, 4, 37, 6), .inject = SOFTMAX_MASKED, .explicit_batch = true, .batch = 2},
};

static const softmax_case forms[] = {
    {"heads inside", ALL, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD, .y = FORM_BSHD},
    {"gaps", ALL, DIMS(4, 2, 3, 5, 7), .x = FORM_PADDED, .y = FORM_PADDED},
    {"gaps", BIG, DIMS(3, 3, 5, 259), .x = FORM_PADDED, .y = FORM_PADDED},
    {"columns apart", ALL, DIMS(3, 2, 3, 19), .x = FORM_SPREAD, .y = FORM_SPREAD},
    {"columns apart", BIG, DIMS(3, 2, 3, 259), .x = FORM_SPREAD, .y = FORM_PLAIN},
    {"rows backwards", ALL, DIMS(2, 5, 19), .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"columns backwards", ALL, DIMS(2, 5, 19), .x = FORM_MIRRORED, .y = FORM_MIRRORED},
    {"columns backwards", BIG, DIMS(2, 5, 259), .x = FORM_MIRRORED, .y = FORM_PLAIN},
    {"rows contiguous", ALL, DIMS(2, 5, 19), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED},
    {"rows contiguous", BIG, DIMS(2, 67, 259), .x = FORM_TRANSPOSED, .y = FORM_PLAIN},
    {"one row for all", ALL, DIMS(3, 2, 3, 19), .x = FORM_SHARED_ROWS, .y = FORM_PLAIN},
    {"one batch item for all", ALL, DIMS(3, 4, 3, 19), .x = FORM_SHARED_FIRST, .y = FORM_PLAIN},
    {"in place", ALL, DIMS(2, 5, 19), .in_place = true},
    {"in place", BIG, DIMS(2, 5, 4099), .in_place = true},
    {"in place, strided", ALL, DIMS(3, 2, 5, 19), .x = FORM_SPREAD, .in_place = true},
    {"in place, masked", ALL, DIMS(2, 5, 19), .in_place = true, .mask = MASK_BOOL, .mask_rank = 1, .mask_extent = {19}},
};

static const softmax_case masks[] = {
    {"boolean", ALL, DIMS(3, 2, 3, 19), .mask = MASK_BOOL, .mask_rank = 3, .mask_extent = {2, 3, 19}},
    {"boolean", BIG, DIMS(3, 2, 3, 259), .mask = MASK_BOOL, .mask_rank = 3, .mask_extent = {2, 3, 259}},
    {"float", ALL, DIMS(3, 2, 3, 19), .mask = MASK_FLOAT, .mask_rank = 3, .mask_extent = {2, 3, 19}},
    {"float", BIG, DIMS(3, 2, 3, 4099), .mask = MASK_FLOAT, .mask_rank = 3, .mask_extent = {2, 1, 4099}},
    {"one row of mask", BIG, DIMS(4, 2, 3, 5, 67), .mask = MASK_FLOAT, .mask_rank = 1, .mask_extent = {67}},
    {"a mask for each row", BIG, DIMS(4, 2, 3, 5, 67), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {5, 1}},
    {"a mask for each batch item", BIG, DIMS(4, 2, 3, 5, 67), .mask = MASK_FLOAT, .mask_rank = 4,
     .mask_extent = {2, 1, 1, 67}},
    {"a mask for each head", BIG, DIMS(4, 2, 3, 5, 67), .mask = MASK_BOOL, .mask_rank = 3, .mask_extent = {3, 1, 67}},
    {"one mask element", BIG, DIMS(5, 2, 1, 3, 5, 67), .mask = MASK_FINITE, .mask_rank = 1, .mask_extent = {1}},
    {"fewer columns, boolean", ALL, DIMS(2, 3, 19), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {3, 2}},
    {"fewer columns, boolean", BIG, DIMS(2, 3, 259), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {3, 258}},
    {"fewer columns, float", BIG, DIMS(2, 3, 259), .mask = MASK_FLOAT, .mask_rank = 1, .mask_extent = {130}},
    {"mask strided", ALL, DIMS(2, 3, 19), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {3, 19},
     .mask_form = FORM_TRANSPOSED},
    {"mask backwards", BIG, DIMS(2, 3, 259), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {3, 259},
     .mask_form = FORM_MIRRORED},
    {"fully masked", ALL, DIMS(2, 3, 19), .mask = MASK_FALSE, .mask_rank = 1, .mask_extent = {19}},
    {"fully masked", BIG, DIMS(2, 3, 259), .mask = MASK_INF, .mask_rank = 2, .mask_extent = {3, 1}},
    {"all -FLT_MAX", ALL, DIMS(2, 3, 19), .mask = MASK_LOWEST, .mask_rank = 1, .mask_extent = {19}},
    {"all -1e4", BIG, DIMS(2, 3, 259), .mask = MASK_MINUS_1E4, .mask_rank = 1, .mask_extent = {1}},
    {"negative scale and mask", BIG, DIMS(2, 3, 259), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {3, 259},
     .scaled = true, .scale = -1.5f},
};

#define STORED(type) .x_type = CLATTN_DTYPE_##type, .y_type = CLATTN_DTYPE_##type

static const softmax_case types[] = {
    {"float16", ALL, DIMS(2, 5, 35), STORED(F16)},
    {"float16", BIG, DIMS(2, 7, 1031), STORED(F16)},
    {"float16, side by side", ALL, DIMS(2, 21, 5), STORED(F16)},
    {"float16, side by side, in place", BIG, DIMS(2, 37, 24), STORED(F16), .in_place = true},
    {"bfloat16, side by side", BIG, DIMS(2, 37, 13), STORED(BF16)},
    {"bfloat16 to float16, side by side, masked", BIG, DIMS(2, 37, 19), .x_type = CLATTN_DTYPE_BF16,
     .y_type = CLATTN_DTYPE_F16, .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {37, 19}},
    {"float16, a million columns", BIG, DIMS(2, 1, 1000003), STORED(F16), .long_loops = true},
    {"float16, huge logits", BIG, DIMS(2, 7, 67), STORED(F16), .spread = 65000},
    {"bfloat16", ALL, DIMS(2, 5, 35), STORED(BF16)},
    {"bfloat16", BIG, DIMS(2, 7, 1031), STORED(BF16)},
    {"bfloat16, huge logits", BIG, DIMS(2, 7, 67), STORED(BF16), .spread = 1e37f},
    {"float16 to float32", BIG, DIMS(2, 7, 131), .x_type = CLATTN_DTYPE_F16},
    {"float32 to bfloat16, strided", BIG, DIMS(2, 7, 131), .y_type = CLATTN_DTYPE_BF16, .y = FORM_SPREAD},
    {"bfloat16 to float16, rows contiguous", BIG, DIMS(2, 37, 131), .x_type = CLATTN_DTYPE_BF16,
     .y_type = CLATTN_DTYPE_F16, .x = FORM_TRANSPOSED},
    {"float16, in place", ALL, DIMS(2, 5, 35), STORED(F16), .in_place = true},
    {"bfloat16, in place", BIG, DIMS(2, 5, 4099), STORED(BF16), .in_place = true},
    {"bfloat16, in place, strided", BIG, DIMS(3, 2, 5, 67), STORED(BF16), .x = FORM_SPREAD, .in_place = true},
    {"float16, boolean mask, scaled", BIG, DIMS(3, 2, 3, 259), STORED(F16), .mask = MASK_BOOL, .mask_rank = 3,
     .mask_extent = {2, 3, 259}, .scaled = true, .scale = -0.75f},
    {"bfloat16, float mask", BIG, DIMS(3, 2, 3, 259), STORED(BF16), .mask = MASK_FLOAT, .mask_rank = 2,
     .mask_extent = {3, 259}},
    {"float16, nothing attended", ALL, DIMS(2, 3, 19), STORED(F16), .mask = MASK_FALSE, .mask_rank = 1,
     .mask_extent = {19}},
    {"bfloat16, NaN", ALL, DIMS(2, 3, 19), STORED(BF16), .inject = SOFTMAX_NAN},
    {"float16, +inf", BIG, DIMS(2, 3, 259), STORED(F16), .inject = SOFTMAX_INF},
    {"bfloat16, masked elements", BIG, DIMS(2, 3, 259), STORED(BF16), .inject = SOFTMAX_MASKED, .mask = MASK_BOOL,
     .mask_rank = 2, .mask_extent = {3, 259}},
};

static const softmax_case values[] = {
    {"NaN", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_NAN},
    {"NaN", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_NAN},
    {"NaN, negative scale", BIG, DIMS(2, 3, 259), .inject = SOFTMAX_NAN, .scaled = true, .scale = -1},
    {"NaN, float mask", BIG, DIMS(2, 3, 259), .inject = SOFTMAX_NAN, .mask = MASK_FINITE, .mask_rank = 1,
     .mask_extent = {259}},
    {"+inf", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_INF},
    {"+inf", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_INF},
    {"-inf: probability 0", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_MINUS_INF},
    {"-inf: probability 0", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_MINUS_INF},
    {"-inf alone: NaN", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_EMPTY},
    {"-inf alone: NaN", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_EMPTY},
    {"masked elements", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_MASKED, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {3, 19}},
    {"masked elements", ALL, DIMS(2, 3, 35), .inject = SOFTMAX_MASKED, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {3, 35}},
    {"masked elements", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_MASKED, .mask = MASK_FLOAT, .mask_rank = 2,
     .mask_extent = {3, 4099}},
    {"beyond the mask", BIG, DIMS(2, 3, 259), .inject = SOFTMAX_MASKED, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {3, 100}},
    {"beyond the batch", ALL, DIMS(3, 4, 3, 19), .inject = SOFTMAX_MASKED, .explicit_batch = true, .batch = 2},
    {"beyond the batch, masked", BIG, DIMS(3, 4, 3, 259), .inject = SOFTMAX_MASKED, .explicit_batch = true, .batch = 1,
     .mask = MASK_FLOAT, .mask_rank = 3, .mask_extent = {4, 3, 259}},
    {"no rows", ALL, DIMS(2, 0, 19)},
    {"no rows at enqueue", ALL, DIMS(2, 3, 19), .explicit_batch = true, .batch = 0},
};

static void refused_types(void **state)
{
    static const clattn_dtype refused[] = {CLATTN_DTYPE_F64, CLATTN_DTYPE_I8, CLATTN_DTYPE_I4, CLATTN_DTYPE_I32,
                                           CLATTN_DTYPE_BOOL};
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    const size_t extent[2] = {3, 4};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        desc.x = clattn_layout_contiguous(refused[i], 2, extent);
        desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
        operator_answers(&softmax_operator, &desc, CLATTN_ERROR_UNSUPPORTED);
        desc.x = clattn_layout_contiguous(CLATTN_DTYPE_F16, 2, extent);
        desc.y = clattn_layout_contiguous(refused[i], 2, extent);
        operator_answers(&softmax_operator, &desc, CLATTN_ERROR_UNSUPPORTED);
    }
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_BF16, 2, extent);
    operator_answers(&softmax_operator, &desc, CLATTN_SUCCESS);
}

static void refused_scales(void **state)
{
    static const float refused[] = {NAN, INFINITY, -INFINITY};
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;

    (void)state;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){3, 4});
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        desc.explicit_scale = 1;
        desc.scale = refused[i];
        operator_answers(&softmax_operator, &desc, CLATTN_ERROR_INVALID_ARGUMENT);
    }
    desc.explicit_scale = 0; /* scale is then ignored */
    operator_answers(&softmax_operator, &desc, CLATTN_SUCCESS);
}

/* y holds intermediate results, so a buffer that kernels may not read is refused, not misused. */
static void write_only_output(void **state)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    test_array y = job_array(&job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    array_bind(&x, &desc.x, &args.x);
    array_bind(&y, &desc.y, &args.y);
    job.plan = operator_plan(&softmax_operator, &desc, NULL);
    assert_status(device_context(), clattn_softmax_enqueue(job.plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_BUFFER_ACCESS);
    job_release(&job);
}

int main(int argc, char **argv)
{
    softmax_add(rows, COUNT_OF(rows));
    softmax_add(side_by_side, COUNT_OF(side_by_side));
    softmax_add(forms, COUNT_OF(forms));
    softmax_add(masks, COUNT_OF(masks));
    softmax_add(types, COUNT_OF(types));
    softmax_add(values, COUNT_OF(values));
    suite_add(refused_types, "softmax: elements that are no float32, float16 or bfloat16 are refused");
    suite_add(refused_scales, "softmax: NaN and infinite scales are refused");
    suite_add(write_only_output, "softmax: an output that kernels may not read is refused");
    return suite_run("softmax", argc, argv);
}
