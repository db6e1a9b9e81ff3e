/* The gradients of pooling: of both kinds and orders of memory, with strides, dilation, padding, rounding up, and of whole
 * pictures.
 *
 * Holds: what clattn/pool.h says of CLATTN_DIRECTION_BACKWARD about accuracy, equal elements, NaN and elements of no window;
 * results that are the same in every bit from run to run and whatever the batch; guard bands; what is refused.  The tests'
 * own gradients are held to differences of the tests' own pooling. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/pictures/pool_case.h"

#define MAX CLATTN_POOL_KIND_MAX
#define AVERAGE CLATTN_POOL_KIND_AVERAGE
#define SIZES(h, w, h2, w2) .backward = true, .from = {h, w}, .to = {h2, w2}
#define OF(n, c) .batch = (n), .channels = (c)
#define WINDOW(h, w) .window = {h, w}
#define STRIDE(h, w) .stride = {h, w}
#define PAD(t, l, b, r) .padding = {t, l, b, r}
#define LAST .channels_last = true
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

/* A case of each kind. */
#define BOTH(rule, at, ...) \
    {rule, at, MAX, __VA_ARGS__}, \
    { \
        rule, at, AVERAGE, __VA_ARGS__ \
    }

static const pool_case shapes[] = {
    BOTH("halved", ALL, OF(2, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2)),
    BOTH("halved", ALL, OF(2, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2), LAST),
    BOTH("channels as lanes", ALL, OF(1, 21), SIZES(7, 9, 3, 4), WINDOW(3, 2), STRIDE(2, 2), LAST, .whole = true),
    BOTH("channels as lanes", ALL, OF(2, 37), SIZES(5, 7, 3, 4), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1), LAST,
         .inject = true),
    BOTH("rows of several tiles", BIG, OF(1, 1), SIZES(3, 2070, 2, 1035), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1)),
    BOTH("rows of several tiles", BIG, OF(1, 20), SIZES(3, 70, 2, 35), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1),
         LAST),
    BOTH("many channels", BIG, OF(1, 150), SIZES(5, 7, 3, 4), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1), LAST),
    BOTH("overlapping", ALL, OF(1, 2), SIZES(9, 18, 5, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1)),
    BOTH("overlapping", BIG, OF(2, 19), SIZES(40, 70, 40, 70), WINDOW(3, 3), STRIDE(1, 1), PAD(1, 1, 1, 1)),
    BOTH("gaps between windows", ALL, OF(1, 2), SIZES(11, 23, 3, 4), WINDOW(2, 3), STRIDE(4, 6)),
    BOTH("one element", ALL, OF(2, 1), SIZES(1, 1, 1, 1), WINDOW(1, 1)),
    BOTH("one element, padded", ALL, OF(1, 1), SIZES(1, 1, 2, 2), WINDOW(2, 2), STRIDE(1, 1), PAD(1, 1, 1, 1)),
    BOTH("whole", ALL, OF(2, 9), SIZES(7, 7, 1, 1), WINDOW(7, 7)),
    BOTH("whole", ALL, OF(1, 37), SIZES(7, 7, 1, 1), WINDOW(7, 7), LAST),
    BOTH("whole", BIG, OF(1, 3), SIZES(60, 90, 1, 1), WINDOW(60, 90)),
    BOTH("wide windows", BIG, OF(1, 2), SIZES(3, 300, 1, 201), WINDOW(3, 100), STRIDE(1, 1)),
    BOTH("nothing at enqueue", ALL, OF(2, 2), SIZES(4, 6, 2, 3), WINDOW(2, 2), .explicit_batch = true),
    BOTH("beyond the batch", ALL, OF(3, 2), SIZES(4, 6, 2, 3), WINDOW(2, 2), .explicit_batch = true, .actual_batch = 2,
         .inject = true),
    BOTH("equal elements", ALL, OF(1, 3), SIZES(9, 18, 5, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1),
         .whole = true),
    BOTH("equal elements", ALL, OF(1, 3), SIZES(9, 18, 5, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1), LAST,
         .whole = true),
    BOTH("NaN", ALL, OF(1, 2), SIZES(6, 20, 6, 20), WINDOW(3, 3), STRIDE(1, 1), PAD(1, 1, 1, 1), .inject = true),
};

