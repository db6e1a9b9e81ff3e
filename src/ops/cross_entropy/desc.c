/* Reads and checks the description of a cross-entropy. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/cross_entropy/cross_entropy.h"

_Static_assert(sizeof(cross_entropy_args) == 24 + 6 * 48 + 2 * 8 + 8 * 4, "cross_entropy_args has padding");
_Static_assert(CLATTN_MAX_RANK == CROSS_ENTROPY_OUTER + 1, "cross-entropy kernels take four outer dimensions");

#define IGNORED (-100) /* PyTorch's */

static clattn_status read_options(clattn_cross_entropy_desc *desc, const char **reason)
{
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known; it computes gradients, too");
    REQUIRE(is_flag(desc->explicit_ignored), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_ignored is neither 0 nor 1");
    REQUIRE(desc->smoothing >= 0 && desc->smoothing < 1, CLATTN_ERROR_INVALID_ARGUMENT,
            "smoothing is not 0 or more and less than 1");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    if (!desc->explicit_ignored)
        desc->ignored = IGNORED;
    return CLATTN_SUCCESS;
}

static bool is_float32(const clattn_layout *layout)
{
    return layout_is_none(layout) || layout->dtype == CLATTN_DTYPE_F32;
}

/* Whether an array has an element for each of x's rows. */
static bool has_rows_of(const clattn_layout *layout, const clattn_layout *x)
{
    return layout_is_none(layout) || (layout->rank == x->rank - 1 &&
                                      !memcmp(layout->extent, x->extent, sizeof *x->extent * (size_t)layout->rank));
}

static clattn_status read_layouts(clattn_cross_entropy_desc *desc, const char **reason)
{
    clattn_status status;
    clattn_layout *x = &desc->x, *gradient = &desc->gradients.x;
    const struct layout_rule rules[] = {
        {x, LAYOUT_OF("x"), LAYOUT_INPUT, 0, false},
        {&desc->labels, LAYOUT_OF("labels"), LAYOUT_INPUT, 0, false},
        {&desc->row_weights, LAYOUT_OF("row_weights"), LAYOUT_INPUT, 0, true},
        {&desc->loss, LAYOUT_OF("loss"), LAYOUT_OUTPUT, 0, true},
        {&desc->lse, LAYOUT_OF("lse"), LAYOUT_OUTPUT, 0, true},
        {gradient, LAYOUT_OF("gradients.x"), LAYOUT_OUTPUT, 0, true},
    };
    TRY(layouts_read(rules, COUNT_OF(rules), NULL, reason));
    const bool has_gradient = !layout_is_none(gradient);
    REQUIRE(has_gradient || !layout_is_none(&desc->loss) || !layout_is_none(&desc->lse), CLATTN_ERROR_INVALID_ARGUMENT,
            "there is no output: neither loss, lse nor gradients.x");
    REQUIRE(has_gradient || layout_is_none(&desc->row_weights), CLATTN_ERROR_INVALID_ARGUMENT,
            "row_weights weigh gradients.x, and there is none");
    REQUIRE(dtype_is_storage(x->dtype) && (!has_gradient || dtype_is_storage(gradient->dtype)),
            CLATTN_ERROR_UNSUPPORTED, "x and gradients.x are float32, float16 or bfloat16");
    REQUIRE(dtype_is_integer(desc->labels.dtype), CLATTN_ERROR_UNSUPPORTED, "labels are int32 or int64");
    REQUIRE(is_float32(&desc->row_weights) && is_float32(&desc->loss) && is_float32(&desc->lse),
            CLATTN_ERROR_UNSUPPORTED, "row_weights, loss and lse are float32");
    REQUIRE(x->rank >= 2, CLATTN_ERROR_INVALID_LAYOUT, "x is (rows, classes), or has more dimensions of rows");
    REQUIRE(x->extent[x->rank - 1] > 0, CLATTN_ERROR_INVALID_LAYOUT, "there are no classes");
    REQUIRE(!has_gradient || (gradient->rank == x->rank && !memcmp(gradient->extent, x->extent, sizeof x->extent)),
            CLATTN_ERROR_INVALID_LAYOUT, "x and gradients.x differ in extents");
    REQUIRE(has_rows_of(&desc->labels, x) && has_rows_of(&desc->row_weights, x) && has_rows_of(&desc->loss, x) &&
                has_rows_of(&desc->lse, x),
            CLATTN_ERROR_INVALID_LAYOUT, "labels, row_weights, loss and lse have x's extents without the last");
fail:
    return status;
}

/* The strides of an array of which the first `outer` dimensions tell rows apart. */
static array5 strides_of(const clattn_layout *layout, int outer)
{
    array5 array = {0};
    for (int i = 0; i < outer && i < layout->rank; i++)
        array.stride[CROSS_ENTROPY_OUTER - outer + i] = layout->stride[i];
    array.col = layout->rank > outer ? layout->stride[outer] : 0;
    return array;
}

clattn_status cross_entropy_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct cross_entropy_problem *problem = result;
    clattn_cross_entropy_desc *desc = &problem->desc;
    cross_entropy_args *kernel = &problem->kernel;
    size_t rows = 1;
    bool fits = true, empty = false;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_cross_entropy_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    TRY(read_layouts(desc, reason));

    const int outer = desc->x.rank - 1;
    const size_t classes = desc->x.extent[outer];
    for (int i = 0; i < outer; i++) {
        fits = size_mul(rows, desc->x.extent[i], &rows) && fits;
        empty = empty || !desc->x.extent[i];
    }
    /* layout_check multiplies no extents if one is 0: their product may then be anything, and is not used. */
    REQUIRE(empty || (fits && rows <= LENGTH_LIMIT && classes <= LENGTH_LIMIT), CLATTN_ERROR_OVERFLOW,
            "the rows, or the classes, are more than 2^31 - 65537");
    problem->first = CROSS_ENTROPY_OUTER - outer;
    for (int i = 0; i < CROSS_ENTROPY_OUTER; i++) kernel
        ->extent[i] = empty || i < problem->first ? 1 : (int)desc->x.extent[i - problem->first];
    kernel->rows = empty ? 0 : (args_long)rows;
    kernel->classes = empty ? 1 : (int)classes;
    kernel->x = strides_of(&desc->x, outer);
    kernel->gradient = strides_of(&desc->gradients.x, outer);
    kernel->labels = strides_of(&desc->labels, outer);
    kernel->weights = strides_of(&desc->row_weights, outer);
    kernel->loss = strides_of(&desc->loss, outer);
    kernel->lse = strides_of(&desc->lse, outer);
    kernel->ignored = desc->ignored;
    kernel->kept = 1 - desc->smoothing;
    kernel->share = (float)((double)desc->smoothing / (double)kernel->classes);
    problem->unit_columns = kernel->x.col == 1 && (layout_is_none(&desc->gradients.x) || kernel->gradient.col == 1);
fail:
    return status;
}
