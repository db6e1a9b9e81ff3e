/** @file
 * Tuning: the parameters of a plan's geometry, and wisdom, which is what measurements have found to be best.
 *
 * A solver's cost model chooses each plan's geometry: how many rows a register tile has, how many keys are taken at a
 * time. `clattn tune` measures other choices and other solvers and keeps the best as wisdom: records that later plans
 * follow if they are of the same shape bucket (lengths by powers of two; exact head sizes, types and options) on the
 * same device, with the same driver and the same kernels.
 *
 * Wisdom changes how fast a result comes and, within rounding, nothing else. Whatever is wrong with it, a plan is made
 * as if there were none, and clattn_plan_explain says so.
 *
 * A context has wisdom of its own. It reads the file "wisdom" from the folder of the kernel cache
 * (clattn_context_cache_dir) when it is made. If the cache is off, there is no file; a file that is damaged or not
 * this user's own counts as none. An application whose own callbacks replace the cache imports and exports its wisdom
 * itself.
 *
 * The text is lines: "clattn-wisdom 1", then one record a line: device, driver, digest of the kernels, operator, shape
 * bucket, solver, rank (0: the best of its bucket), nanoseconds, and the parameters as name=value. Records of other
 * devices, drivers, kernels or solvers are kept and ignored, such as the one with which `clattn tune` notes where its
 * search is to go on. The text is read with suspicion, because it may come from anywhere: no text makes a plan wrong or
 * unsafe or makes it fail; a text can only make a plan slow.
 *
 * Any thread may call every function of this header at any time, even while plans are made: each plan sees the wisdom
 * of one moment. Plans that exist keep their geometry. The cached plans of the one-call forms are dropped when wisdom
 * changes.
 */
#ifndef CLATTN_TUNING_H
#define CLATTN_TUNING_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** One number of a plan's geometry, and what else it may be. Strings and arrays live as long as the plan. */
typedef struct clattn_plan_parameter {
    size_t size;          /**< sizeof(clattn_plan_parameter), set by the caller */
    const char *name;     /**< its name, such as "rows" */
    int32_t value;        /**< what the plan has */
    int32_t reserved;     /* 0 */
    size_t allowed_count; /**< how many values clattn_plan_options.tuning may give it */
    /** These values, in no order. The solver may refuse some combinations with other parameters. */
    const int32_t *allowed;
} clattn_plan_parameter;

/** Returns how many parameters the plan's solver has for its problem; 0 if nothing can be tuned, or for a NULL
 * `plan`. */
CLATTN_API size_t clattn_plan_parameter_count(const clattn_plan *plan);

/** Fills *parameter with parameter `index` of `plan`; `parameter->size` must be set.
 *
 * @return INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_plan_parameter_info(const clattn_plan *plan, size_t index,
                                                    clattn_plan_parameter *parameter);

/** Copies the wisdom of `context` into `buffer` of `capacity` bytes, without a terminator, and its length into *bytes.
 *
 * If `capacity` is 0, only the length is told. The call blocks no longer than copying takes.
 *
 * @return INVALID_ARGUMENT, OUT_OF_MEMORY, FORKED, or BUFFER_TOO_SMALL: nothing was copied, and *bytes says what it
 * takes. */
CLATTN_API clattn_status clattn_wisdom_export(clattn_context *context, char *buffer, size_t capacity, size_t *bytes);

/** Adds the records of `text`, `bytes` bytes, to the wisdom of `context`.
 *
 * A record replaces the one for the same shape bucket and solver. Either all records are added or none, unless memory runs
 * out. *records becomes how many there were; `records` may be NULL. The text is read during the call only.
 *
 * @return FORMAT (the message names the line), INVALID_ARGUMENT, OUT_OF_MEMORY or FORKED. */
CLATTN_API clattn_status clattn_wisdom_import(clattn_context *context, const char *text, size_t bytes, size_t *records);

/** Drops all records of `context`; the file stays.
 *
 * @return INVALID_ARGUMENT or FORKED. */
CLATTN_API clattn_status clattn_wisdom_clear(clattn_context *context);

/** Records that the solver and the parameters of `plan` come `rank`th for the plan's shape bucket.
 *
 * Rank 0 is the best, and 7 the last. Rank 0 drops the bucket's other records first, so record the best first.
 * `nanoseconds` is how long the plan takes; only clattn_plan_explain shows it.
 *
 * @return INVALID_ARGUMENT (the rank is too large, or the plan's operator is not tuned), OUT_OF_MEMORY or FORKED. */
CLATTN_API clattn_status clattn_wisdom_learn(clattn_plan *plan, uint32_t rank, uint64_t nanoseconds);

/** Drops the context's records for the shape bucket of `plan`.
 *
 * @return INVALID_ARGUMENT or FORKED. */
CLATTN_API clattn_status clattn_wisdom_forget(clattn_plan *plan);

/** Returns what the records for the shape bucket of `plan` begin with in the text: device, driver, kernels, operator and
 * bucket. NULL if the plan's operator is not tuned, or for a NULL `plan`.
 *
 * The string lives as long as the plan. */
CLATTN_API const char *clattn_wisdom_key(const clattn_plan *plan);

/** What clattn_wisdom_save does with records that the file has and the context has not. */
typedef enum clattn_wisdom_mode {
    CLATTN_WISDOM_MODE_MERGE = 0,   /**< they stay in the file */
    CLATTN_WISDOM_MODE_REPLACE = 1, /**< they go: the file then has the context's records and no others */
    CLATTN_WISDOM_MODE_FORCE_32BIT = 0x7fffffff
} clattn_wisdom_mode;

/** Writes the records of `context` to the file that contexts read; `mode` says what becomes of the file's others.
 * Readers see the old file or the new one.
 *
 * @return INVALID_ARGUMENT, OUT_OF_MEMORY, FORKED, UNSUPPORTED (there is no folder; the message says why) or IO. */
CLATTN_API clattn_status clattn_wisdom_save(clattn_context *context, clattn_wisdom_mode mode);

CLATTN_END_DECLS

#endif
