/* Attention problems: from a table row to a plan. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/attention/arrays.h"

const char *const attention_solvers[ATTENTION_ALL_SOLVERS] = {"generic",  "cpu",     "tile",
                                                              "cpu-bf16", "cpu-amx", "emulated-mma"};

void attention_lengths(const attention_case *test, size_t *batch, size_t *queries, size_t *keys)
{
    *batch = test->shorter ? test->actual.batch : test->dim.batch;
    *queries = test->shorter ? test->actual.queries : test->longest ? test->longest : test->dim.queries;
    *keys = test->shorter ? test->actual.keys : test->dim.keys;
    for (size_t b = 0; b < *batch && test->cache == CLATTN_CACHE_KIND_RING && test->list.keys; b++) {
        *keys = test->list.keys[b] > (int64_t)*keys ? (size_t)test->list.keys[b] : *keys; /* as far as they say */
    }
}

static clattn_attention_desc describe_arrays(const test_job *job)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    const test_array *input = job->input, *output = job->output;

    desc.query = input[QUERY].layout;
    desc.key = input[KEY].layout;
    desc.value = input[VALUE].layout;
    desc.mask = input[MASK].layout;
    desc.bias = input[BIAS].layout;
    desc.scoring.alibi = input[ALIBI].layout;
    desc.scoring.sinks = input[SINKS].layout;
    desc.scoring.vector = input[VECTOR].layout;
    desc.lengths.query = input[QUERY_LENGTHS].layout;
    desc.lengths.key = input[KEY_LENGTHS].layout;
    desc.lengths.positions = input[POSITIONS].layout;
    desc.lengths.query_starts = input[QUERY_STARTS].layout;
    desc.lengths.key_starts = input[KEY_STARTS].layout;
    desc.cache.block_table = input[BLOCK_TABLE].layout;
    desc.cache.key_scale = input[KEY_SCALE].layout;
    desc.cache.value_scale = input[VALUE_SCALE].layout;
    desc.output = output[OUTPUT].layout;
    desc.outputs.lse = output[LSE].layout;
    desc.outputs.entropy = output[ENTROPY].layout;
    desc.outputs.scores = output[SCORES].layout;
    return desc;
}

static void describe_rules(clattn_attention_desc *desc, const attention_case *test)
{
    desc->causal = test->causal;
    desc->alignment = test->alignment;
    desc->scoring.explicit_scale = test->scaled;
    desc->scoring.scale = test->scale;
    desc->scoring.kind = test->additive ? CLATTN_SCORE_ADDITIVE : CLATTN_SCORE_DOT;
    desc->scoring.softcap = test->softcap;
    desc->short_mask = 1;
    desc->window.explicit_left = test->windowed && test->left >= 0;
    desc->window.explicit_right = test->windowed && test->right >= 0;
    desc->window.left = test->left;
    desc->window.right = test->right;
    desc->lengths.longest_query = test->longest;
    desc->cache.kind = test->cache;
    desc->outputs.scores_mode = test->scores ? test->scores - 1 : 0;
    desc->dropout.probability = test->dropout;
    desc->launch.max_ms = test->max_launch_ms;
    desc->launch.cancellable = test->cancellable;
    if (test->mod) {
        desc->snippets.score_mod = test->mod->score_source;
        desc->snippets.mask_mod = test->mod->mask_source;
        for (int n = 0; n < CLATTN_USER_BUFFERS; n++) {
            desc->snippets.buffer_dtype[n] = test->mod->user[n];
        }
    }
}

