/* Parameters from the caller and from wisdom change the geometry of plans, or the solver, and nothing else.
 *
 * Holds: of include/clattn/tuning.h, the parameters and what wisdom does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/plan/tuned_plan.h"
#include "support/attention/small.h"

static void wisdom_changes_the_geometry(void **state)
{
    (void)state;
    clattn_plan *plan = tuned_plan(tuned.context, NULL, NULL);
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
    plan = tuned_plan(tuned.context, "cpu", NULL); /* which is not every device's choice without wisdom */
    assert_says(plan, "wisdom", false);
    assert_says(plan, "geometry by the cost model:", true);
    assert_says(plan, " tiles=1 ", false);
    clattn_plan_release(&plan);
    free(tuned_learnt(tuned.context));
    plan = tuned_plan(tuned.context, NULL, NULL);
    assert_string_equal(clattn_plan_solver(plan), "cpu");
    assert_says(plan, "wisdom has cpu, rank 0, 1.23457 ms, for ", true);
    assert_says(plan, "matmul b1-m32-n32-k16-F32.r-F32.r-F32.r", true);
    assert_says(plan, "geometry by wisdom:", true);
    assert_says(plan, " tiles=1", true);
    tuned_check(tuned.context, plan);
    clattn_plan_release(&plan);
    /* The first problem has the same shape bucket, the second another. */
    tuned.desc.a.extent[0] = tuned.desc.c.extent[0] = TUNED_M + 5;
    plan = tuned_plan(tuned.context, NULL, NULL);
    assert_says(plan, "geometry by wisdom:", true);
    clattn_plan_release(&plan);
    tuned.desc.a.extent[0] = tuned.desc.c.extent[0] = 2 * TUNED_M;
    plan = tuned_plan(tuned.context, NULL, NULL);
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
    tuned.desc.a.extent[0] = tuned.desc.c.extent[0] = TUNED_M;
    /* Both "" and forgetting give the cost model's own choice. */
    plan = tuned_plan(tuned.context, "cpu", "");
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
    assert_status(tuned.context, clattn_wisdom_clear(tuned.context), CLATTN_SUCCESS);
    plan = tuned_plan(tuned.context, NULL, NULL);
    assert_says(plan, "wisdom", false);
    clattn_plan_release(&plan);
}

