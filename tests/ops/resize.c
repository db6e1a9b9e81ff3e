/* Every solver resizes pictures of both orders of memory with each mode, up and down, with and without antialiasing.
 *
 * Holds: what clattn/resize.h says about accuracy, about edges, scales and corners, and about NaN, which stays in its window;
 * guard bands; what is refused. */
#include <math.h>

#include "support/operator.h"
#include "support/pictures/resize_case.h"

#define NEAREST CLATTN_RESIZE_MODE_NEAREST
#define EXACT CLATTN_RESIZE_MODE_NEAREST_EXACT
#define LINEAR CLATTN_RESIZE_MODE_BILINEAR
#define CUBIC CLATTN_RESIZE_MODE_BICUBIC
#define SIZES(h, w, h2, w2) .from = {h, w}, .to = {h2, w2}
#define OF(n, c) .batch = (n), .channels = (c)
#define LAST .channels_last = true
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

static const resize_case shapes[] = {
    {"up", ALL, NEAREST, OF(2, 3), SIZES(5, 7, 9, 19)},
    {"down", ALL, NEAREST, OF(1, 3), SIZES(13, 17, 5, 6), LAST},
    {"up", ALL, EXACT, OF(1, 2), SIZES(5, 7, 9, 19), LAST},
    {"down", BIG, EXACT, OF(2, 3), SIZES(13, 17, 5, 6)},
    {"up", ALL, LINEAR, OF(2, 3), SIZES(5, 7, 9, 19)},
    {"up", ALL, LINEAR, OF(2, 3), SIZES(5, 7, 9, 19), LAST},
    {"down", ALL, LINEAR, OF(1, 3), SIZES(13, 17, 5, 6)},
    {"twice", BIG, LINEAR, OF(1, 3), SIZES(33, 70, 66, 140)},
    {"twice", BIG, LINEAR, OF(1, 3), SIZES(33, 70, 66, 140), LAST},
    {"up", ALL, CUBIC, OF(2, 3), SIZES(5, 7, 9, 19)},
    {"down", ALL, CUBIC, OF(1, 5), SIZES(13, 17, 5, 6), LAST},
    {"a given", ALL, CUBIC, OF(1, 1), SIZES(6, 7, 9, 8), .cubic_a = -1.5f},
    {"the same size", ALL, LINEAR, OF(1, 2), SIZES(6, 7, 6, 7)},
    {"one element", ALL, CUBIC, OF(2, 1), SIZES(1, 1, 3, 5)},
    {"one element, large", BIG, LINEAR, OF(1, 3), SIZES(1, 1, 65, 130), LAST},
    {"to one element", ALL, LINEAR, OF(1, 3), SIZES(6, 9, 1, 1)},
    {"a column", BIG, CUBIC, OF(1, 1), SIZES(40, 1, 23, 1)},
    {"a row", BIG, LINEAR, OF(1, 1), SIZES(1, 300, 1, 431)},
    {"many channels", BIG, LINEAR, OF(2, 65), SIZES(3, 4, 5, 7), LAST},
    {"more channels than a piece has", BIG, LINEAR, OF(1, 150), SIZES(3, 4, 5, 7), LAST},
    {"more channels than a piece has", BIG, CUBIC, OF(1, 150), SIZES(3, 4, 5, 7), LAST},
    {"a large ratio", BIG, LINEAR, OF(1, 1), SIZES(400, 1000, 2, 3)},
    {"a large ratio", BIG, NEAREST, OF(1, 2), SIZES(1, 2000, 2, 17)},
    {"nothing: no batch", ALL, LINEAR, SIZES(4, 5, 6, 7), .explicit_batch = true, .actual_batch = 0},
    {"beyond the batch", ALL, LINEAR, OF(3, 2), SIZES(4, 6, 8, 12), .explicit_batch = true, .actual_batch = 2,
     .inject = true},
    {"NaN", ALL, CUBIC, OF(1, 2), SIZES(8, 8, 4, 16), LAST, .inject = true},
    {"NaN", ALL, LINEAR, OF(1, 1), SIZES(9, 17, 5, 33), .align_corners = true, .inject = true},
    {"NaN", BIG, LINEAR, OF(1, 2), SIZES(16, 32, 4, 16), .antialias = true, .inject = true},
};

static const resize_case options[] = {
    {"corners", ALL, LINEAR, OF(1, 3), SIZES(5, 7, 9, 19), .align_corners = true},
    {"corners", ALL, CUBIC, OF(1, 3), SIZES(13, 17, 5, 6), LAST, .align_corners = true},
    {"corners of one element", ALL, LINEAR, OF(1, 1), SIZES(5, 7, 1, 4), .align_corners = true},
    {"scales", ALL, LINEAR, OF(1, 2), SIZES(5, 7, 11, 8), .scale = {2.3, 1.25}},
    {"scales", ALL, NEAREST, OF(1, 2), SIZES(5, 7, 3, 8), .scale = {0.7, 1.25}},
    {"scales", BIG, CUBIC, OF(1, 2), SIZES(15, 17, 4, 56), LAST, .scale = {0.3, 3.3}},
    {"scales, antialiased", BIG, LINEAR, OF(1, 2), SIZES(15, 17, 4, 6), .antialias = true, .scale = {0.3, 0.4}},
    {"an element at the very edge of x", ALL, LINEAR, OF(1, 2), SIZES(3, 4, 3, 5), .antialias = true,
     .scale = {1, 1.000000001}},
    {"an element at the very edge of x", ALL, CUBIC, OF(1, 2), SIZES(3, 4, 3, 5), LAST, .antialias = true,
     .scale = {1, 1.000000001}},
    {"antialiased down", ALL, LINEAR, OF(1, 3), SIZES(13, 17, 5, 6), .antialias = true},
    {"antialiased down", ALL, CUBIC, OF(1, 3), SIZES(13, 17, 5, 6), LAST, .antialias = true},
    {"antialiased up", ALL, CUBIC, OF(1, 1), SIZES(5, 7, 9, 19), .antialias = true},
    {"antialiased, a given", BIG, CUBIC, OF(1, 1), SIZES(13, 17, 5, 6), .antialias = true, .cubic_a = -0.75f},
    {"antialiased, a large ratio", BIG, LINEAR, OF(1, 1), SIZES(90, 300, 2, 5), .antialias = true},
    {"antialiased, many channels", BIG, CUBIC, OF(1, 40), SIZES(20, 30, 5, 4), LAST, .antialias = true},
};

