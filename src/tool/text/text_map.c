#include "tool/text/text_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/tool.h"

#define LAYERS_MOST 64 /* as many as a mask of layers has bits */

struct text_map_part {
    char name[32];
    const text_item *item;      /* borrowed */
    vocabulary_ids read;        /* what the decoder reads */
    const char **row, **column; /* their pieces */
    float *values;              /* (layers, heads, rows, columns) */
};

static int no_memory(void)
{
    return complain(TOOL_FAILED, "no memory for the attention of a text");
}

static int append(vocabulary_ids *to, const vocabulary_ids *from, size_t count)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < count && status == TOOL_DONE; i++)
        status = vocabulary_append(to, from->id[i]);
    return status;
}

static const char **pieces_of(const text_model *model, const vocabulary_ids *ids)
{
    const char **pieces = malloc(ids->count * sizeof *pieces);
    for (size_t i = 0; pieces != NULL && i < ids->count; i++)
        pieces[i] = vocabulary_piece(model->vocabulary, ids->id[i]);
    return pieces;
}

/* The last piece of the output has not been read when it was chosen. */
static int begin_part(const text_model *model, text_map_part *t, heatmap_part *part)
{
    const bool translation = model->shape.kind == TEXT_KIND_TRANSLATION;
    const vocabulary_ids *output = &t->item->output;
    int status;
    TOOL_TRY(translation ? vocabulary_append(&t->read, VOCABULARY_BEGIN)
                         : append(&t->read, &t->item->input, t->item->input.count));
    TOOL_TRY(append(&t->read, output, output->count - 1));
    const vocabulary_ids *rows = translation ? output : &t->read, *columns = translation ? &t->item->input : &t->read;
    t->row = pieces_of(model, rows);
    t->column = pieces_of(model, columns);
    if (t->row == NULL || t->column == NULL)
        return no_memory();
    *part = (heatmap_part){.name = t->name,
                           .layer_name = "layer",
                           .layers = model->shape.decoder_layers,
                           .heads = model->shape.heads,
                           .query = {.name = "token", .count = rows->count, .labels = t->row},
                           .key = {.name = "token", .count = columns->count, .labels = t->column}};
fail:
    return status;
}

int text_map_begin(const text_model *model, const text_item *items, size_t count, text_map *map)
{
    int status = TOOL_DONE;
    *map = (text_map){0};
    if (model->shape.decoder_layers > LAYERS_MOST)
        return complain(TOOL_BAD_INPUT, "%s: has %zu layers, expected at most %d for a heat map", model->folder,
                        model->shape.decoder_layers, LAYERS_MOST);
    map->parts = calloc(count, sizeof *map->parts);
    map->texts = calloc(count, sizeof *map->texts);
    if (map->parts == NULL || map->texts == NULL)
        return no_memory();
    for (size_t i = 0; i < count; i++) {
        if (items[i].output.count == 0)
            continue;
        text_map_part *t = &map->texts[map->count];
        t->item = &items[i];
        snprintf(t->name, sizeof t->name, "text %zu", i + 1);
        TOOL_TRY(begin_part(model, t, &map->parts[map->count++]));
    }
fail:
    return status;
}

/* One decoder, for the longest part, computes all parts on the first device. */
typedef struct work {
    text_generator *generator;
    bool translation;
    clattn_plan *plan, *encoder;
    clattn_decoder_state *state;
    size_t matrices, rows, columns; /* of probabilities: layers * heads, and the largest of all parts */
    cl_mem source, memory, ids, output;
    float *all; /* (layers, heads, rows, columns) */
} work;

static clattn_status begin_work(work *w)
{
    const text_generator *g = w->generator;
    const text_device *on = &g->on[0];
    const text_shape *shape = &g->model->shape;
    const uint64_t layers = shape->decoder_layers < 64 ? ((uint64_t)1 << shape->decoder_layers) - 1 : UINT64_MAX;
    clattn_encoder_desc encoder = CLATTN_ENCODER_DESC_INIT;
    clattn_decoder_desc decoder = CLATTN_DECODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_status status;
    options.solver = g->solver;
    decoder.items = 1;
    decoder.length = decoder.cache_length = w->rows;
    if (w->translation) {
        encoder.batch = 1;
        encoder.length = decoder.memory_length = w->columns;
        decoder.cross_probabilities = layers;
        TRY(clattn_encoder_plan_create(on->transformer, &encoder, &options, &w->encoder));
        TRY(device_output(on->device, w->columns * sizeof(int32_t), &w->source));
        TRY(device_output(on->device, w->columns * shape->d_model * clattn_dtype_size(g->dtype), &w->memory));
    } else {
        decoder.self_probabilities = layers;
    }
    TRY(clattn_decoder_plan_create(on->transformer, &decoder, &options, &w->plan));
    TRY(clattn_decoder_state_create(w->plan, &w->state));
    TRY(device_output(on->device, w->rows * sizeof(int32_t), &w->ids));
    TRY(device_output(on->device, w->matrices * w->rows * w->columns * sizeof *w->all, &w->output));
fail:
    return status;
}

