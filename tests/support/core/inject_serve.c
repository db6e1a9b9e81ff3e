/* The command's own process, forked for one failure after the other: inject.h, "a command". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/core/inject.h"

enum { SECONDS_MOST = 240 }; /* a command that takes longer hangs */

/* What a child tells at its end. */
static struct told {
    bool ended;
    unsigned long calls;
    char failed[64], place[300];
} *told;

static char folder[512];
static int changes = -1; /* the file of changed files; -1: nobody wants to know */

const char *inject_path(int at, const char *path, char text[INJECT_PATH_BYTES])
{
    char link[64];
    if (path && (at == AT_FDCWD || path[0] == '/')) {
        snprintf(text, INJECT_PATH_BYTES, "%s", path);
        return text;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    const ssize_t length = readlink(link, text, INJECT_PATH_BYTES - 1), end = length > 0 ? length : 0;
    snprintf(text + end, INJECT_PATH_BYTES - (size_t)end, "%s%s", path ? "/" : "", path ? path : "");
    return text;
}

void inject_changed(const char *name, int at, const char *path, const char *more)
{
    const int number = errno;
    char text[INJECT_PATH_BYTES];
    if (changes >= 0 &&
        dprintf(changes, "%lu\t%s\t%s\t%s\n", inject_calls(), name, inject_path(at, path, text), more) < 0)
        abort();
    errno = number;
}

static FILE *create(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file)
        abort();
    return file;
}

/* Runs as the last function of a child's exit. */
static void tell(void)
{
    char place[300] = "";
    inject_stop();
    told->ended = true;
    told->calls = inject_calls();
    snprintf(told->failed, sizeof told->failed, "%s", inject_failed() ? inject_failed() : "-");
    snprintf(told->place, sizeof told->place, "%s",
             inject_failed() ? inject_place(inject_failed_at(), place, 300) : "-");
    FILE *sites = create("sites"), *held = create("held");
    for (unsigned i = 0; inject_site(i).name; i++) {
        const struct inject_site site = inject_site(i);
        fprintf(sites, "%s %lu %lu %s\n", site.name, site.first, site.last, inject_place(site.caller, place, 300));
    }
    inject_print_held(held);
    fclose(sites);
    fclose(held);
}

static void become(int descriptor, const char *name)
{
    FILE *file = create(name);
    dup2(fileno(file), descriptor);
    fclose(file);
}

void inject_serve(void)
{
    const char *setting = getenv("CLATTN_INJECT");
    char line[64];
    if (!setting)
        return;
    snprintf(folder, sizeof folder, "%s", setting);
    unsetenv("CLATTN_INJECT"); /* what the command starts in turn runs as it is */
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        abort();
    while (fgets(line, sizeof line, stdin)) {
        char *end;
        const unsigned long number = strtoul(line, &end, 10);
        const bool onward = *end == '+';
        const int signal = *end == '!' ? atoi(end + 1) : 0;
        int status = 0;
        *told = (struct told){.failed = "-", .place = "-"};
        const pid_t child = fork();
        if (child == 0) {
            become(0, "in");
            become(1, "out");
            become(2, "err");
            alarm(SECONDS_MOST);
            atexit(tell);
            if (number == 0) {
                FILE *file = create("files");
                changes = fcntl(fileno(file), F_DUPFD_CLOEXEC, 100);
                fclose(file);
            }
            if (signal)
                inject_begin_kill(number, signal);
            else
                inject_begin(INJECT_SYSTEM, number, onward);
            return;
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            abort();
        printf("%d %d %d %lu %s %s\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
               WIFSIGNALED(status) ? WTERMSIG(status) : 0, told->ended, told->calls, told->failed, told->place);
        fflush(stdout);
    }
    _exit(0);
}
