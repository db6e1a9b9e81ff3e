/* Moments of a trainer's parameters, to the host and back: those that a trainer has alone, and those that a group's ranks have in
 * shares. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/train/trainer.h"

/* A parameter's numbers in its buffer. */
struct range {
    const struct trained_buffer *buffer;
    size_t index, first, count;
};

/* What a piece and a range share, of the numbers that a rank has. */
struct overlap {
    size_t moment, at, count; /* where it begins among the rank's moments, and in the range */
};

static struct report *report_of(const clattn_trainer *trainer)
{
    return &trainer->model->context->device.report;
}

static clattn_status find_range(const clattn_trainer *trainer, size_t index, struct range *range)
{
    clattn_status status;
    clattn_parameter p = CLATTN_PARAMETER_INIT;
    *range = (struct range){.count = 1};
    TRY(clattn_trainer_parameter(trainer, index, &p));
    while (trainer->buffers[range->index].gradient != p.gradient.buffer)
        range->index++;
    range->buffer = &trainer->buffers[range->index];
    range->first = (size_t)p.gradient.offset;
    for (int32_t i = 0; i < p.layout.rank; i++)
        range->count *= p.layout.extent[i];
fail:
    return status;
}

static struct overlap find_overlap(const struct piece *piece, int32_t rank, const struct range *range)
{
    size_t count;
    const size_t share = piece_share(piece, rank, &count);
    const size_t begin = size_max(piece->first + share, range->first);
    const size_t end = size_min(piece->first + share + count, range->first + range->count);
    struct overlap o = {0};
    if (piece->buffer == range->index && begin < end)
        o = (struct overlap){piece->moment + begin - piece->first - share, begin - range->first, end - begin};
    return o;
}

/* Waits for all that a queue has: it may run its commands out of order, and a blocking write does not say that others see it. */
static clattn_status finish(const clattn_trainer *trainer, cl_command_queue queue)
{
    const cl_int code = trainer->model->context->device.cl.clFinish(queue);
    return code == CL_SUCCESS ? CLATTN_SUCCESS : report_opencl(report_of(trainer), "clFinish", code);
}

/* Copies moments from the device to the host, or from there (`to` is NULL).  Blocks. */
static clattn_status transfer(const clattn_trainer *trainer, cl_command_queue queue, cl_mem buffer, size_t first,
                              size_t count, float *to, const float *from)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct cl_table *cl = &trainer->model->context->device.cl;
    const size_t at = first * sizeof *to, bytes = count * sizeof *to;
    if (!count)
        return status;
    if (to)
        TRY_CL(report_of(trainer), "clEnqueueReadBuffer",
               cl->clEnqueueReadBuffer(queue, buffer, CL_TRUE, at, bytes, to, 0, NULL, NULL));
    else
        TRY_CL(report_of(trainer), "clEnqueueWriteBuffer",
               cl->clEnqueueWriteBuffer(queue, buffer, CL_TRUE, at, bytes, from, 0, NULL, NULL));
fail:
    return status;
}

/* How many of a range's numbers a rank has. */
static size_t count_of(const struct trainer_group *group, int32_t rank, const struct range *range)
{
    size_t count = 0;
    for (size_t i = 0; i < group->piece_count; i++)
        count += find_overlap(&group->pieces[i], rank, range).count;
    return count;
}

/* Copies this rank's moments of a range to `out`, its first moments and then its second ones. */
static clattn_status collect(const clattn_trainer *trainer, cl_command_queue queue, const struct range *range,
                             float *out)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct trainer_group *group = trainer->group;
    const cl_mem buffers[2] = {range->buffer->first_moment, range->buffer->second_moment};
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < group->piece_count; i++) {
            const struct overlap o = find_overlap(&group->pieces[i], group->ranks.group.rank, range);
            TRY(transfer(trainer, queue, buffers[kind], o.moment, o.count, out, NULL));
            out += o.count;
        }
fail:
    return status;
}

/* Puts a rank's moments, as `collect` has made them, to their places. */
static void place(const struct trainer_group *group, int32_t rank, const struct range *range, const float *in,
                  float *const moments[2])
{
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < group->piece_count; i++) {
            const struct overlap o = find_overlap(&group->pieces[i], rank, range);
            if (o.count)
                memcpy(moments[kind] + o.at, in, o.count * sizeof *in);
            in += o.count;
        }
}

