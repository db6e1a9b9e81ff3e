/* The description's macros, which attention/core.h explains: their defaults, and what follows from them. */
#ifndef CLATTN_CL_ATTENTION_FEATURES_H
#define CLATTN_CL_ATTENTION_FEATURES_H

#include "lib/storage.h"

#define TOKEN_IS_NONZERO_0 0
#define TOKEN_IS_NONZERO_1 1
#define TOKEN_IS_NONZERO_I32 1
#define TOKEN_IS_NONZERO_I64 1
#define GIVEN(TOKEN) JOIN(TOKEN_IS_NONZERO_, TOKEN)

#ifndef D_K
#define D_K 64
#endif
#ifndef D_V
#define D_V 64
#endif
#ifndef Q_TYPE
#define Q_TYPE F32
#endif
#ifndef K_TYPE
#define K_TYPE F32
#endif
#ifndef V_TYPE
#define V_TYPE F32
#endif
#ifndef O_TYPE
#define O_TYPE F32
#endif
#ifndef DOUBLE
#define DOUBLE 0
#endif
#ifndef KEY_GROUPS
#define KEY_GROUPS 0
#endif
#ifndef VALUE_GROUPS
#define VALUE_GROUPS 0
#endif
#ifndef KEY_SCALE_TYPE
#define KEY_SCALE_TYPE F32
#endif
#ifndef VALUE_SCALE_TYPE
#define VALUE_SCALE_TYPE F32
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef BIAS_TYPE
#define BIAS_TYPE F32
#endif
#ifndef ADDITIVE
#define ADDITIVE 0
#endif
#ifndef SOFTCAP
#define SOFTCAP 0
#endif
#ifndef ALIBI
#define ALIBI 0
#endif
#ifndef SINKS
#define SINKS 0
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef WINDOW
#define WINDOW 0
#endif
#ifndef DROPOUT
#define DROPOUT 0
#endif
#ifndef LSE
#define LSE 0
#endif
#ifndef ENTROPY
#define ENTROPY 0
#endif
#ifndef QUERY_LENGTHS
#define QUERY_LENGTHS 0
#endif
#ifndef KEY_LENGTHS
#define KEY_LENGTHS 0
#endif
#ifndef POSITIONS
#define POSITIONS 0
#endif
#ifndef QUERY_STARTS
#define QUERY_STARTS 0
#endif
#ifndef KEY_STARTS
#define KEY_STARTS 0
#endif
#ifndef BOTTOM_RIGHT
#define BOTTOM_RIGHT 0
#endif
#ifndef RING
#define RING 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef PAGED
#define PAGED 0
#endif
#ifndef PAGE_SIZE
#define PAGE_SIZE 16
#endif

#if D_K < 1 || D_V < 1 || PAGE_SIZE < 1
#error "D_K, D_V and PAGE_SIZE must be positive"
#endif
#if (KEY_GROUPS > 0 && D_K % KEY_GROUPS != 0) || (VALUE_GROUPS > 0 && D_V % VALUE_GROUPS != 0)
#error "scale groups must divide the head size"
#endif
#if RING && GIVEN(PAGED)
#error "a cache is a ring or paged"
#endif

#define BOOL_MASK (MASK && IS_BOOL(MASK_TYPE))
#define FLOAT_MASK (MASK && !IS_BOOL(MASK_TYPE))

/* Columns that share a scale. */
#define KEY_GROUP (KEY_GROUPS ? D_K / (KEY_GROUPS ? KEY_GROUPS : 1) : D_K)
#define VALUE_GROUP (VALUE_GROUPS ? D_V / (VALUE_GROUPS ? VALUE_GROUPS : 1) : D_V)

#if SPLIT
#undef O_TYPE
#define O_TYPE F32
#endif

#endif
