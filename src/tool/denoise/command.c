/* clattn denoise: non-local means of a PNG file. */
#include "tool/tool.h"

#ifdef CLATTN_PNG

#include <stdio.h>

#include "tool/denoise/denoise.h"
#include "tool/cli/options.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/report.h"

#define DEFAULT_STRENGTH 10.0f
#define DEFAULT_PATCH 5
#define DEFAULT_RADIUS 7
#define DEFAULT_MEMORY 256 /* MiB */
#define MOST_PATCH 15
#define MOST_RADIUS 64

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
     .count = MOST_PATCH},
    {"--radius", OPTION_COUNT, FIELD(radius), "R", .help = "look R pixels around, 1 to 64; default 7",
     .count = MOST_RADIUS},
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

static int check_rule(const denoise_rule *rule)
{
    if (!(rule->strength >= 0.001f && rule->strength <= 255.0f))
        return complain(TOOL_BAD_INPUT, "denoise: --strength %g is not valid, expected a number from 0.001 to 255",
                        (double)rule->strength);
    if (rule->patch % 2 == 0)
        return complain(TOOL_BAD_INPUT, "denoise: --patch %zu is not valid, expected an odd number up to %d",
                        rule->patch, MOST_PATCH);
    return TOOL_DONE;
}

static int write_report(const denoise_options *options, const tool_device *device, const picture *p,
                        const denoise_rule *rule, const denoise_result *result, double seconds)
{
    tool_report report = report_begin();
    report_device(&report, device, result->solver);
    report_shape(&report, "shape", 3, (const size_t[]){p->height, p->width, (size_t)p->channels});
    report_number(&report, "strength", (double)rule->strength);
    report_count(&report, "patch", rule->patch);
    report_count(&report, "radius", rule->radius);
    report_shape(&report, "tile", 2, (const size_t[]){result->tile_height, result->tile_width});
    report_count(&report, "tiles", result->tiles);
    report_count(&report, "device_bytes", result->memory);
    report_number(&report, "seconds", seconds);
    return report_finish(&report, options->json);
}

int cmd_denoise(int argc, char **argv)
{
    denoise_options options = {.patch = DEFAULT_PATCH, .radius = DEFAULT_RADIUS, .memory = DEFAULT_MEMORY};
    denoise_result result = {0};
    tool_device device = {0};
    picture p = {0};

    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    denoise_rule rule = {.strength = options.strength.given ? options.strength.value : DEFAULT_STRENGTH,
                         .patch = options.patch,
                         .radius = options.radius,
                         .memory = options.memory << 20,
                         .solver = options.solver};
    TOOL_TRY(check_rule(&rule));
    TOOL_TRY(host_check_output(options.files[1], options.files, 1));
    TOOL_TRY(picture_load(options.files[0], &p));
    TOOL_TRY(device_open(options.device, &device));
    double seconds = os_seconds();
    TOOL_TRY(denoise_picture(&device, &p, &rule, &result));
    seconds = os_seconds() - seconds;
    TOOL_TRY(picture_store(options.files[1], &p));
    TOOL_TRY(write_report(&options, &device, &p, &rule, &result, seconds));
fail:
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
