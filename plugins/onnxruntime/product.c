/* Products by a constant matrix in a graph, with what can be computed in the same pass: a bias, an activation, and another
 * array added or multiplied. */
#include <math.h>

#include "step.h"

/* X · s · 0.5 with s = 1 + erf(X / √2), multiplied in any order.  X has two readers. */
static bool match_erf(const graph *g, size_t x, const bool *taken, step *made)
{
    const double root = 1.4142135623730951;
    size_t scaled = reader_of(g, taken, x, "Div"), input = 0;
    if (scaled == NO_PLACE || g->node[scaled].input[0] != x || !is_number(g, g->node[scaled].input[1], root)) {
        scaled = reader_of(g, taken, x, "Mul");
        while (scaled != NO_PLACE && !is_number(g, other_input(g, scaled, x), 1 / root)) {
            scaled = graph_reader(g, x, scaled, &input);
            if (scaled != NO_PLACE && (taken[scaled] || !graph_is(g, scaled, "", "Mul")))
                scaled = NO_PLACE;
        }
    }
    if (scaled == NO_PLACE)
        return false;
    const size_t erf = follower(g, taken, g->node[scaled].output[0], "Erf", &input);
    const size_t sum = erf == NO_PLACE ? NO_PLACE : follower_by(g, taken, g->node[erf].output[0], "Add", 1);
    if (sum == NO_PLACE)
        return false;
    /* Two products: of X, of the sum and of 0.5. */
    size_t first = follower(g, taken, g->node[sum].output[0], "Mul", &input);
    if (first == NO_PLACE)
        return false;
    size_t factor = other_input(g, first, g->node[sum].output[0]), half = NO_PLACE, last;
    if (factor == x) {
        last = follower_by(g, taken, g->node[first].output[0], "Mul", 0.5);
    } else if (is_number(g, factor, 0.5)) {
        last = follower(g, taken, g->node[first].output[0], "Mul", &input);
        last = last != NO_PLACE && other_input(g, last, g->node[first].output[0]) == x ? last : NO_PLACE;
    } else {
        half = inner(g, taken, factor, "Mul");
        last = half != NO_PLACE && (g->node[half].input[0] == x || g->node[half].input[1] == x) &&
                       is_number(g, other_input(g, half, x), 0.5)
                   ? first
                   : NO_PLACE;
    }
    if (last == NO_PLACE)
        return false;
    const size_t nodes[] = {scaled, erf, sum, first, half, last};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (nodes[i] != NO_PLACE && !(i == 5 && last == first))
            step_add(made, nodes[i]);
    made->activation.function = CLATTN_ACTIVATION_GELU;
    made->output[0] = g->node[last].output[0];
    return true;
}

/* 0.5 · X · (1 + tanh(√(2/π) · (X + 0.044715 X³))).  X has three readers. */
static bool match_tanh(const graph *g, size_t x, const bool *taken, step *made)
{
    size_t input;
    const size_t cube = reader_of(g, taken, x, "Pow");
    if (cube == NO_PLACE || g->node[cube].input[0] != x || !is_number(g, g->node[cube].input[1], 3))
        return false;
    const size_t part = follower_by(g, taken, g->node[cube].output[0], "Mul", 0.044715);
    const size_t sum = part == NO_PLACE ? NO_PLACE : follower(g, taken, g->node[part].output[0], "Add", &input);
    if (sum == NO_PLACE || other_input(g, sum, g->node[part].output[0]) != x)
        return false;
    const size_t scaled = follower_by(g, taken, g->node[sum].output[0], "Mul", 0.7978845608028654);
    const size_t tanh_of =
        scaled == NO_PLACE ? NO_PLACE : follower(g, taken, g->node[scaled].output[0], "Tanh", &input);
    const size_t one = tanh_of == NO_PLACE ? NO_PLACE : follower_by(g, taken, g->node[tanh_of].output[0], "Add", 1);
    const size_t last = one == NO_PLACE ? NO_PLACE : follower(g, taken, g->node[one].output[0], "Mul", &input);
    if (last == NO_PLACE)
        return false;
    const size_t half = inner(g, taken, other_input(g, last, g->node[one].output[0]), "Mul");
    if (half == NO_PLACE || (g->node[half].input[0] != x && g->node[half].input[1] != x) ||
        !is_number(g, other_input(g, half, x), 0.5))
        return false;
    const size_t nodes[] = {cube, part, sum, scaled, tanh_of, one, half, last};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        step_add(made, nodes[i]);
    made->activation.function = CLATTN_ACTIVATION_GELU_TANH;
    made->output[0] = g->node[last].output[0];
    return true;
}

