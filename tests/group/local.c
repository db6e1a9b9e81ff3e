/* The group of a process's threads: ranks that do not answer, or send something else than is expected.
 *
 * Holds: group.h, "A group of threads of one process". */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/core/threads.h"
#include "support/group/parts.h"
#include "support/suite.h"

typedef struct exchanger {
    clattn_group group;
    clattn_group_exchange exchange;
    clattn_status status;
    char message[CLATTN_GROUP_MESSAGE];
} exchanger;

static int exchange_once(void *user)
{
    exchanger *e = user;
    void *request = NULL;
    e->status = e->group.exchange(e->group.user, &e->exchange, &request, e->message);
    if (e->status == CLATTN_SUCCESS)
        e->status = e->group.wait(e->group.user, request, e->message);
    return 0;
}

static void two_lengths_are_named(void **state)
{
    clattn_group groups[2];
    char from[2][16], to[2][16];
    exchanger ranks[2];
    thrd_t threads[2];
    (void)state;
    memset(from, 'a', sizeof from);
    clattn_group_local *local = group_local_make(2, 5000, groups);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (exchanger){groups[i], {from[i], i ? 12 : 16, 1 - i, 1 - i, to[i], 16}, CLATTN_SUCCESS, ""};
        assert_int_equal(thrd_create(&threads[i], exchange_once, &ranks[i]), thrd_success);
    }
    for (int i = 0; i < 2; i++)
        thrd_join(threads[i], NULL);
    assert_int_equal(ranks[0].status, CLATTN_ERROR_GROUP);
    assert_string_equal(ranks[0].message, "rank 1 sent 12 bytes, expected 16");
    assert_int_equal(ranks[1].status, CLATTN_ERROR_GROUP);
    assert_string_equal(ranks[1].message, "rank 0 expected 16 bytes, got 12");
    clattn_group_local_release(&local);
    assert_null(local);
    clattn_group_local_release(&local);
}

static void a_missing_rank_is_named(void **state)
{
    clattn_group groups[3];
    char from[4] = "abc", to[4];
    (void)state;
    clattn_group_local *local = group_local_make(3, 50, groups);
    exchanger e = {groups[0], {from, sizeof from, 1, 2, to, sizeof to}, CLATTN_SUCCESS, ""};
    exchange_once(&e);
    assert_int_equal(e.status, CLATTN_ERROR_GROUP);
    assert_string_equal(e.message, "rank 2 did not answer within 50 ms");
    e.exchange = (clattn_group_exchange){from, sizeof from, 3, 0, to, sizeof to};
    exchange_once(&e);
    assert_int_equal(e.status, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(e.message, "rank 0 exchanges with ranks 3 and 0 of 3");
    e.exchange = (clattn_group_exchange){from, sizeof from, 0, 0, to, sizeof to};
    exchange_once(&e);
    assert_int_equal(e.status, CLATTN_SUCCESS);
    assert_string_equal(to, "abc");
    assert_int_equal(clattn_group_local_rank(local, 3, groups), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_local_rank(local, -1, groups), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_local_rank(NULL, 0, groups), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_local_rank(local, 0, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_group_local_release(&local);
    assert_int_equal(clattn_group_local_create(0, 0, &local), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_local_create(1, 0, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_group_local_release(NULL);
}

/* A rank that waits for several that do not answer waits for one time-out; and begins anew with the next exchange. */
static void silent_ranks_cost_one_time_out(void **state)
{
    enum { RANKS = 8, TIME_OUT = 1100 }; /* milliseconds; the time-outs of all others are 7.7 seconds */
    clattn_group groups[RANKS];
    void *requests[RANKS];
    char from[4] = "abc", to[RANKS][4], message[CLATTN_GROUP_MESSAGE], expected[CLATTN_GROUP_MESSAGE];
    (void)state;
    clattn_group_local *local = group_local_make(RANKS, TIME_OUT, groups);
    const clattn_group *own = &groups[0];
    for (int again = 0; again < 2; again++) {
        for (int i = 1; i < RANKS; i++) {
            const clattn_group_exchange exchange = {from, sizeof from, i, i, to[i], sizeof to[i]};
            assert_int_equal(own->exchange(own->user, &exchange, &requests[i], message), CLATTN_SUCCESS);
        }
        const time_t before = time(NULL);
        for (int i = 1; i < RANKS; i++) {
            assert_int_equal(own->wait(own->user, requests[i], message), CLATTN_ERROR_GROUP);
            snprintf(expected, sizeof expected, "rank %d did not answer within %d ms", i, TIME_OUT);
            assert_string_equal(message, expected);
        }
        const double waited = difftime(time(NULL), before); /* whole seconds */
        assert_true(waited >= 1 && waited <= 4);
    }
    clattn_group_local_release(&local);
}

/* Exchanges that are under way at once arrive in the order in which they were started. */
static void exchanges_keep_their_order(void **state)
{
    enum { COUNT = 5 };
    clattn_group groups[1];
    void *requests[COUNT];
    int from[COUNT], to[COUNT] = {0};
    char message[CLATTN_GROUP_MESSAGE] = "";
    (void)state;
    clattn_group_local *local = group_local_make(1, 1000, groups);
    for (int i = 0; i < COUNT; i++) {
        from[i] = 10 + i;
        const clattn_group_exchange exchange = {&from[i], sizeof from[i], 0, 0, &to[i], sizeof to[i]};
        assert_int_equal(groups[0].exchange(groups[0].user, &exchange, &requests[i], message), CLATTN_SUCCESS);
    }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(groups[0].wait(groups[0].user, requests[i], message), CLATTN_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(to[i], 10 + i);
    clattn_group_local_release(&local);
}

int main(int argc, char **argv)
{
    suite_add(two_lengths_are_named, "group: both lengths of an exchange are named");
    suite_add(a_missing_rank_is_named, "group: a rank that does not answer is named");
    suite_add(silent_ranks_cost_one_time_out, "group: several ranks that do not answer cost one time-out");
    suite_add(exchanges_keep_their_order, "group: exchanges keep their order");
    return suite_run("group_local", argc, argv);
}
