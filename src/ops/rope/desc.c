/* Reads and checks the description of a rotary position embedding. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/rope/rope.h"
#include "program/defines.h"

_Static_assert(sizeof(rope_args) == 24 + 4 * 40 + 6 * 8 + 17 * 8 + 12 * 4, "rope_args has padding");

#define MAX_ROTARY ((size_t)2 << ROPE_RATIOS)

/* Reads the gradients, and puts them where the kernels look for x and y. */
static clattn_status read_gradients(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status;
    clattn_layout *x = &desc->gradients.x, *y = &desc->gradients.y;
    const struct layout_rule both[] = {
        {y, LAYOUT_OF("gradients.y"), LAYOUT_INPUT, 0, false},
        {x, LAYOUT_OF("gradients.x"), LAYOUT_OUTPUT, 0, false},
    };
    REQUIRE(layout_is_none(&desc->x) && layout_is_none(&desc->y), CLATTN_ERROR_INVALID_ARGUMENT,
            "x and y are for CLATTN_DIRECTION_FORWARD");
    TRY(layouts_read(both, COUNT_OF(both), NULL, reason));
    REQUIRE(dtype_is_storage(x->dtype) && dtype_is_storage(y->dtype), CLATTN_ERROR_UNSUPPORTED,
            "gradients are float32, float16 or bfloat16");
    REQUIRE(x->rank == y->rank && !memcmp(x->extent, y->extent, sizeof x->extent), CLATTN_ERROR_INVALID_LAYOUT,
            "gradients differ in extents");
    desc->x = *y;
    desc->y = *x;
    *x = *y = (clattn_layout){0};
fail:
    return status;
}

static clattn_status read_x(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status;
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown direction");
    if (desc->direction == CLATTN_DIRECTION_BACKWARD) {
        TRY(read_gradients(desc, reason));
    } else {
        REQUIRE(layout_is_none(&desc->gradients.x) && layout_is_none(&desc->gradients.y), CLATTN_ERROR_INVALID_ARGUMENT,
                "gradients are for CLATTN_DIRECTION_BACKWARD");
        TRY(read_x_and_y(&desc->x, &desc->y, reason));
    }
    REQUIRE(desc->x.rank == 4, CLATTN_ERROR_INVALID_LAYOUT,
            "x, y and their gradients are (batch, heads, length, size)");
fail:
    return status;
}

