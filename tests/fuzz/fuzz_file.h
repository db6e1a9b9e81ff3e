/* The fuzzer's bytes as a file, since the readers take paths; and a folder, if a file in memory is not enough. */
#ifndef TESTS_FUZZ_FILE_H
#define TESTS_FUZZ_FILE_H

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops the fuzzer and keeps the input if the library breaks a promise. */
#define REQUIRE(condition) ((condition) ? (void)0 : abort())

/* A path to a file in memory that holds `data`; the same one is rewritten at each call. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
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

static char fuzz_made[512];

static inline void fuzz_remove_folder(void)
{
    DIR *stream = opendir(fuzz_made);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;)
        unlinkat(dirfd(stream), entry->d_name, 0);
    if (stream != NULL)
        closedir(stream);
    rmdir(fuzz_made);
}

/* A folder of its own, in TMPDIR or the current one; removed at exit. */
static inline const char *fuzz_folder(void)
{
    if (fuzz_made[0] == '\0') {
        const char *parent = getenv("TMPDIR");
        snprintf(fuzz_made, sizeof fuzz_made, "%s/clattn-fuzz-XXXXXX",
                 parent != NULL && *parent != '\0' ? parent : ".");
        REQUIRE(mkdtemp(fuzz_made) != NULL && atexit(fuzz_remove_folder) == 0);
    }
    return fuzz_made;
}

/* A path in the fuzzer's folder; the same memory is written at each call. */
static inline const char *fuzz_path(const char *name)
{
    static char path[sizeof fuzz_made + 256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    return path;
}

/* Reads every byte, so that the sanitizer sees one that is not there. */
static inline void fuzz_touch(const void *data, size_t bytes)
{
    static volatile unsigned char sink;
    for (size_t i = 0; i < bytes; i++)
        sink = ((const unsigned char *)data)[i];
    (void)sink;
}

#endif
