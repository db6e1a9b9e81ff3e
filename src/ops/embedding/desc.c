/* Reading and checking what an embedding is asked for. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/embedding/embedding.h"
#include "ops/rope/rope.h"

_Static_assert(sizeof(embedding_args) == 4 * 40 + 9 * 8 + sizeof(rope_args) + 8 * 4, "embedding_args has padding");

#define FARTHEST ((int64_t)1 << 31)

static clattn_status read_options(clattn_embedding_desc *desc, const char **reason)
{
    *reason = "direction: only CLATTN_DIRECTION_FORWARD is known";
    if (desc->direction != CLATTN_DIRECTION_FORWARD)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "unknown positions";
    if (!enum_within(desc->positions, CLATTN_POSITIONS_TABLE))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "explicit_scale is neither 0 nor 1";
    if (desc->explicit_scale != 0 && desc->explicit_scale != 1)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "scale is NaN or infinite";
    if (!desc->explicit_scale)
        desc->scale = 1;
    if (!isfinite(desc->scale))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "position_table, and positions are not by a table";
    if (desc->positions != CLATTN_POSITIONS_TABLE && !layout_is_none(&desc->position_table))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "offsets, and there are no positions";
    if (desc->positions == CLATTN_POSITIONS_NONE && !layout_is_none(&desc->offsets))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "there is one of segments and segment_table";
    return layout_is_none(&desc->segments) != layout_is_none(&desc->segment_table) ? CLATTN_ERROR_INVALID_ARGUMENT
                                                                                   : CLATTN_SUCCESS;
}

static clattn_status read_y(clattn_embedding_desc *desc, const char **reason)
{
    clattn_status status;
    TRY(layout_check(&desc->y, LAYOUT_OUTPUT, LAYOUT_OF("y"), reason));
    layout_normalise(&desc->y);
    status = CLATTN_ERROR_UNSUPPORTED;
    *reason = "y is float32, float16 or bfloat16";
    if (!dtype_is_storage(desc->y.dtype))
        goto fail;
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "y is (batch, length, size)";
    if (desc->y.rank != 3)
        goto fail;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* (rows, size) of y's size. */
