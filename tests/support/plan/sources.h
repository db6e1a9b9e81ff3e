/* Kernel sources with one wrong constant: they take a miscompiling driver's part. */
#ifndef TESTS_SUPPORT_PLAN_SOURCES_H
#define TESTS_SUPPORT_PLAN_SOURCES_H

#include "support/harness.h"

/* A copy of the kernel sources in which every `from` of `file` is `to`. */
struct sources {
    char folder[FOLDER_SIZE];
};

void sources_damage(struct sources *sources, const char *file, const char *from, const char *to);

/* A context with those sources; `cache` NULL: without a cache. */
clattn_context *sources_context(const struct sources *sources, const char *cache, bool checks);

/* The polynomial of the vectors' 2^x, which of attention's kernels the cpu solver's alone has. */
#define VECTOR_EXP "lib/exp2.h", "(floatv)(EXP2_C3)", "(floatv)(EXP2_C3 * 4.0f)"
/* That of the scalars', which the generic and the tile solver's have. */
#define SCALAR_EXP "lib/exp2.h", "f, EXP2_C3)", "f, EXP2_C3 * 4.0f)"

#endif
