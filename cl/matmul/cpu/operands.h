/* The two operands of a product whose lanes run along one of them: the lane operand, and the row operand.
 *
 *   LANES_ALONG_M                     0: B is the lane operand; 1: A is
 *   ROW_TYPE, LANE_TYPE               their storage types
 *   lane_operand(a), row_operand(a)   their layouts */
#ifndef CLATTN_CL_MATMUL_CPU_OPERANDS_H
#define CLATTN_CL_MATMUL_CPU_OPERANDS_H

#include "matmul/args.h"
#include "matmul/types.h"

#ifndef LANES_ALONG_M
#define LANES_ALONG_M 0
#endif
#if LANES_ALONG_M != 0 && LANES_ALONG_M != 1
#error "LANES_ALONG_M must be 0 or 1"
#endif

#if LANES_ALONG_M
#define ROW_TYPE B_TYPE
#define LANE_TYPE A_TYPE
#else
#define ROW_TYPE A_TYPE
#define LANE_TYPE B_TYPE
#endif

/* Element (index, k) of an operand lies at offset + b*batch + index*stride + k*k_stride; `count` indices exist. */
typedef struct operand_layout {
    long offset, batch, stride, k_stride;
    int count;
} operand_layout;

static inline operand_layout operand_a(const private matmul_args *a)
{
    operand_layout s = {a->a.offset, a->a.batch, a->a.row, a->a.col, a->m};
    return s;
}

static inline operand_layout operand_b(const private matmul_args *a)
{
    operand_layout s = {a->b.offset, a->b.batch, a->b.col, a->b.row, a->n};
    return s;
}

static inline operand_layout lane_operand(const private matmul_args *a)
{
    return LANES_ALONG_M ? operand_a(a) : operand_b(a);
}

static inline operand_layout row_operand(const private matmul_args *a)
{
    return LANES_ALONG_M ? operand_b(a) : operand_a(a);
}

#endif
