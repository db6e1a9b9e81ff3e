/* Every solver computes matrix products of sizes 1, around tiles and prime, with transposes and other strides, batches
 * that share B, and biases; CLBlast too if the library was built with it.
 *
 * Holds: the accuracy rule (with sum_k |a_ik b_kj| + |bias_j| for M), that NaN and Inf stay in their row or column
 * (Meaning 5), nothing to do (Meaning 8), guard bands. */
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/ops/matmul_case.h"

static const matmul_case sizes[] = {
    {"one of everything", ALL, .m = 1, .n = 1, .k = 1},
    {"one row", ALL, .m = 1, .n = 33, .k = 19},
    {"one row", BIG, .m = 1, .n = 257, .k = 129},
    {"one column", ALL, .m = 33, .n = 1, .k = 19},
    {"one column", BIG, .m = 257, .n = 1, .k = 129},
    {"inner size 1", ALL, .m = 17, .n = 33, .k = 1},
    {"inner size 2", BIG, .m = 65, .n = 67, .k = 2},
    {"primes", ALL, .m = 7, .n = 13, .k = 11},
    {"primes", BIG, .m = 97, .n = 83, .k = 61},
    {"primes", BIG, .m = 131, .n = 37, .k = 521},
    {"tile", ALL, .m = 32, .n = 32, .k = 16},
    {"tile", BIG, .m = 64, .n = 64, .k = 64},
    {"tile", BIG, .m = 128, .n = 128, .k = 256},
    {"tile - 1", ALL, .m = 31, .n = 31, .k = 15},
    {"tile - 1", BIG, .m = 127, .n = 63, .k = 255},
    {"tile + 1", ALL, .m = 33, .n = 33, .k = 17},
    {"tile + 1", BIG, .m = 129, .n = 65, .k = 257},
    {"large tiles", BIG, .m = 256, .n = 256, .k = 64},
    {"large tiles - 1", BIG, .m = 255, .n = 255, .k = 63, .bias = true},
    {"large tiles - 3", BIG, .m = 253, .n = 253, .k = 37, .a = FORM_TRANSPOSED, .b = FORM_TRANSPOSED, .bias = true},
    {"wide", BIG, .m = 5, .n = 1031, .k = 64},
    {"tall", BIG, .m = 1031, .n = 5, .k = 64},
    {"deep", BIG, .m = 13, .n = 17, .k = 4099},
    {"whole numbers, exact", ALL, .m = 19, .n = 35, .k = 23, .integers = true, .bias = true},
    {"whole numbers, exact", BIG, .m = 97, .n = 131, .k = 67, .integers = true, .bias = true},
    {"projection of the paper", BIG, .m = 67, .n = 512, .k = 512, .b = FORM_TRANSPOSED, .bias = true},
    {"packed projection", FULL, .m = 35, .n = 1536, .k = 512, .b = FORM_TRANSPOSED, .bias = true},
};

static const matmul_case forms[] = {
    {"B transposed", ALL, .m = 7, .n = 13, .k = 11, .b = FORM_TRANSPOSED},
    {"B transposed", BIG, .m = 97, .n = 83, .k = 61, .b = FORM_TRANSPOSED},
    {"A transposed", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_TRANSPOSED},
    {"A transposed", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_TRANSPOSED},
    {"both transposed", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_TRANSPOSED, .b = FORM_TRANSPOSED},
    {"large tiles, C transposed", BIG, .m = 255, .n = 250, .k = 19, .a = FORM_PADDED, .c = FORM_TRANSPOSED,
     .bias = true},
    {"C transposed", BIG, .m = 97, .n = 83, .k = 61, .c = FORM_TRANSPOSED, .bias = true},
    {"gaps", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED, .bias = true},
    {"gaps", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED, .bias = true},
    {"columns apart", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD, .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"columns apart", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_SPREAD, .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"rows backwards", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_FLIPPED, .b = FORM_FLIPPED, .c = FORM_FLIPPED},
    {"columns backwards", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_MIRRORED, .b = FORM_MIRRORED, .c = FORM_MIRRORED},
    {"columns backwards", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_MIRRORED, .b = FORM_MIRRORED, .c = FORM_MIRRORED},
    {"one row of A for all", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_FIRST},
    {"one row of B for all", BIG, .m = 67, .n = 35, .k = 37, .b = FORM_SHARED_FIRST},
    {"bias", ALL, .m = 7, .n = 13, .k = 11, .bias = true},
    {"bias", BIG, .m = 97, .n = 83, .k = 61, .bias = true},
    {"bias strided", ALL, .m = 7, .n = 13, .k = 11, .bias = true, .bias_form = FORM_SPREAD},
    {"bias backwards", ALL, .m = 7, .n = 13, .k = 11, .bias = true, .bias_form = FORM_MIRRORED},
};

