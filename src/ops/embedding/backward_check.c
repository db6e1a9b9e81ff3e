/* The self-check of the gradient of an embedding's table: the plan's own kernels on some places, one of them with an id
 * that is not in the table, and so many with one id that their sum takes several runs. */
#include "base/try.h"
#include "ops/common/check.h"
#include "ops/embedding/backward.h"
#include "ref/ref.h"

#define BATCH 2
#define LENGTH 70
#define SIZE 70 /* no multiple of a vector */
#define ROWS 9
#define FIRST 1 /* the id of the first row */
#define OFTEN 4 /* the id of every second place */
#define NEVER 7 /* the id of no place */
#define WORKSPACE_BYTES ((BATCH * LENGTH + 2 * ROWS) * sizeof(int32_t))

enum { IDS, Y, WORKSPACE, TABLE, ARRAYS };

static void fill_ids(struct check *check)
{
    int32_t *ids = check->arrays[IDS].host;
    for (int32_t place = 0; place < BATCH * LENGTH; place++)
        ids[place] = place % 2 ? OFTEN : place / 2 % NEVER;
    ids[2] = FIRST + ROWS;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_embedding_desc *desc = check->problem;
    float y[BATCH * LENGTH * SIZE];
    double exact[SIZE], magnitude[SIZE];
    for (int64_t i = 0; i < BATCH * LENGTH * SIZE; i++)
        y[i] = (float)check_read(&check->arrays[Y], i * desc->gradients.y.stride[2]);
    for (int64_t row = 0; row < ROWS; row++) {
        ref_embedding_gradient_row(BATCH * LENGTH, SIZE, (double)desc->scale, check->arrays[IDS].host, y, FIRST + row,
                                   exact, magnitude);
        TRY(check_row(check, &check->arrays[TABLE], (const int64_t[3]){0, 0, row}, exact, NULL, magnitude));
    }
fail:
    return status;
}

/* The small problem has the same -D options: types, and whether columns are contiguous. */
clattn_status embedding_backward_self_check(struct self_check *self)
{
    const struct embedding_backward_problem *full = &((const struct embedding_backward_plan *)self->plan)->problem;
    const size_t extent[3] = {BATCH, LENGTH, SIZE};
    const clattn_layout workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, (const size_t[1]){WORKSPACE_BYTES});
    clattn_embedding_desc desc = full->desc;
    desc.explicit_scale = 1;
    desc.scale = 1.5f; /* the plan's own may be 0 */
    desc.part.first = FIRST;
    desc.part.rows = FIRST + ROWS;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, extent);
    desc.gradients.y = clattn_layout_contiguous(desc.gradients.y.dtype, 3, extent);
    desc.gradients.table = clattn_layout_contiguous(desc.gradients.table.dtype, 2, (const size_t[2]){ROWS, SIZE});
    for (int i = 0; i < 3 && !full->unit_columns; i++)
        desc.gradients.y.stride[i] *= 2;
    struct embedding_backward_problem small;
    clattn_embedding_args args = CLATTN_EMBEDDING_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [IDS] = {"ids", &small.desc.ids, &args.ids, CHECK_ZEROS},
        [Y] = {"gradients.y", &small.desc.gradients.y, &args.gradients.y, CHECK_NUMBERS},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [TABLE] = {"gradients.table", &small.desc.gradients.table, &args.gradients.table, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, TABLE, fill_ids, judge, WORKSPACE_BYTES};
    self->unchecked = full->empty;
    return self->unchecked ? CLATTN_SUCCESS : check_run(self->plan, &course, &desc, &small, &args);
}
