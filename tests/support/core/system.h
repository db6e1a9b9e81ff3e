/* What the tests ask of POSIX, and the little of it that mingw-w64 lacks. */
#ifndef TESTS_SYSTEM_H
#define TESTS_SYSTEM_H

#include <sys/stat.h>
#include <unistd.h>

#ifdef _WIN32

#include <io.h>
#include <stdlib.h>
#include <string.h>

static inline char *mkdtemp(char *name)
{
    return _mktemp(name) && mkdir(name) == 0 ? name : NULL;
}

#define mkdir(path, mode) mkdir(path) /* what modes say, Windows keeps in access lists */
#define lstat stat                    /* no test that runs there makes a link */

static inline int setenv(const char *name, const char *value, int anew)
{
    return anew || !getenv(name) ? _putenv_s(name, value) : 0;
}

static inline int unsetenv(const char *name)
{
    return _putenv_s(name, "");
}

/* A test that hangs is ended by what runs the tests. */
static inline unsigned alarm(unsigned seconds)
{
    return seconds;
}

#endif
#endif
