/* What a snippet's text may not say. */
#ifndef CLATTN_PROGRAM_SNIPPET_REFUSE_H
#define CLATTN_PROGRAM_SNIPPET_REFUSE_H

#include "program/source.h"

/* Appends to `message` the reason, as "NAME:LINE: ..." or "NAME: ...", why the library does not take the text of snippet
 * `index`, or nothing.  Directives are refused that read files, change what the compiler does with other text, or hide
 * where lines come from; macros that are named as a keyword or as a snippet's function; trigraphs; `overloadable`,
 * which lets a text replace a built-in function; and a text that does not define its function or has no `return`.  These
 * rules are against accidents: a snippet is trusted code.  Returns false if host memory is out. */
bool snippet_refuse(const struct source_snippets *snippets, size_t index, struct strbuf *message);

#endif
