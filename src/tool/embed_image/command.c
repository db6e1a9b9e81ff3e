/* clattn embed-image: pictures to vectors by ViT, DINOv2 and CLIP, and a search by them. */
#include "tool/tool.h"

#ifdef CLATTN_PNG

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/options.h"
#include "tool/cli/report.h"
#include "tool/embed_image/encode.h"
#include "tool/embed_image/folder.h"
#include "tool/run/timing.h"

typedef struct image_options {
    const char *search, *output, *solver, *device;
    size_t top, repeat;
    int32_t dtype;
    bool json;
    const char *operands[]; /* the model's folder, the pictures; ends with NULL */
} image_options;

#define FIELD(name) offsetof(image_options, name)

static const option_row rows[] = {
    {"--search", OPTION_TEXT, FIELD(search), "FOLDER",
     .help = "instead of the vector, FOLDER's PNG files with their cosine to the picture, the nearest first"},
    {"--top", OPTION_COUNT, FIELD(top), "N", .help = "with --search, the first N files; default all"},
    {"-o", OPTION_TEXT, FIELD(output), "OUT.npy", .help = "write the vectors, a row each, instead of printing them"},
    OPTION_ROW_DTYPE(image_options, "of the model's weights and of what its layers store"),
    OPTION_ROW_SOLVER(image_options),
    OPTION_ROW_DEVICE(image_options),
    OPTION_ROW_REPEAT(image_options),
    OPTION_ROW_JSON(image_options),
    OPTION_ROW_END,
};

/* The operands' number is the command line's. */
static option_table table_of(size_t arguments)
{
    return (option_table){.command = "embed-image",
                          .summary = "A unit vector a line for each PICTURE, a PNG file.",
                          .operands = "MODEL_DIR PICTURE ...",
                          .operand_offset = FIELD(operands),
                          .operand_count = arguments,
                          .operand_least = 2,
                          .rows = rows};
}

typedef struct embedding {
    const image_options *options;
    vision_model model;
    tool_device device;
    folder_list folder;
    const char **paths; /* the pictures of the command line, then those of the folder */
    size_t pictures, count;
    host_array vectors; /* (count, size) */
    vision_left_out left_out;
    timing times;
} embedding;

static int out_of_memory(void)
{
    return complain(TOOL_FAILED, "embed-image: out of memory for the pictures");
}

static const float *vector_of(const embedding *e, size_t place)
{
    return (const float *)e->vectors.memory + place * vision_size(&e->model);
}

static int check(const image_options *options)
{
    if (options->search != NULL && options->operands[2] != NULL)
        return complain(TOOL_BAD_INPUT, "embed-image: --search takes one PICTURE, found more");
    if (options->search == NULL && options->top != 0)
        return complain(TOOL_BAD_INPUT, "embed-image: --top is for --search");
    if (options->search != NULL && options->output != NULL)
        return complain(TOOL_BAD_INPUT, "embed-image: --search and -o exclude each other");
    return TOOL_DONE;
}

static int list_pictures(embedding *e)
{
    const char *const *operands = e->options->operands + 1;
    int status = TOOL_DONE;
    while (operands[e->pictures] != NULL)
        e->pictures++;
    if (e->options->search != NULL)
        TOOL_TRY(folder_pictures(e->options->search, &e->folder));
    e->count = e->pictures + e->folder.count;
    e->paths = malloc(e->count * sizeof *e->paths);
    if (e->paths == NULL)
        TOOL_TRY(out_of_memory());
    memcpy(e->paths, operands, e->pictures * sizeof *e->paths);
    for (size_t i = 0; i < e->folder.count; i++)
        e->paths[e->pictures + i] = e->folder.path[i];
fail:
    return status;
}

