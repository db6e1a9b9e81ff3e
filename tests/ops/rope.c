/* Every solver computes rotary position embedding with both pairings, partly rotated heads, computed and given angles,
 * positions, offsets, storage types, strides, also in place.
 *
 * Holds: what clattn/rope.h says about accuracy, up to positions of 2^31, which is tighter than the accuracy rule of
 * docs/numerics.md; that NaN stays within its pair; that a position outside the table makes NaN of the rotated elements
 * and leaves the others; guard bands; what is refused. */
#include <math.h>

#include "support/operator.h"
#include "support/ops/rope_case.h"

#define DIMS(b, h, s, d) .batch = (b), .heads = (h), .length = (s), .size = (d)
#define INTERLEAVED .interleaved = true

static const rope_case shapes[] = {
    {"one pair", ALL, DIMS(1, 1, 1, 2)},
    {"one pair", ALL, DIMS(1, 1, 1, 2), INTERLEAVED},
    {"a vector - 1", ALL, DIMS(2, 3, 5, 30)},
    {"a vector - 1", BIG, DIMS(2, 3, 5, 30), INTERLEAVED},
    {"a vector", ALL, DIMS(2, 3, 5, 32)},
    {"a vector", ALL, DIMS(2, 3, 5, 32), INTERLEAVED},
    {"a vector + 1", BIG, DIMS(2, 3, 5, 34)},
    {"a vector + 1", ALL, DIMS(2, 3, 5, 34), INTERLEAVED},
    {"decode", BIG, DIMS(2, 32, 1, 128), .position = 1234},
    {"decode", BIG, DIMS(2, 32, 1, 128), INTERLEAVED, .position = 1234},
    {"many places", BIG, DIMS(3, 5, 131, 64)},
    {"many places", BIG, DIMS(3, 5, 131, 64), INTERLEAVED},
    {"large heads", BIG, DIMS(1, 2, 3, 514)},
    {"many small heads", FULL, DIMS(2, 301, 7, 4)},
    {"nothing: no batch", ALL, DIMS(0, 3, 5, 8)},
    {"nothing: no heads", ALL, DIMS(2, 0, 5, 8)},
    {"nothing: no places", ALL, DIMS(2, 3, 0, 8)},
    {"nothing: no elements", ALL, DIMS(2, 3, 5, 0)},
};

static const rope_case partly[] = {
    {"partly rotated", ALL, DIMS(2, 3, 5, 24), .rotary = 6},
    {"partly rotated", ALL, DIMS(2, 3, 5, 24), INTERLEAVED, .rotary = 6},
    {"partly rotated, odd size", ALL, DIMS(1, 2, 3, 7), .rotary = 4},
    {"partly rotated", BIG, DIMS(2, 5, 7, 96), .rotary = 48},
    {"partly rotated", BIG, DIMS(2, 5, 7, 96), INTERLEAVED, .rotary = 48},
    {"partly rotated, given", BIG, DIMS(2, 5, 7, 80), .rotary = 32, .angles = ANGLES_TABLE},
    {"partly rotated, in place", BIG, DIMS(2, 5, 7, 80), INTERLEAVED, .rotary = 32, .in_place = true},
};

