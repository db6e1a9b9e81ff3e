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

static double macros_score(const mod_call *c, double score)
{
    return score + 0.5f * (c->j % 3);
}

static bool macros_mask(const mod_call *c)
{
    return c->i - c->j < 4 && c->j <= c->i;
}

/* Neither text redefines a macro of the library's or sees one, whatever its spelling; its pragma ends with it. */
static const attention_mod macros = {
    .score_source = "#define WINDOW 3\n#define CAUSAL 1\n#de\\\nfine D_K 1\n%:define LANES 1\n#define SOFTCAP 0.5f\n"
                    "/*\n*/ #define LOAD(x) x\n#define query_length 3\n#undef LSE\n#undef LOG2E\n#undef MASK_MOD\n"
                    "#pragma OPENCL FP_CONTRACT ON\nenum { one = CAUSAL };\n" SCORE
                    "{ return LOAD(score) * one + SOFTCAP * (key % WINDOW); }\n#define D_V 1 // \\",
    .mask_source = "#undef WINDOW\n#define WINDOW 4 /* the usual name */\n"
                   "#if defined FUSED || defined MASK_MOD || defined USER0 || defined K_TYPE || defined GIVEN\n"
                   "#error the library's macros are seen\n#endif\n" DROP
                   "{ return query - key < WINDOW && key <= query; }\n#define kernels",
    .score = macros_score,
    .mask = macros_mask};

static const attention_case cases[] = {
    {"macros named as the library's", ALL, LITTLE, .mod = &macros, .inject = INJECT_MASKED},
    {"macros named as the library's", BIG | TILE, MEDIUM, .mod = &macros},
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

/* Expects that no plan can be made, and that the first line of the message begins with `place`. */
static void expect_message(const clattn_attention_desc *desc, const char *solver, const char *place)
{
    char message[512] = ""; /* as in the examples, the fault comes first */

    assert_status(device_context(), clattn_attention_supports(device_context(), desc, NULL),
                  CLATTN_SUCCESS); /* this builds nothing */
    operator_refuses_plan(&attention_operator, desc, solver, CLATTN_ERROR_BUILD);
    clattn_context_message(device_context(), message, sizeof message);
    message[strcspn(message, "\n")] = '\0';
    if (strncmp(message, place, strlen(place)) != 0)
        fail_msg("the message does not begin with %s: %s", place, message);
}

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
        {NULL, DROP "{ return helper(key); }", "mask_mod:2"},
        {"\nfloat score_mod(float score, int batch, int head, int query, int key)\n{ return score; }", NULL,
         "score_mod:2"},
        {NULL,
         "float halved(float x) { return x / 2; }\nvoid mask_mod(int batch, int head, int query, int key, "
         "user_data user) {}",
         "mask_mod:2"},
        {"float fma(float a, float b, float c) { return 0 * a; }\n" SCORE "{ return user.no_such; }", NULL,
         "score_mod:"},
    };
    const attention_case test = {"", ALL, LITTLE};
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);

    (void)which;
    for (size_t n = 0; n < COUNT_OF(table); n++) {
        desc.snippets.score_mod = table[n].score;
        desc.snippets.mask_mod = table[n].mask;
        expect_message(&desc, solver, table[n].place);
    }
    desc.snippets.mask_mod = NULL; /* the context still works */
    desc.snippets.score_mod = SCORE "{ return score; }";
    job.plan = operator_plan(&attention_operator, &desc, solver);
    job_run(&job, NULL);
    attention_judge(&job, &test);
    job_release(&job);
}