static clattn_status read_options(clattn_rope_desc *desc, const char **reason)
{
    if (desc->base == 0)
        desc->base = 10000;
    if (!desc->rotary_size)
        desc->rotary_size = desc->x.extent[3];
    REQUIRE(enum_within(desc->pairing, CLATTN_ROPE_PAIRING_INTERLEAVED), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown pairing");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    REQUIRE(desc->base > 1 && isfinite(desc->base), CLATTN_ERROR_INVALID_ARGUMENT, "base is not finite and above 1");
    REQUIRE(desc->rotary_size % 2 == 0 && desc->rotary_size <= desc->x.extent[3], CLATTN_ERROR_INVALID_ARGUMENT,
            "the rotary size is odd, or above the head size");
    REQUIRE(desc->rotary_size <= MAX_ROTARY, CLATTN_ERROR_UNSUPPORTED, "the rotary size is above 131072");
    return CLATTN_SUCCESS;
}

/* Whether an array has this batch, or one item for all of it. */
static bool broadcasts(const clattn_layout *layout, size_t batch)
{
    return layout->extent[0] == batch || layout->extent[0] == 1;
}

static clattn_status read_tables(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status;
    clattn_layout *cosines = &desc->cos, *sines = &desc->sin;
    const bool by_position = cosines->rank == 2, by_place = cosines->rank == 3;
    REQUIRE(layout_is_none(cosines) == layout_is_none(sines), CLATTN_ERROR_INVALID_LAYOUT,
            "there is one of cos and sin");
    if (layout_is_none(cosines))
        return CLATTN_SUCCESS;
    TRY(layout_check(cosines, LAYOUT_INPUT, LAYOUT_OF("cos"), reason));
    TRY(layout_check(sines, LAYOUT_INPUT, LAYOUT_OF("sin"), reason));
    layout_normalise(cosines);
    layout_normalise(sines);
    REQUIRE(dtype_is_storage(cosines->dtype) && cosines->dtype == sines->dtype, CLATTN_ERROR_UNSUPPORTED,
            "cos and sin are float32, float16 or bfloat16, both the same");
    REQUIRE(cosines->rank == sines->rank && !memcmp(cosines->extent, sines->extent, sizeof cosines->extent),
            CLATTN_ERROR_INVALID_LAYOUT, "cos and sin differ in extents");
    REQUIRE((by_position || by_place) && cosines->extent[cosines->rank - 1] == desc->rotary_size / 2 &&
                (by_position || (broadcasts(cosines, desc->x.extent[0]) && cosines->extent[1] == desc->x.extent[2])),
            CLATTN_ERROR_INVALID_LAYOUT,
            "cos and sin are (table, rotary size / 2) or (batch or 1, length, rotary size / 2)");
    REQUIRE(by_place || cosines->extent[0] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW,
            "the table has more than 2^31 - 65537 rows");
fail:
    return status;
}

static clattn_status read_integers(clattn_layout *layout, const struct layout_words *words, const char **reason)
{
    clattn_status status;
    TRY(layout_check(layout, LAYOUT_INPUT, words, reason));
    layout_normalise(layout);
    REQUIRE(dtype_is_integer(layout->dtype), CLATTN_ERROR_UNSUPPORTED, "positions and offsets are int32 or int64");
fail:
    return status;
}

static clattn_status read_positions(clattn_rope_desc *desc, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_layout *positions = &desc->positions, *offsets = &desc->offsets;
    const size_t batch = desc->x.extent[0], length = desc->x.extent[2];
    if (!layout_is_none(positions)) {
        TRY(read_integers(positions, LAYOUT_OF("positions"), reason));
        REQUIRE(positions->rank == 2 && broadcasts(positions, batch) && positions->extent[1] == length,
                CLATTN_ERROR_INVALID_LAYOUT, "positions are (batch or 1, length) and offsets (batch)");
    }
    if (!layout_is_none(offsets)) {
        TRY(read_integers(offsets, LAYOUT_OF("offsets"), reason));
        REQUIRE(offsets->rank == 1 && offsets->extent[0] == batch, CLATTN_ERROR_INVALID_LAYOUT,
                "positions are (batch or 1, length) and offsets (batch)");
    }
    REQUIRE(layout_is_none(positions) || layout_is_none(offsets), CLATTN_ERROR_INVALID_ARGUMENT,
            "there are positions and offsets");
    REQUIRE(desc->cos.rank != 3 || (layout_is_none(positions) && layout_is_none(offsets)),
            CLATTN_ERROR_INVALID_ARGUMENT, "cos and sin of each element leave no use for positions and offsets");
fail:
    return status;
}

/* Pair 0 turns by 2^64 / (2 pi) units of 2^-64 of a turn, and pair i by base^(-i/n) of that. */
static void set_turns(const clattn_rope_desc *desc, rope_args *kernel)
{
    long double pairs = (long double)(desc->rotary_size / 2), exponent = log2l((long double)desc->base);
    kernel->turn = 0x28be60db9391054a;
    for (int k = 0; k < ROPE_RATIOS && (size_t)1 << k < desc->rotary_size / 2; k++) {
        long double ratio = exp2l(-exponent * (long double)(1L << k) / pairs);
        kernel->ratio[k] = (uint64_t)ldexpl(ratio, 64);
    }
}

/* The batch stride: 0 if the array has one item for the whole batch. */
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

clattn_status rope_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct rope_problem *problem = result;
    clattn_rope_desc *desc = &problem->desc;
    rope_args *kernel = &problem->kernel;
    size_t places;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_rope_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_x(desc, reason));
    TRY(read_options(desc, reason));
    TRY(read_tables(desc, reason));
    TRY(read_positions(desc, reason));
    const size_t *extent = desc->x.extent;
    problem->empty = !extent[0] || !extent[1] || !extent[2] || !extent[3];
    if (problem->empty)
        return CLATTN_SUCCESS;
    REQUIRE(size_mul(extent[0], extent[2], &places) && places <= LENGTH_LIMIT && extent[1] <= LENGTH_LIMIT &&
                extent[3] <= LENGTH_LIMIT,
            CLATTN_ERROR_OVERFLOW, "batch times length, the heads or the head size are more than 2^31 - 65537");
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
fail:
    return status;
}

void rope_defines(const struct rope_problem *problem, struct strbuf *options)
{
    define_token(options, "X_TYPE", storage_token(problem->desc.x.dtype));
    define_token(options, "Y_TYPE", storage_token(problem->desc.y.dtype));
    define_token(options, "CACHE_TYPE", storage_token(problem->desc.cos.dtype));
    define_token(options, "POSITION_TYPE", integer_token(&problem->desc.positions));
    define_token(options, "OFFSET_TYPE", integer_token(&problem->desc.offsets));
    define_int(options, "BACKWARD", problem->desc.direction == CLATTN_DIRECTION_BACKWARD);
}
