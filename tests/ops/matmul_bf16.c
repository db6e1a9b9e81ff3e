/* Products of bfloat16 pairs (the solvers cpu-bf16 and cpu-amx) use the processor's instructions if it has them, else
 * the OpenCL C that emulates them.  Odd and even k, either operand packed, few rows, refusals.
 *
 * Holds: what tests/ops/matmul.c holds; and that subnormal numbers count as 0. */
#include <math.h>
#include <string.h>

#include "support/ops/matmul_case.h"

#define BOTH (MATMUL_CPU_BF16 | MATMUL_CPU_AMX)
#define PAIRS .solvers = BOTH
#define NOT_TAKEN .solvers = BOTH, .refused_by = BOTH
#define NOT_IN_PAIRS PAIRS, .refused_by = MATMUL_CPU_BF16 /* cpu-amx takes these split: matmul_bf16x3.c */
#define BF16_ALL \
    .type = {.a = CLATTN_DTYPE_BF16, .b = CLATTN_DTYPE_BF16, .c = CLATTN_DTYPE_BF16, .bias = CLATTN_DTYPE_BF16}
#define BF16_IN \
    .type = {.a = CLATTN_DTYPE_BF16, .b = CLATTN_DTYPE_BF16, .c = CLATTN_DTYPE_F32, .bias = CLATTN_DTYPE_F32}
#define BF16_OTHER \
    .type = {.a = CLATTN_DTYPE_BF16, .b = CLATTN_DTYPE_BF16, .c = CLATTN_DTYPE_F16, .bias = CLATTN_DTYPE_BF16}
#define WEIGHTS .b = FORM_TRANSPOSED /* neighbouring k are neighbours in memory, as in weights (n, k) */

static const matmul_case sizes[] = {
    {"one of everything", ALL, PAIRS, BF16_ALL, .m = 1, .n = 1, .k = 1, WEIGHTS},
    {"one of everything, two k", ALL, PAIRS, BF16_ALL, .m = 1, .n = 1, .k = 2},
    {"inner size 1", ALL, PAIRS, BF16_IN, .m = 17, .n = 33, .k = 1},
    {"inner size 1", ALL, PAIRS, BF16_IN, .m = 17, .n = 33, .k = 1, WEIGHTS},
    {"inner size 2", BIG, PAIRS, BF16_IN, .m = 65, .n = 67, .k = 2, WEIGHTS},
    {"inner size 3", ALL, PAIRS, BF16_OTHER, .m = 9, .n = 21, .k = 3, WEIGHTS, .bias = true},
    {"odd k", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, WEIGHTS},
    {"odd k, whole lanes", ALL, PAIRS, BF16_ALL, .m = 12, .n = 64, .k = 33, WEIGHTS, .bias = true},
    {"odd k, B along its rows", ALL, PAIRS, BF16_ALL, .m = 12, .n = 64, .k = 33, .bias = true},
    {"primes", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .bias = true},
    {"primes", BIG, PAIRS, BF16_IN, .m = 131, .n = 67, .k = 521, WEIGHTS},
    {"tile", BIG, PAIRS, BF16_IN, .m = 48, .n = 64, .k = 1024, WEIGHTS},
    {"tile + 1", BIG, PAIRS, BF16_OTHER, .m = 49, .n = 65, .k = 1025, WEIGHTS, .bias = true},
    {"tile - 1", BIG, PAIRS, BF16_IN, .m = 47, .n = 63, .k = 1023},
    {"few columns", BIG, PAIRS, BF16_ALL, .m = 515, .n = 5, .k = 131, WEIGHTS},
    {"k in several blocks", BIG, PAIRS, BF16_IN, .m = 13, .n = 67, .k = 4103, WEIGHTS, .bias = true},
    {"1 row", ALL, PAIRS, BF16_ALL, .m = 1, .n = 37, .k = 19, WEIGHTS, .bias = true},
    {"4 rows", BIG, PAIRS, BF16_IN, .m = 4, .n = 131, .k = 267, WEIGHTS},
    {"8 rows", ALL, PAIRS, BF16_ALL, .m = 8, .n = 37, .k = 35, WEIGHTS},
    {"16 rows", BIG, PAIRS, BF16_ALL, .m = 16, .n = 131, .k = 2301, WEIGHTS},
    {"16 rows, k in two blocks", BIG, .solvers = MATMUL_CPU_BF16, BF16_ALL, .m = 16, .n = 131, .k = 8301, WEIGHTS},
    {"whole numbers, exact", ALL, PAIRS, BF16_IN, .m = 19, .n = 35, .k = 23, WEIGHTS, .integers = true, .bias = true},
    {"whole numbers, exact", BIG, PAIRS, BF16_IN, .m = 97, .n = 131, .k = 67, .integers = true, .bias = true},
};

