/* Single nodes in a graph that move elements or change each by itself. */
#include "step.h"

OrtStatus *read_reshape(const graph *g, size_t node, step_reshape *made, size_t *shape, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    int64_t number = 0;
    *made = (step_reshape){.kind = RESHAPE_NONE};
    *shape = NO_PLACE;
    *found = false;
    const bool numbers = g->value[n->output[0]].numbers > 0;
    if (!numbers && (!is_float(g, n->input[0]) || rank_of(g, n->input[0]) == 0 || rank_of(g, n->output[0]) == 0))
        return NULL;
    if (graph_is(g, node, "", "Flatten")) {
        made->kind = RESHAPE_FLATTEN;
        ORT_TRY(graph_integer(g, node, "axis", 1, &number));
        made->number[0] = number;
        made->numbers = 1;
        *found = true;
        return NULL;
    }
    if (graph_is(g, node, "", "Reshape")) {
        made->kind = RESHAPE_TARGET;
        ORT_TRY(graph_integer(g, node, "allowzero", 0, &number));
        made->zeros = number != 0;
    } else {
        made->kind = graph_is(g, node, "", "Squeeze") ? RESHAPE_SQUEEZE : RESHAPE_UNSQUEEZE;
        if (n->version < 13) {
            ORT_TRY(graph_integers(g, node, "axes", made->number, MOST_DIMENSIONS, &made->numbers));
            *found = made->numbers > 0;
            return NULL;
        }
    }
    if (!has(n->input, n->inputs, 1)) {
        *found = made->kind == RESHAPE_SQUEEZE;
        return NULL;
    }
    *found = graph_numbers(g, n->input[1], made->number, MOST_DIMENSIONS, &made->numbers);
    if (!*found && made->kind == RESHAPE_TARGET && g->value[n->input[1]].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) {
        *shape = n->input[1];
        *found = true;
    }
fail:
    return failure;
}

OrtStatus *read_permutation(const graph *g, size_t node, size_t rank, size_t perm[MOST_DIMENSIONS], bool *found)
{
    OrtStatus *failure = NULL;
    int64_t number[MOST_DIMENSIONS];
    size_t count = 0;
    unsigned seen = 0;
    ORT_TRY(graph_integers(g, node, "perm", number, MOST_DIMENSIONS, &count));
    for (size_t i = 0; i < count; i++) {
        seen |= number[i] >= 0 && number[i] < MOST_DIMENSIONS ? 1u << number[i] : 0;
        perm[i] = (size_t)number[i];
    }
    *found = count == rank && seen == (1u << rank) - 1;
fail:
    return failure;
}

/* A dimension of a value that an attribute or an input has, which may count from behind. */
static bool dimension(const graph *g, size_t value, int64_t axis, size_t *found)
{
    const int64_t rank = (int64_t)rank_of(g, value);
    axis += axis < 0 ? rank : 0;
    *found = (size_t)axis;
    return axis >= 0 && axis < rank;
}

/* A Slice of constant bounds, forwards. */
static bool match_slice(const graph *g, size_t node, step *made)
{
    const graph_node *n = &g->node[node];
    int64_t number[4][MOST_DIMENSIONS]; /* starts, ends, axes, steps */
    size_t count[4] = {0};
    for (size_t i = 0; i < 4; i++)
        if (has(n->input, n->inputs, i + 1) &&
            !graph_numbers(g, n->input[i + 1], number[i], MOST_DIMENSIONS, &count[i]))
            return false;
    for (size_t i = 0; i < MOST_DIMENSIONS; i++) {
        made->start[i] = 0;
        made->end[i] = INT64_MAX;
        made->stride[i] = 1;
    }
    for (size_t i = 0; i < count[0]; i++) {
        size_t axis;
        if (count[1] != count[0] || (count[2] && count[2] != count[0]) || (count[3] && count[3] != count[0]) ||
            !dimension(g, n->input[0], count[2] ? number[2][i] : (int64_t)i, &axis) || (count[3] && number[3][i] < 1))
            return false;
        made->start[axis] = number[0][i];
        made->end[axis] = number[1][i];
        made->stride[axis] = count[3] ? number[3][i] : 1;
    }
    made->kind = STEP_SLICE;
    return n->version >= 10 && count[0] > 0;
}

/* A Split into a few parts, equal or of constant extents. */
static OrtStatus *match_split(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    int64_t axis = 0;
    size_t count = 0;
    ORT_TRY(graph_integer(g, node, "axis", 0, &axis));
    if (n->version < 13)
        ORT_TRY(graph_integers(g, node, "split", made->start, MOST_DIMENSIONS, &count));
    else if (has(n->input, n->inputs, 1) && !graph_numbers(g, n->input[1], made->start, MOST_DIMENSIONS, &count))
        return NULL;
    if (n->outputs > STEP_OUTPUTS || (count && count != n->outputs) || !dimension(g, n->input[0], axis, &made->axis[0]))
        return NULL;
    /* Parts of one extent are that of a known dimension, or the last would be smaller. */
    const int64_t extent = g->value[n->input[0]].dim[made->axis[0]];
    for (size_t i = 0; !count && i < n->outputs; i++)
        made->start[i] = extent / (int64_t)n->outputs;
    if (!count && (extent < 1 || extent % (int64_t)n->outputs))
        return NULL;
    for (size_t i = 0; i < n->outputs; i++)
        made->output[i] = n->output[i];
    made->kind = STEP_SPLIT;
    *found = made->output[0] != NO_PLACE;
fail:
    return failure;
}

