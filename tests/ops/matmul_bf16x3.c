/* Products of float32, float16 and mixtures by AMX (the solver cpu-amx) split each element into up to three bfloat16
 * and use the processor's instructions if it has them, else the OpenCL C that emulates them.  Edges of panels and
 * blocks of k, all geometries, every form of either operand, magnitudes that split floats cannot hold.
 *
 * Holds: what tests/ops/matmul.c holds; and that rows and columns with such magnitudes change no bit of the others. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "support/ops/matmul_case.h"

#define TERMS .solvers = MATMUL_CPU_AMX
#define WEIGHTS .b = FORM_TRANSPOSED /* neighbouring k are neighbours in memory, as in weights (n, k) */
#define OUT(t) .type = {.c = (t), .bias = (t)}
#define TYPES(ta, tb, tc) .type = {.a = CLATTN_DTYPE_##ta, .b = CLATTN_DTYPE_##tb, .c = CLATTN_DTYPE_##tc}

static const matmul_case sizes[] = {
    {"one of everything", ALL, TERMS, .m = 1, .n = 1, .k = 1, WEIGHTS},
    {"inner size 1", ALL, TERMS, .m = 17, .n = 33, .k = 1},
    {"inner size 2", BIG, TERMS, .m = 65, .n = 67, .k = 2, WEIGHTS},
    {"inner size 16", ALL, TERMS, .m = 5, .n = 18, .k = 16, WEIGHTS},
    {"inner size 17", ALL, TERMS, .m = 18, .n = 5, .k = 17, .bias = true},
    {"one block", BIG, TERMS, .m = 32, .n = 32, .k = 32},
    {"one block", ALL, TERMS, .m = 32, .n = 32, .k = 32, WEIGHTS, .bias = true},
    {"block + 1", BIG, TERMS, .m = 33, .n = 33, .k = 33, WEIGHTS},
    {"block - 1", BIG, TERMS, .m = 31, .n = 31, .k = 31, .bias = true},
    {"primes", BIG, TERMS, .m = 97, .n = 83, .k = 61, .bias = true},
    {"primes", BIG, TERMS, .m = 131, .n = 67, .k = 521, WEIGHTS},
    {"several chunks of blocks", BIG, TERMS, .m = 49, .n = 65, .k = 1025, WEIGHTS, .bias = true},
    {"several chunks of blocks", BIG, TERMS, .m = 47, .n = 63, .k = 1023},
    {"one row", ALL, TERMS, .m = 1, .n = 37, .k = 19, WEIGHTS, .bias = true},
    {"one column", BIG, TERMS, .m = 131, .n = 1, .k = 67},
    {"whole numbers, exact", ALL, TERMS, .m = 19, .n = 35, .k = 23, WEIGHTS, .integers = true, .bias = true},
    {"whole numbers, exact", BIG, TERMS, .m = 97, .n = 131, .k = 67, .integers = true, .bias = true},
    {"float16 out", BIG, TERMS, OUT(CLATTN_DTYPE_F16), .m = 65, .n = 64, .k = 67, .bias = true},
    {"bfloat16 out", BIG, TERMS, OUT(CLATTN_DTYPE_BF16), .m = 64, .n = 65, .k = 67, WEIGHTS, .bias = true},
};

