#include "step.h"

#include <string.h>

size_t inner(const graph *g, const bool *taken, size_t value, const char *op)
{
    if (value == NO_PLACE)
        return NO_PLACE;
    const graph_value *v = &g->value[value];
    bool alone = v->consumers == 1 && !v->leaves;
    return alone && v->producer != NO_PLACE && !taken[v->producer] && graph_is(g, v->producer, "", op) ? v->producer
                                                                                                       : NO_PLACE;
}

size_t follower(const graph *g, const bool *taken, size_t value, const char *op, size_t *input)
{
    if (g->value[value].consumers != 1 || g->value[value].leaves)
        return NO_PLACE;
    size_t n = graph_reader(g, value, NO_PLACE, input);
    return n != NO_PLACE && !taken[n] && graph_is(g, n, "", op) ? n : NO_PLACE;
}

bool step_add(step *made, size_t node)
{
    if (made->nodes == MOST_NODES)
        return false;
    size_t at = made->nodes++;
    for (; at > 0 && made->node[at - 1] > node; at--)
        made->node[at] = made->node[at - 1];
    made->node[at] = node;
    return true;
}

bool has(const size_t *values, size_t count, size_t place)
{
    return place < count && values[place] != NO_PLACE;
}

bool is_float(const graph *g, size_t value)
{
    return value != NO_PLACE && (g->value[value].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ||
                                 g->value[value].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
}

size_t rank_of(const graph *g, size_t value)
{
    return value == NO_PLACE || g->value[value].rank > MOST_DIMENSIONS ? 0 : g->value[value].rank;
}

int64_t last_extent(const graph *g, size_t value)
{
    size_t rank = rank_of(g, value);
    return rank ? g->value[value].dim[rank - 1] : -1;
}

/* LayerNormalization, RMSNormalization or SimplifiedLayerNormalization of the last dimensions, perhaps of a sum. */
static OrtStatus *match_norm(const graph *g, size_t node, const bool *taken, step *made, bool *found,
                             const char **reason)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const size_t rank = rank_of(g, n->input[0]);
    int64_t axis = 0, stash = 1;
    ORT_TRY(graph_integer(g, node, "axis", -1, &axis));
    ORT_TRY(graph_integer(g, node, "stash_type", 1, &stash));
    ORT_TRY(graph_float(g, node, "epsilon", 1e-5f, &made->norm.epsilon));
    axis += axis < 0 ? (int64_t)rank : 0;
    if (!is_float(g, n->input[0]) || rank == 0 || axis < 0 || axis >= (int64_t)rank || stash != 1 || n->inputs < 2) {
        *reason = "it is not of float32 or float16, of a known number of dimensions";
        return NULL;
    }
    for (size_t i = 1; i < n->inputs; i++) {
        const size_t value = n->input[i];
        if (value == NO_PLACE)
            continue;
        if (!is_float(g, value) || rank_of(g, value) != rank - (size_t)axis) {
            *reason = "its scale or bias has not the dimensions that are normalised";
            return NULL;
        }
        made->input[i] = value; /* NORM_SCALE, NORM_BIAS */
    }
    for (size_t i = 1; i < n->outputs; i++)
        if (n->output[i] != NO_PLACE) {
            *reason = "only the first output can be computed";
            return NULL;
        }
    made->kind = STEP_NORM;
    made->norm.kind = graph_is(g, node, "", "LayerNormalization") ? CLATTN_NORM_KIND_LAYER : CLATTN_NORM_KIND_RMS;
    made->norm.axes = rank - (size_t)axis;
    made->input[NORM_X] = n->input[0];
    made->output = n->output[0];
    step_add(made, node);
    const size_t sum = inner(g, taken, n->input[0], "Add");
    for (size_t i = 0; sum != NO_PLACE && i < 2; i++) {
        const size_t x = g->node[sum].input[i], residual = g->node[sum].input[1 - i];
        if (rank_of(g, x) != rank || !is_float(g, residual) || !rank_of(g, residual))
            continue;
        made->input[NORM_X] = x;
        made->input[NORM_RESIDUAL] = residual;
        step_add(made, sum);
        break;
    }
    *found = true;
fail:
    return failure;
}

