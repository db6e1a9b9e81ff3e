/* Suites are made at run time because their tables are: one cmocka test for each solver and case, so that a
 * failure names both and the counts mean something. */
#include "support/suite.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/device.h"
#include "support/random.h"

static struct {
    struct CMUnitTest *tests;
    size_t count, capacity;
} suite;

static char scratch[FOLDER_SIZE]; /* the folder that new_folder makes folders in, if any */

test_level level(void)
{
    static const struct {
        const char *name;
        test_level level;
    } levels[] = {{"tiny", LEVEL_TINY}, {"quick", LEVEL_QUICK}, {"small", LEVEL_SMALL}, {"full", LEVEL_FULL}};
    const char *text = getenv("CLATTN_TEST_LEVEL");

    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        if (strcmp(text ? text : "quick", levels[i].name) == 0) {
            return levels[i].level;
        }
    }
    fprintf(stderr, "CLATTN_TEST_LEVEL is '%s', expected tiny, quick, small or full\n", text);
    exit(1);
}

bool is_tiny(void)
{
    return level() == LEVEL_TINY;
}

size_t by_level(size_t tiny, size_t quick, size_t small, size_t full)
{
    return is_tiny() ? tiny : level() == LEVEL_QUICK ? quick : level() == LEVEL_SMALL ? small : full;
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
    clattn_program_statistics before = device_programs();
    clock_t began = clock();

    if (c->plain) {
        c->plain(state);
    } else {
        c->check(c->test, c->solver);
    }
    if (getenv("CLATTN_TEST_COST")) {
        printf("# %llu programs built, %.1f s of a core\n",
               (unsigned long long)(device_programs().built - before.built),
               (double)(clock() - began) / CLOCKS_PER_SEC);
    }
}

static void add(call what, const char *format, va_list arguments)
{
    char name[440];
    call *kept = malloc(sizeof *kept);

    vsnprintf(name, sizeof name, format, arguments);
    if (suite.count == suite.capacity) {
        suite.capacity = suite.capacity ? 2 * suite.capacity : 64;
        suite.tests = realloc(suite.tests, suite.capacity * sizeof *suite.tests);
    }
    char *copy = strdup(name);
    if (!suite.tests || !copy || !kept) {
        abort();
    }
    *kept = what;
    struct CMUnitTest test = {.name = copy, .test_func = run_call, .initial_state = kept};
    suite.tests[suite.count++] = test;
}

void suite_add(CMUnitTestFunction function, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add((call){.plain = function}, format, arguments);
    va_end(arguments);
}

void suite_add_case(case_check check, const void *test, const char *solver, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add((call){NULL, check, test, solver}, format, arguments);
    va_end(arguments);
}

void new_folder(char path[FOLDER_SIZE])
{
    static unsigned number;
    if (!scratch[0]) {
        char here[FOLDER_SIZE - 64];
        assert_non_null(getcwd(here, sizeof here));
        snprintf(scratch, sizeof scratch, "%s/scratch-XXXXXX", here);
        assert_non_null(mkdtemp(scratch));
    }
    snprintf(path, FOLDER_SIZE, "%.*s/%u", FOLDER_SIZE - 32, scratch, number++);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

void *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(1, *bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

void write_file(const char *path, const void *data, size_t bytes, mode_t mode)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

saved_variable variable_save(const char *name)
{
    const char *value = getenv(name);
    return (saved_variable){name, value ? strdup(value) : NULL};
}

void variable_restore(saved_variable *saved)
{
    if (saved->value)
        setenv(saved->name, saved->value, 1);
    else
        unsetenv(saved->name);
    free(saved->value);
}

static void remove_tree(const char *path)
{
    struct stat about;
    if (lstat(path, &about) != 0)
        return;
    if (S_ISDIR(about.st_mode)) {
        chmod(path, 0700);
        DIR *folder = opendir(path);
        for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
            char inner[4096];
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
                snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner)
                remove_tree(inner);
        }
        if (folder)
            closedir(folder);
        rmdir(path);
    } else {
        remove(path);
    }
}

/* Whether the name matches a pattern in which * stands for anything and ? for one character, as cmocka takes it. */
static bool matches(const char *pattern, const char *name)
{
    if (*pattern == '*')
        return matches(pattern + 1, name) || (*name && matches(pattern, name + 1));
    return *name ? (*pattern == '?' || *pattern == *name) && matches(pattern + 1, name + 1) : !*pattern;
}

/* Runs only the tests whose names match the pattern; false if there are none, so that a typing error is no success. */
static bool select_tests(const char *pattern, const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (matches(pattern, tests[i].name)) {
            cmocka_set_test_filter(pattern);
            return true;
        }
    fprintf(stderr, "no test's name matches '%s'\n", pattern);
    return false;
}

int run_test_table(const char *name, const struct CMUnitTest *tests, size_t count, int argc, char **argv)
{
    if (argc > 1 && !select_tests(argv[1], tests, count))
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that lines of stdout and stderr stay in order in a log */
    int failures = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    device_release();
    if (scratch[0])
        remove_tree(scratch);
    clattn_program_statistics programs = released_programs();
    printf("%s: programs built %llu, loaded %llu, refused %llu\n", name, (unsigned long long)programs.built,
           (unsigned long long)programs.loaded, (unsigned long long)programs.refused);
    return failures != 0 || device_lacks_builtins();
}

int suite_run(const char *name, int argc, char **argv)
{
    printf("%s: seed %llu\n", name, (unsigned long long)random_seed());
    int result = run_test_table(name, suite.tests, suite.count, argc, argv);
    for (size_t i = 0; i < suite.count; i++) {
        free((void *)suite.tests[i].name);
        free(suite.tests[i].initial_state);
    }
    free(suite.tests);
    return result;
}
