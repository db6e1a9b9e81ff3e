/* Reads and checks the description of an activation. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/activation/activation.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"

_Static_assert(sizeof(activation_args) == 2 * 48 + 8 + 8 * 4, "activation_args has padding");
_Static_assert(CLATTN_MAX_RANK == 5, "activation kernels take four dimensions and columns");

/* A dimension with its strides in x and y. */
struct dimension {
    size_t extent;
    int64_t x, y;
};

static uint64_t magnitude(int64_t stride)
{
    return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* Sorts the dimensions by y's strides, the smallest last, and drops those of extent 1.  The order depends on the description
 * alone, so that the columns are the same whatever the batch. */
static int arrange(const clattn_activation_desc *desc, size_t batch, struct dimension *dimension)
{
    int count = 0;
    for (int i = 0; i < desc->x.rank; i++) {
        struct dimension next = {i ? desc->x.extent[i] : batch, desc->x.stride[i], desc->y.stride[i]};
        if (desc->x.extent[i] == 1)
            continue;
        int at = count++;
        for (; at > 0 && magnitude(dimension[at - 1].y) < magnitude(next.y); at--)
            dimension[at] = dimension[at - 1];
        dimension[at] = next;
    }
    return count;
}

/* Joins neighbours that are one dimension in both arrays, unless the result is too long for a kernel. */
static int join(struct dimension *dimension, int count)
{
    for (int i = count - 1; i > 0; i--) {
        struct dimension *outer = &dimension[i - 1], *inner = &dimension[i];
        int64_t x, y;
        if (!int64_mul(inner->x, (int64_t)inner->extent, &x) || !int64_mul(inner->y, (int64_t)inner->extent, &y) ||
            x != outer->x || y != outer->y || inner->extent > LENGTH_LIMIT / outer->extent)
            continue;
        inner->extent *= outer->extent;
        memmove(outer, inner, (size_t)(count - i) * sizeof *inner);
        count--;
    }
    return count;
}

activation_args activation_walk(const struct activation_problem *problem, size_t batch, int chunk)
{
    activation_args walk = {.extent = {1, 1, 1, 1}, .columns = 1, .chunk = chunk, .alpha = problem->desc.alpha};
    struct dimension dimension[CLATTN_MAX_RANK];
    int count = join(dimension, arrange(&problem->desc, batch, dimension));
    walk.pieces = 1;
    for (int i = 0; i + 1 < count; i++) {
        walk.extent[i] = (int)dimension[i].extent;
        walk.x.stride[i] = dimension[i].x;
        walk.y.stride[i] = dimension[i].y;
        walk.pieces *= walk.extent[i];
    }
    if (count) {
        walk.columns = (int)dimension[count - 1].extent;
        walk.x.col = dimension[count - 1].x;
        walk.y.col = dimension[count - 1].y;
    }
    walk.chunks = (walk.columns - 1) / chunk + 1;
    walk.pieces *= walk.chunks;
    return walk;
}

static clattn_status read_options(clattn_activation_desc *desc, const char **reason)
{
    if (!desc->explicit_alpha)
        desc->alpha = 1;
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
