/* Reading and checking what a rotary position embedding is asked for. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/rope/rope.h"
#include "program/defines.h"

_Static_assert(sizeof(rope_args) == 4 * 40 + 6 * 8 + 17 * 8 + 12 * 4, "rope_args has padding");

#define MAX_ROTARY ((size_t)2 << ROPE_RATIOS)

static clattn_status read_x(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status;
    TRY(read_x_and_y(&desc->x, &desc->y, reason));
    *reason = "x and y are (batch, heads, length, size)";
    if (desc->x.rank != 4)
        return CLATTN_ERROR_INVALID_LAYOUT;
fail:
    return status;
}

static clattn_status read_options(clattn_rope_desc *desc, const char **reason)
{
    *reason = "direction: only CLATTN_DIRECTION_FORWARD is known";
    if (desc->direction != CLATTN_DIRECTION_FORWARD)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "unknown pairing";
    if (desc->pairing != CLATTN_ROPE_PAIRING_HALVES && desc->pairing != CLATTN_ROPE_PAIRING_INTERLEAVED)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "reserved is not 0";
    if (desc->reserved != 0)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    if (desc->base == 0)
        desc->base = 10000;
    *reason = "base is not finite and above 1";
    if (!(desc->base > 1 && isfinite(desc->base)))
        return CLATTN_ERROR_INVALID_ARGUMENT;
    if (!desc->rotary_size)
        desc->rotary_size = desc->x.extent[3];
    *reason = "the rotary size is odd, or above the head size";
    if (desc->rotary_size % 2 || desc->rotary_size > desc->x.extent[3])
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "the rotary size is above 131072";
    return desc->rotary_size > MAX_ROTARY ? CLATTN_ERROR_UNSUPPORTED : CLATTN_SUCCESS;
}

static clattn_status read_caches(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status = CLATTN_ERROR_INVALID_LAYOUT;
    clattn_layout *cosines = &desc->cos, *sines = &desc->sin;
    *reason = "there is one of cos and sin";
    if (layout_is_none(cosines) != layout_is_none(sines))
        goto fail;
    if (layout_is_none(cosines))
        return CLATTN_SUCCESS;
    TRY(layout_check(cosines, LAYOUT_INPUT, LAYOUT_OF("cos"), reason));
    TRY(layout_check(sines, LAYOUT_INPUT, LAYOUT_OF("sin"), reason));
    layout_normalise(cosines);
    layout_normalise(sines);
    status = CLATTN_ERROR_UNSUPPORTED;
    *reason = "cos and sin are float32, float16 or bfloat16, both the same";
    if (!dtype_is_storage(cosines->dtype) || cosines->dtype != sines->dtype)
        goto fail;
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "cos and sin differ in extents";
    if (cosines->rank != sines->rank || memcmp(cosines->extent, sines->extent, sizeof cosines->extent) != 0)
        goto fail;
    *reason = "cos and sin are (table, rotary size / 2) or (batch or 1, length, rotary size / 2)";
    if (cosines->rank < 2 || cosines->rank > 3 || cosines->extent[cosines->rank - 1] != desc->rotary_size / 2)
        goto fail;
    if (cosines->rank == 3 && ((cosines->extent[0] != 1 && cosines->extent[0] != desc->x.extent[0]) ||
                               cosines->extent[1] != desc->x.extent[2]))
        goto fail;
    status = CLATTN_ERROR_OVERFLOW;
    *reason = "the table has more than 2^31 - 65537 rows";
    if (cosines->rank == 2 && cosines->extent[0] > LENGTH_LIMIT)
        goto fail;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

static clattn_status read_indices(clattn_layout *layout, const struct layout_words *words, int rank,
                                  const size_t *extent, const char **reason)
{
    clattn_status status;
    if (layout_is_none(layout))
        return CLATTN_SUCCESS;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    layout_normalise(layout);
    status = CLATTN_ERROR_UNSUPPORTED;
    *reason = "positions and offsets are int32 or int64";
    if (!dtype_is_integer(layout->dtype))
        goto fail;
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "positions are (batch or 1, length) and offsets (batch)";
    if (layout->rank != rank || (layout->extent[0] != extent[0] && (layout->extent[0] != 1 || rank == 1)) ||
        (rank == 2 && layout->extent[1] != extent[1]))
        goto fail;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

static clattn_status read_positions(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status;
    const size_t extent[2] = {desc->x.extent[0], desc->x.extent[2]};
    TRY(read_indices(&desc->positions, LAYOUT_OF("positions"), 2, extent, reason));
    TRY(read_indices(&desc->offsets, LAYOUT_OF("offsets"), 1, extent, reason));
    status = CLATTN_ERROR_INVALID_ARGUMENT;
    *reason = "there are positions and offsets";
    if (!layout_is_none(&desc->positions) && !layout_is_none(&desc->offsets))
        goto fail;
    *reason = "cos and sin of each element leave no use for positions and offsets";
    if (desc->cos.rank == 3 && (!layout_is_none(&desc->positions) || !layout_is_none(&desc->offsets)))
        goto fail;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* In units of 2^-64 of a turn pair 0 turns 2^64 / 2 pi, and pair i base^(-i/n) of that. */