/* Receives the other ranks' moments of a range, one rank's after the other's, and puts them to their places. */
static clattn_status receive(clattn_trainer *trainer, const struct range *range, float *const moments[2])
{
    clattn_status status = CLATTN_SUCCESS;
    struct trainer_group *group = trainer->group;
    float *in = malloc(2 * range->count * sizeof *in);
    if (!in)
        return report_error(report_of(trainer), CLATTN_ERROR_OUT_OF_MEMORY, "no memory for moments");
    for (int32_t i = 0; i < group->ranks.group.ranks; i++) {
        const size_t count = count_of(group, i, range);
        void *request;
        const clattn_group_exchange exchange = {
            .to = i, .from = i, .receive = in, .receive_bytes = 2 * count * sizeof *in};
        if (i == group->ranks.group.rank || !count)
            continue;
        TRY(ranks_start(&group->ranks, &exchange, &request));
        TRY(ranks_finish(&group->ranks, request));
        place(group, i, range, in, moments);
    }
fail:
    free(in);
    return status;
}

static clattn_status gather(clattn_trainer *trainer, cl_command_queue queue, const struct range *range, int32_t to,
                            float *const moments[2])
{
    clattn_status status;
    struct trainer_group *group = trainer->group;
    const int32_t rank = group->ranks.group.rank;
    const size_t count = count_of(group, rank, range);
    void *request;
    float *own = malloc((2 * count + 1) * sizeof *own);
    if (!own)
        return report_error(report_of(trainer), CLATTN_ERROR_OUT_OF_MEMORY, "no memory for moments");
    const clattn_group_exchange exchange = {.send = own, .send_bytes = 2 * count * sizeof *own, .to = to, .from = to};
    TRY(collect(trainer, queue, range, own));
    if (rank == to) {
        place(group, rank, range, own, moments);
        status = receive(trainer, range, moments);
    } else if (count) {
        TRY(ranks_start(&group->ranks, &exchange, &request));
        status = ranks_finish(&group->ranks, request);
    }
fail:
    free(own);
    return status;
}

clattn_status clattn_trainer_moments_read(clattn_trainer *trainer, cl_command_queue queue, size_t index, int32_t rank,
                                          float *first, float *second)
{
    clattn_status status;
    struct range range;
    float *const moments[2] = {first, second};
    if (!trainer)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the trainer is NULL");
    TRY(context_check(trainer->model->context));
    struct trainer_group *group = trainer->group;
    const int32_t ranks = group ? group->ranks.group.ranks : 1, own = group ? group->ranks.group.rank : 0;
    if (rank < 0 || rank >= ranks)
        return report_error(report_of(trainer), CLATTN_ERROR_INVALID_ARGUMENT, "moments: rank %d of %d", (int)rank,
                            (int)ranks);
    if (rank == own && (!first || !second))
        return report_error(report_of(trainer), CLATTN_ERROR_INVALID_ARGUMENT, "moments: no memory for them is given");
    TRY(find_range(trainer, index, &range));
    if (!queue)
        queue = trainer->model->context->queue;
    TRY(finish(trainer, queue));
    if (group) {
        status = gather(trainer, queue, &range, rank, moments);
        group->ranks.failed |= status != CLATTN_SUCCESS;
        goto fail;
    }
    TRY(transfer(trainer, queue, range.buffer->first_moment, range.first, range.count, first, NULL));
    status = transfer(trainer, queue, range.buffer->second_moment, range.first, range.count, second, NULL);
fail:
    return status;
}

clattn_status clattn_trainer_moments_write(clattn_trainer *trainer, cl_command_queue queue, size_t index,
                                           const float *first, const float *second)
{
    clattn_status status;
    struct range range;
    if (!trainer)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the trainer is NULL");
    TRY(context_check(trainer->model->context));
    if (!first || !second)
        return report_error(report_of(trainer), CLATTN_ERROR_INVALID_ARGUMENT, "moments: none are given");
    TRY(find_range(trainer, index, &range));
    if (!queue)
        queue = trainer->model->context->queue;
    TRY(finish(trainer, queue));
    const struct trainer_group *group = trainer->group;
    const struct trained_buffer *buffer = range.buffer;
    if (!group) {
        TRY(transfer(trainer, queue, buffer->first_moment, range.first, range.count, NULL, first));
        TRY(transfer(trainer, queue, buffer->second_moment, range.first, range.count, NULL, second));
    }
    for (size_t i = 0; group && i < group->piece_count; i++) {
        const struct overlap o = find_overlap(&group->pieces[i], group->ranks.group.rank, &range);
        TRY(transfer(trainer, queue, buffer->first_moment, o.moment, o.count, NULL, first + o.at));
        TRY(transfer(trainer, queue, buffer->second_moment, o.moment, o.count, NULL, second + o.at));
    }
    status = finish(trainer, queue);
fail:
    return status;
}
