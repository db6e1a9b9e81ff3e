/* The loop of training: steps, validations, and what is kept of them. */
#ifndef CLATTN_TOOL_TRAIN_LOOP_H
#define CLATTN_TOOL_TRAIN_LOOP_H

#include "tool/train/checkpoint.h"

typedef enum train_schedule {
    TRAIN_SCHEDULE_PAPER, /* factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) */
    TRAIN_SCHEDULE_COSINE /* the same up to its peak, and then half a cosine down to 0 at the last step */
} train_schedule;

typedef struct train_rule {
    uint64_t steps;  /* the last one */
    double until;    /* os_seconds at which to stop; 0: no limit */
    double started;  /* os_seconds */
    size_t warmup;   /* steps */
    size_t every;    /* steps from one validation and checkpoint to the next */
    size_t patience; /* validations without a better loss before training ends; 0: it does not */
    size_t parts;    /* batches of a step */
    train_schedule schedule;
    float factor, clip, weight_decay;
    uint64_t seed;
} train_rule;

/* Why training has ended. */
typedef enum train_end { TRAIN_END_STEPS, TRAIN_END_TIME, TRAIN_END_PATIENCE, TRAIN_END_SIGNAL } train_end;

/* The caller zeroes it and sets the first fields. */
typedef struct train_run {
    const char *folder;
    const train_rule *rule;
    train_engine *engine;
    train_history *history;
    train_batches *batches, *checks; /* of training and validation; no batches of the latter: none is made */
    double check_seconds;            /* of the last validation */
    double seconds;                  /* of steps alone */
    uint64_t tokens;                 /* of these steps */
    double check_loss;               /* of the last validation; NaN: there was none */
    uint64_t first_step;             /* how many there were before */
    train_losses taken;              /* of the step whose losses are being taken */
    size_t taken_batches;
    train_end end;
} train_run;

/* Trains until the rule says that it ends, or until a signal, and writes the model's files.  Returns an exit status. */
int train_loop(train_run *run);

/* The learning rate of a step, from 1. */
float train_rate(const train_rule *rule, size_t d_model, uint64_t step);

#endif
