#include "tool/run/random.h"

#include <math.h>
#include <string.h>

/* Rounds to nearest even.  A half of exponent e and significand q (1024 ... 2047) is e * 1024 + q: the bit above the
 * fraction adds one to the exponent, which is what makes subnormals fit in. */
static uint16_t half_bits(float value)
{
    int exponent;
    double size = fabs((double)value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    frexp(size, &exponent);
    int unit = exponent - 11 > -24 ? exponent - 11 : -24;
    long bits = (unit + 24) * 1024L + lrint(ldexp(size, -unit));
    return (uint16_t)(sign | (bits < 0x7c00 ? bits : 0x7c00));
}

static uint16_t bfloat_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int random_array(host_array *array, const char *name, clattn_dtype dtype, int32_t rank, const size_t *extent,
                 uint64_t seed, float limit)
{
    int status = host_describe(dtype, rank, extent, name, array);
    array->seed = seed;
    array->limit = limit;
    return status;
}

int random_make(host_array *array)
{
    const clattn_dtype dtype = array->tensor.dtype;
    const float limit = array->limit;
    uint64_t seed = array->seed;
    if (array->limit <= 0 || array->tensor.data != NULL)
        return TOOL_DONE;
    const host_array shape = *array;
    int status = host_allocate(dtype, shape.tensor.rank, shape.tensor.extent, shape.name, array);
    if (status != TOOL_DONE)
        return status;
    size_t count = array->tensor.bytes * 8 / clattn_dtype_bits(dtype);
    void *data = array->memory;
    for (size_t i = 0; i < count; i++) {
        float value = ((float)(random_next(&seed) >> 40) * 0x1p-23f - 1.0f) * limit;
        switch (dtype) {
        case CLATTN_DTYPE_F16: ((uint16_t *)data)[i] = half_bits(value); break;
        case CLATTN_DTYPE_BF16: ((uint16_t *)data)[i] = bfloat_bits(value); break;
        case CLATTN_DTYPE_I8: ((int8_t *)data)[i] = (int8_t)lrintf(value); break;
        case CLATTN_DTYPE_I4: ((uint8_t *)data)[i / 2] |= (uint8_t)(((unsigned)lrintf(value) & 15) << i % 2 * 4); break;
        case CLATTN_DTYPE_F64: ((double *)data)[i] = (double)value; break;
        default: ((float *)data)[i] = value;
        }
    }
    return TOOL_DONE;
}
