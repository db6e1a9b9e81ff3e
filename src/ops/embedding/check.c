/* The self-check of embedding: the plan's own kernel on some places, one of them with an id that is in no table, and one with that of a row
 * that another part of the table has. */
#include <string.h>

#include "base/try.h"
#include "ops/common/check.h"
#include "ops/embedding/embedding.h"
#include "ref/ref.h"

#define BATCH 2
#define LENGTH 3
#define SIZE 70       /* no multiple of a vector */
#define WHOLE_SIZE 80 /* a multiple of one */
#define ROWS 9        /* of each table */
#define FIRST 1       /* the id of the first row */
#define ALL_ROWS 11   /* of the table that has them */
#define FAR 900000    /* a position whose sinusoids are many turns on */

enum { IDS, TABLE, POSITION_TABLE, OFFSETS, SEGMENTS, SEGMENT_TABLE, Y, ARRAYS };

/* Rows of the tables, also after up to LENGTH has been added to an offset; and one id beyond them. */
static void fill_integers(struct check *check)
{
    struct check_array *arrays = check->arrays;
    check_array_count(&arrays[IDS], CLATTN_DTYPE_I32, 5, 2, ROWS - LENGTH);
    check_array_count(&arrays[OFFSETS], CLATTN_DTYPE_I32, 3, 2, ROWS - LENGTH);
    check_array_count(&arrays[SEGMENTS], CLATTN_DTYPE_I32, 7, 2, ROWS - LENGTH);
    check_put_integer(arrays[IDS].host, CLATTN_DTYPE_I32, 1, ALL_ROWS);
    check_put_integer(arrays[IDS].host, CLATTN_DTYPE_I32, 3, FIRST + ROWS);
}

static int64_t first_position(const clattn_embedding_desc *desc)
{
    return desc->positions == CLATTN_POSITIONS_SINUSOIDS ? FAR : 1;
}

static int64_t integer_at(const struct check *check, int which, int64_t i)
{
    return check->arrays[which].host ? ((const int32_t *)check->arrays[which].host)[i] : 0;
}

/* Row `row` of a table as floats, or NULL if there is no such table. */
static const float *row_of(const struct check_array *table, int64_t row, float *scratch)
{
    const clattn_layout *layout = table->place.layout;
    if (!layout->rank)
        return NULL;
    for (int64_t c = 0; c < (int64_t)layout->extent[1]; c++)
        scratch[c] = (float)check_read(table, row * layout->stride[0] + c * layout->stride[1]);
    return scratch;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_embedding_desc *desc = check->problem;
    float rows[3][WHOLE_SIZE];
    double exact[WHOLE_SIZE], magnitude[WHOLE_SIZE];
    for (int64_t place = 0; place < BATCH * LENGTH; place++) {
        int64_t b = place / LENGTH, s = place % LENGTH, id = integer_at(check, IDS, place);
        ref_embedding_problem reference = {.size = (int64_t)desc->y.extent[2], .scale = (double)desc->scale};
        reference.sinusoids = desc->positions == CLATTN_POSITIONS_SINUSOIDS;
        reference.position = first_position(desc) + integer_at(check, OFFSETS, b) + s;
        if (id >= FIRST && id < FIRST + ROWS)
            reference.row = row_of(&check->arrays[TABLE], id - FIRST, rows[0]);
        else if (id < ALL_ROWS)
            reference.row = memset(rows[0], 0, sizeof rows[0]);
        reference.position_row = row_of(&check->arrays[POSITION_TABLE], reference.position, rows[1]);
        reference.segment_row = row_of(&check->arrays[SEGMENT_TABLE], integer_at(check, SEGMENTS, place), rows[2]);
        ref_embedding_row(&reference, exact, magnitude);
        TRY(check_row(check, &check->arrays[Y], (const int64_t[3]){0, b, s}, exact, NULL, magnitude));
    }
fail:
    return status;
}

/* The small problem has the same -D options: types, what is added, whether columns are contiguous, whether the size is a
 * multiple of a vector. */
clattn_status embedding_self_check(struct self_check *self)
{
    const struct embedding_plan *plan = (const struct embedding_plan *)self->plan;
    const size_t size = plan->whole_vectors ? WHOLE_SIZE : SIZE;
    const size_t extent[3] = {BATCH, LENGTH, size}, table[2] = {ROWS, size};
    clattn_embedding_desc desc = plan->problem.desc;
    desc.explicit_scale = 1;
    desc.scale = 1.5f; /* the plan's own may be 0 */
    desc.part.first = FIRST;
    desc.part.rows = ALL_ROWS;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, extent);
    desc.y = clattn_layout_contiguous(desc.y.dtype, 3, extent);
    desc.table = clattn_layout_contiguous(desc.table.dtype, 2, table);
    if (desc.position_table.rank)
        desc.position_table = clattn_layout_contiguous(desc.position_table.dtype, 2, table);
    if (desc.offsets.rank)
        desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, extent);
    if (desc.segments.rank) {
        desc.segments = desc.ids;
        desc.segment_table = clattn_layout_contiguous(desc.segment_table.dtype, 2, table);
    }
    for (int i = 0; i < 2 && !plan->problem.unit_columns; i++)
        desc.table.stride[i] *= 2;
    struct embedding_problem small;
    clattn_embedding_args args = CLATTN_EMBEDDING_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [IDS] = {"ids", &small.desc.ids, &args.ids, CHECK_ZEROS},
        [TABLE] = {"table", &small.desc.table, &args.table, CHECK_NUMBERS},
        [POSITION_TABLE] = {"position_table", &small.desc.position_table, &args.position_table, CHECK_NUMBERS},
        [OFFSETS] = {"offsets", &small.desc.offsets, &args.offsets, CHECK_ZEROS},
        [SEGMENTS] = {"segments", &small.desc.segments, &args.segments, CHECK_ZEROS},
        [SEGMENT_TABLE] = {"segment_table", &small.desc.segment_table, &args.segment_table, CHECK_NUMBERS},
        [Y] = {"y", &small.desc.y, &args.y, CHECK_ZEROS},
    };
    args.position = first_position(&desc);
    const struct check_course course = {places, ARRAYS, Y, fill_integers, judge, 0};
    self->unchecked = plan->problem.empty;
    return self->unchecked ? CLATTN_SUCCESS : check_run(self->plan, &course, &desc, &small, &args);
}
