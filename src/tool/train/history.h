/* How far a training has come, and its losses so far. */
#ifndef CLATTN_TOOL_TRAIN_HISTORY_H
#define CLATTN_TOOL_TRAIN_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAIN_MOST_PARTS 65536 /* batches of a step */

typedef struct train_curve {
    float *value;
    size_t count, capacity;
} train_curve;

/* A zeroed one is at the beginning.  The caller calls train_history_release. */
typedef struct train_history {
    uint64_t step, position; /* updates, and batches of the data, so far */
    uint64_t seed;
    uint64_t data;         /* train_items_digest */
    uint64_t batch, parts; /* tokens of a batch, and batches of a step */
    uint64_t best_step;    /* of the least validation loss; 0: there is none yet */
    uint64_t since_best;   /* validations since */
    double best;           /* that loss */
    train_curve losses;    /* of each step: the mean of its labels */
    train_curve checks;    /* two numbers for each validation: its step and its loss */
} train_history;

bool train_curve_add(train_curve *curve, float value);

void train_history_release(train_history *history);

/* Writes the losses as an SVG picture, whole or not at all.  Returns an exit status. */
int train_history_draw(const train_history *history, const char *path);

#endif
