/* clattn embed-image: pictures to vectors by ViT, DINOv2 and CLIP, and a search by them. */
#include "tool/tool.h"

#ifdef CLATTN_PNG

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/options.h"
#include "tool/cli/report.h"
#include "tool/embed_image/attention.h"
#include "tool/embed_image/picture_list.h"
#include "tool/embed_image/results.h"
#include "tool/heatmap/options.h"
#include "tool/run/timing.h"

typedef struct image_options {
    const char *search, *output, *solver, *device;
    size_t top, repeat;
    int32_t dtype;
    option_list maps;
    bool json;
    const char *operands[]; /* the model's folder, the pictures; ends with NULL */
} image_options;

#define FIELD(name) offsetof(image_options, name)

static const option_row rows[] = {
    {"--search", OPTION_TEXT, FIELD(search), "FOLDER",
     .help = "instead of the vector, FOLDER's PNG files with their cosine to the picture, the nearest first"},
    {"--top", OPTION_COUNT, FIELD(top), "N", .help = "with --search, the first N files; default all"},
    {"-o", OPTION_TEXT, FIELD(output), "OUT.npy", .help = "write the vectors, a row each, instead of printing them"},
    HEATMAP_OPTION_ROW(image_options, maps, "over each PICTURE which of its patches the last layer attends to"),
    OPTION_ROW_DTYPE(image_options, "of the model's weights and of what its layers store"),
    OPTION_ROW_SOLVER(image_options),
    OPTION_ROW_DEVICES(image_options, "pictures"),
    OPTION_ROW_REPEAT(image_options),
    OPTION_ROW_JSON(image_options),
    OPTION_ROW_END,
};

static const option_table table = {.command = "embed-image",
                                   .summary = "A unit vector a line for each PICTURE, a PNG file.",
                                   .operands = "MODEL_DIR PICTURE ...",
                                   .operand_offset = FIELD(operands),
                                   .operand_least = 2,
                                   .rows = rows};

typedef struct embedding {
    const image_options *options;
    vision_model model;
    tool_pool pool;
    picture_list list;
    host_array vectors; /* of the list's pictures, (count, size) */
    vision_left_out left_out;
    timing times;
    vision_map map;
} embedding;

static int out_of_memory(void)
{
    return complain(TOOL_FAILED, "embed-image: out of memory for the pictures");
}

static const char *const *paths_of(const embedding *e)
{
    return (const char *const *)e->list.path;
}

static int check(const image_options *options)
{
    if (options->search != NULL && options->operands[2] != NULL)
        return complain(TOOL_BAD_INPUT, "embed-image: --search takes one PICTURE, found more");
    if (options->search == NULL && options->top != 0)
        return complain(TOOL_BAD_INPUT, "embed-image: --top is for --search");
    if (options->search != NULL && options->output != NULL)
        return complain(TOOL_BAD_INPUT, "embed-image: --search and -o exclude each other");
    if (options->search != NULL && options->maps.count > 0)
        return complain(TOOL_BAD_INPUT, "embed-image: --attention draws what is given as PICTURE, found --search");
    return TOOL_DONE;
}

static int encode(embedding *e, vision_left_out *left_out)
{
    return vision_encode(&e->model, paths_of(e), e->list.count, e->list.given, e->vectors.memory, left_out);
}

static int encode_again(void *user)
{
    vision_left_out ignored = {0};
    return encode(user, &ignored);
}

/* All vectors; timed again if that is wanted. */
static int compute(embedding *e)
{
    timing_rule rule = {.repeat = e->options->repeat, .warm_up = 1};
    int status;
    TOOL_TRY(host_allocate(CLATTN_DTYPE_F32, 2, (const size_t[]){e->list.count, vision_size(&e->model)},
                           e->options->output != NULL ? e->options->output : "vectors", &e->vectors));
    TOOL_TRY(encode(e, &e->left_out));
    if (e->options->repeat > 0)
        status = timing_measure(&rule, "embed-image", encode_again, e, &e->times);
fail:
    return status;
}

static void warn_of_left_out(const embedding *e)
{
    char line[1024];
    if (e->left_out.count == 0)
        return;
    snprintf(line, sizeof line, "%zu of %zu pictures could not be read and are left out: %.700s", e->left_out.count,
             e->list.count - e->list.given, e->left_out.first);
    device_log(NULL, CLATTN_LOG_LEVEL_WARNING, line);
}

