/* Merges partial attentions: O[b,h,i,:] = sum_n exp(lse_n - L) P[n,b,h,i,:],  L = log(sum_n exp(lse_n) [+ exp(sink_h)]).
 *
 * Element (n, b, h, i, d) of the partials (float) is at partial.offset + n*step + b*batch + h*head + i*row + d*col, their
 * lse (float) the same without d; output and lse by their own strides.
 *
 * Parameters
 *   O_TYPE   storage of the output: F32 F16 BF16          (F32)
 *   SINKS    1: sinks has a logit for each head           (0)
 *   LSE      1: lse gets L (float)                        (0)
 *   CHUNK    output columns of a work-item, 1 and more    (16)
 * Tested: every combination of SINKS and LSE; CHUNK 4, 64; columns 1 to 200; 0 to 40 partials.
 *
 * NDRange: (ceil(columns / CHUNK), batch * heads * queries), each rounded up at will; any work-group.  An item owns CHUNK
 * columns of one row and walks the partials three times, in order: for the maximum of their lse, for the sum of their weights,
 * and for the weighted sum of their outputs.  The item of chunk 0 writes L.  Local memory: none.  Barriers: none.
 *
 * State is float.  Weights are divided by their sum before they multiply anything, so that partials up to FLT_MAX do not
 * overflow.  If the lse of a part is -inf, its output is not read; a NaN lse or sink makes the row NaN.  Absent arrays may be any
 * buffers; the kernel does not touch them. */
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

kernel void merge(const global float *partial, const global float *partial_lse, const global float *sinks,
                  global ELEMENT(O_TYPE) *output, global float *lse, merge_args a)
{
    if (a.batch == 0)
        return;

    const int first = (int)global_id(&a.part, 0) * CHUNK;
    const long row = (long)global_id(&a.part, 1);
    /* No %: beside / it becomes an LLVM freeze, which Oclgrind 21.10 does not know. */
    const long bh = row / a.queries, i = row - bh * a.queries, b = bh / a.heads, h = bh - b * a.heads;
    if (first >= a.columns || b >= a.batch)
        return;

    const int columns = min(CHUNK, a.columns - first);
    partial += a.partial.offset + b * a.partial.batch + h * a.partial.head + i * a.partial.row + first * a.partial.col;
    partial_lse += a.partial_lse.offset + b * a.partial_lse.batch + h * a.partial_lse.head + i * a.partial_lse.row;
    output += a.output.offset + b * a.output.batch + h * a.output.head + i * a.output.row + first * a.output.col;

    const float sink = SINKS ? sinks[a.sinks_offset + h * a.sinks_stride] : -INFINITY;
    float row_max = sink > -INFINITY ? sink : -INFINITY;
    for (int n = 0; n < a.partials; n++) {
        const float x = partial_lse[n * a.step_lse];
        row_max = x > row_max ? x : row_max;
    }
    const float subtracted = row_max == -INFINITY ? 0.0f : row_max; /* -inf - -inf would be a NaN */
    float row_sum = SINKS ? exp2s((sink - subtracted) * LOG2E) : 0.0f;
    for (int n = 0; n < a.partials; n++)
        row_sum += exp2s((partial_lse[n * a.step_lse] - subtracted) * LOG2E);

    const float inverse = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
    float o[CHUNK];
    for (int c = 0; c < CHUNK; c++)
        o[c] = 0.0f * inverse; /* NaN if the sink is, also where no part counts */
    for (int n = 0; n < a.partials; n++) {
        const float x = partial_lse[n * a.step_lse];
        if (x == -INFINITY)
            continue;
        const float weight = exp2s((x - subtracted) * LOG2E) * inverse;
        for (int c = 0; c < columns; c++)
            o[c] = FMA(weight, partial[n * a.step + c * a.partial.col], o[c]);
    }
    for (int c = 0; c < columns; c++)
        STORE(O_TYPE, output, c * a.output.col, o[c]);
    if (LSE && first == 0)
        lse[a.lse.offset + b * a.lse.batch + h * a.lse.head + i * a.lse.row] =
            row_sum == 0.0f ? -INFINITY : row_max + log(row_sum);
}
