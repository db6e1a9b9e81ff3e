#define _XOPEN_SOURCE 700

#include "tool/cli/os_tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

void os_silence_stdout(void)
{
    if (freopen("/dev/null", "w", stdout) == NULL)
        fclose(stdout);
}

void os_prepare_streams(void)
{
    /* The descriptors are opened for the wrong direction on purpose: reading from, or writing to, a closed stream
     * stays an error. */
    for (int descriptor = 0; descriptor <= 2; descriptor++)
        if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF)
            (void)!open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
    signal(SIGPIPE, SIG_IGN);
}

bool os_stderr_is_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

double os_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void os_sleep_until(double time)
{
    for (double left = time - os_seconds(); left > 0; left = time - os_seconds()) {
        const struct timespec rest = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&rest, NULL);
    }
}

FILE *os_open_for_reading(const char *path)
{
    return fopen(path, "rb");
}

bool os_make_folder(const char *path)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return true;
    if (errno != EEXIST || stat(path, &status) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(status.st_mode);
}

static os_path_kind kind_of(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT ? OS_PATH_MISSING : OS_PATH_UNREACHABLE;
    if (S_ISREG(status.st_mode))
        return OS_PATH_FILE;
    return S_ISDIR(status.st_mode) ? OS_PATH_FOLDER : OS_PATH_OTHER;
}

/* What follows the last slash of `path`. */
static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The folder that contains `path`, for the caller to free; NULL if memory runs out. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

os_path_kind os_look_at(const char *path)
{
    os_path_kind kind = kind_of(path);
    if (kind != OS_PATH_MISSING)
        return kind;
    const char *name = file_name(path);
    if (name != path && *name == '\0')
        return OS_PATH_UNREACHABLE;
    char *folder = folder_of(path);
    if (folder != NULL && kind_of(folder) != OS_PATH_FOLDER)
        kind = OS_PATH_UNREACHABLE;
    free(folder);
    return kind;
}

bool os_same_file(const char *first, const char *second)
{
    struct stat a, b;
    if (strcmp(first, second) == 0)
        return true;
    bool missing = stat(first, &a) != 0;
    if ((stat(second, &b) != 0) != missing)
        return false;
    if (!missing) /* writing to a terminal or /dev/null does not harm what is read from it */
        return a.st_dev == b.st_dev && a.st_ino == b.st_ino && !S_ISCHR(a.st_mode);
    if (strcmp(file_name(first), file_name(second)) != 0)
        return false;
    char *first_folder = folder_of(first), *second_folder = folder_of(second);
    bool same = first_folder != NULL && second_folder != NULL && stat(first_folder, &a) == 0 &&
                stat(second_folder, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    free(first_folder);
    free(second_folder);
    return same;
}

bool os_is_stdout(const char *path)
{
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    struct stat there, ours;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    /* A report on stdout harms neither a terminal nor /dev/null. */
    return stat(path, &there) == 0 && fstat(STDOUT_FILENO, &ours) == 0 && !S_ISCHR(there.st_mode) &&
           there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

bool os_temporary_folder(char *path, size_t bytes)
{
    int length = snprintf(path, bytes, OS_TEMPORARY "/clattn-XXXXXX");
    return length > 0 && (size_t)length < bytes && mkdtemp(path) != NULL;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *position)
{
    (void)status;
    (void)kind;
    (void)position;
    return remove(path);
}

bool os_remove_folder(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0;
}

bool os_list_folder(const char *folder, bool (*each)(void *user, const char *name, uint64_t bytes, int64_t changed),
                    void *user)
{
    DIR *directory = opendir(folder);
    if (directory == NULL)
        return false;
    bool more = true, whole = true;
    while (more && whole) {
        struct stat status;
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (entry == NULL) {
            whole = errno == 0;
            break;
        }
        if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            whole = errno == ENOENT; /* another process has removed it meanwhile */
        else if (S_ISREG(status.st_mode))
            more = each(user, entry->d_name, (uint64_t)status.st_size, (int64_t)status.st_mtime);
    }
    closedir(directory);
    return whole;
}

bool os_remove_file(const char *folder, const char *name)
{
    int directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return false;
    bool removed = unlinkat(directory, name, 0) == 0 || errno == ENOENT;
    close(directory);
    return removed;
}

/* Whether `entry` and `setting` name the same variable. */
static bool same_name(const char *entry, const char *setting)
{
    size_t length = strcspn(setting, "=");
    return strncmp(entry, setting, length) == 0 && (entry[length] == '=' || entry[length] == '\0');
}

char **os_changed_environment(const char *const *settings)
{
    size_t old_count = 0, setting_count = 0, count = 0;
    while (environ[old_count] != NULL)
        old_count++;
    while (settings[setting_count] != NULL)
        setting_count++;
    char **entries = calloc(old_count + setting_count + 1, sizeof *entries);
    if (entries == NULL)
        return NULL;
    for (size_t i = 0; i < old_count; i++) {
        bool kept = true;
        for (size_t j = 0; j < setting_count; j++)
            kept = kept && !same_name(environ[i], settings[j]);
        if (kept)
            entries[count++] = environ[i];
    }
    for (size_t j = 0; j < setting_count; j++)
        if (strchr(settings[j], '=') != NULL)
            entries[count++] = (char *)settings[j];
    return entries;
}

static char **whole_command_line(const char *program, const char *const *arguments)
{
    size_t count = 0;
    while (arguments[count] != NULL)
        count++;
    char **whole = calloc(count + 2, sizeof *whole);
    if (whole == NULL)
        return NULL;
    whole[0] = (char *)program;
    memcpy(whole + 1, arguments, count * sizeof *whole);
    return whole;
}

/* Starts this program with its stdout in a pipe; returns the pipe's other end, or −1. */
static int start_self(char **arguments, char **environment, bool quiet, pid_t *child)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    posix_spawn_file_actions_t actions;
    int trouble = posix_spawn_file_actions_init(&actions);
    if (trouble == 0) {
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (quiet)
            posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        posix_spawn_file_actions_addclose(&actions, ends[1]);
        trouble = posix_spawn(child, "/proc/self/exe", &actions, NULL, arguments, environment);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (trouble == 0)
        return ends[0];
    close(ends[0]);
    return -1;
}

/* Reads to the end, so that the writer is never blocked, and stores what fits. */
static void read_all(int descriptor, char *output, size_t bytes)
{
    char spare[512];
    size_t used = 0;
    for (;;) {
        size_t room = bytes - 1 - used;
        ssize_t got = room > 0 ? read(descriptor, output + used, room) : read(descriptor, spare, sizeof spare);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        if (room > 0)
            used += (size_t)got;
    }
    output[used] = '\0';
}

bool os_run_self(const char *const *arguments, const char *const *settings, bool quiet, char *output, size_t bytes,
                 int *exit_status, double *seconds)
{
    char **whole = whole_command_line("clattn", arguments);
    char **environment = os_changed_environment(settings);
    pid_t child = -1;
    double before = os_seconds();
    int descriptor = whole != NULL && environment != NULL ? start_self(whole, environment, quiet, &child) : -1;
    free(whole);
    free(environment);
    if (descriptor < 0)
        return false;
    read_all(descriptor, output, bytes);
    close(descriptor);
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    *seconds = os_seconds() - before;
    *exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return true;
}
