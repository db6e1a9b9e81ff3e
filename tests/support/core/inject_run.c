#include <stdio.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/inject_run.h"

/* What each layer's failure may give.  The library does without the files that it reads and writes by itself, which are
 * caches, so of the system's failures only a lack of memory is told. */
static const unsigned clean_statuses[] = {
    [INJECT_OPENCL] = STATUS_BIT(CLATTN_ERROR_OPENCL) | STATUS_BIT(CLATTN_ERROR_OUT_OF_MEMORY) |
                      STATUS_BIT(CLATTN_ERROR_BUILD) | STATUS_BIT(CLATTN_ERROR_NO_OPENCL) |
                      STATUS_BIT(CLATTN_ERROR_NO_DEVICE) | STATUS_BIT(CLATTN_ERROR_UNSUPPORTED) |
                      STATUS_BIT(CLATTN_ERROR_WRONG_CONTEXT),
    [INJECT_SYSTEM] = STATUS_BIT(CLATTN_ERROR_OUT_OF_MEMORY),
};

/* The call that failed, for messages. */
static const char *what_failed(void)
{
    static char text[400];
    char place[300] = "";
    snprintf(text, sizeof text, "%s %s", inject_failed() ? inject_failed() : "nothing",
             inject_place(inject_failed_at(), place, sizeof place));
    return text;
}

/* The message that a thread and a context have before anything fails. */
static const char stale[] = " is NULL";