static void wisdom_chooses_among_solvers(void **state)
{
    (void)state;
    clattn_plan *generic = tuned_plan(tuned.context, "generic", NULL),
                *cpu = tuned_plan(tuned.context, "cpu", "tiles=1");
    assert_status(tuned.context, clattn_wisdom_learn(generic, 0, 5), CLATTN_SUCCESS);
    assert_status(tuned.context, clattn_wisdom_learn(cpu, 1, 7), CLATTN_SUCCESS);
    clattn_plan *plan = tuned_plan(tuned.context, NULL, NULL);
    assert_string_equal(clattn_plan_solver(plan), "generic");
    assert_says(plan, "cpu: not asked, wisdom has another", true);
    tuned_check(tuned.context, plan);
    clattn_plan_release(&plan);
    /* A solver that is asked for by name gets its own record. */
    plan = tuned_plan(tuned.context, "cpu", NULL);
    assert_string_equal(clattn_plan_solver(plan), "cpu");
    assert_says(plan, "geometry by wisdom:", true);
    clattn_plan_release(&plan);
    /* A record of rank 0 drops the others. */
    assert_status(tuned.context, clattn_wisdom_learn(cpu, 0, 3), CLATTN_SUCCESS);
    char *text = tuned_export(tuned.context);
    assert_null(strstr(text, "generic"));
    free(text);
    assert_status(tuned.context, clattn_wisdom_learn(cpu, 8, 3), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_plan_release(&generic);
    clattn_plan_release(&cpu);
}

static void one_call_forms_follow_new_wisdom(void **state)
{
    (void)state;
    assert_status(tuned.context, clattn_matmul_prewarm(tuned.context, &tuned.desc), CLATTN_SUCCESS);
    free(tuned_learnt(tuned.context));
    const clattn_program_statistics before = programs_of(tuned.context);
    assert_status(tuned.context, clattn_matmul_prewarm(tuned.context, &tuned.desc), CLATTN_SUCCESS);
    assert_int_equal(before.built,
                     programs_of(tuned.context).built); /* the plan that was measured has built the program */
}

/* Records of other devices, drivers, kernels, operators and shape buckets are kept and ignored. */
static void other_keys_are_ignored(void **state)
{
    (void)state;
    char *text = tuned_learnt(tuned.context), *digest = strstr(text, " matmul ") - 1;
    char parts[4][64] = {"matmul b1-m32-n32-k16", "matmul b1-", "clattn-wisdom 1\n", "-F32.r "};
    const char *others[4] = {"matmul b1-m64-n32-k16", "softmax b1-", "clattn-wisdom 1\nX", "-F32.s "};
    for (int i = 0; i < 5; i++) {
        char *other = i < 4 ? tuned_exchanged(text, parts[i], others[i]) : strdup(text);
        assert_non_null(other);
        if (i == 4)
            other[digest - text] = *digest == '0' ? '1' : '0';
        assert_status(tuned.context, clattn_wisdom_clear(tuned.context), CLATTN_SUCCESS);
        assert_status(tuned.context, tuned_import(tuned.context, other), CLATTN_SUCCESS);
        clattn_plan *plan = tuned_plan(tuned.context, NULL, NULL);
        assert_says(plan, "wisdom", false);
        tuned_check(tuned.context, plan);
        clattn_plan_release(&plan);
        char *kept = tuned_export(tuned.context);
        assert_string_equal(kept, other);
        free(kept);
        free(other);
    }
    free(text);
}

/* Well-formed values that the solver does not take are ignored, with a line in explain. */
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
    char *text = tuned_learnt(tuned.context);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *other = tuned_exchanged(text, cases[i].old, cases[i].new);
        assert_status(tuned.context, clattn_wisdom_clear(tuned.context), CLATTN_SUCCESS);
        assert_status(tuned.context, tuned_import(tuned.context, other), CLATTN_SUCCESS);
        clattn_plan *plan = tuned_plan(tuned.context, NULL, NULL);
        assert_says(plan, cases[i].line, true);
        tuned_check(tuned.context, plan);
        clattn_plan_release(&plan);
        free(other);
    }
    free(text);
}

/* Every allowed value of each parameter of the operator's plan by the cpu solver, with the others as planned, gives
 * results that `check` finds right or is refused as UNSUPPORTED. */
