/* Attention of float32, float16 and mixtures by AMX (the solver cpu-amx) splits each element into up to three bfloat16
 * and uses the processor's instructions if it has them, else the OpenCL C that emulates them, which only tests ask for.
 *
 * Holds: the accuracy rule of float32, NaN and Inf, what cannot leak, magnitudes that terms cannot hold, what is
 * refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/engine_cases.h"

#define HALVES .type = FOUR(CLATTN_DTYPE_F16)
#define MIXED(q, k, v) .type = TYPES(CLATTN_DTYPE_##q, CLATTN_DTYPE_##k, CLATTN_DTYPE_##v, CLATTN_DTYPE_F32)

static const attention_case cases[] = {
    {"products of 3.6e9", BIG, MEDIUM, .fill = FILL_LARGE, .scaled = true, .scale = 0x1p-30f},
    {"float16 out", BIG, MEDIUM, .type = TYPES(CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F16)},
    {"infinite value, pages of 5 keys", BIG, .dim = {2, 2, 1, 35, 15, 8, 8}, PAGED(7, 5), .inject = INJECT_VALUE_INF},
    {"infinite key, queries of several heads in a block", BIG, .dim = {2, 8, 2, 5, 67, 8, 8}, .inject = INJECT_KEY_INF},
    {"NaN query, (batch, length, heads, size)", BIG, MEDIUM, .inject = INJECT_QUERY_NAN,
     .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"float16", ALL, LITTLE, HALVES},
    {"float16", BIG, LARGE, HALVES},
    {"float16, odd sizes", BIG, .dim = {2, 2, 1, 35, 67, 7, 13}, HALVES, .causal = true},
    {"float16, sizes above 64", BIG, .dim = {1, 2, 1, 35, 97, 67, 99}, MIXED(F16, F16, F16)},
    {"float16, several gatherings of keys", BIG, .dim = {1, 2, 1, 70, 2201, 8, 8}, HALVES, .inject = INJECT_VALUE_NAN},
    {"float16, infinite key", BIG, MEDIUM, HALVES, .inject = INJECT_KEY_INF},
    {"float16, infinite value", ALL, LITTLE, HALVES, .inject = INJECT_VALUE_INF},
    {"float16, NaN query", BIG, MEDIUM, HALVES, .inject = INJECT_QUERY_NAN},
    {"float16, dropout", BIG, MEDIUM, MIXED(F16, F16, F16), .dropout = 0.25f, .seed = 5, .entropy = true},
    {"float16, boolean mask, pages of 5 keys", BIG, .dim = {2, 2, 1, 35, 15, 8, 8}, PAGED(7, 5), HALVES,
     .mask = MASK_BOOL},
    {"float16, rows at any two bytes", BIG, .dim = {2, 4, 2, 35, 67, 21, 21}, HALVES,
     .form = {FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PLAIN}},
    {"bfloat16 keys and values", ALL, LITTLE, MIXED(F32, BF16, BF16)},
    {"bfloat16 keys and values", BIG, MEDIUM, MIXED(F32, BF16, BF16), .inject = INJECT_VALUE_INF},
    {"float16 keys and values", BIG, MEDIUM, MIXED(F32, F16, F16), .inject = INJECT_KEY_INF},
    {"bfloat16 queries, float16 keys", BIG, MEDIUM, MIXED(BF16, F16, F32)},
    {"float16 queries, float32 keys", BIG, MEDIUM, MIXED(F16, F32, BF16)},
    {"several gatherings of keys, NaN value", BIG, .dim = {1, 2, 1, 70, 2201, 8, 8}, .inject = INJECT_VALUE_NAN},
    {"several gatherings of keys, infinite value", BIG, .dim = {1, 2, 1, 70, 2201, 40, 40}, .inject = INJECT_VALUE_INF},
    {"several gatherings of keys, infinite key", BIG, .dim = {1, 2, 1, 70, 2201, 40, 40}, .inject = INJECT_KEY_INF},
};

/* Returns the shared cases with float32 instead of bfloat16, without those that are about other types. */
static attention_case *float_cases(size_t *count)
{
    attention_case *made = calloc(attention_engine_case_count, sizeof *made);

    assert_non_null(made);
    *count = 0;
    for (size_t i = 0; i < attention_engine_case_count; i++) {
        attention_case *test = &made[*count];
        *test = attention_engine_cases[i];
        if (test->type.value == CLATTN_DTYPE_BF16) {
            memset(&test->type, 0, sizeof test->type);
            (*count)++;
        }
    }
    return made;
}

enum { HEADS = 2, ROWS = 40, KEYS = 67, SIZE = 40, ELEMENTS = HEADS * KEYS * SIZE };

