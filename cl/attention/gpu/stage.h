/* Four columns of a row at a time on their way from global into local memory: which of them an item loads, as floats into registers,
 * and where it puts them when the products before have been computed.  CHUNK columns of a tile's rows lie in local memory column
 * by column, TILE + 4 floats apart.
 *
 * The functions that fill or empty an array of an item's loads are inlined by the front end, since PoCL 3.1 takes such an array
 * wrongly otherwise: float16 was wrong, int8 crashed. */
#ifndef CLATTN_CL_ATTENTION_GPU_STAGE_H
#define CLATTN_CL_ATTENTION_GPU_STAGE_H

#include "attention/gpu/shape.h"

/* Loads of an item for a chunk of `rows` rows. */
#define LOADS(rows) (((rows) * (CHUNK / 4) + ITEMS - 1) / ITEMS)

/* The row, of `rows`, and the column of a chunk where load number n begins; the column is beyond the chunk if there is none. */
static inline int tile_load_row(uint item, int n, int rows)
{
    return (int)((item + n * ITEMS) / 2 % (uint)rows);
}

static inline int tile_load_column(uint item, int n, int rows)
{
    return (int)((item + n * ITEMS) / 2 / (uint)rows * 8 + (item + n * ITEMS) % 2 * 4);
}

/* Whether four columns of a row, from a multiple of 4 on, are 16 aligned bytes of memory. */
static inline bool tile_has_quads(const global void *data, const array4 *array)
{
    return array->col == 1 &&
           (((size_t)data / 4 | (size_t)(array->offset | array->batch | array->head | array->row)) & 3) == 0;
}

/* Columns d to d + 3, as far as there are `width`, of a row that begins at p[at]. */
#define LOAD_COLUMN(TYPE, p, at, d, width) ((width) % 4 == 0 || (d) < (width) ? LOAD(TYPE, p, at) : 0.0f)
#define LOAD_QUAD(TYPE, to, p, at, move, d, width) \
    do { \
        const long step_ = move, at_ = (at) + (d) * step_; \
        to = (float4)(LOAD(TYPE, p, at_), LOAD_COLUMN(TYPE, p, at_ + step_, (d) + 1, width), \
                      LOAD_COLUMN(TYPE, p, at_ + 2 * step_, (d) + 2, width), \
                      LOAD_COLUMN(TYPE, p, at_ + 3 * step_, (d) + 3, width)); \
    } while (0)

/* The same, as one load if the row is float, its columns are whole fours and tile_has_quads says that it may. */
#define LOAD_WHOLE_QUAD(TYPE, to, p, at, move, d, width, quads) \
    do { \
        if (IS_F32(TYPE) && (width) % 4 == 0 && (quads)) \
            to = *(const global float4 *)((p) + (at) + (d)); \
        else \
            LOAD_QUAD(TYPE, to, p, at, move, d, width); \
    } while (0)

/* Stores what an item has loaded of a chunk of `rows` rows to to[column][row]. */
static inline __attribute__((always_inline)) void tile_put(local float *to, const float4 *next, uint item, int rows)
{
#pragma unroll
    for (int n = 0; n < LOADS(rows); n++) {
        const int d = tile_load_column(item, n, rows);
        local float *at = to + d * (rows + 4) + tile_load_row(item, n, rows);
        if (rows * (CHUNK / 4) % ITEMS && d >= CHUNK)
            continue;
        at[0] = next[n].x;
        at[rows + 4] = next[n].y;
        at[2 * (rows + 4)] = next[n].z;
        at[3 * (rows + 4)] = next[n].w;
    }
}

#endif
