/* One small product whose plans are tuned by the caller or by wisdom, in a context with a cache of its own: shared by the
 * tests of parameters and of wisdom. */
#ifndef TESTS_SUPPORT_PLAN_TUNED_PLAN_H
#define TESTS_SUPPORT_PLAN_TUNED_PLAN_H

#include "support/harness.h"

#define TUNED_M 20
#define TUNED_N 24
#define TUNED_K 12
#define TUNED_HEADING "clattn-wisdom 1\n"

/* Made by tuned_start for each test. */
extern struct tuned {
    char folder[FOLDER_SIZE]; /* the cache's */
    clattn_context_params params;
    clattn_context *context;
    clattn_matmul_desc desc;
} tuned;

int tuned_start(void **state);
int tuned_stop(void **state);
#define TUNED_TEST(name) cmocka_unit_test_setup_teardown(name, tuned_start, tuned_stop)

/* A plan of the product; the second must succeed. */
clattn_status tuned_make(clattn_context *in, const char *solver, const char *tuning, clattn_plan **plan);
clattn_plan *tuned_plan(clattn_context *in, const char *solver, const char *tuning);

/* Runs the plan and compares with sums in double. */
void tuned_check(clattn_context *in, clattn_plan *plan);

/* Whether explain has `part`. */
bool tuned_says(const clattn_plan *plan, const char *part);
#define assert_says(plan, part, expected) \
    do { \
        if (tuned_says((plan), (part)) != (expected)) \
            fail_msg("explain %s \"%s\":\n%s", (expected) ? "lacks" : "has", (part), clattn_plan_explain(plan)); \
    } while (0)

/* The context's text, terminated; the caller frees it. */
char *tuned_export(clattn_context *in);

clattn_status tuned_import(clattn_context *in, const char *text);

/* `text` with the first `old` exchanged; the caller frees it. */
char *tuned_exchanged(const char *text, const char *old, const char *new);

/* The heading and one record, of the cpu solver with tiles=1, which is no plan's default here. */
char *tuned_learnt(clattn_context *in);

#endif
