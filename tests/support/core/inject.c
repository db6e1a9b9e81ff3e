#include "support/core/inject.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/core/threads.h"

static atomic_int counted_layer = INJECT_OPENCL;
static atomic_ulong calls, fail_number;
static atomic_bool fail_onward;
static atomic_int kill_signal; /* 0: the call fails */
static _Atomic(const char *) failed;
static _Atomic(const void *) failed_at;
static atomic_long live[INJECT_KINDS];
static long marked[INJECT_KINDS];
static atomic_ulong made[INJECT_KINDS];
static mtx_t lock = MTX_INIT; /* of `sites` and `held` */

enum { SITES_MOST = 1024 };
static struct inject_site sites[SITES_MOST];
static unsigned site_count;

/* What the system gave: a hash table with linear probing; `key` 0 is a free place. */
enum { HELD_MOST = 1 << 16 };
static struct held {
    uintptr_t key;
    const char *name;
    const void *caller;
} held[HELD_MOST];

void inject_begin(enum inject_layer layer, unsigned long fail_at, bool onward)
{
    mtx_lock(&lock);
    site_count = 0;
    mtx_unlock(&lock);
    counted_layer = (int)layer;
    calls = 0;
    fail_number = fail_at;
    fail_onward = onward;
    kill_signal = 0;
    failed = NULL;
}

void inject_begin_kill(unsigned long at, int signal)
{
    inject_begin(INJECT_SYSTEM, at, false);
    kill_signal = signal;
}

void inject_stop(void)
{
    counted_layer = -1;
}

unsigned long inject_calls(void)
{
    return calls;
}

const char *inject_failed(void)
{
    return failed;
}

const void *inject_failed_at(void)
{
    return failed_at;
}

struct inject_site inject_site(unsigned number)
{
    return number < site_count ? sites[number] : (struct inject_site){0};
}

static void note_site(const char *name, const void *caller, unsigned long number)
{
    mtx_lock(&lock);
    unsigned i = 0;
    while (i < site_count && (sites[i].caller != caller || strcmp(sites[i].name, name) != 0))
        i++;
    if (i < SITES_MOST) {
        if (i == site_count)
            sites[site_count++] = (struct inject_site){name, caller, number, number};
        sites[i].last = number;
    }
    mtx_unlock(&lock);
}

bool inject_fails(enum inject_layer layer, const char *name, const void *caller)
{
    if (counted_layer != (int)layer)
        return false;
    const unsigned long number = atomic_fetch_add(&calls, 1) + 1;
    if (fail_number == 0)
        note_site(name, caller, number);
    if (fail_number == 0 || number < fail_number || (number > fail_number && !fail_onward))
        return false;
    if (number == fail_number) {
        failed_at = caller;
        failed = name;
        if (getenv("CLATTN_INJECT_TRACE"))
            inject_trace();
    }
    if (kill_signal != 0)
        raise(kill_signal);
    return kill_signal == 0;
}

/* ---- what is held ---- */

void inject_count(enum inject_kind kind, int change)
{
    live[kind] += change;
    made[kind] += change > 0;
}

static size_t place_of(uintptr_t key)
{
    return (size_t)((key * (uintptr_t)0x9e3779b97f4a7c15u) >> 24) % HELD_MOST;
}

/* Addresses of different kinds may be equal, a file's number and a lock's address inside memory: the kind is mixed
 * in. */
static uintptr_t key_of(enum inject_kind kind, const void *what)
{
    return (uintptr_t)what * INJECT_KINDS + (uintptr_t)kind;
}

/* The caller has the lock. */
static struct held *find(uintptr_t key)
{
    size_t at = place_of(key);
    while (held[at].key != 0 && held[at].key != key)
        at = (at + 1) % HELD_MOST;
    return &held[at];
}

void inject_take(enum inject_kind kind, const void *what, const char *name, const void *caller)
{
    mtx_lock(&lock);
    struct held *place = find(key_of(kind, what));
    /* A place is always left free, so that searches end; what is not recorded counts as nothing. */
    if (place->key == 0 && live[INJECT_HOST] < HELD_MOST / 2) {
        *place = (struct held){key_of(kind, what), name, caller};
        inject_count(kind, 1);
    }
    mtx_unlock(&lock);
}

void inject_give(enum inject_kind kind, const void *what)
{
    mtx_lock(&lock);
    struct held *place = find(key_of(kind, what));
    if (place->key != 0) {
        inject_count(kind, -1);
        place->key = 0;
        /* What lies behind the free place until the next one is put in again, as it may have been pushed there. */
        for (size_t at = ((size_t)(place - held) + 1) % HELD_MOST; held[at].key != 0; at = (at + 1) % HELD_MOST) {
            struct held moved = held[at];
            held[at].key = 0;
            *find(moved.key) = moved;
        }
    }
    mtx_unlock(&lock);
}

void inject_print_held(FILE *file)
{
    char place[300] = "";
    mtx_lock(&lock);
    for (size_t at = 0; at < HELD_MOST; at++)
        if (held[at].key != 0)
            fprintf(file, "%s %s\n", held[at].name, inject_place(held[at].caller, place, sizeof place));
    mtx_unlock(&lock);
}

long inject_live(enum inject_kind kind)
{
    return live[kind];
}

unsigned long inject_made(enum inject_kind kind)
{
    return made[kind];
}

const char *inject_kind_name(enum inject_kind kind)
{
    static const char *const names[INJECT_KINDS] = {"context", "queue",       "buffer", "program", "kernel",
                                                    "event",   "host memory", "file",   "mapping", "lock"};
    return names[kind];
}

void inject_event_taken(void)
{
    live[INJECT_EVENT]--;
}

void inject_mark(void)
{
    for (int i = 0; i < INJECT_KINDS; i++)
        marked[i] = live[i];
}

bool inject_balanced(enum inject_kind *kind)
{
    for (int tries = 0; tries < 6000; tries++) {
        int worst = -1;
        for (int i = 0; i < INJECT_KINDS; i++)
            if (live[i] != marked[i])
                worst = i;
        if (worst < 0)
            return true;
        *kind = (enum inject_kind)worst;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}
