/* The shapes of arrays in a run. */
#include <string.h>

#include "run.h"

#define MOST_ELEMENTS ((int64_t)1 << 40)

OrtStatus *wrong_shape(const OrtApi *ort, const char *what)
{
    return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: %s", what);
}

OrtStatus *count_elements(const OrtApi *ort, run_array *array)
{
    int64_t elements = 1;
    for (size_t i = 0; i < array->rank; i++) {
        if (array->dim[i] < 0 || (array->dim[i] && elements > MOST_ELEMENTS / array->dim[i]))
            return wrong_shape(ort, "an array would be negative or too large");
        elements *= array->dim[i];
    }
    array->elements = (size_t)elements;
    return NULL;
}

static OrtStatus *to_target(const OrtApi *ort, const step_reshape *how, run_array *array)
{
    const run_array from = *array;
    size_t open = NO_PLACE, known = 1;
    array->rank = how->numbers;
    for (size_t i = 0; i < how->numbers; i++) {
        array->dim[i] = how->number[i];
        if (how->number[i] == 0 && !how->zeros) {
            if (i >= from.rank)
                return wrong_shape(ort, "a Reshape keeps an extent that is not there");
            array->dim[i] = from.dim[i];
        }
        if (how->number[i] == -1 && open == NO_PLACE)
            open = i;
        else if (array->dim[i] < 0 || (array->dim[i] && known > (size_t)(MOST_ELEMENTS / array->dim[i])))
            return wrong_shape(ort, "a Reshape's target is wrong");
        else
            known *= (size_t)array->dim[i];
    }
    if (open != NO_PLACE && known == 0)
        return wrong_shape(ort, "a Reshape's target has a 0 beside an extent that is left open");
    if (open != NO_PLACE)
        array->dim[open] = (int64_t)(from.elements / known);
    return NULL;
}

/* Marks the axes that `how` names in an array of `rank` dimensions; false if one is outside. */
static bool mark(const step_reshape *how, size_t rank, bool *marked)
{
    for (size_t i = 0; i < how->numbers; i++) {
        const int64_t axis = how->number[i] + (how->number[i] < 0 ? (int64_t)rank : 0);
        if (axis < 0 || axis >= (int64_t)rank || marked[axis])
            return false;
        marked[axis] = true;
    }
    return true;
}

static OrtStatus *squeeze(const OrtApi *ort, const step_reshape *how, run_array *array)
{
    bool marked[MOST_DIMENSIONS] = {0};
    size_t kept = 0;
    if (!mark(how, array->rank, marked))
        return wrong_shape(ort, "a Squeeze's axes are wrong");
    for (size_t i = 0; i < array->rank; i++) {
        if (how->numbers ? !marked[i] : array->dim[i] != 1)
            array->dim[kept++] = array->dim[i];
        else if (array->dim[i] != 1)
            return wrong_shape(ort, "a Squeeze's axis is not 1");
    }
    array->rank = kept;
    return NULL;
}

static OrtStatus *unsqueeze(const OrtApi *ort, const step_reshape *how, run_array *array)
{
    const run_array from = *array;
    bool marked[MOST_DIMENSIONS] = {0};
    array->rank += how->numbers;
    if (array->rank > MOST_DIMENSIONS || !mark(how, array->rank, marked))
        return wrong_shape(ort, "an Unsqueeze's axes are wrong");
    for (size_t i = 0, next = 0; i < array->rank; i++)
        array->dim[i] = marked[i] ? 1 : from.dim[next++];
    return NULL;
}

static OrtStatus *flatten(const OrtApi *ort, const step_reshape *how, run_array *array)
{
    const run_array from = *array;
    const int64_t axis = how->number[0] + (how->number[0] < 0 ? (int64_t)from.rank : 0);
    if (axis < 0 || axis > (int64_t)from.rank)
        return wrong_shape(ort, "a Flatten's axis is wrong");
    array->rank = 2;
    array->dim[0] = array->dim[1] = 1;
    for (size_t i = 0; i < from.rank; i++)
        array->dim[i >= (size_t)axis] *= from.dim[i];
    return NULL;
}

