/* What compilers say of a snippet, in the formats of several drivers. */
#ifndef CLATTN_PROGRAM_SNIPPET_LOG_H
#define CLATTN_PROGRAM_SNIPPET_LOG_H

#include "base/strbuf.h"

/* The snippet as a build log names it, by #line, and where its lines are in the program: Oclgrind 21.10 takes no notice
 * of #line. */
struct snippet_place {
    const char *name;
    int before, lines; /* of the program before it, and its own */
};

/* Appends what is wrong with the snippet: its place, "NAME:LINE:COLUMN: ..." or "NAME: ...", and the error that the first
 * line of `failure` tells, driver_build's message, or a later one of `strict`, that of the build with warnings; then all of
 * `failure`. */
void snippet_log_error(const struct snippet_place *place, const char *failure, const char *strict,
                       struct strbuf *message);

/* Appends a line "NAME:LINE:COLUMN: ..." for each error and warning of `log` about the snippet's own lines. */
void snippet_log_warnings(const struct snippet_place *place, const char *log, struct strbuf *warnings);

#endif
