/* Every solver of products computes the gradients of a, b, bias and operand: of sizes around tiles, any strides, storage types,
 * batches, activations and operands, shorter at enqueue, and of nothing.
 *
 * Holds: what clattn/matmul.h says of CLATTN_DIRECTION_BACKWARD, the accuracy rule, that NaN and infinities stay where the
 * formulas take them, results that are the same in every bit from run to run and, of a and operand, whatever the batch; guard
 * bands; what is refused.  The tests' own gradients are held to central differences of the tests' own products. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/backward/matmul_case.h"

#define OF(...) .of = {__VA_ARGS__}
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16
#define ACT(name) .activation = CLATTN_ACTIVATION_##name
#define ADD .operand = OPERAND_ADD
#define MULTIPLY .operand = OPERAND_MULTIPLY

static const matmul_backward_case sizes[] = {
    {OF("one of everything", ALL, .m = 1, .n = 1, .k = 1, .bias = true)},
    {OF("one row", ALL, .m = 1, .n = 33, .k = 19, .bias = true)},
    {OF("one column", ALL, .m = 33, .n = 1, .k = 19, .bias = true)},
    {OF("inner size 1", ALL, .m = 17, .n = 33, .k = 1, .bias = true)},
    {OF("primes", ALL, .m = 7, .n = 13, .k = 11, .bias = true)},
    {OF("primes", BIG, .m = 97, .n = 83, .k = 61, .bias = true)},
    {OF("tile", BIG, .m = 64, .n = 64, .k = 64, .bias = true)},
    {OF("tile + 1", BIG, .m = 129, .n = 65, .k = 257, .bias = true)},
    {OF("rows in two products", BIG, .m = 4099, .n = 3, .k = 5, .bias = true)},
    {OF("rows in three products", BIG, .m = 10007, .n = 19, .k = 17, .bias = true)},
    {OF("10^5 rows", FULL, .m = 100003, .n = 5, .k = 7, .bias = true)},
    {OF("the gradient of a alone", ALL, .m = 7, .n = 13, .k = 11), .gradients = MATMUL_DA},
    {OF("the gradient of b alone", ALL, .m = 7, .n = 13, .k = 11), .gradients = MATMUL_DB},
    {OF("those of b and bias", ALL, .m = 7, .n = 13, .k = 11, ACT(GELU), .bias = true),
     .gradients = MATMUL_DB | MATMUL_DBIAS},
    {OF("no bias's gradient", ALL, .m = 7, .n = 13, .k = 11, ACT(SWISH), .bias = true), .gradients = MATMUL_DA},
};

static const matmul_backward_case forms[] = {
    {OF("B transposed", ALL, .m = 7, .n = 13, .k = 11, .b = FORM_TRANSPOSED), .form.b = FORM_TRANSPOSED},
    {OF("A transposed", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_TRANSPOSED), .form.a = FORM_TRANSPOSED},
    {OF("C transposed", ALL, .m = 7, .n = 13, .k = 11, .c = FORM_TRANSPOSED, ACT(GELU), .bias = true)},
    {OF("gaps", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED, ACT(SWISH),
        MULTIPLY, .operand_form = FORM_PADDED),
     .form = {FORM_PADDED, FORM_PADDED, FORM_PLAIN, FORM_PADDED}},
    {OF("columns apart", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD, .b = FORM_SPREAD, .c = FORM_SPREAD,
        ACT(SWISH), MULTIPLY, .bias = true, .bias_form = FORM_SPREAD, .operand_form = FORM_SPREAD),
     .form = {FORM_SPREAD, FORM_SPREAD, FORM_SPREAD, FORM_SPREAD}},
    {OF("backwards", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_FLIPPED, .b = FORM_MIRRORED, .c = FORM_MIRRORED,
        ACT(GELU), MULTIPLY, .bias = true, .bias_form = FORM_MIRRORED, .operand_form = FORM_FLIPPED),
     .form = {FORM_MIRRORED, FORM_FLIPPED, FORM_MIRRORED, FORM_MIRRORED}},
    {OF("one row of A for all", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_ROWS, .bias = true)},
    {OF("one gradient for all rows", ALL, .batch = 2, .m = 7, .n = 13, .k = 11, .c = FORM_SHARED_ROWS, ACT(GELU),
        .bias = true)},
    {OF("one row of an operand for all", ALL, .m = 7, .n = 13, .k = 11, MULTIPLY, .operand_form = FORM_SHARED_ROWS,
        .bias = true)},
};

static const matmul_backward_case batches[] = {
    {OF("each its B", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .bias = true)},
    {OF("each its B", BIG, .batch = 3, .m = 67, .n = 35, .k = 37, ACT(GELU), MULTIPLY, .bias = true)},
    {OF("each its B, rows in two products", BIG, .batch = 2, .m = 4099, .n = 3, .k = 5, .bias = true)},
    {OF("B shared", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .flat_b = true, .bias = true)},
    {OF("B of batch 1", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .shared_b = true, .bias = true, ACT(SWISH))},
    {OF("B of stride 0", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .b = FORM_SHARED_FIRST, .bias = true)},
    {OF("B shared, items apart", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_PADDED, .flat_b = true)},
    {OF("B shared, items apart", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .c = FORM_PADDED, .flat_b = true)},
    {OF("B shared, each operand", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .flat_b = true, MULTIPLY, .bias = true)},
    {OF("operand of batch 1", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, MULTIPLY, .shared_operand = true)},
    {OF("flat operand", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, ACT(GELU), MULTIPLY, .flat_operand = true)},
    {OF("operand of stride 0", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, ACT(GELU), MULTIPLY,
        .operand_form = FORM_SHARED_FIRST)},
    {OF("operand added", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, ADD)},
    {OF("flat operand, added", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, ADD, .flat_operand = true)},
    {OF("many items", BIG, .batch = 131, .m = 3, .n = 19, .k = 11, ACT(RELU), .flat_b = true, MULTIPLY,
        .flat_operand = true, .bias = true)},
    {OF("fewer at enqueue", ALL, .batch = 4, .m = 5, .n = 7, .k = 11, .shorter = true, .actual_batch = 3, .actual_m = 2,
        .inject = MATMUL_BEYOND, .bias = true)},
    {OF("fewer at enqueue, B shared", ALL, .batch = 4, .m = 5, .n = 7, .k = 11, .flat_b = true, .shorter = true,
        .actual_batch = 3, .actual_m = 2, .inject = MATMUL_BEYOND, .bias = true)},
    {OF("fewer items at enqueue, B shared", ALL, .batch = 4, .m = 5, .n = 7, .k = 11, .flat_b = true, .shorter = true,
        .actual_batch = 3, .actual_m = 5, .inject = MATMUL_BEYOND, ACT(GELU), .bias = true)},
    {OF("fewer at enqueue, flat operand", ALL, .batch = 4, .m = 5, .n = 7, .k = 11, .flat_b = true, ACT(SWISH),
        MULTIPLY, .flat_operand = true, .shorter = true, .actual_batch = 3, .actual_m = 2, .inject = MATMUL_BEYOND,
        .bias = true)},
    {OF("fewer rows at enqueue, in two products", BIG, .batch = 2, .m = 5003, .n = 7, .k = 11, .flat_b = true,
        .shorter = true, .actual_batch = 2, .actual_m = 4999, .inject = MATMUL_BEYOND, .bias = true)},
    {OF("one row at enqueue", ALL, .batch = 4, .m = 65, .n = 7, .k = 11, .flat_b = true, .shorter = true,
        .actual_batch = 1, .actual_m = 1, .inject = MATMUL_BEYOND, .bias = true)},
};

#define NOTHING(batch_, m_) .shorter = true, .actual_batch = (batch_), .actual_m = (m_)

static const matmul_backward_case empties[] = {
    {OF("no rows", ALL, .m = 0, .n = 7, .k = 11, .bias = true)},
    {OF("no columns", ALL, .m = 5, .n = 0, .k = 11, .bias = true)},
    {OF("no inner size", ALL, .m = 5, .n = 7, .k = 0, ACT(GELU), MULTIPLY, .bias = true)},
    {OF("no rows at enqueue: +0", ALL, .batch = 2, .m = 5, .n = 7, .k = 11, NOTHING(2, 0), ACT(GELU), MULTIPLY,
        .bias = true)},
    {OF("no rows at enqueue: +0", ALL, .batch = 2, .m = 5, .n = 7, .k = 11, .flat_b = true, NOTHING(2, 0),
        .bias = true)},
    {OF("no items at enqueue: +0", ALL, .batch = 2, .m = 5, .n = 7, .k = 11, .flat_b = true, NOTHING(0, 5), ACT(GELU),
        MULTIPLY, .flat_operand = true, .bias = true)},
    {OF("no items at enqueue", ALL, .batch = 2, .m = 5, .n = 7, .k = 11, NOTHING(0, 5), .bias = true)},
};

#define EACH(level_, ...) \
    {OF("ReLU", level_, ACT(RELU), __VA_ARGS__)}, {OF("GELU", level_, ACT(GELU), __VA_ARGS__)}, \
        {OF("GELU by tanh", level_, ACT(GELU_TANH), __VA_ARGS__)}, {OF("Swish", level_, ACT(SWISH), __VA_ARGS__)}, \
        {OF("Swish, alpha", level_, ACT(SWISH), .alpha = -1.7f, __VA_ARGS__)}, \
        {OF("LeakyReLU", level_, ACT(LEAKY_RELU), __VA_ARGS__)}, \
    { \
        OF("LeakyReLU, alpha", level_, ACT(LEAKY_RELU), .alpha = -0.7f, __VA_ARGS__) \
    }

static const matmul_backward_case activations[] = {
    EACH(ALL, .m = 7, .n = 19, .k = 11, .bias = true),
    EACH(BIG, .m = 97, .n = 83, .k = 61, .b = FORM_TRANSPOSED, ADD, .bias = true),
    EACH(ALL, .m = 5, .n = 19, .k = 3, MULTIPLY),
    EACH(BIG, .batch = 3, .m = 35, .n = 67, .k = 37, .flat_b = true, MULTIPLY, .flat_operand = true, .bias = true),
};

#define TYPES(x, y, z, w, o) .type = {x, y, z, w, o}
#define TO(x, y, w, o) .type = {x, y, w, o}

static const matmul_backward_case stored[] = {
    {OF("float16", ALL, TYPES(F16, F16, F16, F16, F16), .m = 17, .n = 35, .k = 19, .bias = true),
     TO(F16, F16, F16, F16)},
    {OF("float16, Swish", ALL, TYPES(F16, F16, F16, F16, F16), ACT(SWISH), MULTIPLY, .m = 17, .n = 35, .k = 19,
        .bias = true),
     TO(F16, F16, F16, F16)},
    {OF("bfloat16", ALL, TYPES(BF16, BF16, BF16, BF16, BF16), .m = 17, .n = 35, .k = 19, .bias = true),
     TO(BF16, BF16, BF16, BF16)},
    {OF("bfloat16, GELU", ALL, TYPES(BF16, BF16, BF16, BF16, BF16), ACT(GELU), MULTIPLY, .m = 17, .n = 35, .k = 19,
        .bias = true),
     TO(BF16, BF16, BF16, BF16)},
    {OF("bfloat16, gradients of weights float32", ALL, TYPES(BF16, BF16, BF16, 0, 0), .batch = 3, .m = 17, .n = 35,
        .k = 19, .flat_b = true, .bias = true),
     TO(BF16, 0, 0, 0)},
    {OF("bfloat16, batch that shares B", ALL, TYPES(BF16, BF16, BF16, 0, 0), .batch = 3, .m = 17, .n = 35, .k = 19,
        .flat_b = true, .bias = true),
     TO(BF16, BF16, BF16, 0)},
    {OF("float16, items apart", ALL, TYPES(F16, F16, F16, 0, 0), .batch = 3, .m = 17, .n = 35, .k = 19,
        .a = FORM_PADDED, .flat_b = true, .bias = true),
     TO(F16, F16, F16, 0), .form.b = FORM_SPREAD},
    {OF("each another", BIG, TYPES(F16, 0, BF16, F16, 0), ACT(GELU_TANH), MULTIPLY, .m = 97, .n = 83, .k = 61,
        .bias = true),
     TO(BF16, F16, 0, F16)},
};

static const matmul_backward_case values[] = {
    {OF("NaN in A: its column of A's alone", ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN, .bias = true)},
    {OF("NaN in A, GELU", ALL, .m = 7, .n = 13, .k = 11, ACT(GELU), .inject = MATMUL_A_NAN, .bias = true)},
    {OF("NaN in A, ReLU, operand", ALL, .m = 7, .n = 13, .k = 11, ACT(RELU), MULTIPLY, .inject = MATMUL_A_NAN)},
    {OF("Inf in A", ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_INF, .bias = true)},
    {OF("NaN in B", ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_B_NAN, .bias = true)},
    {OF("NaN in B, Swish", ALL, .batch = 2, .m = 7, .n = 13, .k = 11, .flat_b = true, ACT(SWISH), MULTIPLY,
        .inject = MATMUL_B_NAN, .bias = true)},
    {OF("Inf in the gradient: its row and column", ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_C_GRADIENT_INF,
        .bias = true)},
    {OF("Inf in the gradient, GELU, operand", ALL, .m = 7, .n = 13, .k = 11, ACT(GELU), MULTIPLY,
        .inject = MATMUL_C_GRADIENT_INF, .bias = true)},
    {OF("-Inf in the bias", ALL, .m = 7, .n = 13, .k = 11, ACT(SWISH), .inject = MATMUL_BIAS_INF, .bias = true)},
    {OF("NaN in the operand", ALL, .m = 7, .n = 13, .k = 11, ACT(GELU), MULTIPLY, .inject = MATMUL_OPERAND_NAN,
        .bias = true)},
};

/* It refuses activations and operands, so that the gradient of b is one product. */
static const matmul_backward_case clblast[] = {
    {OF("by CLBlast", FULL, .solvers = MATMUL_CLBLAST, .m = 37, .n = 35, .k = 19, ACT(GELU), .bias = true)},
    {OF("by CLBlast, fewer rows", FULL, .solvers = MATMUL_CLBLAST, .batch = 1, .m = 37, .n = 35, .k = 19,
        .shorter = true, .actual_batch = 1, .actual_m = 17, .inject = MATMUL_BEYOND, .bias = true)},
};

