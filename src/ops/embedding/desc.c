/* Reads and checks the description of an embedding. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/embedding/embedding.h"
#include "ops/rope/rope.h"

_Static_assert(sizeof(embedding_args) == 24 + 4 * 40 + 9 * 8 + sizeof(rope_args) + 10 * 4,
               "embedding_args has padding");

static clattn_status read_options(clattn_embedding_desc *desc, const char **reason)
{
    if (!desc->explicit_scale)
        desc->scale = 1;
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT, "unknown direction");
    REQUIRE(layout_is_none(&desc->gradients.table) && layout_is_none(&desc->gradients.y), CLATTN_ERROR_INVALID_ARGUMENT,
            "gradients are for CLATTN_DIRECTION_BACKWARD");
    REQUIRE(enum_within(desc->positions, CLATTN_POSITIONS_TABLE), CLATTN_ERROR_INVALID_ARGUMENT, "unknown positions");
    REQUIRE(is_flag(desc->explicit_scale), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_scale is neither 0 nor 1");
    REQUIRE(isfinite(desc->scale), CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    REQUIRE(desc->positions == CLATTN_POSITIONS_TABLE || layout_is_none(&desc->position_table),
            CLATTN_ERROR_INVALID_ARGUMENT, "position_table, and positions are not by a table");
    REQUIRE(desc->positions != CLATTN_POSITIONS_NONE || layout_is_none(&desc->offsets), CLATTN_ERROR_INVALID_ARGUMENT,
            "offsets, and there are no positions");
    REQUIRE(layout_is_none(&desc->segments) == layout_is_none(&desc->segment_table), CLATTN_ERROR_INVALID_ARGUMENT,
            "there is one of segments and segment_table");
    return CLATTN_SUCCESS;
}

const char *embedding_check_part(const clattn_embedding_desc *desc, size_t rows)
{
    if (!desc->part.rows)
        return desc->part.first ? "part.first, and part.rows is 0" : NULL;
    return desc->part.rows > LENGTH_LIMIT || desc->part.first > desc->part.rows ||
                   rows > desc->part.rows - desc->part.first
               ? "the part's rows go beyond part.rows, or that is more than 2^31 - 65537"
               : NULL;
}

static clattn_status read_y(clattn_embedding_desc *desc, const char **reason)
{
    clattn_status status;
    TRY(layout_check(&desc->y, LAYOUT_OUTPUT, LAYOUT_OF("y"), reason));
    layout_normalise(&desc->y);
    REQUIRE(dtype_is_storage(desc->y.dtype), CLATTN_ERROR_UNSUPPORTED, "y is float32, float16 or bfloat16");
    REQUIRE(desc->y.rank == 3, CLATTN_ERROR_INVALID_LAYOUT, "y is (batch, length, size)");
fail:
    return status;
}

/* A table is (rows, size), of y's size. */
static clattn_status read_table(clattn_layout *layout, const struct layout_words *words, size_t size,
                                const char **reason)
{
    clattn_status status;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    layout_normalise(layout);
    REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED,
            "table, position_table and segment_table are float32, float16 or bfloat16");
    REQUIRE(layout->rank == 2 && layout->extent[1] == size, CLATTN_ERROR_INVALID_LAYOUT,
            "table, position_table and segment_table are (rows, size), with y's size");
    REQUIRE(layout->extent[0] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "a table has more than 2^31 - 65537 rows");
fail:
    return status;
}

static clattn_status read_indices(clattn_layout *layout, const struct layout_words *words, int rank, bool broadcasts,
                                  const clattn_layout *y, const char **reason)
{
    clattn_status status;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    layout_normalise(layout);
    REQUIRE(layout->dtype == CLATTN_DTYPE_I32, CLATTN_ERROR_UNSUPPORTED, "ids, segments and offsets are int32");
    REQUIRE(layout->rank == rank && (layout->extent[0] == y->extent[0] || (broadcasts && layout->extent[0] == 1)) &&
                (rank == 1 || layout->extent[1] == y->extent[1]),
            CLATTN_ERROR_INVALID_LAYOUT, "ids are (batch, length), segments (batch or 1, length) and offsets (batch)");
fail:
    return status;
}

/* The sinusoids have the angles of rotary embedding. */
static clattn_status read_angles(const clattn_embedding_desc *desc, rope_args *kernel, const char **reason)
{
    clattn_status status;
    clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
    struct rope_problem read;
    REQUIRE(desc->y.extent[2] % 2 == 0 && desc->y.extent[2] <= (size_t)2 << ROPE_RATIOS, CLATTN_ERROR_UNSUPPORTED,
            "sinusoids of an odd size, or of one above 131072");
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
    kernel->first_row = (int)desc->part.first;
    kernel->all_rows = desc->part.rows ? (int)desc->part.rows : kernel->rows;
    kernel->position_rows = (int)desc->position_table.extent[0];
    kernel->segment_rows = (int)desc->segment_table.extent[0];
    kernel->has_offsets = !layout_is_none(&desc->offsets);
    kernel->scale = desc->scale;
    problem->unit_columns = desc->y.stride[2] == 1 && desc->table.stride[1] == 1 &&
                            (layout_is_none(&desc->position_table) || desc->position_table.stride[1] == 1) &&
                            (layout_is_none(&desc->segment_table) || desc->segment_table.stride[1] == 1);
}

clattn_status embedding_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct embedding_problem *problem = result;
    clattn_embedding_desc *desc = &problem->desc;
    size_t places;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_embedding_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    TRY(read_y(desc, reason));
    const size_t size = desc->y.extent[2];
    TRY(read_table(&desc->table, LAYOUT_OF("table"), size, reason));
    *reason = embedding_check_part(desc, desc->table.extent[0]);
    REQUIRE(!*reason, CLATTN_ERROR_INVALID_LAYOUT, *reason);
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
    REQUIRE(size_mul(desc->y.extent[0], desc->y.extent[1], &places) && places <= LENGTH_LIMIT && size <= LENGTH_LIMIT,
            CLATTN_ERROR_OVERFLOW, "batch times length, or the size, is more than 2^31 - 65537");
    fill_kernel(problem);
    if (desc->positions == CLATTN_POSITIONS_SINUSOIDS)
        TRY(read_angles(desc, &problem->kernel.rope, reason));
fail:
    return status;
}
