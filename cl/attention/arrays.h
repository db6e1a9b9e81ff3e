/* The optional arrays that every attention kernel takes, in this order.  One that the description lacks is NULL, and
 * no kernel reads it. */
#ifndef CLATTN_CL_ATTENTION_ARRAYS_H
#define CLATTN_CL_ATTENTION_ARRAYS_H

#include "attention/features.h"

#define ELEMENT_0 int /* of lengths, starts, positions and pages that are absent */

/* The user's buffers: element type, and how user_data gets the buffer. */
#ifdef USER0
#define USER0_SET(arrays, a) .buffer0 = (arrays)->user0 + (a)->user_offset[0],
#else
#define USER0 int
#define USER0_SET(arrays, a)
#endif
#ifdef USER1
#define USER1_SET(arrays, a) .buffer1 = (arrays)->user1 + (a)->user_offset[1],
#else
#define USER1 int
#define USER1_SET(arrays, a)
#endif
#ifdef USER2
#define USER2_SET(arrays, a) .buffer2 = (arrays)->user2 + (a)->user_offset[2],
#else
#define USER2 int
#define USER2_SET(arrays, a)
#endif
#ifdef USER3
#define USER3_SET(arrays, a) .buffer3 = (arrays)->user3 + (a)->user_offset[3],
#else
#define USER3 int
#define USER3_SET(arrays, a)
#endif

#define OPTIONAL_ARRAY_LIST(DO) \
    DO(const global ELEMENT(MASK_TYPE) *, mask) \
    DO(const global ELEMENT(BIAS_TYPE) *, bias) \
    DO(const global float *, alibi) \
    DO(const global float *, sinks) \
    DO(const global float *, vector) \
    DO(const global ELEMENT(QUERY_LENGTHS) *, query_lengths) \
    DO(const global ELEMENT(KEY_LENGTHS) *, key_lengths) \
    DO(const global ELEMENT(POSITIONS) *, positions) \
    DO(const global ELEMENT(QUERY_STARTS) *, query_starts) \
    DO(const global ELEMENT(KEY_STARTS) *, key_starts) \
    DO(const global ELEMENT(PAGED) *, block_table) \
    DO(const global ELEMENT(KEY_SCALE_TYPE) *, key_scale) \
    DO(const global ELEMENT(VALUE_SCALE_TYPE) *, value_scale) \
    DO(const global USER0 *, user0) \
    DO(const global USER1 *, user1) \
    DO(const global USER2 *, user2) \
    DO(const global USER3 *, user3)
#define AS_PARAMETER(TYPE, NAME) TYPE NAME,
#define AS_MEMBER(TYPE, NAME) TYPE NAME;
#define AS_VALUE(TYPE, NAME) .NAME = NAME,
#define AS_ARGUMENT(TYPE, NAME) NAME,

#define OPTIONAL_ARRAY_PARAMETERS OPTIONAL_ARRAY_LIST(AS_PARAMETER)
#define OPTIONAL_ARRAY_ARGUMENTS OPTIONAL_ARRAY_LIST(AS_ARGUMENT)

typedef struct optional_arrays {
    OPTIONAL_ARRAY_LIST(AS_MEMBER)
} optional_arrays;
#define OPTIONAL_ARRAYS {OPTIONAL_ARRAY_LIST(AS_VALUE)}

#endif
