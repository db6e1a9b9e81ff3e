/* Kernel sources with one wrong constant, which stand in for a driver that miscompiles. */
#ifndef TESTS_SUPPORT_PLAN_SOURCES_H
#define TESTS_SUPPORT_PLAN_SOURCES_H

#include "support/harness.h"
#include "support/operator.h"

/* Makes a folder with a copy of the kernel sources. */
void sources_copy(char folder[FOLDER_SIZE]);

/* A copy of the kernel sources, in one file of which every `from` is replaced by `to`. */
struct sources {
    char folder[FOLDER_SIZE];
};

void sources_damage(struct sources *sources, const char *file, const char *from, const char *to);

/* Makes a context that uses these sources, with a cache in `cache` unless it is NULL. */
clattn_context *sources_context(const struct sources *sources, const char *cache, bool checks);

/* The message of a plan whose `kernel` the self-check has found wrong; the array follows. */
#define DISAGREES(kernel) kernel " disagrees with the reference on this device: "

/* Every `from` in a file of the kernel sources becomes `to`; plans by `solver` (NULL: any) then fail with `message`. */
struct damage {
    const char *solver, *file, *from, *to, *message;
};

/* Fails the test unless the self-check refuses a plan for each of `count` damages. */
void damage_is_found(const struct operator_calls *op, const void *desc, const struct damage *damages, size_t count);

/* The polynomial of 2^x for vectors, which only the cpu solver of attention uses. */
#define VECTOR_EXP "lib/exp2.h", "(floatv)(EXP2_C3)", "(floatv)(EXP2_C3 * 4.0f)"
/* The polynomial of 2^x for scalars, which the generic and tile solvers use. */
#define SCALAR_EXP "lib/exp2.h", "f, EXP2_C3)", "f, EXP2_C3 * 4.0f)"

#endif
