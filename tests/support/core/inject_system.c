/* Functions of the C library and the system that clattn's objects call in place of the real ones, by the linker's
 * --wrap: each counts as inject.h says, and fails as the real one does if memory, descriptors or the disk run out.
 *
 * Functions that cannot fail for a correct caller are not here: locking and unlocking.  A close that is made to fail
 * still closes, as Linux does. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/core/inject.h"

#define CALLER __builtin_return_address(0)
#define FAILS(name) inject_fails(INJECT_SYSTEM, name, CALLER)

/* Declares the function that a wrapped object means, real_NAME here, and the one that it calls in its place. */
#define DECLARE(type, name, parameters) \
    type real_##name parameters __asm__(#name); \
    type __wrap_##name parameters

/* Begins the function that takes the place of NAME. */
#define WRAP(type, name, ...) \
    DECLARE(type, name, (__VA_ARGS__)); \
    type __wrap_##name(__VA_ARGS__)

/* Defines a function that only fails with errno `number` and returns `failure`. */
#define FAILING(type, name, number, failure, parameters, arguments) \
    DECLARE(type, name, parameters); \
    type __wrap_##name parameters \
    { \
        if (FAILS(#name)) { \
            errno = number; \
            return failure; \
        } \
        return real_##name arguments; \
    }

/* The same of a function that changes files, which is noted: by what name, and of which file. */
#define CHANGING(name, number, parameters, arguments, noted, folder, path, more) \
    DECLARE(int, name, parameters); \
    int __wrap_##name parameters \
    { \
        if (FAILS(#name)) { \
            errno = number; \
            return -1; \
        } \
        return changed(real_##name arguments, noted, folder, path, more); \
    }

/* Notes what a call has changed, unless it has failed; returns what it has returned. */
static int changed(int code, const char *name, int folder, const char *path, const char *more)
{
    if (code == 0)
        inject_changed(name, folder, path, more);
    return code;
}

/* ---- memory ---- */

static void *taken(void *memory, const char *name, const void *caller)
{
    if (memory)
        inject_take(INJECT_HOST, memory, name, caller);
    return memory;
}

/* Defines a function that returns memory which `free` takes back. */
#define ALLOCATING(type, name, parameters, arguments) \
    DECLARE(type, name, parameters); \
    type __wrap_##name parameters \
    { \
        if (FAILS(#name)) { \
            errno = ENOMEM; \
            return NULL; \
        } \
        return taken(real_##name arguments, #name, CALLER); \
    }

ALLOCATING(void *, malloc, (size_t bytes), (bytes))
ALLOCATING(void *, calloc, (size_t count, size_t bytes), (count, bytes))
ALLOCATING(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
ALLOCATING(char *, strdup, (const char *text), (text))
ALLOCATING(char *, strndup, (const char *text, size_t bytes), (text, bytes))
ALLOCATING(char *, realpath, (const char *path, char *resolved), (path, resolved))

WRAP(void, free, void *memory)
{
    const int number = errno;
    if (memory) {
        inject_give(INJECT_HOST, memory);
        /* Whatever is used after it was freed is nonsense. */
        memset(memory, 0xdb, malloc_usable_size(memory));
    }
    real_free(memory);
    errno = number;
}

WRAP(void *, realloc, void *memory, size_t bytes)
{
    if (FAILS("realloc")) {
        errno = ENOMEM;
        return NULL;
    }
    if (memory)
        inject_give(INJECT_HOST, memory);
    void *moved = real_realloc(memory, bytes);
    taken(moved ? moved : memory, "realloc", CALLER);
    return moved;
}

WRAP(int, posix_memalign, void **memory, size_t alignment, size_t bytes)
{
    if (FAILS("posix_memalign"))
        return ENOMEM;
    const int code = real_posix_memalign(memory, alignment, bytes);
    if (code == 0)
        taken(*memory, "posix_memalign", CALLER);
    return code;
}

/* jansson's own allocations, where it is linked. */
static void *json_malloc(size_t bytes)
{
    if (FAILS("json_malloc")) {
        errno = ENOMEM;
        return NULL;
    }
    return taken(malloc(bytes), "json_malloc", CALLER);
}

static void json_free(void *memory)
{
    __wrap_free(memory);
}

void json_set_alloc_funcs(void *(*allocate)(size_t), void (*release)(void *)) __attribute__((weak));

__attribute__((constructor)) static void wrap_jansson(void)
{
    if (json_set_alloc_funcs)
        json_set_alloc_funcs(json_malloc, json_free);
}

/* ---- descriptors and files ---- */

static int opened(int file, const char *name, const void *caller)
{
    if (file >= 0)
        inject_take(INJECT_FILE, (const void *)((uintptr_t)file + 1), name, caller);
    return file;
}

/* Notes a file that has been created, unless the call has failed; returns what it has returned. */
static int created(int file, int flags, int folder, const char *path)
{
    if (file >= 0 && flags & O_CREAT)
        inject_changed("create", folder, path, "");
    return file;
}

/* Defines a function in the two names that it has, with 64-bit offsets or as compiled for them by default. */
#define BOTH(DEFINE, name) DEFINE(name) DEFINE(name##64)

#define OPEN(name) \
    WRAP(int, name, const char *path, int flags, mode_t mode) \
    { \
        if (FAILS(#name)) { \
            errno = EMFILE; \
            return -1; \
        } \
        return opened(created(real_##name(path, flags, mode), flags, AT_FDCWD, path), #name, CALLER); \
    }
BOTH(OPEN, open)

#define OPENAT(name) \
    WRAP(int, name, int folder, const char *path, int flags, mode_t mode) \
    { \
        if (FAILS(#name)) { \
            errno = EMFILE; \
            return -1; \
        } \
        return opened(created(real_##name(folder, path, flags, mode), flags, folder, path), #name, CALLER); \
    }
BOTH(OPENAT, openat)

WRAP(int, pipe, int ends[2])
{
    if (FAILS("pipe")) {
        errno = EMFILE;
        return -1;
    }
    const int code = real_pipe(ends);
    for (int i = 0; code == 0 && i < 2; i++)
        opened(ends[i], "pipe", CALLER);
    return code;
}

WRAP(int, close, int file)
{
    const bool fail = FAILS("close");
    inject_give(INJECT_FILE, (const void *)((uintptr_t)file + 1));
    const int code = real_close(file);
    if (fail)
        errno = EIO;
    return fail ? -1 : code;
}

#define MMAP(name) \
    WRAP(void *, name, void *at, size_t bytes, int protection, int flags, int file, off_t offset) \
    { \
        if (FAILS(#name)) { \
            errno = ENOMEM; \
            return MAP_FAILED; \
        } \
        void *mapping = real_##name(at, bytes, protection, flags, file, offset); \
        if (mapping != MAP_FAILED) \
            inject_take(INJECT_MAPPING, mapping, #name, CALLER); \
        return mapping; \
    }
BOTH(MMAP, mmap)

WRAP(int, munmap, void *mapping, size_t bytes)
{
    inject_give(INJECT_MAPPING, mapping);
    return real_munmap(mapping, bytes);
}

FAILING(ssize_t, read, EIO, -1, (int file, void *to, size_t bytes), (file, to, bytes))
WRAP(ssize_t, write, int file, const void *from, size_t bytes)
{
    char count[24];
    if (FAILS("write")) {
        errno = ENOSPC;
        return -1;
    }
    const ssize_t done = real_write(file, from, bytes);
    snprintf(count, sizeof count, "%zd", done);
    if (done > 0)
        inject_changed("write", file, NULL, count);
    return done;
}

#define PREAD(name) \
    FAILING(ssize_t, name, EIO, -1, (int file, void *to, size_t bytes, off_t offset), (file, to, bytes, offset))
BOTH(PREAD, pread)
CHANGING(fsync, EIO, (int file), (file), "fsync", file, NULL, "")
#define FSTAT(name) FAILING(int, name, EIO, -1, (int file, struct stat *about), (file, about))
BOTH(FSTAT, fstat)
#define STAT(name) FAILING(int, name, EIO, -1, (const char *path, struct stat *about), (path, about))
BOTH(STAT, stat)
BOTH(STAT, lstat)
#define FSTATAT(name) \
    FAILING(int, name, EIO, -1, (int folder, const char *path, struct stat *about, int flags), \
            (folder, path, about, flags))
BOTH(FSTATAT, fstatat)
CHANGING(fchmod, EPERM, (int file, mode_t mode), (file, mode), "chmod", file, NULL, "")
CHANGING(mkdir, ENOSPC, (const char *path, mode_t mode), (path, mode), "mkdir", AT_FDCWD, path, "")
FAILING(char *, mkdtemp, ENOSPC, NULL, (char *pattern), (pattern))
FAILING(int, symlink, ENOSPC, -1, (const char *target, const char *path), (target, path))
CHANGING(unlink, EACCES, (const char *path), (path), "unlink", AT_FDCWD, path, "")
CHANGING(unlinkat, EACCES, (int folder, const char *path, int flags), (folder, path, flags), "unlink", folder, path, "")
FAILING(int, remove, EACCES, -1, (const char *path), (path))
CHANGING(rename, ENOSPC, (const char *from, const char *to), (from, to), "rename", AT_FDCWD, from, to)
CHANGING(renameat, ENOSPC, (int from_folder, const char *from, int to_folder, const char *to),
         (from_folder, from, to_folder, to), "rename", from_folder, from,
         inject_path(to_folder, to, (char[INJECT_PATH_BYTES]){0}))
FAILING(int, getentropy, EIO, -1, (void *to, size_t bytes), (to, bytes))
#define NFTW(name) \
    FAILING(int, name, ENOMEM, -1, (const char *path, __nftw_func_t visit, int depth, int flags), \
            (path, visit, depth, flags))
BOTH(NFTW, nftw)

WRAP(DIR *, opendir, const char *path)
{
    if (FAILS("opendir")) {
        errno = EMFILE;
        return NULL;
    }
    DIR *folder = real_opendir(path);
    if (folder)
        inject_take(INJECT_FILE, folder, "opendir", CALLER);
    return folder;
}

WRAP(DIR *, fdopendir, int file)
{
    if (FAILS("fdopendir")) {
        errno = ENOMEM;
        return NULL;
    }
    DIR *folder = real_fdopendir(file);
    if (folder) {
        inject_give(INJECT_FILE, (const void *)((uintptr_t)file + 1));
        inject_take(INJECT_FILE, folder, "fdopendir", CALLER);
    }
    return folder;
}

#define READDIR(name) FAILING(struct dirent *, name, EIO, NULL, (DIR * folder), (folder))
BOTH(READDIR, readdir)

WRAP(int, closedir, DIR *folder)
{
    inject_give(INJECT_FILE, folder);
    return real_closedir(folder);
}

/* ---- streams ---- */

/* Puts a descriptor in the place of a stream's that can neither be read nor written, so that the stream itself
 * fails, and remembers its error, as it does on a full disk.  Returns the stream's own. */
static int spoil(FILE *stream)
{
    fflush(stream);
    const int file = fileno(stream), own = fcntl(file, F_DUPFD_CLOEXEC, 100), useless = open("/", O_PATH | O_CLOEXEC);
    dup2(useless, file);
    close(useless);
    return own;
}

static void restore(FILE *stream, int own)
{
    const int number = errno;
    fflush(stream);
    dup2(own, fileno(stream));
    close(own);
    errno = number;
}

#define FOPEN(name) \
    WRAP(FILE *, name, const char *path, const char *mode) \
    { \
        if (FAILS(#name)) { \
            errno = EMFILE; \
            return NULL; \
        } \
        FILE *stream = real_##name(path, mode); \
        if (stream) \
            inject_take(INJECT_FILE, stream, #name, CALLER); \
        return stream; \
    }
BOTH(FOPEN, fopen)

WRAP(int, fclose, FILE *stream)
{
    const bool fail = FAILS("fclose");
    inject_give(INJECT_FILE, stream);
    const int code = real_fclose(stream);
    if (fail)
        errno = EIO;
    return fail ? EOF : code;
}

/* What cannot be written to stderr can be told to nobody: its calls do not count. */
#define STREAM_FAILS(name, stream) ((stream) != stderr && FAILS(name))

/* Defines a function that reads or writes a stream: the real one runs on a stream that fails. */
#define STREAMING(type, name, stream, failure, parameters, arguments) \
    DECLARE(type, name, parameters); \
    type __wrap_##name parameters \
    { \
        if (!STREAM_FAILS(#name, stream)) \
            return real_##name arguments; \
        const int own = spoil(stream); \
        (void)real_##name arguments; \
        restore(stream, own); \
        return failure; \
    }

STREAMING(size_t, fread, stream, 0, (void *to, size_t bytes, size_t count, FILE *stream), (to, bytes, count, stream))
STREAMING(size_t, fwrite, stream, 0, (const void *from, size_t bytes, size_t count, FILE *stream),
          (from, bytes, count, stream))
STREAMING(int, getc, stream, EOF, (FILE * stream), (stream))
STREAMING(int, fputs, stream, EOF, (const char *text, FILE *stream), (text, stream))
STREAMING(int, putc, stream, EOF, (int c, FILE *stream), (c, stream))
STREAMING(int, fputc, stream, EOF, (int c, FILE *stream), (c, stream))
STREAMING(int, putchar, stdout, EOF, (int c), (c))
STREAMING(int, puts, stdout, EOF, (const char *text), (text))

WRAP(int, fflush, FILE *stream)
{
    if (!STREAM_FAILS("fflush", stream))
        return real_fflush(stream);
    const int own = spoil(stream);
    fputc('\n', stream);
    restore(stream, own);
    return EOF;
}

static int print(FILE *stream, bool fail, const char *format, va_list arguments)
{
    const int own = fail ? spoil(stream) : -1;
    const int length = vfprintf(stream, format, arguments);
    if (fail)
        restore(stream, own);
    return fail ? -1 : length;
}

int __wrap_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
int __wrap_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = print(stdout, FAILS("printf"), format, arguments);
    va_end(arguments);
    return length;
}

int __wrap_fprintf(FILE *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_fprintf(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = print(stream, STREAM_FAILS("fprintf", stream), format, arguments);
    va_end(arguments);
    return length;
}

/* ---- threads and processes ---- */

WRAP(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    if (FAILS("pthread_mutex_init"))
        return ENOMEM;
    const int code = real_pthread_mutex_init(mutex, attributes);
    if (code == 0)
        inject_take(INJECT_LOCK, mutex, "pthread_mutex_init", CALLER);
    return code;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    inject_give(INJECT_LOCK, mutex);
    return real_pthread_mutex_destroy(mutex);
}

WRAP(int, pthread_cond_init, pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    if (FAILS("pthread_cond_init"))
        return ENOMEM;
    const int code = real_pthread_cond_init(condition, attributes);
    if (code == 0)
        inject_take(INJECT_LOCK, condition, "pthread_cond_init", CALLER);
    return code;
}

WRAP(int, pthread_cond_destroy, pthread_cond_t *condition)
{
    inject_give(INJECT_LOCK, condition);
    return real_pthread_cond_destroy(condition);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
     void *argument)
{
    return FAILS("pthread_create") ? EAGAIN : real_pthread_create(thread, attributes, function, argument);
}

WRAP(int, posix_spawn, pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
     const posix_spawnattr_t *attributes, char *const *arguments, char *const *variables)
{
    return FAILS("posix_spawn") ? EAGAIN : real_posix_spawn(process, path, actions, attributes, arguments, variables);
}

FAILING(pid_t, waitpid, ECHILD, -1, (pid_t process, int *status, int options), (process, status, options))
FAILING(int, execve, ENOMEM, -1, (const char *path, char *const *arguments, char *const *variables),
        (path, arguments, variables))
FAILING(int, setenv, ENOMEM, -1, (const char *name, const char *value, int replace), (name, value, replace))
