/* The check of the user's part of a program. */
#ifndef CLATTN_PROGRAM_SNIPPET_H
#define CLATTN_PROGRAM_SNIPPET_H

#include "program/program.h"

/* Builds each snippet behind the kernel source `prelude` alone, with `options` as program_get's, and keeps nothing.
 * Warnings about its lines are logged and appended to `explain`, a line each.  Returns BUILD if a snippet does not build or
 * snippet_refuse refuses it; the message's first line is "NAME:LINE: ..." or "NAME: ...".  Other statuses: OPENCL,
 * OUT_OF_MEMORY, IO, INTERNAL.  No lock may be held. */
clattn_status snippets_check(struct program_cache *cache, const char *prelude, const char *options,
                             const struct source_snippets *snippets, struct strbuf *explain);

#endif
