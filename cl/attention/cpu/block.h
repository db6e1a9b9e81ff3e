/* The block of queries that a work-item of attention_cpu and attention_cpu_decode holds, and one of attention_cpu_amx several.
 *
 *   BLOCK                  its rows
 *   GROUPED                1: the rows are those of all query heads of a key head, query by query: row r
 *                          is query r / heads of head r % heads; 0: queries of one head */
#ifndef CLATTN_CL_ATTENTION_CPU_BLOCK_H
#define CLATTN_CL_ATTENTION_CPU_BLOCK_H

#include "attention/core.h"
#include "lib/rows.h"
#include "lib/vector.h"

#ifndef GROUPED
#define GROUPED 0
#endif

#define ROUND_UP(n, step) (((n) + (step) - 1) / (step) * (step))

typedef struct attention_block {
    attention_item item; /* of row 0's head */
    int rows;            /* how many it has */
    int live;            /* the first rows, those within the item's length */
    int last;            /* row live - 1's query, counted from row 0's */
    long first;          /* row 0's query */
#if GROUPED
    int query[BLOCK], head[BLOCK]; /* counted from row 0's query, from item.h */
#endif
} attention_block;

/* How many heads there are blocks of: block_of's y. */
INLINE int block_heads(const attention_args *a)
{
#if GROUPED
    return a->heads / a->group;
#else
    return a->heads;
#endif
}

/* A block without rows has nothing to do. */
INLINE void block_of(attention_block *block, int b, int y, int index, const attention_args *a,
                     const optional_arrays *arrays)
{
#if GROUPED
    const int heads = a->group;
#else
    const int heads = 1;
#endif
    const int first = index * BLOCK;
    const int first_query = first / heads;

    attention_item_of(&block->item, b, y * heads, a, arrays);
    block->first = first_query;
    block->rows = (int)clamp((long)min(a->query_length, block->item.rows) * heads - first, 0L, (long)BLOCK);
    block->live = (int)clamp((long)block->item.queries * heads - first, 0L, (long)block->rows);
    block->last = (first + max(block->live - 1, 0)) / heads - first_query;
#if GROUPED
    /* Counted, not divided: LLVM makes a `freeze` of a quotient and a remainder of the same numbers, which Oclgrind
     * 21.10's check for uninitialised memory does not know. */
    for (int r = 0, q = 0, h = first - first_query * heads; r < BLOCK; r++) {
        block->query[r] = q;
        block->head[r] = h++;
        if (h == heads) {
            h = 0;
            q++;
        }
    }
#endif
}

/* Row r's query and head, for indices r < rows. */
#if GROUPED
#define ROW_QUERY(block, r) ((block)->first + (block)->query[r])
#define ROW_HEAD(block, r) ((block)->item.h + (block)->head[r])
#define ROW_OFFSET(block, array, r) ((block)->query[r] * (array)->row + (block)->head[r] * (array)->head)
#else
#define ROW_QUERY(block, r) ((block)->first + (r))
#define ROW_HEAD(block, r) ((block)->item.h)
#define ROW_OFFSET(block, array, r) ((r) * (array)->row)
#endif

/* Lanes past the last live row repeat it. */
#define LIVE_ROW(block, r) min(r, (block)->live - 1)
#define LIVE_OFFSET(block, array, r) ROW_OFFSET(block, array, LIVE_ROW(block, r))

#endif
