/* Trainers of a group: gradients are summed over ranks, each rank moves its share of the parameters, and all get all of them.
 *
 * A buffer of parameters is cut into pieces, and a piece into shares, one for each rank.  A rank adds the ranks' gradients of its share
 * in the order of their numbers, on the host, so that the sum has the same bits every time, and keeps moments of its share alone. */
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "nn/train/trainer.h"
#include "ops/optimizer/optimizer.h"

static const struct cl_table *table(const clattn_trainer *trainer)
{
    return &trainer->model->context->device.cl;
}

static struct report *report_of(const clattn_trainer *trainer)
{
    return &trainer->model->context->device.report;
}

static clattn_status no_memory(const clattn_trainer *trainer)
{
    return report_error(report_of(trainer), CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a trainer of a group");
}

static void release_event(const clattn_trainer *trainer, cl_event *event)
{
    if (*event)
        table(trainer)->clReleaseEvent(*event);
    *event = NULL;
}

/* An event behind all that the caller's queue has, and the wait list. */
static clattn_status mark(const clattn_trainer *trainer, const struct enqueue_call *given, cl_event *event)
{
    struct chain chain;
    struct enqueue_call call = *given;
    *event = NULL;
    call.event = event;
    clattn_status status = chain_begin(&chain, trainer->model->context, &call, NULL);
    if (status == CLATTN_SUCCESS)
        status = chain_mark(&chain);
    TRY(chain_end(&chain, status));
    TRY_CL(report_of(trainer), "clFlush", table(trainer)->clFlush(chain.queue));
fail:
    if (status != CLATTN_SUCCESS)
        release_event(trainer, event);
    return status;
}

/* Copies `count` numbers of a buffer, from number `first` on, to the host after `ready`, which may be NULL.  Blocks, for
 * rusticl of Mesa 22.3 lets no command wait for one of another queue. */
static clattn_status fetch(const clattn_trainer *trainer, cl_mem buffer, size_t first, size_t count, float *to,
                           cl_event ready)
{
    clattn_status status = CLATTN_SUCCESS;
    if (ready)
        TRY_CL(report_of(trainer), "clWaitForEvents", table(trainer)->clWaitForEvents(1, &ready));
    if (count)
        TRY_CL(report_of(trainer), "clEnqueueReadBuffer",
               table(trainer)->clEnqueueReadBuffer(trainer->group->transfers, buffer, CL_TRUE, first * sizeof *to,
                                                   count * sizeof *to, to, 0, NULL, NULL));
fail:
    return status;
}

/* A blocking write says that `from` was copied, and may go even if finishing fails, not that other queues see it: finishing does. */
static clattn_status store(const clattn_trainer *trainer, cl_mem buffer, size_t first, size_t count, const float *from)
{
    clattn_status status = CLATTN_SUCCESS;
    cl_command_queue queue = trainer->group->transfers;
    if (!count)
        return status;
    TRY_CL(report_of(trainer), "clEnqueueWriteBuffer",
           table(trainer)->clEnqueueWriteBuffer(queue, buffer, CL_TRUE, first * sizeof *from, count * sizeof *from,
                                                from, 0, NULL, NULL));
    TRY_CL(report_of(trainer), "clFinish", table(trainer)->clFinish(queue));
fail:
    return status;
}

static void add(float *restrict sum, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += x[i];
}

/* Sums a share of gradients over the ranks that have the model together: each has a part of those of weights that all of them have. */
static clattn_status reduce_shared(const clattn_trainer *trainer, size_t count)
{
    struct trainer_group *group = trainer->group;
    struct ranks *ranks = trainer->model->ranks;
    const size_t slice = ranks_slice(ranks, count), padded = slice * (size_t)ranks->group.ranks;
    memset(group->in + count, 0, (padded - count) * sizeof *group->in);
    return ranks_sum(ranks, CLATTN_DTYPE_F32, group->in, group->out, slice);
}

/* Sums the ranks' gradients of this rank's share of a piece, and adds the squares of the sums. */
static clattn_status reduce(clattn_trainer *trainer, const struct piece *piece, cl_event ready, double *squares)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    const clattn_transformer *model = trainer->model;
    const bool shared = model->ranks && piece->buffer >= model->own_buffers;
    cl_mem gradient = trainer->buffers[piece->buffer].gradient;
    const int32_t ranks = group->ranks.group.ranks;
    const size_t padded = piece->slice * (size_t)ranks;
    size_t count;
    const size_t share = piece_share(piece, group->ranks.group.rank, &count);
    TRY(fetch(trainer, gradient, piece->first, piece->count, group->out, ready));
    memset(group->out + piece->count, 0, (padded - piece->count) * sizeof *group->out);
    TRY(ranks_swap(&group->ranks, group->out, false, group->in, piece->slice * sizeof *group->in));
    for (int32_t i = 1; i < ranks; i++)
        add(group->in, group->in + (size_t)i * piece->slice, count);
    if (shared && count)
        TRY(reduce_shared(trainer, count));
    for (size_t i = 0; i < count && !(shared && model_rank(model)); i++) /* of shared ones once */
        *squares += (double)group->in[i] * (double)group->in[i];
    status = store(trainer, gradient, piece->first + share, count, group->in);
fail:
    return status;
}

