/* Images to arrays and back on CPU devices: formulas as image/image.cl says, but the image's pixels are in a buffer.
 *
 *   image_pack_cpu     A, N = as image_pack, from raw
 *   image_unpack_cpu   raw  = as image_unpack
 *
 * The host copies the pixels that a band of rows needs from the image to `raw` before image_pack_cpu, or from there to the
 * image after image_unpack_cpu: a call of read_imagef or write_imagef takes 10 to 50 times as long as the rest of a pixel.
 * Pixel (y, x) of the image, a.raw_height rows and a.raw_width columns of them from (a.raw_y, a.raw_x) on, lies at byte
 *
 *   a.raw_offset + ((y - a.raw_y) * a.raw_width + x - a.raw_x) * a.components * a.component
 *
 * as its format says: `components` numbers of `component` bytes, in the order of memory.
 *
 * Parameter       meaning                                                       allowed
 * A_TYPE          storage of the array                                          F32 F16 BF16
 * CHANNELS        of the array                                                  1 to 4
 * PATCHES         image_pack_cpu has patches of more than a pixel               0, 1
 * IN_TURN         a pixel's channels lie in turn and pixels without gaps        0, 1
 * NORM            image_pack_cpu has a norm: 0, 1 of the row, 2 of each channel 0, 1, 2
 * SRGB            the image's colours are encoded as sRGB                       0, 1
 * PREMULTIPLIED   the image's colours are multiplied by its alpha               0, 1
 * PREFETCH_DISTANCE   elements between those that image_unpack_cpu reads and those that it prefetches; 0: no prefetch, for
 *                 compilers that may lack it
 * LANES           vector width                                                  4, 8, 16
 * Tested: all; formats as image_pack's; LANES 4 and the width of the machine at hand.
 *
 * NDRange: (work-groups of 1 item); an item owns height / groups neighbouring rows of the region, its lanes neighbouring
 * pixels, whose components are a vector each.
 * Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2 and, on the host, images.  image_pack and image_unpack take over on GPUs. */
#include "image/args.h"
#include "image/colour.h"
#include "image/interleave.h"
#include "lib/fma.h"
#include "lib/gather.h"

#ifndef A_TYPE
#define A_TYPE F32
#endif
#ifndef CHANNELS
#define CHANNELS 3
#endif
#ifndef PATCHES
#define PATCHES 0
#endif
#ifndef IN_TURN
#define IN_TURN 0
#endif
#ifndef NORM
#define NORM 0
#endif
#ifndef PREFETCH_DISTANCE
#define PREFETCH_DISTANCE 0
#endif
#ifndef SRGB
#define SRGB 0
#endif
#ifndef PREMULTIPLIED
#define PREMULTIPLIED 0
#endif

#if CHANNELS < 1 || CHANNELS > 4
#error "CHANNELS must be 1 to 4"
#endif
#if NORM < 0 || NORM > 2
#error "NORM must be 0, 1 or 2"
#endif

/* PoCL 3.1 does not unroll short loops by itself, and an array of vectors then lies in memory. */
#define UNROLLED _Pragma("unroll 4")
#define CONVERT(TYPE) JOIN(JOIN(convert_, TYPE), LANES)

/* ---- the image's pixels ---- */

#define WHOLE_PIXELS(type, bytes) typedef JOIN(type, LANES) JOIN(pixels_of_, bytes) __attribute__((aligned(bytes)))
WHOLE_PIXELS(uchar, 1);
WHOLE_PIXELS(ushort, 2);
WHOLE_PIXELS(uint, 4);
WHOLE_PIXELS(ulong, 8);

/* Takes the components of LANES neighbouring pixels apart: v[k] has the bits of number k, n of them of `component` bytes; both
 * are constants where this is called. */