static const pool_case options[] = {
    {"dilated", ALL, MAX, OF(1, 2), SIZES(9, 23, 5, 9), WINDOW(3, 3), STRIDE(1, 2), .dilation = {2, 3}},
    {"dilated, padded", BIG, MAX, OF(1, 3), SIZES(9, 23, 8, 12), WINDOW(3, 2), STRIDE(1, 2), PAD(1, 2, 2, 1),
     .dilation = {2, 3}, LAST},
    {"dilated, without elements", ALL, MAX, OF(1, 1), SIZES(1, 1, 2, 1), WINDOW(2, 1), STRIDE(1, 1), PAD(3, 0, 3, 0),
     .dilation = {5, 1}},
    BOTH("uneven padding", ALL, OF(1, 2), SIZES(6, 19, 3, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 0, 1, 1)),
    {"padding counts", ALL, AVERAGE, OF(1, 2), SIZES(6, 19, 4, 10), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1),
     .ceil_mode = true, .count_include_pad = true},
    BOTH("rounded up", ALL, OF(1, 2), SIZES(6, 20, 3, 7), WINDOW(2, 3), STRIDE(2, 3), .ceil_mode = true),
    BOTH("rounded up, the last one left out", ALL, OF(1, 2), SIZES(5, 4, 3, 3), WINDOW(2, 2), STRIDE(2, 2),
         PAD(1, 1, 1, 1), .ceil_mode = true),
    BOTH("rounded up, smaller than a window", ALL, OF(1, 1), SIZES(2, 5, 1, 2), WINDOW(3, 3), STRIDE(2, 2),
         .ceil_mode = true),
};

static const pool_case forms[] = {
    BOTH("gaps", ALL, OF(2, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_PADDED, .y = FORM_PADDED,
         .gradient = FORM_PADDED),
    BOTH("columns apart", ALL, OF(1, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_SPREAD, .gradient = FORM_SPREAD),
    BOTH("columns backwards", BIG, OF(1, 2), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_MIRRORED, .y = FORM_TRANSPOSED,
         .gradient = FORM_FLIPPED),
    BOTH("gaps behind channels", ALL, OF(1, 18), SIZES(7, 5, 3, 2), WINDOW(2, 2), LAST, .y = FORM_PADDED),
    BOTH("one channel for all", BIG, OF(1, 3), SIZES(7, 19, 3, 9), WINDOW(2, 2), .x = FORM_SHARED_SECOND,
         .gradient = FORM_SHARED_SECOND),
};

static const pool_case types[] = {
    BOTH("float16", ALL, OF(1, 2), SIZES(7, 39, 3, 19), WINDOW(2, 2), .x_type = F16, .y_type = F16,
         .gradient_type = F16),
    BOTH("bfloat16", BIG, OF(1, 3), SIZES(7, 39, 3, 19), WINDOW(2, 2), LAST, .x_type = BF16, .y_type = BF16,
         .gradient_type = BF16),
    BOTH("float16 and bfloat16 to float32", BIG, OF(1, 2), SIZES(7, 39, 3, 19), WINDOW(2, 2), .x_type = F16,
         .gradient_type = BF16),
};

/* The tests' gradients of a weighted sum of y are central differences of it, where no element is close to another. */
static void references_agree(void **state)
{
    static const pool_case cases[] = {
        BOTH("", ALL, SIZES(5, 7, 3, 4), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1)),
        {"", ALL, MAX, SIZES(6, 7, 2, 3), WINDOW(3, 2), STRIDE(2, 2), .dilation = {2, 3}},
        {"", ALL, AVERAGE, SIZES(5, 7, 3, 4), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1), .count_include_pad = true},
    };
    random_stream stream = random_start(11);

    (void)state;
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        const size_t from = cases[n].from[0] * cases[n].from[1], to = cases[n].to[0] * cases[n].to[1];
        double *x = zeros(from), *weight = zeros(to), *y = zeros(to), *size = zeros(from + to), *gradient = zeros(from);
        for (size_t e = 0; e < from; e++)
            x[e] = (double)(e * 17 % from) + (double)random_float(&stream, 0, 0.5f);
        for (size_t e = 0; e < to; e++)
            weight[e] = (double)random_float(&stream, -1, 1);
        pool_gradient_reference(&cases[n], 1, x, weight, gradient, size);
        for (size_t e = 0; e < from; e++) {
            double sum[2] = {0}, kept = x[e];
            for (int side = 0; side < 2; side++) {
                x[e] = kept + (side ? 1e-3 : -1e-3);
                pool_reference(&cases[n], 1, x, y, size);
                for (size_t w = 0; w < to; w++)
                    sum[side] += weight[w] * y[w];
            }
            x[e] = kept;
            assert_true(fabs((sum[1] - sum[0]) / 2e-3 - gradient[e]) < 1e-9);
        }
        free(gradient);
        free(size);
        free(y);
        free(weight);
        free(x);
    }
}

