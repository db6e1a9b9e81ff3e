/* Calls that are counted, of which one, or all from one on, are made to fail; and what the library has taken and not
 * given back.
 *
 * Calls of OpenCL are counted if a context has inject_get_proc.  Calls of the C library and the system are counted
 * in programs that link clattn as `injected` (tests/support/meson.build), whose objects call inject_system.c by the
 * linker's --wrap; the libraries underneath are not counted.
 *
 * If the environment has CLATTN_INJECT_TRACE, each call that is made to fail prints its stack, which addr2line
 * reads. */
#ifndef TESTS_SUPPORT_CORE_INJECT_H
#define TESTS_SUPPORT_CORE_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "clattn/context.h"

/* ---- which calls fail ---- */

enum inject_layer { INJECT_OPENCL, INJECT_SYSTEM };

/* Starts counting again the calls of one layer: the `fail_at`-th from now (1 is the first; 0: none) fails, and if
 * `onward` all after it.  Calls of the other layer neither count nor fail. */
void inject_begin(enum inject_layer layer, unsigned long fail_at, bool onward);

/* Starts counting calls of the system, too, but the `at`-th raises `signal` and does not fail. */
void inject_begin_kill(unsigned long at, int signal);

/* Counts no call from now on, and lets none fail; what has failed and been counted stays known. */
void inject_stop(void);

/* inject_begin for OpenCL, whose calls fail with `code`.  A release that is made to fail still releases, so that the
 * counts tell whether the library called it at all. */
void inject_start(unsigned long fail_at, cl_int code);

/* Returns the number of calls since inject_begin, and the name of the first call that was made to fail, or NULL if
 * it was not reached. */
unsigned long inject_calls(void);
const char *inject_failed(void);
const void *inject_failed_at(void); /* the address that it returns to; NULL for OpenCL */

/* Writes an address as "file+0x…", which addr2line takes, into `text`, and returns that. */
const char *inject_place(const void *caller, char *text, size_t bytes);

/* A place that calls: a function of OpenCL, or one call site of a function of the system, and the numbers of its
 * first and its last call.  Sites are noted while nothing is to fail; `name` is NULL from the first number on that
 * none has. */
struct inject_site {
    const char *name;
    const void *caller; /* NULL for OpenCL */
    unsigned long first, last;
};
struct inject_site inject_site(unsigned number);

/* ---- what is held ---- */

/* The kinds of what is counted.  From INJECT_HOST on they are the system's. */
enum inject_kind {
    INJECT_CONTEXT,
    INJECT_QUEUE,
    INJECT_MEMORY,
    INJECT_PROGRAM,
    INJECT_KERNEL,
    INJECT_EVENT,
    INJECT_HOST,
    INJECT_FILE,
    INJECT_MAPPING,
    INJECT_LOCK,
    INJECT_KINDS
};

/* Returns the number of references of one kind that the library has made and not released. */
long inject_live(enum inject_kind kind);
const char *inject_kind_name(enum inject_kind kind);

/* Returns the number of objects of one kind that the library has created since the program began. */
unsigned long inject_made(enum inject_kind kind);

/* Tells the table that the test has released an event, which the library handed out, outside the table. */
void inject_event_taken(void);

/* Waits up to two seconds, because event callbacks may be late, until the library holds no references, or as many as
 * when inject_mark was last called; otherwise returns false, and *kind is a kind of which it holds others. */
bool inject_balanced(enum inject_kind *kind);
void inject_mark(void);

/* Prints what has been taken from the system and not given back, one a line: the function that gave it, and the
 * place that called. */
void inject_print_held(FILE *file);

/* ---- OpenCL ---- */

/* A get_proc for clattn_context_params with functions that are counted; it returns NULL for functions that the table
 * does not have. */
void *inject_get_proc(void *user, const char *name);

/* Returns the number of kernels enqueued since inject_start. */
unsigned long inject_launches(void);

/* inject_watch names a kernel (NULL: none); the other function gives the global size of its last launch since then, or
 * false if there was none.  For one thread. */
void inject_watch(const char *kernel);
bool inject_grid(size_t global[3]);

/* ---- a command ---- */

/* Returns at once unless the environment has CLATTN_INJECT, the name of a folder.  Then it reads lines from stdin, and
 * returns for each in a child of its own, in which a call of the system fails: "NUMBER", that call (0: none);
 * "NUMBER+", all from it on; "NUMBER!SIGNAL", none, but before that call the signal is raised.  The child's streams are
 * the files `in`, which is empty, `out` and `err` of the folder.  If nothing is to fail, `files` has a line for each
 * call that has changed files: number, name, path, path or count of bytes, with tabs between.  At its exit the child
 * writes `held`, and if nothing failed `sites`.  For each line the parent prints the exit status or -1, the signal or 0,
 * whether the child came to its exit, the number of calls, the function that failed and its place, or "-"; it ends when
 * stdin does. */
void inject_serve(void);

/* ---- for the layers ---- */

/* Prints the stack. */
void inject_trace(void);

/* Counts a call of `name`, made at `caller`; returns whether it is to fail. */
bool inject_fails(enum inject_layer layer, const char *name, const void *caller);

/* Notes that a call, the last one, has changed the file `path`, or that of the name `path` in the folder `at` (AT_FDCWD:
 * none), or, unless there is a path, the one whose descriptor is `at`. */
void inject_changed(const char *name, int at, const char *path, const char *more);

/* Writes such a file's path into `text`, and returns that. */
enum { INJECT_PATH_BYTES = 4096 };
const char *inject_path(int at, const char *path, char text[INJECT_PATH_BYTES]);

/* Counts an object that was made or given back. */
void inject_count(enum inject_kind kind, int change);

/* The same for what the system gave, which is known by its address or number; what was not given through here is
 * ignored when it goes back. */
void inject_take(enum inject_kind kind, const void *what, const char *name, const void *caller);
void inject_give(enum inject_kind kind, const void *what);

#endif
