/* What every test asserts with: cmocka, and assertions that show a call's status and the library's message. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <clattn/clattn.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Fails the test unless `call` gives `expected`; shows both and the message of `context` (NULL: the thread's). */
#define assert_status(context, call, expected) \
    check_status((context), (call), STATUS_BIT(expected), #call, __FILE__, __LINE__)

/* Fails the test unless `call` gives a status whose STATUS_BIT is in `set`. */
#define assert_status_in(context, call, set) check_status((context), (call), (set), #call, __FILE__, __LINE__)
#define STATUS_BIT(status) (1u << (unsigned)(status))

/* Fails the test unless the message of `context` (NULL: the thread's) contains `part`. */
#define assert_message_has(context, part) check_message((context), (part), __FILE__, __LINE__)

/* Fails the test unless an OpenCL call succeeded. */
#define assert_cl(code) assert_int_equal((code), CL_SUCCESS)

/* The functions behind the macros. */
void check_status(const clattn_context *context, clattn_status got, unsigned set, const char *call, const char *file,
                  int line);
void check_message(const clattn_context *context, const char *part, const char *file, int line);

#endif
