#include "restore/tiling.h"

#include <math.h>

#include "base/size.h"

tiling tiling_of(size_t height, size_t width, size_t window, size_t overlap)
{
    return (tiling){.window = window,
                    .overlap = round_up(overlap, window),
                    .filled = {round_up(height, window), round_up(width, window)}};
}

bool tiling_set(tiling *t, size_t edge)
{
    edge = round_up(edge, t->window);
    for (int axis = 0; axis < 2; axis++) {
        const size_t filled = t->filled[axis];
        if (edge < filled && edge <= t->overlap)
            return false;
        const size_t count = edge < filled ? 1 + divide_up(filled - edge, edge - t->overlap) : 1;
        t->count[axis] = count;
        t->tile[axis] = round_up(divide_up(filled + (count - 1) * t->overlap, count), t->window);
    }
    return true;
}

size_t tiling_edge(const tiling *t, size_t pixels)
{
    size_t edge = size_max(t->filled[0], t->filled[1]);
    while (edge > 0 && size_min(edge, t->filled[0]) > pixels / size_min(edge, t->filled[1]))
        edge -= t->window;
    return edge;
}

size_t tiling_begin(const tiling *t, int axis, size_t index)
{
    const size_t windows = (t->filled[axis] - t->tile[axis]) / t->window, last = t->count[axis] - 1;
    return last > 0 ? index * windows / last * t->window : 0;
}

size_t tiling_common(const tiling *t, int axis, size_t index)
{
    return index > 0 ? tiling_begin(t, axis, index - 1) + t->tile[axis] - tiling_begin(t, axis, index) : 0;
}

float tiling_share(size_t i, size_t common)
{
    return fminf(fmaxf(2.0f * ((float)i + 0.5f) / (float)common - 0.5f, 0.0f), 1.0f);
}

size_t tiling_mirrored(size_t i, size_t length)
{
    const size_t period = length > 1 ? 2 * (length - 1) : 1, at = i % period;
    return at < length ? at : period - at;
}
