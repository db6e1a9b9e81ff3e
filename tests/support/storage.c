/* Element types on the host, by arithmetic on doubles rather than on bits, so that it shares nothing with the kernels. */
#include <math.h>
#include <string.h>

#include "support/harness.h"

/* A binary format: `digits` of significand, implicit one included, and the exponents of its smallest normal number and
 * of its largest binade. */
typedef struct binary_format {
    int digits, lowest, highest;
} binary_format;

static const binary_format half_format = {11, -14, 15}, bfloat_format = {8, -126, 127};

static double get_binary(const binary_format *format, uint16_t bits)
{
    int field = format->digits - 1;
    int exponent = (bits & 0x7fff) >> field, fraction = bits & ((1 << field) - 1);
    double magnitude;

    if (exponent == (0x7fff >> field)) {
        magnitude = fraction ? NAN : INFINITY;
    } else if (exponent == 0) {
        magnitude = ldexp(fraction, format->lowest - field);
    } else {
        magnitude = ldexp(fraction + (1 << field), exponent - 1 + format->lowest - field);
    }
    return copysign(magnitude, bits & 0x8000 ? -1 : 1);
}

/* The distance between neighbours around `value`. */
static double spacing(const binary_format *format, double value)
{
    int exponent = value == 0 ? format->lowest : ilogb(value);

    exponent = exponent < format->lowest ? format->lowest : exponent;
    exponent = exponent > format->highest ? format->highest : exponent;
    return ldexp(1, exponent - format->digits + 1);
}

static double round_binary(const binary_format *format, double value)
{
    if (value == 0 || !isfinite(value)) {
        return value;
    }
    double step = spacing(format, value);
    double rounded = copysign(rint(fabs(value) / step) * step, value); /* to even, as doubles are by default */
    return fabs(rounded) >= ldexp(1, format->highest + 1) ? copysign(INFINITY, value) : rounded;
}

static uint16_t bits_of(const binary_format *format, double value)
{
    int field = format->digits - 1;
    double rounded = round_binary(format, value), magnitude = fabs(rounded);
    int sign = signbit(value) ? 0x8000 : 0;

    if (isnan(value)) {
        return (uint16_t)(sign | 0x7fff >> field << field | 1 << (field - 1));
    }
    if (isinf(rounded)) {
        return (uint16_t)(sign | 0x7fff >> field << field);
    }
    if (magnitude < ldexp(1, format->lowest)) {
        return (uint16_t)(sign | (int)ldexp(magnitude, field - format->lowest));
    }
    int exponent = ilogb(magnitude);
    int fraction = (int)ldexp(magnitude, field - exponent) - (1 << field);
    return (uint16_t)(sign | (exponent - format->lowest + 1) << field | fraction);
}

static const binary_format *format_of(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F16 ? &half_format : dtype == CLATTN_DTYPE_BF16 ? &bfloat_format : NULL;
}

typedef union stored {
    float f32;
    double f64;
    uint16_t bits;
    uint8_t u8;
    int8_t i8;
    int32_t i32;
    int64_t i64;
} stored;

double storage_get(clattn_dtype dtype, const void *element)
{
    stored value;

    memcpy(&value, element, clattn_dtype_size(dtype));
    switch (dtype) {
    case CLATTN_DTYPE_F32: return value.f32;
    case CLATTN_DTYPE_F64: return value.f64;
    case CLATTN_DTYPE_F16:
    case CLATTN_DTYPE_BF16: return get_binary(format_of(dtype), value.bits);
    case CLATTN_DTYPE_BOOL: return value.u8 != 0;
    case CLATTN_DTYPE_U8: return value.u8;
    case CLATTN_DTYPE_I8: return value.i8;
    case CLATTN_DTYPE_I32: return value.i32;
    case CLATTN_DTYPE_I64: return (double)value.i64;
    default: fail_msg("no such element type: %d", (int)dtype);
    }
    return 0;
}

void storage_set(clattn_dtype dtype, void *element, double value)
{
    stored made = {0};

    switch (dtype) {
    case CLATTN_DTYPE_F32: made.f32 = (float)value; break;
    case CLATTN_DTYPE_F64: made.f64 = value; break;
    case CLATTN_DTYPE_F16:
    case CLATTN_DTYPE_BF16: made.bits = bits_of(format_of(dtype), value); break;
    case CLATTN_DTYPE_BOOL: made.u8 = value != 0; break;
    case CLATTN_DTYPE_U8: made.u8 = (uint8_t)value; break;
    case CLATTN_DTYPE_I8: made.i8 = (int8_t)value; break;
    case CLATTN_DTYPE_I32: made.i32 = (int32_t)value; break;
    case CLATTN_DTYPE_I64: made.i64 = (int64_t)value; break;
    default: fail_msg("no such element type: %d", (int)dtype);
    }
    memcpy(element, &made, clattn_dtype_size(dtype));
}

double storage_round(clattn_dtype dtype, double value)
{
    const binary_format *format = format_of(dtype);

    return format ? round_binary(format, value) : dtype == CLATTN_DTYPE_F32 ? (double)(float)value : value;
}

double storage_rounding(clattn_dtype dtype, double value)
{
    const binary_format *format = format_of(dtype);

    return format && isfinite(value) ? spacing(format, value) / 2 : 0;
}
