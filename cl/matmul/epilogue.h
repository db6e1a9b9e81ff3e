/* What a matrix product does to a sum before it stores it:
 *
 *   C[b,i,j] = act(sum * b_scale[j] + bias[j])  (+ or *)  operand[b,i,j]
 *
 *   bias[j]          bias[a.bias_offset + j*a.bias_col]
 *   b_scale[j]       b_scale[a.scale_offset + j*a.scale_col], if B holds integers
 *   operand[b,i,j]   operand[a.operand.offset + b*a.operand.batch + i*a.operand.row + j*a.operand.col]; it may be C
 *                    itself, since an item reads only the elements that it stores, and reads them first
 *
 * Parameter         meaning                                                       allowed
 * OPTIONAL          1: BIAS and OPERAND only say that the kernel takes these arrays, and ACTIVATED is 0;           0, 1
 *                   a.has_bias, a.has_operand and a.activation say what counts.  So one program serves many
 *                   products; matmul/cpu/skinny.cl and, without PAIRS, matmul/cpu/packed.cl use it
 * BIAS, BIAS_TYPE   matmul/types.h
 * MATMUL_EPILOGUE   whether there is any of the following (matmul/args.h)         0, 1
 * B_SCALED          whether there is b_scale                                      0, 1
 * ACTIVATED         whether there is an activation; then ACTIVATION is the        0, 1
 *                   function (lib/activation.h)
 * OPERAND           0: none; 1: added; 2: multiplied                              0, 1, 2
 * OPERAND_TYPE      the operand's storage type                                    F32, F16, BF16
 *
 *   EPILOGUE_PARAMETERS         the kernel's parameters bias, b_scale and operand, if there are any; they stand before C
 *   EPILOGUE_ARGUMENTS          passes these on
 *   ACTIVATED_SUM(x, a)         act(x) of a floatv; with OPTIONAL only if HAS_ACTIVATION(a)
 *   ACTIVATED_ONE(x, a)         not with OPTIONAL: act(x) of a float, the first lane of a vector's; compilers for GPUs drop
 *                               the other lanes
 *   WITH_OPERAND(x, y)          x + y or x * y, as OPERAND says
 *   HAS_BIAS(a), HAS_ACTIVATION(a), HAS_OPERAND(a)   whether there is one */
#ifndef CLATTN_CL_MATMUL_EPILOGUE_H
#define CLATTN_CL_MATMUL_EPILOGUE_H

#include "lib/activate.h"
#include "lib/storage.h"
#include "matmul/types.h"

#ifndef OPTIONAL
#define OPTIONAL 0
#endif
#ifndef B_SCALED
#define B_SCALED 0
#endif
#ifndef ACTIVATED
#define ACTIVATED 0
#endif
#ifndef OPERAND
#define OPERAND 0
#endif
#ifndef OPERAND_TYPE
#define OPERAND_TYPE F32
#endif

#if (B_SCALED || ACTIVATED || OPERAND) && !MATMUL_EPILOGUE
#error "B_SCALED, ACTIVATED and OPERAND need MATMUL_EPILOGUE"
#endif
#if OPTIONAL && (ACTIVATED || !MATMUL_EPILOGUE)
#error "OPTIONAL needs MATMUL_EPILOGUE, and is told the activation"
#endif

#if BIAS
#define BIAS_PARAMETER const global ELEMENT(BIAS_TYPE) *bias,
#define BIAS_ARGUMENT bias,
#else
#define BIAS_PARAMETER
#define BIAS_ARGUMENT
#endif
#if B_SCALED
#define SCALE_PARAMETER const global float *b_scale,
#define SCALE_ARGUMENT b_scale,
#else
#define SCALE_PARAMETER
#define SCALE_ARGUMENT
#endif
#if OPERAND
#define OPERAND_PARAMETER const global ELEMENT(OPERAND_TYPE) *operand,
#define OPERAND_ARGUMENT operand,
#else
#define OPERAND_PARAMETER
#define OPERAND_ARGUMENT
#endif
#define EPILOGUE_PARAMETERS BIAS_PARAMETER SCALE_PARAMETER OPERAND_PARAMETER
#define EPILOGUE_ARGUMENTS BIAS_ARGUMENT SCALE_ARGUMENT OPERAND_ARGUMENT

#if OPTIONAL
#define ACTIVATED_SUM(x, a) activated_sum(x, (a).activation, (a).alpha)
#elif ACTIVATED
#define ACTIVATED_SUM(x, a) ACTIVATE(x, (a).alpha)
#define ACTIVATED_ONE(x, a) (ACTIVATE((floatv)(x), (a).alpha).s0)
#else
#define ACTIVATED_SUM(x, a) (x)
#define ACTIVATED_ONE(x, a) (x)
#endif

#if OPTIONAL
#define HAS_BIAS(a) ((a).has_bias)
#define HAS_ACTIVATION(a) ((a).activation != ACTIVATION_NONE)
#define HAS_OPERAND(a) ((a).has_operand)
#else
#define HAS_BIAS(a) BIAS
#define HAS_ACTIVATION(a) ACTIVATED
#define HAS_OPERAND(a) (OPERAND != 0)
#endif

#if OPERAND == 2
#define WITH_OPERAND(x, y) ((x) * (y))
#else
#define WITH_OPERAND(x, y) ((x) + (y))
#endif

#endif