/* What the library refuses although a compiler may take it, by the place and the name; nothing is built. */
static void refused_texts(void **state)
{
    static const struct {
        const char *before, *place; /* a text before a score_mod that is right */
    } table[] = {
        {"\n#include \"part.h\"\n", "score_mod:2: #include is refused"},
        {"/* \" */ # /* */ in\\\nclude </dev/stdin>\n", "score_mod:1: #include is refused"},
        {"// \\\r\n#include \"comment\"\r\n%: include_next <x>\n", "score_mod:3: #include_next is refused"},
        {"\r#import \"x\"\n", "score_mod:2: #import is refused"},
        {"#if 0 // skipped\n#embed \"x\"\n#endif\n", "score_mod:2: #embed is refused"},
        {"#if \\\n __has_include(\"x\")\n#endif\n", "score_mod:1: __has_include is refused"},
        {"#line 9 \"x\"\n", "score_mod:1: #line is refused"},
        {"\n\n# 3 \"x\" 3\n", "score_mod:3: #3 is refused"},
        {"#pragma clang optimize off\n", "score_mod:1: #pragma clang is refused"},
        {"#pragma\n", "score_mod:1: #pragma  is refused"},
        {"_Pragma(\"weak fma\")\n", "score_mod:1: _Pragma is refused"},
        {"\n\?\?=include \"x\"\n", "score_mod:2: the trigraph \?\?="},
        {"// a\?\?/\n", "score_mod:1: the trigraph \?\?/"},
        {"\n#define kernel\n", "score_mod:2: the macro kernel is refused"},
        {"# define /* 3 */ float4 double4\n", "score_mod:1: the macro float4 is refused"},
        {"#define a b\n#define __global\n", "score_mod:2: the macro __global is refused"},
        {"#define local\n", "score_mod:1: the macro local is refused"},
        {"#define mask_mod my_mask\n", "score_mod:1: the macro mask_mod is refused"},
        {"float __attribute__((overloadable)) exp(float x)\n{ return x; }\n", "score_mod:1: overloadable is refused"},
        {"float other(void) __asm__(\"fma\");\n", "score_mod:1: __asm__ is refused"},
        {"#if 0\n", "score_mod:1"},   /* left open, as the compiler says */
        {"/* open\n", "score_mod: "}, /* hides the function */
    };
    static const struct {
        const char *text, *message;
    } whole[] = {
        {"float scoremod(float score) { return score; }", "score_mod: defines no function of that name"},
        {"// " SCORE "{ return score; }", "score_mod: defines no function of that name"},
        {SCORE ";\nfloat other(float x) { return x; }", "score_mod: defines no function of that name"},
        {"float other(float x) { if (score_mod) { return x; } }", "score_mod: defines no function of that name"},
        {"float other(float x) { return score_mod(x); }", "score_mod: defines no function of that name"},
        {SCORE "{ score + 1; } // return score", "score_mod: has no return"},
        {SCORE "{ \"return\"; }", "score_mod: has no return"},
    };
    const attention_case test = {"", ALL, LITTLE};
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);
    char text[512];

    (void)state;
    for (size_t n = 0; n < COUNT_OF(table); n++) {
        snprintf(text, sizeof text, "%s%s", table[n].before, SCORE "{ return score; }");
        desc.snippets.score_mod = text;
        expect_message(&desc, NULL, table[n].place);
    }
    for (size_t n = 0; n < COUNT_OF(whole); n++) {
        desc.snippets.score_mod = whole[n].text;
        expect_message(&desc, NULL, whole[n].message);
    }
    job_release(&job);
}

/* ---- warnings ---- */

static void keep_warning(void *user, clattn_log_level level, const char *line)
{
    struct {
        char text[1024];
    } *kept = user;
    size_t used = strlen(kept->text);

    if (level == CLATTN_LOG_LEVEL_WARNING)
        snprintf(kept->text + used, sizeof kept->text - used, "%s\n", line);
}

/* A compiler's warnings about a snippet, a missing return above all, reach the log and `explain` with each new plan; the
 * library's own text causes none. */
static void warnings(void **state)
{
    static const char score[] = "\n" SCORE "{\n    if (key > 0)\n        return score;\n}\n",
                      mask[] = DROP "{\n    key < 3;\n    return 1;\n}";
    static const struct {
        const char *score, *mask, *warning[2];
    } table[] = {
        {score, NULL, {"score_mod:6:1: non-void function does not return a value"}},
        {score, mask, {"score_mod:6:1: non-void function does not return a value", "\nmask_mod:3:9: "}},
        {SCORE "{ return score; }", DROP "{ return key; }", {NULL}},
    };
    const attention_case test = {"", ALL, LITTLE};
    struct {
        char text[1024];
    } kept;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);

    (void)state;
    params.device = getenv("CLATTN_DEVICE") ? NULL : "0";
    params.log = keep_warning;
    params.log_user = &kept;
    params.log_level = CLATTN_LOG_LEVEL_WARNING;
    clattn_context *context = new_context_with(&params);
    for (size_t n = 0; n < 2 * COUNT_OF(table); n++) { /* each twice */
        clattn_plan *plan = NULL;

        kept.text[0] = '\0';
        desc.snippets.score_mod = table[n / 2].score;
        desc.snippets.mask_mod = table[n / 2].mask;
        assert_status(context, clattn_attention_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
        for (size_t i = 0; i < COUNT_OF(table[0].warning) && table[n / 2].warning[i]; i++) {
            const char *found = strstr(kept.text, table[n / 2].warning[i]);
            assert_non_null(found);
            assert_null(strstr(found + 1, table[n / 2].warning[i])); /* once */
            assert_non_null(strstr(clattn_plan_explain(plan), table[n / 2].warning[i] + (i > 0)));
        }
        if (!table[n / 2].warning[0])
            assert_string_equal(kept.text, "");
        clattn_plan_release(&plan);
    }
    release_context(&context);
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
    suite_add_case(compile_errors, NULL, "generic", "attention generic: compile errors"); /* no solver sees them */
    suite_add_case(compile_errors, NULL, NULL, "attention: compile errors, any solver");
    suite_add(refused_texts, "attention: texts that the library refuses");
    suite_add(warnings, "attention: warnings about snippets");
    suite_add(plan_cache, "attention: two snippets are two plans");
    suite_add(binary_cache, "attention: two snippets are two binaries");
    suite_add(snippet_limit, "attention: the longest snippet");
    return suite_run("attention mods", argc, argv);
}
