#include "tool/embed/sentence_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

#define LAYERS_MOST 64 /* as many as clattn_encoder_desc.probabilities has bits */

struct sentence_map_text {
    char name[32];
    wordpiece_ids ids;
    const char **label; /* of each token */
    float *values;      /* (layers, heads, tokens, tokens) */
};

static int no_memory(void)
{
    return complain(TOOL_FAILED, "out of memory for the attention of a text");
}

static int begin_text(const sentence_model *model, const sentence_text *text, sentence_map_text *t, heatmap_part *part)
{
    if (wordpiece_encode(model->tokenizer, text->text, text->bytes, model->most_tokens, &t->ids) != CLATTN_SUCCESS)
        return no_memory();
    t->label = calloc(t->ids.count, sizeof *t->label);
    if (t->label == NULL)
        return no_memory();
    for (size_t i = 0; i < t->ids.count; i++) {
        const char *token = wordpiece_token(model->tokenizer, t->ids.id[i]);
        t->label[i] = token != NULL ? token : "";
    }
    const heatmap_axis axis = {.name = "token", .count = t->ids.count, .labels = t->label};
    *part = (heatmap_part){.name = t->name,
                           .layer_name = "layer",
                           .layers = model->stack.layers,
                           .heads = model->stack.heads,
                           .query = axis,
                           .key = axis};
    return TOOL_DONE;
}

int sentence_map_begin(const sentence_model *model, const sentence_text *texts, size_t count, sentence_map *map)
{
    int status = TOOL_DONE;
    *map = (sentence_map){0};
    if (model->stack.layers > LAYERS_MOST)
        return complain(TOOL_BAD_INPUT, "%s: has %zu layers, expected at most %d for a heat map", model->folder,
                        model->stack.layers, LAYERS_MOST);
    map->parts = calloc(count, sizeof *map->parts);
    map->texts = calloc(count, sizeof *map->texts);
    if (map->parts == NULL || map->texts == NULL)
        TOOL_TRY(no_memory());
    for (size_t i = 0; i < count; i++) {
        map->count = i + 1;
        snprintf(map->texts[i].name, sizeof map->texts[i].name, "text %zu", i + 1);
        TOOL_TRY(begin_text(model, &texts[i], &map->texts[i], &map->parts[i]));
    }
fail:
    if (status != TOOL_DONE)
        sentence_map_release(map);
    return status;
}

/* One plan, for the longest text, computes all texts on the first device. */
typedef struct work {
    sentence_model *model;
    clattn_plan *plan;
    size_t length, matrices; /* tokens of the longest; layers * heads */
    cl_mem input, output;
    float *all; /* (layers, heads, length, length) */
} work;

static clattn_status begin_work(work *w)
{
    const sentence_model *model = w->model;
    const size_t floats = w->matrices * w->length * w->length;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    desc.batch = 1;
    desc.length = w->length;
    desc.probabilities = model->stack.layers < 64 ? ((uint64_t)1 << model->stack.layers) - 1 : UINT64_MAX;
    options.solver = model->solver;
    clattn_status status;
    TRY(clattn_encoder_plan_create(model->on[0].transformer, &desc, &options, &w->plan));
    TRY(device_output(model->on[0].device, w->length * sizeof(int32_t), &w->input));
    TRY(device_output(model->on[0].device, floats * sizeof(float), &w->output));
fail:
    return status;
}

/* Computes one text's probabilities into w->all, whose rows have w->length elements. */
static clattn_status compute_text(const work *w, const wordpiece_ids *ids)
{
    tool_device *device = w->model->on[0].device;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    args.input = clattn_binding_buffer(w->input, 0);
    args.probabilities = clattn_binding_buffer(w->output, 0);
    args.explicit_lengths = 1;
    args.batch = 1;
    args.length = ids->count;
    clattn_status status;
    TRY(device_write(device, w->input, ids->count * sizeof *ids->id, ids->id));
    TRY(clattn_encoder_enqueue(w->plan, device->queue, &args, 0, NULL, NULL));
    TRY(device_download(device, w->output, w->matrices * w->length * w->length * sizeof *w->all, w->all));
fail:
    return status;
}

static int copy_text(const work *w, sentence_map_text *t, heatmap_part *part)
{
    const size_t tokens = t->ids.count;
    t->values = malloc(w->matrices * tokens * tokens * sizeof *t->values);
    if (t->values == NULL)
        return no_memory();
    for (size_t m = 0; m < w->matrices; m++)
        for (size_t i = 0; i < tokens; i++)
            memcpy(t->values + (m * tokens + i) * tokens, w->all + (m * w->length + i) * w->length,
                   tokens * sizeof *t->values);
    part->values = t->values;
    return TOOL_DONE;
}

int sentence_map_compute(sentence_model *model, sentence_map *map)
{
    work w = {.model = model, .matrices = model->stack.layers * model->stack.heads};
    for (size_t i = 0; i < map->count; i++)
        w.length = map->texts[i].ids.count > w.length ? map->texts[i].ids.count : w.length;
    w.all = malloc(w.matrices * w.length * w.length * sizeof *w.all);
    if (w.all == NULL)
        return no_memory();
    int status = TOOL_DONE;
    clattn_status computed = begin_work(&w);
    for (size_t i = 0; computed == CLATTN_SUCCESS && status == TOOL_DONE && i < map->count; i++) {
        computed = compute_text(&w, &map->texts[i].ids);
        if (computed == CLATTN_SUCCESS)
            status = copy_text(&w, &map->texts[i], &map->parts[i]);
    }
    if (computed != CLATTN_SUCCESS)
        status = device_check(model->on[0].device, computed, NULL);
    if (w.input != NULL)
        clReleaseMemObject(w.input);
    if (w.output != NULL)
        clReleaseMemObject(w.output);
    clattn_plan_release(&w.plan);
    free(w.all);
    return status;
}

void sentence_map_release(sentence_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        wordpiece_ids_release(&map->texts[i].ids);
        free(map->texts[i].label);
        free(map->texts[i].values);
    }
    free(map->parts);
    free(map->texts);
    *map = (sentence_map){0};
}