static const matmul_case forms[] = {
    {"A transposed", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .a = FORM_TRANSPOSED, WEIGHTS},
    {"A transposed", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .a = FORM_TRANSPOSED, WEIGHTS, .bias = true},
    {"neither with neighbouring k", ALL, NOT_TAKEN, BF16_ALL, .m = 7, .n = 13, .k = 11, .a = FORM_TRANSPOSED},
    {"C transposed", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .c = FORM_TRANSPOSED, .bias = true},
    {"gaps", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED},
    {"gaps", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED},
    {"B's columns apart", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"A's columns apart", ALL, PAIRS, BF16_IN, .m = 33, .n = 17, .k = 21, .a = FORM_SPREAD, WEIGHTS},
    {"rows backwards", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .a = FORM_FLIPPED, .b = FORM_FLIPPED,
     .c = FORM_FLIPPED},
    {"columns backwards", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .b = FORM_MIRRORED, .c = FORM_MIRRORED},
    {"one row of A for all", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_FIRST, WEIGHTS},
    {"bias backwards", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .bias = true, .bias_form = FORM_MIRRORED},
    {"another type in A", ALL, NOT_IN_PAIRS,
     .type = {.a = CLATTN_DTYPE_F32, .b = CLATTN_DTYPE_BF16, .c = CLATTN_DTYPE_BF16, .bias = CLATTN_DTYPE_BF16}, .m = 7,
     .n = 13, .k = 11},
    {"another type in B", ALL, NOT_IN_PAIRS,
     .type = {.a = CLATTN_DTYPE_BF16, .b = CLATTN_DTYPE_F16, .c = CLATTN_DTYPE_BF16, .bias = CLATTN_DTYPE_BF16}, .m = 7,
     .n = 13, .k = 11},
};

static const matmul_case batches[] = {
    {"batch", ALL, PAIRS, BF16_ALL, .batch = 3, .m = 5, .n = 7, .k = 11},
    {"batch", BIG, PAIRS, BF16_ALL, .batch = 5, .m = 67, .n = 35, .k = 37, WEIGHTS, .bias = true},
    {"B shared by extent", BIG, PAIRS, BF16_IN, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true, .bias = true},
    {"B shared, items apart", BIG, PAIRS, BF16_IN, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true,
     .a = FORM_PADDED, .c = FORM_PADDED},
    {"A shared by stride", ALL, PAIRS, BF16_IN, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_SHARED_FIRST},
    {"smaller at enqueue", ALL, PAIRS, BF16_IN, .batch = 3, .m = 9, .n = 7, .k = 11, WEIGHTS, .shorter = true,
     .actual_batch = 2, .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue", BIG, PAIRS, BF16_ALL, .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true,
     .actual_batch = 4, .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"no rows", ALL, PAIRS, BF16_ALL, .m = 0, .n = 7, .k = 11},
    {"no inner size: the bias", ALL, PAIRS, BF16_ALL, .m = 5, .n = 7, .k = 0, .bias = true},
    {"no inner size: zeros", ALL, PAIRS, BF16_IN, .m = 5, .n = 7, .k = 0},
    {"NaN in A: its row alone", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .inject = MATMUL_A_NAN},
    {"NaN in A: its row alone", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, WEIGHTS, .inject = MATMUL_A_NAN},
    {"Inf in A: its row alone", BIG, PAIRS, BF16_ALL, .m = 97, .n = 83, .k = 61, .inject = MATMUL_A_INF},
    {"NaN in B: its column alone", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, WEIGHTS, .inject = MATMUL_B_NAN},
    {"NaN in B: its column alone", BIG, PAIRS, BF16_IN, .m = 97, .n = 83, .k = 61, .inject = MATMUL_B_NAN},
    {"-inf in the bias: its column alone", ALL, PAIRS, BF16_ALL, .m = 7, .n = 13, .k = 11, .bias = true,
     .inject = MATMUL_BIAS_INF},
};

/* The planner chooses pairs exactly if the processor has the instructions and there are more than a few rows. */
static void chosen_where_it_pays(void **state)
{
    (void)state;
    for (size_t m = 4; m <= 5; m++) {
        clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_BF16, m, 20, 24);
        clattn_plan *plan = operator_plan(&matmul_operator, &desc, NULL);
        device_check_pairs(plan, m == 5);
        clattn_plan_release(&plan);
    }
}

