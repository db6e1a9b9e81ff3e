/* Cleaning pictures by clattn_denoiser: the means of the definition for every kind of picture, in tiles, with gaps between rows;
 * what must stay as it is; controls; what is refused. And what the other two handles of clattn/pictures.h refuse.
 *
 * Holds: include/clattn/pictures.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pictures/means.h"
#include "support/harness.h"

#define GUARD 0xa5

typedef struct denoiser_case {
    const char *name;
    int levels;
    size_t height, width;
    int32_t components;
    clattn_component type;
    size_t patch, radius; /* 0: the standard */
    float strength;       /* 0: the standard */
    size_t gap;           /* components between rows */
    bool tiles;           /* of the smallest kind */
} denoiser_case;

#define U8 CLATTN_COMPONENT_U8
#define U16 CLATTN_COMPONENT_U16
#define F32 CLATTN_COMPONENT_F32
#define OF(h, w, c, t) .height = (h), .width = (w), .components = (c), .type = (t)

static const denoiser_case cases[] = {
    {"colours", ALL, OF(5, 6, 3, U8), .patch = 3, .radius = 2},
    {"standard", BIG, OF(9, 13, 3, U8)},
    {"colours and alpha", BIG, OF(9, 13, 4, U8), .gap = 5},
    {"grey", ALL, OF(7, 5, 1, U8), .patch = 3, .radius = 2, .strength = 25},
    {"grey and alpha", BIG, OF(12, 7, 2, U8), .patch = 3, .radius = 2, .gap = 1},
    {"16 bits", BIG, OF(9, 13, 3, U16), .gap = 1},
    {"16 bits, grey and alpha", MORE, OF(9, 13, 2, U16)},
    {"floats", BIG, OF(9, 13, 3, F32), .gap = 2},
    {"floats and alpha", MORE, OF(9, 13, 4, F32), .patch = 1, .radius = 3, .strength = 40},
    {"tiles", BIG, OF(41, 30, 3, U8), .tiles = true},
    {"tiles, grey", BIG, OF(33, 50, 1, U8), .patch = 3, .radius = 2, .gap = 3, .tiles = true},
    {"one pixel", ALL, OF(1, 1, 3, U8)},
    {"one row", BIG, OF(1, 40, 3, U8), .strength = 255},
};

static clattn_io_error error;

/* The bytes of a component, and of a row with its gap. */
static size_t bytes_of(const denoiser_case *test)
{
    return test->type == U8 ? 1 : test->type == U16 ? 2 : 4;
}

static size_t row_of(const denoiser_case *test)
{
    return (test->width * (size_t)test->components + test->gap) * bytes_of(test);
}

/* A picture of such a case in memory that is full of GUARD. */
static clattn_picture new_picture(const denoiser_case *test)
{
    const size_t bytes = test->height * row_of(test);
    clattn_picture picture = {.pixels = malloc(bytes),
                              .height = test->height,
                              .width = test->width,
                              .row_bytes = test->gap ? row_of(test) : 0,
                              .components = test->components,
                              .type = test->type};
    assert_non_null(picture.pixels);
    memset(picture.pixels, GUARD, bytes);
    return picture;
}

/* Fills it with two flat areas and noise. */
static void fill(const denoiser_case *test, const clattn_picture *picture)
{
    random_stream stream = random_start(test->height * 100 + test->width);
    for (size_t y = 0; y < test->height; y++)
        for (size_t i = 0; i < test->width * (size_t)test->components; i++) {
            const float value = (y > i / 4 ? 0.3f : 0.6f) + random_float(&stream, -0.1f, 0.1f);
            const uint16_t wide = (uint16_t)(value * 65535);
            unsigned char *at = (unsigned char *)picture->pixels + y * row_of(test) + i * bytes_of(test);
            if (test->type == U8)
                *at = (unsigned char)(value * 255);
            else if (test->type == U16)
                memcpy(at, &wide, sizeof wide);
            else
                memcpy(at, &value, sizeof value);
        }
}

