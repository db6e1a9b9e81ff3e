/* Random shapes of operators, the same for the benchmarks and the tests: bench/random_shapes.py gets them from `clattn
 * bench random`, tests/ops/random_shapes.c from this header.
 *
 * Shape `index` of a seed depends on these two numbers and the limits alone, on every machine, because all
 * arithmetic is in integers.  Operators alternate: attention, matmul, softmax, layernorm.  A size up to 2^b is
 * log-uniform: b' is drawn from 0 ... b and the size from 2^b' ... 2^(b'+1) - 1, cut off at 2^b, so that odd sizes
 * are as likely as even ones.  Head sizes are from 16 ... 256, every other time a multiple of 16; values are as long
 * as keys three times of four; one attention in four is causal.  Then the largest of the sizes, heads' sizes
 * excepted, is halved until the work is at most `most`, and the smallest is doubled, and 0 or 1 added, until the
 * work is at least `least`. */
#ifndef CLATTN_TOOL_BENCH_RANDOM_SHAPE_H
#define CLATTN_TOOL_BENCH_RANDOM_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum random_operator { RANDOM_ATTENTION, RANDOM_MATMUL, RANDOM_SOFTMAX, RANDOM_LAYERNORM } random_operator;
#define RANDOM_OPERATORS 4

/* The names of the operators, as `clattn bench` has them. */
extern const char *const random_operator_names[RANDOM_OPERATORS];

typedef struct random_shape {
    random_operator of;
    size_t rank;    /* entries of `size` that are used: 7, 3, 2, 2 */
    size_t size[7]; /* B,HQ,HKV,SQ,SKV,D,DV; M,N,K; R,C */
    bool causal;
} random_shape;

/* The work of a shape, in operations as `clattn bench` counts them, without causality; or this many for each element
 * of the arrays if that is more.  So memory is limited too, and shapes that are bound by memory reach `least` with
 * little computation. */
#define RANDOM_COST_AT_MOST 256
#define RANDOM_COST_AT_LEAST 16
typedef struct random_limits {
    /* `most` is from RANDOM_LEAST_MOST to RANDOM_MOST_MOST, `least` at most `most` / RANDOM_SPAN. */
    uint64_t least, most;
} random_limits;
#define RANDOM_SPAN 64
#define RANDOM_LEAST_MOST ((uint64_t)1 << 16)
#define RANDOM_MOST_MOST ((uint64_t)1 << 40)

random_shape random_shape_draw(uint64_t seed, uint64_t index, const random_limits *limits);

uint64_t random_shape_work(const random_shape *shape, uint64_t per_element);

#endif
