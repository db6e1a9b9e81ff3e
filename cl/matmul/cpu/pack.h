/* Panels for matmul/cpu/packed.cl and matmul/cpu/amx.cl, and the kernel that copies one operand, the lane operand, into them
 * first.  It is in the program of the kernel that multiplies them: each program costs a start of its own.
 *
 *   packed[b,panel,step,lane]   packed[a.packed_offset + ((b*panels + panel)*steps + step)*PANEL + lane], with
 *              PANEL = LANES*LANE_VECTORS and panels = ceil(lanes/PANEL); lanes beyond the last one are 0.
 *              An element is a float and a step one k; or, with PAIRS, an element is two bfloat16 of neighbouring k, the
 *              first in the lower half, steps = ceil(k/2), and the second half of an odd k's last one is 0.
 *              b is 0 for the whole batch if the lane operand's batch stride is 0.
 *   Workspace: 4 * packed_batch * panels * PANEL * steps bytes; packed_batch is 1 if that stride is 0, else the batch.
 *
 * Arguments: matmul_pack(lane operand, packed, matmul_args)
 *
 *   macro           meaning                                                  allowed
 *   A_TYPE, B_TYPE  storage types                                            F32, F16, BF16
 *   LANES_ALONG_M   0: B is the lane operand; 1: A is                        0, 1
 *   PAIRS           1: two bfloat16 of neighbouring k at a time              0, 1
 *   LANES           floats of a vector (lib/vector.h)                        4, 8, 16
 *   LANE_VECTORS    vectors of a panel                                       1 and up
 *   PACK_DEPTH      steps that a work-item copies                            multiples of 16
 *
 * NDRange, groups of one item: 0 panels, 1 ceil(steps/PACK_DEPTH), 2 packed_batch; not launched if k is 0. */
#ifndef CLATTN_CL_MATMUL_CPU_PACK_H
#define CLATTN_CL_MATMUL_CPU_PACK_H

#include "matmul/args.h"
#include "matmul/cpu/operands.h"
#include "matmul/cpu/product.h"
#include "matmul/types.h"

#ifndef PACK_DEPTH
#define PACK_DEPTH 256
#endif
#define PANEL (LANES * LANE_VECTORS)

#if LANE_VECTORS < 1 || PACK_DEPTH < 1
#error "LANE_VECTORS and PACK_DEPTH must be at least 1"
#endif

/* The source is read in one of three ways: vectors are copied if its lanes are neighbours in memory, squares are transposed if
 * its k are, and otherwise elements are copied one by one.  The last loop also copies what is left of k and the last lanes. */
ITEM_FUNCTION pack(const global ELEMENT(LANE_TYPE) *source, global packed_element *packed, matmul_args a, long panel,
                   int block, long batch)
{
    const operand_layout s = lane_operand(&a);
    const int steps = STEPS(a.k), whole = a.k / K_STEP;
    const int from = block * PACK_DEPTH;
    const int to = min(steps, from + PACK_DEPTH);
    const long panels = (s.count + PANEL - 1) / PANEL;

    for (int v = 0; v < LANE_VECTORS; v++) {
        const int first = (int)panel * PANEL + v * LANES;
        const int lanes = clamp(s.count - first, 0, LANES);
        const global ELEMENT(LANE_TYPE) *in = source + s.offset + batch * s.batch + first * s.stride;
        global packed_element *out = packed + a.packed_offset + (batch * panels + panel) * steps * PANEL + v * LANES;
        int i = from;

        if (lanes == LANES && s.stride == 1) {
            for (; i < min(to, whole); i++)
                STORE_WHOLE(global whole_packedv, out + (long)i * PANEL,
                            STEP_OF_LANES(LANE_TYPE, in + i * K_STEP * s.k_stride, s.k_stride));
        } else if (lanes == LANES && s.k_stride == 1) {
            for (; i + LANES <= min(to, whole); i += LANES) {
                floatv t[LANES];

#pragma unroll
                for (int l = 0; l < LANES; l++)
                    t[l] = AS_FLOATV(STEPS_OF_LANE(LANE_TYPE, in + l * s.stride + i * K_STEP));
                transpose(t);
#pragma unroll
                for (int l = 0; l < LANES; l++)
                    STORE_WHOLE(global whole_packedv, out + (long)(i + l) * PANEL, AS_PACKEDV(t[l]));
            }
        }
        for (; i < to; i++)
            for (int l = 0; l < LANES; l++)
                out[(long)i * PANEL + l] =
                    l < lanes ? STEP_OF(LANE_TYPE, in + l * s.stride + i * K_STEP * s.k_stride, s.k_stride, i < whole)
                              : 0;
    }
}

kernel void matmul_pack(const global ELEMENT(LANE_TYPE) *source, global packed_element *packed, matmul_args a)
{
    if (a.batch != 0)
        pack(source, packed, a, group_id(&a.part, 0), (int)group_id(&a.part, 1), group_id(&a.part, 2));
}

#endif