static void set_turns(const clattn_rope_desc *desc, rope_args *kernel)
{
    long double pairs = (long double)(desc->rotary_size / 2), exponent = log2l((long double)desc->base);
    kernel->turn = 0x28be60db9391054a;
    for (int k = 0; k < ROPE_RATIOS && (size_t)1 << k < desc->rotary_size / 2; k++) kernel
        ->ratio[k] = (uint64_t)ldexpl(exp2l(-exponent * (long double)(1L << k) / pairs), 64);
}

/* A stride that an extent of 1 makes a broadcast. */
static int64_t batch_stride(const clattn_layout *layout)
{
    return layout->extent[0] == 1 ? 0 : layout->stride[0];
}

static void set_strides(const clattn_rope_desc *desc, rope_args *kernel)
{
    kernel->x = array4_of(&desc->x, 0);
    kernel->y = array4_of(&desc->y, 0);
    if (desc->cos.rank == 3) {
        kernel->cos =
            (array4){.batch = batch_stride(&desc->cos), .row = desc->cos.stride[1], .col = desc->cos.stride[2]};
        kernel->sin =
            (array4){.batch = batch_stride(&desc->sin), .row = desc->sin.stride[1], .col = desc->sin.stride[2]};
    } else {
        kernel->cos = (array4){.row = desc->cos.stride[0], .col = desc->cos.stride[1]};
        kernel->sin = (array4){.row = desc->sin.stride[0], .col = desc->sin.stride[1]};
    }
    kernel->positions_batch = batch_stride(&desc->positions);
    kernel->positions_row = desc->positions.stride[1];
    kernel->offsets_batch = desc->offsets.stride[0];
}

