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
_Static_assert(sizeof(activation_backward_args) == sizeof(activation_args) + 48,
               "activation_backward_args has padding");
_Static_assert(CLATTN_MAX_RANK == 5, "activation kernels take four dimensions and columns");

enum { WRITTEN, X, Y_GRADIENT }; /* arrays of a dimension */

activation_backward_args activation_walk(const struct activation_problem *problem, size_t batch, int chunk)
{
    const clattn_activation_desc *desc = &problem->desc;
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    const clattn_layout *x = &desc->x, *written = backward ? &desc->gradients.x : &desc->y;
    activation_backward_args made = {
        .walk = {.extent = {1, 1, 1, 1}, .columns = 1, .chunk = chunk, .alpha = desc->alpha}};
    activation_args *walk = &made.walk;
    struct dimension dimension[CLATTN_MAX_RANK];
    int count = 0;
    /* Their order depends on the description alone, so that the columns are the same whatever the batch. */
    for (int i = 0; i < x->rank; i++)
        if (x->extent[i] != 1)
            count = dimensions_insert(
                dimension, count,
                (struct dimension){
                    i ? x->extent[i] : batch,
                    {[WRITTEN] = written->stride[i], [X] = x->stride[i], [Y_GRADIENT] = desc->gradients.y.stride[i]}});
    count = dimensions_join(dimension, count);
    walk->pieces = 1;
    for (int i = 0; i + 1 < count; i++) {
        walk->extent[i] = (int)dimension[i].extent;
        walk->x.stride[i] = dimension[i].stride[X];
        walk->y.stride[i] = dimension[i].stride[WRITTEN];
        made.y_gradient.stride[i] = dimension[i].stride[Y_GRADIENT];
        walk->pieces *= walk->extent[i];
    }
    if (count) {
        walk->columns = (int)dimension[count - 1].extent;
        walk->x.col = dimension[count - 1].stride[X];
        walk->y.col = dimension[count - 1].stride[WRITTEN];
        made.y_gradient.col = dimension[count - 1].stride[Y_GRADIENT];
    }
    walk->chunks = (walk->columns - 1) / chunk + 1;
    walk->pieces *= walk->chunks;
    return made;
}

static clattn_status read_options(clattn_activation_desc *desc, const char **reason)
{
    if (!desc->explicit_alpha)
        desc->alpha = activation_default_alpha(desc->function);
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown direction");
    REQUIRE(activation_name(desc->function), CLATTN_ERROR_INVALID_ARGUMENT, "unknown function");
    REQUIRE(is_flag(desc->explicit_alpha), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_alpha is neither 0 nor 1");
    REQUIRE(isfinite(desc->alpha), CLATTN_ERROR_INVALID_ARGUMENT, "alpha is NaN or infinite");
    return CLATTN_SUCCESS;
}

/* Reads the layouts of the direction: all arrays have x's extents. */
static clattn_status read_arrays(clattn_activation_desc *desc, const char **reason)
{
    clattn_status status;
    clattn_layout *x_gradient = &desc->gradients.x, *y_gradient = &desc->gradients.y;
    if (desc->direction == CLATTN_DIRECTION_FORWARD) {
        REQUIRE(layout_is_none(x_gradient) && layout_is_none(y_gradient), CLATTN_ERROR_INVALID_ARGUMENT,
                "gradients are for CLATTN_DIRECTION_BACKWARD");
        return read_x_and_y(&desc->x, &desc->y, reason);
    }
    const struct layout_rule all[] = {
        {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 0, false},
        {y_gradient, LAYOUT_OF("gradients.y"), LAYOUT_INPUT, 0, false},
        {x_gradient, LAYOUT_OF("gradients.x"), LAYOUT_OUTPUT, 0, false},
    };
    REQUIRE(layout_is_none(&desc->y), CLATTN_ERROR_INVALID_ARGUMENT, "y is for CLATTN_DIRECTION_FORWARD");
    TRY(layouts_read(all, COUNT_OF(all), NULL, reason));
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        REQUIRE(dtype_is_storage(all[i].layout->dtype), CLATTN_ERROR_UNSUPPORTED,
                "x and the gradients are float32, float16 or bfloat16");
        REQUIRE(all[i].layout->rank == desc->x.rank &&
                    !memcmp(all[i].layout->extent, desc->x.extent, sizeof desc->x.extent),
                CLATTN_ERROR_INVALID_LAYOUT, "x and the gradients differ in extents");
    }
fail:
    return status;
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
    TRY(read_arrays(desc, reason));
    for (int i = 0; i < desc->x.rank; i++)
        problem->empty = problem->empty || !desc->x.extent[i];
    if (problem->empty)
        return CLATTN_SUCCESS;
    for (int i = 0; i < desc->x.rank; i++)
        REQUIRE(desc->x.extent[i] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "an extent is more than 2^31 - 65537");
    const activation_backward_args a = activation_walk(problem, desc->x.extent[0], 1);
    problem->columns = a.walk.columns;
    problem->unit_columns = a.walk.x.col == 1 && a.walk.y.col == 1 &&
                            (desc->direction == CLATTN_DIRECTION_FORWARD || a.y_gradient.col == 1);
fail:
    return status;
}
