/* Levels, suites and running them: what a test program's main uses. */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include "../../src/base/printf_like.h"
#include "support/check.h"
#include "support/core/system.h"

/* How much of the tests runs: CLATTN_TEST_LEVEL, "quick" if it is not set. */
typedef enum test_level {
    LEVEL_TINY = 1,  /* for a simulator, which is about a thousand times slower: small shapes */
    LEVEL_QUICK = 2, /* each feature once, and what needs no further kernel */
    LEVEL_SMALL = 4, /* further kernels */
    LEVEL_FULL = 8   /* every head size */
} test_level;

/* Sets of levels, as tables of cases name them.  Time goes into the compilation of kernels: a BIG case shares its kernel
 * with an ALL case, a MORE case needs another. */
#define TINY LEVEL_TINY
#define FULL LEVEL_FULL
#define MORE (LEVEL_SMALL | FULL)
#define BIG (LEVEL_QUICK | MORE)
#define ALL (TINY | BIG)

test_level level(void);
bool is_tiny(void);

/* The number for this level. */
size_t by_level(size_t tiny, size_t quick, size_t small, size_t full);

/* Adds a test under a printf-made name to the program's suite: `function`, or check(test, solver), whose arguments must
 * live until the suite has run. */
typedef void (*case_check)(const void *test, const char *solver);
void suite_add(CMUnitTestFunction function, const char *format, ...) PRINTF_LIKE(2, 3);
void suite_add_case(case_check check, const void *test, const char *solver, const char *format, ...) PRINTF_LIKE(4, 5);

/* Runs the suite.  argv[1], if given, is a pattern with * and ? that the names of tests must match.  Prints at the end
 * how many kernel programs the device's context had.  Returns the exit status of main.  If CLATTN_TEST_COST is set, each
 * test that passes prints how many programs it built and how much processor time it took. */
int suite_run(const char *name, int argc, char **argv);

/* Runs a table of cmocka's tests and prints at the end how many kernel programs their contexts had, as far as
 * release_context released them.  Returns the exit status of main. */
#define RUN_TESTS(name, tests, argc, argv) run_test_table((name), (tests), COUNT_OF(tests), (argc), (argv))
int run_test_table(const char *name, const struct CMUnitTest *tests, size_t count, int argc, char **argv);

/* Makes a new empty folder, mode 0700, in the current directory and puts its absolute name into `path`.  The
 * folder is removed when the program ends. */
#define FOLDER_SIZE 1024
void new_folder(char path[FOLDER_SIZE]);

/* Returns a file's bytes and a NUL behind them, which the caller frees; writes a whole file and sets its mode. */
void *read_file(const char *path, size_t *bytes);
void write_file(const char *path, const void *data, size_t bytes, mode_t mode);

/* An environment variable as it was before a test, which changes it and then restores it. */
typedef struct saved_variable {
    const char *name;
    char *value; /* NULL: the variable was not set */
} saved_variable;

saved_variable variable_save(const char *name);
void variable_restore(saved_variable *saved);

#endif