clattn_status rope_problem_read(const clattn_rope_desc *given, struct rope_problem *problem, const char **reason)
{
    clattn_status status;
    clattn_rope_desc *desc = &problem->desc;
    rope_args *kernel = &problem->kernel;
    size_t places;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_rope_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_x(desc, reason));
    TRY(read_options(desc, reason));
    TRY(read_caches(desc, reason));
    TRY(read_positions(desc, reason));
    const size_t *extent = desc->x.extent;
    problem->empty = !extent[0] || !extent[1] || !extent[2] || !extent[3];
    if (problem->empty)
        return CLATTN_SUCCESS;
    status = CLATTN_ERROR_OVERFLOW;
    *reason = "batch times length, the heads or the head size are more than 2^31 - 65537";
    if (!size_mul(extent[0], extent[2], &places) || places > LENGTH_LIMIT || extent[1] > LENGTH_LIMIT ||
        extent[3] > LENGTH_LIMIT)
        goto fail;
    bool interleaved = desc->pairing == CLATTN_ROPE_PAIRING_INTERLEAVED;
    set_turns(desc, kernel);
    set_strides(desc, kernel);
    kernel->heads = (int)extent[1];
    kernel->size = (int)extent[3];
    kernel->pairs = (int)(desc->rotary_size / 2);
    kernel->step = interleaved ? 2 : 1;
    kernel->distance = interleaved ? 1 : kernel->pairs;
    kernel->table = desc->cos.rank == 0 ? ROPE_COMPUTED : desc->cos.rank == 2 ? ROPE_BY_POSITION : ROPE_BY_PLACE;
    kernel->table_rows = desc->cos.rank == 2 ? (int)desc->cos.extent[0] : 0;
    kernel->has_positions = !layout_is_none(&desc->positions);
    kernel->has_offsets = !layout_is_none(&desc->offsets);
    kernel->chunk = 4;
    problem->unit_columns = desc->x.stride[3] == 1 && desc->y.stride[3] == 1;
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* All bindings; if there is nothing to do, only that nothing is bound to an array that the description does not have. */
static clattn_status check_bindings(clattn_context *context, const clattn_rope_desc *desc, const clattn_rope_args *args,
                                    bool idle)
{
    const size_t rows[4] = {args->batch, desc->x.extent[1], args->length, desc->x.extent[3]};
    struct bound_array arrays[] = {
        {&args->x, &desc->x, rows, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&args->y, &desc->y, rows, BINDING_WRITE | BINDING_IN_PLACE, "y", true},
        {&args->cos, &desc->cos, NULL, BINDING_READ, "cos", !layout_is_none(&desc->cos)},
        {&args->sin, &desc->sin, NULL, BINDING_READ, "sin", !layout_is_none(&desc->sin)},
        {&args->positions, &desc->positions, NULL, BINDING_READ, "positions", !layout_is_none(&desc->positions)},
        {&args->offsets, &desc->offsets, NULL, BINDING_READ, "offsets", !layout_is_none(&desc->offsets)},
    };
    size_t extent[COUNT_OF(arrays)][CLATTN_MAX_RANK];
    if (idle)
        return bindings_absent(context, arrays, COUNT_OF(arrays));
    for (size_t i = 2; i < COUNT_OF(arrays); i++) {
        const clattn_layout *layout = arrays[i].layout;
        memcpy(extent[i], layout->extent, sizeof extent[i]);
        arrays[i].extent = extent[i];
        if (i < 4 && layout->rank == 2)
            continue; /* a table by position, all of which is used */
        if (extent[i][0] != 1)
            extent[i][0] = args->batch;
        if (layout->rank > 1)
            extent[i][1] = args->length;
    }
    return bindings_check(context, arrays, COUNT_OF(arrays));
}

clattn_status rope_args_read(clattn_context *context, const struct rope_problem *problem, const clattn_rope_args *given,
                             clattn_rope_args *args, rope_args *kernel_args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const clattn_rope_desc *desc = &problem->desc;
    TRY(args_read(report, "clattn_rope_args", args, sizeof *args, sizeof *args, given));
    *kernel_args = problem->kernel;
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, desc->x.extent[0]));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, desc->x.extent[2]));
    const bool idle = problem->empty || !args->batch || !args->length;
    TRY(check_bindings(context, desc, args, idle));
    if (idle)
        return CLATTN_SUCCESS; /* kernel_args->batch stays 0 */
    kernel_args->x.offset = args->x.offset;
    kernel_args->y.offset = args->y.offset;
    kernel_args->cos.offset = args->cos.offset;
    kernel_args->sin.offset = args->sin.offset;
    kernel_args->positions_offset = args->positions.offset;
    kernel_args->offsets_offset = args->offsets.offset;
    kernel_args->position = args->position;
    kernel_args->batch = (int)args->batch;
    kernel_args->length = (int)args->length;
fail:
    return status;
}

static const char *integer_token(const clattn_layout *layout)
{
    return layout->dtype == CLATTN_DTYPE_I64 ? "I64" : "I32";
}

void rope_defines(const struct rope_problem *problem, struct strbuf *options)
{
    define_token(options, "X_TYPE", storage_token(problem->desc.x.dtype));
    define_token(options, "Y_TYPE", storage_token(problem->desc.y.dtype));
    define_token(options, "CACHE_TYPE", storage_token(problem->desc.cos.dtype));
    define_token(options, "POSITION_TYPE", integer_token(&problem->desc.positions));
    define_token(options, "OFFSET_TYPE", integer_token(&problem->desc.offsets));
}
