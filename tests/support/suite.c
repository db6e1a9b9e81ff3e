/* Suites are made at run time because their tables are: one cmocka test for each solver and case, so that a
 * failure names both and the counts mean something. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

test_level level(void)
{
    static test_level known;
    const char *text = getenv("CLATTN_TEST_LEVEL");

    if (known) {
        return known;
    }
    if (!text) {
        known = device_platform_contains("Oclgrind")  ? LEVEL_TINY
                : device_platform_contains("rusticl") ? LEVEL_SMALL
                                                      : LEVEL_FULL;
    } else if (strcmp(text, "full") == 0) {
        known = LEVEL_FULL;
    } else if (strcmp(text, "small") == 0) {
        known = LEVEL_SMALL;
    } else if (strcmp(text, "tiny") == 0) {
        known = LEVEL_TINY;
    } else {
        fprintf(stderr, "CLATTN_TEST_LEVEL is '%s', expected full, small or tiny\n", text);
        exit(1);
    }
    return known;
}

/* What a test finds in *state. */
typedef struct call {
    CMUnitTestFunction plain;
    case_check check;
    const void *test;
    const char *solver;
} call;

static void run_call(void **state)
{
    const call *c = *state;

    if (c->plain) {
        c->plain(state);
    } else {
        c->check(c->test, c->solver);
    }
}

static void add(test_suite *suite, call what, const char *format, va_list arguments)
{
    char name[160];
    call *kept = malloc(sizeof *kept);

    vsnprintf(name, sizeof name, format, arguments);
    if (suite->count == suite->capacity) {
        suite->capacity = suite->capacity ? 2 * suite->capacity : 64;
        suite->tests = realloc(suite->tests, suite->capacity * sizeof *suite->tests);
    }
    char *copy = strdup(name);
    if (!suite->tests || !copy || !kept) {
        abort();
    }
    *kept = what;
    struct CMUnitTest test = {.name = copy, .test_func = run_call, .initial_state = kept};
    suite->tests[suite->count++] = test;
}

void suite_add(test_suite *suite, CMUnitTestFunction function, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add(suite, (call){.plain = function}, format, arguments);
    va_end(arguments);
}

void suite_add_case(test_suite *suite, case_check check, const void *test, const char *solver, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add(suite, (call){NULL, check, test, solver}, format, arguments);
    va_end(arguments);
}

int suite_run(test_suite *suite, const char *name, bool device, int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    printf("%s: seed %llu\n", name, (unsigned long long)random_seed());
    fflush(stdout);
    int failures = _cmocka_run_group_tests(name, suite->tests, suite->count, device ? device_open : NULL,
                                           device ? device_close : NULL);
    for (size_t i = 0; i < suite->count; i++) {
        free((void *)suite->tests[i].name);
        free(suite->tests[i].initial_state);
    }
    free(suite->tests);
    return failures != 0;
}