#define TYPES(x, y, z, w) \
    .type = {.a = CLATTN_DTYPE_##x, .b = CLATTN_DTYPE_##y, .c = CLATTN_DTYPE_##z, .bias = CLATTN_DTYPE_##w}

static const matmul_case stored[] = {
    {"float16", ALL, TYPES(F16, F16, F16, F16), .m = 17, .n = 35, .k = 19, .bias = true},
    {"float16", BIG, TYPES(F16, F16, F16, F16), .m = 97, .n = 83, .k = 61, .b = FORM_TRANSPOSED, .bias = true},
    {"bfloat16", ALL, TYPES(BF16, BF16, BF16, BF16), .m = 17, .n = 35, .k = 19, .bias = true},
    {"bfloat16", BIG, TYPES(BF16, BF16, BF16, BF16), .m = 97, .n = 83, .k = 61, .b = FORM_TRANSPOSED, .bias = true},
    {"bfloat16 weights", ALL, TYPES(F32, BF16, F32, F32), .m = 17, .n = 35, .k = 19, .b = FORM_TRANSPOSED,
     .bias = true},
    {"float16 weights, few columns", BIG, TYPES(F32, F16, F32, F32), .m = 131, .n = 12, .k = 61, .b = FORM_TRANSPOSED},
    {"each another", BIG, TYPES(F16, F32, BF16, F16), .m = 97, .n = 83, .k = 61, .bias = true},
    {"each another, everything transposed", BIG, TYPES(BF16, F16, F32, BF16), .m = 97, .n = 83, .k = 61,
     .a = FORM_TRANSPOSED, .b = FORM_TRANSPOSED, .c = FORM_TRANSPOSED, .bias = true},
    {"columns apart", ALL, TYPES(F16, BF16, F16, F32), .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD, .b = FORM_SPREAD,
     .c = FORM_SPREAD, .bias = true},
    {"float16 output, batch that shares B", BIG, TYPES(F32, F32, F16, F32), .batch = 5, .m = 67, .n = 35, .k = 37,
     .flat_b = true},
    {"a token by bfloat16 weights", ALL, TYPES(F32, BF16, F32, F32), .m = 1, .n = 37, .k = 35, .b = FORM_TRANSPOSED,
     .bias = true},
    {"a token by float16 weights", BIG, TYPES(F16, F16, F16, F16), .m = 1, .n = 515, .k = 1031, .b = FORM_TRANSPOSED,
     .bias = true},
    {"four tokens by bfloat16 weights, copied", BIG, TYPES(BF16, BF16, BF16, F32), .m = 4, .n = 67, .k = 2053,
     .b = FORM_TRANSPOSED, .bias = true},
    {"smaller at enqueue", BIG, TYPES(F16, BF16, F32, F16), .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true,
     .actual_batch = 4, .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"NaN in A: its row alone", ALL, TYPES(BF16, BF16, F16, F32), .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN},
    {"by CLBlast", FULL, TYPES(F16, F16, F16, F16), .solvers = MATMUL_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7,
     .n = 13, .k = 11},
};

/* Few rows or columns, with neighbouring k in both operands: the cpu solver streams the other operand for up to eight
 * of them, without 16 lanes up to sixteen; if there are more, or they are long, it packs the few and prefetches the others. */
static const matmul_case skinny[] = {
    {"1 row", ALL, .m = 1, .n = 37, .k = 19, .b = FORM_TRANSPOSED, .bias = true},
    {"1 row", BIG, .m = 1, .n = 515, .k = 1031, .b = FORM_TRANSPOSED},
    {"2 rows", ALL, .m = 2, .n = 37, .k = 16, .b = FORM_TRANSPOSED},
    {"3 rows", BIG, .m = 3, .n = 131, .k = 67, .b = FORM_TRANSPOSED, .bias = true},
    {"4 rows", BIG, .m = 4, .n = 1024, .k = 64, .b = FORM_TRANSPOSED},
    {"5 rows", ALL, .m = 5, .n = 17, .k = 5, .b = FORM_TRANSPOSED, .bias = true, .bias_form = FORM_MIRRORED},
    {"6 rows, C transposed", BIG, .m = 6, .n = 131, .k = 67, .b = FORM_TRANSPOSED, .c = FORM_TRANSPOSED, .bias = true},
    {"7 rows", BIG, .m = 7, .n = 257, .k = 129, .b = FORM_TRANSPOSED},
    {"8 rows", ALL, .m = 8, .n = 37, .k = 35, .b = FORM_TRANSPOSED, .c = FORM_SPREAD},
    {"8 rows", BIG, .m = 8, .n = 259, .k = 512, .b = FORM_TRANSPOSED, .bias = true},
    {"1 column", ALL, .m = 37, .n = 1, .k = 19, .b = FORM_TRANSPOSED, .bias = true},
    {"3 columns", ALL, .m = 35, .n = 3, .k = 17, .b = FORM_TRANSPOSED, .bias = true},
    {"5 columns, C transposed", BIG, .m = 515, .n = 5, .k = 131, .b = FORM_TRANSPOSED, .c = FORM_TRANSPOSED},
    {"8 rows, copied", BIG, .m = 8, .n = 67, .k = 2048, .b = FORM_TRANSPOSED, .bias = true},
    {"3 rows, copied in three", BIG, .m = 3, .n = 131, .k = 4103, .b = FORM_TRANSPOSED},
    {"5 columns, copied in two", BIG, .m = 259, .n = 5, .k = 2053, .b = FORM_TRANSPOSED, .bias = true},
    {"8 columns", BIG, .m = 259, .n = 8, .k = 512, .b = FORM_TRANSPOSED, .bias = true},
    {"7 rows, too long for that", BIG, .m = 7, .n = 67, .k = 2053, .b = FORM_TRANSPOSED},
    {"12 rows", ALL, .m = 12, .n = 37, .k = 35, .b = FORM_TRANSPOSED, .bias = true},
    {"12 rows, streamed", BIG, .m = 12, .n = 131, .k = 515, .b = FORM_TRANSPOSED, .bias = true},
    {"16 rows, streamed, C transposed", BIG, .m = 16, .n = 67, .k = 1024, .b = FORM_TRANSPOSED, .c = FORM_TRANSPOSED},
    {"13 columns, streamed", BIG, .m = 131, .n = 13, .k = 515, .b = FORM_TRANSPOSED, .bias = true},
    {"12 rows, k in two blocks", BIG, .m = 12, .n = 67, .k = 4103, .b = FORM_TRANSPOSED, .bias = true},
    {"16 rows of bfloat16", BIG, TYPES(BF16, BF16, BF16, F32), .m = 16, .n = 131, .k = 267, .b = FORM_TRANSPOSED},
    {"16 rows, batch that shares B", BIG, .batch = 4, .m = 4, .n = 131, .k = 67, .flat_b = true, .b = FORM_TRANSPOSED},
    {"whole numbers, exact", ALL, .m = 3, .n = 35, .k = 23, .b = FORM_TRANSPOSED, .integers = true, .bias = true},
    {"gaps between rows", BIG, .m = 4, .n = 83, .k = 61, .a = FORM_PADDED, .b = FORM_TRANSPOSED, .c = FORM_PADDED,
     .bias = true},
    {"one row of A for all", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_FIRST, .b = FORM_TRANSPOSED},
    {"batch", ALL, .batch = 3, .m = 2, .n = 37, .k = 11, .b = FORM_TRANSPOSED, .bias = true},
    {"batch of columns", BIG, .batch = 3, .m = 67, .n = 2, .k = 37, .b = FORM_TRANSPOSED, .bias = true},
    {"batch that shares B, as rows", BIG, .batch = 4, .m = 2, .n = 67, .k = 37, .b = FORM_TRANSPOSED, .flat_b = true},
    {"fewer rows at enqueue", ALL, .batch = 3, .m = 5, .n = 37, .k = 11, .b = FORM_TRANSPOSED, .shorter = true,
     .actual_batch = 2, .actual_m = 3, .inject = MATMUL_BEYOND},
    {"NaN in A: its row alone", ALL, .m = 3, .n = 37, .k = 11, .b = FORM_TRANSPOSED, .inject = MATMUL_A_NAN},
    {"Inf in A: its row alone", BIG, .m = 8, .n = 83, .k = 61, .b = FORM_TRANSPOSED, .inject = MATMUL_A_INF},
    {"NaN in B: its column alone", ALL, .m = 3, .n = 37, .k = 11, .b = FORM_TRANSPOSED, .inject = MATMUL_B_NAN},
    {"NaN in B: its column alone", BIG, .m = 259, .n = 3, .k = 61, .b = FORM_TRANSPOSED, .inject = MATMUL_B_NAN},
    {"no inner size: the bias", ALL, .m = 5, .n = 7, .k = 0, .b = FORM_TRANSPOSED, .bias = true},
};

static const matmul_case batches[] = {
    {"batch", ALL, .batch = 3, .m = 5, .n = 7, .k = 11},
    {"batch", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .bias = true},
    {"batch of 1", ALL, .batch = 1, .m = 5, .n = 7, .k = 11, .bias = true},
    {"B shared by extent", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .shared_b = true},
    {"B shared by extent", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true, .bias = true},
    {"B shared by stride", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .b = FORM_SHARED_FIRST},
    {"B shared by rank", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .flat_b = true, .bias = true},
    {"B shared, items apart", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true, .a = FORM_PADDED,
     .c = FORM_PADDED},
    {"A shared by stride", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_SHARED_FIRST},
    {"batch transposed", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .a = FORM_TRANSPOSED, .b = FORM_TRANSPOSED,
     .c = FORM_TRANSPOSED},
    {"batch inside rows", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_BSHD, .b = FORM_BSHD, .c = FORM_BSHD},
    {"batch backwards", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .a = FORM_FLIPPED, .b = FORM_MIRRORED},
    {"smaller at enqueue", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 2, .actual_m = 5,
     .inject = MATMUL_BEYOND},
    {"smaller at enqueue", BIG, .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true, .actual_batch = 4,
     .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"one row at enqueue", BIG, .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true, .actual_batch = 1,
     .actual_m = 1, .inject = MATMUL_BEYOND},
    {"smaller at enqueue, B shared", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shared_b = true, .shorter = true,
     .actual_batch = 2, .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue, B shared", BIG, .batch = 5, .m = 131, .n = 67, .k = 37, .flat_b = true, .shorter = true,
     .actual_batch = 4, .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"nothing at enqueue", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 0, .actual_m = 5},
    {"no rows at enqueue", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 2, .actual_m = 0},
    {"no rows", ALL, .m = 0, .n = 7, .k = 11},
    {"no columns", ALL, .m = 5, .n = 0, .k = 11},
    {"no inner size: the bias", ALL, .m = 5, .n = 7, .k = 0, .bias = true},
    {"no inner size: zeros", ALL, .m = 5, .n = 7, .k = 0},
};

static const matmul_case values[] = {
    {"NaN in A: its row alone", ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN},
    {"NaN in A: its row alone", BIG, .m = 97, .n = 83, .k = 61, .bias = true, .inject = MATMUL_A_NAN},
    {"Inf in A: its row alone", BIG, .m = 97, .n = 83, .k = 61, .inject = MATMUL_A_INF},
    {"NaN in B: its column alone", ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_B_NAN},
    {"NaN in B: its column alone", BIG, .m = 97, .n = 83, .k = 61, .inject = MATMUL_B_NAN},
    {"NaN in B, transposed: its column alone", BIG, .m = 97, .n = 83, .k = 61, .b = FORM_TRANSPOSED,
     .inject = MATMUL_B_NAN},
    {"-inf in the bias: its column alone", ALL, .m = 7, .n = 13, .k = 11, .bias = true, .inject = MATMUL_BIAS_INF},
};

/* CLBlast's first call of a routine compiles for seconds on a CPU, so these cases are few, and none runs on a
 * simulator. */
#define BY_CLBLAST .solvers = MATMUL_CLBLAST

static const matmul_case clblast[] = {
    {"projection", FULL, BY_CLBLAST, .m = 67, .n = 128, .k = 96, .b = FORM_TRANSPOSED, .bias = true},
    {"primes", FULL, BY_CLBLAST, .m = 97, .n = 83, .k = 61},
    {"A transposed, gaps", FULL, BY_CLBLAST, .m = 37, .n = 83, .k = 61, .a = FORM_TRANSPOSED, .c = FORM_PADDED},
    {"one row", FULL, BY_CLBLAST, .m = 1, .n = 83, .k = 61, .bias = true},
    {"batch", FULL, BY_CLBLAST, .batch = 3, .m = 35, .n = 83, .k = 61, .bias = true},
    {"B shared, smaller at enqueue", FULL, BY_CLBLAST, .batch = 3, .m = 35, .n = 83, .k = 61, .flat_b = true,
     .shorter = true, .actual_batch = 2, .actual_m = 17, .bias = true},
    {"B shared, one item at enqueue", FULL, BY_CLBLAST, .batch = 3, .m = 35, .n = 83, .k = 61, .flat_b = true,
     .shorter = true, .actual_batch = 1, .actual_m = 35},
    {"columns apart", FULL, BY_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD},
    {"columns backwards", FULL, BY_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13, .k = 11, .b = FORM_MIRRORED},
    {"C transposed", FULL, BY_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13, .k = 11, .c = FORM_TRANSPOSED},
};

/* CLBlast is never the planner's choice on CPUs; in a build without CLBlast its name is unknown. */
static void clblast_is_a_choice(void **state)
{
    clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_F32, 7, 13, 11);
    clattn_plan *plan = operator_plan(&matmul_operator, &desc, NULL);

    (void)state;
    if (device_is_cpu()) {
        assert_string_equal(clattn_plan_solver(plan), "cpu");
    }
    clattn_plan_release(&plan);
    if (!matmul_has_clblast()) {
        operator_refuses_plan(&matmul_operator, &desc, "clblast", CLATTN_ERROR_INVALID_ARGUMENT);
    }
}

