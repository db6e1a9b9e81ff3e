#include "tool/train/batches.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/size.h"
#include "tool/tool.h"

#define NOT_YET UINT64_MAX /* an epoch */
#define MOST_ROWS 65536    /* of a plan */

static size_t longer_side(const train_items *items, size_t index)
{
    return size_max(items->item[index].source, items->item[index].target);
}

/* Lengths 8, 16, 24, 32, 48, 64, 96 ... and the longest. */
static void make_lengths(train_batches *b, size_t longest)
{
    size_t length = 8;
    while (length < longest && b->buckets < TRAIN_BUCKETS - 1) {
        b->length[b->buckets++] = length;
        length = length < 32 ? length + 8 : (length & (length - 1)) == 0 ? length / 2 * 3 : length / 3 * 4;
    }
    b->length[b->buckets++] = longest;
}

static size_t bucket_of(const train_batches *b, size_t length)
{
    size_t bucket = 0;
    while (length > b->length[bucket])
        bucket++;
    return bucket;
}

static size_t rows_of(const train_batches *b, size_t bucket)
{
    return size_min(size_max(b->tokens / b->length[bucket], 1), MOST_ROWS);
}

/* Sorts the items by bucket, and otherwise leaves them in their order. */
static void sort(train_batches *b)
{
    size_t at[TRAIN_BUCKETS];
    for (size_t i = 0; i < b->items->count; i++)
        b->first[bucket_of(b, longer_side(b->items, i)) + 1]++;
    for (size_t i = 0; i < b->buckets; i++)
        b->first[i + 1] += b->first[i];
    memcpy(at, b->first, b->buckets * sizeof *at);
    for (size_t i = 0; i < b->items->count; i++)
        b->sorted[at[bucket_of(b, longer_side(b->items, i))]++] = i;
}

/* A number below `limit`; the same arguments give the same one. */
static size_t draw(const train_batches *b, size_t counter, uint32_t stream, size_t limit)
{
    uint32_t c[4] = {(uint32_t)counter, stream, (uint32_t)b->epoch, (uint32_t)(b->epoch >> 32)};
    philox(c, b->seed);
    const uint64_t word = (uint64_t)c[1] << 32 | c[0];
    return (size_t)(word % limit);
}

static void make_epoch(train_batches *b, uint64_t epoch)
{
    size_t count = 0;
    b->epoch = epoch;
    memcpy(b->order, b->sorted, b->items->count * sizeof *b->order);
    for (size_t bucket = 0; bucket < b->buckets; bucket++) {
        size_t *order = b->order + b->first[bucket];
        const size_t items = b->first[bucket + 1] - b->first[bucket], rows = rows_of(b, bucket);
        for (size_t i = items; b->shuffled && i > 1; i--) {
            const size_t other = draw(b, i, (uint32_t)bucket, i), kept = order[i - 1];
            order[i - 1] = order[other];
            order[other] = kept;
        }
        for (size_t i = 0; i < items; i += rows)
            b->cut[count++] = (train_cut){b->first[bucket] + i, size_min(rows, items - i), bucket};
    }
    for (size_t i = count; b->shuffled && i > 1; i--) {
        const size_t other = draw(b, i, TRAIN_BUCKETS, i);
        const train_cut kept = b->cut[i - 1];
        b->cut[i - 1] = b->cut[other];
        b->cut[other] = kept;
    }
}

int train_batches_make(const train_items *items, size_t tokens, size_t longest, bool shuffled, uint64_t seed,
                       train_batches *b)
{
    *b = (train_batches){.items = items, .shuffled = shuffled, .seed = seed, .epoch = NOT_YET, .tokens = tokens};
    make_lengths(b, longest);
    b->sorted = calloc(items->count + 1, sizeof *b->sorted);
    b->order = calloc(items->count + 1, sizeof *b->order);
    if (b->sorted != NULL)
        sort(b);
    for (size_t i = 0; i < b->buckets; i++)
        b->count += (b->first[i + 1] - b->first[i] + rows_of(b, i) - 1) / rows_of(b, i);
    b->cut = calloc(b->count + 1, sizeof *b->cut);
    if (b->sorted == NULL || b->order == NULL || b->cut == NULL)
        return complain(TOOL_FAILED, "train: no memory for the order of the texts");
    return TOOL_DONE;
}

void train_batches_release(train_batches *b)
{
    free(b->sorted);
    free(b->order);
    free(b->cut);
    *b = (train_batches){0};
}

train_batch train_batch_at(train_batches *b, uint64_t position)
{
    const uint64_t epoch = position / b->count;
    if (epoch != b->epoch)
        make_epoch(b, epoch);
    const train_cut cut = b->cut[position % b->count];
    train_batch batch = {.item = b->order + cut.first,
                         .count = cut.count,
                         .length = b->length[cut.bucket],
                         .rows = rows_of(b, cut.bucket)};
    for (size_t i = 0; i < batch.count; i++) {
        const train_item *item = &b->items->item[batch.item[i]];
        batch.labels += item->target;
        batch.tokens += item->source + item->target;
    }
    return batch;
}
