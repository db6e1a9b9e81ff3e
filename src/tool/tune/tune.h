/* What `clattn tune` consists of: the shapes, their jobs, and the search among parameters. */
#ifndef CLATTN_TOOL_TUNE_TUNE_H
#define CLATTN_TOOL_TUNE_TUNE_H

#include "tool/run/device.h"
#include "tool/run/job.h"

/* ---- shapes (tune_shapes.c) ---- */

typedef enum tune_operator { TUNE_ATTENTION, TUNE_MATMUL, TUNE_SOFTMAX, TUNE_LAYERNORM, TUNE_OPERATORS } tune_operator;

typedef struct tune_shape {
    tune_operator operator_index;
    bool causal;        /* attention's */
    clattn_dtype dtype; /* clattn_dtype of every array */
    size_t size[7];     /* as bench's --shape has them */
} tune_shape;

typedef struct tune_operator_info {
    const char *name;
    size_t sizes;
    const char *expected;       /* the sizes' names */
    const char *const *solvers; /* ended by NULL, in no order */
} tune_operator_info;
extern const tune_operator_info tune_operators[TUNE_OPERATORS];

/* What users have, the most frequent first. */
extern const tune_shape tune_shapes[];
extern const size_t tune_shape_count;

/* "attention 1,8,8,1024,1024,64,64 causal bf16". */
#define TUNE_NAME 128
void tune_shape_name(const tune_shape *shape, char name[TUNE_NAME]);

/* Random arrays on the device and the plan of the library's choice.  UNSUPPORTED and others as job_*; *complained
 * where the error line has been written. */
clattn_status tune_job(tool_device *device, const tune_shape *shape, tool_job *job, bool *complained);

/* ---- the search (tune_search.c) ---- */

#define TUNE_TEXT 1024 /* bytes of parameters as text */
#define TUNE_SOLVERS 8

/* A solver at its best. */
typedef struct tune_best {
    const char *solver; /* the table's */
    clattn_plan *plan;
    char text[TUNE_TEXT]; /* parameters that differ from the solver's own choice, "" for none */
    double seconds;       /* median */
} tune_best;

typedef struct tune_outcome {
    tune_best best[TUNE_SOLVERS]; /* best[0] is the fastest; the others in no order */
    size_t count;
    char original[32];       /* the solver that the library chooses untuned */
    double original_seconds; /* median of that choice, taken in turn with best[0]'s */
    double untuned_ratio;    /* CLBlast's untuned time by the best[0] of the own solvers */
    double gain;             /* 0.05: five per cent of the time saved, 0: the untuned choice is kept */
    size_t candidates;       /* measured, the untuned choice among them */
    bool cut;                /* there was no time for all of them */
    uint64_t steps;          /* where the search was cut */
} tune_outcome;

/* Where an earlier search was cut, and what it had found until then.  Zeroed: there was none. */
typedef struct tune_past {
    uint64_t steps;
    char text[TUNE_SOLVERS][TUNE_TEXT]; /* parameters by the solvers' places in the operator's table */
} tune_past;

/* Measures what the solvers have to offer for a job, until os_seconds() is `deadline`.  The job's own plan is the untuned
 * choice.  Release the outcome's plans by tune_outcome_release. */
int tune_search(tool_job *job, const char *const *solvers, const tune_past *past, double deadline,
                tune_outcome *outcome);
void tune_outcome_release(tune_outcome *outcome);

#endif
