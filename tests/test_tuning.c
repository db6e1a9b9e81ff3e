/* Wisdom and parameters: what is learnt changes the geometry of later plans and nothing else; no text makes a plan fail.
 *
 * Holds: of include/clattn/tuning.h, the parameters, the text and its file. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <threads.h>
#include <unistd.h>

#include "support/api.h"

#define M 20
#define N 24
#define K 12
#define HEADING "clattn-wisdom 1\n"

static char folder[SUPPORT_PATH];
static clattn_context_params params;
static clattn_context *context;
static clattn_matmul_desc desc;

static int start(void **state)
{
    (void)state;
    support_folder(folder);
    clattn_context_params_init(&params);
    params.cache_dir = folder;
    params.cache_mode = CLATTN_CACHE_ON;
    params.log_level = CLATTN_LOG_NONE;
    context = support_context_with(&params);
    clattn_matmul_desc_init(&desc);
    desc.a = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){M, K});
    desc.b = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){K, N});
    desc.c = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){M, N});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    support_release(&context);
    return 0;
}

static clattn_status make(clattn_context *in, const char *solver, const char *tuning, clattn_plan **plan)
{
    clattn_plan_options options = {.size = sizeof options, .solver = solver, .tuning = tuning};
    return clattn_matmul_plan_create(in, &desc, &options, plan);
}

static clattn_plan *plan_of(clattn_context *in, const char *solver, const char *tuning)
{
    clattn_plan *plan = NULL;
    assert_status(in, make(in, solver, tuning, &plan), CLATTN_SUCCESS);
    return plan;
}

/* Runs the plan and compares with sums in double. */
static void check_result(clattn_context *in, clattn_plan *plan)
{
    float a[M * K], b[K * N], c[M * N];
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    cl_context opencl = clattn_context_opencl_context(in);
    support_fill(a, M * K, 1);
    support_fill(b, K * N, 2);
    cl_mem buffers[3] = {support_buffer(opencl, CL_MEM_READ_ONLY, sizeof a, a),
                         support_buffer(opencl, CL_MEM_READ_ONLY, sizeof b, b),
                         support_buffer(opencl, CL_MEM_READ_WRITE, sizeof c, NULL)};
    args.a = clattn_binding_buffer(buffers[0], 0);
    args.b = clattn_binding_buffer(buffers[1], 0);
    args.c = clattn_binding_buffer(buffers[2], 0);
    assert_status(in, clattn_matmul_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    support_read(clattn_context_queue(in), buffers[2], sizeof c, c);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)a[i * K + k] * b[k * N + j];
            if (!(sum - c[i * N + j] < 1e-5 && c[i * N + j] - sum < 1e-5))
                fail_msg("c[%d, %d] is %g, not %g\n%s", i, j, c[i * N + j], sum, clattn_plan_explain(plan));
        }
    for (int i = 0; i < 3; i++)
        clReleaseMemObject(buffers[i]);
}

static bool says(const clattn_plan *plan, const char *part)
{
    return strstr(clattn_plan_explain(plan), part) != NULL;
}

#define assert_says(plan, part, expected)                                                                    \
    do {                                                                                                     \
        if (says((plan), (part)) != (expected))                                                              \
            fail_msg("explain %s \"%s\":\n%s", (expected) ? "lacks" : "has", (part), clattn_plan_explain(plan)); \
    } while (0)

/* The context's text, terminated; the caller frees it. */
static char *export_of(clattn_context *in)
{
    size_t bytes = 0, again = 0;
    assert_status(in, clattn_wisdom_export(in, NULL, 0, &bytes), CLATTN_SUCCESS);
    char *text = calloc(1, bytes + 1);
    assert_non_null(text);
    assert_status(in, clattn_wisdom_export(in, text, bytes, &again), CLATTN_SUCCESS);
    assert_int_equal(bytes, again);
    assert_int_equal(strlen(text), bytes);
    return text;
}

static clattn_status import(clattn_context *in, const char *text)
{
    return clattn_wisdom_import(in, text, strlen(text), NULL);
}

