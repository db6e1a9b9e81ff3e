/* What a graph's nodes are, one step at a time: norms, and what the other files' matching shares. */
#include "step.h"

#include <math.h>
#include <string.h>

/* The newest versions of operators of ONNX's whose meaning is known here. */
#define NEWEST 25
#define NEWEST_ATTENTION 24

#define SKIP_SUM 3 /* which output of SkipLayerNormalization the sum is */
#define LEFT 255   /* an input that is not taken */

#define MS "com.microsoft"

/* Operators that are a step each, and what their inputs are. */
static const struct whole {
    const char *domain, *op;
    step_kind kind;
    size_t inputs;
    unsigned char role[11];
} wholes[] = {
    {"", "Attention", STEP_ATTENTION, 6, {QUERY, KEY, VALUE, MASK, PAST_KEY, PAST_VALUE}},
    {MS, "MultiHeadAttention", STEP_ATTENTION, 8, {QUERY, KEY, VALUE, LEFT, LEFT, MASK, PAST_KEY, PAST_VALUE}},
    {MS,
     "GroupQueryAttention",
     STEP_ATTENTION,
     11,
     {QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COSINES, SINES, LEFT, MASK}},
    {"", "RotaryEmbedding", STEP_ROPE, 4, {ROPE_X, COSINES, SINES, ROPE_POSITIONS}},
    {MS, "RotaryEmbedding", STEP_ROPE, 4, {ROPE_X, ROPE_POSITIONS, COSINES, SINES}},
    {"", "LayerNormalization", STEP_NORM, 3, {NORM_X, NORM_SCALE, NORM_BIAS}},
    {"", "RMSNormalization", STEP_NORM, 2, {NORM_X, NORM_SCALE}},
    {"", "SimplifiedLayerNormalization", STEP_NORM, 2, {NORM_X, NORM_SCALE}},
    {MS, "SkipLayerNormalization", STEP_NORM, 5, {NORM_X, NORM_RESIDUAL, NORM_SCALE, NORM_BIAS, NORM_ADDEND}},
    {MS, "SkipSimplifiedLayerNormalization", STEP_NORM, 4, {NORM_X, NORM_RESIDUAL, NORM_SCALE, NORM_ADDEND}},
};

size_t maker_of(const graph *g, const bool *taken, size_t value, const char *op)
{
    const size_t node = value == NO_PLACE ? NO_PLACE : g->value[value].producer;
    return node != NO_PLACE && !taken[node] && graph_is(g, node, "", op) ? node : NO_PLACE;
}

size_t inner(const graph *g, const bool *taken, size_t value, const char *op)
{
    const bool alone = value != NO_PLACE && g->value[value].consumers == 1 && !g->value[value].leaves;
    return alone ? maker_of(g, taken, value, op) : NO_PLACE;
}

