/* Reads and checks the description of an activation. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/activation/activation.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "ops/common/dimensions.h"

_Static_assert(sizeof(activation_args) == 24 + 2 * 48 + 8 + 8 * 4, "activation_args has padding");
_Static_assert(CLATTN_MAX_RANK == 5, "activation kernels take four dimensions and columns");

enum { Y, X }; /* arrays of a dimension */

activation_args activation_walk(const struct activation_problem *problem, size_t batch, int chunk)
{
    activation_args walk = {.extent = {1, 1, 1, 1}, .columns = 1, .chunk = chunk, .alpha = problem->desc.alpha};
    const clattn_layout *x = &problem->desc.x, *y = &problem->desc.y;
    struct dimension dimension[CLATTN_MAX_RANK];
    int count = 0;
    /* Their order depends on the description alone, so that the columns are the same whatever the batch. */
    for (int i = 0; i < x->rank; i++)
        if (x->extent[i] != 1)
            count = dimensions_insert(
                dimension, count,
                (struct dimension){i ? x->extent[i] : batch, {[Y] = y->stride[i], [X] = x->stride[i]}});
    count = dimensions_join(dimension, count);
    walk.pieces = 1;
    for (int i = 0; i + 1 < count; i++) {
        walk.extent[i] = (int)dimension[i].extent;
        walk.x.stride[i] = dimension[i].stride[X];
        walk.y.stride[i] = dimension[i].stride[Y];
        walk.pieces *= walk.extent[i];
    }
    if (count) {
        walk.columns = (int)dimension[count - 1].extent;
        walk.x.col = dimension[count - 1].stride[X];
        walk.y.col = dimension[count - 1].stride[Y];
    }
    walk.chunks = (walk.columns - 1) / chunk + 1;
    walk.pieces *= walk.chunks;
    return walk;
}

static clattn_status read_options(clattn_activation_desc *desc, const char **reason)
{
    if (!desc->explicit_alpha)
        desc->alpha = activation_default_alpha(desc->function);
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(activation_name(desc->function), CLATTN_ERROR_INVALID_ARGUMENT, "unknown function");
    REQUIRE(is_flag(desc->explicit_alpha), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_alpha is neither 0 nor 1");
    REQUIRE(isfinite(desc->alpha), CLATTN_ERROR_INVALID_ARGUMENT, "alpha is NaN or infinite");
    return CLATTN_SUCCESS;
}

clattn_status activation_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct activation_problem *problem = result;
    clattn_activation_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_activation_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    TRY(read_x_and_y(&desc->x, &desc->y, reason));
    for (int i = 0; i < desc->x.rank; i++)
        problem->empty = problem->empty || !desc->x.extent[i];
    if (problem->empty)
        return CLATTN_SUCCESS;
    for (int i = 0; i < desc->x.rank; i++)
        REQUIRE(desc->x.extent[i] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "an extent is more than 2^31 - 65537");
    activation_args walk = activation_walk(problem, desc->x.extent[0], 1);
    problem->columns = walk.columns;
    problem->unit_columns = walk.x.col == 1 && walk.y.col == 1;
fail:
    return status;
}
