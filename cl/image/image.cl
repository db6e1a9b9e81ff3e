/* Images to arrays and back.
 *
 *   image_pack    A[y,x,(i*P + j)*C + c] = J[origin + (y,x) + (i,j) - P/2].c, coordinates clamped to the image
 *                 N[y,x] or N[y,x,c]     = norm_factor * sum of A[y,x,:]^2, of all of it or of each c
 *   image_unpack  J[origin + (y,x)].c    = A[y,x,c]; components beyond C are 0, alpha 1
 *
 * where J is the image, or its colours with straight alpha, in linear light, multiplied by a.matrix: pack converts in this
 * order, unpack in the reverse.  Element (y, x, c) of the array is offset + y*row + x*col +
 * c*channel; of the norm likewise.
 *
 * Parameters
 *   A_TYPE   storage of the array: F32 F16 BF16                                  (F32)
 *   NORM     image_pack has a norm: 0, 1 of the row, 2 of each component         (0)
 *   SRGB     the image's colours are encoded as sRGB: 0, 1                       (0)
 *   PREMULTIPLIED   the image's colours are multiplied by its alpha: 0, 1        (0)
 * Tested: all; channels 1 to 4, patches 1 to 31, images CL_FLOAT, CL_HALF_FLOAT, CL_UNORM_INT8 and _INT16, R, RG, RGBA
 * and BGRA.
 *
 * One program serves all image formats: read_imagef knows the format, and a.store tells it to unpack.  An absent norm may
 * be any buffer.
 * NDRange: (width, height), rounded up at will; an item owns one pixel of the region, all its patch and its norm.
 * Local memory: none.  Barriers: none.
 *
 * read_imagef and write_imagef alone would leave the rounding to the device (unorm within 0.6, half to even or
 * to zero), so unpack hands write_imagef numbers that the image holds exactly.  The norm is summed in float,
 * from what was stored, so that it is consistent with products of the stored rows.  Coordinates are clamped here,
 * not by the sampler, so that no driver decides what lies outside.
 *
 * Needs images (CL_DEVICE_IMAGE_SUPPORT); no solver does without. */
#include "image/args.h"
#include "image/colour.h"
#include "lib/fma.h"

#ifndef A_TYPE
#define A_TYPE F32
#endif
#ifndef NORM
#define NORM 0
#endif

#ifndef SRGB
#define SRGB 0
#endif
#ifndef PREMULTIPLIED
#define PREMULTIPLIED 0
#endif

#if NORM < 0 || NORM > 2
#error "NORM must be 0, 1 or 2"
#endif
#if LANES != 4
#error "a pixel has four lanes"
#endif

constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;

static inline float4 transformed(float4 v, const image_args *a)
{
    const float *m = a->matrix;

    if (!a->transform)
        return v;
    return (float4)(((m[0] * v.x + m[1] * v.y) + m[2] * v.z) + m[3], ((m[4] * v.x + m[5] * v.y) + m[6] * v.z) + m[7],
                    ((m[8] * v.x + m[9] * v.y) + m[10] * v.z) + m[11], v.w);
}

/* J's colours of the image's. */
static inline float4 from_image(float4 v, const image_args *a)
{
    const float alpha = v.w;
    if (PREMULTIPLIED)
        v = straight(v, (float4)(alpha));
    if (SRGB)
        v = srgb_decode(v);
    return transformed((float4)(v.xyz, alpha), a);
}

/* The image's colours of J's. */
static inline float4 to_image(float4 v, const image_args *a)
{
    v = transformed(v, a);
    const float alpha = v.w;
    if (SRGB)
        v = srgb_encode(v);
    if (PREMULTIPLIED)
        v = v * alpha;
    return (float4)(v.xyz, alpha);
}

kernel void image_pack(read_only image2d_t image, global ELEMENT(A_TYPE) *array, global float *norm, image_args a)
{
    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    if (a.batch == 0 || x >= a.width || y >= a.height)
        return;

    args_long at = a.array_offset + y * a.array_row + x * a.array_col;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < a.patch; i++)
        for (int j = 0; j < a.patch; j++) {
            const int px = clamp(a.origin_x + x + j - a.patch / 2, 0, a.image_width - 1);
            const int py = clamp(a.origin_y + y + i - a.patch / 2, 0, a.image_height - 1);
            float pixel[4];
            vstore4(from_image(read_imagef(image, nearest, (int2)(px, py)), &a), 0, pixel);
            for (int c = 0; c < a.channels; c++) {
                STORE(A_TYPE, array, at, pixel[c]);
                if (NORM) {
                    const float stored = LOAD(A_TYPE, array, at);
                    const int into = NORM == 2 ? c : 0;
                    sum[into] = FMA(stored, stored, sum[into]);
                }
                at += a.array_channel;
            }
        }
    if (NORM) {
        norm += a.norm_offset + y * a.norm_row + x * a.norm_col;
        for (int c = 0; c < (NORM == 2 ? a.channels : 1); c++)
            norm[c * a.norm_channel] = a.norm_factor * sum[c];
    }
}

/* The number that the image holds after v has been stored. */
static inline float stored_value(float v, const image_args *a)
{
    if (a->store == IMAGE_STORE_UNORM) {
        const float inside = v > 1.0f ? 1.0f : v > 0.0f ? v : 0.0f; /* NaN compares false: 0 */
        return rint(inside * a->levels) / a->levels;
    }
    if (a->store == IMAGE_STORE_HALF) {
        ushort rounded; /* a variable of type half needs cl_khr_fp16, a pointer to half does not */
        vstore_half_rte(v, 0, (half *)&rounded);
        return vload_half(0, (half *)&rounded);
    }
    return v;
}

kernel void image_unpack(write_only image2d_t image, const global ELEMENT(A_TYPE) *array, image_args a)
{
    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    if (a.batch == 0 || x >= a.width || y >= a.height)
        return;

    args_long at = a.array_offset + y * a.array_row + x * a.array_col;
    float pixel[4] = {0.0f, 0.0f, 0.0f, 1.0f};
    for (int c = 0; c < a.channels; c++) {
        pixel[c] = LOAD(A_TYPE, array, at);
        at += a.array_channel;
    }
    const float4 v = to_image(vload4(0, pixel), &a);
    write_imagef(image, (int2)(a.origin_x + x, a.origin_y + y),
                 (float4)(stored_value(v.x, &a), stored_value(v.y, &a), stored_value(v.z, &a), stored_value(v.w, &a)));
}