/* float16 is split into two, bfloat16 into one, by blocks of lanes and of rows. */
static const matmul_case types[] = {
    {"float16", ALL, TERMS, TYPES(F16, F16, F16), .m = 33, .n = 35, .k = 37, WEIGHTS, .bias = true},
    {"float16", BIG, TERMS, TYPES(F16, F16, F32), .m = 97, .n = 83, .k = 300},
    {"float16, A across lanes", BIG, TERMS, TYPES(F16, F16, F32), .m = 97, .n = 83, .k = 61, WEIGHTS,
     .tuning = "along_m=1"},
    {"float16, whole numbers, exact", BIG, TERMS, TYPES(F16, F16, F32), .m = 97, .n = 83, .k = 61, .integers = true},
    {"float16, k in several pieces", BIG, TERMS, TYPES(F16, F16, F32), .m = 35, .n = 37, .k = 97,
     .tuning = "tiles=1 group=1 depth=2"},
    {"float16, columns apart", BIG, TERMS, TYPES(F16, F16, F16), .m = 97, .n = 83, .k = 61, .a = FORM_SPREAD,
     .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"float16, all transposed", BIG, TERMS, TYPES(F16, F16, F16), .m = 37, .n = 35, .k = 33, .a = FORM_TRANSPOSED,
     WEIGHTS, .c = FORM_TRANSPOSED},
    {"float16, Inf in A", BIG, TERMS, TYPES(F16, F16, F32), .m = 97, .n = 83, .k = 61, .inject = MATMUL_A_INF},
    {"float16, NaN in B", BIG, TERMS, TYPES(F16, F16, F32), .m = 7, .n = 13, .k = 11, WEIGHTS, .inject = MATMUL_B_NAN},
    {"float16 weights", BIG, TERMS, TYPES(F32, F16, F32), .m = 33, .n = 35, .k = 37, WEIGHTS},
    {"float16 weights, A across lanes", BIG, TERMS, TYPES(F32, F16, F32), .m = 65, .n = 67, .k = 61,
     .tuning = "along_m=1", .inject = MATMUL_A_INF},
    {"float16 by float32", BIG, TERMS, TYPES(F16, F32, F16), .m = 65, .n = 67, .k = 61, .bias = true},
    {"bfloat16 weights", BIG, TERMS, TYPES(F32, BF16, F32), .m = 65, .n = 67, .k = 61, WEIGHTS},
    {"bfloat16 by float32", BIG, TERMS, TYPES(BF16, F32, BF16), .m = 33, .n = 35, .k = 37},
    {"bfloat16 by float16", BIG, TERMS, TYPES(BF16, F16, F32), .m = 65, .n = 67, .k = 61, WEIGHTS,
     .inject = MATMUL_B_NAN},
    {"int8 weights", ALL, TERMS, TYPES(F32, I8, F32), .refused_by = MATMUL_CPU_AMX, .m = 7, .n = 13, .k = 11, WEIGHTS},
};

/* The parameters have the order of src/ops/matmul/bf16x3.c: tiles and panels of an item, then blocks of k at a time. */
static const matmul_case geometries[] = {
    {"geometry", ALL, TERMS, .m = 35, .n = 37, .k = 97, .tuning = "tiles=1 group=1 depth=2", .bias = true},
    {"geometry", BIG, TERMS, .m = 200, .n = 133, .k = 97, .tuning = "tiles=2 group=4 depth=2"},
    {"geometry", BIG, TERMS, .m = 200, .n = 133, .k = 97, .tuning = "tiles=4 group=2 depth=4", WEIGHTS},
    {"geometry", BIG, TERMS, .m = 300, .n = 33, .k = 300, .tuning = "tiles=8 group=1 depth=4", WEIGHTS},
    {"geometry", BIG, TERMS, .m = 33, .n = 600, .k = 300, .tuning = "tiles=1 group=16 depth=2"},
    {"geometry, A across lanes", ALL, TERMS, .m = 35, .n = 37, .k = 97, .tuning = "along_m=1 tiles=1 group=1 depth=2"},
    {"geometry, A across lanes", BIG, TERMS, .m = 133, .n = 200, .k = 97, .tuning = "along_m=1 tiles=2 group=4 depth=2",
     .bias = true},
};

