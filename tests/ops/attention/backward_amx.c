/* Gradients of attention by AMX (the solver cpu-amx) where the three bfloat16 that a float is split into cannot hold it: infinities,
 * NaN, and magnitudes that are too great or too small, alone or in a product.  The cases of attention_backward hold the rest.
 *
 * The gradients agree with those of the solver cpu to rounding, NaN for NaN, and those of a head that has ordinary numbers keep every
 * bit. */
#include <math.h>
#include <string.h>

#include "support/attention/engine_cases.h"

enum { HEADS = 2, ROWS = 40, KEYS = 67, SIZE = 40, QUERIES = HEADS * ROWS * SIZE, ELEMENTS = HEADS * KEYS * SIZE };

/* The inputs: query, key, value and the gradient of the output. */
struct inputs {
    float query[QUERIES], key[ELEMENTS], value[ELEMENTS], d_output[QUERIES];
};

struct gradients {
    float query[QUERIES], key[ELEMENTS], value[ELEMENTS];
};

static const size_t rows[4] = {1, HEADS, ROWS, SIZE}, keys[4] = {1, HEADS, KEYS, SIZE};

static test_array output(test_job *job, int which, int rank, const size_t *extent)
{
    job->output[which] = job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, rank, extent, FORM_PLAIN);
    array_own(&job->output[which], extent);
    return job->output[which];
}

static void read_back(test_job *job, int which, float *to)
{
    test_array *array = &job->output[which];
    size_t index[4] = {0};
    array_download(array);
    do {
        *to++ = (float)array_get(array, index);
    } while (array_next(array->layout.rank, array->layout.extent, index));
}

static void bind_inputs(test_job *job, const struct inputs *in, clattn_attention_desc *desc)
{
    test_array query = job_floats(job, 4, rows, in->query), key = job_floats(job, 4, keys, in->key);
    test_array value = job_floats(job, 4, keys, in->value);
    array_bind(&query, &desc->query, &job->args.attention.query);
    array_bind(&key, &desc->key, &job->args.attention.key);
    array_bind(&value, &desc->value, &job->args.attention.value);
}

/* The output and its log-sum-exp, by the solver cpu. */
static void attend(const struct inputs *in, float *o, float *lse)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    test_job job = {.args.attention = CLATTN_ATTENTION_ARGS_INIT};
    bind_inputs(&job, in, &desc);
    test_array made = output(&job, 0, 4, rows), sums = output(&job, 1, 3, rows);
    array_bind(&made, &desc.output, &job.args.attention.output);
    array_bind(&sums, &desc.outputs.lse, &job.args.attention.outputs.lse);
    assert_true(job_plan(&job, &attention_operator, &desc, "cpu", JOB_TAKEN));
    job_run(&job, NULL);
    read_back(&job, 0, o);
    read_back(&job, 1, lse);
    job_release(&job);
}

static void differentiate(const char *solver, const struct inputs *in, const float *o, const float *lse,
                          struct gradients *to)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    test_job job = {.args.attention = CLATTN_ATTENTION_ARGS_INIT};
    clattn_attention_args *args = &job.args.attention;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    bind_inputs(&job, in, &desc);
    test_array given = job_floats(&job, 4, rows, o), sums = job_floats(&job, 3, rows, lse);
    test_array d_output = job_floats(&job, 4, rows, in->d_output);
    test_array query = output(&job, 0, 4, rows), key = output(&job, 1, 4, keys), value = output(&job, 2, 4, keys);
    array_bind(&given, &desc.output, &args->output);
    array_bind(&sums, &desc.outputs.lse, &args->outputs.lse);
    array_bind(&d_output, &desc.gradients.output, &args->gradients.output);
    array_bind(&query, &desc.gradients.query, &args->gradients.query);
    array_bind(&key, &desc.gradients.key, &args->gradients.key);
    array_bind(&value, &desc.gradients.value, &args->gradients.value);
    assert_true(job_plan(&job, &attention_operator, &desc, solver, JOB_TAKEN));
    job_run(&job, NULL);
    read_back(&job, 0, to->query);
    read_back(&job, 1, to->key);
    read_back(&job, 2, to->value);
    job_release(&job);
}

static void fill(float *x, int count, int step)
{
    for (int i = 0; i < count; i++) {
        x[i] = (float)(i * step % 101 - 50) / 64;
    }
}

static void scale(float *x, int count, double times)
{
    for (int i = 0; i < count; i++) {
        x[i] = (float)((double)x[i] * times);
    }
}

