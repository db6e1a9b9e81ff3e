/* Rotary position embedding on every device: formula, arrays and storage types as rope/rope.h says.
 *
 * NDRange: batch * length * chunks * blocks work-groups of W items, chunks = heads / a.chunk and blocks = slots / W rounded
 * up, slots = pairs + (size - 2 * pairs).  Group ((b * length + s) * chunks + c) * blocks + k owns, of the heads of chunk
 * c at place s of batch item b, the slots from k * W on: item l the pair k * W + l or, from `pairs` on, an element to be
 * copied.  So the items of a group read neighbours, and a rotation serves all heads of a chunk.
 *
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "rope/rope.h"

kernel void rope_generic(ROPE_PARAMETERS)
{
    if (a.batch == 0)
        return;

    const int width = (int)get_local_size(0), slots = a.size - a.pairs;
    const int blocks = (slots - 1) / width + 1, chunks = (a.heads - 1) / a.chunk + 1;
    /* The group's index is computed from the item's: AMD's compiler holds get_group_id's in scalar registers, of
     * which gfx90a has too few. */
    const args_long group = (args_long)global_id(&a.part, 0) / width, chunked = group / blocks, row = chunked / chunks;
    const int slot = (int)(group - chunked * blocks) * width + (int)get_local_id(0);
    const int b = (int)(row / a.length), s = (int)(row - (args_long)b * a.length);
    const int first = (int)(chunked - row * chunks) * a.chunk, end = min(first + a.chunk, a.heads);
    if (slot >= slots)
        return;

    const global ELEMENT(X_TYPE) *from = x + a.x.offset + b * a.x.batch + s * a.x.row;
    global ELEMENT(Y_TYPE) *to = y + a.y.offset + b * a.y.batch + s * a.y.row;
    if (slot >= a.pairs) {
        const int d = slot + a.pairs;
        for (int h = first; h < end; h++)
            STORE(Y_TYPE, to, h * a.y.head + d * a.y.col, LOAD(X_TYPE, from, h * a.x.head + d * a.x.col));
        return;
    }

    const args_long position = rope_position(b, s, positions, offsets, &a);
    const args_long one = slot * (args_long)a.step, two = one + a.distance;
    float2 rotation = (float2)(NAN, NAN);
    if (a.table == ROPE_COMPUTED) {
        rotation = rope_rotation(position, rope_turn(slot, &a));
    } else if (!rope_misses(position, &a)) {
        rotation.x = LOAD(CACHE_TYPE, cosines, rope_row(&a.cos, b, s, position, &a) + slot * a.cos.col);
        rotation.y = LOAD(CACHE_TYPE, sines, rope_row(&a.sin, b, s, position, &a) + slot * a.sin.col);
    }
    if (BACKWARD)
        rotation.y = -rotation.y;
    for (int h = first; h < end; h++) {
        const float x1 = LOAD(X_TYPE, from, h * a.x.head + one * a.x.col);
        const float x2 = LOAD(X_TYPE, from, h * a.x.head + two * a.x.col);
        STORE(Y_TYPE, to, h * a.y.head + one * a.y.col, FMA(x1, rotation.x, -(x2 * rotation.y)));
        STORE(Y_TYPE, to, h * a.y.head + two * a.y.col, FMA(x1, rotation.y, x2 * rotation.x));
    }
}
