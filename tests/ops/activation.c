/* Every solver computes activation functions of all kinds of floats, storage types, ranks and strides, also in place.
 *
 * Holds: what clattn/activation.h says about accuracy, relative to each element and in the tails, which is tighter than
 * the accuracy rule of docs/numerics.md, and about NaN and infinities; guard bands; what is refused. */
#include <math.h>
#include <string.h>

#include "support/ops/activation_case.h"
#include "support/operator.h"

#define DIMS(n, ...) .rank = (n), .extent = {__VA_ARGS__}
#define NONE CLATTN_ACTIVATION_NONE
#define RELU CLATTN_ACTIVATION_RELU
#define GELU CLATTN_ACTIVATION_GELU
#define GELU_TANH CLATTN_ACTIVATION_GELU_TANH
#define SWISH CLATTN_ACTIVATION_SWISH
#define LEAKY CLATTN_ACTIVATION_LEAKY_RELU
#define ALPHA(a) .explicit_alpha = true, .alpha = (a)

#define EACH_FUNCTION(at, ...) \
    {__VA_ARGS__, .levels = (at), .function = RELU}, {__VA_ARGS__, .levels = (at), .function = GELU}, \
        {__VA_ARGS__, .levels = (at), .function = GELU_TANH}, {__VA_ARGS__, .levels = (at), .function = SWISH}, \
        {__VA_ARGS__, .levels = (at), .function = SWISH, ALPHA(1.702f)}, \
        {__VA_ARGS__, .levels = (at), .function = LEAKY}, \
        {__VA_ARGS__, .levels = (at), .function = LEAKY, ALPHA(-2.7f)}, \
    { \
        __VA_ARGS__, .levels = (at), .function = SWISH, ALPHA(-0.3f) \
    }

static const activation_case values[] = {
    {"none: a copy, infinities and NaN too", ALL, NONE, DIMS(1, 39), .values = VALUES_SPECIAL},
    {"none: a copy", BIG, NONE, DIMS(2, 3, 5003), .values = VALUES_FLOATS},
    EACH_FUNCTION(ALL, .rule = "uniform", DIMS(1, 61)),
    EACH_FUNCTION(BIG, .rule = "uniform", DIMS(1, 20011)),
    EACH_FUNCTION(BIG, .rule = "all floats", DIMS(2, 3, 5003), .values = VALUES_FLOATS),
    EACH_FUNCTION(ALL, .rule = "tails", DIMS(1, 61), .values = VALUES_TAILS),
    EACH_FUNCTION(BIG, .rule = "tails", DIMS(1, 20011), .values = VALUES_TAILS),
    EACH_FUNCTION(ALL, .rule = "special", DIMS(1, 39), .values = VALUES_SPECIAL),
    EACH_FUNCTION(BIG, .rule = "special", DIMS(1, 640), .values = VALUES_SPECIAL),
    {"special", ALL, SWISH, ALPHA(0), DIMS(1, 39), .values = VALUES_SPECIAL},
    {"special: 0 times -inf is NaN", ALL, LEAKY, ALPHA(0), DIMS(1, 39), .values = VALUES_SPECIAL},
    {"special, to -inf", ALL, LEAKY, ALPHA(1.5f), DIMS(1, 39), .values = VALUES_SPECIAL},
    {"uniform", ALL, LEAKY, ALPHA(1e-38f), DIMS(1, 61)},
    {"uniform", ALL, LEAKY, ALPHA(3e38f), DIMS(1, 61)},
    {"all floats", BIG, SWISH, ALPHA(1e-38f), DIMS(1, 5003), .values = VALUES_FLOATS},
    {"all floats", BIG, SWISH, ALPHA(3e38f), DIMS(1, 5003), .values = VALUES_FLOATS},
};