/* X · 1 / (1 + exp(-alpha X)), in which alpha may be left out.  X has two readers. */
static bool match_sigmoid(const graph *g, size_t x, const bool *taken, step *made)
{
    float alpha = 1;
    size_t input, scaled = NO_PLACE, sigmoid = reader_of(g, taken, x, "Sigmoid");
    if (sigmoid == NO_PLACE) {
        scaled = reader_of(g, taken, x, "Mul");
        if (scaled == NO_PLACE || !graph_scalar(g, other_input(g, scaled, x), &alpha) || !isfinite(alpha))
            return false;
        sigmoid = follower(g, taken, g->node[scaled].output[0], "Sigmoid", &input);
    }
    const size_t last = sigmoid == NO_PLACE ? NO_PLACE : follower(g, taken, g->node[sigmoid].output[0], "Mul", &input);
    if (last == NO_PLACE || other_input(g, last, g->node[sigmoid].output[0]) != x)
        return false;
    if (scaled != NO_PLACE)
        step_add(made, scaled);
    step_add(made, sigmoid);
    step_add(made, last);
    made->activation.function = CLATTN_ACTIVATION_SWISH;
    made->activation.alpha = alpha;
    made->output[0] = g->node[last].output[0];
    return true;
}

/* An activation that is one node. */
static OrtStatus *match_one(const graph *g, size_t value, const bool *taken, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    size_t input, n = graph_reader(g, value, NO_PLACE, &input);
    bool by_tanh = false;
    float alpha = 1;
    if (n == NO_PLACE || taken[n] || g->node[n].inputs != 1)
        return NULL;
    if (graph_is(g, n, "", "Relu"))
        made->activation.function = CLATTN_ACTIVATION_RELU;
    else if (graph_is(g, n, "", "LeakyRelu")) {
        made->activation.function = CLATTN_ACTIVATION_LEAKY_RELU;
        ORT_TRY(graph_float(g, n, "alpha", 0.01f, &alpha));
    } else if (graph_is(g, n, "", "Gelu")) {
        ORT_TRY(graph_is_text(g, n, "approximate", "none", "tanh", &by_tanh));
        made->activation.function = by_tanh ? CLATTN_ACTIVATION_GELU_TANH : CLATTN_ACTIVATION_GELU;
    } else if (graph_is(g, n, "com.microsoft", "Gelu"))
        made->activation.function = CLATTN_ACTIVATION_GELU;
    else if (graph_is(g, n, "com.microsoft", "FastGelu"))
        made->activation.function = CLATTN_ACTIVATION_GELU_TANH;
    else if (graph_is(g, n, "com.microsoft", "QuickGelu")) {
        made->activation.function = CLATTN_ACTIVATION_SWISH;
        ORT_TRY(graph_float(g, n, "alpha", 1.702f, &alpha));
    } else if (graph_is(g, n, "", "Swish")) {
        made->activation.function = CLATTN_ACTIVATION_SWISH;
        ORT_TRY(graph_float(g, n, "alpha", 1, &alpha));
    } else
        return NULL;
    if (!isfinite(alpha) || !step_add(made, n)) {
        made->activation.function = CLATTN_ACTIVATION_NONE;
        return NULL;
    }
    made->activation.alpha = alpha;
    made->output[0] = g->node[n].output[0];
    *found = true;
fail:
    return failure;
}

OrtStatus *match_activation(const graph *g, size_t value, const bool *taken, step *made, bool *found)
{
    const graph_value *v = &g->value[value];
    *found = false;
    if (v->leaves)
        return NULL;
    if (v->consumers == 1)
        return match_one(g, value, taken, made, found);
    if (rank_of(g, value) == 0) /* a constant of one dimension would add one */
        return NULL;
    if (v->consumers == 2 && made->nodes + 6 <= MOST_NODES)
        *found = match_erf(g, value, taken, made) || match_sigmoid(g, value, taken, made);
    if (v->consumers == 3 && made->nodes + 8 <= MOST_NODES)
        *found = match_tanh(g, value, taken, made);
    return NULL;
}

/* Takes a Reshape of the sums, if behind it comes what the product takes and its last dimension is the same. */
static OrtStatus *look_behind(const graph *g, const bool *taken, int64_t columns, step *made)
{
    OrtStatus *failure = NULL;
    step tried = *made;
    size_t input, shape;
    bool found = false;
    size_t node = follower(g, taken, made->output[0], "Reshape", &input);
    if (node == NO_PLACE || input != 0 || last_extent(g, g->node[node].output[0]) != columns)
        return NULL;
    ORT_TRY(read_reshape(g, node, &tried.reshape, &shape, &found));
    if (!found || shape != NO_PLACE || !step_add(&tried, node))
        return NULL;
    tried.output[0] = g->node[node].output[0];
    const size_t reads = g->value[tried.output[0]].consumers;
    size_t reader = graph_reader(g, tried.output[0], NO_PLACE, &input);
    /* A transposition or a further product would be no nearer for it. */
    if (reader != NO_PLACE &&
        (reads > 1 || graph_is(g, reader, "", "Add") || graph_is(g, reader, "", "Mul") ||
         g->node[reader].inputs == 1) &&
        !graph_is(g, reader, "", "Transpose"))
        *made = tried;
fail:
    return failure;
}