/* Head 0's gradients differ from `expected` by no more than 1e-5 of `unit`; head 1's do not from `plain`. */
static void compare(const char *name, const float *found, const float *expected, const float *plain, int count,
                    double unit)
{
    for (int i = 0; i < count / HEADS; i++) {
        if (isnan(found[i]) != isnan(expected[i]) || !(isnan(expected[i]) || found[i] == expected[i] ||
                                                       fabs((double)found[i] - (double)expected[i]) <= 1e-5 * unit)) {
            fail_msg("%s %d is %.9g, by cpu %.9g", name, i, (double)found[i], (double)expected[i]);
        }
    }
    assert_memory_equal(found + count / HEADS, plain + count / HEADS, sizeof(float) * (size_t)(count / HEADS));
}

/* What head 0's inputs are multiplied by; `spoils` writes an infinity or NaN into one element of one of them. */
struct magnitudes {
    const char *name;
    double query, key, value, d_output;
    int spoiled; /* which input, counted from 1; 0: none */
    float spoils;
};

static void check(const void *test, const char *unused)
{
    static struct inputs in;
    static struct gradients plain, found, expected;
    static float o[QUERIES], lse[HEADS * ROWS];
    const struct magnitudes *m = test;
    float *const inputs[] = {in.query, in.key, in.value, in.d_output};
    (void)unused;

    fill(in.query, QUERIES, 37);
    fill(in.key, ELEMENTS, 53);
    fill(in.value, ELEMENTS, 71);
    fill(in.d_output, QUERIES, 29);
    attend(&in, o, lse);
    differentiate("cpu-amx", &in, o, lse, &plain);
    scale(in.query, QUERIES / HEADS, m->query);
    scale(in.key, ELEMENTS / HEADS, m->key);
    scale(in.value, ELEMENTS / HEADS, m->value);
    scale(in.d_output, QUERIES / HEADS, m->d_output);
    if (m->spoiled) {
        inputs[m->spoiled - 1][5 * SIZE + 7] = m->spoils;
    }
    attend(&in, o, lse);
    differentiate("cpu-amx", &in, o, lse, &found);
    differentiate("cpu", &in, o, lse, &expected);
    const double weight = m->value * m->d_output;
    compare("gradients.query", found.query, expected.query, plain.query, QUERIES, weight * m->key);
    compare("gradients.key", found.key, expected.key, plain.key, ELEMENTS, weight * m->query);
    compare("gradients.value", found.value, expected.value, plain.value, ELEMENTS, m->d_output);
}

static const struct magnitudes cases[] = {
    {"tiny queries", 0x1p-85, 0x1p85, 1, 1, 0, 0},
    {"great queries", 0x1p100, 0x1p-100, 1, 1, 0, 0},
    {"great values", 1, 1, 0x1p100, 1, 0, 0},
    {"tiny values", 1, 1, 0x1p-100, 1, 0, 0},
    {"great derivatives", 1, 1, 1, 0x1p100, 0, 0},
    {"tiny derivatives", 1, 1, 1, 0x1p-100, 0, 0},
    {"products of values and derivatives that are tiny", 1, 1, 0x1p-60, 0x1p-60, 0, 0},
    {"products of values and derivatives that are great", 1, 1, 0x1p60, 0x1p60, 0, 0},
    {"infinite key", 1, 1, 1, 1, 2, INFINITY},
    {"NaN key", 1, 1, 1, 1, 2, NAN},
    {"NaN query", 1, 1, 1, 1, 1, NAN},
    {"infinite value", 1, 1, 1, 1, 3, INFINITY},
    {"infinite derivative", 1, 1, 1, 1, 4, -INFINITY},
    {"NaN derivative", 1, 1, 1, 1, 4, NAN},
};

/* Only who names the solver gets it, as long as no processor with AMX has measured it. */
static void only_by_its_name(void **state)
{
    static struct inputs in;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    test_job job = {.args.attention = CLATTN_ATTENTION_ARGS_INIT};
    (void)state;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    bind_inputs(&job, &in, &desc);
    desc.output = desc.gradients.output = desc.gradients.query = desc.query;
    desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, rows);
    job.plan = operator_plan(&attention_operator, &desc, NULL);
    assert_non_null(strstr(clattn_plan_explain(job.plan), "cpu-amx: refused, no processor with AMX has measured it"));
    job_release(&job);
}

int main(int argc, char **argv)
{
    for (size_t n = 0; n < COUNT_OF(cases) && !emulates_amx_too_slowly(); n++) {
        suite_add_case(check, &cases[n], "", "attention backward cpu-amx beyond terms: %s", cases[n].name);
    }
    if (!emulates_amx_too_slowly()) {
        suite_add(only_by_its_name, "attention backward cpu-amx: only by its name");
    }
    return suite_run("attention_backward_amx", argc, argv);
}
