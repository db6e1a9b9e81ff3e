/* The fuzzer's bytes as a file: the readers take paths. */
#ifndef TESTS_FUZZ_FILE_H
#define TESTS_FUZZ_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops the fuzzer, with the input kept, where a promise of the library is broken. */
#define REQUIRE(condition) ((condition) ? (void)0 : abort())

/* A path to a file in memory that holds `data`; the same one is rewritten at each call. */
static const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    REQUIRE(file >= 0 && ftruncate(file, 0) == 0);
    REQUIRE(size == 0 || pwrite(file, data, size, 0) == (ssize_t)size);
    return path;
}

/* Reads every byte, so that the sanitizer sees one that is not there. */
static void fuzz_touch(const void *data, size_t bytes)
{
    static volatile unsigned char sink;
    for (size_t i = 0; i < bytes; i++)
        sink = ((const unsigned char *)data)[i];
    (void)sink;
}

#endif