static OrtStatus *match_concat(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    int64_t axis = 0;
    ORT_TRY(graph_integer(g, node, "axis", 0, &axis));
    if (n->inputs > STEP_INPUTS || !dimension(g, n->output[0], axis, &made->axis[0]))
        return NULL;
    for (size_t i = 0; i < n->inputs; i++) {
        if (n->input[i] == NO_PLACE || rank_of(g, n->input[i]) != rank_of(g, n->output[0]))
            return NULL;
        made->input[i] = n->input[i];
    }
    made->kind = STEP_CONCAT;
    *found = true;
fail:
    return failure;
}

static bool match_expand(const graph *g, size_t node, step *made)
{
    const size_t shape = g->node[node].input[1];
    made->kind = STEP_EXPAND;
    made->reshape.kind = RESHAPE_TARGET;
    if (graph_numbers(g, shape, made->reshape.number, MOST_DIMENSIONS, &made->reshape.numbers))
        return true;
    made->input[TARGET] = shape;
    return !g->value[shape].constant && rank_of(g, g->node[node].output[0]) > 0 &&
           g->value[shape].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
}

/* A Pad of nothing. */
static bool match_pad(const graph *g, size_t node, step *made)
{
    int64_t pads[2 * MOST_DIMENSIONS];
    size_t count = 0;
    if (!has(g->node[node].input, g->node[node].inputs, 1) ||
        !graph_numbers(g, g->node[node].input[1], pads, 2 * MOST_DIMENSIONS, &count))
        return false;
    for (size_t i = 0; i < count; i++)
        if (pads[i] != 0)
            return false;
    made->kind = STEP_RESHAPE;
    return true;
}

static bool match_elementwise(const graph *g, size_t node, step *made)
{
    const graph_node *n = &g->node[node];
    for (size_t i = 0; elementwise_functions[i].op; i++) {
        const size_t inputs = elementwise_functions[i].inputs;
        if (!graph_is(g, node, "", elementwise_functions[i].op))
            continue;
        made->kind = STEP_ELEMENTWISE;
        made->function = i;
        made->input[1] = inputs == 2 ? n->input[1] : NO_PLACE;
        return n->inputs == inputs &&
               (inputs == 1 || g->value[n->output[0]].numbers ||
                (is_float(g, n->input[1]) && g->value[n->input[0]].type == g->value[n->input[1]].type));
    }
    return false;
}

OrtStatus *match_light(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const bool numbers = has(n->output, n->outputs, 0) && g->value[n->output[0]].numbers > 0;
    if (!has(n->input, n->inputs, 0) || !has(n->output, n->outputs, 0) || (!numbers && !is_float(g, n->input[0])) ||
        g->value[n->input[0]].rank > MOST_DIMENSIONS || g->value[n->output[0]].rank > MOST_DIMENSIONS)
        return NULL;
    made->input[0] = n->input[0];
    made->output[0] = n->output[0];
    if (graph_is(g, node, "", "Shape") || graph_is(g, node, "", "Gather") || graph_is(g, node, "", "Cast")) {
        if (numbers)
            ORT_TRY(match_numbers(g, node, made, found));
    } else if (graph_is(g, node, "", "Transpose")) {
        made->kind = STEP_TRANSPOSE;
        ORT_TRY(read_permutation(g, node, rank_of(g, n->input[0]), made->axis, found));
        *found = *found && rank_of(g, n->input[0]) > 0;
    } else if (graph_is(g, node, "", "Reshape") || graph_is(g, node, "", "Flatten") ||
               graph_is(g, node, "", "Squeeze") || graph_is(g, node, "", "Unsqueeze")) {
        made->kind = STEP_RESHAPE;
        ORT_TRY(read_reshape(g, node, &made->reshape, &made->input[TARGET], found));
    } else if (graph_is(g, node, "", "Slice"))
        *found = match_slice(g, node, made);
    else if (graph_is(g, node, "", "Split"))
        ORT_TRY(match_split(g, node, made, found));
    else if (graph_is(g, node, "", "Concat"))
        ORT_TRY(match_concat(g, node, made, found));
    else if (graph_is(g, node, "", "Expand"))
        *found = match_expand(g, node, made);
    else if (graph_is(g, node, "", "Einsum"))
        ORT_TRY(match_einsum(g, node, made, found));
    else if (graph_is(g, node, "", "DepthToSpace"))
        ORT_TRY(match_depth_to_space(g, node, made, found));
    else if (graph_is(g, node, "", "Pad"))
        *found = match_pad(g, node, made);
    else
        *found = match_elementwise(g, node, made);
    step_add(made, node);
fail:
    return failure;
}
