/* Every solver computes the gradient of rotary position embedding with both pairings, partly rotated heads, computed
 * and given angles, positions, offsets, storage types, strides, also in place.
 *
 * Holds: what clattn/rope.h says of CLATTN_DIRECTION_BACKWARD; results that are the same in every bit from run to run
 * and whatever the batch; guard bands; what is refused.  The tests' own gradient is held to be the transpose of the
 * tests' own rotation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/ops/rope_case.h"

#define DIMS(b, h, s, d) .backward = true, .batch = (b), .heads = (h), .length = (s), .size = (d)
#define INTERLEAVED .interleaved = true

static const rope_case cases[] = {
    {"one pair", ALL, DIMS(1, 1, 1, 2), .position = 1},
    {"a vector", ALL, DIMS(2, 3, 5, 32)},
    {"a vector", ALL, DIMS(2, 3, 5, 32), INTERLEAVED},
    {"a vector + 1", ALL, DIMS(2, 3, 5, 34)},
    {"a vector + 1", ALL, DIMS(2, 3, 5, 34), INTERLEAVED},
    {"many places", BIG, DIMS(3, 5, 131, 64)},
    {"many places", BIG, DIMS(3, 5, 131, 64), INTERLEAVED},
    {"nothing: no batch", ALL, DIMS(0, 3, 5, 8)},
    {"nothing: no elements", ALL, DIMS(2, 3, 5, 0)},
    {"partly rotated", ALL, DIMS(2, 3, 5, 24), .rotary = 6},
    {"partly rotated", ALL, DIMS(2, 3, 5, 24), INTERLEAVED, .rotary = 6},
    {"base 1e38", BIG, DIMS(1, 2, 5, 64), .base = 1e38f, .position = 100},
    {"positions to 2^20", ALL, DIMS(2, 2, 7, 16), .where = WHERE_POSITIONS, .low = -(1 << 20), .high = 1 << 20},
    {"int64 offsets", ALL, DIMS(3, 2, 7, 16), .where = WHERE_OFFSETS, .low = -5, .high = 1 << 20, .position = 3,
     .index_type = CLATTN_DTYPE_I64},
    {"a table", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_TABLE},
    {"a table, positions", BIG, DIMS(2, 3, 5, 64), INTERLEAVED, .angles = ANGLES_TABLE, .where = WHERE_POSITIONS},
    {"positions behind the table's end: NaN", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_TABLE, .position = 94},
    {"negative positions, partly rotated: NaN, the rest copied", ALL, DIMS(2, 3, 5, 24), .rotary = 8,
     .angles = ANGLES_TABLE, .position = -2},
    {"a row for each place", ALL, DIMS(2, 3, 5, 16), .angles = ANGLES_PLACE},
    {"heads inside", ALL, DIMS(2, 3, 5, 16), .x = FORM_BSHD, .y = FORM_BSHD},
    {"columns apart", ALL, DIMS(2, 3, 5, 40), INTERLEAVED, .x = FORM_SPREAD, .y = FORM_PLAIN, .rotary = 34},
    {"columns backwards", BIG, DIMS(2, 3, 5, 64), .x = FORM_MIRRORED, .y = FORM_TRANSPOSED},
    {"one head for all", BIG, DIMS(2, 3, 5, 64), .x = FORM_SHARED_SECOND},
    {"in place", ALL, DIMS(2, 3, 5, 34), .in_place = true},
    {"in place", ALL, DIMS(2, 3, 5, 34), INTERLEAVED, .in_place = true},
    {"in place, strided", BIG, DIMS(2, 3, 5, 34), .in_place = true, .x = FORM_SPREAD},
    {"float16", ALL, DIMS(2, 3, 5, 34), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16},
    {"bfloat16", ALL, DIMS(2, 3, 5, 34), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16},
    {"float16 to float32, bfloat16 caches", BIG, DIMS(2, 3, 7, 34), .rotary = 16, .x_type = CLATTN_DTYPE_F16,
     .angles = ANGLES_PLACE, .cache_type = CLATTN_DTYPE_BF16},
    {"shorter, and NaN", ALL, DIMS(3, 2, 5, 16), .explicit_lengths = true, .actual_batch = 2, .actual_length = 3,
     .inject = true},
    {"NaN in one pair", ALL, DIMS(2, 2, 3, 34), INTERLEAVED, .inject = true, .rotary = 20},
    {"no places at enqueue", ALL, DIMS(3, 2, 5, 16), .explicit_lengths = true, .actual_batch = 3, .actual_length = 0},
};

/* g . R(p) x = R(-p) g . x for all x and g. */
static void reference_is_the_transpose(void **state)
{
    enum { SIZE = 34 };
    random_stream stream = random_start(12);

    (void)state;
    for (int i = 0; i < 200; i++) {
        const size_t rotary = (size_t)random_int(&stream, 1, SIZE / 2) * 2;
        const double position = random_int(&stream, -5000, 5000);
        double x[SIZE], g[SIZE], y[SIZE], back[SIZE], magnitude[SIZE], forward = 0, backward = 0;
        for (size_t d = 0; d < SIZE; d++) {
            x[d] = (double)random_float(&stream, -4, 4);
            g[d] = (double)random_float(&stream, -4, 4);
        }
        reference_rope(SIZE, rotary, i % 2, 10000, NULL, NULL, position, x, y, magnitude);
        reference_rope(SIZE, rotary, i % 2, 10000, NULL, NULL, -position, g, back, magnitude);
        for (size_t d = 0; d < SIZE; d++) {
            forward += g[d] * y[d];
            backward += back[d] * x[d];
        }
        assert_true(fabs(forward - backward) < 1e-11);
    }
}

