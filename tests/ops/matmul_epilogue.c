/* Matrix products finish their sums before they store them: activations, a second array added or multiplied, scales of
 * integer weights; by every solver, with every other option, and combined at random (CLATTN_TEST_SEED draws others).
 *
 * Holds: of clattn/matmul.h that a sum is rounded once, the accuracy of clattn/activation.h behind that of the sum,
 * that the operand may be C itself, and what is refused; guard bands. */
#include <math.h>
#include <string.h>

#include "support/ops/matmul_case.h"
#include "support/operator.h"

#define TYPES(x, y, z, w, o) \
    .type = {CLATTN_DTYPE_##x, CLATTN_DTYPE_##y, CLATTN_DTYPE_##z, CLATTN_DTYPE_##w, CLATTN_DTYPE_##o}
#define WEIGHTS .b = FORM_TRANSPOSED
#define RELU .activation = CLATTN_ACTIVATION_RELU
#define GELU .activation = CLATTN_ACTIVATION_GELU
#define GELU_TANH .activation = CLATTN_ACTIVATION_GELU_TANH
#define SWISH .activation = CLATTN_ACTIVATION_SWISH
#define LEAKY .activation = CLATTN_ACTIVATION_LEAKY_RELU
#define ADD .operand = OPERAND_ADD
#define MULTIPLY .operand = OPERAND_MULTIPLY
#define IN_PLACE .operand = OPERAND_ADD, .in_place = true

static const matmul_case activations[] = {
    {"ReLU", ALL, RELU, .m = 7, .n = 19, .k = 11, .bias = true},
    {"GELU", ALL, GELU, .m = 7, .n = 19, .k = 11, .bias = true},
    {"GELU tanh", ALL, GELU_TANH, .m = 7, .n = 19, .k = 11, WEIGHTS},
    {"Swish", ALL, SWISH, .m = 7, .n = 19, .k = 11, .bias = true},
    {"Swish, alpha 1.702", ALL, SWISH, .alpha = 1.702f, .m = 7, .n = 19, .k = 11},
    {"LeakyReLU", ALL, LEAKY, .m = 7, .n = 19, .k = 11, .bias = true},
    {"LeakyReLU, alpha 0.2", ALL, LEAKY, .alpha = 0.2f, .m = 7, .n = 19, .k = 11, WEIGHTS},
    {"LeakyReLU, alpha −30", BIG, LEAKY, .alpha = -30, .m = 97, .n = 131, .k = 61, WEIGHTS, .bias = true},
    {"ReLU", BIG, RELU, .m = 97, .n = 131, .k = 61, WEIGHTS, .bias = true},
    {"GELU", BIG, GELU, .m = 97, .n = 131, .k = 61, WEIGHTS, .bias = true},
    {"GELU, tails", BIG, GELU, .m = 97, .n = 131, .k = 61, .spread = 3},
    {"GELU, far tails", BIG, GELU, .m = 97, .n = 131, .k = 61, .spread = 40},
    {"GELU tanh, tails", BIG, GELU_TANH, .m = 97, .n = 131, .k = 61, .spread = 3},
    {"Swish, tails", BIG, SWISH, .m = 97, .n = 131, .k = 61, .spread = 20},
    {"Swish, alpha −0.3", BIG, SWISH, .alpha = -0.3f, .m = 97, .n = 131, .k = 61, .spread = 5},
    {"large tiles, LeakyReLU", BIG, LEAKY, ADD, .m = 256, .n = 256, .k = 64, .bias = true},
    {"large tiles", BIG, GELU, .m = 256, .n = 256, .k = 64, .bias = true},
    {"large tiles - 3", BIG, GELU, .m = 253, .n = 253, .k = 37, .c = FORM_TRANSPOSED},
    {"no inner size", ALL, GELU, .m = 5, .n = 7, .k = 0, .bias = true},
    {"Inf in A", BIG, SWISH, .m = 35, .n = 83, .k = 61, .inject = MATMUL_A_INF},
    {"-inf in the bias: alpha times it", ALL, LEAKY, .m = 7, .n = 13, .k = 11, .bias = true, .inject = MATMUL_BIAS_INF},
    {"NaN in A, LeakyReLU: its row alone", ALL, LEAKY, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN},
    {"NaN in A: its row alone", ALL, GELU, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN},
    {"-inf in the bias: 0", ALL, GELU_TANH, .m = 7, .n = 13, .k = 11, .bias = true, .inject = MATMUL_BIAS_INF},
    {"fewer rows at enqueue", BIG, GELU, .batch = 5, .m = 67, .n = 35, .k = 37, .shorter = true, .actual_batch = 4,
     .actual_m = 33, .bias = true, .inject = MATMUL_BEYOND},
};

static const matmul_case few[] = {
    {"1 row", ALL, GELU, .m = 1, .n = 37, .k = 19, WEIGHTS, .bias = true},
    {"3 rows", BIG, SWISH, ADD, .m = 3, .n = 131, .k = 67, WEIGHTS, .bias = true},
    {"3 rows, LeakyReLU", ALL, LEAKY, MULTIPLY, .m = 3, .n = 35, .k = 19, WEIGHTS},
    {"8 rows", BIG, GELU, MULTIPLY, .m = 8, .n = 259, .k = 512, WEIGHTS, .operand_form = FORM_TRANSPOSED},
    {"3 columns", ALL, GELU, ADD, .m = 35, .n = 3, .k = 17, WEIGHTS, .bias = true},
    {"5 columns, operand apart", BIG, RELU, ADD, .m = 515, .n = 5, .k = 131, WEIGHTS, .operand_form = FORM_SPREAD},
    {"5 columns, C transposed, in place", BIG, IN_PLACE, .m = 515, .n = 5, .k = 131, WEIGHTS, .c = FORM_TRANSPOSED},
    {"4 rows, in place", ALL, IN_PLACE, .m = 4, .n = 37, .k = 35, WEIGHTS, .bias = true},
    {"12 rows", ALL, GELU, ADD, .m = 12, .n = 37, .k = 35, WEIGHTS, .bias = true},
    {"12 rows, in place", BIG, IN_PLACE, .m = 12, .n = 131, .k = 67, WEIGHTS, .c = FORM_PADDED},
    {"12 rows, C transposed", BIG, IN_PLACE, GELU, .m = 16, .n = 131, .k = 67, WEIGHTS, .c = FORM_TRANSPOSED},
};

static const matmul_case operands[] = {
    {"added", ALL, ADD, .m = 7, .n = 19, .k = 11},
    {"added", BIG, ADD, .m = 97, .n = 131, .k = 61, WEIGHTS, .bias = true},
    {"multiplied", ALL, MULTIPLY, .m = 7, .n = 19, .k = 11, .bias = true},
    {"multiplied", BIG, MULTIPLY, .m = 97, .n = 131, .k = 61},
    {"whole numbers, exact", ALL, MULTIPLY, .m = 19, .n = 35, .k = 23, .integers = true, .bias = true},
    {"whole numbers, exact", BIG, ADD, RELU, .m = 97, .n = 131, .k = 67, .integers = true, .bias = true},
    {"behind an activation", BIG, GELU, ADD, .m = 97, .n = 131, .k = 61},
    {"gate", BIG, SWISH, MULTIPLY, .m = 97, .n = 131, .k = 61, WEIGHTS},
    {"gaps", ALL, ADD, .m = 19, .n = 35, .k = 11, .operand_form = FORM_PADDED, .c = FORM_PADDED},
    {"columns apart", ALL, ADD, .m = 19, .n = 35, .k = 11, .operand_form = FORM_SPREAD},
    {"transposed", ALL, MULTIPLY, .m = 19, .n = 35, .k = 11, .operand_form = FORM_TRANSPOSED},
    {"transposed", BIG, ADD, .m = 97, .n = 131, .k = 61, .operand_form = FORM_TRANSPOSED},
    {"transposed, C too", BIG, ADD, .m = 97, .n = 131, .k = 61, .operand_form = FORM_TRANSPOSED, .c = FORM_TRANSPOSED},
    {"rows backwards", ALL, ADD, .m = 19, .n = 35, .k = 11, .operand_form = FORM_FLIPPED},
    {"columns backwards", BIG, ADD, .m = 35, .n = 67, .k = 11, .operand_form = FORM_MIRRORED},
    {"one row for all", ALL, ADD, .m = 19, .n = 35, .k = 11, .operand_form = FORM_SHARED_FIRST},
    {"aligned", BIG, ADD, .m = 67, .n = 131, .k = 37, .operand_form = FORM_ALIGNED, .c = FORM_ALIGNED},
    {"large tiles", BIG, ADD, .m = 256, .n = 256, .k = 64},
    {"large tiles - 1", BIG, MULTIPLY, .m = 255, .n = 255, .k = 63, .bias = true},
    {"batch", ALL, ADD, .batch = 3, .m = 5, .n = 7, .k = 11},
    {"batch, B shared", BIG, ADD, .batch = 5, .m = 67, .n = 35, .k = 37, .flat_b = true, .bias = true},
    {"batch, B shared, operand's items apart", BIG, ADD, .batch = 5, .m = 67, .n = 35, .k = 37, .flat_b = true,
     .operand_form = FORM_PADDED},
    {"batch, operand shared by extent", ALL, MULTIPLY, .batch = 3, .m = 5, .n = 7, .k = 11, .shared_operand = true},
    {"batch, operand shared by rank", ALL, ADD, .batch = 3, .m = 5, .n = 7, .k = 11, .flat_b = true,
     .flat_operand = true},
    {"batch, operand shared by stride", BIG, ADD, .batch = 5, .m = 67, .n = 35, .k = 37,
     .operand_form = FORM_SHARED_FIRST},
    {"smaller at enqueue", ALL, ADD, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 2,
     .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue, B shared", BIG, ADD, .batch = 5, .m = 131, .n = 67, .k = 37, .flat_b = true, .shorter = true,
     .actual_batch = 4, .actual_m = 66, .inject = MATMUL_BEYOND},
    {"in place", ALL, IN_PLACE, .m = 19, .n = 35, .k = 11},
    {"in place", BIG, IN_PLACE, .m = 259, .n = 261, .k = 61, WEIGHTS, .bias = true},
    {"in place, C transposed", BIG, IN_PLACE, .m = 97, .n = 131, .k = 61, .c = FORM_TRANSPOSED},
    {"in place, columns apart", ALL, IN_PLACE, .m = 19, .n = 35, .k = 11, .c = FORM_SPREAD},
    {"in place, batch", ALL, IN_PLACE, .batch = 3, .m = 5, .n = 7, .k = 11},
    {"in place, smaller at enqueue", BIG, IN_PLACE, .batch = 5, .m = 67, .n = 35, .k = 37, .flat_b = true,
     .shorter = true, .actual_batch = 4, .actual_m = 33},
    {"in place, multiplied", BIG, .operand = OPERAND_MULTIPLY, .in_place = true, GELU, .m = 97, .n = 131, .k = 61},
    {"no inner size: the operand", ALL, ADD, .m = 5, .n = 7, .k = 0},
    {"no rows", ALL, ADD, .m = 0, .n = 7, .k = 11},
    {"NaN in it: that element alone", ALL, ADD, .m = 19, .n = 35, .k = 11, .inject = MATMUL_OPERAND_NAN},
};

static const matmul_case integers[] = {
    {"int8 weights", ALL, TYPES(F32, I8, F32, F32, F32), .m = 7, .n = 19, .k = 11, WEIGHTS, .bias = true},
    {"int8 weights", BIG, TYPES(F32, I8, F32, F32, F32), .m = 97, .n = 131, .k = 67, WEIGHTS},
    {"int8 weights, (k, n)", ALL, TYPES(F32, I8, F32, F32, F32), .m = 7, .n = 35, .k = 11},
    {"int8 weights, (k, n)", BIG, TYPES(F32, I8, F32, F32, F32), .m = 97, .n = 131, .k = 67, .bias = true},
    {"int8 weights, a token", ALL, TYPES(F32, I8, F32, F32, F32), .m = 1, .n = 37, .k = 19, WEIGHTS},
    {"int8 weights, a token", BIG, TYPES(F32, I8, F32, F32, F32), .m = 1, .n = 515, .k = 1031, WEIGHTS, .bias = true},
    {"int8 weights, 4 tokens, copied", BIG, TYPES(F32, I8, F32, F32, F32), GELU, .m = 4, .n = 67, .k = 2053, WEIGHTS},
    {"int8 weights, 3 columns", ALL, TYPES(F32, I8, F32, F32, F32), .m = 35, .n = 3, .k = 17, WEIGHTS, .bias = true},
    {"int8 weights, 12 tokens", ALL, TYPES(F32, I8, F32, F32, F32), .m = 12, .n = 37, .k = 35, WEIGHTS, .bias = true},
    {"int8 weights, 16 tokens, two blocks", BIG, TYPES(F32, I8, F32, F32, F32), .m = 16, .n = 67, .k = 4103, WEIGHTS},
    {"int8 weights, scales backwards", ALL, TYPES(F32, I8, F32, F32, F32), .m = 19, .n = 35, .k = 11, WEIGHTS,
     .scale_form = FORM_MIRRORED},
    {"int8 weights, scales apart", ALL, TYPES(F32, I8, F32, F32, F32), .m = 2, .n = 35, .k = 11, WEIGHTS,
     .scale_form = FORM_SPREAD},
    {"int8 weights, float16", ALL, TYPES(F16, I8, F16, F32, F16), ADD, .m = 17, .n = 35, .k = 19, WEIGHTS,
     .bias = true},
    {"int8 weights, LeakyReLU", ALL, TYPES(F32, I8, F32, F32, F32), LEAKY, .m = 7, .n = 19, .k = 11, WEIGHTS},
    {"int8 weights, bfloat16, gate", BIG, TYPES(BF16, I8, BF16, BF16, BF16), SWISH, MULTIPLY, .m = 97, .n = 83, .k = 61,
     WEIGHTS, .bias = true},
    {"int8 weights, apart", BIG, TYPES(F32, I8, F32, F32, F32), .m = 35, .n = 67, .k = 37, .b = FORM_SPREAD},
    {"int8 weights, C transposed", BIG, TYPES(F32, I8, F32, F32, F32), .m = 97, .n = 83, .k = 61, WEIGHTS,
     .c = FORM_TRANSPOSED, .bias = true},
    {"int8 weights, batch", ALL, TYPES(F32, I8, F32, F32, F32), .batch = 3, .m = 5, .n = 7, .k = 11},
    {"int8 weights, batch that shares them", BIG, TYPES(F32, I8, F32, F32, F32), .batch = 5, .m = 67, .n = 35, .k = 37,
     .flat_b = true, .bias = true},
    {"NaN in A: its row alone", ALL, TYPES(F32, I8, F32, F32, F32), .m = 7, .n = 13, .k = 11, WEIGHTS,
     .inject = MATMUL_A_NAN},
    {"by CLBlast", FULL, TYPES(F32, I8, F32, F32, F32), .solvers = MATMUL_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7,
     .n = 13, .k = 11},
    {"activation by CLBlast", FULL, GELU, .solvers = MATMUL_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13,
     .k = 11},
    {"operand by CLBlast", FULL, ADD, .solvers = MATMUL_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13,
     .k = 11},
};

static const matmul_case stored[] = {
    {"float16", ALL, TYPES(F16, F16, F16, F16, F16), GELU, ADD, .m = 17, .n = 35, .k = 19, .bias = true},
    {"bfloat16", ALL, TYPES(BF16, BF16, BF16, BF16, BF16), LEAKY, .alpha = 0.2f, .m = 19, .n = 35, .k = 32, WEIGHTS},
    {"bfloat16", BIG, TYPES(BF16, BF16, BF16, BF16, BF16), SWISH, MULTIPLY, .m = 97, .n = 83, .k = 61, WEIGHTS},
    {"each another", BIG, TYPES(F16, F32, BF16, F16, F32), RELU, ADD, .m = 97, .n = 83, .k = 61, .bias = true},
    {"float16 operand, apart", ALL, TYPES(F32, F32, F32, F32, F16), ADD, .m = 17, .n = 35, .k = 19,
     .operand_form = FORM_SPREAD},
    {"bfloat16 operand, transposed", BIG, TYPES(F32, F32, F32, F32, BF16), ADD, .m = 67, .n = 83, .k = 19,
     .operand_form = FORM_TRANSPOSED},
    {"bfloat16 in place", ALL, TYPES(F32, F32, BF16, F32, BF16), IN_PLACE, .m = 17, .n = 35, .k = 19},
};

/* Products by pairs of bfloat16; matmul_matrix.c tests matrix engines. */
#define PAIRS .solvers = MATMUL_CPU_BF16 | MATMUL_CPU_AMX

static const matmul_case pairs[] = {
    {"GELU by pairs", ALL, PAIRS, TYPES(BF16, BF16, BF16, BF16, BF16), GELU, .m = 7, .n = 13, .k = 11, WEIGHTS,
     .bias = true},
    {"operand by pairs", BIG, PAIRS, TYPES(BF16, BF16, F32, F32, F32), SWISH, ADD, .m = 97, .n = 83, .k = 61, WEIGHTS},
    {"in place by pairs", BIG, PAIRS, TYPES(BF16, BF16, BF16, F32, F32), IN_PLACE, .m = 49, .n = 65, .k = 61, WEIGHTS},
    {"int8 weights by pairs", ALL, PAIRS, TYPES(BF16, I8, F32, F32, F32),
     .refused_by = MATMUL_CPU_BF16 | MATMUL_CPU_AMX, .m = 7, .n = 13, .k = 11},
};

/* ---- at random ---- */

#define MOST_RANDOM 24

static matmul_case drawn[MOST_RANDOM];

static clattn_dtype any_type(random_stream *r)
{
    static const clattn_dtype types[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    return types[random_int(r, 0, 3)];
}

static array_form any_form(random_stream *r)
{
    static const array_form forms[] = {FORM_PLAIN,   FORM_PADDED,   FORM_SPREAD,
                                       FORM_FLIPPED, FORM_MIRRORED, FORM_TRANSPOSED};
    return forms[random_int(r, 0, 5)];
}

static void draw(size_t count, int most)
{
    random_stream r = random_start(77);

    for (size_t i = 0; i < count; i++) {
        matmul_case c = {"random",
                         ALL,
                         .batch = (size_t)random_int(&r, 0, 3),
                         .m = (size_t)random_int(&r, 1, most),
                         .n = (size_t)random_int(&r, 1, most),
                         .k = (size_t)random_int(&r, 0, most)};
        c.m = random_int(&r, 0, 2) == 0 ? (size_t)random_int(&r, 1, 9) : c.m;
        c.type.a = any_type(&r);
        c.type.b = random_int(&r, 0, 2) == 0 ? CLATTN_DTYPE_I8 : any_type(&r);
        c.type.c = any_type(&r);
        c.type.bias = any_type(&r);
        c.a = random_int(&r, 0, 1) ? FORM_PLAIN : any_form(&r);
        c.b = random_int(&r, 0, 1) ? FORM_TRANSPOSED : any_form(&r);
        c.c = any_form(&r);
        c.bias = random_int(&r, 0, 1);
        c.flat_b = random_int(&r, 0, 1);
        c.activation = (clattn_activation)random_int(&r, 0, CLATTN_ACTIVATION_LEAKY_RELU);
        c.alpha = random_int(&r, 0, 2) ? 0 : random_float(&r, -2, 2);
        c.spread = random_int(&r, 0, 2) ? 0 : 8;
        c.operand = (matmul_operand)random_int(&r, 0, 2);
        c.in_place = c.operand && random_int(&r, 0, 2) == 0;
        c.type.operand = c.in_place ? c.type.c : any_type(&r);
        c.operand_form = any_form(&r);
        c.flat_operand = !c.in_place && random_int(&r, 0, 3) == 0;
        c.scale_form = random_int(&r, 0, 1) ? FORM_PLAIN : FORM_MIRRORED;
        if (c.type.c == CLATTN_DTYPE_F16 && c.type.b == CLATTN_DTYPE_I8) {
            c.spread = 0; /* 128 times 8 times the square root of k is near what float16 holds */
        }
        drawn[i] = c;
    }
}

/* ---- what is refused ---- */

static clattn_matmul_desc good_desc(void)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;

    desc.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 5});
    desc.b = clattn_layout_contiguous(CLATTN_DTYPE_I8, 2, (size_t[]){5, 4});
    desc.b_scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (size_t[]){4});
    desc.c = desc.operand = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 4});
    desc.activation = CLATTN_ACTIVATION_SWISH;
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(matmul, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_matmul_desc good = good_desc();
    clattn_layout none = {0};

    (void)state;
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    good.alpha = NAN; /* ignored for this function */
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    good.operand.extent[0] = 1;
    operator_answers(&matmul_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_ARGUMENT, activation = INT16_MAX);
    REFUSED(INVALID_ARGUMENT, activation = -1);
    REFUSED(INVALID_ARGUMENT, explicit_alpha = 2);
    REFUSED(INVALID_ARGUMENT, alpha = (desc.explicit_alpha = 1, INFINITY));
    REFUSED(INVALID_ARGUMENT, operand_use = 2);
    REFUSED(INVALID_ARGUMENT, operand_use = (desc.operand = none, CLATTN_MATMUL_OPERAND_USE_MULTIPLY));
    REFUSED(INVALID_LAYOUT, operand.extent[0] = 3);
    REFUSED(INVALID_LAYOUT, operand.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, operand.extent[2] = 1);
    REFUSED(INVALID_LAYOUT, operand.rank = 1);
    REFUSED(INVALID_LAYOUT, operand.dtype = 99);
    REFUSED(UNSUPPORTED, operand.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, operand.dtype = CLATTN_DTYPE_I8);
    REFUSED(INVALID_LAYOUT, b_scale = none);
    REFUSED(INVALID_LAYOUT, b_scale.extent[0] = 5);
    REFUSED(INVALID_LAYOUT, b_scale.dtype = CLATTN_DTYPE_F16);
    REFUSED(INVALID_LAYOUT, b.dtype = CLATTN_DTYPE_F32);
    REFUSED(UNSUPPORTED, a.dtype = CLATTN_DTYPE_I8);
    REFUSED(UNSUPPORTED, c.dtype = CLATTN_DTYPE_I8);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(matmul, plan, status, args_given, change)

static void refused_arguments(void **state)
{
    clattn_matmul_desc desc = good_desc();
    clattn_matmul_args args_given = CLATTN_MATMUL_ARGS_INIT;
    clattn_binding none = {0};
    test_job job = {0};
    test_array a = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 3, desc.a.extent, FORM_PLAIN);
    test_array b = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_I8, 2, desc.b.extent, FORM_PLAIN);
    test_array scale = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, desc.b_scale.extent, FORM_PLAIN);
    test_array operand = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 3, desc.c.extent, FORM_PLAIN);
    test_array c = job_array(&job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 3, desc.c.extent, FORM_PLAIN);

    (void)state;
    args_given.a = array_binding(&a);
    args_given.b = array_binding(&b);
    args_given.b_scale = array_binding(&scale);
    args_given.operand = array_binding(&operand);
    args_given.c = array_binding(&c);
    clattn_plan *plan = operator_plan(&matmul_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, operand = none);
    REFUSED_ARGS(INVALID_ARGUMENT, b_scale = none);
    REFUSED_ARGS(BUFFER_TOO_SMALL, operand.offset = 100);
    REFUSED_ARGS(BUFFER_TOO_SMALL, b_scale.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, operand = args_given.c); /* this C is not readable by kernels */
    clattn_plan_release(&plan);
    memset(&desc.operand, 0, sizeof desc.operand);
    memset(&desc.b_scale, 0, sizeof desc.b_scale);
    desc.b.dtype = CLATTN_DTYPE_F32;
    plan = operator_plan(&matmul_operator, &desc, NULL);
    args_given.b = array_binding(&operand); /* this array is large enough */
    REFUSED_ARGS(INVALID_ARGUMENT, b_scale = none);
    REFUSED_ARGS(INVALID_ARGUMENT, operand = none);
    clattn_plan_release(&plan);
    job_release(&job);
}

