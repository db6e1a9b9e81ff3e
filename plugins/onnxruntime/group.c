#include "group.h"

#include <math.h>
#include <string.h>

/* The node that makes a value, if it is of ONNX's operator `op`, nobody else reads the value, and the node is free. */
static size_t inner(const graph *g, const bool *taken, size_t value, const char *op)
{
    if (value == NO_PLACE)
        return NO_PLACE;
    const graph_value *v = &g->value[value];
    bool alone = v->consumers == 1 && !v->leaves;
    return alone && v->producer != NO_PLACE && !taken[v->producer] && graph_is(g, v->producer, "", op) ? v->producer
                                                                                                       : NO_PLACE;
}

/* The only node that reads a value, if it is of ONNX's operator `op` and free, and the place among its inputs. */
static size_t follower(const graph *g, const bool *taken, size_t value, const char *op, size_t *input)
{
    if (g->value[value].consumers != 1 || g->value[value].leaves)
        return NO_PLACE;
    for (size_t n = g->value[value].producer + 1; n < g->nodes; n++)
        for (size_t i = 0; i < g->node[n].inputs; i++)
            if (g->node[n].input[i] == value) {
                *input = i;
                return !taken[n] && graph_is(g, n, "", op) ? n : NO_PLACE;
            }
    return NO_PLACE;
}

static bool add(group *made, size_t node)
{
    if (made->nodes == MOST_NODES)
        return false;
    size_t at = made->nodes++;
    for (; at > 0 && made->node[at - 1] > node; at--)
        made->node[at] = made->node[at - 1];
    made->node[at] = node;
    return true;
}

