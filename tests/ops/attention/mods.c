/* The user's score and mask functions get the right arguments and buffers, alone and with all other features; their
 * compile errors reach the user; and no plan or binary is ever used for another text.
 *
 * Holds: score_mod, mask_mod, user_dtype of include/clattn/attention.h, against the same functions in C. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"

#define SCORE "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n"
#define DROP "int mask_mod(int batch, int head, int query, int key, user_data user)\n"

/* ---- functions, each in OpenCL C and in C ---- */

static double indices_score(const mod_call *c, double score)
{
    return score + 0.5f * c->b - 0.25f * c->h + 0.125f * c->i - 0.0625f * c->j;
}

static const attention_mod indices = {
    .score_source = SCORE "{ return score + 0.5f * batch - 0.25f * head + 0.125f * query - 0.0625f * key; }",
    .score = indices_score};

static bool checkered_mask(const mod_call *c)
{
    return (c->b + c->h + c->i + c->j) % 3 != 1;
}

static const attention_mod checkered = {
    .mask_source =
        "/* a comment */\n" DROP "{\n    return (batch + head + query + key) % 3 != 1;\n} // no newline after this",
    .mask = checkered_mask};

static double item_score(const mod_call *c, double score)
{
    return score * (c->i + c->position >= c->j ? 1 : 0.5f) + 0.01f * c->queries;
}

static bool item_mask(const mod_call *c)
{
    return c->j != c->keys - 1 || c->i == 0;
}

static const attention_mod item = {
    .score_source = "static float halved(float x) { return 0.5f * x; }\n" SCORE
                    "{ return (query + user.position >= key ? score : halved(score)) + 0.01f * user.query_length; }\n",
    .mask_source = DROP "{ return key != user.key_length - 1 || query == 0; }\n",
    .score = item_score,
    .mask = item_mask};

static double element(const mod_call *c, int buffer, int at)
{
    return array_get(&c->user[buffer], (size_t[]){(size_t)at});
}

static double buffers_score(const mod_call *c, double score)
{
    return score * c->scalar[0] + element(c, 0, c->j) * c->scalar[3] + element(c, 1, c->i) -
           0.5f * element(c, 2, c->h) + c->scalar[1] + c->scalar[2];
}

static bool buffers_mask(const mod_call *c)
{
    return element(c, 3, c->j % 5) <= 2;
}

static const attention_mod buffers = {
    .score_source =
        SCORE "{\n"
              "    return score * user.scalar0 + user.buffer0[key] * user.scalar3 + vload_half(query, user.buffer1)\n"
              "         - 0.5f * as_float((uint)user.buffer2[head] << 16) + user.scalar1 + user.scalar2;\n}\n",
    .mask_source = DROP "{ return user.buffer3[key % 5] <= 2; }",
    .score = buffers_score,
    .mask = buffers_mask,
    .user = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_I64},
    .elements = {67, 35, 4, 5},
    .scalar = {1.5f, 0.25f, -0.5f, 0.125f}};

static double integers_score(const mod_call *c, double score)
{
    return score + 0.5f * element(c, 1, c->j) + 0.25f * element(c, 2, c->j) - 0.125f * element(c, 3, c->i);
}

/* buffer0 is not bound. */
static const attention_mod integers = {.score_source =
                                           SCORE "{ return score + 0.5f * user.buffer1[key] + 0.25f * user.buffer2[key]"
                                                 " - 0.125f * user.buffer3[query]; }",
                                       .score = integers_score,
                                       .user = {CLATTN_DTYPE_NONE, CLATTN_DTYPE_I8, CLATTN_DTYPE_U8, CLATTN_DTYPE_I32},
                                       .elements = {0, 67, 67, 35}};

static bool nothing_mask(const mod_call *c)
{
    return c->i % 2 == 0;
}

static const attention_mod every_other = {.mask_source = DROP "{ return query % 2 == 0 ? 0x100 : 0; }",
                                          .mask = nothing_mask};

