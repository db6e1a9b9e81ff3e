/* Groups of threads of one process: what a rank sends waits in a list until the rank that it is for copies it. */
#include "clattn/group.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/os/os_threads.h"

#define DEFAULT_TIMEOUT_MS 60000

enum post_state { POST_WAITS, POST_IS_COPIED, POST_IS_TAKEN, POST_IS_REFUSED };

/* What a rank sends. */
struct post {
    struct post *next;
    const void *data;
    size_t bytes, number; /* the number counts what this rank sends to the same one */
    enum post_state state;
    size_t expected; /* if it is refused: the bytes that the other rank expects */
};

/* What one rank sends to another one. */
struct lane {
    struct post *posts;
    size_t sent, received; /* exchanges that have been started */
};

struct clattn_group_local {
    mtx_t lock;
    cnd_t changed;
    int32_t ranks;
    uint32_t timeout_ms;
    struct lane *lanes; /* [from * ranks + to] */
    struct rank {
        struct clattn_group_local *group;
        int32_t rank;
        bool gave_up; /* one of its waits has failed since it last started an exchange */
    } *rank;
};

/* An exchange that has been started. */
struct request {
    struct post post;
    clattn_group_exchange exchange;
    size_t number; /* of what is received */
};

static struct lane *lane_of(const struct clattn_group_local *group, int32_t from, int32_t to)
{
    return &group->lanes[(size_t)from * (size_t)group->ranks + (size_t)to];
}

static clattn_status start(void *user, const clattn_group_exchange *exchange, void **result,
                           char message[CLATTN_GROUP_MESSAGE])
{
    struct rank *self = user;
    struct clattn_group_local *group = self->group;
    if (exchange->to < 0 || exchange->to >= group->ranks || exchange->from < 0 || exchange->from >= group->ranks) {
        snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d exchanges with ranks %d and %d of %d", (int)self->rank,
                 (int)exchange->to, (int)exchange->from, (int)group->ranks);
        return CLATTN_ERROR_INVALID_ARGUMENT;
    }
    struct request *request = calloc(1, sizeof *request);
    if (!request) {
        snprintf(message, CLATTN_GROUP_MESSAGE, "no memory for an exchange");
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    self->gave_up = false;
    request->exchange = *exchange;
    request->post.data = exchange->send;
    request->post.bytes = exchange->send_bytes;
    mtx_lock(&group->lock);
    struct lane *out = lane_of(group, self->rank, exchange->to), *in = lane_of(group, exchange->from, self->rank);
    request->post.number = out->sent++;
    request->number = in->received++;
    request->post.next = out->posts;
    out->posts = &request->post;
    cnd_broadcast(&group->changed);
    mtx_unlock(&group->lock);
    *result = request;
    return CLATTN_SUCCESS;
}

static struct post *find(const struct lane *lane, size_t number)
{
    struct post *post = lane->posts;
    while (post && post->number != number)
        post = post->next;
    return post;
}

/* Waits for a change until `end`; false if that has passed.  The lock is held. */
static bool wait_until(struct clattn_group_local *group, uint64_t end)
{
    const uint64_t now = os_time();
    if (now >= end)
        return false;
    cnd_wait_seconds(&group->changed, &group->lock, (double)(end - now) * 1e-9);
    return true;
}

static clattn_status no_answer(const struct clattn_group_local *group, int32_t from, char message[CLATTN_GROUP_MESSAGE])
{
    snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d did not answer within %u ms", (int)from,
             (unsigned)group->timeout_ms);
    return CLATTN_ERROR_GROUP;
}

/* Copies what the other rank sends, once it is there.  A rank that refuses what it is sent sends no more.  The lock is held, but not
 * while bytes are copied. */
