#include "ops/common/activation.h"

#include "base/size.h"
#include "clattn/activation.h"

const char *activation_name(uint32_t activation)
{
    static const char *const names[] = {
        [CLATTN_ACTIVATION_NONE] = "NONE",   [CLATTN_ACTIVATION_RELU] = "RELU",
        [CLATTN_ACTIVATION_GELU] = "GELU",   [CLATTN_ACTIVATION_GELU_TANH] = "GELU_TANH",
        [CLATTN_ACTIVATION_SWISH] = "SWISH", [CLATTN_ACTIVATION_LEAKY_RELU] = "LEAKY_RELU",
    };
    return activation < COUNT_OF(names) ? names[activation] : NULL;
}

float activation_default_alpha(uint32_t activation)
{
    return activation == CLATTN_ACTIVATION_LEAKY_RELU ? 0.01f : 1;
}
