/* A small attention problem and its plan, and what must be refused: its descriptor or its arguments with one thing
 * changed. */
#ifndef TESTS_SUPPORT_CORE_REFUSALS_H
#define TESTS_SUPPORT_CORE_REFUSALS_H

#include "support/harness.h"
#include "support/core/one_context.h"
#include "support/attention/small.h"

/* Made for each test. */
extern struct small_attention problem;
extern clattn_plan *plan;

int refusals_start(void **state);
int refusals_stop(void **state);

/* Sets of statuses. */
enum {
    INVALID = 1 << CLATTN_ERROR_INVALID_ARGUMENT,
    STRUCT = 1 << CLATTN_ERROR_INVALID_STRUCT,
    LAYOUT = 1 << CLATTN_ERROR_INVALID_LAYOUT,
    TOO_BIG = 1 << CLATTN_ERROR_OVERFLOW,
    UNSUPPORTED = 1 << CLATTN_ERROR_UNSUPPORTED,
};

/* The descriptor is refused by supports, by plan_create and by run alike, with one of the statuses in `set`. */
void refused_attention(const clattn_attention_desc *desc, unsigned set, const char *file, int line);

/* Changes one thing in a copy of a descriptor that works. */
#define ATTENTION_WITH(set, change) \
    { \
        clattn_attention_desc d = problem.desc; \
        change; \
        refused_attention(&d, (set), __FILE__, __LINE__); \
    }

/* The enqueue is refused with a status in `set`, and the output stays as it was. */
void refused_enqueue(const clattn_attention_args *args, unsigned set, const char *file, int line);

/* Changes one thing in a copy of arguments that work. */
#define ARGS_WITH(set, change) \
    { \
        clattn_attention_args a = problem.args; \
        change; \
        refused_enqueue(&a, (set), __FILE__, __LINE__); \
    }

#endif
