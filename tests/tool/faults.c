/* What goes wrong around the command, for test_command_faults.py: this library is preloaded.
 *
 *   FILE_CALLS=FILE           appends a line for each call that changes files, "name, path, path or number" with tabs between
 *   STOP_AT=N:SIGNAL:after    raises the signal before, or after, the N-th of these calls; the first is 1
 *   JSON_FAILS_AT=N           the N-th allocation of jansson's fails; needs a program that calls json_set_alloc_funcs
 *
 * Only calls from clattn's own objects count, neither the driver's nor the C library's. */
#undef _FILE_OFFSET_BITS /* open and open64 are two functions here */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define NEXT(name) ((__typeof__(&name))next(#name))

/* One call: its number and what the trace says of it. */
struct call {
    bool counts, after;
    char line[2 * PATH_BYTES + 64];
};

static int calls, stop_at, stop_signal;
static bool stop_after, begun;

static void *next(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL)
        abort();
    return function;
}

static void begin(void)
{
    const char *stop = getenv("STOP_AT");
    char when[8] = "";
    if (!begun && stop != NULL && sscanf(stop, "%d:%d:%7s", &stop_at, &stop_signal, when) == 3)
        stop_after = strcmp(when, "after") == 0;
    begun = true;
}

/* Whether the address is in the command or in a library of its own. */
static bool is_ours(const void *address)
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return false;
    const char *slash = strrchr(info.dli_fname, '/'), *name = slash != NULL ? slash + 1 : info.dli_fname;
    return strncmp(name, "clattn", 6) == 0 || strncmp(name, "libclattn", 9) == 0;
}

/* The path behind a descriptor, or `name` as it is seen from the folder `at`. */
static const char *path_of(int at, const char *name, char path[PATH_BYTES])
{
    char link[64];
    if (name != NULL && (at == AT_FDCWD || name[0] == '/')) {
        snprintf(path, PATH_BYTES, "%s", name);
        return path;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length > 0 ? length : 0] = '\0';
    if (name != NULL)
        snprintf(path + strlen(path), PATH_BYTES - strlen(path), "/%s", name);
    return path;
}

/* Comes before a call; *call is what leave needs. */
static void enter(struct call *call, const void *caller, const char *what, const char *path, const char *more)
{
    begin();
    call->counts = is_ours(caller);
    if (!call->counts)
        return;
    snprintf(call->line, sizeof call->line, "%s\t%s\t%s\n", what, path, more);
    call->after = ++calls == stop_at && stop_after;
    if (calls == stop_at && !stop_after)
        raise(stop_signal);
}

/* Comes after a call that has succeeded or not; keeps errno. */
static void leave(const struct call *call, bool succeeded)
{
    const char *trace = getenv("FILE_CALLS");
    int number = errno;
    if (call->counts && succeeded && trace != NULL) {
        int file = (int)syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (file < 0 || syscall(SYS_write, file, call->line, strlen(call->line)) != (long)strlen(call->line))
            abort();
        syscall(SYS_close, file);
    }
    if (call->counts && call->after)
        raise(stop_signal);
    errno = number;
}

static int opened(const char *name, int at, const char *path, int flags, va_list more, const void *caller)
{
    struct call call;
    char whole[PATH_BYTES];
    mode_t mode = (mode_t)(flags & O_CREAT ? va_arg(more, int) : 0);
    enter(&call, caller, flags & O_CREAT ? "create" : "open", path_of(at, path, whole), "");
    int file = at == AT_FDCWD ? ((int (*)(const char *, int, ...))next(name))(path, flags, mode)
                              : ((int (*)(int, const char *, int, ...))next(name))(at, path, flags, mode);
    leave(&call, file >= 0);
    return file;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        int file = opened(#name, AT_FDCWD, path, flags, more, __builtin_return_address(0)); \
        va_end(more); \
        return file; \
    }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        int file = opened(#name, at, path, flags, more, __builtin_return_address(0)); \
        va_end(more); \
        return file; \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t bytes)
{
    struct call call;
    char path[PATH_BYTES], count[24];
    snprintf(count, sizeof count, "%zu", bytes);
    enter(&call, __builtin_return_address(0), "write", path_of(file, NULL, path), count);
    ssize_t done = NEXT(write)(file, data, bytes);
    leave(&call, done == (ssize_t)bytes);
    return done;
}

#define OF_DESCRIPTOR(name) \
    int name(int file) \
    { \
        struct call call; \
        char path[PATH_BYTES]; \
        enter(&call, __builtin_return_address(0), #name, path_of(file, NULL, path), ""); \
        int result = NEXT(name)(file); \
        leave(&call, result == 0); \
        return result; \
    }
OF_DESCRIPTOR(fsync)
OF_DESCRIPTOR(close)

int rename(const char *from, const char *to)
{
    struct call call;
    enter(&call, __builtin_return_address(0), "rename", from, to);
    int result = NEXT(rename)(from, to);
    leave(&call, result == 0);
    return result;
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    struct call call;
    char path[PATH_BYTES], other[PATH_BYTES];
    enter(&call, __builtin_return_address(0), "rename", path_of(from_at, from, path), path_of(to_at, to, other));
    int result = NEXT(renameat)(from_at, from, to_at, to);
    leave(&call, result == 0);
    return result;
}

int unlink(const char *name)
{
    struct call call;
    enter(&call, __builtin_return_address(0), "unlink", name, "");
    int result = NEXT(unlink)(name);
    leave(&call, result == 0);
    return result;
}

int unlinkat(int at, const char *name, int flags)
{
    struct call call;
    char path[PATH_BYTES];
    enter(&call, __builtin_return_address(0), "unlink", path_of(at, name, path), "");
    int result = NEXT(unlinkat)(at, name, flags);
    leave(&call, result == 0);
    return result;
}

int fchmod(int file, mode_t mode)
{
    struct call call;
    char path[PATH_BYTES];
    enter(&call, __builtin_return_address(0), "chmod", path_of(file, NULL, path), "");
    int result = NEXT(fchmod)(file, mode);
    leave(&call, result == 0);
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    struct call call;
    enter(&call, __builtin_return_address(0), "mkdir", path, "");
    int result = NEXT(mkdir)(path, mode);
    leave(&call, result == 0);
    return result;
}

/* ---- jansson ---- */

static void *(*json_allocate)(size_t);
static int json_calls;
static _Thread_local bool out_of_memory;

void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    return out_of_memory ? NULL : __libc_malloc(bytes);
}

static void *failing_allocate(size_t bytes)
{
    const char *at = getenv("JSON_FAILS_AT");
    out_of_memory = at != NULL && ++json_calls == atoi(at);
    void *memory = json_allocate(bytes);
    out_of_memory = false;
    return memory;
}

void json_set_alloc_funcs(void *(*allocate)(size_t), void (*release)(void *));
void json_set_alloc_funcs(void *(*allocate)(size_t), void (*release)(void *))
{
    json_allocate = allocate;
    NEXT(json_set_alloc_funcs)(failing_allocate, release);
}
