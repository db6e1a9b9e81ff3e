/* Attention problems: from a table row to a plan. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/attention/arrays.h"

const char *const attention_solvers[ATTENTION_ALL_SOLVERS] = {"generic", "cpu",          "tile",  "cpu-bf16",
                                                              "cpu-amx", "emulated-mma", "matrix"};

void attention_lengths(const attention_case *test, size_t *batch, size_t *queries, size_t *keys)
{
    *batch = test->shorter ? test->actual.batch : test->dim.batch;
    *queries = test->shorter ? test->actual.queries : test->longest ? test->longest : test->dim.queries;
    *keys = test->shorter ? test->actual.keys : test->dim.keys;
    for (size_t b = 0; b < *batch && test->cache == CLATTN_CACHE_KIND_RING && test->list.keys; b++) {
        *keys = test->list.keys[b] > (int64_t)*keys ? (size_t)test->list.keys[b] : *keys; /* as far as they say */
    }
}

static void bind_arrays(const test_job *job, clattn_attention_desc *desc, clattn_attention_args *args)
{
    const test_array *input = job->input, *output = job->output;

    array_bind(&input[QUERY], &desc->query, &args->query);
    array_bind(&input[KEY], &desc->key, &args->key);
    array_bind(&input[VALUE], &desc->value, &args->value);
    array_bind(&input[MASK], &desc->mask, &args->mask);
    array_bind(&input[BIAS], &desc->bias, &args->bias);
    array_bind(&input[ALIBI], &desc->scoring.alibi, &args->scoring.alibi);
    array_bind(&input[SINKS], &desc->scoring.sinks, &args->scoring.sinks);
    array_bind(&input[VECTOR], &desc->scoring.vector, &args->scoring.vector);
    array_bind(&input[QUERY_LENGTHS], &desc->lengths.query, &args->lengths.query);
    array_bind(&input[KEY_LENGTHS], &desc->lengths.key, &args->lengths.key);
    array_bind(&input[POSITIONS], &desc->lengths.positions, &args->lengths.positions);
    array_bind(&input[QUERY_STARTS], &desc->lengths.query_starts, &args->lengths.query_starts);
    array_bind(&input[KEY_STARTS], &desc->lengths.key_starts, &args->lengths.key_starts);
    array_bind(&input[BLOCK_TABLE], &desc->cache.block_table, &args->cache.block_table);
    array_bind(&input[KEY_SCALE], &desc->cache.key_scale, &args->cache.key_scale);
    array_bind(&input[VALUE_SCALE], &desc->cache.value_scale, &args->cache.value_scale);
    array_bind(&output[OUTPUT], &desc->output, &args->output);
    array_bind(&output[LSE], &desc->outputs.lse, &args->outputs.lse);
    array_bind(&output[ENTROPY], &desc->outputs.entropy, &args->outputs.entropy);
    array_bind(&output[SCORES], &desc->outputs.scores, &args->outputs.scores);
    for (int n = 0; n < CLATTN_USER_BUFFERS; n++) {
        args->snippets.buffer[n] = array_binding(&input[USER + n]);
    }
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
    if (test->mod) {
        desc->snippets.score_mod = test->mod->score_source;
        desc->snippets.mask_mod = test->mod->mask_source;
        desc->snippets.score_mod_grad = test->mod->grad_source;
        for (int n = 0; n < CLATTN_USER_BUFFERS; n++) {
            desc->snippets.buffer_dtype[n] = test->mod->user[n];
        }
    }
}

static void set_arguments(clattn_attention_args *args, const attention_case *test)
{
    args->explicit_lengths = test->shorter;
    args->batch = test->actual.batch;
    args->query_length = test->actual.queries;
    args->key_length = test->actual.keys;
    args->position = test->position;
    args->dropout.seed = test->seed;
    args->dropout.offset = test->dropout_offset;
    for (int n = 0; test->mod && n < CLATTN_USER_BUFFERS; n++) {
        args->snippets.scalar[n] = test->mod->scalar[n];
    }
}

clattn_attention_desc attention_prepare(test_job *job, const attention_case *test, uint64_t salt)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args *args = &job->args.attention;

    attention_make_arrays(job, test, salt);
    clattn_attention_args_init(args);
    if (test->max_launch_ms)
        job_use_control(job, test->max_launch_ms, false);
    bind_arrays(job, &desc, args);
    describe_rules(&desc, test);
    set_arguments(args, test);
    job->calls = &attention_operator;
    return desc;
}

/* What the solver for few rows does not take: rows of more than 512 bytes, integers, and what it has no features for. */
static bool decode_refuses(const attention_case *test)
{
    const size_t key = test->type.key ? clattn_dtype_bits(test->type.key) : 32;
    const size_t value = test->type.value ? clattn_dtype_bits(test->type.value) : 32;

    return test->additive || test->dropout > 0 || test->entropy || key < 16 || key > 32 || value < 16 || value > 32 ||
           test->dim.d_k * key > 4096 || test->dim.d_v * value > 4096;
}

bool attention_refuses(const attention_case *test, const char *solver)
{
    clattn_device_info info = {.size = sizeof info};
    const bool has_doubles = strcmp(solver, "generic") == 0 || (strcmp(solver, "cpu") == 0 && !test->additive);
    bool refused = (test->type.query == CLATTN_DTYPE_F64 && !has_doubles) || job_refused_sub_groups(solver);

    assert_status(device_context(), clattn_context_device_info(device_context(), &info), CLATTN_SUCCESS);
    refused = refused || device_breaks(solver) || (strcmp(solver, "decode") == 0 && decode_refuses(test));
    for (int n = 0; n < ATTENTION_ALL_SOLVERS; n++) {
        refused = refused || ((test->refused_by >> n & 1) && strcmp(solver, attention_solvers[n]) == 0);
    }
    return refused || (test->type.query == CLATTN_DTYPE_F64 && !info.has_fp64);
}

bool attention_job(test_job *job, const attention_case *test, const char *solver, uint64_t salt)
{
    clattn_attention_desc desc = attention_prepare(job, test, salt);
    bool refused = attention_refuses(test, solver);

    return job_plan(job, &attention_operator, &desc, solver,
                    refused            ? JOB_REFUSED
                    : test->long_loops ? JOB_LOOPS
                                       : JOB_TAKEN);
}

static void add_case(case_check check, const attention_case *t, const char *solver)
{
    if (t->levels & level()) {
        suite_add_case(check, t, solver, "attention %s: %s, %zux%zu/%zu %zux%zu d %zu,%zu", solver, t->rule,
                       t->dim.batch, t->dim.heads, t->dim.kv_heads, t->dim.queries, t->dim.keys, t->dim.d_k,
                       t->dim.d_v);
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
        return;
    }
    attention_add_frugal(cases, count);
    for (size_t i = 0; i < count; i++) { /* its kernel takes PoCL seconds to compile */
        if (level() == LEVEL_FULL || cases[i].levels & LEVEL_TINY) {
            add_case(attention_check, &cases[i], "decode");
        }
    }
}

void attention_add_check(case_check check, const attention_case *cases, size_t count)
{
    add(check, cases, count, true);
}
