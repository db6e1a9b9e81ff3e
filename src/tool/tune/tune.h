/* The parts of `clattn tune`: the shapes, their jobs, and the search among parameters. */
#ifndef CLATTN_TOOL_TUNE_TUNE_H
#define CLATTN_TOOL_TUNE_TUNE_H

#include "tool/run/device.h"
#include "tool/run/job.h"

/* ---- shapes (shapes.c) ---- */

typedef enum tune_operator { TUNE_ATTENTION, TUNE_MATMUL, TUNE_SOFTMAX, TUNE_LAYERNORM, TUNE_OPERATORS } tune_operator;

typedef struct tune_shape {
    tune_operator operator_index;
    bool causal;        /* for attention */
    clattn_dtype dtype; /* clattn_dtype of every array */
    size_t size[7];     /* in the order of bench's --shape */
} tune_shape;

typedef struct tune_operator_info {
    const char *name;
    size_t sizes;
    const char *expected;       /* the sizes' names */
    const char *const *solvers; /* ended by NULL, in no order */

    /* Makes random arrays on the device and the plan of the library's choice: *made is UNSUPPORTED and other statuses as
     * job_* return them.  An exit status. */
    int (*make_job)(tool_device *device, const struct tune_shape *shape, tool_job *job, clattn_status *made);
} tune_operator_info;
extern const tune_operator_info tune_operators[TUNE_OPERATORS];

/* The shapes that users have, the most frequent first. */
extern const tune_shape tune_shapes[];
extern const size_t tune_shape_count;

/* Writes the shape's name: "attention 1,8,8,1024,1024,64,64 causal bf16". */
#define TUNE_NAME 128
void tune_shape_name(const tune_shape *shape, char name[TUNE_NAME]);

/* ---- the search (search.c) ---- */

#define TUNE_TEXT 1024 /* bytes of parameters as text */
#define TUNE_SOLVERS 8

/* The best plan of one solver. */
typedef struct tune_best {
    const char *solver; /* the name in the solver table */
    clattn_plan *plan;
    char text[TUNE_TEXT]; /* parameters that differ from the solver's own choice, "" for none */
    double seconds;       /* median */
} tune_best;

typedef struct tune_outcome {
    tune_best best[TUNE_SOLVERS]; /* best[0] is the fastest; the others in no order */
    size_t count;
    char original[32];       /* the solver that the library chooses untuned */
    double original_seconds; /* median of that choice, run in turn with best[0] */
    double gain;             /* 0.05: five per cent of the time saved; 0: the untuned choice stays */
    size_t candidates;       /* candidates measured, with the untuned choice */
    bool cut;                /* time ran out before all were measured */
    uint64_t steps;          /* the step at which time ran out */
} tune_outcome;

/* The step at which an earlier search ran out of time, and what it had found.  Zeroed if there was none. */
typedef struct tune_past {
    uint64_t steps;
    char text[TUNE_SOLVERS][TUNE_TEXT]; /* parameters, indexed by the solver's place in its table */
} tune_past;

/* Measures the solvers' parameters for a job, until os_seconds() is `deadline`.  The job's own plan is the untuned
 * choice.  Release the outcome's plans with tune_outcome_release. */
int tune_search(tool_job *job, const char *const *solvers, const tune_past *past, double deadline,
                tune_outcome *outcome);
void tune_outcome_release(tune_outcome *outcome);

#endif
