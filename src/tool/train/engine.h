/* A model in training on a device: its parameters, a plan for each length, and the batches that are under way.
 *
 * Nothing waits for the device but train_engine_collect: while it computes one batch, the next is enqueued. */
#ifndef CLATTN_TOOL_TRAIN_ENGINE_H
#define CLATTN_TOOL_TRAIN_ENGINE_H

#include <clattn/training.h>

#include "tool/run/device.h"
#include "tool/train/batches.h"
#include "tool/world/world.h"

#define TRAIN_FLIGHT 2 /* batches under way at most */
#define TRAIN_PLANS (3 * TRAIN_BUCKETS)

/* How a batch passes through the model. */
typedef struct train_pass {
    bool evaluation; /* losses alone, without label smoothing and dropout */
    bool accumulate;
    float scale;
    uint64_t seed; /* of dropout */
} train_pass;

/* What has come of a batch. */
typedef struct train_losses {
    double sum; /* of the losses of its labels */
    size_t labels;
} train_losses;

typedef struct train_plan {
    size_t length, rows;
    bool evaluation;
    clattn_plan *plan;
} train_plan;

typedef struct train_slot {
    cl_mem source, target, labels, losses;
    int32_t *host; /* what is copied to the first three, and the lengths of sources and targets */
    float *read;   /* a copy of the losses */
    cl_event event;
    size_t elements, label_count;
} train_slot;

/* The caller zeroes it and sets the first fields.  Close with train_engine_close, before the device is closed. */
typedef struct train_engine {
    tool_device *device;     /* borrowed */
    const text_shape *shape; /* borrowed */
    tool_world *world;       /* borrowed */
    clattn_dtype dtype;      /* float32 or bfloat16 */
    size_t elements;         /* the most of a batch, padding included */
    float dropout, label_smoothing;
    bool recompute;
    clattn_transformer *model;
    clattn_trainer *trainer;
    train_plan plan[TRAIN_PLANS];
    size_t plans;
    cl_mem workspace;
    size_t workspace_bytes;
    train_slot slot[TRAIN_FLIGHT];
    size_t next, flying;
    double compiling; /* seconds that plans took to make */
} train_engine;

/* Makes the model with the weights of `source`; all ranks call it, and agree.  Returns an exit status, as all below. */
int train_engine_open(train_engine *e, const clattn_weight_source *source);

void train_engine_close(train_engine *e);

/* Enqueues a batch of `items`; fewer than TRAIN_FLIGHT are under way. */
int train_engine_enqueue(train_engine *e, const train_items *items, const train_batch *batch, const train_pass *pass);

/* Waits for the oldest batch that is under way. */
int train_engine_collect(train_engine *e, train_losses *losses);

/* Enqueues an update of the parameters, by the gradients of all ranks. */
int train_engine_update(train_engine *e, const clattn_update_args *args);

#endif
