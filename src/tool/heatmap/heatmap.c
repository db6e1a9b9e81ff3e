#include "tool/heatmap/heatmap.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "tool/tool.h"

static bool ends_with(const char *path, const char *suffix)
{
    size_t length = strlen(path), end = strlen(suffix);
    return length > end && strcmp(path + length - end, suffix) == 0;
}

int heatmap_check(const heatmap *map, const char *path)
{
    bool png = ends_with(path, ".png");
    size_t total = 0;
    if (!png && !ends_with(path, ".html"))
        return complain(TOOL_BAD_INPUT, "%s: is no name for a heat map, expected one that ends in .html or .png", path);
    for (size_t i = 0; i < map->part_count; i++) {
        const heatmap_part *part = &map->parts[i];
        size_t cells = part->layers;
        bool fits = size_mul(cells, part->heads, &cells) && size_mul(cells, part->query.count, &cells) &&
                    size_mul(cells, part->key.count, &cells) && cells <= HEATMAP_CELLS - total;
        if (!fits)
            return complain(TOOL_BAD_INPUT,
                            "%s: %zu x %zu matrices of %zu x %zu probabilities, expected at most %zu "
                            "probabilities in one file",
                            path, part->layers, part->heads, part->query.count, part->key.count, HEATMAP_CELLS);
        if (cells == 0)
            return complain(TOOL_BAD_INPUT, "%s: %zu x %zu matrices of %zu x %zu probabilities, expected at least one",
                            path, part->layers, part->heads, part->query.count, part->key.count);
        total += cells;
    }
    return png ? heatmap_check_png(map, path) : TOOL_DONE;
}

int heatmap_store(const heatmap *map, const char *path)
{
    return ends_with(path, ".png") ? heatmap_store_png(map, path) : heatmap_store_html(map, path);
}

const float *heatmap_row(const heatmap_part *part, size_t layer, size_t head, size_t query)
{
    return part->values + ((layer * part->heads + head) * part->query.count + query) * part->key.count;
}

float heatmap_largest(const heatmap_part *part, size_t layer, size_t head)
{
    float largest = 0.0f;
    for (size_t i = 0; i < part->query.count; i++) {
        const float *row = heatmap_row(part, layer, head, i);
        for (size_t j = 0; j < part->key.count; j++)
            if (row[j] > largest && !isinf(row[j]))
                largest = row[j];
    }
    return largest;
}