static const pool_case repeated[] = {
    BOTH("repeated", ALL, OF(4, 3), SIZES(9, 18, 5, 9), WINDOW(3, 3), STRIDE(2, 2), PAD(1, 1, 1, 1)),
};

static void same_bits(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(repeated) * POOL_SOLVERS; n++) {
        test_job job = {0};
        if (!pool_make(&job, &repeated[n / POOL_SOLVERS], pool_solvers[n % POOL_SOLVERS]))
            continue;
        job_run(&job, NULL);
        unsigned char *given = job_snapshot(&job);
        job_repeat(&job, given);
        free(given);
        job_release(&job);
    }
}

/* The first items of a batch are the same without the others. */
static void any_batch(void **state)
{
    enum { PLANES = 3 * 9 * 18 };
    (void)state;
    for (size_t n = 0; n < COUNT_OF(repeated) * POOL_SOLVERS; n++) {
        float whole[4 * PLANES], part[4 * PLANES];
        test_job job = {0};
        if (!pool_make(&job, &repeated[n / POOL_SOLVERS], pool_solvers[n % POOL_SOLVERS]))
            continue;
        job_run(&job, NULL);
        job_copy_output(&job, whole);
        job.args.pool.explicit_batch = 1;
        for (size_t batch = 1; batch < 4; batch++) {
            job.args.pool.batch = batch;
            array_own(&job.output[0], (size_t[]){batch, 3, 9, 18});
            job_poison(&job);
            job_run(&job, NULL);
            job_copy_output(&job, part);
            assert_memory_equal(part, whole, sizeof(float) * batch * PLANES);
        }
        job_release(&job);
    }
}

/* The first of a window's largest elements gets the gradient: also of zeros of both signs, infinities and NaN. */
static void firsts_by(const char *solver)
{
    static const struct {
        float x[4], expected[4];
    } windows[] = {
        {{1, 2, 2, 2}, {0, 3, 0, 0}},
        {{-0.0f, 0, 0, -0.0f}, {3, 0, 0, 0}},
        {{-1, -INFINITY, -1, -2}, {3, 0, 0, 0}},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {3, 0, 0, 0}},
        {{1, INFINITY, 5, INFINITY}, {0, 3, 0, 0}},
        {{INFINITY, 1, NAN, NAN}, {0, 0, 3, 0}},
        {{NAN, NAN, 4, INFINITY}, {3, 0, 0, 0}},
    };
    const float gradient = 3;

    for (size_t i = 0; i < COUNT_OF(windows); i++) {
        clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
        clattn_pool_args args = CLATTN_POOL_ARGS_INIT;
        test_job job = {0};
        float found[4];
        const test_array x = job_floats(&job, 4, (size_t[]){1, 1, 2, 2}, windows[i].x);
        const test_array y_gradient = job_floats(&job, 4, (size_t[]){1, 1, 1, 1}, &gradient);
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.window[0] = desc.window[1] = 2;
        array_bind(&x, &desc.x, &args.x);
        array_bind(&y_gradient, &desc.gradients.y, &args.gradients.y);
        array_bind(job_output(&job, 4, (size_t[]){1, 1, 2, 2}), &desc.gradients.x, &args.gradients.x);
        job.args.pool = args;
        if (job_plan(&job, &pool_operator, &desc, solver, JOB_LOOPS)) {
            job_run(&job, NULL);
            job_copy_output(&job, found);
            assert_memory_equal(found, windows[i].expected, sizeof found);
        }
        job_release(&job);
    }
}

static void firsts(void **state)
{
    (void)state;
    for (size_t n = 0; n < POOL_SOLVERS; n++)
        firsts_by(pool_solvers[n]);
}

