/* Matrix products by every solver: sizes of 1, around tiles, primes; transposes and other strides; batches that
 * share B; biases; CLBlast where the library was built with it.
 *
 * Holds: the accuracy rule (with sum_k |a_ik b_kj| + |bias_j| for M), that NaN and Inf stay in their row or
 * column (Meaning 5), nothing to do (Meaning 8), guard bands. */
#include "support/matmul_case.h"

#define TINY LEVEL_TINY
#define FULL LEVEL_FULL
#define BIG (LEVEL_SMALL | FULL)
#define ALL (TINY | BIG)

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
    {"C transposed", BIG, .m = 97, .n = 83, .k = 61, .c = FORM_TRANSPOSED, .bias = true},
    {"gaps", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED, .bias = true},
    {"gaps", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED, .bias = true},
    {"columns apart", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD, .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"columns apart", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_SPREAD, .b = FORM_SPREAD, .c = FORM_SPREAD},
    {"rows backwards", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_FLIPPED, .b = FORM_FLIPPED, .c = FORM_FLIPPED},
    {"columns backwards", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_MIRRORED, .b = FORM_MIRRORED,
     .c = FORM_MIRRORED},
    {"columns backwards", BIG, .m = 97, .n = 83, .k = 61, .a = FORM_MIRRORED, .b = FORM_MIRRORED,
     .c = FORM_MIRRORED},
    {"one row of A for all", ALL, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_FIRST},
    {"one row of B for all", BIG, .m = 67, .n = 35, .k = 37, .b = FORM_SHARED_FIRST},
    {"bias", ALL, .m = 7, .n = 13, .k = 11, .bias = true},
    {"bias", BIG, .m = 97, .n = 83, .k = 61, .bias = true},
    {"bias strided", ALL, .m = 7, .n = 13, .k = 11, .bias = true, .bias_form = FORM_SPREAD},
    {"bias backwards", ALL, .m = 7, .n = 13, .k = 11, .bias = true, .bias_form = FORM_MIRRORED},
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
    {"batch inside rows", ALL, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_BSHD, .b = FORM_BSHD,
     .c = FORM_BSHD},
    {"batch backwards", BIG, .batch = 5, .m = 67, .n = 35, .k = 37, .a = FORM_FLIPPED, .b = FORM_MIRRORED},
    {"smaller at enqueue", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 2,
     .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue", BIG, .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true, .actual_batch = 4,
     .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"one row at enqueue", BIG, .batch = 5, .m = 131, .n = 67, .k = 37, .shorter = true, .actual_batch = 1,
     .actual_m = 1, .inject = MATMUL_BEYOND},
    {"smaller at enqueue, B shared", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shared_b = true, .shorter = true,
     .actual_batch = 2, .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue, B shared", BIG, .batch = 5, .m = 131, .n = 67, .k = 37, .flat_b = true, .shorter = true,
     .actual_batch = 4, .actual_m = 66, .bias = true, .inject = MATMUL_BEYOND},
    {"nothing at enqueue", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 0,
     .actual_m = 5},
    {"no rows at enqueue", ALL, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true, .actual_batch = 2,
     .actual_m = 0},
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
    {"-inf in the bias: its column alone", ALL, .m = 7, .n = 13, .k = 11, .bias = true,
     .inject = MATMUL_BIAS_INF},
};

/* CLBlast compiles for seconds at a routine's first call on a CPU: few, and none on a simulator. */
#define BY_CLBLAST .solvers = MATMUL_CLBLAST

static const matmul_case clblast[] = {
    {"projection", FULL, BY_CLBLAST, .m = 67, .n = 128, .k = 96, .b = FORM_TRANSPOSED, .bias = true},
    {"primes", FULL, BY_CLBLAST, .m = 97, .n = 83, .k = 61},
    {"A transposed, gaps", FULL, BY_CLBLAST, .m = 37, .n = 83, .k = 61, .a = FORM_TRANSPOSED, .c = FORM_PADDED},
    {"one row", FULL, BY_CLBLAST, .m = 1, .n = 83, .k = 61, .bias = true},
    {"batch", FULL, BY_CLBLAST, .batch = 3, .m = 35, .n = 83, .k = 61, .bias = true},
    {"B shared, smaller at enqueue", FULL, BY_CLBLAST, .batch = 3, .m = 35, .n = 83, .k = 61, .flat_b = true,
     .shorter = true, .actual_batch = 2, .actual_m = 17, .bias = true},
    {"columns apart", FULL, BY_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD},
    {"columns backwards", FULL, BY_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13, .k = 11,
     .b = FORM_MIRRORED},
    {"C transposed", FULL, BY_CLBLAST, .refused_by = MATMUL_CLBLAST, .m = 7, .n = 13, .k = 11,
     .c = FORM_TRANSPOSED},
};

/* On CPUs CLBlast is never the plan's own choice; without it in the build, its name is unknown. */
static void clblast_is_a_choice(void **state)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_plan *plan = NULL;

    (void)state;
    desc.a = clattn_layout_contiguous(CLATTN_F32, 2, (size_t[]){7, 11});
    desc.b = clattn_layout_contiguous(CLATTN_F32, 2, (size_t[]){11, 13});
    desc.c = clattn_layout_contiguous(CLATTN_F32, 2, (size_t[]){7, 13});
    assert_status(CLATTN_SUCCESS, clattn_matmul_plan_create(device_context(), &desc, NULL, &plan));
    if (device_is_cpu()) {
        assert_string_equal(clattn_plan_solver(plan), "cpu");
    }
    clattn_plan_release(&plan);
    if (!matmul_has_clblast()) {
        clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
        options.solver = "clblast";
        assert_status(CLATTN_ERROR_INVALID_ARGUMENT,
                      clattn_matmul_plan_create(device_context(), &desc, &options, &plan));
        assert_null(plan);
    }
}

int main(int argc, char **argv)
{
    test_suite suite = {0};

    matmul_add(&suite, sizes, COUNT_OF(sizes));
    matmul_add(&suite, forms, COUNT_OF(forms));
    matmul_add(&suite, batches, COUNT_OF(batches));
    matmul_add(&suite, values, COUNT_OF(values));
    suite_add(&suite, clblast_is_a_choice, "matmul: CLBlast only where it pays");
    if (matmul_has_clblast()) {
        matmul_add(&suite, clblast, COUNT_OF(clblast));
    }
    return suite_run(&suite, "matmul", true, argc, argv);
}
