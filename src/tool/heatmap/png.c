/* The picture of a heat map, which heatmap.h describes. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/heatmap/heatmap.h"
#include "tool/tool.h"

#ifdef CLATTN_PNG

#include "tool/cli/png_file.h"

#define RULE 2            /* pixels of the lines around and between matrices */
#define SIDE 384          /* cells are so large that no matrix has more pixels in a row or column, if it can be */
#define MOST_PIXELS 24    /* in a row of a cell */
#define MOST_SIDE 1048575 /* libpng's own limit here */

static const unsigned char ramp[5][3] = {{255, 255, 255}, {190, 215, 240}, {95, 160, 215}, {30, 95, 170}, {10, 35, 90}};

typedef struct plan {
    size_t cell, width, height; /* of the whole picture */
} plan;

/* Matrices side by side. */
static size_t line_of(const heatmap_part *part)
{
    size_t line = 1;
    if (part->layers > 1)
        return part->heads;
    while (line * line < part->heads)
        line++;
    return line;
}

static void measure(const heatmap *map, plan *p)
{
    p->width = 0;
    p->height = RULE;
    for (size_t i = 0; i < map->part_count; i++) {
        const heatmap_part *part = &map->parts[i];
        size_t line = line_of(part), lines = part->layers * divide_up(part->heads, line);
        p->width = size_max(p->width, line * (part->key.count * p->cell + RULE) + RULE);
        p->height += lines * (part->query.count * p->cell + RULE);
    }
}

/* No product overflows: there are at most HEATMAP_CELLS cells. */
static plan plan_of(const heatmap *map)
{
    size_t longest = 1;
    for (size_t i = 0; i < map->part_count; i++)
        longest = size_max(longest, size_max(map->parts[i].query.count, map->parts[i].key.count));
    plan p = {.cell = size_max(1, size_min(MOST_PIXELS, SIDE / longest))};
    measure(map, &p);
    while (p.cell > 1 && p.width > PICTURE_PIXELS / 4 / p.height) {
        p.cell--;
        measure(map, &p);
    }
    return p;
}

int heatmap_check_png(const heatmap *map, const char *path)
{
    if (map->part_count > 0 && map->parts[0].picture != NULL)
        return heatmap_check_overlay(map, path);
    plan p = plan_of(map);
    if (p.width > MOST_SIDE || p.height > MOST_SIDE || p.width > PICTURE_PIXELS / p.height)
        return complain(TOOL_BAD_INPUT,
                        "%s: the heat map needs %zu x %zu pixels, expected at most %d in a row or column and "
                        "%zu in all",
                        path, p.width, p.height, MOST_SIDE, PICTURE_PIXELS);
    return TOOL_DONE;
}

static void colour_of(float value, float largest, unsigned char colour[3])
{
    static const unsigned char none[3] = {214, 40, 160};
    if (isnan(value)) {
        memcpy(colour, none, sizeof none);
        return;
    }
    float place = value > 0.0f && largest > 0.0f ? fminf(value / largest, 1.0f) * 4.0f : 0.0f;
    int low = place < 3.0f ? (int)place : 3;
    for (int c = 0; c < 3; c++)
        colour[c] = (unsigned char)lrintf((float)ramp[low][c] +
                                          (float)(ramp[low + 1][c] - ramp[low][c]) * (place - (float)low));
}

static void draw(const heatmap_part *part, size_t layer, size_t head, size_t cell, size_t left, size_t top, picture *p)
{
    float largest = heatmap_largest(part, layer, head);
    for (size_t i = 0; i < part->query.count; i++) {
        const float *row = heatmap_row(part, layer, head, i);
        unsigned char *first = p->pixels + (top + i * cell) * picture_row(p) + left * 3;
        for (size_t j = 0; j < part->key.count; j++) {
            unsigned char colour[3];
            colour_of(row[j], largest, colour);
            for (size_t x = 0; x < cell; x++)
                memcpy(first + (j * cell + x) * 3, colour, 3);
        }
        for (size_t y = 1; y < cell; y++)
            memcpy(first + y * picture_row(p), first, part->key.count * cell * 3);
    }
}

int heatmap_store_png(const heatmap *map, const char *path)
{
    if (map->part_count > 0 && map->parts[0].picture != NULL)
        return heatmap_store_overlay(map, path);
    plan size = plan_of(map);
    picture p = {.width = size.width, .height = size.height, .channels = 3, .bits = 8};
    p.pixels = malloc(p.height * picture_row(&p));
    if (p.pixels == NULL)
        return complain(TOOL_FAILED, "%s: no memory for %zu x %zu pixels", path, p.width, p.height);
    memset(p.pixels, 160, p.height * picture_row(&p));
    size_t top = RULE;
    for (size_t i = 0; i < map->part_count; i++) {
        const heatmap_part *part = &map->parts[i];
        size_t wide = part->key.count * size.cell + RULE, high = part->query.count * size.cell + RULE;
        size_t line = line_of(part), lines = divide_up(part->heads, line);
        for (size_t layer = 0; layer < part->layers; layer++, top += lines * high)
            for (size_t head = 0; head < part->heads; head++)
                draw(part, layer, head, size.cell, RULE + head % line * wide, top + head / line * high, &p);
    }
    int status = picture_store(path, &p);
    picture_release(&p);
    return status;
}

#else

int heatmap_check_png(const heatmap *map, const char *path)
{
    (void)map;
    return complain(TOOL_BAD_INPUT, "%s: this clattn was built without libpng (-Dpng=enabled), expected .html", path);
}

int heatmap_store_png(const heatmap *map, const char *path)
{
    return heatmap_check_png(map, path);
}

#endif
