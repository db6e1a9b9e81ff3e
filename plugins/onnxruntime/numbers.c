/* Whole numbers that follow from shapes: graphs for any length compute the targets of Reshape and Expand from Shape.  They are
 * computed on the host, while a run finds its arrays' shapes. */
#include <string.h>

#include "run.h"

static bool is_one_of(const graph *g, size_t node, const char *const ops[])
{
    for (size_t i = 0; ops[i]; i++)
        if (graph_is(g, node, "", ops[i]))
            return true;
    return false;
}

/* Whether the numbers that a node makes surely lie in one dimension or none; `rank` cannot tell, because it is 0 also where it
 * is not known. */
static bool is_flat(const graph *g, size_t node)
{
    static const char *const flat[] = {"Shape", "Slice", "Concat", "Cast", "Add", "Sub", "Mul", "Div", NULL};
    const graph_node *n = &g->node[node];
    const graph_value *x = &g->value[n->input[0]];
    return g->value[n->output[0]].rank == 1 || is_one_of(g, node, flat) ||
           (graph_is(g, node, "", "Gather") && g->value[n->input[1]].rank <= 1) ||
           (graph_is(g, node, "", "Squeeze") && x->rank == 1 && x->dim[0] == 1);
}

/* How many numbers a node makes at most; 0: it does not. */
static size_t most_of(const graph *g, size_t node, bool inside)
{
    static const char *const moves[] = {"Squeeze", "Unsqueeze", "Reshape", "Cast", "Slice", NULL};
    static const char *const functions[] = {"Add", "Sub", "Mul", "Div", NULL};
    const graph_node *n = &g->node[node];
    const size_t x = n->inputs ? n->input[0] : NO_PLACE, y = n->outputs == 1 ? n->output[0] : NO_PLACE;
    size_t most = 0;
    if (x == NO_PLACE || y == NO_PLACE || g->value[y].rank > 1 ||
        g->value[y].type != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
        return 0;
    if (graph_is(g, node, "", "Shape"))
        return g->value[x].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING ? 0 : rank_of(g, x);
    if (is_one_of(g, node, moves))
        return g->value[x].numbers;
    if (graph_is(g, node, "", "Gather") && n->inputs == 2 && n->input[1] != NO_PLACE && g->value[n->input[1]].constant)
        return g->value[x].numbers ? g->value[n->input[1]].numbers : 0;
    const bool joins = graph_is(g, node, "", "Concat");
    if (!joins && !is_one_of(g, node, functions))
        return 0;
    for (size_t i = 0; i < n->inputs; i++) {
        const size_t own = n->input[i] == NO_PLACE ? 0 : g->value[n->input[i]].numbers;
        if (!own)
            return 0;
        most = joins ? most + own : own > most ? own : most;
    }
    return inside && most > MOST_DIMENSIONS ? MOST_DIMENSIONS : most;
}

void numbers_mark(graph *g, bool inside)
{
    for (size_t v = 0; v < g->values; v++) {
        graph_value *value = &g->value[v];
        const bool given = inside && value->producer == NO_PLACE && !value->constant;
        if (value->type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 && value->rank <= 1 && (value->constant || given))
            value->numbers = given ? MOST_DIMENSIONS : value->elements;
        if (value->numbers > MOST_DIMENSIONS)
            value->numbers = 0;
    }
    for (size_t n = 0; n < g->nodes; n++) {
        size_t most = most_of(g, n, inside);
        if (!most || !is_flat(g, n))
            continue;
        graph_value *made = &g->value[g->node[n].output[0]];
        if (made->rank == 1 && made->dim[0] > 0) /* ONNX Runtime knows better how long a Slice is */
            most = (size_t)made->dim[0];
        made->numbers = most <= MOST_DIMENSIONS ? most : 0;
    }
}

OrtStatus *match_numbers(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    int64_t axis = 0;
    *found = true;
    if (graph_is(g, node, "", "Shape")) {
        made->kind = STEP_SHAPE;
        ORT_TRY(graph_integer(g, node, "start", 0, &made->start[0]));
        ORT_TRY(graph_integer(g, node, "end", INT64_MAX, &made->end[0]));
        made->stride[0] = 1;
    } else if (graph_is(g, node, "", "Gather")) {
        made->kind = STEP_GATHER;
        ORT_TRY(graph_integer(g, node, "axis", 0, &axis));
        made->gather.rank = rank_of(g, n->input[1]);
        *found = (axis == 0 || axis == -1) &&
                 graph_numbers(g, n->input[1], made->gather.index, MOST_DIMENSIONS, &made->gather.count);
    } else /* a Cast to the same type */
        made->kind = STEP_RESHAPE;
fail:
    return failure;
}

/* The extents of an array, as a row of whole numbers. */
static run_array extents_of(const run_array *array)
{
    return (run_array){
        .rank = 1, .dim = {(int64_t)array->rank}, .elements = array->rank, .host = (void *)(uintptr_t)array->dim};
}

OrtStatus *numbers_shape(const OrtApi *ort, const step *s, const run_array *x, run_array *output)
{
    const run_array extents = extents_of(x);
    int64_t start;
    *output = (run_array){.rank = 1, .dtype = CLATTN_DTYPE_NONE};
    if (s->kind == STEP_SHAPE)
        slice_bounds(s, 0, &extents, &start, output->dim);
    else {
        output->rank = s->gather.rank;
        output->dim[0] = (int64_t)s->gather.count;
    }
    return count_elements(ort, output);
}

static OrtStatus *gather(const OrtApi *ort, const step *s, const run_array *x, int64_t *to)
{
    const int64_t *from = x->host, count = (int64_t)x->elements;
    for (size_t i = 0; i < s->gather.count; i++) {
        const int64_t place = s->gather.index[i] + (s->gather.index[i] < 0 ? count : 0);
        if (place < 0 || place >= count)
            return wrong_shape(ort, "a Gather's index is outside");
        to[i] = from[place];
    }
    return NULL;
}

static OrtStatus *apply(const OrtApi *ort, const char *op, int64_t a, int64_t b, int64_t *result)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    if (strcmp(op, "Div") == 0) {
        if (b == 0 || (a == INT64_MIN && b == -1))
            return wrong_shape(ort, "a number of a shape is divided by 0, or too large");
        *result = a / b;
    } else
        *result = (int64_t)(strcmp(op, "Add") == 0 ? x + y : strcmp(op, "Sub") == 0 ? x - y : x * y);
    return NULL;
}