static clattn_denoiser *new_denoiser(const denoiser_case *test)
{
    clattn_denoiser_params params = CLATTN_DENOISER_PARAMS_INIT;
    clattn_denoiser *denoiser = NULL;
    params.patch = test->patch;
    params.radius = test->radius;
    params.memory = test->tiles ? 1200000 : 0;
    assert_status(NULL, clattn_denoiser_create(device_context(), &params, &denoiser, &error), CLATTN_SUCCESS);
    return denoiser;
}

/* Asserts that `to` is what the definition makes of `from`, alpha apart, and that nothing else was written. */
static void judge(const denoiser_case *test, const clattn_picture *from, const clattn_picture *to)
{
    const size_t patch = test->patch ? test->patch : 5, radius = test->radius ? test->radius : 7;
    const double strength = test->strength != 0 ? (double)test->strength : 10;
    const double half = test->type == U8 ? 0.502 / 255 : test->type == U16 ? 2.0 / 65535 : 2e-5; /* of rounding */
    const size_t colours = test->components < 3 ? 1 : 3;
    for (size_t y = 0; y < test->height; y++) {
        const unsigned char *end = (const unsigned char *)to->pixels + y * row_of(test);
        for (size_t x = 0; x < test->width; x++) {
            double wanted[3];
            means_of(from, patch, radius, strength, y, x, wanted);
            for (size_t c = 0; c < colours; c++)
                if (!(fabs(component_of(to, y, x, c) - wanted[c]) <= half))
                    fail_msg("pixel (%zu, %zu) has %g, expected %g", y, x, component_of(to, y, x, c), wanted[c]);
            if (colours < (size_t)test->components)
                assert_true(component_of(to, y, x, colours) == component_of(from, y, x, colours));
        }
        for (size_t i = test->width * (size_t)test->components * bytes_of(test); i < row_of(test); i++)
            assert_int_equal(end[i], GUARD);
    }
}

static void cleans(const void *given, const char *solver)
{
    const denoiser_case *test = given;
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_denoiser *denoiser = new_denoiser(test);
    (void)solver;
    args.from = new_picture(test);
    args.to = new_picture(test);
    args.strength = test->strength;
    fill(test, &args.from);
    for (int round = 0; round < 2; round++) { /* the second has its plans */
        memset(args.to.pixels, GUARD, test->height * row_of(test));
        if (clattn_denoiser_run(denoiser, NULL, &args, &error) != CLATTN_SUCCESS)
            fail_msg("%s", error.message);
        judge(test, &args.from, &args.to);
    }
    clattn_denoiser_release(&denoiser);
    assert_null(denoiser);
    free(args.from.pixels);
    free(args.to.pixels);
}

/* One denoiser serves one kind of picture after the other, and a queue of the caller's. */
static void kinds_in_turn(void **state)
{
    static const size_t turns[] = {0, 3, 0};
    clattn_denoiser *denoiser = NULL;
    cl_command_queue queue = new_queue(device_context(), false);
    (void)state;
    assert_status(NULL, clattn_denoiser_create(device_context(), NULL, &denoiser, &error), CLATTN_SUCCESS);
    for (size_t i = 0; i < COUNT_OF(turns); i++) {
        denoiser_case test = cases[turns[i]];
        clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
        test.patch = test.radius = 0;
        args.from = new_picture(&test);
        args.to = new_picture(&test);
        args.strength = test.strength;
        fill(&test, &args.from);
        assert_status(NULL, clattn_denoiser_run(denoiser, queue, &args, &error), CLATTN_SUCCESS);
        judge(&test, &args.from, &args.to);
        free(args.from.pixels);
        free(args.to.pixels);
    }
    clattn_denoiser_release(&denoiser);
    clReleaseCommandQueue(queue);
}