/* Rows of A overlap or are all the same row.  A workspace of exactly the plan's size with a band around it tells
 * whether the packed rows fit, however dimensions are folded. */
typedef struct overlap {
    size_t m;
    int64_t item, row; /* strides */
} overlap;

static const overlap overlaps[] = {{8, 0, 0}, {1, 0, 0}, {1, 5, 5}, {3, 15, 5}, {3, 5, 5}};

static void rows_overlap(const void *which, const char *solver)
{
    enum { LARGEST = 100, N = 65, K = 11, BAND = 64 * sizeof(float), A = 3 * 5 * LARGEST + K };
    const overlap *o = which;
    const size_t extent[3] = {level() == LEVEL_TINY ? 5 : LARGEST, o->m, N}, a_size = A;
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    test_job job = {.args.matmul = CLATTN_MATMUL_ARGS_INIT};
    clattn_matmul_args *args = &job.args.matmul;
    static float a[A];
    float b[K * N];
    size_t index[3] = {0};

    for (int i = 0; i < A; i++) {
        a[i] = (float)(i % 5) - 2;
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = (float)(i % 7) - 3;
    }
    test_array left = job_floats(&job, 1, &a_size, a), right = job_floats(&job, 2, (size_t[]){K, N}, b);
    left.layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){extent[0], o->m, K});
    left.layout.stride[0] = o->item;
    left.layout.stride[1] = o->row;
    array_bind(&left, &desc.a, &args->a);
    array_bind(&right, &desc.b, &args->b);
    array_bind(job_output(&job, 3, extent), &desc.c, &args->c);
    if (!job_plan(&job, &matmul_operator, &desc, solver,
                  strcmp(solver, "clblast") == 0 && o->m > 1 ? JOB_REFUSED : JOB_TAKEN)) {
        job_release(&job);
        return;
    }
    size_t workspace = clattn_plan_workspace_size(job.plan), bytes = workspace + 2 * BAND;
    unsigned char *image = malloc(bytes);
    assert_non_null(image);
    memset(image, 0xa5, bytes);
    cl_mem own = new_buffer(clattn_context_opencl_context(device_context()), CL_MEM_READ_WRITE, bytes, image);
    if (workspace) {
        args->workspace = clattn_binding_buffer(own, BAND);
    }
    job_run(&job, NULL);
    read_buffer(clattn_context_queue(device_context()), own, bytes, image);
    for (size_t i = 0; i < BAND; i++) {
        assert_int_equal(image[i], 0xa5);
        assert_int_equal(image[bytes - 1 - i], 0xa5);
    }
    do {
        const float *row = a + (int64_t)index[0] * o->item + (int64_t)index[1] * o->row;
        float sum = 0; /* exact, because the numbers are whole */
        for (size_t k = 0; k < K; k++) {
            sum += row[k] * b[k * N + index[2]];
        }
        assert_true(array_get(&job.output[0], index) == (double)sum);
    } while (array_next(3, extent, index));
    device_release_buffer(own);
    free(image);
    job_release(&job);
}