/* Computes attention of (1, HEADS, ROWS, SIZE) and KEYS keys by a solver. */
static void attend(const char *solver, const float *q, const float *k, const float *v, float *o)
{
    const size_t rows[4] = {1, HEADS, ROWS, SIZE}, keys[4] = {1, HEADS, KEYS, SIZE};
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    test_job job = {.args.attention = CLATTN_ATTENTION_ARGS_INIT};
    test_array query = job_floats(&job, 4, rows, q), key = job_floats(&job, 4, keys, k);
    test_array value = job_floats(&job, 4, keys, v);

    array_bind(&query, &desc.query, &job.args.attention.query);
    array_bind(&key, &desc.key, &job.args.attention.key);
    array_bind(&value, &desc.value, &job.args.attention.value);
    array_bind(job_output(&job, 4, rows), &desc.output, &job.args.attention.output);
    assert_true(job_plan(&job, &attention_operator, &desc, solver, JOB_TAKEN));
    job_run(&job, NULL);
    job_copy_output(&job, o);
    job_release(&job);
}

static void fill(float *x, int count, int step)
{
    for (int i = 0; i < count; i++) {
        x[i] = (float)(i * step % 101 - 50) / 64;
    }
}

/* Queries, keys or columns of V have magnitudes that split floats cannot hold, while scores have the usual size:
 * results agree with the cpu solver to rounding, and those that do not depend on them keep every bit. */
static void beyond_terms(void **state)
{
    static const float query_times[] = {0x1p-85f, 0x1p100f, 1, 1};
    static float q[HEADS * ROWS * SIZE], k[ELEMENTS], v[ELEMENTS], plain[HEADS * ROWS * SIZE];
    static float by_terms[HEADS * ROWS * SIZE], by_cpu[HEADS * ROWS * SIZE];

    (void)state;
    for (int which = 0; which < 4; which++) {
        fill(q, HEADS * ROWS * SIZE, 37);
        fill(k, ELEMENTS, 53);
        fill(v, ELEMENTS, 71);
        attend("cpu-amx", q, k, v, plain);
        for (int i = 0; i < ROWS * SIZE;
             i++) { /* the queries of head 0, for which its keys make up; 2: key 5 is far below */
            q[i] = (which == 2 ? fabsf(q[i]) : q[i]) * query_times[which];
        }
        for (int i = 0; i < KEYS * SIZE; i++) {
            k[i] /= query_times[which];
        }
        for (int i = 0; i < SIZE && which == 2; i++) { /* -infinity for query 3 and key 5 of head 0 */
            q[3 * SIZE + i] = 0x1p66f;
            k[5 * SIZE + i] = -0x1p72f;
        }
        for (int i = 0; i < KEYS * SIZE && which == 2; i++) {
            k[i] *= i / SIZE == 5 ? 1 : 0x1p-66f;
        }
        for (int j = 0; j < KEYS && which == 3; j++) { /* columns 7 and 39 of head 0 */
            v[j * SIZE + 7] *= 0x1p100f;
            v[j * SIZE + 39] *= 0x1p-100f;
        }
        attend("cpu-amx", q, k, v, by_terms);
        attend("cpu", q, k, v, by_cpu);
        for (int i = 0; i < HEADS * ROWS * SIZE; i++) {
            int head = i / (ROWS * SIZE), column = i % SIZE;
            bool touched = head == 0 && (which < 3 || column == 7 || column == 39);
            double scale = which != 3 || head ? 1 : column == 7 ? 0x1p100 : column == 39 ? 0x1p-100 : 1;
            if (touched) {
                assert_int_equal(isnan(by_terms[i]), isnan(by_cpu[i]));
                assert_true(isnan(by_cpu[i]) || fabs((double)by_terms[i] - (double)by_cpu[i]) <= 4e-6 * scale);
            } else {
                assert_memory_equal(&by_terms[i], &plain[i], sizeof plain[i]);
            }
        }
    }
}

/* The planner chooses AMX exactly if the processor has it and there are enough rows. */
static void chosen_where_it_pays(void **state)
{
    const char *pairs = device_pairs_solver();
    bool here = pairs && !strcmp(pairs, "cpu-amx");

    (void)state;
    for (size_t rows = 32; rows <= 128; rows += 96) {
        clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
        desc.query = desc.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 2, rows, 32});
        desc.key = desc.value = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 2, 128, 32});
        clattn_plan *plan = operator_plan(&attention_operator, &desc, NULL);
        assert_int_equal(!strcmp(clattn_plan_solver(plan), "cpu-amx"), here && rows == 128);
        clattn_plan_release(&plan);
    }
}

int main(int argc, char **argv)
{
    size_t count;
    attention_case *shared = float_cases(&count);

    if (!emulates_amx_too_slowly()) {
        attention_add_by("cpu-amx", shared, count);
        attention_add_by("cpu-amx", cases, COUNT_OF(cases));
        suite_add(beyond_terms, "attention cpu-amx of float32: beyond terms");
    }
    suite_add(chosen_where_it_pays, "attention cpu-amx of float32: chosen where it pays");
    int result = suite_run("attention_bf16x3", argc, argv);
    free(shared);
    return result;
}