static const activation_case shapes[] = {
    {"one element", ALL, GELU, DIMS(1, 1)},
    {"a vector - 1", ALL, GELU, DIMS(1, 15)},
    {"a vector", ALL, GELU, DIMS(1, 16)},
    {"a vector + 1", ALL, GELU, DIMS(1, 17)},
    {"pieces", BIG, GELU, DIMS(2, 3, 40009)},
    {"short rows", BIG, GELU, DIMS(2, 10007, 3), .x = FORM_PADDED},
    {"many", FULL, GELU, DIMS(1, 1000003)},
    {"ranks", ALL, GELU, DIMS(3, 2, 3, 5)},
    {"ranks", ALL, GELU, DIMS(5, 2, 3, 2, 3, 7)},
    {"extents of one", ALL, GELU, DIMS(5, 1, 3, 1, 7, 1)},
    {"nothing", ALL, GELU, DIMS(2, 0, 7)},
    {"nothing", ALL, GELU, DIMS(2, 7, 0)},
    {"nothing at enqueue", ALL, GELU, DIMS(2, 3, 7), .explicit_batch = true, .batch = 0},
    {"beyond the batch", ALL, GELU, DIMS(2, 4, 19), .explicit_batch = true, .batch = 2},
    {"beyond the batch", ALL, GELU, DIMS(1, 300), .explicit_batch = true, .batch = 1},
    {"beyond the batch, columns outermost", ALL, GELU, DIMS(2, 19, 5), .explicit_batch = true, .batch = 7,
     .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED},
};

static const activation_case forms[] = {
    {"heads inside", ALL, SWISH, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD, .y = FORM_PLAIN},
    {"gaps", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_PADDED, .y = FORM_PADDED},
    {"columns apart", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_SPREAD, .y = FORM_SPREAD},
    {"columns backwards", ALL, SWISH, DIMS(2, 5, 19), .x = FORM_MIRRORED, .y = FORM_MIRRORED},
    {"rows backwards", ALL, SWISH, DIMS(2, 5, 19), .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"columns outermost", ALL, SWISH, DIMS(3, 2, 5, 19), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED},
    {"transposed", ALL, SWISH, DIMS(2, 67, 19), .x = FORM_TRANSPOSED, .y = FORM_PLAIN},
    {"one row for all", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_SHARED_ROWS},
    {"one batch item for all", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_SHARED_FIRST},
    {"in place", ALL, SWISH, DIMS(2, 5, 19), .in_place = true},
    {"in place", BIG, SWISH, DIMS(2, 5, 40009), .in_place = true},
    {"in place", ALL, LEAKY, DIMS(2, 5, 19), .in_place = true},
    {"in place, strided", ALL, SWISH, DIMS(3, 2, 5, 19), .x = FORM_SPREAD, .in_place = true},
};

static const activation_case types[] = {
    {"float16", ALL, GELU, DIMS(1, 61), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16},
    {"float16", BIG, GELU, DIMS(1, 40009), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16,
     .values = VALUES_FLOATS},
    {"float16 special", BIG, GELU, DIMS(1, 39), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16,
     .values = VALUES_SPECIAL},
    {"bfloat16", ALL, SWISH, DIMS(1, 61), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16},
    {"bfloat16", BIG, SWISH, DIMS(1, 40009), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16,
     .values = VALUES_FLOATS},
    {"float16", ALL, LEAKY, ALPHA(0.2f), DIMS(1, 61), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16},
    {"bfloat16", BIG, LEAKY, DIMS(1, 40009), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16,
     .values = VALUES_FLOATS},
    {"bfloat16 to float32", BIG, SWISH, DIMS(1, 1009), .x_type = CLATTN_DTYPE_BF16},
    {"float32 to float16, strided", BIG, GELU_TANH, DIMS(2, 7, 131), .y_type = CLATTN_DTYPE_F16, .y = FORM_SPREAD,
     .values = VALUES_FLOATS},
    {"float16 to bfloat16", FULL, RELU, DIMS(1, 1009), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_BF16},
};