/* Sums a number of each rank in their order. */
static clattn_status sum_numbers(const clattn_trainer *trainer, struct ranks *ranks, double *number)
{
    clattn_status status;
    const size_t count = (size_t)ranks->group.ranks;
    double *parts = malloc(count * sizeof *parts);
    if (!parts)
        return no_memory(trainer);
    TRY(ranks_swap(ranks, number, true, parts, sizeof *number));
    *number = 0;
    for (size_t i = 0; i < count; i++)
        *number += parts[i];
fail:
    free(parts);
    return status;
}

/* Sums the squares of all ranks' shares where updates look for them. */
static clattn_status share_squares(clattn_trainer *trainer, double own)
{
    clattn_status status;
    TRY(sum_numbers(trainer, &trainer->group->ranks, &own));
    if (trainer->model->ranks)
        TRY(sum_numbers(trainer, trainer->model->ranks, &own));
    const float squares = (float)own;
    status = store(trainer, trainer->squares, 0, 1, &squares);
fail:
    return status;
}

/* Moves the parameters of this rank's share. */
static clattn_status move_share(clattn_trainer *trainer, struct piece *piece, cl_command_queue queue,
                                const clattn_update_args *how)
{
    size_t count;
    const size_t share = piece_share(piece, trainer->group->ranks.group.rank, &count);
    const clattn_adam_desc desc = trainer_adam_desc(count);
    const clattn_adam_args args = trainer_adam_args(trainer, piece->buffer, piece->first + share, piece->moment, how);
    if (!count)
        return CLATTN_SUCCESS;
    return clattn_adam_run(trainer->model->context, queue, &desc, &args, 0, NULL, &piece->moved);
}

/* Gives all ranks the parameters of each other's shares. */
static clattn_status spread(clattn_trainer *trainer, struct piece *piece)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    cl_mem value = trainer->buffers[piece->buffer].value;
    size_t count;
    const size_t share = piece_share(piece, group->ranks.group.rank, &count);
    if (group->ranks.group.ranks == 1) /* what is rounded next may lie on a queue that is out of order */
        return trainer_is_narrow(trainer) ? fetch(trainer, value, 0, 0, NULL, piece->moved) : CLATTN_SUCCESS;
    TRY(fetch(trainer, value, piece->first + share, count, group->out, piece->moved));
    memset(group->out + count, 0, (piece->slice - count) * sizeof *group->out);
    TRY(ranks_swap(&group->ranks, group->out, true, group->in, piece->slice * sizeof *group->in));
    status = store(trainer, value, piece->first, piece->count, group->in);
fail:
    return status;
}

/* Exchanges the gradients, each piece once it is ready and all behind `ready`, and then the parameters. */
static clattn_status exchange(clattn_trainer *trainer, cl_command_queue queue, const clattn_update_args *how,
                              cl_event ready)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    double squares = 0;
    for (size_t i = 0; i < group->piece_count; i++) {
        const struct piece *piece = &group->pieces[i];
        TRY(reduce(trainer, piece, piece->ready && !how->changed_gradients ? piece->ready : ready, &squares));
    }
    TRY_CL(report_of(trainer), "clWaitForEvents", table(trainer)->clWaitForEvents(1, &ready));
    TRY(share_squares(trainer, squares));
    for (size_t i = 0; i < group->piece_count; i++)
        TRY(move_share(trainer, &group->pieces[i], queue, how));
    TRY_CL(report_of(trainer), "clFlush", table(trainer)->clFlush(queue));
    for (size_t i = 0; i < group->piece_count; i++)
        TRY(spread(trainer, &group->pieces[i]));
    for (size_t i = 0; i < trainer->model->buffer_count && trainer_is_narrow(trainer); i++)
        TRY(trainer_round(trainer, i, queue));
fail:
    return status;
}

clattn_status trainer_group_update(clattn_trainer *trainer, const struct enqueue_call *call,
                                   const clattn_update_args *how)
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    struct ranks *together = trainer->model->ranks;
    cl_command_queue queue = call->queue ? call->queue : trainer->model->context->queue;
    const struct enqueue_call last = {.queue = queue};
    cl_event ready = NULL;
    clattn_adam_args numbers = trainer_adam_args(trainer, 0, 0, 0, how);
    TRY(adam_read_numbers(report_of(trainer), true, &numbers)); /* a rank without a share of a piece runs no Adam */
    TRY(ranks_check(&group->ranks));
    if (together)
        TRY(ranks_check(together));
    TRY(mark(trainer, call, &ready));
    status = exchange(trainer, queue, how, ready);
    if (status == CLATTN_SUCCESS && call->event)
        status = mark(trainer, &last, call->event);
    /* Another call's exchanges would meet those of this one that other ranks still wait for. */
    group->ranks.failed |= status != CLATTN_SUCCESS;
    if (together)
        together->failed |= status != CLATTN_SUCCESS;
fail:
    for (size_t i = 0; i < group->piece_count; i++)
        release_event(trainer, &group->pieces[i].moved);
    trainer_forget_ready(trainer);
    release_event(trainer, &ready);
    return status;
}
