/* The activations that a kernel may be told of at run time, numbered as clattn_activation has them; the host shares this
 * file. */
#ifndef CLATTN_CL_LIB_ACTIVATION_KIND_H
#define CLATTN_CL_LIB_ACTIVATION_KIND_H

enum {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_SWISH,
    ACTIVATION_LEAKY_RELU
};

#endif
