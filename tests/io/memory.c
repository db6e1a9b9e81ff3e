/* The reader of safetensors files takes at most 1 MB of memory, whatever a header says. */
#define _GNU_SOURCE
#include "io/files.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN 0
#endif

#define MEMORY_HEADER 4000000

/* Writes `begin` and then `unit` repeatedly, up to about `bytes`; "%06u" in `unit` becomes a number. */
static size_t write_repeated(FILE *file, const char *begin, const char *unit, const char *end, size_t bytes)
{
    size_t written = (size_t)fprintf(file, "%s", begin);
    const char *hole = strstr(unit, "%06u");
    for (unsigned i = 0; written < bytes; i++) {
        if (hole != NULL)
            written += (size_t)fprintf(file, "%.*s%06u%s", (int)(hole - unit), unit, i, hole + 4);
        else
            written += (size_t)fprintf(file, "%s", unit);
    }
    return written + (size_t)fprintf(file, "%s", end);
}

/* Opens the file in a process of its own that may allocate 1 MB more than it has. */
static clattn_status open_within_a_megabyte(const char *path, clattn_io_error *error)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char line[256];
        unsigned long data = 0;
        clattn_safetensors *file = NULL;
        clattn_io_error result = {""};
        clattn_safetensors_create("/", &file, &result); /* lets the library make what it makes only once */
        malloc_trim(0);
        FILE *self = fopen("/proc/self/status", "r");
        while (self != NULL && fgets(line, sizeof line, self) != NULL)
            if (sscanf(line, "VmData: %lu kB", &data) == 1)
                break;
        if (self != NULL)
            fclose(self);
        struct rlimit limit = {data * 1024 + 1000000, RLIM_INFINITY};
        if (data == 0 || (!UNDER_ASAN && setrlimit(RLIMIT_DATA, &limit) != 0))
            _exit(125);
        clattn_status status = clattn_safetensors_create(path, &file, &result);
        ssize_t sent = write(pipes[1], &result, sizeof result);
        clattn_safetensors_release(&file);
        _exit(sent == (ssize_t)sizeof result ? (int)status : 126);
    }
    int status = 0;
    close(pipes[1]);
    assert_int_equal(read(pipes[0], error, sizeof *error), sizeof *error);
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (clattn_status)WEXITSTATUS(status);
}

static void hostile_headers_cost_a_megabyte(void **state)
{
    (void)state;
    static const char description[] = "\"layer.%06u.attention.output.dense.weight\":"
                                      "{\"dtype\":\"F32\",\"shape\":[0,384],\"data_offsets\":[0,0]},";
    static const char last[] = "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    static const struct {
        const char *begin, *unit, *end;
        size_t bytes;
        clattn_status status;
        const char *part;
    } cases[] = {
        {"{", " ", "}", MEMORY_HEADER, CLATTN_SUCCESS, ""},
        {"{\"__metadata__\":{\"a\":\"", "x", "\"}}", MEMORY_HEADER, CLATTN_SUCCESS, ""},
        {"{\"__metadata__\":{\"a\":\"b\"", ",\"k%06u\":\"v\"", "}}", MEMORY_HEADER, CLATTN_SUCCESS, ""},
        {"{\"", "x", "\":{}}", MEMORY_HEADER, CLATTN_ERROR_UNSUPPORTED, "expected at most 2047"},
        {"{\"", "x", "\":{}}", 2000, CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{", " ", "}}", MEMORY_HEADER, CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"shape\":[0", ",0", "]}}", MEMORY_HEADER, CLATTN_ERROR_UNSUPPORTED, "rank"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0],\"shape\":[0", ",0", "]}}", 1800, CLATTN_ERROR_UNSUPPORTED,
         "rank"},
        {"{\"a\":", "[", "}", MEMORY_HEADER, CLATTN_ERROR_FORMAT, "description"},
        {"{\"a\":{\"b\":", "[", "}", MEMORY_HEADER, CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"b\":", "{\"a\":", "}", MEMORY_HEADER, CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"x\":1", ",\"%06u\":{}", "}}", 1800, CLATTN_ERROR_FORMAT, "exactly"},
        {"{", description, last, MEMORY_HEADER, CLATTN_ERROR_UNSUPPORTED, "for its table"},
        {"{", description, last, 6000 * (sizeof description + 1), CLATTN_SUCCESS, ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *path = path_to("memory");
        clattn_io_error error = {""};
        unsigned char prefix[8];
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fseek(file, 8, SEEK_SET);
        size_t length = write_repeated(file, cases[i].begin, cases[i].unit, cases[i].end, cases[i].bytes);
        fseek(file, 0, SEEK_SET);
        for (int k = 0; k < 8; k++)
            prefix[k] = (unsigned char)((uint64_t)length >> 8 * k);
        fwrite(prefix, 1, 8, file);
        assert_int_equal(fclose(file), 0);
        clattn_status status = open_within_a_megabyte(path, &error);
        if (cases[i].status != CLATTN_SUCCESS)
            assert_refusal(status, cases[i].status, &error, cases[i].part, cases[i].begin);
        else if (status != CLATTN_SUCCESS)
            fail_msg("case %zu: %d %s", i, (int)status, error.message);
        unlink(path);
    }
}

static void a_header_of_gigabytes_is_refused(void **state)
{
    (void)state;
    clattn_safetensors *file;
    clattn_io_error error = {""};
    image bytes = {{0}, 0};
    add_number(&bytes, (uint64_t)1 << 32, 8);
    add(&bytes, "{}", 2);
    const char *path = store("sparse", bytes.bytes, bytes.size);
    assert_int_equal(truncate(path, ((off_t)1 << 32) + 100), 0);
    assert_refusal(clattn_safetensors_create(path, &file, &error), CLATTN_ERROR_UNSUPPORTED, &error,
                   "expected at most 100000000", "sparse");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers_cost_a_megabyte),
        cmocka_unit_test(a_header_of_gigabytes_is_refused),
    };
    return cmocka_run_group_tests_name("io_memory", tests, make_folder, remove_folder);
}