static clattn_status read_table(clattn_layout *layout, const struct layout_words *words, size_t size,
                                const char **reason)
{
    clattn_status status;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    layout_normalise(layout);
    status = CLATTN_ERROR_UNSUPPORTED;
    *reason = "table, position_table and segment_table are float32, float16 or bfloat16";
    if (!dtype_is_storage(layout->dtype))
        goto fail;
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "table, position_table and segment_table are (rows, size), with y's size";
    if (layout->rank != 2 || layout->extent[1] != size)
        goto fail;
    status = CLATTN_ERROR_OVERFLOW;
    *reason = "a table has more than 2^31 - 65537 rows";
    if (layout->extent[0] > LENGTH_LIMIT)
        goto fail;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

static clattn_status read_indices(clattn_layout *layout, const struct layout_words *words, int rank, bool broadcasts,
                                  const clattn_layout *y, const char **reason)
{
    clattn_status status;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    layout_normalise(layout);
    status = CLATTN_ERROR_UNSUPPORTED;
    *reason = "ids, segments and offsets are int32";
    if (layout->dtype != CLATTN_DTYPE_I32)
        goto fail;
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "ids are (batch, length), segments (batch or 1, length) and offsets (batch)";
    if (layout->rank != rank || (layout->extent[0] != y->extent[0] && (!broadcasts || layout->extent[0] != 1)) ||
        (rank == 2 && layout->extent[1] != y->extent[1]))
        goto fail;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* What the sinusoids turn by is what rotary embedding turns by. */
static clattn_status read_turns(const clattn_embedding_desc *desc, rope_args *kernel, const char **reason)
{
    clattn_status status;
    clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
    struct rope_problem read;
    status = CLATTN_ERROR_UNSUPPORTED;
    *reason = "sinusoids of an odd size, or of one above 131072";
    if (desc->y.extent[2] % 2 || desc->y.extent[2] > (size_t)2 << ROPE_RATIOS)
        goto fail;
    rope.x = rope.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, desc->y.extent[2]);
    TRY(rope_problem_read(&rope, &read, reason));
    *kernel = read.kernel;
fail:
    return status;
}

static array4 table_strides(const clattn_layout *layout)
{
    return (array4){.row = layout->stride[0], .col = layout->stride[1]};
}

static void fill_kernel(struct embedding_problem *problem)
{
    const clattn_embedding_desc *desc = &problem->desc;
    embedding_args *kernel = &problem->kernel;
    kernel->table = table_strides(&desc->table);
    kernel->position_table = table_strides(&desc->position_table);
    kernel->segment_table = table_strides(&desc->segment_table);
    kernel->y = (array4){.batch = desc->y.stride[0], .row = desc->y.stride[1], .col = desc->y.stride[2]};
    kernel->ids_batch = desc->ids.stride[0];
    kernel->ids_row = desc->ids.stride[1];
    kernel->segments_batch = desc->segments.extent[0] == 1 ? 0 : desc->segments.stride[0];
    kernel->segments_row = desc->segments.stride[1];
    kernel->offsets_batch = desc->offsets.stride[0];
    kernel->size = (int)desc->y.extent[2];
    kernel->rows = (int)desc->table.extent[0];
    kernel->position_rows = (int)desc->position_table.extent[0];
    kernel->segment_rows = (int)desc->segment_table.extent[0];
    kernel->has_offsets = !layout_is_none(&desc->offsets);
    kernel->scale = desc->scale;
    problem->unit_columns = desc->y.stride[2] == 1 && desc->table.stride[1] == 1 &&
                            (layout_is_none(&desc->position_table) || desc->position_table.stride[1] == 1) &&
                            (layout_is_none(&desc->segment_table) || desc->segment_table.stride[1] == 1);
}

clattn_status embedding_problem_read(const clattn_embedding_desc *given, struct embedding_problem *problem,
                                     const char **reason)
{
    clattn_status status;
    clattn_embedding_desc *desc = &problem->desc;
    size_t places;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_embedding_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    TRY(read_y(desc, reason));
    const size_t size = desc->y.extent[2];
    TRY(read_table(&desc->table, LAYOUT_OF("table"), size, reason));
    TRY(read_indices(&desc->ids, LAYOUT_OF("ids"), 2, false, &desc->y, reason));
    if (desc->positions == CLATTN_POSITIONS_TABLE)
        TRY(read_table(&desc->position_table, LAYOUT_OF("position_table"), size, reason));
    if (!layout_is_none(&desc->offsets))
        TRY(read_indices(&desc->offsets, LAYOUT_OF("offsets"), 1, false, &desc->y, reason));
    problem->has_segments = !layout_is_none(&desc->segments);
    if (problem->has_segments) {
        TRY(read_indices(&desc->segments, LAYOUT_OF("segments"), 2, true, &desc->y, reason));
        TRY(read_table(&desc->segment_table, LAYOUT_OF("segment_table"), size, reason));
    }
    problem->empty = !desc->y.extent[0] || !desc->y.extent[1] || !size;
    if (problem->empty)
        return CLATTN_SUCCESS;
    status = CLATTN_ERROR_OVERFLOW;
    *reason = "batch times length, or the size, is more than 2^31 - 65537";
    if (!size_mul(desc->y.extent[0], desc->y.extent[1], &places) || places > LENGTH_LIMIT || size > LENGTH_LIMIT)
        goto fail;
    fill_kernel(problem);
    if (desc->positions == CLATTN_POSITIONS_SINUSOIDS)
        TRY(read_turns(desc, &problem->kernel.rope, reason));
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* All bindings; if there is nothing to do, only that nothing is bound to an array that the description does not have. */
static clattn_status check_bindings(clattn_context *context, const clattn_embedding_desc *desc,
                                    const clattn_embedding_args *args, bool idle)
{
    const size_t places[3] = {args->batch, args->length, desc->y.extent[2]};
    const size_t segments[2] = {desc->segments.extent[0] == 1 ? 1 : args->batch, args->length};
    const bool has_positions = !layout_is_none(&desc->position_table), has_segments = !layout_is_none(&desc->segments);
    const struct bound_array arrays[] = {
        {&args->ids, &desc->ids, places, BINDING_READ, "ids", true},
        {&args->table, &desc->table, desc->table.extent, BINDING_READ, "table", true},
        {&args->y, &desc->y, places, BINDING_WRITE, "y", true},
        {&args->position_table, &desc->position_table, desc->position_table.extent, BINDING_READ, "position_table",
         has_positions},
        {&args->offsets, &desc->offsets, places, BINDING_READ, "offsets", !layout_is_none(&desc->offsets)},
        {&args->segments, &desc->segments, segments, BINDING_READ, "segments", has_segments},
        {&args->segment_table, &desc->segment_table, desc->segment_table.extent, BINDING_READ, "segment_table",
         has_segments},
    };
    return idle ? bindings_absent(context, arrays, COUNT_OF(arrays))
                : bindings_check(context, arrays, COUNT_OF(arrays));
}

clattn_status embedding_args_read(clattn_context *context, const struct embedding_problem *problem,
                                  const clattn_embedding_args *given, clattn_embedding_args *args,
                                  embedding_args *kernel_args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const clattn_embedding_desc *desc = &problem->desc;
    TRY(args_read(report, "clattn_embedding_args", args, sizeof *args, sizeof *args, given));
    *kernel_args = problem->kernel;
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, desc->y.extent[0]));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, desc->y.extent[1]));
    if (args->position > FARTHEST || args->position < -FARTHEST)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "position %lld is beyond 2^31",
                            (long long)args->position);
    const bool idle = problem->empty || !args->batch || !args->length;
    TRY(check_bindings(context, desc, args, idle));
    if (idle)
        return CLATTN_SUCCESS; /* kernel_args->batch stays 0 */
    kernel_args->ids_offset = args->ids.offset;
    kernel_args->table.offset = args->table.offset;
    kernel_args->y.offset = args->y.offset;
    kernel_args->position_table.offset = args->position_table.offset;
    kernel_args->offsets_offset = args->offsets.offset;
    kernel_args->segments_offset = args->segments.offset;
    kernel_args->segment_table.offset = args->segment_table.offset;
    kernel_args->position = args->position;
    kernel_args->batch = (int)args->batch;
    kernel_args->length = (int)args->length;
fail:
    return status;
}