static double special_score(const mod_call *c, double score)
{
    return c->i == 2 && c->j == 3 ? NAN : c->i == 3 && c->j == 1 ? INFINITY : c->j == 2 ? -INFINITY : score;
}

static const attention_mod special = {.score_source = SCORE
                                      "{ return query == 2 && key == 3 ? NAN : query == 3 && key == 1 ? INFINITY\n"
                                      "       : key == 2 ? -INFINITY : score; }",
                                      .score = special_score};

static const attention_case cases[] = {
    {"score by indices", ALL, LITTLE, .mod = &indices},
    {"score by indices", BIG | TILE, MEDIUM, .mod = &indices},
    {"score by indices, shorter", BIG, MEDIUM, .mod = &indices, .shorter = true, .actual = {1, 34, 33},
     .inject = INJECT_MASKED},
    {"mask by indices", ALL, LITTLE, .mod = &checkered, .inject = INJECT_MASKED},
    {"mask by indices", BIG | TILE, MEDIUM, .mod = &checkered, .inject = INJECT_MASKED},
    {"by the item, bottom-right", ALL, LITTLE, .mod = &item, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(3, 5), .keys = LIST(9, 4)}, .inject = INJECT_MASKED},
    {"by the item, bottom-right", BIG, MEDIUM, .mod = &item, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(35, 20), .keys = LIST(30, 66)}, .inject = INJECT_MASKED},
    {"buffers and scalars", ALL, LITTLE, .mod = &buffers, .inject = INJECT_MASKED},
    {"buffers and scalars", BIG, MEDIUM, .mod = &buffers, .inject = INJECT_MASKED},
    {"buffers of integers", BIG, MEDIUM, .mod = &integers},
    {"mask of whole rows", ALL, LITTLE, .mod = &every_other},
    {"mask of whole rows, sinks, entropy", BIG, MEDIUM, .mod = &every_other, .sinks = true, .entropy = true},
    {"NaN and infinite scores", ALL, LITTLE, .mod = &special},
    {"scores from a function, all else, biased", ALL, LITTLE, .mod = &item, .softcap = 2, .bias = MASK_FLOAT,
     .alibi = 2, .mask = MASK_BOOL, .causal = true, AT(EXPLICIT, 4), .scores = SCORES_OF(BIASED),
     .inject = INJECT_MASKED},
    {"scores from a function, all else, biased", BIG, MEDIUM, .mod = &item, .softcap = 2, .bias = MASK_FLOAT,
     .alibi = 2, .mask = MASK_BOOL, .causal = true, AT(EXPLICIT, 40), .scores = SCORES_OF(BIASED),
     .inject = INJECT_MASKED},
    {"float16, pages, probabilities", BIG, .dim = {2, 4, 2, 9, 40, 8, 8}, .mod = &indices,
     .type = {.query = CLATTN_DTYPE_F16, .key = CLATTN_DTYPE_F16, .value = CLATTN_DTYPE_F16}, PAGED(41, 4),
     .list.keys = LIST(33, 40), .scores = SCORES_OF(PROBABILITIES)},
    {"a ring, the keys' own numbers", BIG, .dim = {2, 4, 2, 3, 8, 8, 8}, .mod = &indices,
     .cache = CLATTN_CACHE_KIND_RING, .shorter = true, .actual = {2, 3, 29}},
    {"float64 by way of float", FULL, MEDIUM, .mod = &indices, .type = FOUR(CLATTN_DTYPE_F64)},
};

/* ---- compile errors ---- */