/* A Transpose of floats. */
static OrtStatus *match_transpose(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    int64_t perm[MOST_DIMENSIONS];
    size_t count = 0, rank = rank_of(g, g->node[node].input[0]);
    unsigned seen = 0;
    ORT_TRY(graph_integers(g, node, "perm", perm, MOST_DIMENSIONS, &count));
    for (size_t i = 0; i < count; i++) {
        seen |= perm[i] >= 0 && perm[i] < MOST_DIMENSIONS ? 1u << perm[i] : 0;
        made->axis[i] = (size_t)perm[i];
    }
    if (!is_float(g, g->node[node].input[0]) || rank < 2 || rank > CLATTN_MAX_RANK || count != rank ||
        seen != (1u << rank) - 1)
        return NULL;
    made->kind = STEP_TRANSPOSE;
    made->input[0] = g->node[node].input[0];
    made->output = g->node[node].output[0];
    *found = step_add(made, node);
fail:
    return failure;
}

OrtStatus *read_reshape(const graph *g, size_t node, step_reshape *made, size_t *shape, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    int64_t number = 0;
    *made = (step_reshape){.kind = RESHAPE_NONE};
    *shape = NO_PLACE;
    *found = false;
    if (!is_float(g, n->input[0]) || rank_of(g, n->input[0]) == 0 || rank_of(g, n->output[0]) == 0)
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

static OrtStatus *match_reshape(const graph *g, size_t node, step *made, bool *found)
{
    made->kind = STEP_RESHAPE;
    made->input[0] = g->node[node].input[0];
    made->output = g->node[node].output[0];
    step_add(made, node);
    return read_reshape(g, node, &made->reshape, &made->input[SHAPE], found);
}

/* An activation that no product has. */
static OrtStatus *match_alone(const graph *g, size_t node, const bool *taken, step *made, bool *found)
{
    size_t value = g->node[node].inputs ? g->node[node].input[0] : NO_PLACE;
    if (value == NO_PLACE || !is_float(g, value))
        return NULL;
    made->kind = STEP_ACTIVATION;
    made->input[0] = value;
    OrtStatus *failure = match_activation(g, value, taken, made, found);
    /* What begins at this node is this node's. */
    *found = *found && made->node[0] == node;
    return failure;
}

OrtStatus *step_match(const graph *g, size_t node, bool moves, const bool *taken, step *made, bool *found,
                      const char **reason)
{
    OrtStatus *failure = NULL;
    *made = (step){0};
    for (size_t i = 0; i < STEP_INPUTS; i++)
        made->input[i] = NO_PLACE;
    *found = false;
    *reason = NULL;
    if (taken[node])
        return NULL;
    if (moves) {
        if (graph_is(g, node, "", "Transpose"))
            ORT_TRY(match_transpose(g, node, made, found));
        else if (graph_is(g, node, "", "Reshape") || graph_is(g, node, "", "Flatten") ||
                 graph_is(g, node, "", "Squeeze") || graph_is(g, node, "", "Unsqueeze"))
            ORT_TRY(match_reshape(g, node, made, found));
    } else if (graph_is(g, node, "", "Softmax"))
        ORT_TRY(match_softmax(g, node, taken, made, found, reason));
    else if (graph_is(g, node, "", "Attention") || graph_is(g, node, "com.microsoft", "MultiHeadAttention"))
        ORT_TRY(match_attention(g, node, made, found, reason));
    else if (graph_is(g, node, "", "MatMul") || graph_is(g, node, "", "Gemm"))
        ORT_TRY(match_product(g, node, taken, made, found, reason));
    else if (graph_is(g, node, "", "LayerNormalization") || graph_is(g, node, "", "RMSNormalization") ||
             graph_is(g, node, "", "SimplifiedLayerNormalization"))
        ORT_TRY(match_norm(g, node, taken, made, found, reason));
    else
        ORT_TRY(match_alone(g, node, taken, made, found));
fail:
    return failure;
}