/* Programs of other solvers are told fewer rows than their plans were made for, too. */
#define EMULATED_MMA 128
static const matmul_backward_case engines[] = {
    {OF("by pairs", ALL, .solvers = MATMUL_CPU_BF16, TYPES(BF16, BF16, BF16, 0, 0), .batch = 2, .m = 17, .n = 35,
        .k = 19, .flat_b = true, .bias = true),
     .gradients = MATMUL_DA, TO(BF16, 0, 0, 0)},
    {OF("those of b and bias by pairs", ALL, .solvers = MATMUL_CPU_BF16, TYPES(BF16, BF16, BF16, 0, 0), .batch = 2,
        .m = 17, .n = 35, .k = 19, .a = FORM_TRANSPOSED, .b = FORM_TRANSPOSED, .shorter = true, .actual_batch = 2,
        .actual_m = 7, .inject = MATMUL_BEYOND, .bias = true),
     .gradients = MATMUL_DB | MATMUL_DBIAS, TO(BF16, 0, 0, 0)},
    {OF("by a matrix engine", BIG, .solvers = EMULATED_MMA, TYPES(F16, F16, F16, 0, 0), .batch = 2, .m = 37, .n = 35,
        .k = 19, .flat_b = true, .shorter = true, .actual_batch = 2, .actual_m = 21, .inject = MATMUL_BEYOND,
        .bias = true)},
};
static const matmul_backward_case amx[] = {
    {OF("by AMX", BIG, .solvers = MATMUL_CPU_AMX, .m = 67, .n = 35, .k = 50, ACT(GELU), MULTIPLY, .bias = true)},
    {OF("by AMX, fewer rows", BIG, .solvers = MATMUL_CPU_AMX, .batch = 3, .m = 431, .n = 35, .k = 50, .flat_b = true,
        .shorter = true, .actual_batch = 2, .actual_m = 17, .inject = MATMUL_BEYOND, .bias = true)},
};