/* The control's next call is no part of the chain that a run makes of its own calls. */
static void check_next_call(clattn_control *control)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    cl_mem values = new_buffer(clattn_context_opencl_context(device_context()), CL_MEM_READ_WRITE, 64, NULL);
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){2, 8});
    args.x = args.y = clattn_binding_buffer(values, 0);
    args.control = control;
    assert_true(clattn_control_progress(control) == 1);
    assert_status(device_context(), clattn_softmax_run(device_context(), NULL, &desc, &args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    assert_true(clattn_control_progress(control) == 1);
    device_release_buffer(values);
}

/* A control that is cancelled ends the call, and one that is not tells of the whole picture. */
static void controls(void **state)
{
    const denoiser_case *test = &cases[is_tiny() ? 0 : 9];
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_denoiser *denoiser = new_denoiser(test);
    (void)state;
    params.cancellable = 1;
    params.max_launch_ms = 10;
    assert_status(NULL, clattn_control_create(&params, &args.control), CLATTN_SUCCESS);
    args.from = new_picture(test);
    args.to = new_picture(test);
    fill(test, &args.from);
    clattn_control_cancel(args.control);
    assert_status(NULL, clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_ERROR_CANCELLED);
    assert_non_null(strstr(error.message, "cancelled"));
    clattn_control_reset(args.control);
    for (int round = 0; round < 2; round++) {
        assert_status(NULL, clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_SUCCESS);
        assert_true(clattn_control_progress(args.control) == 1);
    }
    judge(test, &args.from, &args.to);
    check_next_call(args.control);
    clattn_control_release(&args.control);
    clattn_denoiser_release(&denoiser);
    free(args.from.pixels);
    free(args.to.pixels);
}

/* Asserts that a call is refused with that status and a line that has `part`. */
static void refused(clattn_status got, clattn_status wanted, const char *part)
{
    if (got != wanted || strstr(error.message, part) == NULL || strchr(error.message, '\n') != NULL)
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", (int)got, error.message, (int)wanted, part);
    error.message[0] = '\0';
}

static const clattn_picture good = {.pixels = error.message, .height = 2, .width = 2, .components = 3};

static void run_refused(clattn_denoiser *denoiser, clattn_picture from, clattn_picture to, const char *part)
{
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    args.from = from;
    args.to = to;
    refused(clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, part);
}

static void refuses_pictures(void **state)
{
    clattn_denoiser *denoiser = NULL;
    clattn_picture bad = good;
    (void)state;
    assert_status(NULL, clattn_denoiser_create(device_context(), NULL, &denoiser, NULL), CLATTN_SUCCESS);
    bad.pixels = NULL;
    run_refused(denoiser, bad, good, "args.from.pixels is NULL");
    run_refused(denoiser, good, bad, "args.to.pixels is NULL");
    bad = good;
    bad.components = 5;
    run_refused(denoiser, bad, bad, "args.from.components is 5, expected 1 to 4");
    bad.components = 4;
    run_refused(denoiser, good, bad, "args.to has 4 components of U8, expected 3 of U8");
    bad = good;
    bad.type = (clattn_component)7;
    run_refused(denoiser, bad, bad, "args.from.type is 7");
    bad.type = F32;
    run_refused(denoiser, good, bad, "args.to has 3 components of F32, expected 3 of U8");
    bad.row_bytes = 26;
    run_refused(denoiser, bad, bad, "args.from.row_bytes is 26, expected 0 or a multiple of 4 of at least 24");
    bad.row_bytes = 20;
    run_refused(denoiser, bad, bad, "args.from.row_bytes is 20");
    bad = good;
    bad.height = 0;
    run_refused(denoiser, bad, bad, "args.from has 0 x 2 pixels");
    bad.height = 3;
    run_refused(denoiser, good, bad, "args.to has 3 x 2 pixels, expected 2 x 2");
    bad.height = SIZE_MAX;
    run_refused(denoiser, bad, bad, "pixels, expected 1 to 2^31");
    bad.height = 2;
    bad.row_bytes = SIZE_MAX - 3;
    run_refused(denoiser, bad, bad, "args.from has rows 18446744073709551612 bytes apart");
    bad = good;
    run_refused(denoiser, good, bad, "args.to has memory in common with args.from");
    bad.pixels = error.message + 6; /* the last row begins within the first picture */
    run_refused(denoiser, bad, good, "args.to has memory in common with args.from");
    clattn_denoiser_release(&denoiser);
}

static void refuses(void **state)
{
    clattn_denoiser_params params = CLATTN_DENOISER_PARAMS_INIT;
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_denoiser *denoiser = NULL;
    clattn_context *context = device_context();
    (void)state;
    denoiser = (clattn_denoiser *)&error;
    refused(clattn_denoiser_create(NULL, NULL, &denoiser, &error), CLATTN_ERROR_INVALID_ARGUMENT, "context");
    assert_null(denoiser);
    refused(clattn_denoiser_create(context, NULL, NULL, &error), CLATTN_ERROR_INVALID_ARGUMENT, "denoiser is NULL");
    params.patch = 4;
    refused(clattn_denoiser_create(context, &params, &denoiser, &error), CLATTN_ERROR_INVALID_ARGUMENT,
            "params.patch is 4, expected an odd number up to 15");
    params.patch = 17;
    refused(clattn_denoiser_create(context, &params, &denoiser, &error), CLATTN_ERROR_INVALID_ARGUMENT, "17");
    params.patch = 15;
    params.radius = 65;
    refused(clattn_denoiser_create(context, &params, &denoiser, &error), CLATTN_ERROR_INVALID_ARGUMENT,
            "params.radius is 65, expected 1 to 64");
    params.size = 3;
    refused(clattn_denoiser_create(context, &params, &denoiser, &error), CLATTN_ERROR_INVALID_STRUCT, "its size is 3");
    assert_null(denoiser);
    clattn_denoiser_params_init(&params);
    params.memory = 1000;
    assert_status(NULL, clattn_denoiser_create(context, &params, &denoiser, &error), CLATTN_SUCCESS);
    unsigned char pixels[12], made[12];
    args.from = clattn_picture_8bit(pixels, 2, 2, 3);
    args.to = clattn_picture_8bit(made, 2, 2, 3);
    memset(pixels, 1, sizeof pixels);
    refused(clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_ERROR_OUT_OF_MEMORY,
            "params.memory is 1000, the smallest tile needs ");
    refused(clattn_denoiser_run(NULL, NULL, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "denoiser or args is NULL");
    refused(clattn_denoiser_run(denoiser, NULL, NULL, &error), CLATTN_ERROR_INVALID_ARGUMENT,
            "denoiser or args is NULL");
    args.strength = NAN;
    refused(clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "args.strength is nan");
    args.strength = 256;
    refused(clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "args.strength is 256");
    args.size = 0;
    refused(clattn_denoiser_run(denoiser, NULL, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "args: its size is 0");
    clattn_denoiser_args_init(&args);
    clattn_denoiser_release(&denoiser);
    clattn_denoiser_release(&denoiser);
    clattn_denoiser_release(NULL);
}

static void refuses_queues(void **state)
{
    unsigned char pixels[12], made[12];
    clattn_context *other = new_context();
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_denoiser *denoiser = NULL;
    cl_command_queue foreign = new_queue(other, false), unordered = new_queue(device_context(), true);
    (void)state;
    memset(pixels, 1, sizeof pixels);
    args.from = clattn_picture_8bit(pixels, 2, 2, 3);
    args.to = clattn_picture_8bit(made, 2, 2, 3);
    assert_status(NULL, clattn_denoiser_create(device_context(), NULL, &denoiser, &error), CLATTN_SUCCESS);
    refused(clattn_denoiser_run(denoiser, foreign, &args, &error), CLATTN_ERROR_WRONG_CONTEXT, "queue");
    if (unordered) {
        refused(clattn_denoiser_run(denoiser, unordered, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "in order");
        clReleaseCommandQueue(unordered);
    }
    clReleaseCommandQueue(foreign);
    clattn_denoiser_release(&denoiser);
    release_context(&other);
}

/* What the other handles refuse before they read a model. */
static void refuses_models(void **state)
{
    clattn_upscaler_params up = CLATTN_UPSCALER_PARAMS_INIT;
    clattn_upscaler_args up_args = CLATTN_UPSCALER_ARGS_INIT;
    clattn_upscaler *upscaler = NULL;
    clattn_picture_encoder_params params = CLATTN_PICTURE_ENCODER_PARAMS_INIT;
    clattn_picture_encoder_args args = CLATTN_PICTURE_ENCODER_ARGS_INIT;
    clattn_picture_encoder *encoder = NULL;
    clattn_context *context = device_context();
    (void)state;
    refused(clattn_upscaler_create(context, NULL, &upscaler, &error), CLATTN_ERROR_INVALID_ARGUMENT, "is NULL");
    refused(clattn_upscaler_create(context, &up, &upscaler, &error), CLATTN_ERROR_INVALID_ARGUMENT, "weights is NULL");
    up.weights = "no such\nfile\x1b";
    refused(clattn_upscaler_create(context, &up, &upscaler, &error), CLATTN_ERROR_IO, "no such?file?");
    up.weights = "no such file";
    up.dtype = CLATTN_DTYPE_I8;
    refused(clattn_upscaler_create(context, &up, &upscaler, &error), CLATTN_ERROR_INVALID_ARGUMENT,
            "params.dtype is 9, expected F32, F16 or BF16");
    up.dtype = CLATTN_DTYPE_F16;
    up.overlap = SIZE_MAX;
    refused(clattn_upscaler_create(context, &up, &upscaler, &error), CLATTN_ERROR_INVALID_ARGUMENT, "params.overlap");
    up.overlap = 0;
    refused(clattn_upscaler_create(context, &up, &upscaler, &error), CLATTN_ERROR_IO, "no such file");
    up.size = 1;
    refused(clattn_upscaler_create(context, &up, &upscaler, &error), CLATTN_ERROR_INVALID_STRUCT, "its size is 1");
    refused(clattn_upscaler_run(NULL, NULL, &up_args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "upscaler or args");
    assert_null(upscaler);
    assert_int_equal(clattn_upscaler_factor(NULL), 0);
    refused(clattn_picture_encoder_create(context, NULL, &encoder, &error), CLATTN_ERROR_INVALID_ARGUMENT, "is NULL");
    refused(clattn_picture_encoder_create(context, &params, &encoder, &error), CLATTN_ERROR_INVALID_ARGUMENT,
            "weights is NULL");
    params.weights = "no such file";
    refused(clattn_picture_encoder_create(context, &params, &encoder, &error), CLATTN_ERROR_IO, "no such file");
    params.model = CLATTN_VISION_SAM_BASE;
    refused(clattn_picture_encoder_create(context, &params, &encoder, &error), CLATTN_ERROR_INVALID_ARGUMENT,
            "params.model is 18, expected ViT");
    params.model = (clattn_vision)99;
    refused(clattn_picture_encoder_create(context, &params, &encoder, &error), CLATTN_ERROR_INVALID_ARGUMENT, "is 99");
    refused(clattn_picture_encoder_run(NULL, NULL, &args, &error), CLATTN_ERROR_INVALID_ARGUMENT, "encoder or args");
    assert_null(encoder);
    assert_int_equal(clattn_picture_encoder_size(NULL), 0);
    clattn_upscaler_release(&upscaler);
    clattn_picture_encoder_release(&encoder);
    clattn_upscaler_release(NULL);
    clattn_picture_encoder_release(NULL);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].levels & (int)level())
            suite_add_case(cleans, &cases[i], NULL, "%s", cases[i].name);
    if (!is_tiny())
        suite_add(kinds_in_turn, "kinds in turn");
    suite_add(controls, "controls");
    suite_add(refuses_pictures, "refuses pictures");
    suite_add(refuses, "refuses");
    suite_add(refuses_queues, "refuses queues");
    suite_add(refuses_models, "refuses models");
    return suite_run("denoiser", argc, argv);
}
