/* Steps in which ranks exchange an array: it comes to the host, and goes back.  They block until the device has made it. */
#include <stdint.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/graph/graph.h"

/* ---- making them ---- */

/* The columns that a rank makes at the most. */
static size_t most_columns(const struct ranks *ranks, size_t whole)
{
    return divide_up(whole, (size_t)ranks->group.ranks);
}

/* The bytes of the host that a step over `rows` rows needs. */
static size_t host_bytes(const struct ranks *ranks, enum graph_op op, clattn_dtype dtype, size_t rows, size_t columns)
{
    const size_t count = (size_t)ranks->group.ranks, size = clattn_dtype_size(dtype);
    if (op == GRAPH_ALL_REDUCE)
        return 2 * count * ranks_slice(ranks, rows * columns) * size;
    return rows * (columns + (count + 1) * most_columns(ranks, columns)) * size;
}

void graph_add_exchange(struct graph *graph, struct ranks *ranks, const struct graph_step *step)
{
    const struct graph_array *array = &graph->arrays[step->operand[MOVE_TO].array];
    const size_t columns = step->row_bytes / clattn_dtype_size(array->dtype);
    size_t elements;
    graph->ranks = ranks;
    if (!size_mul(step->rows, columns, &elements) || elements > SIZE_MAX / 64 / (size_t)ranks->group.ranks) {
        graph->failed = true;
        return;
    }
    const size_t bytes = host_bytes(ranks, step->op, array->dtype, step->rows, columns);
    graph->host_bytes = size_max(graph->host_bytes, bytes);
    graph_add(graph, step);
}

/* ---- running them ---- */

clattn_status graph_exchange_check(const struct graph *graph, const clattn_binding *array)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &graph->context->device;
    cl_mem_flags flags;
    TRY_CL(&device->report, "clGetMemObjectInfo",
           device->cl.clGetMemObjectInfo(array->buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    if (flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS))
        status = report_error(&device->report, CLATTN_ERROR_BUFFER_ACCESS,
                              "ranks exchange what a buffer has, but the host may not read and write it");
fail:
    return status;
}

/* An array of the device, from `offset` on. */
struct region {
    cl_mem buffer;
    size_t offset, bytes;
};

/* Copies it to the host, or back.  Blocks. */
static clattn_status copy(struct chain *chain, const struct region *region, void *host, bool back)
{
    struct device *device = &chain->context->device;
    const struct cl_table *cl = &device->cl;
    struct step step;
    chain_step(chain, false, &step);
    const cl_int code = back
                            ? cl->clEnqueueWriteBuffer(chain->queue, region->buffer, CL_TRUE, region->offset,
                                                       region->bytes, host, step.wait_count, step.wait_list, step.event)
                            : cl->clEnqueueReadBuffer(chain->queue, region->buffer, CL_TRUE, region->offset,
                                                      region->bytes, host, step.wait_count, step.wait_list, step.event);
    if (code != CL_SUCCESS)
        return report_opencl(&device->report, back ? "clEnqueueWriteBuffer" : "clEnqueueReadBuffer", code);
    chain_stepped(chain, &step);
    return CLATTN_SUCCESS;
}

static clattn_status all_reduce(const struct graph *graph, struct chain *chain, clattn_dtype dtype,
                                const struct region *region)
{
    clattn_status status;
    struct ranks *ranks = graph->ranks;
    const size_t size = clattn_dtype_size(dtype), slice = ranks_slice(ranks, region->bytes / size);
    const size_t padded = slice * (size_t)ranks->group.ranks * size;
    unsigned char *data = graph->host.memory, *parts = data + padded;
    TRY(copy(chain, region, data, false));
    memset(data + region->bytes, 0, padded - region->bytes);
    TRY(ranks_sum(ranks, dtype, data, parts, slice));
    status = copy(chain, region, data, true);
fail:
    return status;
}

/* Copies `bytes` of each of some rows to rows at another distance. */
static void copy_rows(unsigned char *to, size_t to_row, const unsigned char *from, size_t from_row, size_t rows,
                      size_t bytes)
{
    for (size_t row = 0; row < rows; row++)
        memcpy(to + row * to_row, from + row * from_row, bytes);
}

static clattn_status all_gather(const struct graph *graph, struct chain *chain, clattn_dtype dtype,
                                const struct region *region, size_t row_bytes)
{
    clattn_status status;
    struct ranks *ranks = graph->ranks;
    const size_t size = clattn_dtype_size(dtype), rows = region->bytes / row_bytes, columns = row_bytes / size;
    const size_t part_row = most_columns(ranks, columns) * size, own = (size_t)ranks->group.rank;
    const size_t first = ranks_first(ranks, columns, own), end = ranks_first(ranks, columns, own + 1);
    unsigned char *whole = graph->host.memory, *out = whole + region->bytes, *in = out + rows * part_row;
    TRY(copy(chain, region, whole, false));
    memset(out, 0, rows * part_row);
    copy_rows(out, part_row, whole + first * size, row_bytes, rows, (end - first) * size);
    TRY(ranks_swap(ranks, out, true, in, rows * part_row));
    for (size_t rank = 0; rank < (size_t)ranks->group.ranks; rank++) {
        const size_t its = ranks_first(ranks, columns, rank), its_end = ranks_first(ranks, columns, rank + 1);
        copy_rows(whole + its * size, row_bytes, in + rank * rows * part_row, part_row, rows, (its_end - its) * size);
    }
    status = copy(chain, region, whole, true);
fail:
    return status;
}

clattn_status graph_exchange(const struct graph *graph, struct chain *chain, const struct graph_step *step,
                             const clattn_binding *array, size_t bytes)
{
    const clattn_dtype dtype = graph->arrays[step->operand[MOVE_TO].array].dtype;
    const struct region region = {array->buffer, (size_t)array->offset * clattn_dtype_size(dtype), bytes};
    if (!bytes)
        return CLATTN_SUCCESS;
    return step->op == GRAPH_ALL_REDUCE ? all_reduce(graph, chain, dtype, &region)
                                        : all_gather(graph, chain, dtype, &region, step->row_bytes);
}
