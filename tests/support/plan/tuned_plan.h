/* One small product, whose plans the caller or wisdom tunes, in a context with its own cache; shared by the tests of
 * parameters and of wisdom. */
#ifndef TESTS_SUPPORT_PLAN_TUNED_PLAN_H
#define TESTS_SUPPORT_PLAN_TUNED_PLAN_H

#include "support/harness.h"

#define TUNED_M 20
#define TUNED_N 24
#define TUNED_K 12
#define TUNED_HEADING "clattn-wisdom 1\n"

/* Set up by tuned_start for each test. */
extern struct tuned {
    char folder[FOLDER_SIZE]; /* the cache's folder */
    clattn_context_params params;
    clattn_context *context;
    clattn_matmul_desc desc;
} tuned;

int tuned_start(void **state);
int tuned_stop(void **state);
#define TUNED_TEST(name) cmocka_unit_test_setup_teardown(name, tuned_start, tuned_stop)

/* Makes a plan of the product; tuned_plan fails the test unless it succeeds. */
clattn_status tuned_make(clattn_context *in, const char *solver, const char *tuning, clattn_plan **plan);
clattn_plan *tuned_plan(clattn_context *in, const char *solver, const char *tuning);

/* Runs the plan and compares the result with sums in double precision. */
void tuned_check(clattn_context *in, clattn_plan *plan);

/* Whether `explain` contains `part`. */
bool tuned_says(const clattn_plan *plan, const char *part);
#define assert_says(plan, part, expected) \
    do { \
        if (tuned_says((plan), (part)) != (expected)) \
            fail_msg("explain %s \"%s\":\n%s", (expected) ? "lacks" : "has", (part), clattn_plan_explain(plan)); \
    } while (0)

/* Exports the context's wisdom as a terminated text, which the caller frees. */
char *tuned_export(clattn_context *in);

clattn_status tuned_import(clattn_context *in, const char *text);

/* Returns `text` with its first `old` replaced by `new`; the caller frees it. */
char *tuned_exchanged(const char *text, const char *old, const char *new);

/* Returns the heading and one record of the cpu solver with tiles=1, which no plan has by default here. */
char *tuned_learnt(clattn_context *in);

/* The path of the context's file of wisdom. */
void tuned_file(char path[FOLDER_SIZE + 8]);

/* Whether the plan of a new context follows wisdom. */
bool tuned_serves(const clattn_context_params *with);

#endif
