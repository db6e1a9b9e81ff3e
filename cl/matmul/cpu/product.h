/* What matmul_cpu multiplies at a time: a step of one k as floats, or, with PAIRS, of two neighbouring k as bfloat16.
 *
 *   packed_element, packedv                an element of a panel, and LANES of them
 *   K_STEP, STEPS(k)                       k that a step has, and steps that k have
 *   STEP_OF(TYPE, p, stride, whole)        a step from p on, whose k are `stride` apart; half a pair unless `whole`
 *   STEP_OF_LANES(TYPE, p, stride)         the same for LANES neighbours
 *   STEPS_OF_LANE(TYPE, p)                 LANES steps of k next to each other
 *   ADD_PRODUCT(x, y, acc)                 acc + the products of two steps
 *   STORE_SUMS(TYPE, p, i, x)              STOREV of such sums, before anything was added to them */
#ifndef CLATTN_CL_MATMUL_CPU_PRODUCT_H
#define CLATTN_CL_MATMUL_CPU_PRODUCT_H

#include "lib/fma.h"
#include "lib/rows.h"
#include "lib/storage.h"

#if PAIRS
#include "lib/bf16_pairs.h"

typedef uint packed_element;
typedef uintv packedv;
typedef whole_uintv whole_packedv;
#define AS_PACKEDV AS_UINTV
#define K_STEP 2
#define STEPS(k) ((k) / 2 + ((k) & 1))
#define STEP_OF(TYPE, p, stride, whole) pair_at(p, stride, whole)
#define STEP_OF_LANES(TYPE, p, stride) pairs_of_lanes(p, stride)
#define STEPS_OF_LANE(TYPE, p) pairs_of_row(p)
#define ADD_PRODUCT(x, y, acc) DOT2(acc, x, y)
#define STORE_SUMS_F32 STOREV_F32
#define STORE_SUMS_F16 STOREV_F16
#define STORE_SUMS_BF16(p, i, x) STORE_WHOLE(global whole_ushortv, (p) + (i), bf16_sums(x))
#define STORE_SUMS(TYPE, p, i, x) JOIN(STORE_SUMS_, TYPE)(p, i, x)
#else
typedef float packed_element;
typedef floatv packedv;
typedef whole_floatv whole_packedv;
#define AS_PACKEDV(x) (x)
#define K_STEP 1
#define STEPS(k) (k)
#define STEP_OF(TYPE, p, stride, whole) LOAD(TYPE, p, 0)
#define STEP_OF_LANES(TYPE, p, stride) LOADV(TYPE, p, 0)
#define STEPS_OF_LANE(TYPE, p) LOADV(TYPE, p, 0)
#define ADD_PRODUCT(x, y, acc) FMA(x, y, acc)
#define STORE_SUMS(TYPE, p, i, x) STOREV(TYPE, p, i, x)
#endif

#endif