static inline void load_pixels_of(uintv *v, const global uchar *p, int component, int n)
{
    if (component == 4) {
        const global float *from = (const global float *)p;
        floatv f[4] = {VLOAD(0, from), (floatv)(0.0f), (floatv)(0.0f), (floatv)(0.0f)};
        if (n > 1)
            f[1] = VLOAD(0, from + LANES);
        if (n > 2) {
            f[2] = VLOAD(0, from + 2 * LANES);
            f[3] = VLOAD(0, from + 3 * LANES);
        }
        separate(f, n);
        UNROLLED
        for (int k = 0; k < 4; k++)
            v[k] = AS_UINTV(f[k]);
    } else if (component == 2 && n == 4) {
        const ulongv word = *(const global pixels_of_8 *)p;
        v[0] = CONVERT(uint)(word & 0xffff);
        v[1] = CONVERT(uint)(word >> 16 & 0xffff);
        v[2] = CONVERT(uint)(word >> 32 & 0xffff);
        v[3] = CONVERT(uint)(word >> 48);
    } else {
        const int bytes = component * n, bits = 8 * component;
        const uintv word = bytes == 4   ? *(const global pixels_of_4 *)p
                           : bytes == 2 ? CONVERT(uint)(*(const global pixels_of_2 *)p)
                                        : CONVERT(uint)(*(const global pixels_of_1 *)p);
        const uint mask = (1u << bits) - 1;
        v[0] = word & mask;
        if (n > 1)
            v[1] = word >> (uint)bits & mask;
        if (n > 2) {
            v[2] = word >> (uint)(2 * bits) & mask;
            v[3] = word >> (uint)(3 * bits);
        }
    }
}

static inline void store_pixels_of(const uintv *v, global uchar *p, int component, int n)
{
    if (component == 4) {
        global float *to = (global float *)p;
        floatv f[4] = {AS_FLOATV(v[0]), AS_FLOATV(v[1]), AS_FLOATV(v[2]), AS_FLOATV(v[3])};
        interleave(f, n);
        STOREV(F32, to, 0, f[0]);
        if (n > 1)
            STOREV(F32, to, LANES, f[1]);
        if (n > 2) {
            STOREV(F32, to, 2 * LANES, f[2]);
            STOREV(F32, to, 3 * LANES, f[3]);
        }
    } else if (component == 2 && n == 4) {
        *(global pixels_of_8 *)p = CONVERT(ulong)(v[0] | v[1] << 16) | CONVERT(ulong)(v[2] | v[3] << 16) << 32;
    } else {
        const int bytes = component * n, bits = 8 * component;
        uintv word = v[0];
        if (n > 1)
            word |= v[1] << (uint)bits;
        if (n > 2)
            word |= v[2] << (uint)(2 * bits) | v[3] << (uint)(3 * bits);
        if (bytes == 4)
            *(global pixels_of_4 *)p = word;
        else if (bytes == 2)
            *(global pixels_of_2 *)p = CONVERT(ushort)(word);
        else
            *(global pixels_of_1 *)p = CONVERT(uchar)(word);
    }
}

/* Calls FUNCTION with the format as constants, so that v stays in registers. */
#define BY_COMPONENTS(FUNCTION, v, p, component, n) \
    do { \
        if ((n) == 4) \
            FUNCTION(v, p, component, 4); \
        else if ((n) == 2) \
            FUNCTION(v, p, component, 2); \
        else \
            FUNCTION(v, p, component, 1); \
    } while (0)
#define BY_FORMAT(FUNCTION, v, p, a) \
    do { \
        if ((a)->component == 1) \
            BY_COMPONENTS(FUNCTION, v, p, 1, (a)->components); \
        else if ((a)->component == 2) \
            BY_COMPONENTS(FUNCTION, v, p, 2, (a)->components); \
        else \
            BY_COMPONENTS(FUNCTION, v, p, 4, (a)->components); \
    } while (0)

static inline uint load_number(const global uchar *p, int k, const image_args *a)
{
    return a->component == 4 ? ((const global uint *)p)[k] : a->component == 2 ? ((const global ushort *)p)[k] : p[k];
}

static inline void store_number(uint v, global uchar *p, int k, const image_args *a)
{
    if (a->component == 4)
        ((global uint *)p)[k] = v;
    else if (a->component == 2)
        ((global ushort *)p)[k] = (ushort)v;
    else
        p[k] = (uchar)v;
}

/* Exchanges red and blue if they lie so in memory. */
static inline void order_colours(floatv *c, const image_args *a)
{
    if (a->blue_first) {
        const floatv blue = c[0];
        c[0] = c[2];
        c[2] = blue;
    }
}