static const matmul_case forms[] = {
    {"A transposed", ALL, TERMS, .m = 7, .n = 13, .k = 11, .a = FORM_TRANSPOSED, WEIGHTS},
    {"A transposed", BIG, TERMS, .m = 97, .n = 83, .k = 61, .a = FORM_TRANSPOSED, .bias = true},
    {"C transposed", BIG, TERMS, .m = 97, .n = 83, .k = 61, .c = FORM_TRANSPOSED, .bias = true},
    {"all transposed", ALL, TERMS, .m = 37, .n = 35, .k = 33, .a = FORM_TRANSPOSED, WEIGHTS, .c = FORM_TRANSPOSED},
    {"gaps", ALL, TERMS, .m = 7, .n = 13, .k = 11, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED},
    {"gaps", BIG, TERMS, .m = 97, .n = 83, .k = 61, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED},
    {"columns apart", BIG, TERMS, .m = 97, .n = 83, .k = 61, .a = FORM_SPREAD, .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"rows backwards", BIG, TERMS, .m = 97, .n = 83, .k = 61, .a = FORM_FLIPPED, .b = FORM_FLIPPED, .c = FORM_FLIPPED},
    {"columns backwards", ALL, TERMS, .m = 7, .n = 13, .k = 11, .a = FORM_MIRRORED, .b = FORM_MIRRORED,
     .c = FORM_MIRRORED},
    {"one row of A for all", ALL, TERMS, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_FIRST, WEIGHTS},
    {"bias backwards", ALL, TERMS, .m = 7, .n = 13, .k = 11, .bias = true, .bias_form = FORM_MIRRORED},
};

static const matmul_case batches[] = {
    {"batch", ALL, TERMS, .batch = 3, .m = 5, .n = 7, .k = 11},
    {"batch", BIG, TERMS, .batch = 5, .m = 67, .n = 35, .k = 37, WEIGHTS, .bias = true},
    {"batch, A across lanes", BIG, TERMS, .batch = 5, .m = 67, .n = 35, .k = 37, .tuning = "along_m=1"},
    {"B shared by extent", BIG, TERMS, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true, .bias = true},
    {"B shared, A across lanes", BIG, TERMS, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true,
     .tuning = "along_m=1"},
    {"B shared, items apart", BIG, TERMS, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true, .a = FORM_PADDED,
     .c = FORM_PADDED},
    {"A shared by stride", ALL, TERMS, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_SHARED_FIRST},
    {"A shared by stride, across lanes", BIG, TERMS, .batch = 3, .m = 35, .n = 37, .k = 41, .a = FORM_SHARED_FIRST,
     .tuning = "along_m=1"},
    {"smaller at enqueue", ALL, TERMS, .batch = 3, .m = 9, .n = 7, .k = 11, WEIGHTS, .shorter = true, .actual_batch = 2,
     .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue", BIG, TERMS, .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true, .actual_batch = 4,
     .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"no rows", ALL, TERMS, .m = 0, .n = 7, .k = 11},
    {"no inner size: the bias", ALL, TERMS, .m = 5, .n = 7, .k = 0, .bias = true},
    {"no inner size: zeros", ALL, TERMS, .m = 5, .n = 7, .k = 0},
};

static const matmul_case magnitudes[] = {
    {"NaN in A: its row alone", ALL, TERMS, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN},
    {"NaN in A: its row alone", BIG, TERMS, .m = 97, .n = 83, .k = 61, WEIGHTS, .inject = MATMUL_A_NAN},
    {"Inf in A: its row alone", ALL, TERMS, .m = 7, .n = 13, .k = 11, WEIGHTS, .inject = MATMUL_A_INF},
    {"Inf in A: its row alone", BIG, TERMS, .m = 97, .n = 83, .k = 300, .inject = MATMUL_A_INF},
    {"Inf in A, across lanes", BIG, TERMS, .m = 97, .n = 83, .k = 300, .inject = MATMUL_A_INF, .tuning = "along_m=1"},
    {"Inf in A, k in several pieces", BIG, TERMS, .m = 97, .n = 83, .k = 300, .inject = MATMUL_A_INF,
     .tuning = "depth=2"},
    {"NaN in B: its column alone", ALL, TERMS, .m = 7, .n = 13, .k = 11, WEIGHTS, .inject = MATMUL_B_NAN},
    {"NaN in B: its column alone", BIG, TERMS, .m = 97, .n = 83, .k = 300, .inject = MATMUL_B_NAN},
    {"-inf in the bias: its column alone", ALL, TERMS, .m = 7, .n = 13, .k = 11, .bias = true,
     .inject = MATMUL_BIAS_INF},
    {"as small as terms may be", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p-79f},
    {"smaller", ALL, TERMS, .m = 7, .n = 13, .k = 11, .spread = 0x1p-90f},
    {"smaller", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p-100f, WEIGHTS},
    {"as great as terms may be", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p95f},
    {"greater", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p120f, WEIGHTS},
    {"both great", ALL, TERMS, .m = 7, .n = 13, .k = 11, .spread = 0x1p60f, .spread_b = 0x1p60f},
    {"both great", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p46f, .spread_b = 0x1p46f},
    {"both great", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p58f, .spread_b = 0x1p62f},
    {"both small", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p-40f, .spread_b = 0x1p-41f},
    {"both small", ALL, TERMS, .m = 7, .n = 13, .k = 11, .spread = 0x1p-60f, .spread_b = 0x1p-55f},
    {"both small", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p-60f, .spread_b = 0x1p-50f, WEIGHTS},
    {"great and small", BIG, TERMS, .m = 37, .n = 35, .k = 67, .spread = 0x1p95f, .spread_b = 0x1p-79f},
};