static const rope_case angles[] = {
    {"base 500000", ALL, DIMS(1, 2, 5, 16), .base = 500000, .position = 100},
    {"base 1.0001", BIG, DIMS(1, 2, 5, 64), .base = 1.0001f, .position = 100},
    {"base 1e38", BIG, DIMS(1, 2, 5, 64), .base = 1e38f, .position = 100},
    {"positions to 2^20", ALL, DIMS(2, 2, 7, 16), .where = WHERE_POSITIONS, .low = 0, .high = 1 << 20},
    {"positions to 2^20", BIG, DIMS(2, 2, 67, 128), INTERLEAVED, .where = WHERE_POSITIONS, .low = 0, .high = 1 << 20},
    {"positions to 2^20, large heads", FULL, DIMS(1, 1, 67, 4096), .where = WHERE_POSITIONS, .low = 0, .high = 1 << 20},
    {"positions to 2^31", ALL, DIMS(1, 2, 7, 16), .where = WHERE_POSITIONS, .low = INT32_MIN, .high = INT32_MAX},
    {"positions to 2^31", BIG, DIMS(2, 2, 67, 128), .where = WHERE_POSITIONS, .low = INT32_MIN, .high = INT32_MAX},
    {"int64 positions", ALL, DIMS(2, 2, 3, 16), .where = WHERE_POSITIONS, .low = -(1 << 20), .high = 1 << 20,
     .index_type = CLATTN_DTYPE_I64},
    {"one row of positions for all", ALL, DIMS(3, 2, 3, 16), .where = WHERE_SHARED_POSITIONS, .position = -9},
    {"offsets", ALL, DIMS(3, 2, 3, 16), .where = WHERE_OFFSETS},
    {"int64 offsets", BIG, DIMS(3, 2, 7, 64), .where = WHERE_OFFSETS, .low = -5, .high = 1 << 20, .position = 3,
     .index_type = CLATTN_DTYPE_I64},
    {"a negative position", ALL, DIMS(2, 2, 7, 16), .position = -3},
    {"a far position", BIG, DIMS(2, 2, 7, 128), .position = (1 << 20) - 7},
    {"a table", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_TABLE},
    {"a table", BIG, DIMS(2, 3, 5, 128), INTERLEAVED, .angles = ANGLES_TABLE, .position = 90},
    {"a table, positions", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_TABLE, .where = WHERE_POSITIONS},
    {"a table, int64 positions", BIG, DIMS(2, 3, 5, 64), .angles = ANGLES_TABLE, .where = WHERE_POSITIONS,
     .index_type = CLATTN_DTYPE_I64},
    {"a table, offsets", BIG, DIMS(3, 3, 5, 64), INTERLEAVED, .angles = ANGLES_TABLE, .where = WHERE_OFFSETS},
    {"positions behind the table's end: NaN", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_TABLE, .position = 94},
    {"negative positions, partly rotated: NaN, the rest copied", ALL, DIMS(2, 3, 5, 24), .rotary = 8,
     .angles = ANGLES_TABLE, .position = -2},
    {"positions far outside the table: NaN", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_TABLE, .where = WHERE_POSITIONS,
     .low = INT32_MIN, .high = INT32_MAX},
    {"a row for each place", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_PLACE},
    {"a row for each place", BIG, DIMS(2, 3, 5, 128), INTERLEAVED, .angles = ANGLES_PLACE, .cache = FORM_PADDED},
    {"a row for each place, one batch item for all", ALL, DIMS(3, 2, 5, 16), .angles = ANGLES_SHARED},
    {"caches strided", BIG, DIMS(2, 3, 5, 64), .angles = ANGLES_TABLE, .cache = FORM_TRANSPOSED},
    {"caches backwards", BIG, DIMS(2, 3, 5, 64), .angles = ANGLES_PLACE, .cache = FORM_MIRRORED},
};

