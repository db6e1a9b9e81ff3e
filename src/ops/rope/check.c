/* The self-check of rotary position embedding: a plan's own kernel on some heads. */
#include <float.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/rope/rope.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define BATCH 2
#define HEADS 5
#define LENGTH 3
#define ROTARY 78
#define TAIL 5
#define TABLE 16
#define FAR 900000 /* a position whose angles are many turns */

enum { X, COS, SIN, POSITIONS, OFFSETS, Y, ARRAYS };

struct rope_check {
    struct rope_problem small, original;
    clattn_rope_args args;
    struct check_array arrays[ARRAYS];
};

/* The small problem has the same -D options: types, pairing, whether columns are contiguous. */
static clattn_status describe(struct rope_check *check)
{
    const clattn_rope_desc *full = &check->original.desc;
    clattn_rope_desc desc = *full;
    const size_t places[3] = {BATCH, LENGTH, ROTARY / 2}, table[2] = {TABLE, ROTARY / 2};
    const char *reason;
    desc.rotary_size = ROTARY;
    desc.base = 0; /* the default: with another base all angles may be tiny */
    desc.x = clattn_layout_bhsd(full->x.dtype, BATCH, HEADS, LENGTH, ROTARY + TAIL);
    desc.y = clattn_layout_bhsd(full->y.dtype, BATCH, HEADS, LENGTH, ROTARY + TAIL);
    for (int i = 0; i < 4 && !check->original.unit_columns; i++)
        desc.x.stride[i] *= 2;
    if (full->cos.rank)
        desc.cos = desc.sin =
            clattn_layout_contiguous(full->cos.dtype, full->cos.rank, full->cos.rank == 2 ? table : places);
    if (full->positions.rank)
        desc.positions = clattn_layout_contiguous(full->positions.dtype, 2, places);
    if (full->offsets.rank)
        desc.offsets = clattn_layout_contiguous(full->offsets.dtype, 1, places);
    return rope_problem_read(&desc, &check->small, &reason);
}

static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct rope_check *check = data;
    const clattn_rope_desc *desc = &check->small.desc;
    TRY(describe(check));
    const struct check_place places[ARRAYS] = {
        [X] = {&desc->x, &check->args.x, CHECK_NUMBERS},
        [COS] = {&desc->cos, &check->args.cos, CHECK_NUMBERS},
        [SIN] = {&desc->sin, &check->args.sin, CHECK_NUMBERS},
        [POSITIONS] = {&desc->positions, &check->args.positions, CHECK_ZEROS},
        [OFFSETS] = {&desc->offsets, &check->args.offsets, CHECK_ZEROS},
        [Y] = {&desc->y, &check->args.y, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    /* Positions within the table, also after up to LENGTH has been added to an offset. */
    check_array_count(&check->arrays[POSITIONS], desc->positions.dtype, 5, 3, TABLE - LENGTH);
    check_array_count(&check->arrays[OFFSETS], desc->offsets.dtype, 5, 3, TABLE - LENGTH);
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
    check->args.position = desc->cos.rank ? 0 : FAR;
fail:
    return status;
}

static int64_t position_of(const struct rope_check *check, int64_t b, int64_t s)
{
    const clattn_rope_desc *desc = &check->small.desc;
    double added = (double)s;
    if (desc->positions.rank)
        added = ref_element(check->arrays[POSITIONS].host, desc->positions.dtype, b * LENGTH + s);
    else if (desc->offsets.rank)
        added += ref_element(check->arrays[OFFSETS].host, desc->offsets.dtype, b);
    return check->args.position + (int64_t)added;
}

static clattn_status judge_head(const struct rope_check *check, struct report *report, const char *kernel,
                                const int64_t index[3])
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_rope_desc *desc = &check->small.desc;
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
        cosines[i] = (float)ref_element(check->arrays[COS].host, desc->cos.dtype, row * pairs + i);
        sines[i] = (float)ref_element(check->arrays[SIN].host, desc->sin.dtype, row * pairs + i);
    }
    int64_t from = 0, to = 0;
    for (int i = 0; i < 3; i++) {
        from += index[i] * desc->x.stride[i];
        to += index[i] * desc->y.stride[i];
    }
    for (int64_t d = 0; d < reference.size; d++)
        x[d] = (float)ref_element(check->arrays[X].host, desc->x.dtype, from + d * desc->x.stride[3]);
    ref_rope_row(&reference, x, position, exact, magnitude);
    for (int64_t d = 0; d < reference.size; d++) {
        double value = ref_element(check->arrays[Y].host, desc->y.dtype, to + d);
        double slack = check_slack(exact[d], exact[d], magnitude[d], FLT_EPSILON, storage_epsilon(desc->y.dtype));
        TRY(check_element(report, kernel, "y", (const int64_t[4]){index[0], index[1], index[2], d}, value, exact[d],
                          slack));
    }
fail:
    return status;
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct rope_check *check = data;
    int64_t index[3];
    for (index[0] = 0; index[0] < BATCH; index[0]++)
        for (index[1] = 0; index[1] < (int64_t)check->small.desc.x.extent[1]; index[1]++)
            for (index[2] = 0; index[2] < LENGTH; index[2]++)
                TRY(judge_head(check, report, kernel, index));
fail:
    return status;
}

clattn_status rope_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct rope_plan *plan = (const struct rope_plan *)base;
    struct rope_check check = {.original = plan->problem, .args = CLATTN_ROPE_ARGS_INIT};
    const struct check_course course = {&check.small, &check.args, check.arrays, ARRAYS, Y, 1, make, judge, 0};
    return check_run(base, &course, &check);
}
