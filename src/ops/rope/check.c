/* The self-check of rotary position embedding: a plan's own kernel on some heads. */
#include "base/try.h"
#include "ops/common/check.h"
#include "ops/rope/rope.h"
#include "ref/ref.h"

#define BATCH 2
#define HEADS 5
#define LENGTH 3
#define ROTARY 78
#define TAIL 5
#define TABLE 16
#define FAR 900000 /* a position whose angles are many turns */

enum { X, COS, SIN, POSITIONS, OFFSETS, Y, ARRAYS };

/* Positions within the table, also after up to LENGTH has been added to an offset. */
static void fill_integers(struct check *check)
{
    const clattn_rope_desc *desc = check->problem;
    check_array_count(&check->arrays[POSITIONS], desc->positions.dtype, 5, 3, TABLE - LENGTH);
    check_array_count(&check->arrays[OFFSETS], desc->offsets.dtype, 5, 3, TABLE - LENGTH);
}

static int64_t first_position(const clattn_rope_desc *desc)
{
    return desc->cos.rank ? 0 : FAR;
}

static int64_t position_of(const struct check *check, int64_t b, int64_t s)
{
    const clattn_rope_desc *desc = check->problem;
    double added = (double)s;
    if (desc->positions.rank)
        added = check_read(&check->arrays[POSITIONS], b * LENGTH + s);
    else if (desc->offsets.rank)
        added += check_read(&check->arrays[OFFSETS], b);
    return first_position(desc) + (int64_t)added;
}

static clattn_status judge_head(const struct check *check, const int64_t index[3])
{
    const clattn_rope_desc *desc = check->problem;
    int64_t position = position_of(check, index[0], index[2]), pairs = (int64_t)desc->rotary_size / 2;
    int64_t row = desc->cos.rank == 2 ? position : index[0] * LENGTH + index[2];
    float x[ROTARY + TAIL], cosines[ROTARY / 2], sines[ROTARY / 2];
    double exact[ROTARY + TAIL], magnitude[ROTARY + TAIL];
    ref_rope_problem reference = {
        .size = (int64_t)desc->x.extent[3],
        .rotary = (int64_t)desc->rotary_size,
        .interleaved = desc->pairing == CLATTN_ROPE_PAIRING_INTERLEAVED,
        .base = (double)desc->base,
        .cosines = desc->cos.rank ? cosines : NULL,
        .sines = desc->cos.rank ? sines : NULL,
    };
    for (int64_t i = 0; i < pairs && desc->cos.rank; i++) {
        cosines[i] = (float)check_read(&check->arrays[COS], row * pairs + i);
        sines[i] = (float)check_read(&check->arrays[SIN], row * pairs + i);
        if (desc->direction == CLATTN_DIRECTION_BACKWARD)
            sines[i] = -sines[i];
    }
    if (desc->direction == CLATTN_DIRECTION_BACKWARD)
        position = -position;
    int64_t from = 0;
    for (int i = 0; i < 3; i++)
        from += index[i] * desc->x.stride[i];
    for (int64_t d = 0; d < reference.size; d++)
        x[d] = (float)check_read(&check->arrays[X], from + d * desc->x.stride[3]);
    ref_rope_row(&reference, x, position, exact, magnitude);
    return check_row(check, &check->arrays[Y], index, exact, NULL, magnitude);
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    int64_t index[3];
    for (index[0] = 0; index[0] < BATCH; index[0]++)
        for (index[1] = 0; index[1] < HEADS; index[1]++)
            for (index[2] = 0; index[2] < LENGTH; index[2]++)
                TRY(judge_head(check, index));
fail:
    return status;
}

/* The small problem has the same -D options: types, pairing, whether columns are contiguous. */
clattn_status rope_self_check(struct self_check *self)
{
    const struct rope_problem *full = &((const struct rope_plan *)self->plan)->problem;
    const size_t extent[3] = {BATCH, LENGTH, ROTARY / 2}, table[2] = {TABLE, ROTARY / 2};
    clattn_rope_desc desc = full->desc;
    desc.rotary_size = ROTARY;
    desc.base = 0; /* the default: with another base all angles may be tiny */
    desc.x = clattn_layout_bhsd(desc.x.dtype, BATCH, HEADS, LENGTH, ROTARY + TAIL);
    desc.y = clattn_layout_bhsd(desc.y.dtype, BATCH, HEADS, LENGTH, ROTARY + TAIL);
    for (int i = 0; i < 4 && !full->unit_columns; i++)
        desc.x.stride[i] *= 2;
    if (desc.cos.rank)
        desc.cos = desc.sin =
            clattn_layout_contiguous(desc.cos.dtype, desc.cos.rank, desc.cos.rank == 2 ? table : extent);
    if (desc.positions.rank)
        desc.positions = clattn_layout_contiguous(desc.positions.dtype, 2, extent);
    if (desc.offsets.rank)
        desc.offsets = clattn_layout_contiguous(desc.offsets.dtype, 1, extent);
    const bool backward = desc.direction == CLATTN_DIRECTION_BACKWARD;
    if (backward) { /* as a caller describes it */
        desc.gradients.y = desc.x;
        desc.gradients.x = desc.y;
        desc.x = desc.y = (clattn_layout){0};
    }
    struct rope_problem small;
    clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [X] = {backward ? "gradients.y" : "x", &small.desc.x, backward ? &args.gradients.y : &args.x, CHECK_NUMBERS},
        [COS] = {"cos", &small.desc.cos, &args.cos, CHECK_NUMBERS},
        [SIN] = {"sin", &small.desc.sin, &args.sin, CHECK_NUMBERS},
        [POSITIONS] = {"positions", &small.desc.positions, &args.positions, CHECK_ZEROS},
        [OFFSETS] = {"offsets", &small.desc.offsets, &args.offsets, CHECK_ZEROS},
        [Y] = {backward ? "gradients.x" : "y", &small.desc.y, backward ? &args.gradients.x : &args.y, CHECK_ZEROS},
    };
    args.position = first_position(&desc);
    const struct check_course course = {places, ARRAYS, Y, fill_integers, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}
