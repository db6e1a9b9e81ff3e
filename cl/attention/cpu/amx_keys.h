/* What both of attention_cpu_amx's tiles of keys have in common, attention/cpu/amx_tile.h's of bfloat16 and
 * attention/cpu/amx_bf16x3.h's of split floats. */
#ifndef CLATTN_CL_ATTENTION_CPU_AMX_KEYS_H
#define CLATTN_CL_ATTENTION_CPU_AMX_KEYS_H

#include "attention/cpu/bf16_pairs.h"
#include "attention/cpu/keys.h"
#include "attention/cpu/softmax.h"
#include "engine/x86/amx_sums.h"
#include "engine/x86/weights.h"

#if BLOCK != 32 || KEY_TILE % 32 != 0 || GATHERED % KEY_TILE != 0
#error "AMX needs tiles of 32 keys and 32 queries"
#endif

#define KEY_STEPS (ROUND_UP(D_K, 32) / 32)
#define VALUE_COLUMNS ROUND_UP(D_V, 32)

/* What stays the same for all tiles of a work-item. */
typedef struct amx_call {
    const global ELEMENT(Q_TYPE) *query;
    const global ELEMENT(K_TYPE) *key;
    const global ELEMENT(V_TYPE) *value;
    const attention_args *a;
    const optional_arrays *arrays;
    float factor; /* what a dot product is multiplied by, in the maximum or at once */
    amx_state *amx;
    const struct amx_keys *keys; /* the gathered keys and values */
    floatv *s;                   /* S^T of a tile */
} amx_call;

#endif
