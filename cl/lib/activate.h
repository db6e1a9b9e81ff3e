/* An activation that a kernel is told at run time, so that one program serves all of them.
 *
 *   activated_sum(x, activation, alpha)    act(x) of a floatv; `activation` is an ACTIVATION_... other than NONE.  All items
 *                                          of a launch take the same branch */
#ifndef CLATTN_CL_LIB_ACTIVATE_H
#define CLATTN_CL_LIB_ACTIVATE_H

#include "lib/activation.h"
#include "lib/activation_kind.h"

static inline floatv activated_sum(floatv x, int activation, float alpha)
{
    float_pair v;

    if (activation == ACTIVATION_RELU)
        return act_RELU(x, alpha);
    if (activation == ACTIVATION_LEAKY_RELU)
        return act_LEAKY_RELU(x, alpha);
    if (activation == ACTIVATION_GELU)
        return act_GELU(x, alpha);
    if (activation == ACTIVATION_SWISH)
        v = swish_argument(x, alpha);
    else
        v = gelu_tanh_argument(x);
    return times_sigmoid(x, v);
}

#endif
