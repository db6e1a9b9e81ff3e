/* Bias of a product that another library has left in the workspace.
 *
 *   C[b,i,j] = sums[b,i,j] + bias[j]
 *
 * Buffers: sums[packed_offset + (b*m + i)*n + j] float32, bias[bias_offset + j*bias_col],
 * C[c.offset + b*c.batch + i*c.row + j*c.col] (args.h, matmul_args).
 *
 * | parameter          | meaning              | allowed       | tested  |
 * | C_TYPE, BIAS_TYPE  | storage types        | F32 F16 BF16  | F32     |
 *
 * NDRange: (n rounded up, m, batch); an item owns one element.  Local memory: none.  Barriers: none.
 * Needs nothing beyond OpenCL 1.2. */
#include "matmul/args.h"
#include "matmul/types.h"

kernel void matmul_bias(const global float *sums, const global ELEMENT(BIAS_TYPE) *bias, global ELEMENT(C_TYPE) *c,
                        matmul_args a)
{
    if (a.batch == 0)
        return;
    const long j = global_id(&a.part, 0), i = global_id(&a.part, 1), b = global_id(&a.part, 2);
    if (j < a.n && i < a.m)
        STORE(C_TYPE, c, a.c.offset + b * a.c.batch + i * a.c.row + j * a.c.col,
              sums[a.packed_offset + (b * a.m + i) * a.n + j] + LOAD(BIAS_TYPE, bias, a.bias_offset + j * a.bias_col));
}