enum { BATCH = 4, HEADS = 3, LENGTH = 17, SIZE = 64, ITEM = HEADS * LENGTH * SIZE };

/* The bits are those of the first run, and those of an item are the same with fewer items around it. */
static void same_bits(void **state)
{
    static const rope_case test = {"repeated", ALL, DIMS(BATCH, HEADS, LENGTH, SIZE), .position = 77};
    float *first = malloc(sizeof(float) * BATCH * ITEM), *again = malloc(sizeof(float) * BATCH * ITEM);

    (void)state;
    assert_non_null(first);
    assert_non_null(again);
    for (size_t n = 0; n < ROPE_SOLVERS; n++) {
        test_job job = {0};
        assert_true(rope_make(&job, &test, rope_solvers[n]));
        job_run(&job, NULL);
        job_copy_output(&job, first);
        for (size_t i = 0, runs = by_level(3, 100, 100, 1000); i < runs; i++) {
            const size_t batch = 1 + i % BATCH;
            job.args.rope.explicit_lengths = 1;
            job.args.rope.batch = batch;
            job.args.rope.length = LENGTH;
            array_own(&job.output[0], (size_t[]){batch, HEADS, LENGTH, SIZE});
            job_poison(&job);
            job_run(&job, NULL);
            job_copy_output(&job, again);
            assert_memory_equal(again, first, sizeof(float) * batch * ITEM);
        }
        job_release(&job);
    }
    free(first);
    free(again);
}

static clattn_rope_desc good_desc(void)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.x = desc.gradients.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 3, 5, 8);
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(rope, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_rope_desc good = good_desc(), forward = good_desc();

    (void)state;
    operator_answers(&rope_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_ARGUMENT, x = good.gradients.x);
    REFUSED(INVALID_ARGUMENT, y = good.gradients.y);
    REFUSED(INVALID_ARGUMENT, rotary_size = 10);
    REFUSED(INVALID_LAYOUT, gradients.x = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.y = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.x.extent[2] = 4);
    REFUSED(INVALID_LAYOUT, gradients.x.stride[1] = 0);
    REFUSED(INVALID_LAYOUT,
            gradients.x = desc.gradients.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 5, 8}));
    REFUSED(UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_BOOL);
    REFUSED(UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_F64);
    forward.direction = CLATTN_DIRECTION_FORWARD;
    forward.x = forward.y = good.gradients.x;
    operator_answers(&rope_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.x = (clattn_layout){0};
    operator_answers(&rope_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.y = (clattn_layout){0};
    operator_answers(&rope_operator, &forward, CLATTN_SUCCESS);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(rope, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_rope_args good = CLATTN_ROPE_ARGS_INIT;
    test_job job = {0};
    size_t extent[] = {2, 1, 3, 8};

    (void)state;
    test_array gradient = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, extent, FORM_PLAIN);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    array_bind(&gradient, &desc.gradients.y, &good.gradients.y);
    array_bind(job_output(&job, 4, extent), &desc.gradients.x, &good.gradients.x);
    job.plan = operator_plan(&rope_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, x = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, y = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_lengths = 1, args.length = 1, 3));
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.x = good.gradients.y);
    operator_needs_both(&rope_operator, job.plan, &good);
    clattn_plan_release(&job.plan);
    desc.direction = CLATTN_DIRECTION_FORWARD; /* of which no gradient is bound */
    desc.x = desc.gradients.y;
    desc.y = desc.gradients.x;
    desc.gradients.x = desc.gradients.y = (clattn_layout){0};
    good.x = good.gradients.y;
    good.y = good.gradients.x;
    job.plan = operator_plan(&rope_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y = (clattn_binding){0});
    job_release(&job);
}

int main(int argc, char **argv)
{
    suite_add(reference_is_the_transpose, "rope backward: the reference is the transpose of forward's");
    rope_add(cases, COUNT_OF(cases));
    suite_add(same_bits, "rope backward: the same bits in every run and every batch");
    suite_add(refused_descriptions, "rope backward: descriptions that are refused");
    suite_add(refused_arguments, "rope backward: arguments that are refused");
    return suite_run("rope_backward", argc, argv);
}