OrtStatus *reshape(const OrtApi *ort, const step_reshape *how, const run_array *target, run_array *array)
{
    const size_t elements = array->elements;
    step_reshape given = *how;
    OrtStatus *failure = NULL;
    if (target) {
        if (target->rank != 1 || target->elements > MOST_DIMENSIONS)
            return wrong_shape(ort, "a Reshape's target is no row of up to 8 numbers");
        given.numbers = target->elements;
        if (target->elements)
            memcpy(given.number, target->host, target->elements * sizeof *given.number);
    }
    switch (given.kind) {
    case RESHAPE_NONE: return NULL;
    case RESHAPE_TARGET: ORT_TRY(to_target(ort, &given, array)); break;
    case RESHAPE_SQUEEZE: ORT_TRY(squeeze(ort, &given, array)); break;
    case RESHAPE_UNSQUEEZE: ORT_TRY(unsqueeze(ort, &given, array)); break;
    case RESHAPE_FLATTEN: ORT_TRY(flatten(ort, &given, array)); break;
    }
    ORT_TRY(count_elements(ort, array));
    if (array->elements != elements)
        failure = wrong_shape(ort, "a Reshape's target has another number of elements");
fail:
    return failure;
}

/* Makes `array` the shape that it and `with` have together, as NumPy broadcasts. */
static OrtStatus *broadcast_shape(const OrtApi *ort, const run_array *with, run_array *array)
{
    const run_array from = *array;
    if (with->rank > array->rank)
        array->rank = with->rank;
    for (size_t i = 1; i <= array->rank; i++) {
        const int64_t a = i <= from.rank ? from.dim[from.rank - i] : 1;
        const int64_t b = i <= with->rank ? with->dim[with->rank - i] : 1;
        if (a != b && a != 1 && b != 1)
            return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: dimensions of %lld and %lld do not go together",
                               (long long)a, (long long)b);
        array->dim[array->rank - i] = a == 1 ? b : a;
    }
    return count_elements(ort, array);
}

static OrtStatus *product_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output)
{
    OrtStatus *failure = NULL;
    const run_array *a = input[PRODUCT_A], *b = input[PRODUCT_B];
    if (a->rank < 1 || a->dim[a->rank - 1] != b->dim[s->product.transposed])
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: a product's rows have %lld elements, expected %lld",
                           (long long)(a->rank ? a->dim[a->rank - 1] : 0), (long long)b->dim[s->product.transposed]);
    *output = *a;
    output->dim[a->rank - 1] = b->dim[!s->product.transposed];
    ORT_TRY(count_elements(ort, output));
    ORT_TRY(reshape(ort, &s->reshape, NULL, output));
    if (input[PRODUCT_OPERAND])
        ORT_TRY(broadcast_shape(ort, input[PRODUCT_OPERAND], output));
fail:
    return failure;
}

void slice_bounds(const step *s, size_t part, const run_array *input, int64_t *start, int64_t *extent)
{
    for (size_t i = 0; i < input->rank; i++) {
        const int64_t whole = input->dim[i];
        start[i] = 0;
        extent[i] = whole;
        if (s->kind == STEP_SPLIT && i == s->axis[0]) {
            extent[i] = s->start[part];
            for (size_t other = 0; other < part; other++)
                start[i] += s->start[other];
        } else if (s->kind == STEP_SLICE || s->kind == STEP_SHAPE) {
            int64_t from = s->start[i] + (s->start[i] < 0 ? whole : 0), to = s->end[i] + (s->end[i] < 0 ? whole : 0);
            from = from < 0 ? 0 : from > whole ? whole : from;
            to = to < from ? from : to > whole ? whole : to;
            start[i] = from;
            extent[i] = to > from ? (to - from - 1) / s->stride[i] + 1 : 0;
        }
    }
}

static OrtStatus *slice_shape(const OrtApi *ort, const step *s, size_t part, const run_array *input, run_array *output)
{
    int64_t start[MOST_DIMENSIONS], whole = 0;
    *output = *input;
    for (size_t i = 0; s->kind == STEP_SPLIT && i < STEP_OUTPUTS; i++)
        whole += s->start[i];
    if (s->kind == STEP_SPLIT && (s->axis[0] >= input->rank || whole != input->dim[s->axis[0]]))
        return wrong_shape(ort, "a Split's parts are not the whole");
    slice_bounds(s, part, input, start, output->dim);
    return count_elements(ort, output);
}

