/* clattn denoise: non-local means of a PNG file. */
#include "tool/tool.h"

#ifdef CLATTN_PNG

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "denoise/denoise.h"
#include "tool/cli/options.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/png_file.h"
#include "tool/cli/progress.h"
#include "tool/cli/report.h"
#include "tool/run/device.h"

typedef struct denoise_options {
    const char *files[2];
    const char *solver, *device;
    option_float strength;
    size_t patch, radius, memory;
    bool json;
} denoise_options;

#define FIELD(name) offsetof(denoise_options, name)

static const option_row rows[] = {
    {"--strength", OPTION_FLOAT, FIELD(strength), "S",
     .help = "how much of 255 levels patches may differ, about the noise's standard deviation; default 10"},
    {"--patch", OPTION_COUNT, FIELD(patch), "P", .help = "compare P x P pixels, odd, 1 to 15; default 5",
     .count = DENOISE_MOST_PATCH},
    {"--radius", OPTION_COUNT, FIELD(radius), "R", .help = "look R pixels around, 1 to 64; default 7",
     .count = DENOISE_MOST_RADIUS},
    {"--memory", OPTION_COUNT, FIELD(memory), "MIB", .help = "device memory at the most; default 256"},
    OPTION_ROW_SOLVER(denoise_options),
    OPTION_ROW_DEVICE(denoise_options),
    OPTION_ROW_JSON(denoise_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "denoise",
    .summary = "Non-local means: every pixel becomes the mean of those around it whose patches are alike.",
    .operands = "IN.png OUT.png",
    .operand_offset = FIELD(files),
    .operand_least = 2,
    .operand_count = 2,
    .rows = rows,
};

static int check_options(const denoise_options *options, float strength)
{
    if (!(strength >= DENOISE_LEAST_STRENGTH && strength <= DENOISE_MOST_STRENGTH))
        return complain(TOOL_BAD_INPUT, "denoise: --strength %g is not valid, expected a number from 0.001 to 255",
                        (double)strength);
    if (options->patch % 2 == 0)
        return complain(TOOL_BAD_INPUT, "denoise: --patch %zu is not valid, expected an odd number up to %d",
                        options->patch, DENOISE_MOST_PATCH);
    return TOOL_DONE;
}

static int write_report(const denoise_options *options, const tool_device *device, const picture *p, const denoiser *d,
                        float strength, double seconds)
{
    tool_report report = report_begin();
    report_device(&report, device, clattn_plan_solver(d->attend));
    report_shape(&report, "shape", 3, (const size_t[]){p->height, p->width, (size_t)p->channels});
    report_number(&report, "strength", (double)strength);
    report_count(&report, "patch", options->patch);
    report_count(&report, "radius", options->radius);
    report_shape(&report, "tile", 2, d->tile);
    report_count(&report, "tiles", denoiser_tiles(d, p->height, p->width));
    report_count(&report, "device_bytes", d->memory);
    report_number(&report, "seconds", seconds);
    return report_finish(&report, options->json);
}

static void show_progress(void *user, double done)
{
    (void)user;
    progress_show(done);
}

/* Replaces the colours of `p` by their means; alpha stays.  Returns an exit status. */
static int denoise_picture(const denoise_options *options, const tool_device *device, float strength, denoiser *d,
                           picture *p)
{
    const denoise_params params = {.height = p->height,
                                   .width = p->width,
                                   .colours = p->channels < 3 ? 1 : 3,
                                   .type = p->bits == 16 ? CL_UNORM_INT16 : CL_UNORM_INT8,
                                   .patch = options->patch,
                                   .radius = options->radius,
                                   .memory = options->memory << 20,
                                   .solver = options->solver};
    const size_t least = denoise_least_memory(&params), bytes = p->height * picture_row(p);
    if (params.memory < least)
        return complain(TOOL_BAD_INPUT,
                        "--memory: %zu MiB are too little for this patch and radius, expected at least %.0f",
                        options->memory, ceil((double)least / 1048576));
    unsigned char *clean = malloc(bytes);
    if (clean == NULL)
        return complain(TOOL_FAILED, "no memory for the result's %zu bytes", bytes);
    memcpy(clean, p->pixels, bytes); /* alpha */
    const size_t step = (size_t)p->channels * (size_t)(p->bits / 8);
    const denoise_work work = {.in = {p->pixels, step, picture_row(p)},
                               .out = {clean, step, picture_row(p)},
                               .height = p->height,
                               .width = p->width,
                               .part_height = p->height,
                               .part_width = p->width,
                               .strength = strength,
                               .progress = show_progress};
    progress_begin("denoise");
    clattn_status status;
    TRY(denoiser_open(d, device->context, device->queue, &params));
    TRY(denoiser_run(d, &work));
fail:
    progress_end();
    free(p->pixels);
    p->pixels = clean;
    return d->message[0] != '\0' ? complain(exit_status_of(status), "%s", d->message)
                                 : device_check(device, status, NULL);
}

int cmd_denoise(int argc, char **argv)
{
    denoise_options options = {
        .patch = DENOISE_STANDARD_PATCH, .radius = DENOISE_STANDARD_RADIUS, .memory = DENOISE_STANDARD_MEMORY >> 20};
    tool_device device = {0};
    denoiser d = {0};
    picture p = {0};

    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    const float strength = options.strength.given ? options.strength.value : DENOISE_STANDARD_STRENGTH;
    TOOL_TRY(check_options(&options, strength));
    TOOL_TRY(host_check_output(options.files[1], options.files, 1));
    TOOL_TRY(picture_load(options.files[0], &p));
    TOOL_TRY(device_open(options.device, &device));
    double seconds = os_seconds();
    TOOL_TRY(denoise_picture(&options, &device, strength, &d, &p));
    seconds = os_seconds() - seconds;
    TOOL_TRY(picture_store(options.files[1], &p));
    TOOL_TRY(write_report(&options, &device, &p, &d, strength, seconds));
fail:
    denoiser_close(&d);
    device_close(&device);
    picture_release(&p);
    return status;
}

#else

int cmd_denoise(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return complain(TOOL_BAD_INPUT, "denoise: this clattn was built without libpng (-Dpng=enabled)");
}

#endif
