/* Wisdom: what measurements found to be best, kept in a context; clattn/tuning.h has the contract.
 *
 * A record is a line, "KEY SOLVER RANK NANOSECONDS [NAME=VALUE ...]", whose key is "DEVICE DRIVER KERNELS OPERATOR
 * BUCKET": no token has a blank in it, names are percent-encoded.  Kept as that line, found by its key. */
#ifndef CLATTN_PLAN_WISDOM_WISDOM_H
#define CLATTN_PLAN_WISDOM_WISDOM_H

#include <threads.h>

#include "base/report.h"
#include "base/strbuf.h"
#include "plan/wisdom/tuning.h"

struct clattn_context;

#define WISDOM_FILE "wisdom"
#define WISDOM_RECORDS 2048
#define WISDOM_LINE 4096
#define WISDOM_BYTES ((size_t)8 << 20) /* of a whole text */
#define WISDOM_RANKS 8
#define WISDOM_KERNELS 40
#define WISDOM_SOLVER 32 /* bytes of a solver's name, terminator included */

/* A line, checked, without its end. */
struct wisdom_record {
    char *line;
    size_t key;    /* bytes of the key, */
    size_t solver; /* of the solver's name behind it and a blank */
    uint32_t rank;
};

/* Lines in the order in which they came.  Zeroed: none. */
struct wisdom_list {
    struct wisdom_record *record;
    size_t count, room;
};

struct wisdom {
    mtx_t lock; /* over the list */
    struct wisdom_list list;
    char kernels[WISDOM_KERNELS]; /* this library's version and the digest of the kernel sources, as a key has them */
};

/* What a record says, taken apart. */
struct advice {
    char solver[WISDOM_SOLVER];
    uint32_t rank;
    uint64_t nanoseconds;
    struct settings settings;
};

/* ---- the text (wisdom_text.c) ---- */

/* Appends `text` as one token of at most `most` of its bytes: what is no letter, digit or one of ._+:,()@- becomes
 * %XX; an empty one "-". */
void wisdom_token(struct strbuf *key, const char *text, size_t most);

/* Reads a whole text into an empty list.  FORMAT with *line (from 1) and a static *reason, or OUT_OF_MEMORY. */
clattn_status wisdom_parse(const char *text, size_t bytes, struct wisdom_list *list, size_t *line, const char **reason);

/* Appends all lines, the heading first. */
void wisdom_write(const struct wisdom_list *list, struct strbuf *text);

/* Takes a record of the list apart; never fails, for its line has been checked. */
void wisdom_read(const struct wisdom_record *record, struct advice *advice);

/* ---- lists (wisdom.c) ---- */

void wisdom_list_clear(struct wisdom_list *list);

/* Adds a line that is known to be well formed, in place of the one with its key and solver; the list takes it over,
 * even when there is no memory, and drops the oldest above WISDOM_RECORDS. */
bool wisdom_list_add(struct wisdom_list *list, struct wisdom_record record);

/* The record of that key with the lowest rank that is at least `rank`, or NULL. */
const struct wisdom_record *wisdom_list_find(const struct wisdom_list *list, const char *key, uint32_t rank);

/* Drops what has that key. */
void wisdom_list_forget(struct wisdom_list *list, const char *key);

/* ---- a context's ---- */

clattn_status wisdom_init(struct wisdom *wisdom, const char *kernels);
void wisdom_clear(struct wisdom *wisdom);

/* A copy of that record, if there is one. */
bool wisdom_find(struct wisdom *wisdom, const char *key, uint32_t rank, struct advice *advice);

/* Sets the context's wisdom up and reads the file, if the cache has a folder and the folder one: a damaged one is
 * logged and counts as none. */
clattn_status context_wisdom_init(struct clattn_context *context);

/* The key of an operator's shape bucket on this context, which the caller frees, or NULL: no memory. */
char *context_wisdom_key(const struct clattn_context *context, const char *operator_name, const char *bucket);

#endif
