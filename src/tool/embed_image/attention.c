#include "tool/embed_image/attention.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/try.h"
#include "tool/cli/progress.h"
#include "tool/embed_image/encode.h"

#define LAYERS_MOST 64 /* as many as clattn_encoder_desc.probabilities has bits */
#define LABEL 48

struct vision_map_picture {
    unsigned char *cut; /* what the model sees */
    float *values;      /* (heads, positions, positions) */
    heatmap_picture picture;
};

static int no_memory(void)
{
    return complain(TOOL_FAILED, "embed-image: out of memory for the attention of the pictures");
}

static bool make_labels(const vision_model *model, vision_map *map)
{
    const size_t positions = vision_positions(model), first = vision_first_patch(model);
    map->text = malloc(positions * LABEL);
    map->labels = malloc(positions * sizeof *map->labels);
    for (size_t i = 0; map->text != NULL && map->labels != NULL && i < positions; i++) {
        char *text = map->text + i * LABEL;
        const size_t patch = i - first, columns = vision_columns(model);
        map->labels[i] = text;
        if (i >= first)
            snprintf(text, LABEL, "row %zu, column %zu", patch / columns, patch % columns);
        else if (i == 0 && model->stack.patches.class_token)
            snprintf(text, LABEL, "class token");
        else
            snprintf(text, LABEL, "register %zu", i - (size_t)model->stack.patches.class_token);
    }
    return map->text != NULL && map->labels != NULL;
}

int vision_map_begin(const vision_model *model, const char *const *paths, size_t count, vision_map *map)
{
    const heatmap_axis axis = {.name = "position", .count = vision_positions(model)};
    *map = (vision_map){0};
    if (model->stack.layers > LAYERS_MOST)
        return complain(TOOL_BAD_INPUT, "%s: has %zu layers, expected at most %d for a heat map", model->folder,
                        model->stack.layers, LAYERS_MOST);
    map->parts = calloc(count, sizeof *map->parts);
    map->pictures = calloc(count, sizeof *map->pictures);
    if (map->parts == NULL || map->pictures == NULL || !make_labels(model, map))
        return no_memory();
    map->count = count;
    for (size_t i = 0; i < count; i++) {
        heatmap_part *part = &map->parts[i];
        map->pictures[i].picture = (heatmap_picture){.width = model->rule.size[1],
                                                     .height = model->rule.size[0],
                                                     .rows = vision_rows(model),
                                                     .columns = vision_columns(model),
                                                     .first = vision_first_patch(model),
                                                     .summary = model->stack.patches.class_token};
        *part = (heatmap_part){.name = paths[i],
                               .layer_name = "layer",
                               .layers = 1,
                               .heads = model->stack.heads,
                               .query = axis,
                               .key = axis,
                               .picture = &map->pictures[i].picture};
        part->query.labels = part->key.labels = map->labels;
    }
    return TOOL_DONE;
}

/* One plan computes all pictures on the first device, one after the other. */
typedef struct work {
    const vision_model *model;
    clattn_plan *plan;
    cl_mem input, output;
    size_t input_bytes, output_bytes;
    float *numbers; /* the input's */
} work;

static clattn_status begin_work(work *w)
{
    const vision_model *model = w->model;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_status status;
    desc.batch = 1;
    desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, 3, model->rule.size[0], model->rule.size[1]);
    desc.probabilities = (uint64_t)1 << (model->stack.layers - 1);
    options.solver = model->solver;
    TRY(clattn_encoder_plan_create(model->on[0].transformer, &desc, &options, &w->plan));
    TRY(device_output(model->on[0].device, w->input_bytes, &w->input));
    TRY(device_output(model->on[0].device, w->output_bytes, &w->output));
fail:
    return status;
}

static clattn_status compute(const work *w, float *values)
{
    tool_device *device = w->model->on[0].device;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_status status;
    args.input = clattn_binding_buffer(w->input, 0);
    args.probabilities = clattn_binding_buffer(w->output, 0);
    TRY(device_write(device, w->input, w->input_bytes, w->numbers));
    TRY(clattn_encoder_enqueue(w->plan, device->queue, &args, 0, NULL, NULL));
    TRY(device_download(device, w->output, w->output_bytes, values));
fail:
    return status;
}

static int compute_picture(const work *w, struct vision_map_picture *p, heatmap_part *part)
{
    char message[4608]; /* a path has at most 4096 bytes */
    p->cut = malloc(w->input_bytes / sizeof(float));
    p->values = malloc(w->output_bytes);
    if (p->cut == NULL || p->values == NULL)
        return no_memory();
    int status =
        vision_prepare(w->model, w->model->on[0].device, part->name, p->cut, w->numbers, message, sizeof message);
    if (status != TOOL_DONE)
        return complain(status, "%s", message);
    part->values = p->values;
    p->picture.pixels = p->cut;
    return device_check(w->model->on[0].device, compute(w, p->values), NULL);
}

int vision_map_compute(const vision_model *model, vision_map *map)
{
    const size_t positions = vision_positions(model);
    work w = {.model = model,
              .input_bytes = 3 * model->rule.size[0] * model->rule.size[1] * sizeof(float),
              .output_bytes = model->stack.heads * positions * positions * sizeof(float)};
    int status;
    progress_begin("embed-image --attention");
    w.numbers = malloc(w.input_bytes);
    if (w.numbers == NULL)
        TOOL_TRY(no_memory());
    TOOL_TRY(device_check(model->on[0].device, begin_work(&w), NULL));
    for (size_t i = 0; i < map->count; i++) {
        TOOL_TRY(compute_picture(&w, &map->pictures[i], &map->parts[i]));
        progress_show((double)(i + 1) / (double)map->count);
    }
fail:
    progress_end();
    if (w.input != NULL)
        clReleaseMemObject(w.input);
    if (w.output != NULL)
        clReleaseMemObject(w.output);
    clattn_plan_release(&w.plan);
    free(w.numbers);
    return status;
}

void vision_map_release(vision_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        free(map->pictures[i].cut);
        free(map->pictures[i].values);
    }
    free(map->parts);
    free(map->pictures);
    free(map->text);
    free(map->labels);
    *map = (vision_map){0};
}
