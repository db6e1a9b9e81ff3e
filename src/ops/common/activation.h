/* The activation functions that operators and models share. */
#ifndef CLATTN_OPS_COMMON_ACTIVATION_H
#define CLATTN_OPS_COMMON_ACTIVATION_H

#include <stdint.h>

/* The name that cl/lib/activation.h gives the function (ACTIVATION=name); NULL if `activation` is no constant of
 * clattn_activation. */
const char *activation_name(uint32_t activation);

/* The alpha of a description that gives none: 1, and LEAKY_RELU's 0.01. */
float activation_default_alpha(uint32_t activation);

#endif