static void compile_errors(const void *which, const char *solver)
{
    static const struct {
        const char *score, *mask, *place;
    } table[] = {
        {SCORE "{\n    return score + no_such_name;\n}\n", NULL, "score_mod:3"},
        {"\n\n" SCORE "{ return score }", NULL, "score_mod:4"},
        {NULL, "/* one\n   two */ constant float other = 1;\n" DROP "{\n\n\n    return user.buffer0[key]; }",
         "mask_mod:7"},
        {SCORE "{ return score; }", DROP "{ return user.no_such; }", "mask_mod:2"},
        {SCORE "{\n    if (key) {\n        return score;\n}\n", NULL, "score_mod:5"}, /* where the text ends */
        {SCORE "{\n    return score; /* } */\n", DROP "{ return 1; }", "score_mod:3"},
        {SCORE "{ return score; }\n}", NULL, "score_mod:3"},
        {SCORE "{ return score; }\n/* more", NULL, "score_mod:3"},
        {NULL, "#ifdef OTHER\n#endif\n#if 1\n" DROP "{ return 1; }", "mask_mod:3"},
        {"float scoremod(float score) { return score; }", NULL, "score_mod: defines no function of that name"},
        {"// " SCORE "{ return score; }", NULL, "score_mod:"},
        {NULL, "int mask(int key) { return mask_mod(key); }", "mask_mod:1"},
        {"\nfloat score_mod(float score, int batch, int head, int query, int key)\n{ return score; }", NULL,
         "score_mod:2"},
        {NULL,
         "float halved(float x) { return x / 2; }\nvoid mask_mod(int batch, int head, int query, int key, "
         "user_data user) {}",
         "mask_mod:2"},
        {"\n#define CAUSAL 3\n" SCORE "{ return score; }", NULL, "score_mod:2: the macro CAUSAL"},
        {SCORE "{ return score; }", "# define /* 3 */ D_K 3\n" DROP "{ return 1; }", "mask_mod:1: the macro D_K"},
        {"#undef LSE\n" SCORE "{ return score; }", NULL, "score_mod:1: the macro LSE"},
        {SCORE "{ score + 1; } // return score", NULL, "score_mod: has no return"},
        {NULL, DROP "{}", "mask_mod: has no return"},
    };
    const attention_case test = {"", ALL, LITTLE};
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);

    (void)which;
    for (size_t n = 0; n < COUNT_OF(table); n++) {
        char message[512] = ""; /* as in the examples, the fault comes first */

        desc.snippets.score_mod = table[n].score;
        desc.snippets.mask_mod = table[n].mask;
        assert_status(device_context(), clattn_attention_supports(device_context(), &desc, NULL),
                      CLATTN_SUCCESS); /* this builds nothing */
        operator_refuses_plan(&attention_operator, &desc, solver, CLATTN_ERROR_BUILD);
        clattn_context_message(device_context(), message, sizeof message);
        message[strcspn(message, "\n")] = '\0';
        if (strncmp(message, table[n].place, strlen(table[n].place)) != 0) {
            fail_msg("the message does not begin with %s: %s", table[n].place, message);
        }
    }
    desc.snippets.mask_mod = NULL; /* the context still works */
    desc.snippets.score_mod = SCORE "{ return score; }";
    job.plan = operator_plan(&attention_operator, &desc, solver);
    job_run(&job, NULL);
    attention_judge(&job, &test);
    job_release(&job);
}

/* ---- one text is not another ---- */