void inject_refuse(clattn_context *context)
{
    char message[256] = "";
    inject_stop();
    assert_true((context ? clattn_wisdom_import(context, NULL, 0, NULL) : clattn_context_create(NULL, NULL)) ==
                CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_context_message(context, message, sizeof message);
    assert_non_null(strstr(message, stale));
}

void inject_check_message(enum inject_layer layer, const clattn_context *context, clattn_status status)
{
    char message[2048] = "";
    clattn_context_message(context, message, sizeof message);
    inject_check_text(layer, message, status);
}

void inject_check_text(enum inject_layer layer, const char *message, clattn_status status)
{
    if (!(clean_statuses[layer] & STATUS_BIT(status)))
        fail_msg("%s failed and gave %d (%s): %s", what_failed(), (int)status, clattn_status_string(status), message);
    if (strlen(message) < 8 || strstr(message, stale))
        fail_msg("%s failed without a message", what_failed());
    /* A query is named by what it asks for, every other call by itself. */
    bool named = strstr(message, inject_failed()) || strstr(message, "querying CL_");
    if (status == CLATTN_ERROR_OPENCL && !(named && strstr(message, INJECT_CODE_NAME)))
        fail_msg("%s failed, but the message is: %s", inject_failed(), message);
}

void inject_begin_failure(inject_failure how)
{
    if (how.layer == INJECT_OPENCL)
        inject_start(how.number, INJECT_CODE);
    else
        inject_begin(how.layer, how.number, how.onward);
}

void inject_check_balance(inject_failure how)
{
    enum inject_kind kind;
    if (inject_balanced(&kind))
        return;
    inject_print_held(stderr);
    fail_msg("call %lu%s of %s (%s): %ld %s reference(s) did not come back", how.number,
             how.onward ? " and all after it" : "", how.layer == INJECT_OPENCL ? "OpenCL" : "the system", what_failed(),
             inject_live(kind), inject_kind_name(kind));
}

/* ---- which calls are made to fail ---- */

enum { SITES_MOST = 1024 };
static struct inject_site sites[SITES_MOST]; /* of the attempt without a failure */
static unsigned site_count;

/* Makes the attempt without a failure; returns the number of its calls. */
static unsigned long count_calls(inject_failure how, void (*attempt)(void *, inject_failure), void *what)
{
    how.number = 0;
    attempt(what, how);
    /* Whoever lets the system's calls fail is linked with what counts them. */
    assert_true(how.layer == INJECT_OPENCL || inject_made(INJECT_HOST) > 0);
    site_count = 0;
    while (site_count < SITES_MOST && (sites[site_count] = inject_site(site_count)).name)
        site_count++;
    assert_true(site_count < SITES_MOST);
    return inject_calls();
}

static void attempt_one(inject_failure how, unsigned long number, void (*attempt)(void *, inject_failure), void *what)
{
    how.number = number;
    attempt(what, how);
    inject_stop(); /* an attempt may make fewer calls than the one before */
}

void inject_each(const char *name, inject_failure how, unsigned stride, void (*attempt)(void *, inject_failure),
                 void *what)
{
    const unsigned long calls = count_calls(how, attempt, what);
    for (unsigned long n = 1; n <= calls; n += stride)
        attempt_one(how, n, attempt, what);
    for (unsigned i = 0; i < site_count && stride > 1; i++)
        attempt_one(how, sites[i].last, attempt, what);
    attempt_one(how, 0, attempt, what);
    print_message("# %s: %lu calls of %s at %u places, every %u made to fail%s\n", name, calls,
                  how.layer == INJECT_OPENCL ? "OpenCL" : "the system", site_count, stride,
                  how.onward ? " with all after it" : "");
}

/* Whether a place has been made to fail before, which it counts as from now on. */
static bool known(const struct inject_site *site)
{
    static const void *seen[SITES_MOST];
    static unsigned count;
    for (unsigned i = 0; i < count; i++)
        if (seen[i] == site->caller)
            return true;
    assert_true(count < SITES_MOST);
    seen[count++] = site->caller;
    return false;
}

void inject_each_system(const char *name, void (*attempt)(void *, inject_failure), void *what)
{
    inject_failure once = {.layer = INJECT_SYSTEM}, onward = {.layer = INJECT_SYSTEM, .onward = true};
    unsigned tried = 0, fresh = 0;
    if (level() == LEVEL_FULL) {
        inject_each(name, once, 1, attempt, what);
        inject_each(name, onward, 1, attempt, what);
        return;
    }
    const unsigned long calls = count_calls(once, attempt, what);
    for (unsigned i = 0; i < site_count; i++) {
        if (known(&sites[i]))
            continue;
        fresh++;
        for (unsigned way = 0; way < 2; way++)
            if (level() > LEVEL_QUICK || fresh % 2 == way) {
                attempt_one(way ? onward : once, way ? sites[i].last : sites[i].first, attempt, what);
                tried++;
            }
    }
    const unsigned long apart = calls / by_level(1, 1, 5, 1) + 1;
    for (unsigned long n = calls % 7 + 1; n <= calls; n += apart, tried++)
        attempt_one(tried % 2 ? onward : once, n, attempt, what);
    attempt_one(once, 0, attempt, what);
    print_message("# %s: %lu calls of the system at %u places, %u of them new; %u failures\n", name, calls, site_count,
                  fresh, tried);
}

/* ---- scenarios that make their context ---- */

/* Runs the scenario once, in that way failing. */
static void attempt(void *which, inject_failure how)
{
    const inject_scenario *scenario = which;
    clattn_context_params params = scenario->params;
    clattn_context *context = NULL;
    char folder[FOLDER_SIZE];
    if (scenario->empty_cache) {
        new_folder(folder);
        params.cache_dir = folder;
    }
    inject_refuse(NULL);
    inject_begin_failure(how);
    clattn_status status = clattn_context_create(&params, &context);
    if (status != CLATTN_SUCCESS) {
        assert_null(context);
        assert_non_null(inject_failed());
        inject_check_message(how.layer, NULL, status);
    } else {
        status = scenario->use(context);
        if (status != CLATTN_SUCCESS) {
            if (!inject_failed())
                assert_status(context, status, CLATTN_SUCCESS);
            inject_check_message(how.layer, context, status);
            /* The context works again after the failure. */
            inject_stop();
            assert_status(context, scenario->use(context), CLATTN_SUCCESS);
        }
    }
    clattn_context_release(&context);
    inject_check_balance(how);
}

void inject_run(const inject_scenario *scenario)
{
    inject_failure opencl = {.layer = INJECT_OPENCL};
    void *what = (void *)(uintptr_t)scenario;
    attempt(what, opencl); /* fills caches */
    const unsigned long calls = count_calls(opencl, attempt, what);
    assert_true(calls > 20);
    inject_each("scenario", opencl,
                scenario->attempts ? (unsigned)((calls + scenario->attempts) / scenario->attempts) : scenario->stride,
                attempt, what);
    inject_each_system("scenario", attempt, what);
}

inject_scenario inject_scenario_of(clattn_status (*use)(clattn_context *), int32_t cache_mode)
{
    inject_scenario scenario = {.use = use, .stride = is_tiny() ? 17 : 1};
    clattn_context_params_init(&scenario.params);
    scenario.params.get_proc = inject_get_proc;
    scenario.params.cache_mode = cache_mode;
    scenario.params.save_mode = CLATTN_SAVE_MODE_RELEASE;
    scenario.params.clblast = CLATTN_CLBLAST_MODE_NEVER; /* CLBlast calls OpenCL without the table */
    return scenario;
}