/* Red, green, blue and alpha of the pixels x to x + LANES - 1 of a row of raw; x counts from its first, and is clamped. */
static inline void read_pixels(floatv *c, const global uchar *row, int x, const image_args *a)
{
    const int n = a->components, bytes = n * a->component;
    uintv bits[4] = {(uintv)(0), (uintv)(0), (uintv)(0), (uintv)(0)};

    if (x >= 0 && x <= a->raw_width - LANES) {
        BY_FORMAT(load_pixels_of, bits, row + (args_long)x * bytes, a);
    } else {
        uint lane[4][LANES];
        for (int l = 0; l < LANES; l++)
            for (int k = 0; k < 4; k++)
                lane[k][l] = k < n ? load_number(row + (args_long)clamp(x + l, 0, a->raw_width - 1) * bytes, k, a) : 0;
        UNROLLED
        for (int k = 0; k < 4; k++)
            bits[k] = VLOAD(0, lane[k]);
    }
    if (a->store == IMAGE_STORE_FLOAT) {
        UNROLLED
        for (int k = 0; k < 4; k++)
            c[k] = AS_FLOATV(bits[k]);
    } else if (a->store == IMAGE_STORE_HALF) {
        UNROLLED
        for (int k = 0; k < 4; k++)
            c[k] = f16_floatv(CONVERT(ushort)(bits[k]));
    } else {
        const float step = 1.0f / a->levels;
        UNROLLED
        for (int k = 0; k < 4; k++)
            c[k] = CONVERT(float)(AS_INTV(bits[k])) * step;
    }
    if (n < 4)
        c[3] = (floatv)(1.0f);
    order_colours(c, a);
}

/* Stores `count` pixels as the image holds them. */
static inline void write_pixels(floatv *c, global uchar *p, int count, const image_args *a)
{
    const int n = a->components;
    uintv bits[4];

    order_colours(c, a);
    UNROLLED
    for (int k = 0; k < 4; k++) {
        if (a->store == IMAGE_STORE_FLOAT) {
            bits[k] = AS_UINTV(c[k]);
        } else if (a->store == IMAGE_STORE_HALF) {
            bits[k] = CONVERT(uint)(f16_bitsv(c[k]));
        } else {
            const floatv positive = select((floatv)(0.0f), c[k], c[k] > 0.0f); /* NaN compares false: 0 */
            const floatv inside = select(positive, (floatv)(1.0f), positive > 1.0f);
            /* 2^23 + v is rounded to an integer, which is in the low bits; PoCL 3.1's rint takes 50 instructions. */
            bits[k] = AS_UINTV(inside * a->levels + 0x1p23f) & 0x7fffffu;
        }
    }
    if (count >= LANES) {
        BY_FORMAT(store_pixels_of, bits, p, a);
        return;
    }
    uint lane[4][LANES];
    UNROLLED
    for (int k = 0; k < 4; k++)
        VSTORE(bits[k], 0, lane[k]);
    for (int l = 0; l < count; l++)
        for (int k = 0; k < n; k++)
            store_number(lane[k][l], p + l * n * a->component, k, a);
}

/* ---- colours ---- */

static inline void transform(floatv *c, const image_args *a)
{
    const float *m = a->matrix;
    const floatv r = c[0], g = c[1], b = c[2];

    if (!a->transform)
        return;
    UNROLLED
    for (int i = 0; i < 3; i++)
        c[i] = ((m[4 * i] * r + m[4 * i + 1] * g) + m[4 * i + 2] * b) + m[4 * i + 3];
}

static inline void from_image(floatv *c, const image_args *a)
{
    UNROLLED
    for (int i = 0; i < 3; i++) {
        if (PREMULTIPLIED)
            c[i] = straight(c[i], c[3]);
        if (SRGB)
            c[i] = srgb_decode(c[i]);
    }
    transform(c, a);
}

static inline void to_image(floatv *c, const image_args *a)
{
    transform(c, a);
    UNROLLED
    for (int i = 0; i < 3; i++) {
        if (SRGB)
            c[i] = srgb_encode(c[i]);
        if (PREMULTIPLIED)
            c[i] = c[i] * c[3];
    }
}

/* ---- the array ---- */

DEFINE_GATHER(gather_a, A_TYPE)
DEFINE_SCATTER(scatter_a, A_TYPE)
DEFINE_SCATTER(scatter_norm, F32)

#define STORED_F32(x) (x)
#define STORED_F16(x) f16_floatv(f16_bitsv(x))
#define STORED_BF16(x) AS_FLOATV(JOIN(convert_int, LANES)(bf16_bitsv(x)) << 16)

static inline void store_channels(const floatv *c, global ELEMENT(A_TYPE) *p, int count, const image_args *a)
{
    if (IN_TURN && count >= LANES) {
        floatv v[4] = {c[0], c[1], c[2], c[3]};
        interleave(v, CHANNELS);
        UNROLLED
        for (int k = 0; k < CHANNELS; k++)
            STOREV(A_TYPE, p, k * LANES, v[k]);
        return;
    }
    UNROLLED
    for (int k = 0; k < CHANNELS; k++)
        scatter_a(p + k * a->array_channel, 0, a->array_col, a->array_col == 1, count, c[k]);
}