static const matmul_case prepacked[] = {
    {"shared b", ALL, .batch = 2, .m = 37, .n = 13, .k = 11, .flat_b = true},
    {"many rows", BIG, .m = 131, .n = 128, .k = 70, .bias = true},
    {"b transposed", BIG, .m = 200, .n = 64, .k = 33, .b = FORM_TRANSPOSED},
    {"few rows", BIG, .m = 3, .n = 65, .k = 33},
    {"one row, planned", ALL, .m = 1, .n = 65, .k = 33, .b = FORM_TRANSPOSED, .bias = true, .prepack = true},
    {"8 rows, planned", BIG, .m = 8, .n = 48, .k = 600, .prepack = true},
    {"16 rows, planned", BIG, .m = 16, .n = 131, .k = 67, .b = FORM_TRANSPOSED, .prepack = true},
    {"shared b of more columns, planned", BIG, .batch = 3, .m = 5, .n = 70, .k = 11, .flat_b = true, .prepack = true},
    {"fewer rows than planned", BIG, .m = 70, .n = 97, .k = 37, .shorter = true, .actual_batch = 1, .actual_m = 2,
     .prepack = true},
    {"c transposed, planned", BIG, .m = 20, .n = 90, .k = 37, .c = FORM_TRANSPOSED, .prepack = true},
    {"float16, planned", BIG, .m = 2, .n = 96, .k = 70, .type = {.b = CLATTN_DTYPE_F16}, .prepack = true},
    {"int8 stays as it is", BIG, .m = 2, .n = 96, .k = 70, .type = {.b = CLATTN_DTYPE_I8}, .b = FORM_TRANSPOSED,
     .prepack = true},
};