/* ---- at random ---- */

#define MOST_RANDOM 32
static matmul_backward_case drawn[MOST_RANDOM];

static clattn_dtype any_type(random_stream *r)
{
    static const clattn_dtype types[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    return types[random_int(r, 0, 3)];
}

static array_form any_form(random_stream *r)
{
    static const array_form all[] = {FORM_PLAIN,   FORM_PLAIN,    FORM_PADDED,    FORM_SPREAD,
                                     FORM_FLIPPED, FORM_MIRRORED, FORM_TRANSPOSED};
    return all[random_int(r, 0, 6)];
}

static void draw(size_t count, int most)
{
    random_stream r = random_start(78);

    for (size_t i = 0; i < count; i++) {
        matmul_backward_case c = {OF("random", ALL, .batch = (size_t)random_int(&r, 0, 3),
                                     .m = (size_t)random_int(&r, 1, most), .n = (size_t)random_int(&r, 1, most),
                                     .k = (size_t)random_int(&r, 0, most))};
        matmul_case *of = &c.of;
        of->type.a = any_type(&r);
        of->type.b = any_type(&r);
        of->type.c = any_type(&r);
        of->type.bias = any_type(&r);
        of->type.operand = any_type(&r);
        of->a = any_form(&r);
        of->b = any_form(&r);
        of->c = any_form(&r);
        of->bias = random_int(&r, 0, 1);
        of->flat_b = random_int(&r, 0, 1);
        of->activation = (clattn_activation)random_int(&r, 0, CLATTN_ACTIVATION_LEAKY_RELU);
        of->alpha = random_int(&r, 0, 2) ? 0 : random_float(&r, -2, 2);
        of->operand = (matmul_operand)random_int(&r, 0, 2);
        of->operand_form = any_form(&r);
        of->flat_operand = random_int(&r, 0, 1);
        of->shorter = of->batch && random_int(&r, 0, 2) == 0;
        of->actual_batch = (size_t)random_int(&r, 0, (int)of->batch);
        of->actual_m = (size_t)random_int(&r, 0, (int)of->m);
        of->inject = of->shorter ? MATMUL_BEYOND : MATMUL_NOTHING;
        c.gradients = random_int(&r, 0, 1) ? 0 : (unsigned)random_int(&r, 0, 15) | MATMUL_DA;
        c.type.a = any_type(&r);
        c.type.b = any_type(&r);
        c.type.bias = any_type(&r);
        c.type.operand = any_type(&r);
        c.form.a = any_form(&r);
        c.form.b = any_form(&r);
        c.form.bias = random_int(&r, 0, 1) ? FORM_PLAIN : FORM_SPREAD;
        c.form.operand = any_form(&r);
        drawn[i] = c;
    }
}

/* ---- the reference ---- */

enum { M = 3, N = 4, K = 5 };

typedef struct point {
    double a[M * K], b[K * N], bias[N], operand[M * N];
} point;

static double loss(const matmul_backward_reference *r)
{
    double c[M * N], sum = 0;
    reference_matmul(M, N, K, r->a, r->b, N, 1, r->bias, false, c, NULL);
    for (int i = 0; i < M * N; i++) {
        const double y = reference_activation(r->activation, r->alpha, c[i]);
        sum += r->c_gradient[i] * (r->multiply ? y * r->operand[i] : y + r->operand[i]);
    }
    return sum;
}

static void is_difference(const matmul_backward_reference *r, double *moved, size_t count, const double *gradient)
{
    const double step = 1e-5;
    for (size_t i = 0; i < count; i++) {
        const double middle = moved[i];
        moved[i] = middle + step;
        const double above = loss(r);
        moved[i] = middle - step;
        const double below = loss(r);
        moved[i] = middle;
        assert_true(fabs((above - below) / (2 * step) - gradient[i]) < 1e-7);
    }
}

static void reference_is_the_derivative(void **state)
{
    random_stream stream = random_start(15);

    (void)state;
    for (int round = 0; round < 60; round++) {
        point at, slope = {{0}, {0}, {0}, {0}};
        double gradient[M * N], *numbers = (double *)&at;
        for (size_t i = 0; i < sizeof at / sizeof *numbers; i++)
            numbers[i] = (double)random_float(&stream, -2, 2);
        for (int i = 0; i < M * N; i++)
            gradient[i] = (double)random_float(&stream, -2, 2);
        const matmul_backward_reference r = {.m = M,
                                             .n = N,
                                             .k = K,
                                             .activation = (clattn_activation)(round % 6),
                                             .alpha = 1.3,
                                             .multiply = round % 2,
                                             .a = at.a,
                                             .b = at.b,
                                             .bias = at.bias,
                                             .operand = at.operand,
                                             .c_gradient = gradient,
                                             .a_gradient = slope.a,
                                             .b_gradient = slope.b,
                                             .bias_gradient = slope.bias,
                                             .operand_gradient = slope.operand};
        reference_matmul_backward(&r, false);
        is_difference(&r, at.a, M * K, slope.a);
        is_difference(&r, at.b, K * N, slope.b);
        is_difference(&r, at.bias, N, slope.bias);
        is_difference(&r, at.operand, M * N, slope.operand);
    }
}

/* ---- bits ---- */

static void same_bits(void **state)
{
    static const matmul_backward_case test = {OF("repeated", ALL, .batch = 2, .m = 67, .n = 35, .k = 19, .flat_b = true,
                                                 ACT(GELU), MULTIPLY, .bias = true, .flat_operand = true)};
    (void)state;
    for (size_t n = 0; n < 3; n++) {
        test_job job = {0};
        assert_true(matmul_backward_job(&job, &test, matmul_solvers[n], 1));
        job_run(&job, NULL);
        unsigned char *first = job_snapshot(&job);
        job_repeat(&job, first);
        free(first);
        job_release(&job);
    }
}

/* The gradient of a of an item is the same with fewer items around it. */
static void same_items(void **state)
{
    enum { BATCH = 4, ROWS = 5, DEPTH = 19, ITEM = ROWS * DEPTH };
    static const matmul_backward_case test = {
        OF("items", ALL, .batch = BATCH, .m = ROWS, .n = 35, .k = DEPTH, .flat_b = true, ACT(SWISH), MULTIPLY),
        .gradients = MATMUL_DA};
    float first[BATCH * ITEM], again[BATCH * ITEM];

    (void)state;
    for (size_t n = 0; n < 3; n++) {
        test_job job = {0};
        assert_true(matmul_backward_job(&job, &test, matmul_solvers[n], 1));
        job_run(&job, NULL);
        job_copy_output(&job, first);
        job.args.matmul.explicit_lengths = 1;
        job.args.matmul.m = ROWS;
        for (size_t batch = 1; batch < BATCH; batch++) {
            job.args.matmul.batch = batch;
            array_own(&job.output[0], (size_t[]){batch, ROWS, DEPTH});
            job_poison(&job);
            job_run(&job, NULL);
            job_copy_output(&job, again);
            assert_memory_equal(again, first, sizeof(float) * batch * ITEM);
        }
        job_release(&job);
    }
}

/* A workspace of exactly the plan's size with a band around it is enough. */
static void workspace_is_enough(void **state)
{
    enum { BAND = 64 * sizeof(float) };
    static const matmul_backward_case test = {OF("workspace", ALL, TYPES(BF16, BF16, BF16, 0, 0), .batch = 3, .m = 35,
                                                 .n = 67, .k = 37, .flat_b = true, ACT(GELU), MULTIPLY, .bias = true),
                                              TO(BF16, BF16, BF16, 0)};
    (void)state;
    for (size_t n = 0; n < 3; n++) {
        test_job job = {0};
        assert_true(matmul_backward_job(&job, &test, matmul_solvers[n], 1));
        job_run(&job, NULL);
        unsigned char *first = job_snapshot(&job);
        const size_t workspace = clattn_plan_workspace_size(job.plan), bytes = workspace + 2 * BAND;
        unsigned char *image = malloc(bytes);
        assert_non_null(image);
        memset(image, 0xa5, bytes);
        cl_mem own = new_buffer(clattn_context_opencl_context(device_context()), CL_MEM_READ_WRITE, bytes, image);
        job.args.matmul.workspace = clattn_binding_buffer(own, BAND);
        job_poison(&job);
        job_run(&job, NULL);
        unsigned char *again = job_snapshot(&job);
        assert_memory_equal(again, first, job_bytes(&job));
        read_buffer(clattn_context_queue(device_context()), own, bytes, image);
        for (size_t i = 0; i < BAND; i++) {
            assert_int_equal(image[i], 0xa5);
            assert_int_equal(image[bytes - 1 - i], 0xa5);
        }
        device_release_buffer(own);
        free(image);
        free(first);
        free(again);
        job_release(&job);
    }
}

/* ---- what is refused ---- */

static clattn_matmul_desc good_desc(void)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.a = desc.gradients.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 5});
    desc.b = desc.gradients.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){5, 4});
    desc.operand = desc.gradients.operand = desc.gradients.c =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 4});
    desc.operand_use = CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
    desc.bias = desc.gradients.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (size_t[]){4});
    desc.activation = CLATTN_ACTIVATION_GELU;
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(matmul, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_matmul_desc good = good_desc();
    const clattn_layout none = {0}, whole = good.gradients.c;
    clattn_layout *const gradients[] = {&good.gradients.a, &good.gradients.b, &good.gradients.c, &good.gradients.bias,
                                        &good.gradients.operand};

    (void)state;
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    good.gradients.c.stride[1] = 0; /* inputs may broadcast */
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    good.gradients.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){1, 5, 4});
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    good.gradients.a = good.gradients.b = good.gradients.bias = none;
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, c = whole);
    REFUSED(INVALID_ARGUMENT, prepack = 2);
    REFUSED(INVALID_ARGUMENT, prepack = 1);
    REFUSED(INVALID_ARGUMENT, activation = 99);
    REFUSED(INVALID_ARGUMENT, gradients.a = desc.gradients.b = desc.gradients.bias = desc.gradients.operand = none);
    REFUSED(INVALID_ARGUMENT, bias = none);
    REFUSED(INVALID_ARGUMENT, operand = (desc.operand_use = 0, none));
    REFUSED(INVALID_LAYOUT, a = none);
    REFUSED(INVALID_LAYOUT, b = none);
    REFUSED(INVALID_LAYOUT, gradients.c = none);
    REFUSED(INVALID_LAYOUT, gradients.c.extent[1] = 2);
    REFUSED(INVALID_LAYOUT, gradients.a.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, gradients.a.extent[2] = 4);
    REFUSED(INVALID_LAYOUT, gradients.a.rank = 1);
    REFUSED(INVALID_LAYOUT, gradients.a.stride[0] = 0);
    REFUSED(INVALID_LAYOUT, gradients.b.extent[0] = 4);
    REFUSED(INVALID_LAYOUT, gradients.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 5, 4}));
    REFUSED(INVALID_LAYOUT, b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 5, 4}));
    REFUSED(INVALID_LAYOUT, gradients.bias = whole);
    REFUSED(INVALID_LAYOUT, gradients.bias.extent[0] = 3);
    REFUSED(INVALID_LAYOUT, gradients.bias.stride[0] = 0);
    REFUSED(INVALID_LAYOUT, gradients.operand.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, gradients.operand.stride[1] = 0);
    REFUSED(UNSUPPORTED, gradients.a.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.b.dtype = CLATTN_DTYPE_I8);
    REFUSED(UNSUPPORTED, gradients.c.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.bias.dtype = CLATTN_DTYPE_I32);
    REFUSED(UNSUPPORTED, gradients.operand.dtype = CLATTN_DTYPE_BOOL);
    REFUSED(UNSUPPORTED, b.dtype = (desc.b_scale = desc.bias, CLATTN_DTYPE_I8));
    for (size_t i = 0; i < COUNT_OF(gradients); i++) { /* forward has none */
        good = good_desc();
        const clattn_layout one = *gradients[i];
        good.direction = CLATTN_DIRECTION_FORWARD;
        good.c = whole;
        memset(&good.gradients, 0, sizeof good.gradients);
        operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
        *gradients[i] = one;
        operator_answers(&matmul_operator, &good, CLATTN_ERROR_INVALID_ARGUMENT);
    }
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(matmul, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    static const matmul_backward_case test = {
        OF("refused", ALL, .batch = 2, .m = 3, .n = 4, .k = 5, ACT(GELU), MULTIPLY, .bias = true)};
    const clattn_binding none = {0};
    test_job job = {0};

    (void)state;
    assert_true(matmul_backward_job(&job, &test, "generic", 1));
    clattn_matmul_args good = job.args.matmul;
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_lengths = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_lengths = 1, 3));
    REFUSED_ARGS(INVALID_ARGUMENT, m = (args.explicit_lengths = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, prepack = CLATTN_PREPACK_PACK);
    REFUSED_ARGS(INVALID_ARGUMENT, c = good.a);
    REFUSED_ARGS(INVALID_ARGUMENT, b_scale = good.a);
    REFUSED_ARGS(INVALID_ARGUMENT, a = none);
    REFUSED_ARGS(INVALID_ARGUMENT, b = none);
    REFUSED_ARGS(INVALID_ARGUMENT, bias = none);
    REFUSED_ARGS(INVALID_ARGUMENT, operand = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.a = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.b = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.c = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.bias = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.operand = none);
    REFUSED_ARGS(BUFFER_TOO_SMALL, a.offset = 100);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.a.offset = 100);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.c.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.a = good.a);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.operand = good.operand);
    operator_needs_both(&matmul_operator, job.plan, &good);
    clattn_plan_release(&job.plan); /* of a forward plan no gradient may be bound */
    clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_F32, 3, 4, 5);
    job.plan = operator_plan(&matmul_operator, &desc, NULL);
    const clattn_binding bound = good.a;
    clattn_matmul_args forward = CLATTN_MATMUL_ARGS_INIT;
    forward.explicit_lengths = 1; /* of nothing, so that only what is bound counts */
    OPERATOR_REFUSES_ARGS(matmul, job.plan, INVALID_ARGUMENT, forward, gradients.a = bound);
    OPERATOR_REFUSES_ARGS(matmul, job.plan, INVALID_ARGUMENT, forward, gradients.b = bound);
    OPERATOR_REFUSES_ARGS(matmul, job.plan, INVALID_ARGUMENT, forward, gradients.c = bound);
    OPERATOR_REFUSES_ARGS(matmul, job.plan, INVALID_ARGUMENT, forward, gradients.bias = bound);
    OPERATOR_REFUSES_ARGS(matmul, job.plan, INVALID_ARGUMENT, forward, gradients.operand = bound);
    job_release(&job);
}