static double first_output(test_job *job, const clattn_attention_desc *desc)
{
    assert_status(device_context(),
                  clattn_attention_run(device_context(), NULL, desc, &job->args.attention, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    assert_cl(clFinish(clattn_context_queue(device_context())));
    array_download(&job->output[OUTPUT]);
    array_poison(&job->output[OUTPUT]);
    return array_get(&job->output[OUTPUT], (size_t[]){0, 0, 0, 0});
}

static double first_value(const test_job *job, size_t key)
{
    return array_get(&job->input[VALUE], (size_t[]){0, 0, key, 0});
}

/* How many programs the context of the other tests has built and loaded. */
static unsigned long long programs(void)
{
    clattn_program_statistics s = device_programs();
    return s.built + s.loaded;
}

/* The one-call form compares the text and not its address, and a plan outlives the text. */
static void plan_cache(void **state)
{
    const attention_case test = {"", ALL, LITTLE, .no_lse = true};
    char text[256];
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);

    (void)state;
    desc.snippets.mask_mod = text;
    snprintf(text, sizeof text, "%s", DROP "{ return key == 3; }");
    assert_true(first_output(&job, &desc) == first_value(&job, 3));
    unsigned long long before = programs();
    text[strlen(text) - 4] = '4'; /* changed in place */
    assert_true(first_output(&job, &desc) == first_value(&job, 4));
    unsigned long long after = programs();
    assert_true(after > before);
    char copy[sizeof text];
    memcpy(copy, text, sizeof text);
    desc.snippets.mask_mod = copy;
    memset(text, 'x', sizeof text - 1);
    assert_true(first_output(&job, &desc) == first_value(&job, 4));
    assert_true(programs() == after); /* the plan was found again */
    desc.snippets.mask_mod = NULL;
    desc.snippets.score_mod = SCORE "{ return key == 3 ? 1e4f : 0.0f; }";
    assert_true(first_output(&job, &desc) == first_value(&job, 3));
    desc.snippets.buffer_dtype[2] = CLATTN_DTYPE_F32; /* the buffers are part of the description */
    assert_status(device_context(),
                  clattn_attention_run(device_context(), NULL, &desc, &job.args.attention, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    job_release(&job);
}

/* Makes a plan with that mask_mod on a new context and returns what was built and loaded for it. */
static void fresh_plan(const char *folder, const clattn_attention_desc *like, const char *mask,
                       unsigned long long built, unsigned long long loaded)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_program_statistics programs = {.size = sizeof programs};
    clattn_attention_desc desc = *like;
    clattn_plan *plan = NULL;

    params.device = getenv("CLATTN_DEVICE") ? NULL : "0";
    params.cache_mode = CLATTN_CACHE_MODE_ON;
    params.cache_dir = folder;
    options.solver = "generic";
    desc.snippets.mask_mod = mask;
    clattn_context *context = new_context_with(&params);
    assert_int_equal(clattn_attention_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
    assert_int_equal(clattn_context_program_statistics(context, &programs), CLATTN_SUCCESS);
    assert_int_equal(programs.built, built);
    assert_int_equal(programs.loaded, loaded);
    clattn_plan_release(&plan);
    release_context(&context);
}

/* Binaries on the disk are found for the same text and for no other. */
static void binary_cache(void **state)
{
    const attention_case test = {"", ALL, LITTLE};
    char folder[FOLDER_SIZE];
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);

    (void)state;
    new_folder(folder);
    fresh_plan(folder, &desc, DROP "{ return key == 3; }", 1, 0);
    fresh_plan(folder, &desc, DROP "{ return key == 4; }", 1, 0);
    fresh_plan(folder, &desc, DROP "{ return key == 3; }", 0, 1);
    fresh_plan(folder, &desc, NULL, 1, 0);
    job_release(&job);
}

/* The longest allowed text works, and a longer one is refused. */
static void snippet_limit(void **state)
{
    static char text[CLATTN_SNIPPET_LIMIT + 1];
    static const char function[] = DROP "{ return 1; }";
    const attention_case test = {"", ALL, LITTLE};
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);

    (void)state;
    memset(text, ' ', CLATTN_SNIPPET_LIMIT);
    memcpy(text, function, sizeof function - 1);
    desc.snippets.mask_mod = text;
    assert_status(device_context(), clattn_attention_supports(device_context(), &desc, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    text[CLATTN_SNIPPET_LIMIT - 1] = '\0';
    job.plan = operator_plan(&attention_operator, &desc, NULL);
    job_run(&job, NULL);
    attention_judge(&job, &test);
    job_release(&job);
}

int main(int argc, char **argv)
{
    attention_add_frugal(cases, COUNT_OF(cases));
    for (int n = 0; n < ATTENTION_SOLVERS; n++) {
        if (!attention_refuses(&cases[0], attention_solvers[n])) {
            suite_add_case(compile_errors, NULL, attention_solvers[n], "attention %s: compile errors",
                           attention_solvers[n]);
        }
    }
    suite_add_case(compile_errors, NULL, NULL, "attention: compile errors, any solver");
    suite_add(plan_cache, "attention: two snippets are two plans");
    suite_add(binary_cache, "attention: two snippets are two binaries");
    suite_add(snippet_limit, "attention: the longest snippet");
    return suite_run("attention mods", argc, argv);
}