static void try_values(const struct operator_calls *op, const void *desc, void (*check)(clattn_plan *plan))
{
    clattn_plan_options options = {.size = sizeof options, .solver = "cpu", .tuning = ""};
    clattn_plan *plan = NULL;
    size_t taken = 0;
    assert_status(tuned.context, op->plan_create(tuned.context, desc, &options, &plan), CLATTN_SUCCESS);
    assert_true(clattn_plan_parameter_count(plan) > 0);
    for (size_t i = 0; i < clattn_plan_parameter_count(plan); i++) {
        clattn_plan_parameter parameter = {.size = sizeof parameter};
        assert_status(tuned.context, clattn_plan_parameter_info(plan, i, &parameter), CLATTN_SUCCESS);
        for (size_t j = 0; j < parameter.allowed_count && (j < 2 || !is_tiny()); j++) {
            char shown[80];
            clattn_plan *other = NULL;
            sprintf(shown, " %s=%d", parameter.name, (int)parameter.allowed[j]);
            options.tuning = shown + 1;
            clattn_status status = op->plan_create(tuned.context, desc, &options, &other);
            if (status == CLATTN_ERROR_UNSUPPORTED)
                continue;
            assert_status(tuned.context, status, CLATTN_SUCCESS);
            assert_says(other, shown, true);
            check(other);
            clattn_plan_release(&other);
            taken++;
        }
    }
    assert_true(taken >= clattn_plan_parameter_count(plan));
    clattn_plan_parameter parameter = {.size = 3};
    assert_status(tuned.context, clattn_plan_parameter_info(plan, 99, &parameter), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(tuned.context, clattn_plan_parameter_info(plan, 0, &parameter), CLATTN_ERROR_INVALID_STRUCT);
    clattn_plan_release(&plan);
}

static void check_product(clattn_plan *plan)
{
    tuned_check(tuned.context, plan);
}

static void every_allowed_value_is_safe(void **state)
{
    (void)state;
    try_values(&matmul_operator, &tuned.desc, check_product);
}

static struct small_attention attention;

static void check_attention(clattn_plan *plan)
{
    assert_status(tuned.context, clattn_attention_enqueue(plan, NULL, &attention.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&attention, clattn_context_queue(tuned.context));
}

/* Every allowed tile of attention is safe too, and with few queries those of the decoding kernel. */
static void every_allowed_tile_of_attention_is_safe(void **state)
{
    (void)state;
    small_attention_open(&attention, clattn_context_opencl_context(tuned.context));
    try_values(&attention_operator, &attention.desc, check_attention);
    small_attention_release(&attention);
}

static void given_parameters_are_taken_or_refused(void **state)
{
    clattn_plan *plan = NULL;
    (void)state;
    assert_status(tuned.context, tuned_make(tuned.context, NULL, "tiles=1", &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(tuned.context, tuned_make(tuned.context, "cpu", "tiles", &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(tuned.context, tuned_make(tuned.context, "cpu", "tiles=1 tiles=2", &plan),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(tuned.context, tuned_make(tuned.context, "cpu", "tiles=3", &plan), CLATTN_ERROR_UNSUPPORTED);
    assert_message_has(tuned.context, "tiles=3");
    assert_status(tuned.context, tuned_make(tuned.context, "generic", "tiles=1", &plan), CLATTN_ERROR_UNSUPPORTED);
    assert_null(plan);
}

/* CLBlast may be chosen by wisdom on any device unless the application excludes it. */
static void clblast_wins_by_wisdom(void **state)
{
    clattn_plan *plan = NULL;
    (void)state;
    if (is_tiny()) /* a simulator reports that CLBlast reads uninitialized memory while a plan is made */
        skip();
    clattn_status status = tuned_make(tuned.context, "clblast", "", &plan);
    if (status == CLATTN_ERROR_INVALID_ARGUMENT) /* the library was built without CLBlast */
        skip();
    assert_status(tuned.context, status, CLATTN_SUCCESS);
    tuned_check(tuned.context, plan);
    assert_status(tuned.context, clattn_wisdom_learn(plan, 0, 1), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    plan = tuned_plan(tuned.context, NULL, NULL);
    assert_string_equal(clattn_plan_solver(plan), "clblast");
    tuned_check(tuned.context, plan);
    clattn_plan_release(&plan);
    char *text = tuned_export(tuned.context);
    clattn_context_params never = tuned.params;
    never.clblast = CLATTN_CLBLAST_MODE_NEVER;
    clattn_context *without = new_context_with(&never);
    assert_status(without, tuned_import(without, text), CLATTN_SUCCESS);
    plan = tuned_plan(without, NULL, NULL);
    assert_says(plan, "that is ignored: the context's params exclude it", true);
    assert_true(strcmp(clattn_plan_solver(plan), "clblast") != 0);
    clattn_plan_release(&plan);
    release_context(&without);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TUNED_TEST(wisdom_changes_the_geometry),
        TUNED_TEST(wisdom_chooses_among_solvers),
        TUNED_TEST(one_call_forms_follow_new_wisdom),
        TUNED_TEST(other_keys_are_ignored),
        TUNED_TEST(hostile_values_are_ignored),
        TUNED_TEST(every_allowed_value_is_safe),
        TUNED_TEST(every_allowed_tile_of_attention_is_safe),
        TUNED_TEST(given_parameters_are_taken_or_refused),
        TUNED_TEST(clblast_wins_by_wisdom),
    };
    return RUN_TESTS("tuning", tests, argc, argv);
}
