/* What a step of a packed product is: one k as a float, or, with PAIRS, two neighbouring k as bfloat16.
 *
 *   packed_element, packedv                an element of a panel, and LANES of them
 *   K_STEP, STEPS(k)                       how many k a step has, and how many steps k has
 *   STEP_OF(TYPE, p, stride, whole)        the step at p, whose k are `stride` apart; its second half is 0 unless `whole`
 *   STEP_OF_LANES(TYPE, p, stride)         the steps of LANES neighbours from p on
 *   STEPS_OF_LANE(TYPE, p)                 LANES steps whose k are neighbours from p on
 *   ADD_PRODUCT(x, y, acc)                 acc + the product of two steps
 *   STORE_SUMS(TYPE, p, i, x)              STOREV of sums to which nothing was added */
#ifndef CLATTN_CL_MATMUL_CPU_PRODUCT_H
#define CLATTN_CL_MATMUL_CPU_PRODUCT_H

#include "lib/bf16_pairs.h"
#include "lib/fma.h"
#include "lib/rows.h"
#include "lib/storage.h"

#if PAIRS
typedef uint packed_element;
typedef uintv packedv;
typedef whole_uintv whole_packedv;
#define AS_PACKEDV AS_UINTV
#define K_STEP 2
#define STEPS(k) ((k) / 2 + ((k) & 1))
#define STEP_OF(TYPE, p, stride, whole) pair_at(p, stride, whole)
#define STEP_OF_LANES(TYPE, p, stride) pairs_of_lanes(p, stride)
#define STEPS_OF_LANE(TYPE, p) pairs_of_row(p)
#define ADD_PRODUCT(x, y, acc) dot2(acc, x, y)
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
