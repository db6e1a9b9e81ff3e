/* Every solver pools pictures of both orders of memory: with strides, dilation, padding, rounding up, and as a whole.
 *
 * Holds: what clattn/pool.h says about extents, divisors, NaN, windows without elements and accuracy; guard bands; what is refused. */
#include <math.h>

#include "support/operator.h"
#include "support/pictures/pool_case.h"

#define MAX CLATTN_POOL_KIND_MAX
#define AVERAGE CLATTN_POOL_KIND_AVERAGE
#define SIZES(h, w, h2, w2) .from = {h, w}, .to = {h2, w2}
#define OF(n, c) .batch = (n), .channels = (c)
#define WINDOW(h, w) .window = {h, w}
#define STRIDE(h, w) .stride = {h, w}
#define PAD(t, l, b, r) .padding = {t, l, b, r}
#define LAST .channels_last = true
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

static const pool_case shapes[] = {
    {"halved", ALL, MAX, OF(2, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2)},
    {"halved", ALL, MAX, OF(2, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2), LAST},
    {"halved", ALL, AVERAGE, OF(2, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2)},
    {"halved", ALL, AVERAGE, OF(1, 21), SIZES(7, 9, 3, 4), WINDOW(2, 2), LAST},
    {"many channels", BIG, MAX, OF(1, 150), SIZES(5, 7, 3, 4), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1), LAST},
    {"overlapping", ALL, MAX, OF(1, 2), SIZES(9, 18, 5, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1)},
    {"overlapping", BIG, AVERAGE, OF(2, 19), SIZES(40, 70, 40, 70), WINDOW(3, 3), STRIDE(1, 1), PAD(1, 1, 1, 1)},
    {"overlapping", BIG, AVERAGE, OF(1, 5), SIZES(20, 70, 20, 70), WINDOW(3, 3), STRIDE(1, 1), PAD(1, 1, 1, 1), LAST},
    {"gaps between windows", ALL, MAX, OF(1, 2), SIZES(11, 23, 3, 4), WINDOW(2, 3), STRIDE(4, 6)},
    {"one element", ALL, AVERAGE, OF(2, 1), SIZES(1, 1, 1, 1), WINDOW(1, 1)},
    {"one element, padded", ALL, MAX, OF(1, 1), SIZES(1, 1, 2, 2), WINDOW(2, 2), STRIDE(1, 1), PAD(1, 1, 1, 1)},
    {"whole", ALL, AVERAGE, OF(2, 9), SIZES(7, 7, 1, 1), WINDOW(7, 7)},
    {"whole", ALL, AVERAGE, OF(1, 37), SIZES(7, 7, 1, 1), WINDOW(7, 7), LAST},
    {"whole", BIG, MAX, OF(1, 3), SIZES(60, 90, 1, 1), WINDOW(60, 90)},
    {"whole, wide", BIG, AVERAGE, OF(1, 3), SIZES(3, 700, 1, 1), WINDOW(3, 700), LAST},
    {"whole rows", BIG, AVERAGE, OF(1, 2), SIZES(5, 1100, 5, 1), WINDOW(1, 1100)},
    {"nothing at enqueue", ALL, MAX, OF(2, 2), SIZES(4, 6, 2, 3), WINDOW(2, 2), .explicit_batch = true},
    {"beyond the batch", ALL, MAX, OF(3, 2), SIZES(4, 6, 2, 3), WINDOW(2, 2), .explicit_batch = true, .actual_batch = 2,
     .inject = true},
    {"NaN", ALL, MAX, OF(1, 2), SIZES(6, 20, 6, 20), WINDOW(3, 3), STRIDE(1, 1), PAD(1, 1, 1, 1), .inject = true},
    {"NaN", ALL, MAX, OF(1, 17), SIZES(6, 5, 3, 2), WINDOW(2, 2), LAST, .inject = true},
    {"NaN", BIG, AVERAGE, OF(1, 2), SIZES(6, 20, 2, 6), WINDOW(3, 3), .inject = true},
};

static const pool_case options[] = {
    {"dilated", ALL, MAX, OF(1, 2), SIZES(9, 23, 5, 9), WINDOW(3, 3), STRIDE(1, 2), PAD(0, 0, 0, 0),
     .dilation = {2, 3}},
    {"dilated, padded", BIG, MAX, OF(1, 3), SIZES(9, 23, 8, 12), WINDOW(3, 2), STRIDE(1, 2), PAD(1, 2, 2, 1),
     .dilation = {2, 3}, LAST},
    {"dilated, without elements", ALL, MAX, OF(1, 1), SIZES(1, 1, 2, 1), WINDOW(2, 1), STRIDE(1, 1), PAD(3, 0, 3, 0),
     .dilation = {5, 1}},
    {"uneven padding", ALL, AVERAGE, OF(1, 2), SIZES(6, 19, 3, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 0, 1, 1)},
    {"padding counts", ALL, AVERAGE, OF(1, 2), SIZES(6, 19, 4, 10), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1),
     .ceil_mode = true, .count_include_pad = true},
    {"padding counts", ALL, AVERAGE, OF(1, 18), SIZES(6, 5, 4, 3), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1), LAST,
     .ceil_mode = true, .count_include_pad = true},
    {"rounded up", ALL, AVERAGE, OF(1, 2), SIZES(6, 20, 3, 7), WINDOW(2, 3), STRIDE(2, 3), .ceil_mode = true},
    {"rounded up, the last one left out", ALL, MAX, OF(1, 2), SIZES(5, 4, 3, 3), WINDOW(2, 2), STRIDE(2, 2),
     PAD(1, 1, 1, 1), .ceil_mode = true},
    {"rounded up, smaller than a window", ALL, AVERAGE, OF(1, 1), SIZES(2, 5, 1, 2), WINDOW(3, 3), STRIDE(2, 2),
     .ceil_mode = true},
};

