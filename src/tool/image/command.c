/* clattn image: a PNG file upscaled or cleaned by SwinIR. */
#include "tool/tool.h"

#ifdef CLATTN_PNG

#include <stdlib.h>

#include "base/size.h"
#include "restore/restore.h"
#include "pictures/levels.h"
#include "tool/cli/options.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/png_file.h"
#include "tool/cli/progress.h"
#include "tool/cli/report.h"
#include "tool/image/find.h"
#include "tool/run/device.h"

#define MOST_SIDE 1048575 /* of a PNG file that picture_load reads */

typedef struct image_options {
    const char *operands[2]; /* the model, the picture */
    const char *output, *solver, *device;
    size_t tile, overlap, memory;
    option_float range;
    int32_t dtype;
    bool json;
} image_options;

#define FIELD(name) offsetof(image_options, name)

static const option_row rows[] = {
    {"-o", OPTION_TEXT, FIELD(output), "OUT.png", .help = "the result", .required = true},
    {"--tile", OPTION_COUNT, FIELD(tile), "N",
     .help = "compute parts of at most N x N pixels; default as --memory allows", .count = 65536},
    {"--memory", OPTION_COUNT, FIELD(memory), "MIB",
     .help = "device memory for a part at the most; default a quarter of all, up to 1024"},
    {"--overlap", OPTION_COUNT, FIELD(overlap), "N", .help = "pixels that parts have in common; default 32",
     .count = 65536},
    {"--range", OPTION_FLOAT, FIELD(range), "R",
     .help = "what the model takes for white; default 1, of JPEG's models (windows of 7 x 7) 255"},
    OPTION_ROW_DTYPE(image_options, "of the model's weights and of what its layers store"),
    OPTION_ROW_SOLVER(image_options),
    OPTION_ROW_DEVICE(image_options),
    OPTION_ROW_JSON(image_options),
    OPTION_ROW_END,
};

static const option_table table = {.command = "image",
                                   .summary = "Upscales or cleans a picture, a PNG file, by a SwinIR model.",
                                   .operands = "MODEL IN.png",
                                   .operand_offset = FIELD(operands),
                                   .operand_least = 2,
                                   .operand_count = 2,
                                   .rows = rows};

static int check(const image_options *options)
{
    if (options->tile != 0 && options->memory != 0)
        return complain(TOOL_BAD_INPUT, "image: --tile and --memory exclude each other");
    if (options->range.given && !(options->range.value >= 1e-3f && options->range.value <= 65535.0f))
        return complain(TOOL_BAD_INPUT, "image: --range %g is not valid, expected a number from 0.001 to 65535",
                        (double)options->range.value);
    return TOOL_DONE;
}

/* Refuses a picture whose result would be too large for a file. */
static int check_result(const char *path, const picture *in, const swinir *model)
{
    const size_t height = in->height * model->factor, width = in->width * model->factor;
    if (height <= MOST_SIDE && width <= MOST_SIDE && height <= PICTURE_PIXELS / width)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT,
                    "%s: its %zu x %zu pixels would become %zu x %zu, expected at most 2^27 pixels and %d on an edge",
                    path, in->height, in->width, height, width, MOST_SIDE);
}

static restore_params params_of(const image_options *options, const tool_device *device, const picture *in)
{
    return (restore_params){.height = in->height,
                            .width = in->width,
                            .colours = in->channels < 3 ? 1 : 3,
                            .alpha = in->channels % 2 == 0,
                            .tile = options->tile,
                            .memory = restore_memory(&device->info, options->memory << 20),
                            .overlap = options->overlap,
                            .solver = options->solver};
}

static int write_report(const image_options *options, const tool_device *device, const swinir *model, const restorer *r,
                        const picture *out, double seconds)
{
    const clattn_stack_desc *last = swinir_last(model);
    tool_report report = report_begin();
    report_device(&report, device, clattn_plan_solver(r->plan));
    report_text(&report, "model", model->path);
    report_text(&report, "dtype", clattn_dtype_name(option_dtypes[options->dtype]));
    report_count(&report, "stages", model->stages);
    report_count(&report, "d_model", last->d_model);
    report_count(&report, "window", model->window);
    report_count(&report, "factor", model->factor);
    report_number(&report, "range", (double)model->range);
    report_shape(&report, "shape", 3, (const size_t[]){out->height, out->width, (size_t)out->channels});
    report_shape(&report, "tile", 2, r->tiles.tile);
    report_count(&report, "tiles", r->tiles.count[0] * r->tiles.count[1]);
    report_count(&report, "device_bytes", r->memory);
    report_number(&report, "seconds", seconds);
    report_unused_tensors(&report, model->file, model->transformer, swinir_is_buffer);
    return report_finish(&report, options->json);
}