static bool is_whole(const unsigned char *image, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++)
        if (image[i] != value)
            return false;
    return true;
}

/* A call that only packs b touches nothing but the workspace; after it products need no b if the solver packs that, and have
 * the same bits. */
static void packs_in_advance(const void *which, const char *solver)
{
    enum { BAND = 64 * sizeof(float) };
    test_job job = {.args.matmul = CLATTN_MATMUL_ARGS_INIT};
    clattn_matmul_args *args = &job.args.matmul;
    if (!matmul_job(&job, which, solver, 5)) {
        job_release(&job);
        return;
    }
    job_run(&job, NULL);
    unsigned char *expected = job_snapshot(&job);
    const clattn_matmul_args all = *args;
    cl_command_queue queue = clattn_context_queue(device_context());
    const size_t workspace = clattn_plan_workspace_size(job.plan), bytes = workspace + 2 * BAND;
    unsigned char *image = malloc(bytes);
    assert_non_null(image);
    memset(image, 0xa5, bytes);
    cl_mem own = new_buffer(clattn_context_opencl_context(device_context()), CL_MEM_READ_WRITE, bytes, image);
    job_poison(&job);
    unsigned char *poison = job_snapshot(&job);
    args->prepack = CLATTN_PREPACK_PACK;
    args->workspace = clattn_binding_buffer(own, BAND);
    args->a = args->c = args->bias = args->b_scale = (clattn_binding){0};
    args->explicit_lengths = 1; /* of no rows, which do not matter */
    cl_event packed = NULL;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, &packed), CLATTN_SUCCESS);
    assert_cl(clWaitForEvents(1, &packed));
    assert_cl(clReleaseEvent(packed));
    read_buffer(queue, own, bytes, image);
    assert_true(is_whole(image, BAND, 0xa5) && is_whole(image + BAND + workspace, BAND, 0xa5));
    const bool packs = !is_whole(image, bytes, 0xa5);
    const matmul_case *test = which;
    if (!strcmp(solver, "cpu"))
        assert_int_equal(packs, test->prepack ? test->type.b != CLATTN_DTYPE_I8 : test->m > 16);
    test_array *b = &job.input[1];
    if (packs) {
        size_t index[3] = {0};
        do
            array_set(b, index, NAN);
        while (array_next((size_t)b->layout.rank, b->layout.extent, index));
        array_upload(b);
    }
    args->a = all.a;
    args->bias = all.bias;
    args->b_scale = all.b_scale;
    args->c = all.c;
    args->explicit_lengths = all.explicit_lengths;
    args->prepack = CLATTN_PREPACK_PACKED;
    for (int i = 0; i < 2; i++) {
        unsigned char *before = job_snapshot(&job);
        assert_memory_equal(before, poison, job_bytes(&job));
        job_run(&job, NULL);
        unsigned char *given = job_snapshot(&job);
        assert_memory_equal(given, expected, job_bytes(&job));
        job_poison(&job);
        free(before);
        free(given);
    }
    device_release_buffer(own);
    free(image);
    free(poison);
    free(expected);
    job_release(&job);
}

