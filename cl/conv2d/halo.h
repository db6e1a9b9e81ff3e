/* Copies of what a tile of outputs needs of the picture, as floats in private memory, with zeros outside of the picture.
 *
 *   copy_halo(halo, x, a, y0, x0, channels, inner)   x is the picture's first channel to copy, (y0, x0) the tile's first
 *                                                    output; `inner` says which order the copy has:
 *      0: halo[(channel * height + position down) * width + position across]
 *      1: halo[((position down) * width + position across) * channels + channel]
 *   HALO_HEIGHT(a), HALO_WIDTH(a)                    positions of the copy
 *
 * conv2d/args.h says which input each position is.  X_TYPE is the picture's storage type (F32 F16 BF16). */
#ifndef CLATTN_CL_CONV2D_HALO_H
#define CLATTN_CL_CONV2D_HALO_H

#include "conv2d/args.h"
#include "lib/rows.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif

#define HALO_HEIGHT(a) ((a)->down.segments * (a)->down.length)
#define HALO_WIDTH(a) ((a)->across.segments * (a)->across.length)

/* Copies `count` elements that lie `step` apart. */
INLINE void copy_elements(private float *to, const global ELEMENT(X_TYPE) *from, long step, int count)
{
    if (step == 1 && count >= LANES) {
        int i = 0;
        for (; i < count - LANES; i += LANES)
            STORE_WHOLE(private whole_floatv, to + i, LOADV(X_TYPE, from, i));
        i = count - LANES; /* the last vector may overlap the one before */
        STORE_WHOLE(private whole_floatv, to + i, LOADV(X_TYPE, from, i));
    } else {
        for (int i = 0; i < count; i++)
            to[i] = LOAD(X_TYPE, from, i * step);
    }
}

INLINE void fill_zeros(private float *to, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = 0.0f;
}

/* Copies one piece of one row: positions first <= j < last are inside of the picture. */
INLINE void copy_piece(private float *to, const global ELEMENT(X_TYPE) *from, const conv2d_args *a, int first, int last,
                       int channels, int inner)
{
    const int length = a->across.length;
    const long step = a->across.step * a->x.col;

    if (inner) {
        fill_zeros(to, first * channels);
        if (a->x.head == 1 && step == channels)
            copy_elements(to + first * channels, from + first * step, 1, (last - first) * channels);
        else
            for (int j = first; j < last; j++)
                copy_elements(to + j * channels, from + j * step, a->x.head, channels);
        fill_zeros(to + last * channels, (length - last) * channels);
    } else {
        const int plane = HALO_HEIGHT(a) * HALO_WIDTH(a);
        for (int c = 0; c < channels; c++) {
          private
            float *row = to + c * plane;
            fill_zeros(row, first);
            copy_elements(row + first, from + c * a->x.head + first * step, step, last - first);
            fill_zeros(row + last, length - last);
        }
    }
}

INLINE void copy_halo(private float *halo, const global ELEMENT(X_TYPE) *x, const conv2d_args *a, int y0, int x0,
                      int channels, int inner)
{
    const long top = (long)y0 * a->down.stride - a->down.before, left = (long)x0 * a->across.stride - a->across.before;
    const int width = HALO_WIDTH(a), length = a->across.length, step = a->across.step;

    for (int i = 0; i < HALO_HEIGHT(a); i++) {
        const int piece = i / a->down.length;
        const long y = top + piece * (long)a->down.dilation + (i - piece * a->down.length) * (long)a->down.step;
        const int inside = y >= 0 && y < a->down.in;
        for (int s = 0; s < a->across.segments; s++) {
            const long begin = left + s * (long)a->across.dilation, behind = a->across.in - begin;
            const int last = inside && behind > 0 ? (int)min((long)length, (behind + step - 1) / step) : 0;
            const int first = begin < 0 ? (int)min((long)last, (step - 1 - begin) / step) : 0;
            copy_piece(halo + (i * width + s * length) * (inner ? channels : 1), x + y * a->x.row + begin * a->x.col, a,
                       first, last, channels, inner);
        }
    }
}

#endif
