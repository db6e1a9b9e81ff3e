#include "support/group/team.h"

#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/harness.h"

int team_make(void *user)
{
    team_rank *m = user;
    m->status = clattn_group_trainer_create(m->w.model, &m->group, &m->w.trainer);
    clattn_context_message(device_context(), m->message, sizeof m->message);
    return 0;
}

int team_move(void *user)
{
    team_rank *m = user;
    cl_event event = NULL;
    m->status = clattn_trainer_update(m->w.trainer, m->queue, &m->update, 0, NULL, &event);
    clattn_context_message(device_context(), m->message, sizeof m->message);
    if (event) {
        clWaitForEvents(1, &event);
        clReleaseEvent(event);
    }
    return 0;
}

void team_do(team *t, int (*action)(void *))
{
    thrd_t threads[TEAM_MOST_RANKS];
    for (int i = 0; i < t->ranks; i++)
        assert_int_equal(thrd_create(&threads[i], action, &t->rank[i]), thrd_success);
    for (int i = 0; i < t->ranks; i++)
        thrd_join(threads[i], NULL);
}

void team_assert(const team *t, clattn_status expected)
{
    for (int i = 0; i < t->ranks; i++)
        if (t->rank[i].status != expected)
            fail_msg("rank %d: %s: %s", i, clattn_status_string(t->rank[i].status), t->rank[i].message);
}

/* Makes the ranks' models and no trainers. */
void team_open_models(team *t, const training_case *test, int ranks, uint32_t timeout_ms)
{
    memset(t, 0, sizeof *t);
    t->ranks = ranks;
    assert_int_equal(clattn_group_local_create(ranks, timeout_ms, &t->local), CLATTN_SUCCESS);
    for (int i = 0; i < ranks; i++) {
        team_rank *m = &t->rank[i];
        training_open(&m->w, test);
        m->w.desc.batch = 1;
        clattn_trainer_release(&m->w.trainer);
        assert_int_equal(clattn_group_local_rank(t->local, i, &m->group), CLATTN_SUCCESS);
        m->queue = new_queue(device_context(), i % 2); /* every other one out of order, if the device has such queues */
        if (!m->queue)
            m->queue = new_queue(device_context(), false);
    }
}

void team_open(team *t, const training_case *test, int ranks)
{
    team_open_models(t, test, ranks, 20000);
    team_do(t, team_make);
    team_assert(t, CLATTN_SUCCESS);
}

void team_close(team *t)
{
    for (int i = 0; i < t->ranks; i++) {
        training_close(&t->rank[i].w);
        clReleaseCommandQueue(t->rank[i].queue);
    }
    clattn_group_local_release(&t->local);
}

clattn_update_args team_update_args(int64_t number)
{
    clattn_update_args args = CLATTN_UPDATE_ARGS_INIT;
    args.learning_rate = 0.01;
    args.weight_decay = 0.1;
    args.clip_norm = 0.5;
    args.epsilon = 1e-3; /* so that moves do not depend on the signs of gradients near 0 */
    args.step = number;
    return args;
}

/* Computes the gradients of a rank's items: every `ranks`-th, or one that does not count. */
void team_compute(team *t, int rank, uint64_t seed)
{
    team_rank *m = &t->rank[rank];
    if (rank >= TRAINING_BATCH)
        for (size_t i = 0; i < TRAINING_LABELS; i++)
            m->w.labels[i] = TRAINING_IGNORED;
    if (rank >= TRAINING_BATCH)
        training_step(&m->w, 0, false, seed);
    for (int item = rank; item < TRAINING_BATCH; item += t->ranks)
        training_step(&m->w, (size_t)item, item > rank, seed);
}

void team_step(team *t, int64_t number)
{
    for (int i = 0; i < t->ranks; i++) {
        t->rank[i].update = team_update_args(number);
        team_compute(t, i, (uint64_t)number);
    }
    assert_cl(clFinish(clattn_context_queue(device_context()))); /* the ranks' queues are others */
    team_do(t, team_move);
    team_assert(t, CLATTN_SUCCESS);
}

float *team_after_updates(const training_case *test, int ranks, size_t *count)
{
    team t;
    team_open(&t, test, ranks);
    for (int64_t i = 1; i <= TEAM_UPDATES; i++)
        team_step(&t, i);
    float *first = training_values(&t.rank[0].w, count), losses[TRAINING_TARGET];
    for (int i = 1; i < ranks; i++) {
        float *other = training_values(&t.rank[i].w, count);
        assert_memory_equal(first, other, *count * sizeof *other);
        free(other);
    }
    for (int i = 0; i < ranks && i < TRAINING_BATCH; i++) { /* they compute with them, too; the fourth has no labels */
        training_step(&t.rank[i].w, 0, false, 0);
        if (i == 0)
            memcpy(losses, t.rank[i].w.losses, sizeof losses);
        assert_memory_equal(losses, t.rank[i].w.losses, sizeof losses);
    }
    team_close(&t);
    return first;
}
