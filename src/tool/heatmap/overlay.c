/* Attention over pictures as a PNG file, which heatmap.h describes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/png_file.h"
#include "tool/heatmap/heatmap.h"
#include "tool/tool.h"

#define RULE 2            /* grey pixels around and between the pictures */
#define SIDE 384          /* a small picture's pixels become squares, while its sides are no longer than this */
#define MOST_SIDE 1048575 /* libpng's own limit here */

static const unsigned char ramp[5][3] = {{20, 23, 28}, {40, 60, 110}, {60, 125, 170}, {140, 195, 170}, {250, 240, 150}};

static size_t scale_of(const heatmap_picture *p)
{
    return size_max(1, SIDE / size_max(p->width, p->height));
}

/* The size of the whole file, in pixels. */
static void measure(const heatmap *map, size_t *width, size_t *height)
{
    *width = 0;
    *height = RULE;
    for (size_t i = 0; i < map->part_count; i++) {
        const heatmap_picture *p = map->parts[i].picture;
        *width = size_max(*width, 2 * (p->width * scale_of(p) + RULE) + RULE);
        *height += p->height * scale_of(p) + RULE;
    }
}

int heatmap_check_overlay(const heatmap *map, const char *path)
{
    size_t width, height;
    measure(map, &width, &height);
    if (width > MOST_SIDE || height > MOST_SIDE || width > PICTURE_PIXELS / height)
        return complain(TOOL_BAD_INPUT,
                        "%s: the pictures need %zu x %zu pixels, expected at most %d in a row or column and %zu in all",
                        path, width, height, MOST_SIDE, PICTURE_PIXELS);
    return TOOL_DONE;
}

/* Adds up what the last layer's heads attend to, for the queries that count. */
static void sum_rows(const heatmap_part *part, double *sum)
{
    const heatmap_picture *p = part->picture;
    const size_t patches = p->rows * p->columns;
    const size_t first = p->summary ? 0 : p->first, end = p->summary ? 1 : p->first + patches;
    for (size_t head = 0; head < part->heads; head++)
        for (size_t query = first; query < end; query++) {
            const float *row = heatmap_row(part, part->layers - 1, head, query) + p->first;
            for (size_t i = 0; i < patches; i++)
                sum[i] += (double)row[i];
        }
}

/* NaN counts as 0. */
static void colour_of(double share, unsigned char colour[3])
{
    const double place = share > 0 ? fmin(share, 1) * 4 : 0;
    const int low = place < 3 ? (int)place : 3;
    for (int c = 0; c < 3; c++)
        colour[c] = (unsigned char)lrint(ramp[low][c] + (ramp[low + 1][c] - ramp[low][c]) * (place - low));
}

/* Draws a picture, with colours over it unless they are NULL. */
static void draw(const heatmap_picture *p, unsigned char (*colours)[3], size_t left, size_t top, picture *to)
{
    const size_t scale = scale_of(p), patch_height = p->height / p->rows, patch_width = p->width / p->columns;
    for (size_t y = 0; y < p->height * scale; y++)
        for (size_t x = 0; x < p->width * scale; x++) {
            const size_t row = y / scale, column = x / scale;
            const unsigned char *from = p->pixels + (row * p->width + column) * 3;
            unsigned char *pixel = to->pixels + (top + y) * picture_row(to) + (left + x) * 3;
            const size_t patch = row / patch_height * p->columns + column / patch_width;
            for (int c = 0; c < 3; c++)
                pixel[c] = colours == NULL ? from[c] : (unsigned char)((2 * from[c] + 3 * colours[patch][c] + 2) / 5);
        }
}

/* Draws the picture and, beside it, the same with the attention; false if memory runs out. */
static bool draw_part(const heatmap_part *part, size_t top, picture *to)
{
    const heatmap_picture *p = part->picture;
    const size_t patches = p->rows * p->columns;
    double largest = 0, *sum = calloc(patches, sizeof *sum);
    unsigned char(*colours)[3] = malloc(patches * sizeof *colours);
    const bool allocated = sum != NULL && colours != NULL;
    if (allocated) {
        sum_rows(part, sum);
        for (size_t i = 0; i < patches; i++)
            largest = sum[i] > largest ? sum[i] : largest;
        for (size_t i = 0; i < patches; i++)
            colour_of(largest > 0 ? sum[i] / largest : 0, colours[i]);
        draw(p, NULL, RULE, top, to);
        draw(p, colours, 2 * RULE + p->width * scale_of(p), top, to);
    }
    free(sum);
    free(colours);
    return allocated;
}

int heatmap_store_overlay(const heatmap *map, const char *path)
{
    picture p = {.channels = 3, .bits = 8};
    measure(map, &p.width, &p.height);
    p.pixels = malloc(p.height * picture_row(&p));
    bool drawn = p.pixels != NULL;
    if (drawn)
        memset(p.pixels, 160, p.height * picture_row(&p));
    for (size_t i = 0, top = RULE; i < map->part_count && drawn; i++) {
        const heatmap_picture *each = map->parts[i].picture;
        drawn = draw_part(&map->parts[i], top, &p);
        top += each->height * scale_of(each) + RULE;
    }
    int status = drawn ? picture_store(path, &p)
                       : complain(TOOL_FAILED, "%s: no memory for %zu x %zu pixels", path, p.width, p.height);
    picture_release(&p);
    return status;
}