static bool is_short_row(const run_array *array)
{
    return array->rank <= 1 && array->elements <= MOST_DIMENSIONS;
}

OrtStatus *numbers_compute(const OrtApi *ort, const step *s, run_array *const input[STEP_INPUTS],
                           const run_array *output)
{
    OrtStatus *failure = NULL;
    const run_array extents = extents_of(input[0]), *x = s->kind == STEP_SHAPE ? &extents : input[0], *y = input[1];
    const int64_t *from = x->host;
    int64_t *to = output->host, start, extent;
    bool small = is_short_row(x) && is_short_row(output);
    for (size_t i = 1; i < STEP_INPUTS && input[i]; i++)
        small = small && is_short_row(input[i]);
    if (!small)
        return wrong_shape(ort, "a shape has more than 8 numbers, or is no row");
    switch (s->kind) {
    case STEP_GATHER: return gather(ort, s, x, to);
    case STEP_SHAPE:
    case STEP_SLICE:
        slice_bounds(s, 0, x, &start, &extent);
        for (int64_t i = 0; i < extent; i++)
            to[i] = from[start + i * s->stride[0]];
        break;
    case STEP_CONCAT:
        for (size_t i = 0; i < STEP_INPUTS && input[i]; to += input[i++]->elements)
            if (input[i]->elements)
                memcpy(to, input[i]->host, input[i]->elements * sizeof *to);
        break;
    case STEP_ELEMENTWISE:
        for (size_t i = 0; i < output->elements; i++)
            ORT_TRY(apply(ort, elementwise_functions[s->function].op, from[x->elements > 1 ? i : 0],
                          ((const int64_t *)y->host)[y->elements > 1 ? i : 0], &to[i]));
        break;
    default: /* the same in another shape */
        if (output->elements)
            memcpy(to, from, output->elements * sizeof *to);
    }
fail:
    return failure;
}
