/* Parts of a command's work on several devices: each is computed once, slow devices get few, and the first failure ends it.  Needs no
 * device: what a part takes is slept. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os/os_threads.h"
#include "base/size.h"
#include "tool/pool/pool.h"

#define MOST_PARTS 200

/* What a part has seen, and how long each device takes for one. */
typedef struct trial {
    size_t device[MOST_PARTS];
    atomic_uint prepared[MOST_PARTS], computed[MOST_PARTS];
    atomic_uint busy[POOL_MOST]; /* calls at a time on a device */
    atomic_size_t calls;
    size_t order[MOST_PARTS]; /* in which the first device computes */
    unsigned prepare_ms[POOL_MOST], run_ms[POOL_MOST];
    size_t fails; /* part + 1 of which `status` comes, of `prepare` or else of `run` */
    bool fails_early;
    int status;
    double size[MOST_PARTS];
} trial;

static int prepare(void *user, size_t device, size_t part)
{
    trial *t = user;
    if (atomic_fetch_add(&t->busy[device], 1) != 0 || atomic_fetch_add(&t->prepared[part], 1) != 0)
        return TOOL_HELPED;
    usleep(1000 * t->prepare_ms[device]);
    atomic_fetch_sub(&t->busy[device], 1);
    return t->fails == part + 1 && t->fails_early ? t->status : TOOL_DONE;
}

static int run(void *user, size_t device, size_t part)
{
    trial *t = user;
    if (atomic_fetch_add(&t->busy[device], 1) != 0 || t->prepared[part] != 1 ||
        atomic_fetch_add(&t->computed[part], 1) != 0)
        return TOOL_HELPED;
    usleep(1000 * t->run_ms[device]);
    t->device[part] = device;
    t->order[atomic_fetch_add(&t->calls, 1)] = part;
    atomic_fetch_sub(&t->busy[device], 1);
    return t->fails == part + 1 && !t->fails_early ? t->status : TOOL_DONE;
}

static int share(trial *t, tool_pool *pool, size_t parts)
{
    const pool_work work = {.prepare = prepare, .run = run, .user = t, .size = t->size, .parts = parts};
    for (size_t i = 0; i < parts; i++)
        t->size[i] = (double)(1 + parts - i);
    return pool_run(pool, &work);
}

static void once(void **state)
{
    (void)state;
    static const size_t devices[] = {1, 2, 3, POOL_MOST}, parts[] = {0, 1, 2, 3, MOST_PARTS};
    for (size_t d = 0; d < COUNT_OF(devices); d++) {
        tool_pool pool = {.count = devices[d]};
        size_t all = 0, counted = 0;
        for (size_t p = 0; p < COUNT_OF(parts); p++) {
            trial t;
            memset(&t, 0, sizeof t);
            assert_int_equal(share(&t, &pool, parts[p]), TOOL_DONE);
            for (size_t i = 0; i < parts[p]; i++) {
                assert_int_equal(t.computed[i], 1);
                assert_true(devices[d] > 1 || t.order[i] == i);
            }
            all += parts[p];
        }
        for (size_t i = 0; i < devices[d]; i++)
            counted += pool.member[i].parts;
        assert_int_equal(counted, all);
    }
}

/* All devices have a part at first, since nothing is known of them. */
static void all_begin(void **state)
{
    (void)state;
    tool_pool pool = {.count = 4};
    trial t;
    memset(&t, 0, sizeof t);
    assert_int_equal(share(&t, &pool, 4), TOOL_DONE);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pool.member[i].parts, 1);
}

/* A slow device begins with the smallest part, and has none of work that the other has done sooner.  What it takes to prepare a part
 * is not held against it. */
static void slow(void **state)
{
    (void)state;
    tool_pool pool = {.count = 2};
    trial t;
    memset(&t, 0, sizeof t);
    t.run_ms[0] = 1;
    t.run_ms[1] = 300;
    t.prepare_ms[0] = 30;
    assert_int_equal(share(&t, &pool, 20), TOOL_DONE);
    assert_true(pool.member[1].parts >= 1 && pool.member[1].parts <= 3);
    assert_true(t.device[18] == 1 || t.device[19] == 1);
    assert_true(pool.member[0].seconds < 0.5);
}

/* What is known of the devices keeps a slow one from a part that the other has done sooner. */
static void known(void **state)
{
    (void)state;
    tool_pool pool = {.count = 2, .member = {{.size = 1000, .seconds = 0.1}, {.size = 10, .seconds = 1}}};
    trial t;
    memset(&t, 0, sizeof t);
    assert_int_equal(share(&t, &pool, 20), TOOL_DONE);
    assert_int_equal(pool.member[0].parts, 20);
    assert_int_equal(pool.member[1].parts, 0);
}

static void failure(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++)
        for (size_t devices = 1; devices <= 3; devices += 2) {
            tool_pool pool = {.count = devices};
            trial t;
            memset(&t, 0, sizeof t);
            t.fails = 8;
            t.status = TOOL_NO_DEVICE;
            t.fails_early = early == 1;
            for (size_t i = 0; i < devices; i++)
                t.run_ms[i] = 20;
            assert_int_equal(share(&t, &pool, MOST_PARTS), TOOL_NO_DEVICE);
            assert_true(t.calls < MOST_PARTS / 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once),  cmocka_unit_test(all_begin), cmocka_unit_test(slow),
        cmocka_unit_test(known), cmocka_unit_test(failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