static void prepack_is_refused(void **state)
{
    static float numbers[2 * 70 * 11];
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    test_job job = {.args.matmul = CLATTN_MATMUL_ARGS_INIT};
    clattn_matmul_args *args = &job.args.matmul;
    (void)state;
    const size_t a_extent[3] = {2, 70, 11}, b_extent[3] = {2, 11, 13}, c_extent[3] = {2, 70, 13};
    test_array a = job_floats(&job, 3, a_extent, numbers), b = job_floats(&job, 3, b_extent, numbers);
    array_bind(&a, &desc.a, &args->a);
    array_bind(&b, &desc.b, &args->b);
    array_bind(job_output(&job, 3, c_extent), &desc.c, &args->c);
    desc.prepack = 1;
    const char *reason = NULL;
    assert_int_equal(clattn_matmul_supports(device_context(), &desc, &reason), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(reason, "prepack is for a b that all items share");
    desc.prepack = 0;
    assert_true(job_plan(&job, &matmul_operator, &desc, "generic", JOB_TAKEN));
    args->prepack = CLATTN_PREPACK_PACK;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "that all items share");
    job_release(&job);
    job = (test_job){.args.matmul = CLATTN_MATMUL_ARGS_INIT};
    a = job_floats(&job, 2, a_extent + 1, numbers);
    b = job_floats(&job, 2, b_extent + 1, numbers);
    array_bind(&a, &desc.a, &args->a);
    array_bind(&b, &desc.b, &args->b);
    array_bind(job_output(&job, 2, c_extent + 1), &desc.c, &args->c);
    assert_true(job_plan(&job, &matmul_operator, &desc, "cpu", JOB_TAKEN));
    args->prepack = CLATTN_PREPACK_PACKED;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "prepack needs a workspace");
    args->prepack = (clattn_prepack)3;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(device_context(), "prepack is 3");
    job_release(&job);
}

