/* What both of attention_cpu_amx's tiles of keys have in common, attention/cpu/amx_tile.h's of bfloat16 and
 * attention/cpu/amx_bf16x3.h's of float32.
 *
 *   FIND_ROWS(array), ROW_AT(array, j)   in a function that is told of keys start ... start + n - 1: where the j-th one's
 *                                        row of K or V begins */
#ifndef CLATTN_CL_ATTENTION_CPU_AMX_KEYS_H
#define CLATTN_CL_ATTENTION_CPU_AMX_KEYS_H

#include "engine/x86/amx_sums.h"
#include "attention/cpu/keys.h"
#include "attention/cpu/bf16_pairs.h"
#include "attention/cpu/softmax.h"
#include "engine/x86/weights.h"

#if BLOCK != 32 || KEY_TILE % 32 != 0 || GATHERED % KEY_TILE != 0
#error "AMX needs tiles of 32 keys and 32 queries"
#endif

#define KEY_STEPS (ROUND_UP(D_K, 32) / 32)
#define VALUE_COLUMNS ROUND_UP(D_V, 32)

#if TABLE
#define FIND_ROWS(array) \
    long rows[GATHERED]; \
    find_rows(rows, &a->array, start, n, item, a, side)
#define ROW_AT(array, j) rows[j]
#else
#define FIND_ROWS(array) const long first_row = attention_row(&a->array, item, start, a, side)
#define ROW_AT(array, j) (first_row + (j) * a->array.row)
#endif

#endif