/* Reports a failure of the model's files and weights. */
static int check_model(const tool_device *device, clattn_status status, const swinir *model)
{
    return status != CLATTN_SUCCESS && model->error.message[0] != '\0'
               ? complain(exit_status_of(status), "%s", model->error.message)
               : device_check(device, status, model->path);
}

/* Reports a failure of the restorer, and what it is due to. */
static int check_restorer(const tool_device *device, clattn_status status, const restorer *r)
{
    const char *const causes[] = {[RESTORE_FAULT_MODEL] = r->model->path,
                                  [RESTORE_FAULT_MEMORY] = "--memory",
                                  [RESTORE_FAULT_OVERLAP] = "--overlap"};
    const char *cause = causes[r->fault];
    return status != CLATTN_SUCCESS && r->message[0] != '\0'
               ? complain(exit_status_of(status), "%s%s%s", cause != NULL ? cause : "", cause != NULL ? ": " : "",
                          r->message)
               : device_check(device, status, NULL);
}

static void show_progress(void *user, double done)
{
    (void)user;
    progress_show(done);
}

/* Makes *out, which the caller releases, of `in`: a picture of the same channels and bits. */
static int compute(const image_options *options, const swinir *model, const tool_device *device, const picture *in,
                   restorer *r, picture *out)
{
    const restore_params params = params_of(options, device, in);
    clattn_picture from, to;
    level_pair both = {&from, &to};
    const restore_work work = {.read = levels_read, .write = levels_write, .progress = show_progress, .user = &both};
    int status;
    progress_begin("image");
    TOOL_TRY(check_restorer(device, restorer_open(r, model, device->context, &params), r));
    *out = (picture){in->width * model->factor, in->height * model->factor, in->channels, in->bits, NULL, NULL};
    out->pixels = malloc(out->height * picture_row(out));
    from = picture_view(in);
    to = picture_view(out);
    if (out->pixels != NULL)
        status = check_restorer(device, restorer_run(r, &work), r);
    else
        status = complain(TOOL_FAILED, "no memory for the result's %zu x %zu pixels", out->width, out->height);
fail:
    progress_end();
    return status;
}

int cmd_image(int argc, char **argv)
{
    image_options options = {.overlap = RESTORE_STANDARD_OVERLAP};
    model_path weights;
    swinir model = {0};
    tool_device device = {0};
    restorer r = {0};
    picture in = {0}, out = {0};
    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    TOOL_TRY(check(&options));
    TOOL_TRY(find_weights(options.operands[0], &weights));
    TOOL_TRY(check_model(NULL, swinir_open(weights.text, &model), &model));
    if (options.range.given)
        model.range = options.range.value;
    const char *const inputs[] = {options.operands[1], model.path};
    TOOL_TRY(host_check_output(options.output, inputs, COUNT_OF(inputs)));
    TOOL_TRY(picture_load(options.operands[1], &in));
    TOOL_TRY(check_result(options.operands[1], &in, &model));
    TOOL_TRY(device_open(options.device, &device));
    TOOL_TRY(check_model(&device, swinir_load(&model, device.context, option_dtypes[options.dtype]), &model));
    const double begun = os_seconds();
    TOOL_TRY(compute(&options, &model, &device, &in, &r, &out));
    const double seconds = os_seconds() - begun;
    out.chunks = in.chunks;
    in.chunks = NULL;
    TOOL_TRY(picture_store(options.output, &out));
    TOOL_TRY(write_report(&options, &device, &model, &r, &out, seconds));
fail:
    restorer_close(&r);
    swinir_close(&model);
    device_close(&device);
    picture_release(&in);
    picture_release(&out);
    return status;
}

#else

int cmd_image(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return complain(TOOL_BAD_INPUT, "image: this clattn was built without libpng (-Dpng=enabled)");
}

#endif