/* `text` with the first `old` exchanged; the caller frees it. */
static char *exchanged(const char *text, const char *old, const char *new)
{
    const char *at = strstr(text, old);
    if (!at)
        fail_msg("\"%s\" is not in %s", old, text);
    char *result = calloc(1, strlen(text) + strlen(new) + 1);
    assert_non_null(result);
    sprintf(result, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    return result;
}

/* The heading and one record, of the cpu solver with tiles=1, which is no plan's default here. */
static char *learnt(clattn_context *in)
{
    clattn_plan *plan = plan_of(in, "cpu", "tiles=1");
    assert_says(plan, "geometry by the caller:", true);
    assert_says(plan, " tiles=1", true);
    assert_int_equal(clattn_wisdom_knows(plan), 0);
    assert_status(in, clattn_wisdom_learn(plan, 0, 1234567), CLATTN_SUCCESS);
    assert_int_equal(clattn_wisdom_knows(plan), 1);
    clattn_plan_release(&plan);
    return export_of(in);
}

static void wisdom_changes_the_geometry(void **state)
{
    (void)state;
    clattn_plan *plan = plan_of(context, NULL, NULL);
    assert_says(plan, "wisdom", false);
    assert_says(plan, "geometry by the cost model:", true);
    assert_says(plan, " tiles=1 ", false);
    clattn_plan_release(&plan);
    free(learnt(context));
    plan = plan_of(context, NULL, NULL);
    assert_string_equal(clattn_plan_solver(plan), "cpu");
    assert_says(plan, "wisdom has cpu, rank 0, 1.23457 ms, for ", true);
    assert_says(plan, "matmul b1-m32-n32-k16-F32.r-F32.r-F32.r", true);
    assert_says(plan, "geometry by wisdom:", true);
    assert_says(plan, " tiles=1", true);
    check_result(context, plan);
    clattn_plan_release(&plan);
    /* Of the same class, and of another one. */
    desc.a.extent[0] = desc.c.extent[0] = M + 5;
    plan = plan_of(context, NULL, NULL);
    assert_says(plan, "geometry by wisdom:", true);
    clattn_plan_release(&plan);
    desc.a.extent[0] = desc.c.extent[0] = 2 * M;
    plan = plan_of(context, NULL, NULL);
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
    desc.a.extent[0] = desc.c.extent[0] = M;
    /* "" is the cost model's own choice; and what is forgotten is. */
    plan = plan_of(context, "cpu", "");
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
    assert_status(context, clattn_wisdom_clear(context), CLATTN_SUCCESS);
    plan = plan_of(context, NULL, NULL);
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
}

static void wisdom_chooses_among_solvers(void **state)
{
    (void)state;
    clattn_plan *generic = plan_of(context, "generic", NULL), *cpu = plan_of(context, "cpu", "tiles=1");
    assert_status(context, clattn_wisdom_learn(generic, 0, 5), CLATTN_SUCCESS);
    assert_status(context, clattn_wisdom_learn(cpu, 1, 7), CLATTN_SUCCESS);
    clattn_plan *plan = plan_of(context, NULL, NULL);
    assert_string_equal(clattn_plan_solver(plan), "generic");
    assert_says(plan, "cpu: not asked, wisdom has another", true);
    check_result(context, plan);
    clattn_plan_release(&plan);
    /* One that was asked for by name gets its own record. */
    plan = plan_of(context, "cpu", NULL);
    assert_string_equal(clattn_plan_solver(plan), "cpu");
    assert_says(plan, "geometry by wisdom:", true);
    clattn_plan_release(&plan);
    /* Rank 0 drops the others. */
    assert_status(context, clattn_wisdom_learn(cpu, 0, 3), CLATTN_SUCCESS);
    char *text = export_of(context);
    assert_null(strstr(text, "generic"));
    free(text);
    assert_status(context, clattn_wisdom_learn(cpu, 8, 3), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_plan_release(&generic);
    clattn_plan_release(&cpu);
}

static void one_call_forms_follow_new_wisdom(void **state)
{
    clattn_program_statistics before = {.size = sizeof before}, after = {.size = sizeof after};
    (void)state;
    assert_status(context, clattn_matmul_prewarm(context, &desc), CLATTN_SUCCESS);
    free(learnt(context));
    assert_status(context, clattn_context_program_statistics(context, &before), CLATTN_SUCCESS);
    assert_status(context, clattn_matmul_prewarm(context, &desc), CLATTN_SUCCESS);
    assert_status(context, clattn_context_program_statistics(context, &after), CLATTN_SUCCESS);
    assert_int_equal(before.built, after.built); /* the plan that was learnt from had built it */
}

/* What other devices, drivers, kernels, operators and classes have learnt is kept and ignored. */
static void other_keys_are_ignored(void **state)
{
    (void)state;
    char *text = learnt(context), *digest = strstr(text, " matmul ") - 1;
    char parts[4][64] = {"matmul b1-m32-n32-k16", "matmul b1-", "clattn-wisdom 1\n", "-F32.r "};
    const char *others[4] = {"matmul b1-m64-n32-k16", "softmax b1-", "clattn-wisdom 1\nX", "-F32.s "};
    for (int i = 0; i < 5; i++) {
        char *other = i < 4 ? exchanged(text, parts[i], others[i]) : strdup(text);
        assert_non_null(other);
        if (i == 4)
            other[digest - text] = *digest == '0' ? '1' : '0';
        assert_status(context, clattn_wisdom_clear(context), CLATTN_SUCCESS);
        assert_status(context, import(context, other), CLATTN_SUCCESS);
        clattn_plan *plan = plan_of(context, NULL, NULL);
        assert_says(plan, "wisdom", false);
        check_result(context, plan);
        clattn_plan_release(&plan);
        char *kept = export_of(context);
        assert_string_equal(kept, other);
        free(kept);
        free(other);
    }
    free(text);
}

/* Well formed, but not what the solver takes: ignored, with a line in explain. */
static void hostile_values_are_ignored(void **state)
{
    static const struct {
        const char *old, *new, *line;
    } cases[] = {
        {" tiles=1", " tiles=0", "of wisdom tiles=0, for one, is ignored"},
        {" tiles=1", " tiles=3", "of wisdom tiles=3, for one, is ignored"},
        {" tiles=1", " tiles=999999999", "of wisdom tiles=999999999, for one, is ignored"},
        {" tiles=1", " tiles=1 LANES=4096", "of wisdom LANES=4096, for one, is ignored"},
        {" cpu ", " gpu ", "that is ignored: there is no such solver"},
        {" lanes=", " lanes=0 lane=", "of wisdom lanes=0, for one, is ignored"},
        {" rows=", " rows=1000000 row=", "of wisdom rows=1000000, for one, is ignored"},
    };
    (void)state;
    char *text = learnt(context);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *other = exchanged(text, cases[i].old, cases[i].new);
        assert_status(context, clattn_wisdom_clear(context), CLATTN_SUCCESS);
        assert_status(context, import(context, other), CLATTN_SUCCESS);
        clattn_plan *plan = plan_of(context, NULL, NULL);
        assert_says(plan, cases[i].line, true);
        check_result(context, plan);
        clattn_plan_release(&plan);
        free(other);
    }
    free(text);
}

/* Every value that is allowed alone, with the others as planned: taken with right results, or refused as UNSUPPORTED. */
static void every_allowed_value_is_safe(void **state)
{
    (void)state;
    clattn_plan *plan = plan_of(context, "cpu", "");
    size_t taken = 0;
    for (size_t i = 0; i < clattn_plan_parameter_count(plan); i++) {
        clattn_plan_parameter parameter = {.size = sizeof parameter};
        assert_status(context, clattn_plan_parameter_info(plan, i, &parameter), CLATTN_SUCCESS);
        for (size_t j = 0; j < parameter.allowed_count && (j < 2 || !support_tiny()); j++) {
            char text[64], shown[80];
            clattn_plan *other = NULL;
            sprintf(text, "%s=%d", parameter.name, (int)parameter.allowed[j]);
            sprintf(shown, " %s", text);
            clattn_status status = make(context, "cpu", text, &other);
            if (status == CLATTN_ERROR_UNSUPPORTED)
                continue;
            assert_status(context, status, CLATTN_SUCCESS);
            assert_says(other, shown, true);
            check_result(context, other);
            clattn_plan_release(&other);
            taken++;
        }
    }
    assert_true(taken >= clattn_plan_parameter_count(plan));
    clattn_plan_parameter parameter = {.size = 3};
    assert_status(context, clattn_plan_parameter_info(plan, 99, &parameter), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_plan_parameter_info(plan, 0, &parameter), CLATTN_ERROR_INVALID_STRUCT);
    clattn_plan_release(&plan);
}

/* The same of attention; where it is few queries, of the other kernel too. */
static void every_allowed_tile_of_attention_is_safe(void **state)
{
    struct small_attention attention;
    clattn_plan *plan = NULL;
    size_t taken = 0;
    (void)state;
    small_attention_prepare(&attention);
    small_attention_buffers(&attention, clattn_context_opencl_context(context));
    clattn_plan_options options = {.size = sizeof options, .solver = "cpu", .tuning = ""};
    assert_status(context, clattn_attention_plan_create(context, &attention.desc, &options, &plan), CLATTN_SUCCESS);
    assert_true(clattn_plan_parameter_count(plan) > 0);
    for (size_t i = 0; i < clattn_plan_parameter_count(plan); i++) {
        clattn_plan_parameter parameter = {.size = sizeof parameter};
        assert_status(context, clattn_plan_parameter_info(plan, i, &parameter), CLATTN_SUCCESS);
        for (size_t j = 0; j < parameter.allowed_count && (j < 2 || !support_tiny()); j++) {
            char text[64];
            clattn_plan *other = NULL;
            sprintf(text, "%s=%d", parameter.name, (int)parameter.allowed[j]);
            options.tuning = text;
            clattn_status status = clattn_attention_plan_create(context, &attention.desc, &options, &other);
            if (status == CLATTN_ERROR_UNSUPPORTED)
                continue;
            assert_status(context, status, CLATTN_SUCCESS);
            assert_status(context, clattn_attention_enqueue(other, NULL, &attention.args, 0, NULL, NULL), CLATTN_SUCCESS);
            small_attention_check(&attention, clattn_context_queue(context));
            clattn_plan_release(&other);
            taken++;
        }
    }
    assert_true(taken >= clattn_plan_parameter_count(plan));
    clattn_plan_release(&plan);
    small_attention_release(&attention);
}

static void given_parameters_are_taken_or_refused(void **state)
{
    clattn_plan *plan = NULL;
    (void)state;
    assert_status(context, make(context, NULL, "tiles=1", &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, make(context, "cpu", "tiles", &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, make(context, "cpu", "tiles=1 tiles=2", &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, make(context, "cpu", "tiles=3", &plan), CLATTN_ERROR_UNSUPPORTED);
    assert_message_has(context, "tiles=3");
    assert_status(context, make(context, "generic", "tiles=1", &plan), CLATTN_ERROR_UNSUPPORTED);
    assert_null(plan);
}

static void malformed_text_is_refused_whole(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1"},
        {"clattn-wisdom 2\n", "another version"},
        {"clattn-wisdom 1", "line 1"},
        {"clattn-wisdom 1\r\n", "line 1"},
        {"wisdom\n", "line 1"},
        {HEADING "\n", "line 2"},
        {HEADING "d v k o c s 0 1", "the last line has no end"},
        {HEADING "d v k o c s 0 1\nd v k o c s 0\n", "line 3"},
        {HEADING "d v k o c s 8 1\n", "rank"},
        {HEADING "d v k o c s -1 1\n", "rank"},
        {HEADING "d v k o c s 00 1\n", "rank"},
        {HEADING "d v k o c s 99999999999999999999999 1\n", "rank"},
        {HEADING "d v k o c s 0 99999999999999999999\n", "nanoseconds"},
        {HEADING "d v k o c s 0 0x10\n", "nanoseconds"},
        {HEADING "d v k o c s 0 1 \n", "blank"},
        {HEADING "d v k o c s 0 1  a=1\n", "parameters"},
        {HEADING " d v k o c s 0 1\n", "too few parts"},
        {HEADING "d v k o c  s 0 1\n", "too few parts"},
        {HEADING "d v k o c\ts 0 1\n", "too few parts"},
        {HEADING "d v k o c s 0 1 a\n", "parameters"},
        {HEADING "d v k o c s 0 1 a=\n", "parameters"},
        {HEADING "d v k o c s 0 1 =1\n", "parameters"},
        {HEADING "d v k o c s 0 1 a=-1\n", "parameters"},
        {HEADING "d v k o c s 0 1 a=1000000000\n", "parameters"},
        {HEADING "d v k o c s 0 1 a=1 a=2\n", "parameters"},
        {HEADING "d v k o c s 0 1 a=1,b=2\n", "parameters"},
        {HEADING "d v k o c s 0 1 1a=1\n", "parameters"},
        {HEADING "d v k o c s 0 1 aaaaaaaaaaaaaaaaaaaaaaaa=1\n", "parameters"},
        {HEADING "d v k o c \xc3\xa9 0 1\n", "too few parts"},
        {HEADING "d v k o c sssssssssssssssssssssssssssssssss 0 1\n", "solver"},
    };
    (void)state;
    char *before = learnt(context);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clattn_status status = import(context, cases[i].text);
        if (status != CLATTN_ERROR_FORMAT)
            fail_msg("case %zu gave %d", i, (int)status);
        assert_message_has(context, cases[i].part);
    }
    /* A NUL, a line that is too long, too many parameters, too many records. */
    assert_status(context, clattn_wisdom_import(context, HEADING "d v k o c s 0 1\0\n", 33, NULL), CLATTN_ERROR_FORMAT);
    static char big[2 * 1024 * 1024];
    char *p = big + sprintf(big, HEADING);
    memset(p, 'd', 5000);
    strcpy(p + 5000, " v k o c s 0 1\n");
    assert_status(context, import(context, big), CLATTN_ERROR_FORMAT);
    p += sprintf(p, "d v k o c s 0 1");
    for (int i = 0; i < 49; i++)
        p += sprintf(p, " p%d=1", i);
    strcpy(p, "\n");
    assert_status(context, import(context, big), CLATTN_ERROR_FORMAT);
    p = big + sprintf(big, HEADING);
    for (int i = 0; i < 2049; i++)
        p += sprintf(p, "d v k o c%d s 0 1\n", i);
    assert_status(context, import(context, big), CLATTN_ERROR_FORMAT);
    assert_message_has(context, "too many records");
    assert_status(context, clattn_wisdom_import(context, NULL, 0, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    char *after = export_of(context);
    assert_string_equal(after, before); /* and none of it came in */
    free(before);
    free(after);
}

/* Cut anywhere, and with any byte changed: refused, or something that is ignored or taken, and never a failure. */
static void damaged_text_never_fails_a_plan(void **state)
{
    (void)state;
    char *text = learnt(context), *longer = exchanged(text, HEADING, HEADING "d v k o c s 0 1 a=1\n");
    size_t bytes = strlen(longer), step = support_tiny() ? 29 : 1;
    for (size_t length = 0; length < bytes; length += step) {
        clattn_status status = clattn_wisdom_import(context, longer, length, NULL);
        bool whole = length >= strlen(HEADING) && longer[length - 1] == '\n';
        if (status != (whole ? CLATTN_SUCCESS : CLATTN_ERROR_FORMAT))
            fail_msg("cut to %zu of %zu bytes: %d", length, bytes, (int)status);
    }
    size_t plans = 0;
    for (size_t at = 0; at < strlen(text); at += support_tiny() ? 41 : 3) {
        char *bad = strdup(text);
        assert_non_null(bad);
        bad[at] ^= (char)(1 << (at % 7));
        assert_status(context, clattn_wisdom_clear(context), CLATTN_SUCCESS);
        clattn_status status = clattn_wisdom_import(context, bad, strlen(text), NULL);
        assert_status_in(context, status, STATUS_BIT(CLATTN_SUCCESS) | STATUS_BIT(CLATTN_ERROR_FORMAT));
        /* The end of the line has what a solver reads. */
        if (status == CLATTN_SUCCESS && at > strlen(text) - 60) {
            clattn_plan *plan = plan_of(context, NULL, NULL);
            check_result(context, plan);
            clattn_plan_release(&plan);
            plans++;
        }
        free(bad);
    }
    assert_true(plans > 0 || support_tiny());
    free(text);
    free(longer);
}

/* CLBlast's parameters are the process's: set while nobody else uses CLBlast, and right whatever they are. */
static void clblast_takes_sets_of_parameters(void **state)
{
    static const char *const sets[] = {"xgemm=1", "xgemm=9 direct=2", "direct=1 pad=2 transpose=3 padtranspose=1 copy=4"};
    clattn_plan *plan = NULL, *other = NULL;
    (void)state;
    clattn_status status = make(context, "clblast", "", &plan);
    if (status == CLATTN_ERROR_INVALID_ARGUMENT || support_tiny()) { /* built without it, or a simulator */
        clattn_plan_release(&plan);
        skip();
    }
    assert_status(context, status, CLATTN_SUCCESS);
    assert_says(plan, " xgemm=0 direct=0 ", true);
    assert_status(context, make(context, "clblast", "xgemm=1", &other), CLATTN_ERROR_UNSUPPORTED);
    assert_message_has(context, "other plans use them");
    check_result(context, plan);
    clattn_plan_release(&plan);
    assert_status(context, make(context, "clblast", "xgemm=15", &other), CLATTN_ERROR_UNSUPPORTED);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        status = make(context, "clblast", sets[i], &plan);
        if (i == 2 && status == CLATTN_ERROR_OPENCL) {
            /* CLBlast 1.5.3 on rusticl takes no sets of its copying kernels (kDatabaseError): other solvers serve. */
            assert_message_has(context, "CLBlast failed with status -2046");
            plan = plan_of(context, NULL, NULL);
            check_result(context, plan);
            clattn_plan_release(&plan);
            return;
        }
        assert_status(context, status, CLATTN_SUCCESS);
        check_result(context, plan);
        other = plan_of(context, "clblast", sets[i]); /* the same once more: nothing to set */
        check_result(context, other);
        clattn_plan_release(&other);
        if (i == 0)
            assert_status(context, clattn_wisdom_learn(plan, 0, 1), CLATTN_SUCCESS);
        clattn_plan_release(&plan);
    }
    /* Wisdom lets CLBlast win on any device, but not where the application excludes it. */
    plan = plan_of(context, NULL, NULL);
    assert_string_equal(clattn_plan_solver(plan), "clblast");
    assert_says(plan, "geometry by wisdom: xgemm=1 ", true);
    check_result(context, plan);
    clattn_plan_release(&plan);
    char *text = export_of(context);
    clattn_context_params never = params;
    never.clblast = CLATTN_CLBLAST_NEVER;
    clattn_context *without = support_context_with(&never);
    assert_status(without, import(without, text), CLATTN_SUCCESS);
    plan = plan_of(without, NULL, NULL);
    assert_says(plan, "that is ignored: the context's params exclude it", true);
    assert_true(strcmp(clattn_plan_solver(plan), "clblast") != 0);
    clattn_plan_release(&plan);
    support_release(&without);
    free(text);
}

/* ---- the file ---- */

static void path_of(char path[SUPPORT_PATH + 8])
{
    snprintf(path, SUPPORT_PATH + 8, "%s/wisdom", folder);
}

/* How a new context's plan came to be. */
static bool new_context_is_wise(const clattn_context_params *with)
{
    clattn_context *other = support_context_with(with);
    clattn_plan *plan = plan_of(other, NULL, NULL);
    bool wise = says(plan, "geometry by wisdom:");
    check_result(other, plan);
    clattn_plan_release(&plan);
    support_release(&other);
    return wise;
}

static void put(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void the_file_serves_later_contexts(void **state)
{
    char path[SUPPORT_PATH + 8];
    (void)state;
    path_of(path);
    char *text = learnt(context);
    assert_false(new_context_is_wise(&params));
    assert_status(context, clattn_wisdom_save(context, CLATTN_WISDOM_MERGE), CLATTN_SUCCESS);
    assert_true(new_context_is_wise(&params));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);

    /* Records of others stay, unless they are to go. */
    char *more = exchanged(text, HEADING, HEADING "d v k o c s 0 1 a=1\n"), *all;
    put(path, more, 0600);
    assert_status(context, clattn_wisdom_save(context, CLATTN_WISDOM_MERGE), CLATTN_SUCCESS);
    clattn_context *other = support_context_with(&params);
    all = export_of(other);
    assert_non_null(strstr(all, "d v k o c s 0 1 a=1\n"));
    assert_non_null(strstr(all, " cpu 0 1234567 "));
    free(all);
    support_release(&other);
    assert_status(context, clattn_wisdom_save(context, CLATTN_WISDOM_REPLACE), CLATTN_SUCCESS);
    other = support_context_with(&params);
    all = export_of(other);
    assert_string_equal(all, text);
    free(all);
    support_release(&other);

    /* Damaged, writable by others, a link: none. */
    put(path, "clattn-wisdom 1\nd v\n", 0600);
    assert_false(new_context_is_wise(&params));
    put(path, text, 0622);
    assert_false(new_context_is_wise(&params));
    put(path, text, 0600);
    assert_true(new_context_is_wise(&params));
    char target[SUPPORT_PATH + 16];
    snprintf(target, sizeof target, "%s/elsewhere", folder);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_false(new_context_is_wise(&params));
    assert_int_equal(remove(path), 0);

    clattn_context_params off = params;
    off.cache_mode = CLATTN_CACHE_OFF;
    assert_false(new_context_is_wise(&off));
    other = support_context_with(&off);
    assert_status(other, clattn_wisdom_save(other, CLATTN_WISDOM_MERGE), CLATTN_ERROR_UNSUPPORTED);
    /* By hand it goes all the same. */
    assert_status(other, import(other, text), CLATTN_SUCCESS);
    clattn_plan *plan = plan_of(other, NULL, NULL);
    assert_says(plan, "geometry by wisdom:", true);
    clattn_plan_release(&plan);
    support_release(&other);
    free(more);
    free(text);
}

static void a_round_trip_is_exact(void **state)
{
    size_t records = 0, bytes = 0;
    char few[4];
    (void)state;
    char *text = learnt(context);
    assert_status(context, clattn_wisdom_clear(context), CLATTN_SUCCESS);
    assert_status(context, clattn_wisdom_import(context, text, strlen(text), &records), CLATTN_SUCCESS);
    assert_int_equal(records, 1);
    char *again = export_of(context);
    assert_string_equal(again, text);
    assert_status(context, clattn_wisdom_export(context, few, sizeof few, &bytes), CLATTN_ERROR_BUFFER_TOO_SMALL);
    assert_int_equal(bytes, strlen(text));
    assert_status(context, clattn_wisdom_export(context, few, sizeof few, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_wisdom_export(NULL, NULL, 0, &bytes), CLATTN_ERROR_INVALID_ARGUMENT);
    free(text);
    free(again);
}

/* ---- threads ---- */

static const char *shared_text;
static atomic_int rounds_left;

static int change_wisdom(void *user)
{
    (void)user;
    while (atomic_fetch_sub(&rounds_left, 1) > 0) {
        size_t bytes;
        clattn_wisdom_import(context, shared_text, strlen(shared_text), NULL);
        clattn_wisdom_export(context, NULL, 0, &bytes);
        clattn_wisdom_clear(context);
    }
    return 0;
}

static int make_plans(void *user)
{
    int *failures = user;
    for (int i = 0; i < (support_tiny() ? 4 : 40); i++) {
        clattn_plan *plan = NULL;
        *failures += make(context, NULL, NULL, &plan) != CLATTN_SUCCESS;
        /* One moment's wisdom: it is named if and only if it was followed. */
        *failures += says(plan, "wisdom has ") != says(plan, "geometry by wisdom:");
        *failures += clattn_matmul_prewarm(context, &desc) != CLATTN_SUCCESS;
        clattn_plan_release(&plan);
    }
    return 0;
}

static void plans_are_made_while_wisdom_changes(void **state)
{
    thrd_t changing, making[2];
    int failures[2] = {0, 0};
    (void)state;
    char *text = learnt(context);
    shared_text = text;
    atomic_store(&rounds_left, 1 << 30);
    assert_int_equal(thrd_create(&changing, change_wisdom, NULL), thrd_success);
    for (int i = 0; i < 2; i++)
        assert_int_equal(thrd_create(&making[i], make_plans, &failures[i]), thrd_success);
    for (int i = 0; i < 2; i++)
        thrd_join(making[i], NULL);
    atomic_store(&rounds_left, 0);
    thrd_join(changing, NULL);
    assert_int_equal(failures[0] + failures[1], 0);
    free(text);
}

int main(void)
{
#define TUNING_TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TUNING_TEST(wisdom_changes_the_geometry),
        TUNING_TEST(wisdom_chooses_among_solvers),
        TUNING_TEST(one_call_forms_follow_new_wisdom),
        TUNING_TEST(other_keys_are_ignored),
        TUNING_TEST(hostile_values_are_ignored),
        TUNING_TEST(every_allowed_value_is_safe),
        TUNING_TEST(every_allowed_tile_of_attention_is_safe),
        TUNING_TEST(given_parameters_are_taken_or_refused),
        TUNING_TEST(malformed_text_is_refused_whole),
        TUNING_TEST(damaged_text_never_fails_a_plan),
        TUNING_TEST(clblast_takes_sets_of_parameters),
        TUNING_TEST(the_file_serves_later_contexts),
        TUNING_TEST(a_round_trip_is_exact),
        TUNING_TEST(plans_are_made_while_wisdom_changes),
    };
    return SUPPORT_RUN("tuning", tests);
}