static OrtStatus *concat_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output)
{
    const size_t axis = s->axis[0];
    *output = *input[0];
    for (size_t i = 1; i < STEP_INPUTS && input[i]; i++) {
        if (input[i]->rank != output->rank)
            return wrong_shape(ort, "arrays of different numbers of dimensions are to be put together");
        for (size_t d = 0; d < output->rank; d++)
            if (d != axis && input[i]->dim[d] != output->dim[d])
                return wrong_shape(ort, "arrays that are to be put together differ in another dimension");
        output->dim[axis] += input[i]->dim[axis];
    }
    return count_elements(ort, output);
}

static OrtStatus *expand_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output)
{
    run_array target = {.rank = s->reshape.numbers};
    const int64_t *numbers = s->reshape.number;
    if (input[TARGET]) {
        if (input[TARGET]->rank != 1 || input[TARGET]->elements > MOST_DIMENSIONS)
            return wrong_shape(ort, "an Expand's target is no row of up to 8 numbers");
        target.rank = input[TARGET]->elements;
        numbers = input[TARGET]->host;
    }
    for (size_t i = 0; i < target.rank; i++)
        target.dim[i] = numbers[i];
    *output = *input[0];
    return broadcast_shape(ort, &target, output);
}

/* Whether a sum before a norm has the shape of its first array, and what is added is in rows like its own. */
static bool skips_rightly(run_array *const input[], const run_array *sum)
{
    const run_array *x = input[NORM_X], *residual = input[NORM_RESIDUAL], *addend = input[NORM_ADDEND];
    const int64_t last = x->dim[x->rank - 1];
    return sum->rank == x->rank && sum->elements == x->elements && residual->rank &&
           residual->dim[residual->rank - 1] == last && (!addend || (addend->rank == 1 && addend->dim[0] == last));
}

OrtStatus *step_shape(const OrtApi *ort, const step *s, size_t part, run_array *const input[STEP_INPUTS],
                      run_array *output)
{
    OrtStatus *failure = NULL;
    switch (s->kind) {
    case STEP_ELEMENTWISE: *output = *input[0]; return input[1] ? broadcast_shape(ort, input[1], output) : NULL;
    case STEP_SLICE:
    case STEP_SPLIT: return slice_shape(ort, s, part, input[0], output);
    case STEP_CONCAT: return concat_shape(ort, s, input, output);
    case STEP_EXPAND: return expand_shape(ort, s, input, output);
    case STEP_ATTENTION: return attention_shape(ort, s, part, input, output);
    case STEP_ROPE: return rope_shape(ort, s, input, output);
    case STEP_EINSUM: return einsum_shape(ort, s, input, output);
    case STEP_PRODUCT: return product_shape(ort, s, input, output);
    case STEP_SHAPE:
    case STEP_GATHER: return numbers_shape(ort, s, input[0], output);
    case STEP_CONVOLUTION: return convolution_shape(ort, s, input, output);
    case STEP_RESIZE: return resize_shape(ort, s, input[0], output);
    case STEP_DEPTH_TO_SPACE: return depth_to_space_shape(ort, s, input[0], output);
    case STEP_NORM:
        *output = *input[NORM_X];
        if (input[NORM_RESIDUAL])
            ORT_TRY(broadcast_shape(ort, input[NORM_RESIDUAL], output));
        if (s->norm.skips && !skips_rightly(input, output))
            return wrong_shape(ort, "what is added before a norm does not have its input's shape");
        for (size_t i = 0; i < s->norm.axes; i++)
            for (size_t with = NORM_SCALE; with <= NORM_BIAS; with++)
                if (input[with] && input[with]->dim[i] != output->dim[output->rank - s->norm.axes + i]) {
                    failure = wrong_shape(ort, "a norm's scale or bias has not the extents that are normalised");
                    goto fail;
                }
        break;
    case STEP_ACTIVATION: *output = *input[0]; break;
    case STEP_TRANSPOSE:
        *output = *input[0];
        for (size_t i = 0; i < output->rank; i++)
            output->dim[i] = input[0]->dim[s->axis[i]];
        break;
    case STEP_RESHAPE:
        *output = *input[0];
        ORT_TRY(reshape(ort, &s->reshape, input[TARGET], output));
        break;
    }
fail:
    return failure;
}
