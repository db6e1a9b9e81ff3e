#include "tool/text/text_ranks.h"

#include <stdlib.h>
#include <string.h>

/* A message is its length in numbers, and that many int32: of each text the bits of its score, how many pieces there are, and these. */

static int no_memory(void)
{
    return complain(TOOL_FAILED, "no memory for the texts of other ranks");
}

/* ---- messages ---- */

static int append(vocabulary_ids *message, float score, const vocabulary_ids *ids)
{
    int32_t bits;
    int status;
    memcpy(&bits, &score, sizeof bits);
    TOOL_TRY(vocabulary_append(message, bits));
    TOOL_TRY(vocabulary_append(message, (int32_t)ids->count));
    for (size_t i = 0; i < ids->count; i++)
        TOOL_TRY(vocabulary_append(message, ids->id[i]));
fail:
    return status;
}

/* Reads what `append` has written from number *at on. */
static int take(const vocabulary_ids *message, size_t *at, float *score, vocabulary_ids *ids)
{
    int status = TOOL_DONE;
    if (message->count - *at < 2 || (size_t)message->id[*at + 1] > message->count - *at - 2)
        return complain(TOOL_FAILED, "a message of another rank is damaged");
    memcpy(score, &message->id[*at], sizeof *score);
    const size_t count = (size_t)message->id[*at + 1];
    *at += 2;
    for (size_t i = 0; i < count; i++)
        TOOL_TRY(vocabulary_append(ids, message->id[(*at)++]));
fail:
    return status;
}

static int send(tool_world *world, int32_t to, const vocabulary_ids *message)
{
    const uint64_t count = message->count;
    int status;
    TOOL_TRY(world_exchange(world, to, &count, sizeof count, to, NULL, 0));
    if (count > 0)
        status = world_exchange(world, to, message->id, message->count * sizeof *message->id, to, NULL, 0);
fail:
    return status;
}

/* The caller frees message->id. */
static int receive(tool_world *world, int32_t from, vocabulary_ids *message)
{
    uint64_t count = 0;
    int status;
    *message = (vocabulary_ids){0};
    TOOL_TRY(world_exchange(world, from, NULL, 0, from, &count, sizeof count));
    if (count == 0)
        return status;
    message->id = count <= SIZE_MAX / sizeof *message->id ? malloc((size_t)count * sizeof *message->id) : NULL;
    if (message->id == NULL)
        return no_memory();
    message->count = message->capacity = (size_t)count;
    status = world_exchange(world, from, NULL, 0, from, message->id, message->count * sizeof *message->id);
fail:
    return status;
}

/* ---- the first rank ---- */

/* Sends a rank its row's texts; one without any gets no message. */
static int give(tool_world *world, int32_t rank, const text_item *items, size_t count)
{
    vocabulary_ids message = {0};
    int status = TOOL_DONE;
    for (size_t i = (size_t)(rank / world->columns); i < count; i += world_workers(world))
        TOOL_TRY(append(&message, 0, &items[i].input));
    if (message.count > 0)
        status = send(world, rank, &message);
fail:
    free(message.id);
    return status;
}

/* Receives what has come of a row's texts from the first rank of it. */
static int collect(tool_world *world, size_t row, text_item *items, size_t count)
{
    vocabulary_ids message = {0};
    size_t at = 0;
    int status = TOOL_DONE;
    if (row >= count)
        return status;
    TOOL_TRY(receive(world, (int32_t)row * world->columns, &message));
    for (size_t i = row; i < count; i += world_workers(world))
        TOOL_TRY(take(&message, &at, &items[i].score, &items[i].output));
fail:
    free(message.id);
    return status;
}

/* The first row's texts are copied to a list of their own, and back. */
static int run_own(const tool_world *world, text_generator *generator, text_item *items, size_t count)
{
    const size_t rows = world_workers(world), own = (count + rows - 1) / rows;
    text_item *list = calloc(own + 1, sizeof *list);
    if (list == NULL)
        return no_memory();
    for (size_t i = 0; i < own; i++)
        list[i] = items[i * rows];
    const int status = text_generator_run(generator, list, own);
    for (size_t i = 0; i < own; i++)
        items[i * rows] = list[i];
    free(list);
    return status;
}

int text_ranks_run(tool_world *world, text_generator *generator, text_item *items, size_t count)
{
    int status = TOOL_DONE;
    for (int32_t i = 1; i < world->ranks; i++)
        TOOL_TRY(give(world, i, items, count));
    TOOL_TRY(run_own(world, generator, items, count));
    for (size_t row = 1; row < world_workers(world); row++)
        TOOL_TRY(collect(world, row, items, count));
fail:
    return status;
}

int text_ranks_end(tool_world *world)
{
    const vocabulary_ids nothing = {0};
    int status = TOOL_DONE;
    for (int32_t i = 1; i < world->ranks; i++)
        TOOL_TRY(send(world, i, &nothing));
fail:
    return status;
}

/* ---- the others ---- */

static void release(text_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(items[i].input.id);
        free(items[i].output.id);
    }
    free(items);
}

/* Reads the texts of a message, and writes what comes of them to another one. */
static int answer(text_generator *generator, const vocabulary_ids *message, vocabulary_ids *reply)
{
    size_t count = 0;
    int status = TOOL_DONE;
    text_item *items = calloc(message->count, sizeof *items); /* a text has two numbers or more */
    if (items == NULL)
        return no_memory();
    for (size_t at = 0; at < message->count;) {
        text_item *item = &items[count++];
        TOOL_TRY(take(message, &at, &item->score, &item->input));
    }
    TOOL_TRY(text_generator_run(generator, items, count));
    for (size_t i = 0; i < count; i++)
        TOOL_TRY(append(reply, items[i].score, &items[i].output));
fail:
    release(items, count);
    return status;
}

int text_ranks_serve(tool_world *world, text_generator *generator)
{
    vocabulary_ids message = {0}, reply = {0};
    int status;
    for (;;) {
        TOOL_TRY(receive(world, 0, &message));
        if (message.count == 0)
            break;
        reply.count = 0;
        TOOL_TRY(answer(generator, &message, &reply));
        if (world->rank % world->columns == 0 && world_worker(world) > 0) /* the others of its row have made the same */
            TOOL_TRY(send(world, 0, &reply));
        free(message.id);
        message = (vocabulary_ids){0};
    }
fail:
    free(message.id);
    free(reply.id);
    return status;
}