static const rope_case forms[] = {
    {"heads inside", ALL, DIMS(2, 3, 5, 16), .x = FORM_BSHD, .y = FORM_BSHD},
    {"heads inside to heads outside", BIG, DIMS(2, 3, 5, 64), INTERLEAVED, .x = FORM_BSHD, .y = FORM_PLAIN},
    {"gaps", ALL, DIMS(2, 3, 5, 16), .x = FORM_PADDED, .y = FORM_PADDED},
    {"columns apart", ALL, DIMS(2, 3, 5, 16), .x = FORM_SPREAD, .y = FORM_SPREAD},
    {"columns apart", ALL, DIMS(2, 3, 5, 40), INTERLEAVED, .x = FORM_SPREAD, .y = FORM_PLAIN, .rotary = 34},
    {"columns backwards", BIG, DIMS(2, 3, 5, 64), .x = FORM_MIRRORED, .y = FORM_TRANSPOSED},
    {"rows backwards", BIG, DIMS(2, 3, 5, 64), INTERLEAVED, .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"one head for all", BIG, DIMS(2, 3, 5, 64), .x = FORM_SHARED_SECOND},
    {"one place for all", BIG, DIMS(2, 3, 5, 64), .x = FORM_SHARED_ROWS},
    {"in place", ALL, DIMS(2, 3, 5, 34), .in_place = true},
    {"in place", ALL, DIMS(2, 3, 5, 34), INTERLEAVED, .in_place = true},
    {"in place, strided", BIG, DIMS(2, 3, 5, 34), .in_place = true, .x = FORM_SPREAD},
    {"in place, heads inside", BIG, DIMS(3, 5, 131, 64), .in_place = true, .x = FORM_BSHD, .where = WHERE_OFFSETS,
     .low = 0, .high = 4000},
};

static const rope_case types[] = {
    {"float16", ALL, DIMS(2, 3, 5, 34), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16},
    {"float16", BIG, DIMS(2, 3, 67, 128), INTERLEAVED, .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16,
     .position = 1 << 18},
    {"bfloat16", ALL, DIMS(2, 3, 5, 34), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16},
    {"bfloat16, given", BIG, DIMS(2, 3, 67, 128), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16,
     .angles = ANGLES_TABLE, .cache_type = CLATTN_DTYPE_BF16},
    {"float16 to float32, bfloat16 caches", BIG, DIMS(2, 3, 7, 34), .rotary = 16, .x_type = CLATTN_DTYPE_F16,
     .angles = ANGLES_PLACE, .cache_type = CLATTN_DTYPE_BF16},
};

static const rope_case lengths[] = {
    {"shorter, and NaN", ALL, DIMS(3, 2, 5, 16), .explicit_lengths = true, .actual_batch = 2, .actual_length = 3,
     .inject = true},
    {"shorter, and NaN", BIG, DIMS(3, 2, 5, 64), INTERLEAVED, .explicit_lengths = true, .actual_batch = 1,
     .actual_length = 5, .inject = true, .where = WHERE_POSITIONS, .angles = ANGLES_TABLE},
    {"shorter, a row for each place", BIG, DIMS(3, 2, 5, 64), .explicit_lengths = true, .actual_batch = 2,
     .actual_length = 2, .inject = true, .angles = ANGLES_PLACE},
    {"NaN in one pair", ALL, DIMS(2, 2, 3, 34), .inject = true},
    {"NaN in one pair", ALL, DIMS(2, 2, 3, 34), INTERLEAVED, .inject = true, .rotary = 20},
    {"no batch at enqueue", ALL, DIMS(3, 2, 5, 16), .explicit_lengths = true, .actual_batch = 0, .actual_length = 3},
    {"no places at enqueue", ALL, DIMS(3, 2, 5, 16), .explicit_lengths = true, .actual_batch = 3, .actual_length = 0},
};

