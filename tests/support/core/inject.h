/* A table of OpenCL functions for clattn_context_params.get_proc that counts calls, makes a chosen one fail, looks at
 * launches, and counts the references to every object created, retained and released. */
#ifndef TESTS_SUPPORT_CORE_INJECT_H
#define TESTS_SUPPORT_CORE_INJECT_H

#include <stdbool.h>

#include "clattn/context.h"

/* The kinds of objects whose references are counted. */
enum inject_kind {
    INJECT_CONTEXT,
    INJECT_QUEUE,
    INJECT_MEMORY,
    INJECT_PROGRAM,
    INJECT_KERNEL,
    INJECT_EVENT,
    INJECT_KINDS
};

/* Starts counting again: the `fail_at`-th call from now (1 is the first; 0: none) fails with `code`.  A release
 * that is made to fail still releases, so that the counts tell whether the library called it at all. */
void inject_start(unsigned long fail_at, cl_int code);

/* Returns the number of kernels enqueued since inject_start. */
unsigned long inject_launches(void);

/* inject_watch names a kernel (NULL: none); the other function gives the global size of its last launch since then, or
 * false if there was none.  For one thread. */
void inject_watch(const char *kernel);
bool inject_grid(size_t global[3]);

/* Returns the number of calls since inject_start, and the name of the call that was made to fail, or NULL if it was not
 * reached. */
unsigned long inject_calls(void);
const char *inject_failed(void);

/* Returns the number of the last call of the function that was called as the `function`-th since inject_start, or 0 if
 * fewer functions were called. */
unsigned long inject_last_call(unsigned function);

/* Returns the number of references of one kind that the library has made and not released. */
long inject_live(enum inject_kind kind);
const char *inject_kind_name(enum inject_kind kind);

/* Returns the number of objects of one kind that the library has created since the program began. */
unsigned long inject_made(enum inject_kind kind);

/* Tells the table that the test has released an event, which the library handed out, outside the table. */
void inject_event_taken(void);

/* Waits up to two seconds, because event callbacks may be late, until the library holds no references; otherwise
 * returns false, and *kind is a kind that it still holds. */
bool inject_balanced(enum inject_kind *kind);

/* A get_proc for clattn_context_params with this table's functions; it returns NULL for functions that the table does
 * not have. */
void *inject_get_proc(void *user, const char *name);

#endif
