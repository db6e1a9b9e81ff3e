/* Mistakes in the user's functions and a compiler's warnings about them reach the user, and no plan or binary is ever used for
 * another text.
 *
 * Holds: snippets of include/clattn/attention.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"

#define SCORE "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n"
#define DROP "int mask_mod(int batch, int head, int query, int key, user_data user)\n"

/* ---- compile errors ---- */

/* Expects that no plan can be made, and that the first line of the message begins with `place`. */
static void expect_message(const clattn_attention_desc *desc, const char *solver, const char *place)
{
    static char message[65536];

    assert_status(device_context(), clattn_attention_supports(device_context(), desc, NULL),
                  CLATTN_SUCCESS); /* this builds nothing */
    operator_refuses_plan(&attention_operator, desc, solver, CLATTN_ERROR_BUILD);
    clattn_context_message(device_context(), message, sizeof message);
    if (strncmp(message, place, strlen(place)) != 0) {
        print_error("%s\n%s\n", desc->snippets.score_mod ? desc->snippets.score_mod : "",
                    desc->snippets.mask_mod ? desc->snippets.mask_mod : "");
        print_error("%s\n", message);
        fail_msg("the message does not begin with %s", place);
    }
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
        /* refused before any build: tests/program/snippet_text.c has the others */
        {"\n#include \"/dev/stdin\"\n" SCORE "{ return score; }", NULL, "score_mod:2: #include is refused"},
        {SCORE "{ return score; }", "#define kernel\n" DROP "{ return 1; }", "mask_mod:1: the macro kernel is refused"},
        {NULL, "#define score_mod_grad\n" DROP "{ return 1; }", "mask_mod:1: the macro score_mod_grad is refused"},
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

/* Whether the driver tells of a function that may return nothing: as a mistake if warnings are, or in its log. */
static bool driver_warns(clattn_context *context)
{
    const char *source = "int f(int x)\n{\n    if (x)\n        return 1;\n}\n"
                         "kernel void k(global int *x)\n{\n    *x = f(*x);\n}\n";
    cl_context opencl = clattn_context_opencl_context(context);
    cl_device_id device = clattn_context_opencl_device(context);
    bool warns = false;

    for (int strict = 0; strict < 2 && !warns; strict++) {
        char log[8192] = "";
        cl_program program = clCreateProgramWithSource(opencl, 1, &source, NULL, NULL);
        assert_non_null(program);
        warns = clBuildProgram(program, 1, &device, strict ? "-cl-std=CL1.2 -Werror" : "-cl-std=CL1.2", NULL, NULL) !=
                CL_SUCCESS;
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        warns = warns || strstr(log, "warning: ");
        clReleaseProgram(program);
    }
    return warns;
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
        {score, NULL, {"score_mod:6:1: "}},
        {score, mask, {"score_mod:6:1: ", "\nmask_mod:3:9: "}},
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
    const bool warns = driver_warns(context);
    for (size_t n = 0; n < 2 * COUNT_OF(table); n++) { /* each twice */
        clattn_plan *plan = NULL;

        kept.text[0] = '\0';
        desc.snippets.score_mod = table[n / 2].score;
        desc.snippets.mask_mod = table[n / 2].mask;
        assert_status(context, clattn_attention_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
        for (size_t i = 0; i < COUNT_OF(table[0].warning) && table[n / 2].warning[i] && warns; i++) {
            const char *found = strstr(kept.text, table[n / 2].warning[i]);
            if (!found)
                fail_msg("the log lacks \"%s\": %s", table[n / 2].warning[i], kept.text);
            assert_true(i > 0 || strstr(found, "non-void function")); /* LLVM 11 and 12 say the rest differently */
            assert_null(strstr(found + 1, table[n / 2].warning[i]));  /* once */
            assert_non_null(strstr(clattn_plan_explain(plan), table[n / 2].warning[i] + (i > 0)));
        }
        if (!table[n / 2].warning[0] || !warns)
            assert_string_equal(kept.text, "");
        clattn_plan_release(&plan);
    }
    release_context(&context);
    job_release(&job);
    if (!warns) {
        print_message("# skipped, because this driver does not tell of warnings\n");
        skip();
    }
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
    desc.snippets.score_mod = SCORE "{ return score; }";
    assert_true(first_output(&job, &desc) == first_value(&job, 4));
    after = programs();
    desc.snippets.score_mod_grad = "not read";
    assert_true(first_output(&job, &desc) == first_value(&job, 4));
    assert_true(programs() == after); /* it is backward's */
    desc.snippets.score_mod_grad = NULL;
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
    params.save_mode = CLATTN_SAVE_MODE_RELEASE;
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

    (void)state;
    needs_saved_programs();
    clattn_attention_desc desc = attention_prepare(&job, &test, 1);
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
    suite_add_case(compile_errors, NULL, NULL, "attention: compile errors, any solver");
    suite_add_case(compile_errors, NULL, "generic", "attention: compile errors, a named solver");
    suite_add(warnings, "attention: warnings about snippets");
    suite_add(plan_cache, "attention: two snippets are two plans");
    suite_add(binary_cache, "attention: two snippets are two binaries");
    suite_add(snippet_limit, "attention: the longest snippet");
    return suite_run("attention snippets", argc, argv);
}
