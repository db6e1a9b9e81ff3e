/* Matrix products: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/matmul_case.h"
#include "support/verdict.h"

const char *const matmul_solvers[MATMUL_ALL_SOLVERS] = {
    "generic",      "cpu",           "tile",          "clblast",        "cpu-bf16",        "cpu-amx",        "matrix",
    "emulated-mma", "emulated-wmma", "emulated-mfma", "emulated-dpas8", "emulated-dpas16", "emulated-wgmma", "wgmma"};

enum { A = MATMUL_A, B = MATMUL_B, BIAS = MATMUL_BIAS, SCALE = MATMUL_SCALE, OPERAND = MATMUL_OPERAND };
enum { INPUTS = MATMUL_INPUTS };

test_array matmul_matrix(test_job *job, array_role role, clattn_dtype type, size_t batch, size_t rows, size_t columns,
                         array_form form)
{
    size_t extent[3] = {batch, rows, columns};

    return batch ? job_array(job, role, type, 3, extent, form) : job_array(job, role, type, 2, extent + 1, form);
}

size_t matmul_batch_of_operand(const matmul_case *test)
{
    return test->flat_operand ? 0 : test->shared_operand ? 1 : test->batch;
}

size_t matmul_batch_of_b(const matmul_case *test)
{
    return test->flat_b ? 0 : test->shared_b ? 1 : test->batch;
}

void matmul_actual(const matmul_case *test, size_t *batch, size_t *m)
{
    *batch = test->shorter ? test->actual_batch : test->batch ? test->batch : 1;
    *m = test->shorter ? test->actual_m : test->m;
}

/* rusticl (Mesa 22.3 on llvmpipe) gives a kernel 32 items whatever the device claims, which is fewer than MFMA's
 * wavefront of 64 and wgmma's four warps, and it has 32 KiB of local memory, while a tile that a case asks for takes 48
 * KiB with its emulation.  A kernel with emulated AMX would take its compiler a minute. */
static bool is_too_large(const matmul_case *test, const char *solver)
{
    return device_platform_contains("rusticl") && (test->tuning || !strcmp(solver, "emulated-mfma") ||
                                                   !strcmp(solver, "emulated-wgmma") || !strcmp(solver, "cpu-amx"));
}

void matmul_inputs(test_job *job, const matmul_case *test, uint64_t salt, clattn_matmul_desc *desc,
                   clattn_matmul_args *args)
{
    float limit = test->integers ? 3 : 1;

    clattn_matmul_desc_init(desc);
    clattn_matmul_args_init(args);
    desc->prepack = test->prepack;
    job->input[A] = matmul_matrix(job, ROLE_INPUT, test->type.a, test->batch, test->m, test->k, test->a);
    job->input[B] = matmul_matrix(job, ROLE_INPUT, test->type.b, matmul_batch_of_b(test), test->k, test->n, test->b);
    if (test->bias) {
        job->input[BIAS] = job_array(job, ROLE_INPUT, test->type.bias, 1, &test->n, test->bias_form);
    }
    if (test->type.b == CLATTN_DTYPE_I8) {
        job->input[SCALE] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, &test->n, test->scale_form);
    }
    if (test->operand && !test->in_place) {
        job->input[OPERAND] = matmul_matrix(job, ROLE_INPUT, test->type.operand, matmul_batch_of_operand(test), test->m,
                                            test->n, test->operand_form);
    }
    for (int which = A; which < INPUTS; which++) {
        bool bytes = job->input[which].memory && job->input[which].layout.dtype == CLATTN_DTYPE_I8;
        float spread = which == A ? test->spread : which == B ? test->spread_b : 0;
        float most = bytes ? 127 : spread > 0 ? spread : limit;
        if (job->input[which].memory) {
            job_fill(&job->input[which], salt * 8 + (uint64_t)which, bytes ? -128 : -most, most,
                     bytes || test->integers);
        }
    }
    desc->operand_use =
        test->operand == OPERAND_MULTIPLY ? CLATTN_MATMUL_OPERAND_USE_MULTIPLY : CLATTN_MATMUL_OPERAND_USE_ADD;
    desc->activation = test->activation;
    desc->explicit_alpha = test->alpha < 0 || test->alpha > 0;
    desc->alpha = test->alpha;
    array_bind(&job->input[A], &desc->a, &args->a);
    array_bind(&job->input[B], &desc->b, &args->b);
    array_bind(&job->input[BIAS], &desc->bias, &args->bias);
    array_bind(&job->input[SCALE], &desc->b_scale, &args->b_scale);
    array_bind(&job->input[OPERAND], &desc->operand, &args->operand);
    args->explicit_lengths = test->shorter;
    args->batch = test->actual_batch;
    args->m = test->actual_m;
}