size_t step_reads(const step *s, size_t i)
{
    return i < STEP_INPUTS ? s->input[i] : s->through[i - STEP_INPUTS];
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

size_t other_input(const graph *g, size_t node, size_t value)
{
    return g->node[node].input[g->node[node].input[0] == value];
}

bool is_number(const graph *g, size_t value, double number)
{
    float found;
    if (!graph_scalar(g, value, &found))
        return false;
    /* As near as its type comes. */
    const double within = g->value[value].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ? 0x1p-11 : 1e-6;
    return fabs((double)found - number) <= within * fabs(number);
}

size_t follower_by(const graph *g, const bool *taken, size_t value, const char *op, double number)
{
    size_t input, n = follower(g, taken, value, op, &input);
    return n != NO_PLACE && is_number(g, other_input(g, n, value), number) ? n : NO_PLACE;
}

size_t reader_of(const graph *g, const bool *taken, size_t value, const char *op)
{
    size_t input, n = graph_reader(g, value, NO_PLACE, &input);
    while (n != NO_PLACE && (taken[n] || !graph_is(g, n, "", op)))
        n = graph_reader(g, value, n, &input);
    return n;
}

/* Takes the sum that a norm is of, if nobody else reads it. */
static void take_residual(const graph *g, const bool *taken, size_t rank, step *made)
{
    const size_t sum = inner(g, taken, made->input[NORM_X], "Add");
    for (size_t i = 0; sum != NO_PLACE && i < 2; i++) {
        const size_t x = g->node[sum].input[i], residual = g->node[sum].input[1 - i];
        if (rank_of(g, x) != rank || !is_float(g, residual) || !rank_of(g, residual))
            continue;
        made->input[NORM_X] = x;
        made->input[NORM_RESIDUAL] = residual;
        step_add(made, sum);
        break;
    }
}

/* A norm of the last dimensions, perhaps of a sum.  The operators with a sum of their own, Skip..., normalise one. */
static OrtStatus *match_norm(const graph *g, size_t node, const bool *taken, step *made, bool *found,
                             const char **reason)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const size_t x = made->input[NORM_X], rank = rank_of(g, x);
    const bool skips = made->input[NORM_RESIDUAL] != NO_PLACE;
    int64_t axis = 0, stash = 1;
    ORT_TRY(graph_integer(g, node, "axis", -1, &axis));
    ORT_TRY(graph_integer(g, node, "stash_type", 1, &stash));
    ORT_TRY(graph_float(g, node, "epsilon", skips ? 1e-12f : 1e-5f, &made->norm.epsilon));
    axis += axis < 0 ? (int64_t)rank : 0;
    if (!is_float(g, x) || rank == 0 || axis < 0 || axis >= (int64_t)rank || stash != 1 ||
        made->input[NORM_SCALE] == NO_PLACE) {
        *reason = "it has no scale, or is not of the last dimensions, known in number, of float32 or float16";
        return NULL;
    }
    for (size_t i = NORM_SCALE; i <= NORM_ADDEND; i++) {
        const size_t value = made->input[i];
        if (value == NO_PLACE || i == NORM_RESIDUAL)
            continue;
        bool same = is_float(g, value) && rank_of(g, value) == rank - (size_t)axis;
        for (size_t d = (size_t)axis; same && d < rank && !skips; d++) {
            const int64_t extent = g->value[value].dim[d - (size_t)axis];
            same = extent >= 0 && extent == g->value[x].dim[d];
        }
        if (!same) {
            *reason = "its scale or bias is not known to have the extents that are normalised";
            return NULL;
        }
    }
    for (size_t i = 1; i < n->outputs; i++)
        if (n->output[i] != NO_PLACE && !(skips && i == SKIP_SUM)) {
            *reason = "a mean or a deviation is an output";
            return NULL;
        }
    made->norm.kind = strstr(n->op, "Simplified") || graph_is(g, node, "", "RMSNormalization") ? CLATTN_NORM_KIND_RMS
                                                                                               : CLATTN_NORM_KIND_LAYER;
    made->norm.axes = rank - (size_t)axis;
    made->norm.skips = skips;
    made->output[NORMED] = n->output[0];
    made->output[NORM_SUM] = has(n->output, n->outputs, SKIP_SUM) ? n->output[SKIP_SUM] : NO_PLACE;
    step_add(made, node);
    if (!skips)
        take_residual(g, taken, rank, made);
    *found = true;
fail:
    return failure;
}

OrtStatus *match_rms(const graph *g, size_t node, const bool *taken, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const size_t x = g->node[node].input[0], rank = rank_of(g, x);
    int64_t axes[1] = {0}, keeps = 1;
    size_t input, count = 0;
    if (!is_float(g, x) || rank < 2 || !is_number(g, g->node[node].input[1], 2))
        return NULL;
    const size_t mean = follower(g, taken, g->node[node].output[0], "ReduceMean", &input);
    if (mean == NO_PLACE)
        return NULL;
    ORT_TRY(graph_integer(g, mean, "keepdims", 1, &keeps));
    if (g->node[mean].version < 18)
        ORT_TRY(graph_integers(g, mean, "axes", axes, 1, &count));
    else if (!has(g->node[mean].input, g->node[mean].inputs, 1) ||
             !graph_numbers(g, g->node[mean].input[1], axes, 1, &count))
        return NULL;
    const size_t sum = follower(g, taken, g->node[mean].output[0], "Add", &input);
    if (!keeps || count != 1 || (axes[0] != -1 && axes[0] != (int64_t)rank - 1) || sum == NO_PLACE ||
        !graph_scalar(g, other_input(g, sum, g->node[mean].output[0]), &made->norm.epsilon) ||
        !(made->norm.epsilon >= 0) || isinf(made->norm.epsilon))
        return NULL;
    const size_t root = follower(g, taken, g->node[sum].output[0], "Sqrt", &input);
    if (root == NO_PLACE)
        return NULL;
    const size_t inverse = follower(g, taken, g->node[root].output[0], "Reciprocal", &input);
    size_t last = inverse != NO_PLACE ? follower(g, taken, g->node[inverse].output[0], "Mul", &input)
                                      : follower(g, taken, g->node[root].output[0], "Div", &input);
    if (last == NO_PLACE || g->node[last].input[inverse != NO_PLACE ? 1 - input : 0] != x)
        return NULL;
    made->kind = STEP_NORM;
    made->norm.kind = CLATTN_NORM_KIND_RMS;
    made->norm.axes = 1;
    made->input[NORM_X] = x;
    const size_t nodes[] = {node, mean, sum, root, inverse, last};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (nodes[i] != NO_PLACE)
            step_add(made, nodes[i]);
    made->output[0] = g->node[last].output[0];
    const size_t scaled = follower(g, taken, made->output[0], "Mul", &input);
    if (scaled != NO_PLACE) {
        const size_t scale = other_input(g, scaled, made->output[0]);
        if (is_float(g, scale) && g->value[scale].constant && rank_of(g, scale) == 1 &&
            g->value[scale].elements == (size_t)last_extent(g, x)) {
            made->input[NORM_SCALE] = scale;
            step_add(made, scaled);
            made->output[0] = g->node[scaled].output[0];
        }
    }
    *found = true;
fail:
    return failure;
}

