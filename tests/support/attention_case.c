/* Attention problems: from a table row to arrays and a plan. */
#include <math.h>
#include <string.h>

#include "attention_case.h"

const char *const attention_solvers[ATTENTION_SOLVERS] = {"generic", "cpu", "tile"};


typedef struct filler {
    const attention_case *test;
    random_stream stream;
    int which;
} filler;

static double fill_operand(void *context, const size_t *index)
{
    filler *f = context;
    double unit = random_float(&f->stream, -1, 1);

    if (f->which == VALUE || f->test->fill == FILL_UNIT) {
        return unit;
    }
    if (f->test->fill == FILL_ZERO_QUERY) {
        return f->which == QUERY ? 0 : unit;
    }
    if (f->test->fill == FILL_WILD) {
        return random_int(&f->stream, -35, 35);
    }
    /* FILL_HUGE: 100 * 100 from the first dimension and small integers from the others. */
    double sign = f->which == QUERY && index[2] % 2 ? -1 : 1;
    return index[3] == 0 ? sign * 100 : random_int(&f->stream, -1, 1);
}

/* ---- making the job ---- */

static test_array packed_part(const attention_case *test, test_memory *memory, size_t first_head, size_t heads)
{
    size_t width = test->dim.heads + 2 * test->dim.kv_heads;
    int64_t row = (int64_t)(width * test->dim.d_k);
    clattn_layout layout = {.dtype = CLATTN_F32, .rank = 4,
        .extent = {test->dim.batch, heads, test->dim.queries, test->dim.d_k},
        .stride = {row * (int64_t)test->dim.queries, (int64_t)test->dim.d_k, row, 1}};
    return array_view(memory, first_head * test->dim.d_k, layout);
}

static void make_arrays(test_job *job, const attention_case *test, uint64_t salt)
{
    size_t batch = test->dim.batch, heads = test->dim.heads, groups = test->dim.kv_heads;
    size_t queries = test->dim.queries, keys = test->dim.keys;
    size_t query[4] = {batch, heads, queries, test->dim.d_k};
    size_t key[4] = {batch, groups, keys, test->dim.d_k};
    size_t value[4] = {batch, groups, keys, test->dim.d_v};
    size_t output[4] = {batch, heads, queries, test->dim.d_v};
    size_t mask[4] = {batch, heads, queries, keys};

    if (test->packed) {
        size_t width = (heads + 2 * groups) * test->dim.d_k;
        test_memory *memory = job_keep(job, memory_create(ROLE_INPUT, CLATTN_F32, batch * queries * width));

        job->input[QUERY] = packed_part(test, memory, 0, heads);
        job->input[KEY] = packed_part(test, memory, heads, groups);
        job->input[VALUE] = packed_part(test, memory, heads + groups, groups);
    } else {
        job->input[QUERY] = job_array(job, ROLE_INPUT, CLATTN_F32, 4, query, test->form.query);
        job->input[KEY] = job_array(job, ROLE_INPUT, CLATTN_F32, 4, key, test->form.key);
        job->input[VALUE] = job_array(job, ROLE_INPUT, CLATTN_F32, 4, value, test->form.value);
    }
    job->input[MASK] = job_mask(job, test->mask, test->mask_rank ? test->mask_rank : 4,
                                test->mask_rank ? test->mask_extent : mask, test->form.mask, salt * 8 + MASK);
    job->output[OUTPUT] = job_array(job, ROLE_OUTPUT, CLATTN_F32, 4, output, test->form.output);
    if (!test->no_lse) {
        job->output[LSE] = job_array(job, ROLE_OUTPUT, CLATTN_F32, 3, output, test->form.output);
    }
}

static void fill_arrays(test_job *job, const attention_case *test, uint64_t salt)
{
    for (int which = QUERY; which <= VALUE; which++) {
        filler f = {test, random_start(salt * 8 + (uint64_t)which), which};

        array_fill(&job->input[which], fill_operand, &f);
        array_upload(&job->input[which]);
    }
}

static clattn_status enqueue(const test_job *job, cl_command_queue queue, cl_uint wait_count,
                             const cl_event *wait_list, cl_event *event)
{
    return clattn_attention_enqueue(job->plan, queue, &job->args.attention, wait_count, wait_list, event);
}

void attention_lengths(const attention_case *test, size_t *batch, size_t *queries, size_t *keys)
{
    *batch = test->shorter ? test->actual.batch : test->dim.batch;
    *queries = test->shorter ? test->actual.queries : test->dim.queries;
    *keys = test->shorter ? test->actual.keys : test->dim.keys;
}

bool attention_job(test_job *job, const attention_case *test, const char *solver, uint64_t salt)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    bool refused = false;

    make_arrays(job, test, salt);
    fill_arrays(job, test, salt);
    desc.causal = test->causal;
    desc.alignment = test->alignment;
    desc.scale_mode = test->scaled ? CLATTN_SCALE_EXPLICIT : CLATTN_SCALE_INVERSE_SQRT;
    desc.scale = test->scale;
    desc.query = job->input[QUERY].layout;
    desc.key = job->input[KEY].layout;
    desc.value = job->input[VALUE].layout;
    desc.mask = job->input[MASK].layout;
    desc.output = job->output[OUTPUT].layout;
    desc.lse = job->output[LSE].layout;

    args.query = array_binding(&job->input[QUERY]);
    args.key = array_binding(&job->input[KEY]);
    args.value = array_binding(&job->input[VALUE]);
    args.mask = array_binding(&job->input[MASK]);
    args.output = array_binding(&job->output[OUTPUT]);
    args.lse = array_binding(&job->output[LSE]);
    args.explicit_lengths = test->shorter;
    args.batch = test->actual.batch;
    args.query_length = test->actual.queries;
    args.key_length = test->actual.keys;
    args.position = test->position;

    size_t written[4] = {0, test->dim.heads, 0, test->dim.d_v}, keys;
    attention_lengths(test, &written[0], &written[2], &keys);
    array_own(&job->output[OUTPUT], written);
    if (job->output[LSE].memory) {
        array_own(&job->output[LSE], written);
    }
    for (int n = 0; n < ATTENTION_SOLVERS; n++) {
        refused = refused || ((test->refused_by >> n & 1) && strcmp(solver, attention_solvers[n]) == 0);
    }
    job->args.attention = args;
    job->enqueue = enqueue;
    options.solver = solver;
    clattn_status status = clattn_attention_plan_create(device_context(), &desc, &options, &job->plan);
    refused = refused || (test->long_loops && job_refused_for_loops(status));
    return job_planned(job, status, solver, refused);
}

void attention_add(test_suite *suite, const attention_case *cases, size_t count)
{
    for (int n = 0; n < ATTENTION_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const attention_case *t = &cases[i];

            if (t->levels & level()) {
                suite_add_case(suite, attention_check, t, attention_solvers[n],
                               "attention %s: %s, %zux%zu/%zu %zux%zu d %zu,%zu", attention_solvers[n], t->rule,
                               t->dim.batch, t->dim.heads, t->dim.kv_heads, t->dim.queries, t->dim.keys, t->dim.d_k,
                               t->dim.d_v);
            }
        }
    }
}
