/* A step of Adam and AdamW, element by element.
 *
 *   g = gradient * scale;  if decay: g += decay * parameter       scale = gradient_scale * min(1, clip_norm / (norm + 1e-6)),
 *   m = beta1 * first_moment + fresh1 * g                         norm = |gradient_scale| * sqrt(squares)
 *   v = beta2 * second_moment + fresh2 * g * g
 *   p = parameter * shrink - step_size * m / (sqrt(v) * root_scale + epsilon)
 *
 * Element i of each array is at its offset + i; p, m and v replace what they are made of, and `stored` gets p, too.  If there is
 * `squares` and it is not finite, the kernel writes nothing.  Without clip_norm, scale is gradient_scale.
 *
 * Parameter     meaning                            allowed
 * G_TYPE        storage of the gradient            F32, F16, BF16
 * STORED        whether there is `stored`          0, 1
 * STORED_TYPE   its storage                        F16, BF16
 * SQUARES       whether there is `squares`         0, 1
 * LANES         vector width                       4, 8, 16
 * Tested: all.
 *
 * NDRange: (ceil(count / chunk) * W), local (W).  A work-group owns `chunk` neighbouring elements, and item l their vectors l,
 * l + W, ...: items that run together touch neighbouring memory.  Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "optimizer/args.h"
#include "lib/fma.h"
#include "lib/gather.h"

#ifndef G_TYPE
#define G_TYPE F32
#endif
#ifndef STORED
#define STORED 0
#endif
#ifndef STORED_TYPE
#define STORED_TYPE F16
#endif
#ifndef SQUARES
#define SQUARES 0
#endif

DEFINE_GATHER(gather_f32, F32)
DEFINE_GATHER(gather_gradient, G_TYPE)
DEFINE_SCATTER(scatter_f32, F32)
DEFINE_SCATTER(scatter_stored, STORED_TYPE)

ITEM_FUNCTION step_chunk(global float *parameter, const global ELEMENT(G_TYPE) *gradient, global float *first_moment,
                         global float *second_moment, global ELEMENT(STORED_TYPE) *stored, float scale, int first,
                         int step, int last, adam_args a)
{
    for (int i = first; i < last; i += step) {
        const int count = last - i;
        const floatv old = gather_f32(parameter, i, 1, true, count);
        floatv g = gather_gradient(gradient, i, 1, true, count) * scale;
        floatv m = gather_f32(first_moment, i, 1, true, count), v = gather_f32(second_moment, i, 1, true, count);

        if (a.decay != 0.0f)
            g = FMA((floatv)(a.decay), old, g);
        m = FMA((floatv)(a.fresh1), g, m * a.beta1);
        v = FMA(g * a.fresh2, g, v * a.beta2);
        const floatv p = old * a.shrink - a.step_size * m / (sqrt(v) * a.root_scale + a.epsilon);
        scatter_f32(first_moment, i, 1, true, count, m);
        scatter_f32(second_moment, i, 1, true, count, v);
        scatter_f32(parameter, i, 1, true, count, p);
        if (STORED)
            scatter_stored(stored, i, 1, true, count, p);
    }
}

kernel void adam(global float *parameter, const global ELEMENT(G_TYPE) *gradient, global float *first_moment,
                 global float *second_moment, global ELEMENT(STORED_TYPE) *stored, const global float *squares,
                 adam_args a)
{
    if (a.count == 0)
        return;

    const int chunk = (int)group_id(&a.part, 0) * a.chunk, last = chunk + min(a.count - chunk, a.chunk);
    float scale = a.gradient_scale;
    if (SQUARES) {
        const float sum = squares[a.squares];
        if (!(fabs(sum) <= FLT_MAX))
            return;
        if (a.clip_norm != 0.0f)
            scale *= fmin(1.0f, a.clip_norm / (fabs(a.gradient_scale) * sqrt(sum) + 1e-6f));
    }
    step_chunk(parameter + a.parameter, gradient + a.gradient, first_moment + a.first_moment,
               second_moment + a.second_moment, stored + a.stored, scale, chunk + (int)get_local_id(0) * LANES,
               (int)get_local_size(0) * LANES, last, a);
}