static clattn_rope_desc good_desc(void)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;

    desc.x = desc.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 3, 5, 8);
    desc.cos = desc.sin = clattn_layout_contiguous(CLATTN_DTYPE_F16, 2, (size_t[]){50, 4});
    desc.positions = clattn_layout_contiguous(CLATTN_DTYPE_I64, 2, (size_t[]){2, 5});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(rope, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_rope_desc good = good_desc(), zeroed = CLATTN_ROPE_DESC_INIT;
    const clattn_layout none = {0};

    (void)state;
    operator_answers(&rope_operator, &good, CLATTN_SUCCESS);
    operator_answers(&rope_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&rope_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(INVALID_ARGUMENT, pairing = 2);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(INVALID_ARGUMENT, base = 1);
    REFUSED(INVALID_ARGUMENT, base = -10000);
    REFUSED(INVALID_ARGUMENT, base = NAN);
    REFUSED(INVALID_ARGUMENT, base = INFINITY);
    REFUSED(INVALID_ARGUMENT, rotary_size = 7);
    REFUSED(INVALID_ARGUMENT, rotary_size = 10);
    REFUSED(INVALID_LAYOUT, rotary_size = 6); /* the caches have 4 columns */
    REFUSED(INVALID_LAYOUT, sin = none);
    REFUSED(INVALID_LAYOUT, sin.extent[0] = 49);
    REFUSED(INVALID_LAYOUT, cos = desc.sin = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){3, 5, 4}));
    REFUSED(INVALID_LAYOUT, cos = desc.sin = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (size_t[]){4}));
    REFUSED(INVALID_ARGUMENT, cos = desc.sin = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 5, 4}));
    REFUSED(UNSUPPORTED, sin.dtype = CLATTN_DTYPE_F32);
    REFUSED(UNSUPPORTED, cos.dtype = desc.sin.dtype = CLATTN_DTYPE_I32);
    REFUSED(INVALID_LAYOUT, positions.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, positions.rank = 1);
    REFUSED(UNSUPPORTED, positions.dtype = CLATTN_DTYPE_F32);
    REFUSED(INVALID_ARGUMENT, offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (size_t[]){2}));
    REFUSED(INVALID_LAYOUT, offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (size_t[]){1}));
    REFUSED(INVALID_LAYOUT, x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 5, 8}));
    REFUSED(INVALID_LAYOUT, y.extent[2] = 4);
    REFUSED(INVALID_LAYOUT, y.stride[1] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_BOOL);
    REFUSED(OVERFLOW, x.extent[0] = desc.y.extent[0] = desc.positions.extent[0] = (size_t)1 << 30);
}

static void refused_rotary_sizes(void **state)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;

    (void)state;
    desc.x = desc.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, 7);
    operator_answers(&rope_operator, &desc, CLATTN_ERROR_INVALID_ARGUMENT);
    desc.x = desc.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, 131074);
    operator_answers(&rope_operator, &desc, CLATTN_ERROR_UNSUPPORTED);
    desc.rotary_size = 131072;
    operator_answers(&rope_operator, &desc, CLATTN_SUCCESS);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(rope, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_rope_args good = CLATTN_ROPE_ARGS_INIT;
    test_job job = {0};
    size_t extent[] = {2, 1, 3, 8};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, extent, FORM_PLAIN);
    array_bind(&x, &desc.x, &good.x);
    array_bind(job_output(&job, 4, extent), &desc.y, &good.y);
    desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, extent);
    good.offsets = good.x;
    job.plan = operator_plan(&rope_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, cos = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, positions = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_lengths = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_lengths = 1, args.length = 1, 3));
    REFUSED_ARGS(INVALID_ARGUMENT, length = (args.explicit_lengths = 1, args.batch = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, offsets.buffer = NULL);
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.x);
    operator_needs_both(&rope_operator, job.plan, &good);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes; position 0 rotates nothing. */
static void one_call(void **state)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 4, 1.25, -7);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    operator_runs_prewarmed(&rope_operator, &desc, &args);
    job_expect_two_elements(&job, 1.25, -7);
    job_release(&job);
}

int main(int argc, char **argv)
{
    rope_add(shapes, COUNT_OF(shapes));
    rope_add(partly, COUNT_OF(partly));
    rope_add(angles, COUNT_OF(angles));
    rope_add(forms, COUNT_OF(forms));
    rope_add(types, COUNT_OF(types));
    rope_add(lengths, COUNT_OF(lengths));
    suite_add(refused_descriptions, "rope: descriptions that are refused");
    suite_add(refused_rotary_sizes, "rope: rotary sizes that are refused");
    suite_add(refused_arguments, "rope: arguments that are refused");
    suite_add(one_call, "rope: prewarm and run");
    return suite_run("rope", argc, argv);
}