static inline void load_channels(floatv *c, const global ELEMENT(A_TYPE) *p, int count, const image_args *a)
{
    c[0] = c[1] = c[2] = (floatv)(0.0f);
    c[3] = (floatv)(1.0f);
    if (IN_TURN && count >= LANES) {
        UNROLLED
        for (int k = 0; k < CHANNELS; k++) {
#if PREFETCH_DISTANCE
            PREFETCH(p + PREFETCH_DISTANCE + k * LANES);
#endif
            c[k] = LOADV(A_TYPE, p, k * LANES);
        }
        separate(c, CHANNELS);
        return;
    }
    UNROLLED
    for (int k = 0; k < CHANNELS; k++)
        c[k] = gather_a(p + k * a->array_channel, 0, a->array_col, a->array_col == 1, count);
}

/* ---- rows ---- */

/* Packs `count` pixels from pixel x of row y on; count is LANES, as a constant, for all but the last of a row. */
static inline __attribute__((always_inline)) void pack_pixels(const global uchar *raw, global ELEMENT(A_TYPE) *array,
                                                              global float *norm, const image_args *a, int y, int x,
                                                              int count)
{
    const int patch = PATCHES ? a->patch : 1, margin = patch / 2;
    const args_long pitch = (args_long)a->raw_width * a->components * a->component;
    args_long at = a->array_offset + y * a->array_row + x * a->array_col;
    floatv sum[4] = {(floatv)(0.0f), (floatv)(0.0f), (floatv)(0.0f), (floatv)(0.0f)};

    for (int i = 0; i < patch; i++) {
        const int row = clamp(a->origin_y + y + i - margin - a->raw_y, 0, a->raw_height - 1);
        for (int j = 0; j < patch; j++) {
            floatv c[4];
            read_pixels(c, raw + a->raw_offset + row * pitch, a->origin_x + x + j - margin - a->raw_x, a);
            from_image(c, a);
            store_channels(c, array + at, count, a);
            at += CHANNELS * a->array_channel;
            UNROLLED
            for (int k = 0; k < (NORM ? CHANNELS : 0); k++) {
                const floatv stored = JOIN(STORED_, A_TYPE)(c[k]);
                const int into = NORM == 2 ? k : 0;
                sum[into] = FMA(stored, stored, sum[into]);
            }
        }
    }
    UNROLLED
    for (int k = 0; k < (NORM == 2 ? CHANNELS : NORM); k++)
        scatter_norm(norm + a->norm_offset + y * a->norm_row + x * a->norm_col + k * a->norm_channel, 0, a->norm_col,
                     a->norm_col == 1, count, a->norm_factor * sum[k]);
}

ITEM_FUNCTION pack_rows(const global uchar *raw, global ELEMENT(A_TYPE) *array, global float *norm, image_args a,
                        args_long first, args_long end)
{
    for (int y = (int)first; y < end; y++) {
        int x = 0;
        for (; x <= a.width - LANES; x += LANES)
            pack_pixels(raw, array, norm, &a, y, x, LANES);
        if (x < a.width)
            pack_pixels(raw, array, norm, &a, y, x, a.width - x);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void image_pack_cpu(const global uchar *raw, global ELEMENT(A_TYPE) *array, global float *norm, image_args a)
{
    if (a.batch == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.height, &end);
    pack_rows(raw, array, norm, a, first, end);
}

static inline __attribute__((always_inline)) void unpack_pixels(global uchar *raw, const global ELEMENT(A_TYPE) *array,
                                                                const image_args *a, int y, int x, int count)
{
    const args_long to = ((args_long)y * a->raw_width + x) * (a->components * a->component);
    floatv c[4];

    load_channels(c, array + a->array_offset + y * a->array_row + x * a->array_col, count, a);
    to_image(c, a);
    write_pixels(c, raw + a->raw_offset + to, count, a);
}

ITEM_FUNCTION unpack_rows(global uchar *raw, const global ELEMENT(A_TYPE) *array, image_args a, args_long first,
                          args_long end)
{
    for (int y = (int)first; y < end; y++) {
        int x = 0;
        for (; x <= a.width - LANES; x += LANES)
            unpack_pixels(raw, array, &a, y, x, LANES);
        if (x < a.width)
            unpack_pixels(raw, array, &a, y, x, a.width - x);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void image_unpack_cpu(global uchar *raw, const global ELEMENT(A_TYPE) *array, image_args a)
{
    if (a.batch == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.height, &end);
    unpack_rows(raw, array, a, first, end);
}