/* Takes the Add of a constant of one dimension, or of more that are 1. */
static void match_bias(const graph *g, const bool *taken, int64_t columns, step *made)
{
    size_t input, sum = follower(g, taken, made->output[0], "Add", &input);
    if (sum == NO_PLACE)
        return;
    const size_t bias = other_input(g, sum, made->output[0]), rank = rank_of(g, bias);
    if (!is_float(g, bias) || !g->value[bias].constant || g->value[bias].elements != (size_t)columns ||
        last_extent(g, bias) != columns || rank > rank_of(g, made->output[0]))
        return;
    if (step_add(made, sum)) {
        made->input[PRODUCT_BIAS] = bias;
        made->output[0] = g->node[sum].output[0];
    }
}

/* Takes the Add or Mul of another array that has as many columns. */
static void match_operand(const graph *g, const bool *taken, int64_t columns, step *made)
{
    size_t input, node = follower(g, taken, made->output[0], "Add", &input);
    const bool multiplies = node == NO_PLACE;
    if (multiplies)
        node = follower(g, taken, made->output[0], "Mul", &input);
    if (node == NO_PLACE)
        return;
    const size_t operand = other_input(g, node, made->output[0]);
    const bool scalar = g->value[operand].constant && g->value[operand].elements == 1 &&
                        rank_of(g, operand) <= rank_of(g, made->output[0]);
    if (!is_float(g, operand) || (!scalar && (last_extent(g, operand) != columns || rank_of(g, operand) == 0)) ||
        g->value[operand].type != g->value[made->output[0]].type || !step_add(made, node))
        return;
    made->input[PRODUCT_OPERAND] = operand;
    made->product.multiplies = multiplies;
    made->product.scalar = scalar;
    made->output[0] = g->node[node].output[0];
}

OrtStatus *match_product(const graph *g, size_t node, const bool *taken, step *made, bool *found, const char **reason)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const bool gemm = graph_is(g, node, "", "Gemm");
    const size_t a = n->input[0], b = n->input[1];
    int64_t transposed = 0, turned = 0;
    float alpha = 1, beta = 1;
    bool activated = false;
    if (!is_float(g, a) || !is_float(g, b) || g->value[a].type != g->value[b].type)
        return NULL;
    if (!g->value[b].constant || rank_of(g, b) != 2 || rank_of(g, a) < 2) {
        *reason = "it is no product by a constant matrix";
        return NULL;
    }
    if (gemm) {
        ORT_TRY(graph_integer(g, node, "transB", 0, &transposed));
        ORT_TRY(graph_integer(g, node, "transA", 0, &turned));
        ORT_TRY(graph_float(g, node, "alpha", 1, &alpha));
        ORT_TRY(graph_float(g, node, "beta", 1, &beta));
        if (turned || alpha != 1 || beta != 1) {
            *reason = "this Gemm has a factor, or a transposed first array";
            return NULL;
        }
    }
    const int64_t columns = g->value[b].dim[!transposed], depth = g->value[b].dim[!!transposed];
    if (columns < 1 || depth < 1) {
        *reason = "its matrix is empty";
        return NULL;
    }
    made->kind = STEP_PRODUCT;
    made->product.transposed = transposed != 0;
    made->input[PRODUCT_A] = a;
    made->input[PRODUCT_B] = b;
    made->output[0] = n->output[0];
    step_add(made, node);
    if (gemm && has(n->input, n->inputs, 2)) {
        const size_t bias = n->input[2];
        if (!g->value[bias].constant || g->value[bias].elements != (size_t)columns || last_extent(g, bias) != columns) {
            *reason = "this Gemm's bias is not a constant row";
            return NULL;
        }
        made->input[PRODUCT_BIAS] = bias;
    } else
        match_bias(g, taken, columns, made);
    ORT_TRY(look_behind(g, taken, columns, made));
    if (made->input[PRODUCT_BIAS] == NO_PLACE)
        match_bias(g, taken, columns, made);
    ORT_TRY(match_activation(g, made->output[0], taken, made, &activated));
    match_operand(g, taken, columns, made);
    *found = true;
fail:
    return failure;
}
