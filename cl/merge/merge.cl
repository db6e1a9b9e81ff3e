/* Merges partial attentions: O[b,h,i,:] = sum_n exp(lse_n - L) P[n,b,h,i,:],  L = log(sum_n exp(lse_n) [+ exp(sink_h)]).
 *
 * Element (n, b, h, i, d) of the partials (float) is at partial.offset + n*part + b*batch + h*head + i*row + d*col, their
 * lse (float) the same without d; output and lse by their own strides.
 *
 * Parameters
 *   O_TYPE   storage of the output: F32 F16 BF16          (F32)
 *   SINKS    1: an argument with a logit for each head    (0)
 *   LSE      1: an argument that gets L (float)           (0)
 *   CHUNK    output columns of a work-item, 1 and more    (16)
 * Tested: every combination of SINKS and LSE; CHUNK 4, 64; columns 1 to 200; 0 to 40 parts.
 *
 * NDRange: (ceil(columns / CHUNK), batch * heads * queries), each rounded up at will; any work-group.  An item owns CHUNK
 * columns of one row and walks the parts twice, in order: the maximum first, then the weighted sum.  The item of
 * chunk 0 writes L.  Local memory: none.  Barriers: none.
 *
 * State is float.  A part with lse -inf is skipped, its output not read; a NaN lse makes the row NaN. */
#include "merge/args.h"
#include "lib/storage.h"
#include "lib/exp2.h"

#ifndef O_TYPE
#define O_TYPE F32
#endif
#ifndef SINKS
#define SINKS 0
#endif
#ifndef LSE
#define LSE 0
#endif
#ifndef CHUNK
#define CHUNK 16
#endif
#if CHUNK < 1
#error "CHUNK must be positive"
#endif

kernel void merge(const global float *partial, const global float *partial_lse,
#if SINKS
                  const global float *sinks,
#endif
                  global ELEMENT(O_TYPE) *output,
#if LSE
                  global float *lse,
#endif
                  merge_args a)
{
    if (a.batch == 0)
        return;

    const int first = (int)get_global_id(0) * CHUNK;
    const long row = (long)get_global_id(1);
    /* No %: beside / it becomes an LLVM freeze, which Oclgrind 21.10 does not know. */
    const long bh = row / a.queries, i = row - bh * a.queries, b = bh / a.heads, h = bh - b * a.heads;
    if (first >= a.columns || b >= a.batch)
        return;

    const int columns = min(CHUNK, a.columns - first);
    partial += a.partial.offset + b * a.partial.batch + h * a.partial.head + i * a.partial.row + first * a.partial.col;
    partial_lse += a.partial_lse.offset + b * a.partial_lse.batch + h * a.partial_lse.head + i * a.partial_lse.row;
    output += a.output.offset + b * a.output.batch + h * a.output.head + i * a.output.row + first * a.output.col;

    float top = -INFINITY;
    float o[CHUNK];
#if SINKS
    const float sink = sinks[a.sinks_offset + h * a.sinks_stride];
    top = sink > top ? sink : top;
#endif
    for (int n = 0; n < a.parts; n++) {
        const float x = partial_lse[n * a.part_lse];
        top = x > top ? x : top;
    }
    const float safe = top == -INFINITY ? 0.0f : top;
    float total = 0.0f;
#if SINKS
    total = exp2s((sink - safe) * LOG2E);
#endif
    for (int c = 0; c < CHUNK; c++)
        o[c] = 0.0f;
    for (int n = 0; n < a.parts; n++) {
        const float x = partial_lse[n * a.part_lse];
        if (x == -INFINITY)
            continue;
        const float weight = exp2s((x - safe) * LOG2E);
        total += weight;
        for (int c = 0; c < columns; c++)
            o[c] = FMA(weight, partial[n * a.part + c * a.partial.col], o[c]);
    }
    const float factor = total == 0.0f ? 0.0f : 1.0f / total;
    for (int c = 0; c < columns; c++)
        STORE(O_TYPE, output, c * a.output.col, factor == 0.0f ? 0.0f : o[c] * factor);
#if LSE
    if (first == 0)
        lse[a.lse.offset + b * a.lse.batch + h * a.lse.head + i * a.lse.row] =
            total == 0.0f ? -INFINITY : top + log(total);
#endif
}