static clattn_pool_desc good_desc(clattn_pool_kind kind)
{
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.kind = kind;
    desc.window[0] = desc.window[1] = 2;
    desc.gradients.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 3, 6, 8});
    desc.gradients.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 3, 3, 4});
    if (kind == MAX)
        desc.x = desc.gradients.x;
    return desc;
}

#define REFUSED(kind, status, change) OPERATOR_REFUSES_DESC(pool, status, good_desc(kind), change)

static void refused_descriptions(void **state)
{
    const clattn_pool_desc max = good_desc(MAX), average = good_desc(AVERAGE);

    (void)state;
    operator_answers(&pool_operator, &max, CLATTN_SUCCESS);
    operator_answers(&pool_operator, &average, CLATTN_SUCCESS);
    REFUSED(MAX, INVALID_ARGUMENT, y = max.gradients.y);
    REFUSED(AVERAGE, INVALID_ARGUMENT, y = max.gradients.y);
    REFUSED(AVERAGE, INVALID_ARGUMENT, x = max.x);
    REFUSED(MAX, INVALID_LAYOUT, x = (clattn_layout){0});
    REFUSED(MAX, INVALID_LAYOUT, gradients.x = (clattn_layout){0});
    REFUSED(AVERAGE, INVALID_LAYOUT, gradients.y = (clattn_layout){0});
    REFUSED(MAX, INVALID_LAYOUT, x.extent[1] = 2);
    REFUSED(MAX, INVALID_LAYOUT, x.extent[3] = 7);
    REFUSED(MAX, INVALID_LAYOUT, gradients.y.extent[3] = 3);
    REFUSED(AVERAGE, INVALID_LAYOUT, gradients.y.extent[0] = 1);
    REFUSED(AVERAGE, INVALID_LAYOUT, gradients.x.rank = 3);
    REFUSED(AVERAGE, INVALID_LAYOUT, gradients.x.stride[2] = 0);
    REFUSED(MAX, UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(MAX, UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_F64);
    REFUSED(AVERAGE, UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_I8);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(pool, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    (void)state;
    for (clattn_pool_kind kind = MAX; kind <= AVERAGE; kind++) {
        clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
        clattn_pool_args good = CLATTN_POOL_ARGS_INIT;
        test_job job = {0};
        test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 4, 6}, FORM_PLAIN);
        test_array gradient = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 2, 3}, FORM_PLAIN);
        const clattn_binding x_binding = array_binding(&x);
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.kind = kind;
        desc.window[0] = desc.window[1] = 2;
        if (kind == MAX)
            array_bind(&x, &desc.x, &good.x);
        array_bind(&gradient, &desc.gradients.y, &good.gradients.y);
        array_bind(job_output(&job, 4, (size_t[]){1, 1, 4, 6}), &desc.gradients.x, &good.gradients.x);
        job.plan = operator_plan(&pool_operator, &desc, NULL);
        REFUSED_ARGS(INVALID_STRUCT, size = 8);
        REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
        REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 2));
        REFUSED_ARGS(INVALID_ARGUMENT, x = kind == MAX ? (clattn_binding){0} : x_binding);
        REFUSED_ARGS(INVALID_ARGUMENT, y = good.gradients.y);
        REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.buffer = NULL);
        REFUSED_ARGS(INVALID_ARGUMENT, gradients.y.buffer = NULL);
        REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 100);
        REFUSED_ARGS(BUFFER_ACCESS, gradients.x = x_binding);
        operator_needs_both(&pool_operator, job.plan, &good);
        job_release(&job);
    }
}

int main(int argc, char **argv)
{
    suite_add(references_agree, "pool backward: the reference is the slope of forward's");
    pool_add(shapes, COUNT_OF(shapes));
    pool_add(options, COUNT_OF(options));
    pool_add(forms, COUNT_OF(forms));
    pool_add(types, COUNT_OF(types));
    suite_add(same_bits, "pool backward: the same bits in every run");
    suite_add(any_batch, "pool backward: the same bits in every batch");
    suite_add(firsts, "pool backward: of equal elements the first gets the gradient");
    suite_add(refused_descriptions, "pool backward: descriptions that are refused");
    suite_add(refused_arguments, "pool backward: arguments that are refused");
    return suite_run("pool_backward", argc, argv);
}