static const matmul_case epilogues[] = {
    {"GELU", ALL, TERMS, .m = 35, .n = 37, .k = 11, .activation = CLATTN_ACTIVATION_GELU, .bias = true},
    {"ReLU", BIG, TERMS, .m = 65, .n = 64, .k = 67, .activation = CLATTN_ACTIVATION_RELU, WEIGHTS},
    {"residual", ALL, TERMS, .m = 35, .n = 37, .k = 11, .operand = OPERAND_ADD, .bias = true},
    {"residual in place", BIG, TERMS, .m = 65, .n = 67, .k = 67, .operand = OPERAND_ADD, .in_place = true, WEIGHTS},
    {"SiLU, gate", BIG, TERMS, .m = 67, .n = 65, .k = 64, .activation = CLATTN_ACTIVATION_SWISH,
     .operand = OPERAND_MULTIPLY},
    {"gate, C transposed", BIG, TERMS, .m = 67, .n = 65, .k = 64, .operand = OPERAND_MULTIPLY, .c = FORM_TRANSPOSED,
     .operand_form = FORM_TRANSPOSED},
};

/* ---- what the tables cannot say ---- */

/* Computes C (m x n, contiguous) of A (m x k) and B (k x n) by a solver. */
static void product(const char *solver, size_t m, size_t n, size_t k, const float *a, const float *b, float *c)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    test_job job = {.args.matmul = CLATTN_MATMUL_ARGS_INIT};
    test_array left = job_floats(&job, 2, (size_t[]){m, k}, a), right = job_floats(&job, 2, (size_t[]){k, n}, b);

    array_bind(&left, &desc.a, &job.args.matmul.a);
    array_bind(&right, &desc.b, &job.args.matmul.b);
    array_bind(job_output(&job, 2, (size_t[]){m, n}), &desc.c, &job.args.matmul.c);
    assert_true(job_plan(&job, &matmul_operator, &desc, solver, JOB_TAKEN));
    job_run(&job, NULL);
    job_copy_output(&job, c);
    job_release(&job);
}

/* A row or column that split floats cannot hold is summed bit by bit like the cpu solver does, and no other one is. */
static void beyond_terms_as_cpu(void **state)
{
    enum { M = 40, N = 37, K = 330 };
    static const float beyond[] = {INFINITY, 0x1p96f, -0x1.8p126f};
    static float a[M * K], b[K * N], plain[M * N], by_terms[M * N], by_cpu[M * N];

    (void)state;
    for (size_t which = 0; which < COUNT_OF(beyond); which++) {
        for (int i = 0; i < M * K; i++) {
            a[i] = (float)(i * 37 % 101 - 50) / 64 + 0x1p-20f;
        }
        for (int i = 0; i < K * N; i++) {
            b[i] = (float)(i * 53 % 97 - 48) / 128 + 0x1p-19f;
        }
        product("cpu-amx", M, N, K, a, b, plain);
        a[35 * K + K - 1] = beyond[which];
        b[(K - 2) * N + 36] = beyond[which] / 0x1p20f;
        for (int i = 0; i < K; i++) {
            a[2 * K + i] *= 0x1p-90f;
        }
        product("cpu-amx", M, N, K, a, b, by_terms);
        product("cpu", M, N, K, a, b, by_cpu);
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < N; j++) {
                bool exact = i == 35 || i == 2 || (j == 36 && which != 1);
                const float *want = exact ? by_cpu : plain;
                const float *given = &by_terms[i * N + j], *other = &want[i * N + j];
                if (j != 36 || exact) {
                    assert_true(memcmp(given, other, sizeof *given) == 0 || (isnan(*given) && isnan(*other)));
                }
            }
        }
    }
}