static clattn_activation_desc good_desc(void)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;

    desc.function = SWISH;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){3, 5});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(activation, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_activation_desc good = good_desc(), zeroed = CLATTN_ACTIVATION_DESC_INIT;

    (void)state;
    operator_answers(&activation_operator, &good, CLATTN_SUCCESS);
    good.alpha = NAN; /* ignored for this function */
    operator_answers(&activation_operator, &good, CLATTN_SUCCESS);
    operator_answers(&activation_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&activation_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(INVALID_ARGUMENT, function = INT16_MAX);
    REFUSED(INVALID_ARGUMENT, function = -1);
    REFUSED(INVALID_ARGUMENT, explicit_alpha = 2);
    REFUSED(INVALID_ARGUMENT, alpha = (desc.explicit_alpha = 1, INFINITY));
    REFUSED(INVALID_ARGUMENT, alpha = (desc.explicit_alpha = 1, NAN));
    REFUSED(INVALID_LAYOUT, y.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, y.rank = 1);
    REFUSED(INVALID_LAYOUT, y.stride[0] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, y.dtype = CLATTN_DTYPE_I8);
    REFUSED(OVERFLOW, x.extent[0] = desc.y.extent[0] = (size_t)1 << 31);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(activation, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args good = CLATTN_ACTIVATION_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    array_bind(&x, &desc.x, &good.x);
    array_bind(job_output(&job, 2, (size_t[]){3, 19}), &desc.y, &good.y);
    job.plan = operator_plan(&activation_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.x);
    operator_needs_both(&activation_operator, job.plan, &good);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 1, -3, 4.5);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    operator_runs_prewarmed(&activation_operator, &desc, &args);
    job_expect_two_elements(&job, -3, 4.5); /* alpha defaults to none */
    job_release(&job);
}

/* The views of activation.h: a pixel shuffle in both orders, and windows, with one item more than one. */
static void rearranged(void **state)
{
    enum { N = 2, C = 3, R = 2, H = 4, W = 6, COUNT = N * C * R * R * H * W };
    static const struct {
        size_t extent[5];
        int64_t x[5], y[5];
    } views[] = {
        {{N * C, R, R, H, W}, {R * R * H * W, R * H * W, H * W, W, 1}, {R * R * H * W, R * W, 1, R * R * W, R}},
        {{N * H, W, C, R, R}, {R * R * W * C, R * R * C, R * R, R, 1}, {R * R * W * C, R * C, 1, R * W * C, C}},
        {{N * H / 2, 2, W / 3, 3, R * R * C},
         {2 * W * R * R * C, W * R * R * C, 3 * R * R * C, R * R * C, 1},
         {2 * W * R * R * C, 3 * R * R * C, 6 * R * R * C, R * R * C, 1}}};
    float from[COUNT], to[COUNT], expected[COUNT];
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        from[i] = (float)i;
    for (size_t view = 0; view < COUNT_OF(views); view++) {
        clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
        clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
        cl_context opencl = clattn_context_opencl_context(device_context());
        cl_mem x = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof from, from, NULL);
        cl_mem y = clCreateBuffer(opencl, CL_MEM_READ_WRITE, sizeof to, NULL, NULL);
        desc.x = (clattn_layout){.dtype = CLATTN_DTYPE_F32, .rank = 5};
        memcpy(desc.x.extent, views[view].extent, sizeof views[view].extent);
        desc.y = desc.x;
        memcpy(desc.x.stride, views[view].x, sizeof views[view].x);
        memcpy(desc.y.stride, views[view].y, sizeof views[view].y);
        args.x = clattn_binding_buffer(x, 0);
        args.y = clattn_binding_buffer(y, 0);
        assert_status(device_context(), clattn_activation_run(device_context(), NULL, &desc, &args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
        read_buffer(clattn_context_queue(device_context()), y, sizeof to, to);
        for (size_t e = 0; e < COUNT; e++) { /* element e of x by its own coordinates in the picture */
            size_t at = 0;
            if (view == 0) {
                const size_t w = e % W, h = e / W % H, j = e / W / H % R, i = e / W / H / R % R, nc = e / W / H / R / R;
                at = (nc * H * R + h * R + i) * W * R + w * R + j;
            } else if (view == 1) {
                const size_t j = e % R, i = e / R % R, c = e / R / R % C, w = e / R / R / C % W, nh = e / R / R / C / W;
                at = ((nh * R + i) * W * R + w * R + j) * C + c;
            } else {
                const size_t channels = R * R * C, c = e % channels, column = e / channels % W, row = e / channels / W;
                const size_t window = row / 2 * (W / 3) + column / 3;
                at = ((window * 2 + row % 2) * 3 + column % 3) * channels + c;
            }
            expected[at] = from[e];
        }
        assert_memory_equal(to, expected, sizeof to);
        clReleaseMemObject(x);
        clReleaseMemObject(y);
    }
}

int main(int argc, char **argv)
{
    activation_add(values, COUNT_OF(values));
    activation_add(shapes, COUNT_OF(shapes));
    activation_add(forms, COUNT_OF(forms));
    activation_add(types, COUNT_OF(types));
    suite_add(refused_descriptions, "activation: descriptions that are refused");
    suite_add(refused_arguments, "activation: arguments that are refused");
    suite_add(one_call, "activation: prewarm and run");
    suite_add(rearranged, "activation: pictures rearranged by views");
    return suite_run("activation", argc, argv);
}
