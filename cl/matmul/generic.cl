/* Matrix product, the solver that runs everything: one work-item for each element of C.
 *
 *   C[b,i,j] = sum_k A[b,i,k] * B[b,k,j]  (+ bias[j])  (and what matmul/epilogue.h says)
 *
 * Layouts: matmul/types.h.  Arguments: a, b, [bias], [b_scale], [operand], c, matmul_args.
 *
 *   macro                                meaning                     allowed          tested
 *   A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE    storage types; B also I8    F32 F16 BF16     each, and mixed
 *   BIAS                                 whether there is a bias     0, 1             both
 *   MATMUL_EPILOGUE ...                  matmul/epilogue.h                        each
 *
 * NDRange: dimension 0 column j, 1 row i, 2 batch item; any local size, and a global size that is
 * rounded up in dimensions 0 and 1 is fine.  Dimension 2 is exactly the batch.
 * Ownership: an item owns one element of C.  Local memory: none.  Barriers: none.
 * Accumulator: four float sums, k modulo 4 to each, by fma in rising k, added as (0+1)+(2+3), then the
 * bias; rounded once on storing.  k = 0 gives the bias or +0.  There is no masked value.
 * Features: OpenCL C 1.2 only.  Nobody takes over: this is the last solver. */
#include "matmul/args.h"
#include "lib/fma.h"
#include "matmul/epilogue.h"
#include "matmul/types.h"

kernel void matmul_generic(const global ELEMENT(A_TYPE) *a_data, const global ELEMENT(B_TYPE) *b_data,
                           EPILOGUE_PARAMETERS global ELEMENT(C_TYPE) *c_data, matmul_args a)
{
    if (a.batch == 0)
        return;

    const long j = global_id(&a.part, 0), i = global_id(&a.part, 1), batch = global_id(&a.part, 2);

    if (i >= a.m || j >= a.n)
        return;

    const global ELEMENT(A_TYPE) *x = a_data + a.a.offset + batch * a.a.batch + i * a.a.row;
    const global ELEMENT(B_TYPE) *y = b_data + a.b.offset + batch * a.b.batch + j * a.b.col;
    float sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;
    int k = 0;

    /* Four chains, because one waits for each fma's latency, and for a rounding error that grows with
     * a quarter of k. */
    for (; k + 4 <= a.k; k += 4) {
        sum0 = FMA(LOAD(A_TYPE, x, k * a.a.col), LOAD(B_TYPE, y, k * a.b.row), sum0);
        sum1 = FMA(LOAD(A_TYPE, x, (k + 1) * a.a.col), LOAD(B_TYPE, y, (k + 1) * a.b.row), sum1);
        sum2 = FMA(LOAD(A_TYPE, x, (k + 2) * a.a.col), LOAD(B_TYPE, y, (k + 2) * a.b.row), sum2);
        sum3 = FMA(LOAD(A_TYPE, x, (k + 3) * a.a.col), LOAD(B_TYPE, y, (k + 3) * a.b.row), sum3);
    }
    for (; k < a.k; k++)
        sum0 = FMA(LOAD(A_TYPE, x, k * a.a.col), LOAD(B_TYPE, y, k * a.b.row), sum0);

    float sum = (sum0 + sum1) + (sum2 + sum3);
#if B_SCALED
    sum *= b_scale[a.scale_offset + j * a.scale_col];
#endif
#if BIAS
    sum += LOAD(BIAS_TYPE, bias, a.bias_offset + j * a.bias_col);
#endif
    sum = ACTIVATED_ONE(sum, a);
#if OPERAND
    sum = WITH_OPERAND(sum, LOAD(OPERAND_TYPE, operand,
                                 a.operand.offset + batch * a.operand.batch + i * a.operand.row + j * a.operand.col));
#endif
    STORE(C_TYPE, c_data, a.c.offset + batch * a.c.batch + i * a.c.row + j * a.c.col, sum);
}