static const pool_case forms[] = {
    {"gaps", ALL, MAX, OF(2, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_PADDED, .y = FORM_PADDED},
    {"columns apart", ALL, AVERAGE, OF(1, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_SPREAD, .y = FORM_SPREAD},
    {"columns backwards", BIG, MAX, OF(1, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_MIRRORED,
     .y = FORM_TRANSPOSED},
    {"rows backwards", BIG, MAX, OF(1, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"gaps behind channels", ALL, MAX, OF(1, 18), SIZES(7, 5, 3, 2), WINDOW(2, 2), LAST, .x = FORM_PADDED},
    {"channels apart", ALL, AVERAGE, OF(1, 18), SIZES(7, 5, 3, 2), WINDOW(2, 2), LAST, .x = FORM_SPREAD},
    {"one channel for all", BIG, MAX, OF(1, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_SHARED_SECOND},
    {"whole, with gaps", BIG, AVERAGE, OF(1, 3), SIZES(7, 5, 1, 1), WINDOW(7, 5), .x = FORM_PADDED},
};

static const pool_case types[] = {
    {"float16", ALL, MAX, OF(1, 2), SIZES(7, 39, 3, 19), WINDOW(2, 2), .x_type = F16, .y_type = F16},
    {"bfloat16", ALL, AVERAGE, OF(1, 3), SIZES(7, 39, 3, 19), WINDOW(2, 2), LAST, .x_type = BF16, .y_type = BF16},
    {"float16 to float32", BIG, MAX, OF(1, 2), SIZES(7, 39, 3, 19), WINDOW(2, 2), .x_type = F16},
    {"float32 to bfloat16", BIG, AVERAGE, OF(1, 17), SIZES(7, 9, 3, 4), WINDOW(2, 2), LAST, .y_type = BF16},
};

static clattn_pool_desc good_desc(void)
{
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;

    desc.window[0] = desc.window[1] = 2;
    desc.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 3, 6, 8});
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 3, 3, 4});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(pool, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_pool_desc good = good_desc(), zeroed = CLATTN_POOL_DESC_INIT;

    (void)state;
    operator_answers(&pool_operator, &good, CLATTN_SUCCESS);
    operator_answers(&pool_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&pool_operator, &zeroed, CLATTN_ERROR_INVALID_ARGUMENT);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_ARGUMENT, gradients.x = good.x);
    REFUSED(INVALID_ARGUMENT, gradients.y = good.y);
    REFUSED(INVALID_ARGUMENT, kind = 2);
    REFUSED(INVALID_ARGUMENT, window[0] = 0);
    REFUSED(INVALID_ARGUMENT, stride[1] = -1);
    REFUSED(INVALID_ARGUMENT, padding[2] = 2);
    REFUSED(INVALID_ARGUMENT, ceil_mode = 2);
    REFUSED(INVALID_ARGUMENT, count_include_pad = 1);
    REFUSED(UNSUPPORTED, dilation[0] = (desc.kind = AVERAGE, 2));
    REFUSED(OVERFLOW, dilation[0] = 1 << 30);
    REFUSED(INVALID_LAYOUT, padding[0] = desc.padding[2] = 1);
    REFUSED(INVALID_LAYOUT, window[0] = 7);
    REFUSED(INVALID_LAYOUT, y.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, y.extent[3] = 3);
    REFUSED(INVALID_LAYOUT, x.rank = 3);
    REFUSED(INVALID_LAYOUT, y.stride[2] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(pool, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
    clattn_pool_args good = CLATTN_POOL_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 4, 6}, FORM_PLAIN);
    desc.window[0] = desc.window[1] = 2;
    array_bind(&x, &desc.x, &good.x);
    array_bind(job_output(&job, 4, (size_t[]){1, 1, 2, 3}), &desc.y, &good.y);
    job.plan = operator_plan(&pool_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 2));
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.x);
    operator_needs_both(&pool_operator, job.plan, &good);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
    clattn_pool_args args = CLATTN_POOL_ARGS_INIT;
    test_job job = {0};

    (void)state;
    desc.window[0] = desc.window[1] = 1;
    job_two_elements(&job, 4, -3, 4.5);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    operator_runs_prewarmed(&pool_operator, &desc, &args);
    job_expect_two_elements(&job, -3, 4.5);
    job_release(&job);
}

int main(int argc, char **argv)
{
    pool_add(shapes, COUNT_OF(shapes));
    pool_add(options, COUNT_OF(options));
    pool_add(forms, COUNT_OF(forms));
    pool_add(types, COUNT_OF(types));
    suite_add(refused_descriptions, "pool: descriptions that are refused");
    suite_add(refused_arguments, "pool: arguments that are refused");
    suite_add(one_call, "pool: prewarm and run");
    return suite_run("pool", argc, argv);
}
