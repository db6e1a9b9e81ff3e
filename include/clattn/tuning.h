/* Tuning: the parameters of a plan's geometry, and wisdom, what measurements have found to be best.
 *
 * A solver's cost model chooses each plan's geometry: how many rows a register tile has, how many keys are taken at a
 * time.  `clattn tune` measures other choices, and other solvers, and keeps the best as wisdom: records that later plans
 * of the same class (lengths by powers of two, exact head sizes, types and options) on the same device, with the same
 * driver and the same kernels, follow.  Wisdom changes how fast a result comes and, within rounding, nothing else;
 * whatever is wrong with it, a plan is made as if there were none, and clattn_plan_explain says so. */
#ifndef CLATTN_TUNING_H
#define CLATTN_TUNING_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/* ---- parameters ---- */

/* One number of a plan's geometry, and what else it may be.  Strings and arrays live as long as the plan. */
typedef struct clattn_plan_parameter {
    size_t size;      /* sizeof(clattn_plan_parameter), set by the caller */
    const char *name; /* "rows" */
    int32_t value;    /* the plan's */
    int32_t reserved;
    size_t allowed_count;   /* of what clattn_plan_options.tuning may give, */
    const int32_t *allowed; /* in no order; not every combination is one that the solver takes */
} clattn_plan_parameter;

/* How many parameters the plan's solver has for its problem; 0: there is nothing to tune, or plan is NULL. */
CLATTN_API size_t clattn_plan_parameter_count(const clattn_plan *plan);

/* Parameter `index`.  Returns INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_plan_parameter_info(const clattn_plan *plan, size_t index,
                                                    clattn_plan_parameter *parameter);

/* ---- wisdom ----
 *
 * A context has its own, read when it is made from the file "wisdom" in the folder of the kernel cache
 * (clattn_context_cache_dir), where that is on; a file that is damaged or not this user's own counts as none.  With an
 * application's own callbacks for the cache there is no file: import and export.
 *
 * All functions may be called from any thread at any time, plans being made or not: each plan sees the wisdom of one
 * moment.  Plans that exist keep their geometry; the one-call forms' cached plans are dropped where wisdom changes.
 *
 * The text is lines: "clattn-wisdom 1", then a record each: device, driver, digest of the kernels, operator, class,
 * solver, rank (0: the best of its class), nanoseconds, and the parameters as name=value; or, with "-" for the solver,
 * the steps of a search that is to go on.  Records of other devices, drivers or kernels are kept and ignored.  It is read
 * with suspicion: it may come from anywhere, and no text makes a plan wrong, unsafe or fail; it can only make it slow. */

/* Copies the text into `buffer` of `capacity` bytes, without a terminator, and its length into *bytes; with
 * capacity 0 only that.  Blocks for no longer than copying takes.  Returns INVALID_ARGUMENT, OUT_OF_MEMORY, FORKED, or
 * BUFFER_TOO_SMALL (then *bytes says what it takes, and nothing was copied). */
CLATTN_API clattn_status clattn_wisdom_export(clattn_context *context, char *buffer, size_t capacity, size_t *bytes);

/* Adds the records of a text of `bytes` bytes, which is read during the call only, to the context's; one for the same
 * class and solver is replaced.  All or nothing, but where memory runs out.  *records (may be NULL): how many there
 * were.  Returns FORMAT (the message names the line), INVALID_ARGUMENT, OUT_OF_MEMORY or FORKED. */
CLATTN_API clattn_status clattn_wisdom_import(clattn_context *context, const char *text, size_t bytes, size_t *records);

/* Drops the context's records; the file stays.  Returns INVALID_ARGUMENT or FORKED. */
CLATTN_API clattn_status clattn_wisdom_clear(clattn_context *context);

/* Records that the plan's solver with the plan's parameters comes `rank`th (0: best, at most 7) for the plan's class,
 * and how long it takes, for explain alone.  Rank 0 drops the class's other records first: say the best first.
 * Returns INVALID_ARGUMENT (rank too large, plan of an operator that is not tuned), OUT_OF_MEMORY or FORKED. */
CLATTN_API clattn_status clattn_wisdom_learn(clattn_plan *plan, uint32_t rank, uint64_t nanoseconds);

/* Drops the context's records for the plan's class.  Returns INVALID_ARGUMENT or FORKED. */
CLATTN_API clattn_status clattn_wisdom_forget(clattn_plan *plan);

/* Whether there is a record for the plan's class, on its device and with its kernels. */
CLATTN_API int clattn_wisdom_knows(const clattn_plan *plan);

/* Copies the parameters of the record for `solver` and the plan's class into `text` of `capacity` bytes, as
 * clattn_plan_options.tuning takes them; "" where there is no such record.  Returns INVALID_ARGUMENT, BUFFER_TOO_SMALL
 * (nothing was copied), OUT_OF_MEMORY or FORKED. */
CLATTN_API clattn_status clattn_wisdom_recall(const clattn_plan *plan, const char *solver, char *text, size_t capacity);

/* Notes that the search for what is best in the plan's class was left after `steps` steps, in the searcher's own count,
 * and is to go on from there.  Learning rank 0 and forgetting drop the note: pause last.  Plans do not heed it.  Returns
 * INVALID_ARGUMENT (steps 0 or above 2^63 - 1, plan of an operator that is not tuned), OUT_OF_MEMORY or FORKED. */
CLATTN_API clattn_status clattn_wisdom_pause(clattn_plan *plan, uint64_t steps);

/* The steps of that note; 0 where there is none. */
CLATTN_API uint64_t clattn_wisdom_paused(const clattn_plan *plan);

typedef enum clattn_wisdom_mode {
    CLATTN_WISDOM_MODE_MERGE = 0,   /* records that the file has and the context has not stay in the file */
    CLATTN_WISDOM_MODE_REPLACE = 1, /* the file then has the context's records and no others */
    CLATTN_WISDOM_MODE_FORCE_32BIT = 0x7fffffff
} clattn_wisdom_mode;

/* Writes the context's records to the file that contexts read.  Readers see the old file or the new one.  Returns
 * INVALID_ARGUMENT, OUT_OF_MEMORY, FORKED, UNSUPPORTED (there is no folder; the message says why) or IO. */
CLATTN_API clattn_status clattn_wisdom_save(clattn_context *context, clattn_wisdom_mode mode);

CLATTN_END_DECLS

#endif