/* CLBlast calls the OpenCL loader that it was linked with, so it is refused if OpenCL comes from the application. */
static void clblast_calls_no_other_opencl(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_F32, 7, 13, 11);
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    char message[256];

    (void)state;
    inject_start(0, 0);
    params.get_proc = inject_get_proc;
    params.clblast = CLATTN_CLBLAST_MODE_PREFER;
    params.device = getenv("CLATTN_DEVICE") ? NULL : "0";
    assert_status(device_context(), clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_matmul_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
    assert_string_not_equal(clattn_plan_solver(plan), "clblast");
    clattn_plan_release(&plan);
    options.solver = "clblast";
    assert_status(device_context(), clattn_matmul_plan_create(context, &desc, &options, &plan),
                  CLATTN_ERROR_UNSUPPORTED);
    clattn_context_message(context, message, sizeof message);
    assert_non_null(strstr(message, "OpenCL functions of its own"));
    clattn_context_release(&context);
}

/* C may be write-only to kernels, with a bias too. */
static void clblast_only_writes_c(void **state)
{
    static const float numbers[11 * 13];

    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
        test_job job = {.args.matmul = CLATTN_MATMUL_ARGS_INIT};
        clattn_matmul_args *args = &job.args.matmul;
        test_array a = job_floats(&job, 2, (size_t[]){7, 11}, numbers);
        test_array b = job_floats(&job, 2, (size_t[]){11, 13}, numbers);
        test_array added = bias ? job_floats(&job, 1, (size_t[]){13}, numbers) : (test_array){0};

        array_bind(&a, &desc.a, &args->a);
        array_bind(&b, &desc.b, &args->b);
        array_bind(&added, &desc.bias, &args->bias);
        array_bind(job_output(&job, 2, (size_t[]){7, 13}), &desc.c, &args->c);
        assert_true(job_plan(&job, &matmul_operator, &desc, "clblast", JOB_TAKEN));
        assert_int_equal(clattn_plan_workspace_size(job.plan), bias ? 7 * 13 * sizeof(float) : 0);
        assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_SUCCESS);
        assert_cl(clFinish(clattn_context_queue(device_context())));
        job_release(&job);
    }
}

