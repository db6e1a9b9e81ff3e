/* Attention of bfloat16 pairs (the solvers cpu-bf16 and cpu-amx) uses the processor's instructions if it has them, else
 * the OpenCL C that emulates them, which only tests ask for.
 *
 * Holds: the accuracy rule of 16-bit storage (P is rounded), NaN and Inf, what cannot leak, what is refused. */
#include <string.h>

#include "support/attention/engine_cases.h"

#define PAIRS .type = FOUR(CLATTN_DTYPE_BF16)

static const attention_case one_query = {"one query", ALL, .dim = {2, 2, 1, 1, 9, 8, 8}, PAIRS};

/* The planner chooses pairs exactly if the processor has the instructions and there are more than a few queries. */
static const attention_case forty_keys = {"forty keys", ALL, .dim = {2, 2, 1, 5, 40, 8, 8}, PAIRS};

static void chosen_where_it_pays(void **state)
{
    (void)state;
    for (int few = 0; few < 2; few++) {
        test_job job = {0};
        clattn_attention_desc desc = attention_prepare(&job, few ? &one_query : &forty_keys, 1);
        job.plan = operator_plan(&attention_operator, &desc, NULL);
        device_check_pairs(job.plan, !few);
        job_release(&job);
    }
}

/* Emulated AMX is only for callers who name it. */
static void imitated_amx_must_be_asked_for(void **state)
{
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, &forty_keys, 1);
    const char *here = device_pairs_solver();
    bool slow = emulates_amx_too_slowly();

    (void)state;
    job.plan = operator_plan(&attention_operator, &desc, NULL);
    assert_non_null(strstr(clattn_plan_explain(job.plan), slow ? "cpu-amx: refused, this device is too slow"
                                                          : here && !strcmp(here, "cpu-amx")
                                                              ? "cpu-amx: chosen"
                                                              : "cpu-amx: refused, no AMX for bfloat16"));
    clattn_plan_release(&job.plan);
    if (slow) {
        operator_refuses_plan(&attention_operator, &desc, "cpu-amx", CLATTN_ERROR_UNSUPPORTED);
    } else {
        job.plan = operator_plan(&attention_operator, &desc, "cpu-amx");
    }
    job_release(&job);
}

int main(int argc, char **argv)
{
    attention_add_by("cpu-bf16", attention_engine_cases, attention_engine_case_count);
    if (!emulates_amx_too_slowly()) {
        attention_add_by("cpu-amx", attention_engine_cases, attention_engine_case_count);
    }
    suite_add(chosen_where_it_pays, "attention cpu-bf16: chosen where it pays");
    suite_add(imitated_amx_must_be_asked_for, "attention cpu-amx: must be asked for where it is imitated");
    return suite_run("attention_bf16", argc, argv);
}