static bool is_float(const graph *g, size_t value)
{
    return value != NO_PLACE && (g->value[value].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ||
                                 g->value[value].type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
}

static size_t rank_of(const graph *g, size_t value)
{
    return value == NO_PLACE ? 0 : g->value[value].rank;
}

/* An array that is (batch, heads, length, size) as it is, or (batch, length, size). */
static group_view view_of(const graph *g, size_t value)
{
    return (group_view){value, rank_of(g, value), 0, {0, 1, 2, 3}};
}

/* A permutation of four dimensions that a Transpose has; false if it has another. */
static OrtStatus *permutation(const graph *g, size_t node, int64_t perm[4], bool *found)
{
    size_t count = 0;
    unsigned seen = 0;
    OrtStatus *failure = graph_integers(g, node, "perm", perm, 4, &count);
    for (size_t i = 0; i < count; i++)
        seen |= perm[i] >= 0 && perm[i] < 4 ? 1u << perm[i] : 0;
    *found = count == 4 && seen == 15;
    return failure;
}

/* Looks through the transpositions that make an array: what they read is read in their place. */
static OrtStatus *look_through(const graph *g, const bool *taken, group *made, group_view *view)
{
    OrtStatus *failure = NULL;
    for (size_t node; view->rank == 4; view->value = g->node[node].input[0]) {
        int64_t perm[4];
        bool found = false;
        node = inner(g, taken, view->value, "Transpose");
        if (node == NO_PLACE || made->nodes > MOST_NODES - 6)
            break;
        ORT_TRY(permutation(g, node, perm, &found));
        if (!found)
            break;
        for (size_t i = 0; i < 4; i++)
            view->axis[i] = (size_t)perm[view->axis[i]];
        add(made, node);
    }
fail:
    return failure;
}

/* If a Mul by a constant number, or a Div, makes the value, takes it into the scale and goes to what it reads. */
static void look_through_scale(const graph *g, const bool *taken, group *made, size_t *value)
{
    float number;
    size_t node = inner(g, taken, *value, "Mul");
    for (size_t i = 0; node != NO_PLACE && i < 2; i++)
        if (graph_scalar(g, g->node[node].input[i], &number) && isfinite(number)) {
            made->scale *= number;
            *value = g->node[node].input[1 - i];
            add(made, node);
            return;
        }
    node = inner(g, taken, *value, "Div");
    if (node != NO_PLACE && graph_scalar(g, g->node[node].input[1], &number) && isfinite(1 / number)) {
        made->scale /= number;
        *value = g->node[node].input[0];
        add(made, node);
    }
}

/* The scores of a Softmax: a product of queries and keys, scaled, and perhaps a mask that is added. */
static OrtStatus *match_scores(const graph *g, const bool *taken, size_t scores, group *made, bool *found)
{
    OrtStatus *failure = NULL;
    size_t sum = inner(g, taken, scores, "Add"), product = NO_PLACE;
    made->scale = 1.0f;
    made->mask = NO_PLACE;
    for (size_t i = 0; i < 2 && product == NO_PLACE; i++) {
        group tried = *made;
        size_t value = scores;
        if (sum != NO_PLACE) {
            value = g->node[sum].input[i];
            tried.mask = g->node[sum].input[1 - i];
            add(&tried, sum);
        }
        look_through_scale(g, taken, &tried, &value);
        product = inner(g, taken, value, "MatMul");
        if (product != NO_PLACE)
            *made = tried;
    }
    if (product == NO_PLACE)
        return NULL;
    add(made, product);
    size_t query = g->node[product].input[0], key = g->node[product].input[1];
    look_through_scale(g, taken, made, &query);
    look_through_scale(g, taken, made, &key);
    made->query = view_of(g, query);
    made->key = view_of(g, key);
    /* Keys come as (..., size, length). */
    made->key.axis[2] = 3;
    made->key.axis[3] = 2;
    ORT_TRY(look_through(g, taken, made, &made->query));
    ORT_TRY(look_through(g, taken, made, &made->key));
    made->has_scale = true;
    *found = true;
fail:
    return failure;
}

/* MatMul, perhaps Mul or Div and Add, Softmax, MatMul, and transpositions around them. */
static OrtStatus *match_softmax(const graph *g, size_t softmax, const bool *taken, group *made, bool *found,
                                const char **reason)
{
    OrtStatus *failure = NULL;
    int64_t axis = 0, perm[4];
    bool matched = false;
    size_t rank = rank_of(g, g->node[softmax].input[0]), input = 0;
    size_t last = follower(g, taken, g->node[softmax].output[0], "MatMul", &input), turned;
    ORT_TRY(graph_integer(g, softmax, "axis", g->node[softmax].version < 13 ? 1 : -1, &axis));
    if (rank != 4 || (axis != -1 && axis != 3) || last == NO_PLACE || input != 0) {
        *reason = "this Softmax is not that of attention on arrays of four dimensions";
        return NULL;
    }
    add(made, softmax);
    add(made, last);
    ORT_TRY(match_scores(g, taken, g->node[softmax].input[0], made, &matched));
    if (!matched) {
        *reason = "what this Softmax reads is no product of two arrays, scaled by a constant and masked by a sum";
        return NULL;
    }
    made->value = view_of(g, g->node[last].input[1]);
    ORT_TRY(look_through(g, taken, made, &made->value));
    made->output = view_of(g, g->node[last].output[0]);
    turned = follower(g, taken, made->output.value, "Transpose", &input);
    if (turned != NO_PLACE) {
        bool known = false;
        ORT_TRY(permutation(g, turned, perm, &known));
        if (known) {
            for (size_t i = 0; i < 4; i++)
                made->output.axis[perm[i]] = i;
            made->output.value = g->node[turned].output[0];
            add(made, turned);
        }
    }
    *found = true;
fail:
    return failure;
}

/* Whether an input or output is there. */
static bool has(const size_t *values, size_t count, size_t place)
{
    return place < count && values[place] != NO_PLACE;
}

/* The operator Attention of ONNX 23, and MultiHeadAttention of com.microsoft, without caches. */
static OrtStatus *match_operator(const graph *g, size_t node, group *made, bool *found, const char **reason)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const bool own = graph_is(g, node, "", "Attention");
    int64_t heads = 0, kv_heads = 0, causal = 0;
    for (size_t i = own ? 4 : 3; i < n->inputs; i++)
        if (has(n->input, n->inputs, i) && (own || i != 5)) {
            *reason =
                own ? "this Attention has a cache" : "this MultiHeadAttention has a bias, a padding mask or a cache";
            return NULL;
        }
    if (n->inputs < 3 || has(n->output, n->outputs, 1) || has(n->output, n->outputs, 2) ||
        has(n->output, n->outputs, 3)) {
        *reason = "only the first output can be computed";
        return NULL;
    }
    made->query = view_of(g, n->input[0]);
    made->key = view_of(g, n->input[1]);
    made->value = view_of(g, n->input[2]);
    made->output = view_of(g, n->output[0]);
    made->mask = has(n->input, n->inputs, own ? 3 : 5) ? n->input[own ? 3 : 5] : NO_PLACE;
    ORT_TRY(graph_integer(g, node, own ? "q_num_heads" : "num_heads", 0, &heads));
    ORT_TRY(graph_integer(g, node, own ? "kv_num_heads" : "num_heads", 0, &kv_heads));
    ORT_TRY(graph_integer(g, node, own ? "is_causal" : "unidirectional", 0, &causal));
    ORT_TRY(graph_float(g, node, "scale", 0, &made->scale));
    ORT_TRY(graph_float(g, node, "softcap", 0, &made->softcap));
    made->causal = causal != 0;
    made->has_scale = made->scale != 0;
    made->short_mask = own;
    if (rank_of(g, n->input[0]) == 3) {
        if (heads <= 0 || kv_heads <= 0) {
            *reason = "arrays of three dimensions need the number of heads";
            return NULL;
        }
        made->query.split = made->output.split = (size_t)heads;
        made->key.split = made->value.split = (size_t)kv_heads;
    }
    add(made, node);
    *found = true;
fail:
    return failure;
}

static const char *why_refused(const graph *g, const group *made)
{
    const group_view *views[] = {&made->query, &made->key, &made->value, &made->output};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        if (!is_float(g, views[i]->value) || g->value[views[i]->value].type != g->value[made->query.value].type)
            return "queries, keys and values are not all float32 or all float16";
        if (views[i]->rank != made->query.rank || (views[i]->rank != 3 && views[i]->rank != 4))
            return "queries, keys and values do not all have three or all four dimensions";
    }
    if (made->mask != NO_PLACE) {
        const graph_value *mask = &g->value[made->mask];
        if (mask->type != ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL && !is_float(g, made->mask))
            return "the mask is neither boolean, float32 nor float16";
        if (mask->rank < 1 || mask->rank > 4)
            return "the mask's number of dimensions is not known, or is not 1 to 4";
    }
    return NULL;
}

OrtStatus *group_match(const graph *g, size_t node, const bool *taken, group *made, bool *found, const char **reason)
{
    OrtStatus *failure = NULL;
    *made = (group){.mask = NO_PLACE};
    *found = false;
    *reason = NULL;
    if (taken[node])
        return NULL;
    if (graph_is(g, node, "", "Softmax"))
        ORT_TRY(match_softmax(g, node, taken, made, found, reason));
    else if (graph_is(g, node, "", "Attention") || graph_is(g, node, "com.microsoft", "MultiHeadAttention"))
        ORT_TRY(match_operator(g, node, made, found, reason));
    if (*found)
        *reason = why_refused(g, made);
    *found = *found && !*reason;
fail:
    return failure;
}