/* Tiny elements beside great ones lose less than 2^-126 times the other factor each. */
static void tiny_beside_great(void **state)
{
    enum { M = 3, N = 3, K = 8 };
    float a[M * K], b[K * N], c[M * N];

    (void)state;
    for (int i = 0; i < M * K; i++) {
        a[i] = i % K == 0 ? 1 : ldexpf(1 + 0x1p-22f, -100 - 3 * (i % K));
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = i < N ? 0 : ldexpf(1 - 0x1p-23f, 40);
    }
    product("cpu-amx", M, N, K, a, b, c);
    for (int i = 0; i < M * N; i++) {
        double exact = 0, lost = 0;
        for (int k = 0; k < K; k++) {
            double x = (double)a[i / N * K + k], y = (double)b[k * N + i % N];
            exact += x * y;
            lost += y;
        }
        assert_true(exact > 0);
        assert_true(fabs((double)c[i] - exact) <= ldexp(lost, -125) + 8 * (double)FLT_EPSILON * exact);
    }
}

/* The self-check of a program for few k uses more of them. */
static void few_k_by_a_small_depth(void **state)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_F32, 64, 64, 64);
    clattn_plan *plan = NULL;

    (void)state;
    options.solver = "cpu-amx";
    options.tuning = "depth=2";
    assert_status(device_context(), clattn_matmul_plan_create(device_context(), &desc, &options, &plan),
                  CLATTN_SUCCESS);
    clattn_plan_release(&plan);
}

/* The planner chooses AMX exactly if the processor has it, neither operand is thin, and k are more than a block. */
static void chosen_where_it_pays(void **state)
{
    const char *pairs = device_pairs_solver();
    bool here = pairs && !strcmp(pairs, "cpu-amx");

    (void)state;
    for (int thin = 0; thin < 4; thin++) {
        clattn_matmul_desc desc =
            matmul_contiguous(CLATTN_DTYPE_F32, thin == 1 ? 64 : 256, thin == 2 ? 64 : 256, thin == 3 ? 32 : 64);
        clattn_plan *plan = operator_plan(&matmul_operator, &desc, NULL);
        bool taken = strstr(clattn_plan_explain(plan), "matmul_cpu_bf16x3") != NULL;
        assert_int_equal(taken, here && thin == 0);
        clattn_plan_release(&plan);
    }
}

int main(int argc, char **argv)
{
    matmul_add(sizes, COUNT_OF(sizes));
    matmul_add(types, COUNT_OF(types));
    matmul_add(geometries, COUNT_OF(geometries));
    matmul_add(forms, COUNT_OF(forms));
    matmul_add(batches, COUNT_OF(batches));
    matmul_add(magnitudes, COUNT_OF(magnitudes));
    matmul_add(epilogues, COUNT_OF(epilogues));
    suite_add(chosen_where_it_pays, "matmul cpu-amx of float32: chosen where it pays");
    if (matmul_may_emulate_amx()) {
        suite_add(beyond_terms_as_cpu, "matmul cpu-amx of float32: beyond terms as cpu");
        suite_add(few_k_by_a_small_depth, "matmul cpu-amx of float32: few k by a small depth");
        suite_add(tiny_beside_great, "matmul cpu-amx of float32: tiny elements beside great ones");
    }
    return suite_run("matmul_bf16x3", argc, argv);
}