/* An activation that no product has. */
static OrtStatus *match_alone(const graph *g, size_t node, const bool *taken, step *made, bool *found)
{
    size_t value = g->node[node].inputs ? g->node[node].input[0] : NO_PLACE;
    if (value == NO_PLACE || !is_float(g, value) || g->value[value].rank > MOST_DIMENSIONS)
        return NULL;
    made->kind = STEP_ACTIVATION;
    made->input[0] = value;
    OrtStatus *failure = match_activation(g, value, taken, made, found);
    /* What begins at this node is this node's. */
    *found = *found && made->node[0] == node;
    return failure;
}

/* Takes the inputs of a node that is a step; false if it is none.  *reason tells if an input is not taken. */
static bool take_inputs(const graph *g, size_t node, step *made, const char **reason)
{
    const graph_node *n = &g->node[node];
    size_t at = 0;
    while (at < sizeof wholes / sizeof *wholes && !graph_is(g, node, wholes[at].domain, wholes[at].op))
        at++;
    if (at == sizeof wholes / sizeof *wholes)
        return false;
    made->kind = wholes[at].kind;
    for (size_t i = 0; i < n->inputs; i++)
        if (n->input[i] != NO_PLACE) {
            if (i >= wholes[at].inputs || wholes[at].role[i] == LEFT)
                *reason = "it has an input that is not taken, such as lengths, positions, a padding mask or a bias";
            else
                made->input[wholes[at].role[i]] = n->input[i];
        }
    return true;
}

OrtStatus *step_match(const graph *g, size_t node, bool light, const bool *taken, step *made, bool *found,
                      const char **reason)
{
    OrtStatus *failure = NULL;
    *made = (step){0};
    for (size_t i = 0; i < STEP_INPUTS; i++)
        made->input[i] = NO_PLACE;
    for (size_t i = QUERY; i <= VALUE; i++)
        made->through[i] = NO_PLACE;
    for (size_t i = 0; i < STEP_OUTPUTS; i++)
        made->output[i] = NO_PLACE;
    *found = false;
    *reason = NULL;
    if (taken[node] || !g->node[node].inputs)
        return NULL;
    if (!*g->node[node].domain &&
        g->node[node].version > (graph_is(g, node, "", "Attention") ? NEWEST_ATTENTION : NEWEST)) {
        *reason = "its version is newer than what the provider knows";
        return NULL;
    }
    if (light)
        return match_light(g, node, made, found);
    if (take_inputs(g, node, made, reason)) {
        if (*reason)
            return NULL;
        return made->kind == STEP_ATTENTION ? match_attention(g, node, made, found, reason)
               : made->kind == STEP_ROPE    ? match_rope(g, node, made, found, reason)
                                            : match_norm(g, node, taken, made, found, reason);
    }
    if (graph_is(g, node, "", "Softmax"))
        ORT_TRY(match_softmax(g, node, taken, made, found, reason));
    else if (graph_is(g, node, "", "MatMul") || graph_is(g, node, "", "Gemm"))
        ORT_TRY(match_product(g, node, taken, made, found, reason));
    else if (graph_is(g, node, "", "Conv"))
        ORT_TRY(match_convolution(g, node, taken, made, found, reason));
    else if (graph_is(g, node, "", "Resize"))
        ORT_TRY(match_resize(g, node, made, found, reason));
    else if (graph_is(g, node, "", "Pow"))
        ORT_TRY(match_rms(g, node, taken, made, found));
    if (!*found && !*reason)
        ORT_TRY(match_alone(g, node, taken, made, found));
fail:
    return failure;
}