bool matmul_job(test_job *job, const matmul_case *test, const char *solver, uint64_t salt)
{
    clattn_matmul_desc desc;
    clattn_matmul_args args;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    float limit = test->integers ? 3 : 1;
    size_t written[3] = {0, 0, test->n};
    bool refused = is_too_large(test, solver);

    matmul_inputs(job, test, salt, &desc, &args);
    job->output[0] = matmul_matrix(job, test->in_place ? ROLE_IN_PLACE : ROLE_OUTPUT, test->type.c, test->batch,
                                   test->m, test->n, test->c);
    matmul_actual(test, &written[0], &written[1]);
    array_own(&job->output[0], test->batch ? written : written + 1);
    if (test->in_place) {
        job_fill(&job->output[0], salt * 8 + OPERAND, -limit, limit, test->integers);
        job->input[OPERAND] = job->output[0];
        array_bind(&job->input[OPERAND], &desc.operand, &args.operand);
    }
    array_bind(&job->output[0], &desc.c, &args.c);
    job->args.matmul = args;
    for (int n = 0; n < MATMUL_ALL_SOLVERS; n++) {
        refused = refused || ((test->refused_by >> n & 1) && strcmp(solver, matmul_solvers[n]) == 0);
    }
    options.solver = solver;
    options.tuning = test->tuning;
    return job_plan_with(job, &matmul_operator, &desc, &options, refused ? JOB_REFUSED : JOB_TAKEN);
}

static bool make(test_job *job, const void *test, const char *solver)
{
    return matmul_job(job, test, solver, 1);
}

clattn_matmul_desc matmul_contiguous(clattn_dtype operands, size_t m, size_t n, size_t k)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;

    desc.a = clattn_layout_contiguous(operands, 2, (size_t[]){m, k});
    desc.b = clattn_layout_contiguous(operands, 2, (size_t[]){k, n});
    desc.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){m, n});
    return desc;
}

bool matmul_has_clblast(void)
{
    clattn_matmul_desc desc = matmul_contiguous(CLATTN_DTYPE_F32, 3, 3, 3);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;

    /* CLBlast refuses these strides and builds nothing; a library without CLBlast does not know its name. */
    desc.a.stride[0] = 12;
    desc.a.stride[1] = 2;
    options.solver = "clblast";
    clattn_status status = clattn_matmul_plan_create(device_context(), &desc, &options, &plan);
    clattn_plan_release(&plan);
    return status == CLATTN_ERROR_UNSUPPORTED;
}

bool matmul_may_emulate_amx(void)
{
    return !device_platform_contains("rusticl");
}

/* ---- the verdict ---- */

static double as_float(double x)
{
    return (double)(float)x;
}

/* Applies the epilogue of clattn/matmul.h to the sums of item `item`, exactly and with every step rounded to float.  An
 * activation makes the error of a sum so many times as large as it is steep and adds one of its own. */
