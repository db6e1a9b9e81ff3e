/* The batches in which a model sees its items.
 *
 * Items belong to a bucket by the longer of their two sides, so that a batch is padded to one of a few lengths and has about
 * as many tokens as any other.  An epoch has all items once: the items of a bucket are shuffled and cut into batches, and the
 * batches of all buckets are shuffled.  The seed and the epoch alone decide, so one number, which batch it is from the first
 * epoch on, is a place in the data. */
#ifndef CLATTN_TOOL_TRAIN_BATCHES_H
#define CLATTN_TOOL_TRAIN_BATCHES_H

#include "tool/train/corpus.h"

#define TRAIN_BUCKETS 24

typedef struct train_batch {
    const size_t *item; /* indices; valid until another epoch is asked for */
    size_t count;       /* at most `rows` */
    size_t length;      /* what sources and targets are padded to */
    size_t rows;        /* items that a batch of this length has room for */
    size_t labels;      /* pieces that are predicted */
    size_t tokens;      /* pieces of sources and targets */
} train_batch;

typedef struct train_cut {
    size_t first, count, bucket;
} train_cut;

/* A zeroed one is empty. */
typedef struct train_batches {
    const train_items *items; /* borrowed */
    bool shuffled;
    uint64_t seed, epoch;
    size_t tokens;                /* that a batch has at most, padding included, if an item is not longer */
    size_t length[TRAIN_BUCKETS]; /* of the buckets, rising */
    size_t first[TRAIN_BUCKETS + 1];
    size_t buckets;
    size_t *sorted, *order; /* the items by bucket, and the epoch's order of them */
    train_cut *cut;
    size_t count; /* batches of an epoch */
} train_batches;

/* Returns an exit status; the caller calls train_batches_release in any case.  Without `shuffled`, each epoch has the items
 * from short to long. */
int train_batches_make(const train_items *items, size_t tokens, size_t longest, bool shuffled, uint64_t seed,
                       train_batches *batches);

void train_batches_release(train_batches *batches);

/* The batch at `position`, from 0. */
train_batch train_batch_at(train_batches *batches, uint64_t position);

#endif