static int write_report(embedding *e, json_t *result)
{
    tool_report report = report_begin();
    report_device(&report, &e->pool.member[0].device, vision_solver(&e->model));
    pool_report(&e->pool, &report);
    report_text(&report, "model", e->model.folder);
    report_text(&report, "dtype", clattn_dtype_name(e->model.dtype));
    report_count(&report, "size", vision_size(&e->model));
    report_shape(&report, "pixels", 2, e->model.rule.size);
    report_unused_tensors(&report, e->model.file, e->model.on[0].transformer, NULL);
    report_count(&report, "pictures", e->list.count);
    if (e->options->search != NULL)
        report_count(&report, "left_out", e->left_out.count);
    if (e->times.runs > 0)
        report_timing(&report, &e->times);
    if (e->options->output == NULL)
        report_json(&report, e->options->search != NULL ? "matches" : "embeddings", json_incref(result));
    return report_finish(&report, true);
}

static int deliver(embedding *e)
{
    const image_results results = {.paths = paths_of(e),
                                   .given = e->list.given,
                                   .count = e->list.count,
                                   .size = vision_size(&e->model),
                                   .vectors = e->vectors.memory,
                                   .left_out = &e->left_out};
    json_t *array = e->options->json ? json_array() : NULL;
    int status;
    if (e->options->json && array == NULL)
        return out_of_memory();
    TOOL_TRY(e->options->output != NULL   ? host_store(e->options->output, &e->vectors)
             : e->options->search != NULL ? results_matches(&results, e->options->search, e->options->top, array)
                                          : results_vectors(&results, array));
    if (e->options->json)
        TOOL_TRY(write_report(e, array));
fail:
    json_decref(array);
    return status;
}

/* ---- --attention ---- */

static heatmap map_of(const embedding *e, char *title, size_t bytes)
{
    snprintf(title, bytes, "Attention of the last layer of %s", e->model.folder);
    return (heatmap){title, e->map.count, e->map.parts};
}

/* Checks outputs and maps before a device is looked for. */
static int begin_outputs(embedding *e)
{
    const image_options *options = e->options;
    const char *weights = e->model.weights.text;
    char title[512];
    int status;
    TOOL_TRY(host_check_output(options->output, &weights, 1));
    TOOL_TRY(host_check_output(options->output, paths_of(e), e->list.count));
    TOOL_TRY(heatmap_files_check(&options->maps, paths_of(e), e->list.count));
    TOOL_TRY(heatmap_files_check_distinct(&options->maps, &options->output, 1));
    if (options->maps.count > 0) {
        TOOL_TRY(vision_map_begin(&e->model, paths_of(e), e->list.count, &e->map));
        const heatmap map = map_of(e, title, sizeof title);
        TOOL_TRY(heatmap_files_accept(&options->maps, &map));
    }
fail:
    return status;
}

static int write_maps(embedding *e)
{
    char title[512];
    if (e->map.count == 0)
        return TOOL_DONE;
    int status = vision_map_compute(&e->model, &e->map);
    const heatmap map = map_of(e, title, sizeof title);
    return status == TOOL_DONE ? heatmap_files_store(&e->options->maps, &map) : status;
}

static int run(const void *fields)
{
    const image_options *options = fields;
    embedding e = {.options = options};
    int status;
    TOOL_TRY(check(options));
    TOOL_TRY(vision_open(options->operands[0], &e.model));
    TOOL_TRY(picture_list_make(options->operands + 1, options->search, &e.list));
    TOOL_TRY(begin_outputs(&e));
    TOOL_TRY(pool_open("embed-image", options->device, &e.pool));
    e.model.solver = options->solver;
    e.model.dtype = option_dtypes[options->dtype];
    TOOL_TRY(vision_load(&e.model, &e.pool));
    TOOL_TRY(compute(&e));
    TOOL_TRY(write_maps(&e));
    TOOL_TRY(deliver(&e));
    warn_of_left_out(&e);
fail:
    picture_list_release(&e.list);
    host_release(&e.vectors);
    vision_map_release(&e.map);
    vision_close(&e.model);
    pool_close(&e.pool);
    return status;
}

int cmd_embed_image(int argc, char **argv)
{
    return options_run(table, sizeof(image_options), argc, argv, run);
}

#else

int cmd_embed_image(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return complain(TOOL_BAD_INPUT, "embed-image: this clattn was built without libpng (-Dpng=enabled)");
}

#endif
