/* Conversions between floating-point element types, on the host. */
#ifndef CLATTN_BASE_CONVERT_H
#define CLATTN_BASE_CONVERT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "clattn/dtype.h"

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Has no branches, so that compilers make vectors of a loop over it.  Infinity and NaN move on to the largest exponent. */
static inline float float_of_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    const uint32_t small = bits_of_float((float)(int32_t)rest * 0x1p-24f), is_small = 0 - (uint32_t)(rest < 0x400);
    const uint32_t large = (rest << 13) + 0x38000000 + 0x38000000 * (uint32_t)(rest >= 0x7c00);
    return float_of_bits(sign | (small & is_small) | (large & ~is_small));
}

/* Rounded to nearest even. */
static inline uint16_t half_of_float(float value)
{
    const uint32_t bits = bits_of_float(value);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000) /* rounds to more than 65504 */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) /* subnormal: adding 0.5 leaves its 2^-24ths in the last bits, rounded */
        return (uint16_t)(sign | (bits_of_float(fabsf(value) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

static inline uint16_t bfloat_of_float(float value)
{
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element `index` of float32, float16 or bfloat16 data, which may be at any address. */
static inline float load_element(clattn_dtype dtype, const void *data, size_t index)
{
    uint16_t half;
    float value;
    if (dtype == CLATTN_DTYPE_F32) {
        memcpy(&value, (const char *)data + index * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)data + index * sizeof half, sizeof half);
    return dtype == CLATTN_DTYPE_F16 ? float_of_half(half) : float_of_bits((uint32_t)half << 16);
}

/* Elements `first` to first + count - 1.  gcc's -O2 makes vectors of loops with a constant count alone. */
static inline void load_elements(clattn_dtype dtype, const void *data, size_t first, size_t count, float *values)
{
    enum { TOGETHER = 16 };
    const char *from = (const char *)data + first * (dtype == CLATTN_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
    size_t i = 0;
    if (dtype == CLATTN_DTYPE_F32) {
        memcpy(values, from, count * sizeof *values);
        return;
    }
    for (; i + TOGETHER <= count; i += TOGETHER) {
        uint16_t halves[TOGETHER];
        float floats[TOGETHER];
        memcpy(halves, from + i * sizeof *halves, sizeof halves);
        if (dtype == CLATTN_DTYPE_F16)
            for (int j = 0; j < TOGETHER; j++)
                floats[j] = float_of_half(halves[j]);
        else
            for (int j = 0; j < TOGETHER; j++)
                floats[j] = float_of_bits((uint32_t)halves[j] << 16);
        memcpy(values + i, floats, sizeof floats);
    }
    for (; i < count; i++)
        values[i] = load_element(dtype, from, i);
}

static inline void store_element(clattn_dtype dtype, void *data, size_t index, float value)
{
    if (dtype == CLATTN_DTYPE_F32)
        ((float *)data)[index] = value;
    else
        ((uint16_t *)data)[index] = dtype == CLATTN_DTYPE_F16 ? half_of_float(value) : bfloat_of_float(value);
}

#endif
