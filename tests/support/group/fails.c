#include "support/group/fails.h"

#include <math.h>

#include "support/core/inject_run.h"
#include "support/harness.h"
#include "support/suite.h"

/* ---- calls ---- */

static const fails_case *tried; /* by `use` */
static float expected[OTHER_FLOATS];
static bool is_known; /* what is expected: the first success has given it */

static clattn_status use(clattn_context *context)
{
    static float results[OTHER_FLOATS];
    other_rank other = {0};
    const clattn_status status = tried->run(context, tried->way, &other, is_known ? results : expected);
    for (int i = 0; i < OTHER_FLOATS && status == CLATTN_SUCCESS && is_known;
         i++) /* another solver may have had to do */
        if (!(fabsf(results[i] - expected[i]) <= 1e-5F))
            fail_msg("%s failed, the status was success, and %.9g should be %.9g",
                     inject_failed() ? inject_failed() : "nothing", (double)results[i], (double)expected[i]);
    is_known |= status == CLATTN_SUCCESS;
    return status;
}

void fails_of_calls(const void *which, const char *unused)
{
    inject_scenario scenario = inject_scenario_of(use, CLATTN_CACHE_MODE_ON);
    char folder[FOLDER_SIZE];
    (void)unused;
    tried = which;
    is_known = false;
    new_folder(folder);
    scenario.params.cache_dir = folder;
    scenario.attempts = (unsigned)by_level(5, 30, 200, 1000);
    inject_run(&scenario);
}

/* ---- exchanges ---- */

void fails_of_exchanges(const void *which, const char *unused)
{
    static float results[OTHER_FLOATS];
    const fails_case *calls = which;
    other_rank all = {0};
    const inject_scenario scenario = inject_scenario_of(NULL, CLATTN_CACHE_MODE_OFF);
    clattn_context *context = NULL;
    (void)unused;
    inject_begin_failure((inject_failure){.layer = INJECT_OPENCL});
    assert_int_equal(clattn_context_create(&scenario.params, &context), CLATTN_SUCCESS);
    assert_status(context, calls->run(context, calls->way, &all, results), CLATTN_SUCCESS);
    assert_true(all.started >= 3);
    for (int i = 1; i <= all.started; i++)
        for (int wait_fails = 0; wait_fails < 2; wait_fails++) {
            other_rank other = {.fails_at = i, .wait_fails = wait_fails};
            assert_int_equal(calls->run(context, calls->way, &other, results), CLATTN_ERROR_GROUP);
        }
    clattn_context_release(&context);
    inject_check_balance((inject_failure){.layer = INJECT_OPENCL});
}
