/* What a convolution does to a vector of sums before it stores them.
 *
 *   activate_sums(x, a)    act(x), if there is an activation
 *   store_sums(y, operand, at, operand_at, step, operand_step, count, x, a)    stores the first `count` lanes of x from
 *                          element `at` of y on, `step` apart, with the operand, whose elements lie likewise
 *
 *   Y_TYPE, OPERAND_TYPE    storage types (F32 F16 BF16); tested: each */
#ifndef CLATTN_CL_CONV2D_STORE_H
#define CLATTN_CL_CONV2D_STORE_H

#include "conv2d/args.h"
#include "lib/activate.h"
#include "lib/rows.h"

#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef OPERAND_TYPE
#define OPERAND_TYPE F32
#endif

INLINE floatv activate_sums(floatv x, const conv2d_args *a)
{
    if (a->activation != ACTIVATION_NONE)
        return activated_sum(x, a->activation, a->alpha);
    return x;
}

INLINE void store_sums(global ELEMENT(Y_TYPE) *y, const global ELEMENT(OPERAND_TYPE) *operand, long at, long operand_at,
                       long step, long operand_step, int count, floatv x, const conv2d_args *a)
{
    if (a->operand_use) {
        floatv o;
        LOAD_ROW(OPERAND_TYPE, o, operand, operand_at, operand_step, count, 0.0f);
        if (a->operand_use == 2)
            x *= o;
        else
            x += o;
    }
    STORE_ROW(Y_TYPE, y, at, step, count, x);
}

#endif
