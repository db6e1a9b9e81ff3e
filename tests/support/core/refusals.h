/* A small attention problem with its plan, and macros that change one thing in its descriptor or arguments, or in those of
 * another operator, which must then be refused. */
#ifndef TESTS_SUPPORT_CORE_REFUSALS_H
#define TESTS_SUPPORT_CORE_REFUSALS_H

#include "support/harness.h"
#include "support/core/one_context.h"
#include "support/attention/small.h"
#include "support/operator.h"

/* Set up anew for each test. */
extern struct small_attention problem;
extern clattn_plan *plan;

int refusals_start(void **state);
int refusals_stop(void **state);

/* Sets of acceptable statuses. */
enum {
    INVALID = 1 << CLATTN_ERROR_INVALID_ARGUMENT,
    STRUCT = 1 << CLATTN_ERROR_INVALID_STRUCT,
    LAYOUT = 1 << CLATTN_ERROR_INVALID_LAYOUT,
    TOO_BIG = 1 << CLATTN_ERROR_OVERFLOW,
    UNSUPPORTED = 1 << CLATTN_ERROR_UNSUPPORTED,
};

/* Fails the test unless supports, plan_create and run refuse the descriptor with one of the statuses in `set`. */
void refused_attention(const clattn_attention_desc *desc, unsigned set, const char *file, int line);

/* Fails the test unless the valid descriptor with one change is refused. */
#define ATTENTION_WITH(set, change) \
    { \
        clattn_attention_desc d = problem.desc; \
        change; \
        refused_attention(&d, (set), __FILE__, __LINE__); \
    }

/* Fails the test unless the operator refuses the description with a status in `set` and makes no plan. */
void refused_desc(const struct operator_calls *op, const void *desc, unsigned set, const char *change, int line);

/* Fails the test unless it also says so in words that begin with `begins`. */
void refused_by_name(const struct operator_calls *op, const void *desc, unsigned set, const char *begins, int line);

/* A copy `d` of the description `good` is refused after one change. */
#define WRONG(name, good, set, change) \
    { \
        clattn_##name##_desc d = good; \
        change; \
        refused_desc(&name##_operator, &d, (set), #change, __LINE__); \
    }
#define NAMED(name, good, change, set, begins) \
    { \
        clattn_##name##_desc d = good; \
        change; \
        refused_by_name(&name##_operator, &d, (set), (begins), __LINE__); \
    }

/* Fails the test unless the enqueue is refused with a status in `set` and leaves the output as it was. */
void refused_enqueue(const clattn_attention_args *args, unsigned set, const char *file, int line);

/* Fails the test unless the valid arguments with one change are refused. */
#define ARGS_WITH(set, change) \
    { \
        clattn_attention_args a = problem.args; \
        change; \
        refused_enqueue(&a, (set), __FILE__, __LINE__); \
    }

#endif
