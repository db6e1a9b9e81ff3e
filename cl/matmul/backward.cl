/* The elements between a matrix product and its gradients: the gradient of the sums, and that of the operand.
 *
 *   sums[t,i]              becomes  c_gradient[t,i] (* operand[t,i], if MULTIPLY) * act'(sums[t,i])
 *   operand_gradient[i]    =        sum_t c_gradient[t,i] (* act(sums[t,i]), if MULTIPLY)
 *
 * sums are float32.  i = (i0, i1, c) over (extent[0], extent[1], columns) and t over `summed`; (t, i) lies in each array at
 *   offset + t*batch + i0*head + i1*row + c*col
 *
 * Parameter                                          meaning                                     allowed
 * C_GRADIENT_TYPE, OPERAND_TYPE, OPERAND_GRADIENT_TYPE   storage                                 F32, F16, BF16
 * ACTIVATED                                          whether there is an activation; then        0, 1
 *                                                    ACTIVATION is the function (lib/activation.h)
 * READS_SUMS, WRITES_SUMS                            whether sums are there before, are wanted   0, 1
 * MULTIPLY                                           whether the operand is multiplied           0, 1
 * OPERAND_GRADIENT                                   whether that is wanted                      0, 1
 * UNIT_STRIDE                                        the cols of all four are 1                  0, 1
 * LANES                                              vector width                                4, 8, 16
 * Tested: LANES 4, 16; UNIT_STRIDE; each type; each combination that a description gives.
 *
 * NDRange: (pieces, rounded up at will); an item owns a piece, its lanes neighbouring columns.  Local memory: none.  Barriers:
 * none.  A sum over t has compensation and is rounded once on storing; the order is that of t, whatever the piece.
 * Needs OpenCL C 1.2. */
#include "matmul/args.h" /* first: it turns contraction off */
#include "activation/slope.h"
#include "lib/compensated.h"
#include "lib/gather.h"

#ifndef C_GRADIENT_TYPE
#define C_GRADIENT_TYPE F32
#endif
#ifndef OPERAND_TYPE
#define OPERAND_TYPE F32
#endif
#ifndef OPERAND_GRADIENT_TYPE
#define OPERAND_GRADIENT_TYPE F32
#endif
#ifndef ACTIVATED
#define ACTIVATED 1
#endif
#ifndef READS_SUMS
#define READS_SUMS 1
#endif
#ifndef WRITES_SUMS
#define WRITES_SUMS 1
#endif
#ifndef MULTIPLY
#define MULTIPLY 1
#endif
#ifndef OPERAND_GRADIENT
#define OPERAND_GRADIENT 1
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

#if !READS_SUMS && ((ACTIVATED && WRITES_SUMS) || (MULTIPLY && OPERAND_GRADIENT))
#error "these gradients are of the sums"
#endif

DEFINE_GATHER(gather_sums, F32)
DEFINE_GATHER(gather_c_gradient, C_GRADIENT_TYPE)
DEFINE_GATHER(gather_operand, OPERAND_TYPE)
DEFINE_SCATTER(scatter_sums, F32)
DEFINE_SCATTER(scatter_operand_gradient, OPERAND_GRADIENT_TYPE)

ITEM_FUNCTION run_piece(global float *sums, const global ELEMENT(C_GRADIENT_TYPE) *c_gradient,
                        const global ELEMENT(OPERAND_TYPE) *operand,
                        global ELEMENT(OPERAND_GRADIENT_TYPE) *operand_gradient, matmul_backward_args a,
                        args_long piece)
{
    const args_long row = piece / a.chunks, i0 = row / a.extent[1], i1 = row - i0 * a.extent[1];
    const int first = (int)(piece - row * a.chunks) * a.chunk, last = first + min(a.columns - first, a.chunk);

    sums += a.sums.offset + i0 * a.sums.head + i1 * a.sums.row;
    c_gradient += a.c_gradient.offset + i0 * a.c_gradient.head + i1 * a.c_gradient.row;
    operand += a.operand.offset + i0 * a.operand.head + i1 * a.operand.row;
    /* The operand's gradient comes first, because it needs the sums, whose memory their gradient takes.  They are loops of their
     * own, because AMD's compiler has too few registers for both. */
    for (int c = first; c < last; c += LANES) {
#if OPERAND_GRADIENT
        floatv sum = (floatv)(0.0f), lost = (floatv)(0.0f);
        for (int t = 0; t < a.summed; t++) {
            floatv of_operand =
                gather_c_gradient(c_gradient + t * a.c_gradient.batch, c, a.c_gradient.col, UNIT_STRIDE, last - c);
#if MULTIPLY && ACTIVATED
            const floatv s = gather_sums(sums + t * a.sums.batch, c, a.sums.col, UNIT_STRIDE, last - c);
            of_operand *= ACTIVATE(s, a.alpha);
#elif MULTIPLY
            of_operand *= gather_sums(sums + t * a.sums.batch, c, a.sums.col, UNIT_STRIDE, last - c);
#endif
            if (t == 0)
                sum = of_operand;
            else
                ADD_ANY(floatv, sum, lost, of_operand);
        }
        global ELEMENT(OPERAND_GRADIENT_TYPE) *const to =
            operand_gradient + a.operand_gradient.offset + i0 * a.operand_gradient.head + i1 * a.operand_gradient.row;
        scatter_operand_gradient(to, c, a.operand_gradient.col, UNIT_STRIDE, last - c, sum);
#endif
#if WRITES_SUMS
        for (int t = 0; t < a.summed; t++) {
            floatv g =
                gather_c_gradient(c_gradient + t * a.c_gradient.batch, c, a.c_gradient.col, UNIT_STRIDE, last - c);
#if MULTIPLY
            g *= gather_operand(operand + t * a.operand.batch, c, a.operand.col, UNIT_STRIDE, last - c);
#endif
#if ACTIVATED
            const floatv s = gather_sums(sums + t * a.sums.batch, c, a.sums.col, UNIT_STRIDE, last - c);
            g *= SLOPE(s, a.alpha);
#endif
            scatter_sums(sums + t * a.sums.batch, c, a.sums.col, UNIT_STRIDE, last - c, g);
        }
#endif
    }
}

kernel void matmul_backward(global float *sums, const global ELEMENT(C_GRADIENT_TYPE) *c_gradient,
                            const global ELEMENT(OPERAND_TYPE) *operand,
                            global ELEMENT(OPERAND_GRADIENT_TYPE) *operand_gradient, matmul_backward_args a)
{
    const args_long piece = (args_long)global_id(&a.part, 0);
    if (piece < a.pieces)
        run_piece(sums, c_gradient, operand, operand_gradient, a, piece);
}
