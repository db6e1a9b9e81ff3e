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

/* Kernels enqueued since inject_start. */
unsigned long inject_launches(void);

/* The last launch of the kernel that inject_watch named since then: its global size; false if there was none.  For one
 * thread; NULL watches none. */
void inject_watch(const char *kernel);
bool inject_grid(size_t global[3]);

/* Calls since inject_start; the name of the one that was made to fail, NULL if it was not reached. */
unsigned long inject_calls(void);
const char *inject_failed(void);

/* References that the library made and has not given back, of one kind. */
long inject_live(enum inject_kind kind);
const char *inject_kind_name(enum inject_kind kind);

/* Objects of one kind that it has created since the program began. */
unsigned long inject_made(enum inject_kind kind);

/* An event that the library handed out has been released by the test itself, outside the table. */
void inject_event_taken(void);

/* Waits up to two seconds for all of them to become 0 (an event's callback may come late).  False if they do
 * not; *kind then says which. */
bool inject_balanced(enum inject_kind *kind);

/* clattn_context_params.get_proc of this table; NULL for a function that the table does not have. */
void *inject_get_proc(void *user, const char *name);

#endif
