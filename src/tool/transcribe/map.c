#include "tool/transcribe/map.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "tool/tool.h"

#define BEFORE 1 /* rows before that of the text's first token */
#define POSITION_SECONDS 0.02

struct whisper_map_window {
    char name[48];
    char **label;  /* of each row */
    float *values; /* (layers, heads, rows, columns) */
    size_t positions;
};

static int no_memory(void)
{
    return complain(TOOL_FAILED, "no memory for the attention of a recording");
}

/* Adds every `by` numbers of each row of `columns` numbers into one; `to` may be `from`. */
static void merge_rows(const float *from, size_t rows, size_t columns, size_t by, float *to)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c += by) {
            double sum = 0.0;
            for (size_t i = c; i < c + by && i < columns; i++)
                sum += (double)from[r * columns + i];
            *to++ = (float)sum;
        }
}

static size_t columns_of(const whisper_map *map, const whisper_map_window *window)
{
    return (window->positions + map->merged - 1) / map->merged;
}

static void set_axes(const whisper_map *map, size_t index)
{
    heatmap_part *part = &map->parts[index];
    whisper_map_window *window = &map->windows[index];
    part->key.count = columns_of(map, window);
    part->key.step = POSITION_SECONDS * (double)map->merged;
    part->values = window->values;
}

static size_t cells_of(const whisper_map *map)
{
    size_t cells = 0;
    for (size_t i = 0; i < map->count; i++)
        cells += map->parts[i].layers * map->parts[i].heads * map->parts[i].query.count * map->parts[i].key.count;
    return cells;
}

/* Doubles the time of a column until the map is small enough or has one column. */
static void make_fit(whisper_map *map)
{
    const size_t most = map->most != 0 ? map->most : HEATMAP_CELLS;
    while (cells_of(map) > most && map->merged < WHISPER_POSITIONS) {
        map->merged *= 2;
        for (size_t i = 0; i < map->count; i++) {
            const heatmap_part *part = &map->parts[i];
            whisper_map_window *window = &map->windows[i];
            const size_t rows = part->layers * part->heads * part->query.count;
            merge_rows(window->values, rows, part->key.count, 2, window->values);
            float *less = realloc(window->values, rows * columns_of(map, window) * sizeof *less);
            window->values = less != NULL ? less : window->values;
            set_axes(map, i);
        }
    }
}

/* The token's text, or its name if it has no text. */
static char *label_of(const whisper_tokens *tokens, int32_t id)
{
    return id == tokens->end_of_text ? string_copy("<|endoftext|>") : whisper_text(tokens, &id, 1);
}

/* Appends an empty window. */
static bool make_room(whisper_map *map)
{
    heatmap_part *parts = realloc(map->parts, (map->count + 1) * sizeof *parts);
    map->parts = parts != NULL ? parts : map->parts;
    whisper_map_window *windows = realloc(map->windows, (map->count + 1) * sizeof *windows);
    map->windows = windows != NULL ? windows : map->windows;
    if (parts == NULL || windows == NULL)
        return false;
    map->parts[map->count] = (heatmap_part){0};
    map->windows[map->count++] = (whisper_map_window){0};
    /* Sets the parts' pointers again, since the windows may have moved. */
    for (size_t i = 0; i < map->count; i++)
        map->parts[i].name = map->windows[i].name;
    return true;
}

/* Reads the attention of all heads into the last of map->windows. */
static int read_attention(whisper_map *map, const whisper_engine *engine, const whisper_tokens *tokens,
                          const int32_t *ids, size_t count, size_t rows)
{
    const size_t heads = engine->layers * engine->heads;
    whisper_map_window *window = &map->windows[map->count - 1];
    double probabilities[WHISPER_LENGTH];
    whisper_head *all = malloc(heads * sizeof *all);
    float *attention = malloc(heads * count * WHISPER_POSITIONS * sizeof *attention);
    window->values = malloc(heads * rows * columns_of(map, window) * sizeof *window->values);
    int status = TOOL_DONE;
    if (all == NULL || attention == NULL || window->values == NULL)
        TOOL_TRY(no_memory());
    for (size_t h = 0; h < heads; h++)
        all[h] = (whisper_head){(int32_t)(h / engine->heads), (int32_t)(h % engine->heads)};
    TOOL_TRY(engine->align(engine->user, ids, count, tokens->end_of_text, all, heads, probabilities, attention));
    for (size_t h = 0; h < heads; h++)
        for (size_t r = 0; r < rows; r++)
            merge_rows(attention + (h * count + BEFORE + r) * WHISPER_POSITIONS, 1, window->positions, map->merged,
                       window->values + (h * rows + r) * columns_of(map, window));
fail:
    free(all);
    free(attention);
    return status;
}

int whisper_map_add(whisper_map *map, const whisper_engine *engine, const whisper_tokens *tokens, const int32_t *ids,
                    size_t count, double offset, size_t positions)
{
    const size_t rows = count - 2;
    map->merged = map->merged != 0 ? map->merged : 1;
    if (!make_room(map))
        return no_memory();
    whisper_map_window *window = &map->windows[map->count - 1];
    window->positions = positions;
    window->label = calloc(rows, sizeof *window->label);
    if (window->label == NULL)
        return no_memory();
    snprintf(window->name, sizeof window->name, "%.2f s to %.2f s", offset,
             offset + (double)positions * POSITION_SECONDS);
    map->parts[map->count - 1] =
        (heatmap_part){.name = window->name,
                       .layer_name = "layer",
                       .layers = engine->layers,
                       .heads = engine->heads,
                       .query = {.name = "token", .count = rows, .labels = (const char *const *)window->label},
                       .key = {.name = "time", .first = offset, .unit = " s"}};
    for (size_t i = 0; i < rows; i++)
        if ((window->label[i] = label_of(tokens, ids[i + 2])) == NULL)
            return no_memory();
    int status = read_attention(map, engine, tokens, ids, count, rows);
    if (status != TOOL_DONE)
        return status;
    set_axes(map, map->count - 1);
    make_fit(map);
    return TOOL_DONE;
}

void whisper_map_release(whisper_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        for (size_t r = 0; map->windows[i].label != NULL && r < map->parts[i].query.count; r++)
            free(map->windows[i].label[r]);
        free(map->windows[i].label);
        free(map->windows[i].values);
    }
    free(map->parts);
    free(map->windows);
    *map = (whisper_map){0};
}