/* Structs from before epilogues existed are accepted: their size tells. */
static void shorter_structs(void **state)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 2, -3, 4.5);
    test_array one = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){1, 1}, FORM_PLAIN);
    array_set(&one, (size_t[]){0, 0}, 2);
    array_upload(&one);
    memset(&desc.activation, 0x5a, sizeof desc - offsetof(clattn_matmul_desc, activation));
    memset(&args.operand, 0x5a, sizeof args - offsetof(clattn_matmul_args, operand));
    desc.size = offsetof(clattn_matmul_desc, activation);
    args.size = offsetof(clattn_matmul_args, operand);
    array_bind(&one, &desc.a, &args.a);
    array_bind(&job.input[0], &desc.b, &args.b);
    array_bind(&job.output[0], &desc.c, &args.c);
    assert_status(device_context(), clattn_matmul_run(device_context(), NULL, &desc, &args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    job_expect_two_elements(&job, -6, 9);
    desc.size--;
    assert_status(device_context(), clattn_matmul_supports(device_context(), &desc, NULL), CLATTN_ERROR_INVALID_STRUCT);
    job_release(&job);
}

int main(int argc, char **argv)
{
    size_t count = by_level(6, 4, 12, MOST_RANDOM);

    matmul_add(activations, COUNT_OF(activations));
    matmul_add(few, COUNT_OF(few));
    matmul_add(operands, COUNT_OF(operands));
    matmul_add(integers, COUNT_OF(integers));
    matmul_add(stored, COUNT_OF(stored));
    matmul_add(pairs, COUNT_OF(pairs));
    draw(count, level() == LEVEL_TINY ? 40 : 150);
    matmul_add(drawn, count);
    suite_add(refused_descriptions, "matmul: descriptions that are refused");
    suite_add(refused_arguments, "matmul: arguments that are refused");
    suite_add(shorter_structs, "matmul: structs without an epilogue");
    return suite_run("matmul epilogue", argc, argv);
}
