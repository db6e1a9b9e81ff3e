/* How the gradients of scale and bias are summed: what norm/weights.cl is told. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "ops/common/dimensions.h"
#include "ops/norm/norm.h"

enum { X, RESIDUAL, DY, STATISTICS, WEIGHT }; /* arrays of a dimension */

const clattn_layout *norm_weight_gradient(const struct norm_backward_problem *problem, enum norm_weight weight)
{
    return weight == NORM_SCALE ? &problem->desc.gradients.scale : &problem->desc.gradients.bias;
}

/* Sets the extents and strides of the dimensions that are kept, or of those that are summed; the last ones are 1 otherwise. */
static void set_dimensions(norm_weights_args *a, struct dimension *dimension, int count, bool kept)
{
    norm_weights_array *const arrays[] = {&a->x, &a->residual, &a->dy, &a->statistics, &a->weight};
    int *extent = kept ? a->kept_extent : a->summed_extent;
    count = dimensions_join(dimension, count);
    for (int i = 0; i < CLATTN_MAX_RANK; i++)
        extent[i] = 1;
    for (int i = 0; i < count; i++) {
        const int at = CLATTN_MAX_RANK - count + i;
        extent[at] = (int)dimension[i].extent;
        for (size_t n = 0; n < COUNT_OF(arrays); n++)
            *(kept ? &arrays[n]->kept[at] : &arrays[n]->summed[at]) = dimension[i].stride[n];
    }
}

void norm_weights_fill(const struct norm_backward_problem *problem, enum norm_weight weight, size_t batch,
                       norm_weights_args *a)
{
    const clattn_norm_desc *desc = &problem->desc;
    const clattn_layout *gradient = norm_weight_gradient(problem, weight);
    struct dimension kept[CLATTN_MAX_RANK], summed[CLATTN_MAX_RANK];
    int64_t statistics = 3;
    int kept_count = 0, summed_count = 0;
    memset(a, 0, sizeof *a);
    a->of_scale = weight == NORM_SCALE;
    a->outputs = a->terms = 1;
    for (int i = desc->x.rank - 1; i >= 0; i--) {
        const bool is_row = i < desc->x.rank - desc->axes;
        const size_t extent = i == 0 && is_row ? batch : desc->x.extent[i];
        const struct dimension next = {extent,
                                       {[X] = desc->x.stride[i],
                                        [RESIDUAL] = desc->residual.stride[i],
                                        [DY] = desc->gradients.y.stride[i],
                                        [STATISTICS] = is_row ? statistics : 0,
                                        [WEIGHT] = gradient->stride[i]}};
        statistics *= is_row ? (int64_t)extent : 1;
        if (gradient->extent[i] != 1)
            a->outputs *= (args_long)extent;
        else
            a->terms *= (args_long)extent;
        if (extent != 1 && gradient->extent[i] != 1)
            kept_count = dimensions_insert(kept, kept_count, next);
        else if (extent != 1)
            summed_count = dimensions_insert(summed, summed_count, next);
    }
    a->blocks = (a->terms - 1) / NORM_BLOCK + (a->terms > 0);
    if (a->outputs)
        set_dimensions(a, kept, kept_count, true);
    if (a->terms)
        set_dimensions(a, summed, summed_count, false);
}

size_t norm_statistics_floats(const struct norm_backward_problem *problem)
{
    return problem->walk.has_statistics ? 3 * problem->rows : 0;
}

size_t norm_workspace_bytes(const struct norm_backward_problem *problem)
{
    size_t partials = 0;
    for (int i = 0; i < NORM_WEIGHTS && problem->rows; i++) {
        norm_weights_args a;
        if (layout_is_none(norm_weight_gradient(problem, i)))
            continue;
        norm_weights_fill(problem, i, problem->desc.x.extent[0], &a);
        partials = size_max(partials, (size_t)(a.outputs * a.blocks));
    }
    return (norm_statistics_floats(problem) + partials) * sizeof(float);
}
