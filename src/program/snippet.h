/* What is wrong with the user's part of a kernel that did not build. */
#ifndef CLATTN_PROGRAM_SNIPPET_H
#define CLATTN_PROGRAM_SNIPPET_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "program/source.h"

/* Appends one line, "NAME:LINE: ..." or "NAME: ...", and returns true if the build log has an error in a snippet's text,
 * or a snippet is unbalanced, or does not define the function of its name and signature: compilers then show places in
 * the library's text.  `log` may be NULL. */
bool snippets_blame(const struct source_snippets *snippets, const char *log, struct strbuf *line);

/* The first line of a build log that tells of an error, without its end; its length is 0 if there is none. */
const char *log_first_error(const char *log, size_t *length);

#endif