static clattn_status begin_sequence(work *w, const vocabulary_ids *source)
{
    tool_device *device = w->generator->on[0].device;
    clattn_encoder_args encoder = CLATTN_ENCODER_ARGS_INIT;
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    clattn_status status;
    begin.items = 1;
    if (w->translation) {
        encoder.input = clattn_binding_buffer(w->source, 0);
        encoder.output = begin.memory = clattn_binding_buffer(w->memory, 0);
        encoder.explicit_lengths = 1;
        encoder.batch = 1;
        encoder.length = begin.memory_length = source->count;
        TRY(device_write(device, w->source, source->count * sizeof *source->id, source->id));
        TRY(clattn_encoder_enqueue(w->encoder, device->queue, &encoder, 0, NULL, NULL));
    }
    TRY(clattn_decoder_begin(w->state, device->queue, &begin, 0, NULL, NULL));
fail:
    return status;
}

/* Computes one part's probabilities into w->all. */
static clattn_status compute_part(work *w, const text_map_part *t)
{
    tool_device *device = w->generator->on[0].device;
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    clattn_binding *probabilities = w->translation ? &args.cross_probabilities : &args.self_probabilities;
    clattn_status status;
    args.input = clattn_binding_buffer(w->ids, 0);
    args.length = t->read.count;
    *probabilities = clattn_binding_buffer(w->output, 0);
    TRY(begin_sequence(w, &t->item->input));
    TRY(device_write(device, w->ids, t->read.count * sizeof *t->read.id, t->read.id));
    TRY(clattn_decoder_enqueue(w->state, device->queue, &args, 0, NULL, NULL));
    TRY(device_download(device, w->output, w->matrices * w->rows * w->columns * sizeof *w->all, w->all));
fail:
    return status;
}

static int copy_part(const work *w, text_map_part *t, heatmap_part *part)
{
    const size_t rows = part->query.count, columns = part->key.count;
    const size_t stride = rows > 1 ? w->rows : 1; /* an enqueue of one token has one row */
    t->values = malloc(w->matrices * rows * columns * sizeof *t->values);
    if (t->values == NULL)
        return no_memory();
    for (size_t m = 0; m < w->matrices; m++)
        for (size_t i = 0; i < rows; i++)
            memcpy(t->values + (m * rows + i) * columns, w->all + (m * stride + i) * w->columns,
                   columns * sizeof *t->values);
    part->values = t->values;
    return TOOL_DONE;
}

static void release_work(work *w)
{
    cl_mem buffers[] = {w->source, w->memory, w->ids, w->output};
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        if (buffers[i] != NULL)
            clReleaseMemObject(buffers[i]);
    clattn_decoder_state_release(&w->state);
    clattn_plan_release(&w->plan);
    clattn_plan_release(&w->encoder);
    free(w->all);
}

int text_map_compute(text_generator *g, text_map *map)
{
    const text_shape *shape = &g->model->shape;
    work w = {.generator = g,
              .translation = shape->kind == TEXT_KIND_TRANSLATION,
              .matrices = shape->decoder_layers * shape->heads};
    for (size_t i = 0; i < map->count; i++) {
        w.rows = size_max(w.rows, map->parts[i].query.count);
        w.columns = size_max(w.columns, map->parts[i].key.count);
    }
    w.all = malloc(w.matrices * w.rows * w.columns * sizeof *w.all);
    if (w.all == NULL)
        return no_memory();
    int status = TOOL_DONE;
    clattn_status computed = begin_work(&w);
    for (size_t i = 0; computed == CLATTN_SUCCESS && status == TOOL_DONE && i < map->count; i++) {
        computed = compute_part(&w, &map->texts[i]);
        if (computed == CLATTN_SUCCESS)
            status = copy_part(&w, &map->texts[i], &map->parts[i]);
    }
    if (computed != CLATTN_SUCCESS)
        status = device_check(g->on[0].device, computed, NULL);
    release_work(&w);
    return status;
}

void text_map_release(text_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        free(map->texts[i].read.id);
        free(map->texts[i].row);
        free(map->texts[i].column);
        free(map->texts[i].values);
    }
    free(map->parts);
    free(map->texts);
    *map = (text_map){0};
}