/* What the gradients are not made of may be unbound: without an activation that is everything but one factor. */
static void unneeded_arrays(void **state)
{
    static const matmul_backward_case tests[] = {
        {OF("of a", ALL, .m = 3, .n = 4, .k = 5, ADD, .bias = true), .gradients = MATMUL_DA},
        {OF("of b", ALL, .m = 3, .n = 4, .k = 5, ADD, .bias = true), .gradients = MATMUL_DB},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        test_job job = {0};
        assert_true(matmul_backward_job(&job, &tests[i], "generic", 1));
        job_run(&job, NULL);
        unsigned char *first = job_snapshot(&job);
        clattn_matmul_args *args = &job.args.matmul;
        *(i ? &args->b : &args->a) = args->bias = args->operand = (clattn_binding){0};
        job_poison(&job);
        job_run(&job, NULL);
        unsigned char *again = job_snapshot(&job);
        assert_memory_equal(again, first, job_bytes(&job));
        free(first);
        free(again);
        job_release(&job);
    }
}

int main(int argc, char **argv)
{
    const size_t random_count = by_level(6, 8, 12, MOST_RANDOM);

    suite_add(reference_is_the_derivative, "matmul backward: the reference is the derivative of forward's");
    matmul_backward_add(sizes, COUNT_OF(sizes));
    matmul_backward_add(forms, COUNT_OF(forms));
    matmul_backward_add(batches, COUNT_OF(batches));
    matmul_backward_add(empties, COUNT_OF(empties));
    matmul_backward_add(activations, COUNT_OF(activations));
    matmul_backward_add(stored, COUNT_OF(stored));
    matmul_backward_add(values, COUNT_OF(values));
    draw(random_count, by_level(20, 40, 100, 100));
    matmul_backward_add(drawn, random_count);
    matmul_backward_add(engines, COUNT_OF(engines));
    if (matmul_may_emulate_amx())
        matmul_backward_add(amx, COUNT_OF(amx));
    if (matmul_has_clblast())
        matmul_backward_add(clblast, COUNT_OF(clblast));
    suite_add(same_bits, "matmul backward: the same bits in every run");
    suite_add(same_items, "matmul backward: the same bits in every batch");
    suite_add(workspace_is_enough, "matmul backward: the workspace is large enough");
    suite_add(unneeded_arrays, "matmul backward: what is not needed may be unbound");
    suite_add(refused_descriptions, "matmul backward: descriptions that are refused");
    suite_add(refused_arguments, "matmul backward: arguments that are refused");
    return suite_run("matmul_backward", argc, argv);
}
