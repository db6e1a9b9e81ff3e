/* The self-check of embedding: the plan's own kernel on some places, one of them with an id that is not in the table. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/embedding/embedding.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define BATCH 2
#define LENGTH 3
#define SIZE 70       /* no multiple of a vector */
#define WHOLE_SIZE 80 /* a multiple of one */
#define ROWS 9        /* of each table */
#define FAR 900000    /* a position whose sinusoids are many turns on */

enum { IDS, TABLE, POSITION_TABLE, OFFSETS, SEGMENTS, SEGMENT_TABLE, Y, ARRAYS };

struct embedding_check {
    struct embedding_problem small, original;
    size_t size; /* of a row: SIZE or WHOLE_SIZE */
    clattn_embedding_args args;
    struct check_array arrays[ARRAYS];
};

/* The small problem has the same -D options: types, what is added, whether columns are contiguous, whether the size is a
 * multiple of a vector. */
static clattn_status describe(struct embedding_check *check)
{
    const clattn_embedding_desc *full = &check->original.desc;
    clattn_embedding_desc desc = *full;
    const size_t places[3] = {BATCH, LENGTH, check->size}, table[2] = {ROWS, check->size};
    const char *reason;
    desc.explicit_scale = 1;
    desc.scale = 1.5f; /* the plan's own may be 0 */
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, places);
    desc.y = clattn_layout_contiguous(full->y.dtype, 3, places);
    desc.table = clattn_layout_contiguous(full->table.dtype, 2, table);
    if (full->position_table.rank)
        desc.position_table = clattn_layout_contiguous(full->position_table.dtype, 2, table);
    if (full->offsets.rank)
        desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, places);
    if (full->segments.rank) {
        desc.segments = desc.ids;
        desc.segment_table = clattn_layout_contiguous(full->segment_table.dtype, 2, table);
    }
    for (int i = 0; i < 2 && !check->original.unit_columns; i++)
        desc.table.stride[i] *= 2;
    return embedding_problem_read(&desc, &check->small, &reason);
}

static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct embedding_check *check = data;
    const clattn_embedding_desc *desc = &check->small.desc;
    TRY(describe(check));
    const struct check_place places[ARRAYS] = {
        [IDS] = {&desc->ids, &check->args.ids, CHECK_ZEROS},
        [TABLE] = {&desc->table, &check->args.table, CHECK_NUMBERS},
        [POSITION_TABLE] = {&desc->position_table, &check->args.position_table, CHECK_NUMBERS},
        [OFFSETS] = {&desc->offsets, &check->args.offsets, CHECK_ZEROS},
        [SEGMENTS] = {&desc->segments, &check->args.segments, CHECK_ZEROS},
        [SEGMENT_TABLE] = {&desc->segment_table, &check->args.segment_table, CHECK_NUMBERS},
        [Y] = {&desc->y, &check->args.y, CHECK_ZEROS},
    };
    TRY(check_arrays_make(context, places, ARRAYS, check->arrays));
    /* Rows of the tables, also after up to LENGTH has been added to an offset. */
    check_array_count(&check->arrays[IDS], CLATTN_DTYPE_I32, 5, 2, ROWS - LENGTH);
    check_array_count(&check->arrays[OFFSETS], CLATTN_DTYPE_I32, 3, 2, ROWS - LENGTH);
    check_array_count(&check->arrays[SEGMENTS], CLATTN_DTYPE_I32, 7, 2, ROWS - LENGTH);
    check_put_integer(check->arrays[IDS].host, CLATTN_DTYPE_I32, 1, ROWS);
    TRY(check_arrays_upload(context, places, ARRAYS, check->arrays));
    check->args.position = desc->positions == CLATTN_POSITIONS_SINUSOIDS ? FAR : 1;
fail:
    return status;
}

static int64_t integer_at(const struct embedding_check *check, int which, int64_t i)
{
    return check->arrays[which].host ? ((const int32_t *)check->arrays[which].host)[i] : 0;
}

/* Row `row` of a table as floats, or NULL if there is no such table. */
static const float *row_of(const struct embedding_check *check, int which, const clattn_layout *layout, int64_t row,
                           float *scratch)
{
    for (int64_t c = 0; c < (int64_t)check->size && layout->rank; c++)
        scratch[c] = (float)ref_element(check->arrays[which].host, layout->dtype,
                                        row * layout->stride[0] + c * layout->stride[1]);
    return layout->rank ? scratch : NULL;
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct embedding_check *check = data;
    const clattn_embedding_desc *desc = &check->small.desc;
    const int64_t size = (int64_t)check->size;
    float rows[3][WHOLE_SIZE];
    double exact[WHOLE_SIZE], magnitude[WHOLE_SIZE];
    for (int64_t place = 0; place < BATCH * LENGTH; place++) {
        int64_t b = place / LENGTH, s = place % LENGTH, id = integer_at(check, IDS, place);
        ref_embedding_problem reference = {.size = check->size, .scale = (double)desc->scale};
        reference.position = check->args.position + integer_at(check, OFFSETS, b) + s;
        reference.sinusoids = desc->positions == CLATTN_POSITIONS_SINUSOIDS;
        if (id < ROWS)
            reference.row = row_of(check, TABLE, &desc->table, id, rows[0]);
        if (desc->position_table.rank)
            reference.position_row = row_of(check, POSITION_TABLE, &desc->position_table, reference.position, rows[1]);
        if (desc->segments.rank)
            reference.segment_row =
                row_of(check, SEGMENT_TABLE, &desc->segment_table, integer_at(check, SEGMENTS, place), rows[2]);
        ref_embedding_row(&reference, exact, magnitude);
        for (int64_t c = 0; c < size; c++) {
            double value = ref_element(check->arrays[Y].host, desc->y.dtype, place * size + c);
            TRY(check_element(
                report, kernel, "y", (const int64_t[4]){0, b, s, c}, value, exact[c],
                check_slack(exact[c], exact[c], magnitude[c], FLT_EPSILON, storage_epsilon(desc->y.dtype))));
        }
    }
fail:
    return status;
}

clattn_status embedding_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct embedding_plan *plan = (const struct embedding_plan *)base;
    struct embedding_check check = {
        .original = plan->problem,
        .size = plan->whole_vectors ? WHOLE_SIZE : SIZE,
        .args = CLATTN_EMBEDDING_ARGS_INIT,
    };
    const struct check_course course = {&check.small, &check.args, check.arrays, ARRAYS, Y, 1, make, judge, 0};
    self->unchecked = check.original.empty;
    if (self->unchecked)
        return CLATTN_SUCCESS;
    return check_run(base, &course, &check);
}