static clattn_attention_args bind(const test_job *job, const attention_case *test)
{
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    clattn_binding *const inputs[] = {[QUERY] = &args.query,
                                      [KEY] = &args.key,
                                      [VALUE] = &args.value,
                                      [MASK] = &args.mask,
                                      [BIAS] = &args.bias,
                                      [ALIBI] = &args.scoring.alibi,
                                      [SINKS] = &args.scoring.sinks,
                                      [VECTOR] = &args.scoring.vector,
                                      [QUERY_LENGTHS] = &args.lengths.query,
                                      [KEY_LENGTHS] = &args.lengths.key,
                                      [POSITIONS] = &args.lengths.positions,
                                      [QUERY_STARTS] = &args.lengths.query_starts,
                                      [KEY_STARTS] = &args.lengths.key_starts,
                                      [BLOCK_TABLE] = &args.cache.block_table,
                                      [KEY_SCALE] = &args.cache.key_scale,
                                      [VALUE_SCALE] = &args.cache.value_scale,
                                      [CANCEL] = &args.cancel,
                                      [USER] = &args.snippets.buffer[0],
                                      &args.snippets.buffer[1],
                                      &args.snippets.buffer[2],
                                      &args.snippets.buffer[3]};
    clattn_binding *const outputs[] = {[OUTPUT] = &args.output,
                                       [LSE] = &args.outputs.lse,
                                       [ENTROPY] = &args.outputs.entropy,
                                       [SCORES] = &args.outputs.scores};

    for (size_t n = 0; n < COUNT_OF(inputs); n++) {
        *inputs[n] = array_binding(&job->input[n]);
    }
    for (size_t n = 0; n < COUNT_OF(outputs); n++) {
        *outputs[n] = array_binding(&job->output[n]);
    }
    args.explicit_lengths = test->shorter;
    args.batch = test->actual.batch;
    args.query_length = test->actual.queries;
    args.key_length = test->actual.keys;
    args.position = test->position;
    args.dropout.seed = test->seed;
    args.dropout.offset = test->dropout_offset;
    for (int n = 0; test->mod && n < CLATTN_USER_BUFFERS; n++) {
        args.snippets.scalar[n] = test->mod->scalar[n];
    }
    return args;
}

clattn_attention_desc attention_prepare(test_job *job, const attention_case *test, uint64_t salt)
{
    attention_make_arrays(job, test, salt);
    clattn_attention_desc desc = describe_arrays(job);
    describe_rules(&desc, test);
    job->args.attention = bind(job, test);
    job->enqueue = enqueue_attention;
    return desc;
}

bool attention_refuses(const attention_case *test, const char *solver)
{
    clattn_device_info info = {.size = sizeof info};
    bool refused =
        (test->type.query == CLATTN_DTYPE_F64 && strcmp(solver, "generic") != 0) || job_refused_sub_groups(solver);

    for (int n = 0; n < ATTENTION_ALL_SOLVERS; n++) {
        refused = refused || ((test->refused_by >> n & 1) && strcmp(solver, attention_solvers[n]) == 0);
    }
    if (test->type.query == CLATTN_DTYPE_F64) {
        assert_status(device_context(), clattn_context_device_info(device_context(), &info), CLATTN_SUCCESS);
        refused = refused || !info.has_fp64;
    }
    return refused;
}

bool attention_job(test_job *job, const attention_case *test, const char *solver, uint64_t salt)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_attention_desc desc = attention_prepare(job, test, salt);
    bool refused = attention_refuses(test, solver);

    options.solver = solver;
    clattn_status status = clattn_attention_plan_create(device_context(), &desc, &options, &job->plan);
    refused = refused || (test->long_loops && job_refused_for_loops(status));
    return job_planned(job, status, solver, refused);
}

void attention_describe(const attention_case *t, char *text, size_t size)
{
    snprintf(text, size, "%s, %zux%zu/%zu %zux%zu d %zu,%zu", t->rule, t->dim.batch, t->dim.heads, t->dim.kv_heads,
             t->dim.queries, t->dim.keys, t->dim.d_k, t->dim.d_v);
}

static void add_case(case_check check, const attention_case *test, const char *solver)
{
    char text[256];

    attention_describe(test, text, sizeof text);
    if (test->levels & level()) {
        suite_add_case(check, test, solver, "attention %s: %s", solver, text);
    }
}

static void add(case_check check, const attention_case *cases, size_t count, bool frugal)
{
    for (int n = 0; n < ATTENTION_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            bool passed_by = frugal && (level() & (LEVEL_QUICK | LEVEL_SMALL)) && !(cases[i].levels & LEVEL_TILE) &&
                             BY_TILE == 1 << n;

            if (!passed_by) {
                add_case(check, &cases[i], attention_solvers[n]);
            }
        }
    }
}

void attention_add_by(const char *solver, const attention_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_case(attention_check, &cases[i], solver);
    }
}

void attention_add(const attention_case *cases, size_t count)
{
    add(attention_check, cases, count, false);
}

void attention_add_frugal(const attention_case *cases, size_t count)
{
    add(attention_check, cases, count, true);
}

void attention_add_decoding(const attention_case *cases, size_t count)
{
    if (level() == LEVEL_QUICK) {
        attention_add_by("cpu", cases, count);
    } else {
        attention_add_frugal(cases, count);
    }
}

void attention_add_check(case_check check, const attention_case *cases, size_t count)
{
    add(check, cases, count, true);
}