static void finish(const test_job *job, const matmul_case *test, size_t item, job_result *v)
{
    size_t batch, m;

    matmul_actual(test, &batch, &m);
    for (size_t i = 0; i < m * test->n; i++) {
        size_t n = item * m * test->n + i, column = i % test->n;
        double *exact = &v->reference[n], *naive = &v->naive[n], *size = &v->magnitude[n];
        if (job->input[SCALE].memory) {
            double scale = array_get(&job->input[SCALE], &column);
            *exact *= scale;
            *naive = as_float(*naive * scale);
            *size *= fabs(scale);
        }
        if (test->bias) {
            double bias = array_get(&job->input[BIAS], &column);
            *exact += bias;
            *naive = as_float(*naive + bias);
            *size += fabs(bias);
        }
        if (test->activation) {
            clattn_activation f = test->activation;
            double alpha = reference_alpha(f, test->alpha < 0 || test->alpha > 0, test->alpha);
            *exact = reference_activation(f, alpha, *exact);
            *naive = as_float(reference_activation(f, alpha, *naive));
            *size = reference_steepness(f, alpha) * *size + fabs(*exact) + (double)FLT_MIN / (8 * (double)FLT_EPSILON);
        }
        if (test->operand) {
            size_t index[3] = {test->shared_operand ? 0 : item, i / test->n, column};
            double operand = array_get(&job->input[OPERAND], index + (3 - job->input[OPERAND].layout.rank));
            *exact = test->operand == OPERAND_ADD ? *exact + operand : *exact * operand;
            *naive = as_float(test->operand == OPERAND_ADD ? *naive + operand : *naive * operand);
            *size = test->operand == OPERAND_ADD ? *size + fabs(operand) : *size * fabs(operand);
        }
    }
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const matmul_case *test = which;
    size_t batch, m, n = test->n, k = test->k;

    matmul_actual(test, &batch, &m);
    *result = result_of("c", &job->output[0]);
    result->exact = test->integers;
    result->naive = zeros(result->count);
    bool each = matmul_batch_of_b(test) > 1;
    double *a = array_dense(&job->input[A], 3, (size_t[]){batch, m, k});
    double *b = array_dense(&job->input[B], 3, (size_t[]){each ? batch : 1, k, n});
    for (size_t item = 0; item < batch; item++) {
        const double *left = a + item * m * k, *right = b + (each ? item : 0) * k * n;
        size_t at = item * m * n;
        reference_matmul(m, n, k, left, right, n, 1, NULL, false, result->reference + at, result->magnitude + at);
        reference_matmul(m, n, k, left, right, n, 1, NULL, true, result->naive + at, NULL);
        finish(job, test, item, result);
    }
    free(a);
    free(b);
}

/* Writes NaN beyond the actual batch and rows of A, or the actual batch of B. */
static void spoil_beyond(test_array *array, size_t batch, size_t rows)
{
    size_t index[3] = {0};

    assert_int_equal(array->layout.rank, 3);
    do {
        if (index[0] >= batch || index[1] >= rows) {
            array_set(array, index, NAN);
        }
    } while (array_next(3, array->layout.extent, index));
}

bool matmul_inject_into(test_job *job, const matmul_case *test)
{
    size_t batch, m, index[3] = {0};
    test_array *array = &job->input[A];

    if (!test->inject) {
        return false;
    }
    matmul_actual(test, &batch, &m);
    if (test->inject == MATMUL_BEYOND) {
        const int rows[] = {A, MATMUL_C_GRADIENT};
        for (int i = 0; i < 2; i++) {
            if (job->input[rows[i]].memory) {
                spoil_beyond(&job->input[rows[i]], batch, m);
                array_upload(&job->input[rows[i]]);
            }
        }
        array = &job->input[B];
        if (matmul_batch_of_b(test) > 1) {
            spoil_beyond(array, batch, test->k);
        }
    } else if (test->inject == MATMUL_C_GRADIENT_INF) {
        array = &job->input[MATMUL_C_GRADIENT];
        array_set(array, index, INFINITY);
    } else if (test->inject == MATMUL_OPERAND_NAN) {
        array = &job->input[OPERAND];
        array_set(array, index, NAN);
    } else if (test->inject == MATMUL_BIAS_INF) {
        array = &job->input[BIAS];
        index[0] = test->n - 1;
        array_set(array, index, -INFINITY);
    } else {
        bool of_b = test->inject == MATMUL_B_NAN;
        size_t *last = index + (test->batch && !(of_b && test->flat_b) ? 1 : 0);
        array = &job->input[of_b ? B : A];
        last[0] = of_b ? test->k / 2 : 0;
        last[1] = of_b ? test->n - 1 : test->k / 2;
        array_set(array, index, test->inject == MATMUL_A_INF ? INFINITY : NAN);
    }
    array_upload(array);
    return true;
}

static bool inject(test_job *job, const void *test)
{
    return matmul_inject_into(job, test);
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void matmul_add(const matmul_case *cases, size_t count)
{
    for (int n = 0; n < MATMUL_ALL_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const matmul_case *t = &cases[i];
            unsigned solvers = t->solvers ? t->solvers : MATMUL_GENERIC | MATMUL_CPU | MATMUL_TILE;

            if ((t->levels & level()) && (solvers >> n & 1)) {
                suite_add_case(check, t, matmul_solvers[n], "matmul %s: %s, %zu x %zux%zux%zu", matmul_solvers[n],
                               t->rule, t->batch ? t->batch : 1, t->m, t->n, t->k);
            }
        }
    }
}
