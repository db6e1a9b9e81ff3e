/* Reads and checks the description of a dropout. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/dimensions.h"
#include "ops/dropout/dropout.h"

_Static_assert(sizeof(dropout_args) == 24 + 3 * 48 + 2 * 8 + 10 * 4, "dropout_args has padding");
_Static_assert(CLATTN_MAX_RANK == 5, "dropout kernels take four dimensions and columns");

enum { X, RESIDUAL, Y }; /* arrays of a dimension */

dropout_args dropout_walk(const struct dropout_problem *problem, size_t batch, int chunk)
{
    const clattn_dropout_desc *desc = &problem->desc;
    const clattn_layout *x = dropout_input(desc), *y = dropout_output(desc);
    dropout_args a = {.extent = {1, 1, 1, 1}, .columns = 1, .chunk = chunk};
    struct dimension dimension[CLATTN_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x->rank; i++) /* in C order, whatever the strides: it says which places elements have */
        if (x->extent[i] != 1)
            dimension[count++] = (struct dimension){
                i ? x->extent[i] : batch,
                {[X] = x->stride[i], [RESIDUAL] = desc->residual.stride[i], [Y] = y->stride[i]},
            };
    count = dimensions_join(dimension, count);
    a.pieces = 1;
    for (int i = 0; i + 1 < count; i++) {
        a.extent[i] = (int)dimension[i].extent;
        a.x.stride[i] = dimension[i].stride[X];
        a.residual.stride[i] = dimension[i].stride[RESIDUAL];
        a.y.stride[i] = dimension[i].stride[Y];
        a.pieces *= a.extent[i];
    }
    if (count) {
        a.columns = (int)dimension[count - 1].extent;
        a.x.col = dimension[count - 1].stride[X];
        a.residual.col = dimension[count - 1].stride[RESIDUAL];
        a.y.col = dimension[count - 1].stride[Y];
    }
    a.chunks = (a.columns - 1) / chunk + 1;
    a.pieces *= a.chunks;
    a.threshold = (args_uint)ceil((double)desc->probability * 0x1p32);
    a.scale = (float)(1.0 / (1.0 - (double)desc->probability));
    return a;
}

/* Reads the layouts of the direction: all arrays have the same extents. */
static clattn_status read_arrays(clattn_dropout_desc *desc, const char **reason)
{
    clattn_status status;
    clattn_layout *x_gradient = &desc->gradients.x, *y_gradient = &desc->gradients.y;
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    const struct layout_rule forward_rules[] = {
        {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 0, false},
        {&desc->residual, LAYOUT_OF("residual"), LAYOUT_INPUT, 0, true},
        {&desc->y, LAYOUT_OF("y"), LAYOUT_OUTPUT, 0, false},
    };
    const struct layout_rule backward_rules[] = {
        {y_gradient, LAYOUT_OF("gradients.y"), LAYOUT_INPUT, 0, false},
        {x_gradient, LAYOUT_OF("gradients.x"), LAYOUT_OUTPUT, 0, false},
    };
    const struct layout_rule *rules = backward ? backward_rules : forward_rules;
    const size_t count = backward ? COUNT_OF(backward_rules) : COUNT_OF(forward_rules);
    REQUIRE(backward || (layout_is_none(x_gradient) && layout_is_none(y_gradient)), CLATTN_ERROR_INVALID_ARGUMENT,
            "gradients are for CLATTN_DIRECTION_BACKWARD");
    REQUIRE(!backward || (layout_is_none(&desc->x) && layout_is_none(&desc->residual) && layout_is_none(&desc->y)),
            CLATTN_ERROR_INVALID_ARGUMENT, "x, residual and y are for CLATTN_DIRECTION_FORWARD");
    TRY(layouts_read(rules, count, NULL, reason));
    for (size_t i = 0; i < count; i++) {
        const clattn_layout *layout = rules[i].layout;
        if (layout_is_none(layout))
            continue;
        REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED,
                "x, residual, y and the gradients are float32, float16 or bfloat16");
        REQUIRE(layout->rank == rules[0].layout->rank &&
                    !memcmp(layout->extent, rules[0].layout->extent, sizeof layout->extent),
                CLATTN_ERROR_INVALID_LAYOUT,
                backward ? "the gradients differ in extents" : "x, residual and y differ in extents");
    }
fail:
    return status;
}

clattn_status dropout_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct dropout_problem *problem = result;
    clattn_dropout_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_dropout_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown direction");
    REQUIRE(desc->probability >= 0 && desc->probability < 1, CLATTN_ERROR_INVALID_ARGUMENT,
            "probability is not from 0 to below 1");
    TRY(read_arrays(desc, reason));
    const clattn_layout *x = dropout_input(desc);
    for (int i = 0; i < x->rank; i++)
        problem->empty = problem->empty || !x->extent[i];
    if (problem->empty)
        return CLATTN_SUCCESS;
    for (int i = 0; i < x->rank; i++)
        REQUIRE(x->extent[i] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "an extent is more than 2^31 - 65537");
    const dropout_args a = dropout_walk(problem, x->extent[0], 1);
    problem->columns = a.columns;
    problem->unit_columns = a.x.col == 1 && a.y.col == 1 && (layout_is_none(&desc->residual) || a.residual.col == 1);
fail:
    return status;
}
