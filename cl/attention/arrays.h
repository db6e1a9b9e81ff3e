/* The optional arrays of an attention kernel: parameters, members of attention_side, and its initialiser, in one order. */
#ifndef CLATTN_CL_ATTENTION_ARRAYS_H
#define CLATTN_CL_ATTENTION_ARRAYS_H

#include "attention/features.h"

#if MASK
#define MASK_LIST(DO) DO(const global ELEMENT(MASK_TYPE) *, mask)
#else
#define MASK_LIST(DO)
#endif
#if BIAS
#define BIAS_LIST(DO) DO(const global ELEMENT(BIAS_TYPE) *, bias)
#else
#define BIAS_LIST(DO)
#endif
#if ALIBI
#define ALIBI_LIST(DO) DO(const global float *, alibi)
#else
#define ALIBI_LIST(DO)
#endif
#if SINKS
#define SINKS_LIST(DO) DO(const global float *, sinks)
#else
#define SINKS_LIST(DO)
#endif
#if ADDITIVE
#define VECTOR_LIST(DO) DO(const global float *, vector)
#else
#define VECTOR_LIST(DO)
#endif
#if GIVEN(QUERY_LENGTHS)
#define QUERY_LENGTHS_LIST(DO) DO(const global ELEMENT(QUERY_LENGTHS) *, query_lengths)
#else
#define QUERY_LENGTHS_LIST(DO)
#endif
#if GIVEN(KEY_LENGTHS)
#define KEY_LENGTHS_LIST(DO) DO(const global ELEMENT(KEY_LENGTHS) *, key_lengths)
#else
#define KEY_LENGTHS_LIST(DO)
#endif
#if GIVEN(POSITIONS)
#define POSITIONS_LIST(DO) DO(const global ELEMENT(POSITIONS) *, positions)
#else
#define POSITIONS_LIST(DO)
#endif
#if GIVEN(QUERY_STARTS)
#define QUERY_STARTS_LIST(DO) DO(const global ELEMENT(QUERY_STARTS) *, query_starts)
#else
#define QUERY_STARTS_LIST(DO)
#endif
#if GIVEN(KEY_STARTS)
#define KEY_STARTS_LIST(DO) DO(const global ELEMENT(KEY_STARTS) *, key_starts)
#else
#define KEY_STARTS_LIST(DO)
#endif
#if GIVEN(PAGED)
#define BLOCK_TABLE_LIST(DO) DO(const global ELEMENT(PAGED) *, block_table)
#else
#define BLOCK_TABLE_LIST(DO)
#endif
#if KEY_GROUPS
#define KEY_SCALE_LIST(DO) DO(const global ELEMENT(KEY_SCALE_TYPE) *, key_scale)
#else
#define KEY_SCALE_LIST(DO)
#endif
#if VALUE_GROUPS
#define VALUE_SCALE_LIST(DO) DO(const global ELEMENT(VALUE_SCALE_TYPE) *, value_scale)
#else
#define VALUE_SCALE_LIST(DO)
#endif
#ifdef USER0
#define USER0_LIST(DO) DO(const global USER0 *, user0)
#define USER0_SET(side, a) .buffer0 = (side)->user0 + (a)->user_offset[0],
#else
#define USER0_LIST(DO)
#define USER0_SET(side, a)
#endif
#ifdef USER1
#define USER1_LIST(DO) DO(const global USER1 *, user1)
#define USER1_SET(side, a) .buffer1 = (side)->user1 + (a)->user_offset[1],
#else
#define USER1_LIST(DO)
#define USER1_SET(side, a)
#endif
#ifdef USER2
#define USER2_LIST(DO) DO(const global USER2 *, user2)
#define USER2_SET(side, a) .buffer2 = (side)->user2 + (a)->user_offset[2],
#else
#define USER2_LIST(DO)
#define USER2_SET(side, a)
#endif
#ifdef USER3
#define USER3_LIST(DO) DO(const global USER3 *, user3)
#define USER3_SET(side, a) .buffer3 = (side)->user3 + (a)->user_offset[3],
#else
#define USER3_LIST(DO)
#define USER3_SET(side, a)
#endif
#if CANCEL
#define CANCEL_LIST(DO) DO(const global int *, cancel)
#else
#define CANCEL_LIST(DO)
#endif
#if LSE
#define LSE_LIST(DO) DO(global float *, lse)
#else
#define LSE_LIST(DO)
#endif
#if ENTROPY
#define ENTROPY_LIST(DO) DO(global float *, entropy)
#else
#define ENTROPY_LIST(DO)
#endif

#define ATTENTION_SIDE_LIST(DO) \
    MASK_LIST(DO) \
    BIAS_LIST(DO) \
    ALIBI_LIST(DO) \
    SINKS_LIST(DO) \
    VECTOR_LIST(DO) \
    QUERY_LENGTHS_LIST(DO) \
    KEY_LENGTHS_LIST(DO) \
    POSITIONS_LIST(DO) \
    QUERY_STARTS_LIST(DO) \
    KEY_STARTS_LIST(DO) \
    BLOCK_TABLE_LIST(DO) \
    KEY_SCALE_LIST(DO) \
    VALUE_SCALE_LIST(DO) \
    USER0_LIST(DO) \
    USER1_LIST(DO) \
    USER2_LIST(DO) \
    USER3_LIST(DO) \
    CANCEL_LIST(DO)
#define AS_PARAMETER(TYPE, NAME) TYPE NAME,
#define AS_MEMBER(TYPE, NAME) TYPE NAME;
#define AS_ARGUMENT(TYPE, NAME) NAME,
#define AS_VALUE(TYPE, NAME) .NAME = NAME,

#define ATTENTION_SIDE_PARAMETERS ATTENTION_SIDE_LIST(AS_PARAMETER)
#define ATTENTION_RESULT_PARAMETERS LSE_LIST(AS_PARAMETER) ENTROPY_LIST(AS_PARAMETER)
#define ATTENTION_RESULT_ARGUMENTS LSE_LIST(AS_ARGUMENT) ENTROPY_LIST(AS_ARGUMENT)

typedef struct attention_side {
    ATTENTION_SIDE_LIST(AS_MEMBER)
    int none; /* a struct has a member */
} attention_side;
#define ATTENTION_SIDE {ATTENTION_SIDE_LIST(AS_VALUE).none = 0}

#endif