static const resize_case forms[] = {
    {"gaps", ALL, LINEAR, OF(2, 2), SIZES(5, 7, 9, 19), .x = FORM_PADDED, .y = FORM_PADDED},
    {"columns apart", ALL, CUBIC, OF(1, 2), SIZES(5, 7, 9, 19), .x = FORM_SPREAD, .y = FORM_SPREAD},
    {"columns backwards", ALL, LINEAR, OF(1, 2), SIZES(5, 7, 9, 19), .x = FORM_MIRRORED, .y = FORM_TRANSPOSED},
    {"rows backwards", BIG, LINEAR, OF(1, 2), SIZES(5, 7, 9, 19), .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"gaps behind channels", ALL, LINEAR, OF(1, 3), SIZES(5, 7, 9, 19), LAST, .x = FORM_PADDED, .y = FORM_PLAIN},
    {"channels apart", BIG, LINEAR, OF(1, 3), SIZES(5, 7, 9, 19), LAST, .x = FORM_SPREAD, .y = FORM_PADDED},
    {"one channel for all", BIG, LINEAR, OF(1, 3), SIZES(5, 7, 9, 19), .x = FORM_SHARED_SECOND},
};

static const resize_case types[] = {
    {"float16", ALL, LINEAR, OF(1, 2), SIZES(5, 20, 9, 39), .x_type = F16, .y_type = F16},
    {"bfloat16", ALL, CUBIC, OF(1, 3), SIZES(5, 20, 9, 39), LAST, .x_type = BF16, .y_type = BF16},
    {"float16 to float32", BIG, NEAREST, OF(1, 2), SIZES(5, 20, 9, 39), .x_type = F16},
    {"float32 to bfloat16", BIG, LINEAR, OF(1, 2), SIZES(5, 20, 9, 39), .y_type = BF16},
};

static clattn_resize_desc good_desc(void)
{
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;

    desc.mode = LINEAR;
    desc.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 3, 5, 7});
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 3, 10, 14});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(resize, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_resize_desc good = good_desc(), zeroed = CLATTN_RESIZE_DESC_INIT;

    (void)state;
    operator_answers(&resize_operator, &good, CLATTN_SUCCESS);
    operator_answers(&resize_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&resize_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    good.scale[0] = NAN; /* ignored unless explicit_scale is set */
    operator_answers(&resize_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(INVALID_ARGUMENT, mode = 4);
    REFUSED(INVALID_ARGUMENT, align_corners = 2);
    REFUSED(INVALID_ARGUMENT, antialias = -1);
    REFUSED(INVALID_ARGUMENT, align_corners = (desc.mode = NEAREST, 1));
    REFUSED(UNSUPPORTED, align_corners = desc.antialias = 1);
    REFUSED(INVALID_ARGUMENT, explicit_scale = 1);
    REFUSED(INVALID_ARGUMENT, scale[0] = (desc.explicit_scale = 1, desc.scale[1] = 2, NAN));
    REFUSED(INVALID_LAYOUT, scale[0] = (desc.explicit_scale = 1, desc.scale[1] = 2, 1.5));
    REFUSED(INVALID_ARGUMENT, cubic_a = (desc.explicit_cubic_a = 1, 5));
    REFUSED(INVALID_LAYOUT, y.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, y.extent[1] = 2);
    REFUSED(INVALID_LAYOUT, x.extent[3] = 0);
    REFUSED(INVALID_LAYOUT, x.rank = 3);
    REFUSED(INVALID_LAYOUT, y.stride[2] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(OVERFLOW, y.extent[3] = (desc.y.stride[2] = desc.y.stride[1] = desc.y.stride[0] = (int64_t)1 << 40,
                                     desc.y.extent[0] = desc.x.extent[0] = 1, desc.y.extent[1] = desc.x.extent[1] = 1,
                                     desc.y.extent[2] = 1, ((size_t)1 << 28) + 1));
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(resize, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_resize_args good = CLATTN_RESIZE_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 3, 5}, FORM_PLAIN);
    array_bind(&x, &desc.x, &good.x);
    array_bind(job_output(&job, 4, (size_t[]){1, 1, 6, 4}), &desc.y, &good.y);
    job.plan = operator_plan(&resize_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 2));
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.x);
    operator_needs_both(&resize_operator, job.plan, &good);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 4, -3, 4.5);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    operator_runs_prewarmed(&resize_operator, &desc, &args);
    job_expect_two_elements(&job, -3, 4.5);
    job_release(&job);
}

int main(int argc, char **argv)
{
    resize_add(shapes, COUNT_OF(shapes));
    resize_add(options, COUNT_OF(options));
    resize_add(forms, COUNT_OF(forms));
    resize_add(types, COUNT_OF(types));
    suite_add(refused_descriptions, "resize: descriptions that are refused");
    suite_add(refused_arguments, "resize: arguments that are refused");
    suite_add(one_call, "resize: prewarm and run");
    return suite_run("resize", argc, argv);
}
