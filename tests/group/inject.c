/* Calls of OpenCL and of the system, and exchanges, fail while a rank makes its share of an attention and runs it: the answer is a status
 * that names the call, every reference comes back, every exchange that was started is waited for, and the context works again.
 *
 * Holds: group.h, "after a failure". */
#include <math.h>

#include "support/core/inject_run.h"
#include "support/group/share.h"
#include "support/harness.h"
#include "support/suite.h"

/* ---- calls ---- */

static const share_way *tried; /* by `use` */
static float expected[SHARE_FLOATS];
static bool is_known; /* what is expected: the first success has given it */

static clattn_status use(clattn_context *context)
{
    static float results[SHARE_FLOATS];
    share_other other = {0};
    const clattn_status status = share_run(context, tried, &other, is_known ? results : expected);
    for (int i = 0; i < SHARE_FLOATS && status == CLATTN_SUCCESS && is_known;
         i++) /* another solver may have had to do */
        if (!(fabsf(results[i] - expected[i]) <= 1e-5F))
            fail_msg("%s failed, the status was success, and %.9g should be %.9g",
                     inject_failed() ? inject_failed() : "nothing", (double)results[i], (double)expected[i]);
    is_known |= status == CLATTN_SUCCESS;
    return status;
}

static void calls_fail(const void *which, const char *unused)
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

static void exchanges_fail(const void *which, const char *unused)
{
    static float results[SHARE_FLOATS];
    share_other all = {0};
    const inject_scenario scenario = inject_scenario_of(NULL, CLATTN_CACHE_MODE_OFF);
    clattn_context *context = NULL;
    (void)unused;
    inject_begin_failure((inject_failure){.layer = INJECT_OPENCL});
    assert_int_equal(clattn_context_create(&scenario.params, &context), CLATTN_SUCCESS);
    assert_status(context, share_run(context, which, &all, results), CLATTN_SUCCESS);
    assert_true(all.started >= 3);
    for (int i = 1; i <= all.started; i++)
        for (int wait_fails = 0; wait_fails < 2; wait_fails++) {
            share_other other = {.fails_at = i, .wait_fails = wait_fails};
            assert_int_equal(share_run(context, which, &other, results), CLATTN_ERROR_GROUP);
        }
    clattn_context_release(&context);
    inject_check_balance((inject_failure){.layer = INJECT_OPENCL});
}

static const share_way ways[] = {
    {CLATTN_GROUP_MODE_RING, false, false},   {CLATTN_GROUP_MODE_RING, true, false},
    {CLATTN_GROUP_MODE_GATHER, false, false}, {CLATTN_GROUP_MODE_GATHER, true, false},
    {CLATTN_GROUP_MODE_HEADS, false, false},  {CLATTN_GROUP_MODE_HEADS, true, false},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(exchanges_fail, &ways[i], "", "group: exchanges fail, mode %d, %s", (int)ways[i].mode,
                       ways[i].backward ? "backward" : "forward");
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(calls_fail, &ways[i], "", "group: calls fail, mode %d, %s", (int)ways[i].mode,
                       ways[i].backward ? "backward" : "forward");
    return suite_run("group_inject", argc, argv);
}
