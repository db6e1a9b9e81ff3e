/* How a picture is cut into tiles of one size, so that there is one plan.
 *
 * A picture is filled up right and below, by its mirror image, to whole windows, as SwinIR itself does.  Tiles begin at
 * multiples of the window, so that their windows are those of the whole picture, and are spread evenly; neighbours have at
 * least the overlap in common.
 *
 * Pixels near a tile's edge lack what lies beyond it.  Therefore the outer quarters of what two tiles have in common come
 * from one of them, and between these quarters one fades into the other linearly, so that no seam shows where they differ. */
#ifndef CLATTN_RESTORE_TILING_H
#define CLATTN_RESTORE_TILING_H

#include <stdbool.h>
#include <stddef.h>

/* Height and width, in pixels of the picture; multiples of the window. */
typedef struct tiling {
    size_t window;
    size_t overlap;
    size_t filled[2]; /* the picture */
    size_t tile[2];
    size_t count[2]; /* tiles below and beside each other */
} tiling;

/* Begins a tiling of such a picture. */
tiling tiling_of(size_t height, size_t width, size_t window, size_t overlap);

/* Cuts the picture into the fewest tiles with edges of at most `edge` pixels, rounded up to windows, and makes these tiles as
 * small as they may be.  False if such an edge is no longer than the overlap. */
bool tiling_set(tiling *t, size_t edge);

/* The largest edge, at most the picture's, of tiles that have no more than so many pixels; 0 if there is none. */
size_t tiling_edge(const tiling *t, size_t pixels);

/* Where tile `index` begins along an axis: 0, down, or 1, across. */
size_t tiling_begin(const tiling *t, int axis, size_t index);

/* How many pixels that tile has in common with the one before it. */
size_t tiling_common(const tiling *t, int axis, size_t index);

/* What the later of two tiles counts at pixel `i` of `common`; the earlier one counts the rest of 1. */
float tiling_share(size_t i, size_t common);

/* The pixel that lies at `i` on an axis of `length` pixels, which is continued by mirror images that do not repeat the edge. */
size_t tiling_mirrored(size_t i, size_t length);

#endif