static cl_uint context_references(cl_context context)
{
    cl_uint count;
    assert_cl(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    return count;
}

/* Programs that CLBlast compiled for one context are released with the last plan.  Another context of the same device
 * does not get them, and neither does the application's own use of CLBlast, which looks programs up by platform and
 * device name. */
static void clblast_in_two_contexts(void **state)
{
    enum { ROUNDS = 2, M = 7, N = 13, K = 11 };
    clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_F32, 7, 13, 11);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    cl_device_id device = clattn_context_opencl_device(device_context());
    cl_context opencl[ROUNDS];
    clattn_context *context[ROUNDS] = {NULL};
    clattn_plan *plan[ROUNDS] = {NULL};
    cl_uint before[ROUNDS];
    float a[M * K], b[K * N], c[M * N];
    cl_int code;

    (void)state;
    options.solver = "clblast";
    for (int i = 0; i < M * K; i++) {
        a[i] = (float)(i % 5) - 2;
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = (float)(i % 7) - 3;
    }
    for (int i = 0; i < ROUNDS; i++) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
        opencl[i] = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
        assert_cl(code);
        before[i] = context_references(opencl[i]);
        params.opencl_context = opencl[i];
        params.opencl_device = device;
        assert_status(device_context(), clattn_context_create(&params, &context[i]), CLATTN_SUCCESS);
        assert_status(device_context(), clattn_matmul_plan_create(context[i], &desc, &options, &plan[i]),
                      CLATTN_SUCCESS);
    }
    for (int i = 0; i < ROUNDS; i++) {
        clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
        cl_command_queue queue = clattn_context_queue(context[i]);
        cl_mem in = new_buffer(opencl[i], CL_MEM_READ_ONLY, sizeof a, a);
        cl_mem weights = new_buffer(opencl[i], CL_MEM_READ_ONLY, sizeof b, b);
        cl_mem out = new_buffer(opencl[i], CL_MEM_READ_WRITE, sizeof c, NULL);
        args.a = clattn_binding_buffer(in, 0);
        args.b = clattn_binding_buffer(weights, 0);
        args.c = clattn_binding_buffer(out, 0);
        assert_status(device_context(), clattn_matmul_enqueue(plan[i], NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        assert_cl(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof c, c, 0, NULL, NULL));
        for (int j = 0; j < M * N; j++) {
            float sum = 0; /* exact, because the numbers are whole */
            for (int k = 0; k < K; k++) {
                sum += a[j / N * K + k] * b[k * N + j % N];
            }
            assert_true(c[j] == sum);
        }
        device_release_buffer(in);
        device_release_buffer(weights);
        device_release_buffer(out);
        clattn_plan_release(&plan[i]);
        clattn_context_release(&context[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(context_references(opencl[i]), before[i]);
        assert_cl(clReleaseContext(opencl[i]));
    }
}

int main(int argc, char **argv)
{
    matmul_add(sizes, COUNT_OF(sizes));
    matmul_add(forms, COUNT_OF(forms));
    matmul_add(stored, COUNT_OF(stored));
    matmul_add(skinny, COUNT_OF(skinny));
    matmul_add(batches, COUNT_OF(batches));
    matmul_add(prepacked, COUNT_OF(prepacked));
    matmul_add(values, COUNT_OF(values));
    suite_add(clblast_is_a_choice, "matmul: CLBlast only where it pays");
    for (int n = 0; n < MATMUL_SOLVERS - (matmul_has_clblast() ? 0 : 1); n++) {
        for (size_t i = 0; i < COUNT_OF(overlaps) && (level() == LEVEL_FULL || n < MATMUL_SOLVERS - 1); i++) {
            suite_add_case(rows_overlap, &overlaps[i], matmul_solvers[n],
                           "matmul %s: A's rows overlap, %zu an item, strides %d, %d", matmul_solvers[n], overlaps[i].m,
                           (int)overlaps[i].item, (int)overlaps[i].row);
        }
    }
    for (int n = 0; n < MATMUL_SOLVERS - 1; n++) /* CLBlast is not among these */
        for (size_t i = 0; i < COUNT_OF(prepacked); i++)
            if (prepacked[i].levels & (unsigned)level())
                suite_add_case(packs_in_advance, &prepacked[i], matmul_solvers[n], "matmul %s: packed in advance, %s",
                               matmul_solvers[n], prepacked[i].rule);
    suite_add(prepack_is_refused, "matmul: what cannot be packed in advance");
    if (matmul_has_clblast()) {
        matmul_add(clblast, COUNT_OF(clblast));
        suite_add(clblast_calls_no_other_opencl, "matmul: no CLBlast with the application's OpenCL");
        if (level() == LEVEL_FULL) {
            suite_add(clblast_only_writes_c, "matmul clblast: C is only written");
            suite_add(clblast_in_two_contexts, "matmul clblast: two contexts, each gives back what it took");
        }
    }
    return suite_run("matmul", argc, argv);
}
