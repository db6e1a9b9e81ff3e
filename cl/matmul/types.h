/* What the kernels of matrix products, C[b,i,j] = sum_k A[b,i,k] * B[b,k,j] (+ bias[j]), are compiled for.
 *
 * Layouts, with any strides in elements; 0 broadcasts an input (args: a.a, a.b, a.c; matmul/args.h)
 *   A[b,i,k]   a[a.a.offset + b*a.a.batch + i*a.a.row + k*a.a.col]
 *   B[b,k,j]   b[a.b.offset + b*a.b.batch + k*a.b.row + j*a.b.col]
 *   C[b,i,j]   c[a.c.offset + b*a.c.batch + i*a.c.row + j*a.c.col]
 *   bias[j]    bias[a.bias_offset + j*a.bias_col]
 *
 * Parameter                            meaning                    allowed
 * A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE    storage types              F32, F16, BF16
 * BIAS                                 whether there is a bias    0, 1 */
#ifndef CLATTN_CL_MATMUL_TYPES_H
#define CLATTN_CL_MATMUL_TYPES_H

#include "lib/storage.h"

#ifndef A_TYPE
#define A_TYPE F32
#endif
#ifndef B_TYPE
#define B_TYPE F32
#endif
#ifndef C_TYPE
#define C_TYPE F32
#endif
#ifndef BIAS_TYPE
#define BIAS_TYPE F32
#endif
#ifndef BIAS
#define BIAS 0
#endif

#if BIAS != 0 && BIAS != 1
#error "BIAS must be 0 or 1"
#endif

#endif