static clattn_status receive(struct clattn_group_local *group, int32_t rank, const struct request *request,
                             uint64_t end, char message[CLATTN_GROUP_MESSAGE])
{
    const clattn_group_exchange *exchange = &request->exchange;
    struct post *post;
    while (!(post = find(lane_of(group, exchange->from, rank), request->number)) &&
           request->post.state != POST_IS_REFUSED)
        if (!wait_until(group, end))
            return no_answer(group, exchange->from, message);
    if (!post)
        return CLATTN_SUCCESS;
    if (post->bytes != exchange->receive_bytes) {
        post->state = POST_IS_REFUSED;
        post->expected = exchange->receive_bytes;
        cnd_broadcast(&group->changed);
        snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d sent %zu bytes, expected %zu", (int)exchange->from,
                 post->bytes, exchange->receive_bytes);
        return CLATTN_ERROR_GROUP;
    }
    post->state = POST_IS_COPIED;
    mtx_unlock(&group->lock);
    if (post->bytes)
        memcpy(exchange->receive, post->data, post->bytes);
    mtx_lock(&group->lock);
    post->state = POST_IS_TAKEN;
    cnd_broadcast(&group->changed);
    return CLATTN_SUCCESS;
}

/* Waits until what was sent has been taken.  The lock is held. */
static clattn_status send(struct clattn_group_local *group, const struct request *request, uint64_t end,
                          char message[CLATTN_GROUP_MESSAGE])
{
    const struct post *post = &request->post;
    while (post->state == POST_WAITS)
        if (!wait_until(group, end))
            return no_answer(group, request->exchange.to, message);
    if (post->state == POST_IS_REFUSED) {
        snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d expected %zu bytes, got %zu", (int)request->exchange.to,
                 post->expected, post->bytes);
        return CLATTN_ERROR_GROUP;
    }
    return CLATTN_SUCCESS;
}

static clattn_status finish(void *user, void *given, char message[CLATTN_GROUP_MESSAGE])
{
    struct rank *self = user;
    struct clattn_group_local *group = self->group;
    struct request *request = given;
    const uint64_t end = self->gave_up ? 0 : os_time() + (uint64_t)group->timeout_ms * 1000000;
    mtx_lock(&group->lock);
    clattn_status status = receive(group, self->rank, request, end, message);
    if (status == CLATTN_SUCCESS)
        status = send(group, request, end, message);
    while (request->post.state == POST_IS_COPIED) /* nobody may read it any more when it goes */
        cnd_wait(&group->changed, &group->lock);
    struct post **link = &lane_of(group, self->rank, request->exchange.to)->posts;
    while (*link != &request->post)
        link = &(*link)->next;
    *link = request->post.next;
    mtx_unlock(&group->lock);
    free(request);
    self->gave_up |= status != CLATTN_SUCCESS;
    return status;
}

clattn_status clattn_group_local_create(int32_t ranks, uint32_t timeout_ms, clattn_group_local **local)
{
    if (!local)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *local = NULL;
    if (ranks < 1)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    const size_t count = (size_t)ranks;
    clattn_group_local *group = calloc(1, sizeof *group);
    if (group) {
        group->lanes = count <= SIZE_MAX / count ? calloc(count * count, sizeof *group->lanes) : NULL;
        group->rank = calloc(count, sizeof *group->rank);
    }
    if (!group || !group->lanes || !group->rank || mtx_init(&group->lock, mtx_plain) != thrd_success)
        goto fail;
    if (cnd_init(&group->changed) != thrd_success) {
        mtx_destroy(&group->lock);
        goto fail;
    }
    group->ranks = ranks;
    group->timeout_ms = timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS;
    for (int32_t i = 0; i < ranks; i++)
        group->rank[i] = (struct rank){.group = group, .rank = i};
    *local = group;
    return CLATTN_SUCCESS;
fail:
    if (group) {
        free(group->lanes);
        free(group->rank);
    }
    free(group);
    return CLATTN_ERROR_OUT_OF_MEMORY;
}

clattn_status clattn_group_local_rank(clattn_group_local *local, int32_t rank, clattn_group *group)
{
    if (!group)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    clattn_group_init(group);
    if (!local || rank < 0 || rank >= local->ranks)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    group->rank = rank;
    group->ranks = local->ranks;
    group->user = &local->rank[rank];
    group->exchange = start;
    group->wait = finish;
    return CLATTN_SUCCESS;
}

void clattn_group_local_release(clattn_group_local **local)
{
    if (!local || !*local)
        return;
    clattn_group_local *group = *local;
    *local = NULL;
    cnd_destroy(&group->changed);
    mtx_destroy(&group->lock);
    free(group->lanes);
    free(group->rank);
    free(group);
}
