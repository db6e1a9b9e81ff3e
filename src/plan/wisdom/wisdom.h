/* Wisdom: a context's record of what measurements found to be best; clattn/tuning.h has the contract.
 *
 * A record is a line, "KEY SOLVER RANK NANOSECONDS [NAME=VALUE ...]", whose key is "DEVICE DRIVER KERNELS OPERATOR
 * BUCKET".  Tokens contain no blanks; names are percent-encoded.  Records are stored as their lines. */
#ifndef CLATTN_PLAN_WISDOM_WISDOM_H
#define CLATTN_PLAN_WISDOM_WISDOM_H

#include "base/os/os_threads.h"
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

/* A line that has been checked, without its end. */
struct wisdom_record {
    char *line;
    size_t key;    /* bytes of the key */
    size_t solver; /* bytes of the solver's name, which follows the key and a blank */
    uint32_t rank;
};

/* Records, oldest first; zeroed if there are none. */
struct wisdom_list {
    struct wisdom_record *record;
    size_t count, capacity;
};

struct wisdom {
    mtx_t lock; /* guards the list */
    struct wisdom_list list;
    char kernels[WISDOM_KERNELS]; /* KERNELS of a key: the library's version and its kernels' digest */
};

/* The parts of a record, except its key. */
struct advice {
    char solver[WISDOM_SOLVER];
    uint32_t rank;
    uint64_t nanoseconds;
    struct settings settings;
};

/* ---- the text (text.c) ---- */

/* Appends `text` as one token of at most `most` of its bytes: other characters than letters, digits and ._+:,()@-
 * become %XX; an empty text becomes "-". */
void wisdom_token(struct strbuf *key, const char *text, size_t most);

/* Reads a text into an empty list.  Returns FORMAT with *line (from 1) and a static *reason, or OUT_OF_MEMORY. */
clattn_status wisdom_parse(const char *text, size_t bytes, struct wisdom_list *list, size_t *line, const char **reason);

/* Appends all lines, the heading first. */
void wisdom_write(const struct wisdom_list *list, struct strbuf *text);

/* Splits a record of the list into its parts; never fails, because the line has been checked. */
void wisdom_read(const struct wisdom_record *record, struct advice *advice);

/* ---- lists (wisdom.c) ---- */

void wisdom_list_clear(struct wisdom_list *list);

/* Adds a line that is known to be well formed, or replaces the record with its key and solver.  The list takes the
 * line over, even if memory runs out (false), and drops the oldest record above WISDOM_RECORDS. */
bool wisdom_list_add(struct wisdom_list *list, struct wisdom_record record);

/* Finds the record of that key with the lowest rank that is at least `rank`, or NULL. */
const struct wisdom_record *wisdom_list_find(const struct wisdom_list *list, const char *key, uint32_t rank);

/* Drops all records with that key. */
void wisdom_list_forget(struct wisdom_list *list, const char *key);

/* ---- a context's wisdom ---- */

clattn_status wisdom_init(struct wisdom *wisdom, const char *kernels);
void wisdom_clear(struct wisdom *wisdom);

/* Copies the parts of the record that wisdom_list_find finds; false if there is none. */
bool wisdom_find(struct wisdom *wisdom, const char *key, uint32_t rank, struct advice *advice);

/* Sets up the context's wisdom and reads the file, if the cache has a folder that contains one.  A damaged file is
 * logged and ignored. */
clattn_status context_wisdom_init(struct clattn_context *context);

/* The key of an operator's shape bucket on this context, which the caller frees, or NULL: no memory. */
char *context_wisdom_key(const struct clattn_context *context, const char *operator_name, const char *bucket);

#endif
