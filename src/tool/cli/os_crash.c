#define _XOPEN_SOURCE 700

#include "tool/cli/os_crash.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VENDORS "/etc/OpenCL/vendors"
#define PATH_BYTES 4096
#define STACK_BYTES 65536

static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
#define FATAL (sizeof fatal / sizeof fatal[0])

static struct {
    char **arguments, **environment;
    char *digits;
    const char *message;
    int exit_status;
    bool on;
    sigset_t mask;
    struct sigaction before[FATAL];
    stack_t stack_before;
} guard;
static char handler_stack[STACK_BYTES]; /* the driver may have overflowed its stack */

/* Handles the signal; calls only functions that a signal handler may call. */
static void on_fatal(int signal_number)
{
    if (guard.arguments == NULL) {
        (void)!write(STDERR_FILENO, guard.message, strlen(guard.message));
        _exit(guard.exit_status);
    }
    guard.digits[0] = (char)('0' + signal_number / 10 % 10);
    guard.digits[1] = (char)('0' + signal_number % 10);
    /* The signal is unblocked first, because the new program would inherit the mask. */
    sigprocmask(SIG_SETMASK, &guard.mask, NULL);
    execve("/proc/self/exe", guard.arguments, guard.environment);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

long os_parent_id(void)
{
    return (long)getppid();
}

void os_crash_begin(char **arguments, char **environment, char *digits, const char *message, int exit_status)
{
    const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    struct sigaction action = {.sa_handler = on_fatal, .sa_flags = SA_ONSTACK};
    guard.arguments = arguments;
    guard.environment = environment;
    guard.digits = digits;
    guard.message = message;
    guard.exit_status = exit_status;
    sigprocmask(SIG_SETMASK, NULL, &guard.mask);
    sigaltstack(&stack, &guard.stack_before);
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < FATAL; i++)
        sigaction(fatal[i], &action, &guard.before[i]);
    guard.on = true;
}

void os_crash_end(void)
{
    if (!guard.on)
        return;
    guard.on = false;
    for (size_t i = 0; i < FATAL; i++) {
        /* A handler that a driver has installed meanwhile stays: PoCL handles a kernel's division by zero with one. */
        struct sigaction now;
        if (sigaction(fatal[i], NULL, &now) == 0 && now.sa_handler == on_fatal)
            sigaction(fatal[i], &guard.before[i], NULL);
    }
    sigaltstack(&guard.stack_before, NULL);
}

static bool ends_in_icd(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".icd") == 0;
}

static bool list_folder(const char *folder, bool (*each)(void *user, const char *path, bool library), void *user)
{
    char joined[PATH_BYTES];
    DIR *directory = opendir(folder);
    if (directory == NULL)
        return false;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        int length = snprintf(joined, sizeof joined, "%s/%s", folder, entry->d_name);
        char *path =
            ends_in_icd(entry->d_name) && length > 0 && (size_t)length < sizeof joined ? realpath(joined, NULL) : NULL;
        bool more = path == NULL || each(user, path, false);
        free(path);
        if (!more)
            break;
    }
    closedir(directory);
    return true;
}

/* Splits the Khronos loader's list of libraries, which are separated by colons. */
static void list_libraries(const char *names, bool (*each)(void *user, const char *path, bool library), void *user)
{
    char name[PATH_BYTES];
    while (*names != '\0') {
        size_t length = strcspn(names, ":");
        if (length > 0 && length < sizeof name) {
            memcpy(name, names, length);
            name[length] = '\0';
            if (!each(user, name, true))
                return;
        }
        names += length + (names[length] == ':');
    }
}

bool os_icd_list(bool (*each)(void *user, const char *path, bool library), void *user)
{
    const char *vendors = getenv("OCL_ICD_VENDORS"), *names = getenv("OCL_ICD_FILENAMES");
    struct stat about;
    char joined[PATH_BYTES];
    if (names != NULL)
        list_libraries(names, each, user);
    if (vendors == NULL || *vendors == '\0')
        vendors = getenv("OPENCL_VENDOR_PATH");
    if (vendors == NULL || *vendors == '\0')
        vendors = VENDORS;
    if (stat(vendors, &about) == 0 && S_ISDIR(about.st_mode))
        return list_folder(vendors, each, user);
    if (!ends_in_icd(vendors)) {
        each(user, vendors, true);
        return true;
    }
    snprintf(joined, sizeof joined, "%s%s", strchr(vendors, '/') == NULL ? VENDORS "/" : "", vendors);
    char *path = realpath(joined, NULL);
    if (path != NULL)
        each(user, path, false);
    bool found = path != NULL;
    free(path);
    return found;
}

bool os_icd_place(const char *folder, size_t index, const char *path, bool library)
{
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s/%03zu.icd", folder, index);
    if (!library)
        return symlink(path, name) == 0;
    FILE *file = fopen(name, "wx");
    if (file == NULL)
        return false;
    bool written = fprintf(file, "%s\n", path) > 0;
    return fclose(file) == 0 && written;
}

bool os_icd_use(const char *folder)
{
    unsetenv("OCL_ICD_FILENAMES");
    unsetenv("OPENCL_VENDOR_PATH");
    return setenv("OCL_ICD_VENDORS", folder, 1) == 0;
}
