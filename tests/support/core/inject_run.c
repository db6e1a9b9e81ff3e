#include <stdio.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/inject.h"
#include "support/core/inject_run.h"

static const unsigned clean_statuses = STATUS_BIT(CLATTN_ERROR_OPENCL) | STATUS_BIT(CLATTN_ERROR_OUT_OF_MEMORY) |
                                       STATUS_BIT(CLATTN_ERROR_BUILD) | STATUS_BIT(CLATTN_ERROR_NO_OPENCL) |
                                       STATUS_BIT(CLATTN_ERROR_NO_DEVICE) | STATUS_BIT(CLATTN_ERROR_UNSUPPORTED) |
                                       STATUS_BIT(CLATTN_ERROR_WRONG_CONTEXT);

void inject_check_message(const clattn_context *context, clattn_status status)
{
    char message[2048] = "";
    clattn_context_message(context, message, sizeof message);
    if (!(clean_statuses & STATUS_BIT(status)))
        fail_msg("%s failed and gave %d (%s): %s", inject_failed(), (int)status, clattn_status_string(status), message);
    if (strlen(message) < 8)
        fail_msg("%s failed without a message", inject_failed());
    /* A query is named by what it asks for, every other call by itself. */
    bool named = strstr(message, inject_failed()) || strstr(message, "querying CL_");
    if (status == CLATTN_ERROR_OPENCL && !(named && strstr(message, INJECT_CODE_NAME)))
        fail_msg("%s failed, but the message is: %s", inject_failed(), message);
}

/* Runs the scenario once with the n-th call failing. */
static void attempt(const inject_scenario *scenario, unsigned long n)
{
    clattn_context *context = NULL;
    enum inject_kind kind;
    inject_start(n, INJECT_CODE);
    clattn_status status = clattn_context_create(&scenario->params, &context);
    if (status != CLATTN_SUCCESS) {
        assert_null(context);
        assert_non_null(inject_failed());
        inject_check_message(NULL, status);
    } else {
        status = scenario->use(context);
        if (status != CLATTN_SUCCESS) {
            assert_non_null(inject_failed());
            inject_check_message(context, status);
            /* The context works again after the failure. */
            inject_start(0, 0);
            assert_status(context, scenario->use(context), CLATTN_SUCCESS);
        }
    }
    clattn_context_release(&context);
    if (!inject_balanced(&kind))
        fail_msg("call %lu failed: %ld %s reference(s) did not come back", n, inject_live(kind),
                 inject_kind_name(kind));
}

void inject_run(const inject_scenario *scenario)
{
    enum inject_kind kind;
    clattn_context *context = NULL;
    /* The first round fills caches, the second counts calls. */
    for (int round = 0; round < 2; round++) {
        inject_start(0, 0);
        assert_status(NULL, clattn_context_create(&scenario->params, &context), CLATTN_SUCCESS);
        assert_status(context, scenario->use(context), CLATTN_SUCCESS);
        clattn_context_release(&context);
        if (!inject_balanced(&kind))
            fail_msg("without any failure: %ld %s reference(s) did not come back", inject_live(kind),
                     inject_kind_name(kind));
    }
    const unsigned long calls = inject_calls();
    unsigned long last[64];
    unsigned functions = 0;
    while (functions < 64 && (last[functions] = inject_last_call(functions)) != 0)
        functions++;
    assert_true(calls > 20);
    const unsigned long apart = (calls + scenario->attempts) / (scenario->attempts ? scenario->attempts : 1);
    const unsigned long stride = scenario->attempts ? apart : scenario->stride;
    for (unsigned long n = 1; n <= calls; n += stride)
        attempt(scenario, n);
    for (unsigned i = 0; i < functions && stride > 1; i++)
        attempt(scenario, last[i]);
    attempt(scenario, 0);
    print_message("# %lu calls, every %lu made to fail, and the last of each of %u functions\n", calls, stride,
                  functions);
}

inject_scenario inject_scenario_of(clattn_status (*use)(clattn_context *), int32_t cache_mode)
{
    inject_scenario scenario = {.use = use, .stride = is_tiny() ? 17 : 1};
    clattn_context_params_init(&scenario.params);
    scenario.params.get_proc = inject_get_proc;
    scenario.params.cache_mode = cache_mode;
    scenario.params.clblast = CLATTN_CLBLAST_MODE_NEVER; /* CLBlast calls OpenCL without the table */
    return scenario;
}