/* A record of wisdom does not make the planner choose an emulation. */
static void wisdom_does_not_choose_it(void **state)
{
    static const char *const names[] = {"cpu-amx", "cpu-bf16"};
    const char *here = device_pairs_solver();

    (void)state;
    for (int n = 0; n < 2; n++) {
        clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_BF16, 40, 20, 24);
        if (n == 0 && !matmul_may_emulate_amx()) {
            operator_refuses_plan(&matmul_operator, &desc, names[n], CLATTN_ERROR_UNSUPPORTED);
            continue;
        }
        clattn_plan *plan = operator_plan(&matmul_operator, &desc, names[n]);
        assert_status(device_context(), clattn_wisdom_learn(plan, 0, 1), CLATTN_SUCCESS);
        clattn_plan_release(&plan);
        plan = operator_plan(&matmul_operator, &desc, NULL);
        device_check_pairs(plan, true);
        assert_non_null(strstr(clattn_plan_explain(plan), names[n]));
        assert_int_equal(!strstr(clattn_plan_explain(plan), "that is ignored"), here && !strcmp(here, names[n]));
        clattn_plan_release(&plan);
        assert_status(device_context(), clattn_wisdom_clear(device_context()), CLATTN_SUCCESS);
    }
}

/* AMX's tile of 32 x 32 decides which operand is packed: products of 40 x 33 and 33 x 40 take equally many tiles either
 * way, so the shorter operand is packed.  By the tile of float32, 6 x 64, it would be the longer one. */
static void amx_packs_by_its_own_tile(void **state)
{
    (void)state;
    for (int along_m = 0; along_m < 2; along_m++) {
        size_t m = along_m ? 33 : 40, n = along_m ? 40 : 33;
        clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_BF16, m, n, 24);
        desc.b = (clattn_layout){.dtype = CLATTN_DTYPE_BF16, .rank = 2, .extent = {24, n}, .stride = {1, 24}};
        clattn_plan *plan = operator_plan(&matmul_operator, &desc, "cpu-amx");
        assert_non_null(strstr(clattn_plan_explain(plan), along_m ? " along_m=1" : " along_m=0"));
        clattn_plan_release(&plan);
    }
}

/* A subnormal element counts as 0: 2^-130 times 2^100 is 0, and times infinity it is NaN. */
static void subnormal_numbers(void **state)
{
    enum { M = 5, N = 3, K = 16 };
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    test_job job = {.args.matmul = CLATTN_MATMUL_ARGS_INIT};
    test_array a = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_BF16, 2, (size_t[]){M, K}, FORM_PLAIN);
    test_array b = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_BF16, 2, (size_t[]){K, N}, FORM_PLAIN);
    size_t index[2] = {0};

    (void)state;
    job_fill(&a, 1, 0x1p-130f, 0x1p-130f, false);
    job_fill(&b, 1, 0x1p100f, 0x1p100f, false);
    array_set(&b, index, INFINITY);
    array_upload(&b);
    array_bind(&a, &desc.a, &job.args.matmul.a);
    array_bind(&b, &desc.b, &job.args.matmul.b);
    array_bind(job_output(&job, 2, (size_t[]){M, N}), &desc.c, &job.args.matmul.c);
    assert_true(job_plan(&job, &matmul_operator, &desc, "cpu-bf16", JOB_TAKEN));
    job_run(&job, NULL);
    do {
        double c = array_get(&job.output[0], index);
        assert_true(index[1] == 0 ? isnan(c) : c == 0);
    } while (array_next(2, job.output[0].layout.extent, index));
    job_release(&job);
}

int main(int argc, char **argv)
{
    matmul_add(sizes, COUNT_OF(sizes));
    matmul_add(forms, COUNT_OF(forms));
    matmul_add(batches, COUNT_OF(batches));
    suite_add(chosen_where_it_pays, "matmul cpu-bf16: chosen where it pays");
    suite_add(wisdom_does_not_choose_it, "matmul cpu-bf16, cpu-amx: not by wisdom where they are held back");
    if (matmul_may_emulate_amx()) {
        suite_add(amx_packs_by_its_own_tile, "matmul cpu-amx: packs by its own tile");
    }
    suite_add(subnormal_numbers, "matmul cpu-bf16: subnormal numbers");
    return suite_run("matmul_bf16", argc, argv);
}