static int encode(embedding *e, vision_left_out *left_out)
{
    return vision_encode(&e->model, e->paths, e->count, e->pictures, e->vectors.memory, left_out);
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
    TOOL_TRY(host_allocate(CLATTN_DTYPE_F32, 2, (const size_t[]){e->count, vision_size(&e->model)},
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
             e->folder.count, e->left_out.first);
    device_log(NULL, CLATTN_LOG_LEVEL_WARNING, line);
}

/* ---- results ---- */

typedef struct match {
    double score;
    size_t place;
} match;

static int nearer_first(const void *left, const void *right)
{
    const match *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->place > b->place ? 1 : -1;
}

/* The folder's pictures by their cosine to the first picture; how many there are, in *count. */
static int rank(const embedding *e, match **matches, size_t *count)
{
    const size_t size = vision_size(&e->model);
    *count = 0;
    *matches = malloc((e->folder.count + 1) * sizeof **matches);
    if (*matches == NULL)
        return out_of_memory();
    for (size_t i = e->pictures; i < e->count; i++) {
        const float *query = vector_of(e, 0), *vector = vector_of(e, i);
        double score = 0.0;
        for (size_t k = 0; k < size; k++)
            score += (double)query[k] * (double)vector[k];
        if (!isnan(vector[0]))
            (*matches)[(*count)++] = (match){score, i};
    }
    if (*count == 0)
        return complain(TOOL_BAD_INPUT, "%s: none of its %zu pictures can be read: %s", e->options->search,
                        e->folder.count, e->left_out.first);
    qsort(*matches, *count, sizeof **matches, nearer_first);
    if (e->options->top != 0 && e->options->top < *count)
        *count = e->options->top;
    return TOOL_DONE;
}

static int deliver_matches(const embedding *e, json_t *result)
{
    match *matches = NULL;
    size_t count;
    int status;
    TOOL_TRY(rank(e, &matches, &count));
    for (size_t i = 0; i < count; i++) {
        const char *path = e->paths[matches[i].place];
        if (result == NULL)
            printf("%.6f\t%s\n", matches[i].score, path);
        else if (json_array_append_new(
                     result, json_pack("{s:f, s:o}", "score", matches[i].score, "picture", json_text(path))) != 0)
            TOOL_TRY(out_of_memory());
    }
fail:
    free(matches);
    return status;
}

static int deliver_vectors(const embedding *e, json_t *result)
{
    const size_t size = vision_size(&e->model);
    for (size_t i = 0; i < e->count; i++) {
        const float *vector = vector_of(e, i);
        json_t *numbers = result != NULL ? json_array() : NULL;
        for (size_t k = 0; k < size; k++)
            if (result == NULL)
                printf(k == 0 ? "%.9g" : " %.9g", (double)vector[k]);
            else if (json_array_append_new(numbers, json_real((double)vector[k])) != 0)
                break; /* json_memory_failed tells */
        if (result == NULL)
            putchar('\n');
        else if (json_array_append_new(result, numbers) != 0 || json_memory_failed())
            return out_of_memory();
    }
    return TOOL_DONE;
}

static int write_report(embedding *e, json_t *result)
{
    tool_report report = report_begin();
    report_device(&report, &e->device, vision_solver(&e->model));
    report_text(&report, "model", e->model.folder);
    report_text(&report, "dtype", clattn_dtype_name(e->model.dtype));
    report_count(&report, "size", vision_size(&e->model));
    report_shape(&report, "pixels", 2, e->model.rule.size);
    report_count(&report, "pictures", e->count);
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
    json_t *result = e->options->json ? json_array() : NULL;
    int status;
    if (e->options->json && result == NULL)
        return out_of_memory();
    TOOL_TRY(e->options->output != NULL   ? host_store(e->options->output, &e->vectors)
             : e->options->search != NULL ? deliver_matches(e, result)
                                          : deliver_vectors(e, result));
    if (e->options->json)
        TOOL_TRY(write_report(e, result));
fail:
    json_decref(result);
    return status;
}

static int run(const image_options *options)
{
    embedding e = {.options = options};
    int status;
    TOOL_TRY(check(options));
    TOOL_TRY(vision_open(options->operands[0], &e.model));
    TOOL_TRY(list_pictures(&e));
    TOOL_TRY(host_check_output(options->output, e.paths, e.count));
    TOOL_TRY(device_open(options->device, &e.device));
    e.model.solver = options->solver;
    e.model.dtype = option_dtypes[options->dtype];
    TOOL_TRY(vision_load(&e.model, &e.device));
    TOOL_TRY(compute(&e));
    TOOL_TRY(deliver(&e));
    warn_of_left_out(&e);
fail:
    free(e.paths);
    folder_release(&e.folder);
    host_release(&e.vectors);
    vision_close(&e.model);
    device_close(&e.device);
    return status;
}

int cmd_embed_image(int argc, char **argv)
{
    const size_t arguments = argc > 0 ? (size_t)argc : 0;
    const option_table table = table_of(arguments);
    /* One more, so that a NULL ends the operands. */
    image_options *options = calloc(1, sizeof *options + (arguments + 2) * sizeof options->operands[0]);
    if (options == NULL)
        return out_of_memory();
    int status = options_parse(&table, argc, argv, options);
    if (status == TOOL_DONE)
        status = run(options);
    free(options);
    return status;
}

#else

int cmd_embed_image(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return complain(TOOL_BAD_INPUT, "embed-image: this clattn was built without libpng (-Dpng=enabled)");
}

#endif
