/* Which device computes which part, and when. */
#include "base/os/os_threads.h"
#include "tool/cli/os_tool.h"
#include "tool/pool/pool.h"

typedef struct sharing {
    tool_pool *pool;
    const pool_work *work;
    mtx_t lock;              /* guards what follows and what members have computed */
    size_t first, end;       /* parts first ... end - 1 have not been taken, */
    double left;             /* which are so large together */
    double until[POOL_MOST]; /* when a device is expected to be done with its part; 0: not known */
    bool stays[POOL_MOST];   /* whether it takes more */
    int status;              /* the first failure */
} sharing;

/* A device's thread and its first part. */
typedef struct worker {
    sharing *sharing;
    size_t device, part;
    bool serves, apart; /* whether it has one, and a thread of its own */
    thrd_t thread;
} worker;

/* What a device computes in a second; 0: not known. */
static double speed(const pool_member *member)
{
    return member->seconds > 0 ? member->size / member->seconds : 0;
}

/* Whether a device would be done with a part of what is left before the others had computed all of that. */
static bool pays(const sharing *s, size_t device, double size)
{
    const double now = os_seconds();
    double others = 0, theirs = s->left;
    for (size_t i = 0; i < s->pool->count; i++) {
        if (i == device || !s->stays[i])
            continue;
        others += speed(&s->pool->member[i]);
        if (s->until[i] > now)
            theirs += (s->until[i] - now) * speed(&s->pool->member[i]);
    }
    return size * others <= theirs * speed(&s->pool->member[device]);
}

/* Gives a device its next part: the largest, or the smallest if the device's speed is not known or the largest does not pay.  False:
 * there is none for it. */
static bool take(sharing *s, size_t device, size_t *part)
{
    const double *size = s->work->size;
    const bool there = s->status == TOOL_DONE && s->first < s->end, alone = s->pool->count == 1;
    const bool known = there && speed(&s->pool->member[device]) > 0;
    s->stays[device] = there;
    if (there && (alone || (known && pays(s, device, size[s->first]))))
        *part = s->first++;
    else if (there && (!known || pays(s, device, size[s->end - 1])))
        *part = --s->end;
    else
        s->stays[device] = false;
    if (s->stays[device])
        s->left -= size[*part];
    return s->stays[device];
}

static int compute(sharing *s, size_t device, size_t part)
{
    const double size = s->work->size[part];
    pool_member *member = &s->pool->member[device];
    int status = s->work->prepare(s->work->user, device, part);
    if (status != TOOL_DONE)
        return status;
    const double begun = os_seconds();
    mtx_lock(&s->lock);
    s->until[device] = speed(member) > 0 ? begun + size / speed(member) : 0;
    mtx_unlock(&s->lock);
    status = s->work->run(s->work->user, device, part);
    mtx_lock(&s->lock);
    member->seconds += os_seconds() - begun;
    member->size += size;
    member->parts++;
    mtx_unlock(&s->lock);
    return status;
}

/* What a device's thread does. */
static int serve(void *user)
{
    worker *w = user;
    sharing *s = w->sharing;
    for (bool going = true; going;) {
        const int status = compute(s, w->device, w->part);
        mtx_lock(&s->lock);
        if (s->status == TOOL_DONE)
            s->status = status;
        going = take(s, w->device, &w->part);
        mtx_unlock(&s->lock);
    }
    return 0;
}

int pool_run(tool_pool *pool, const pool_work *work)
{
    sharing s = {.pool = pool, .work = work, .end = work->parts};
    worker workers[POOL_MOST] = {{0}};
    if (mtx_init(&s.lock, mtx_plain) != thrd_success)
        return complain(TOOL_FAILED, "no memory for the devices' threads");
    for (size_t i = 0; i < work->parts; i++)
        s.left += work->size[i];
    for (size_t i = 0; i < pool->count; i++)
        s.stays[i] = true;
    /* All have their first part before one of them begins. */
    for (size_t i = 0; i < pool->count; i++) {
        workers[i] = (worker){.sharing = &s, .device = i};
        workers[i].serves = take(&s, i, &workers[i].part);
    }
    mtx_lock(&s.lock);
    for (size_t i = 0; i < pool->count && pool->count > 1; i++)
        workers[i].apart = workers[i].serves && thrd_create(&workers[i].thread, serve, &workers[i]) == thrd_success;
    mtx_unlock(&s.lock);
    /* The calling thread is that of a device that is alone, and of those for which none could be started. */
    for (size_t i = 0; i < pool->count; i++)
        if (workers[i].serves && !workers[i].apart)
            serve(&workers[i]);
    for (size_t i = 0; i < pool->count; i++)
        if (workers[i].apart)
            thrd_join(workers[i].thread, NULL);
    mtx_destroy(&s.lock);
    return s.status;
}
