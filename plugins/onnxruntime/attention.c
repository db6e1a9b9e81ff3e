/* Attention in a graph: as an operator, and in pieces. */
#include <math.h>

#include "step.h"

/* An array that is (batch, heads, length, size) as it is, or (heads, length, size). */
static attention_view view_of(const graph *g, size_t value)
{
    const size_t rank = rank_of(g, value);
    return rank == 3 ? (attention_view){.rank = 3, .axis = {0, 0, 1, 2}}
                     : (attention_view){.rank = rank, .axis = {0, 1, 2, 3}};
}

/* Looks through the transpositions that make an input: what they read is read in their place.  From one that somebody else reads, too,
 * they stay steps of their own. */
static OrtStatus *look_through(const graph *g, const bool *taken, step *made, size_t input)
{
    OrtStatus *failure = NULL;
    size_t *value = &made->input[input];
    attention_view *view = &made->attention.view[input];
    for (size_t node; view->rank == 3 || view->rank == 4; *value = g->node[node].input[0]) {
        size_t perm[MOST_DIMENSIONS];
        bool found = false;
        node = maker_of(g, taken, *value, "Transpose");
        if (node == NO_PLACE || made->nodes > MOST_NODES - 6)
            break;
        ORT_TRY(read_permutation(g, node, view->rank, perm, &found));
        if (!found)
            break;
        for (size_t i = 4 - view->rank; i < 4; i++)
            view->axis[i] = perm[view->axis[i]];
        if (made->through[input] != NO_PLACE)
            continue;
        if (inner(g, taken, *value, "Transpose") != NO_PLACE)
            step_add(made, node);
        else
            made->through[input] = *value;
    }
fail:
    return failure;
}

/* If a Mul by a constant number, or a Div, makes the value, takes it into the scale and goes to what it reads. */
static void look_through_scale(const graph *g, const bool *taken, step *made, size_t *value)
{
    float number;
    size_t node = inner(g, taken, *value, "Mul");
    for (size_t i = 0; node != NO_PLACE && i < 2; i++)
        if (graph_scalar(g, g->node[node].input[i], &number) && isfinite(number)) {
            made->attention.scale *= number;
            *value = g->node[node].input[1 - i];
            step_add(made, node);
            return;
        }
    node = inner(g, taken, *value, "Div");
    if (node != NO_PLACE && graph_scalar(g, g->node[node].input[1], &number) && isfinite(1 / number)) {
        made->attention.scale /= number;
        *value = g->node[node].input[0];
        step_add(made, node);
    }
}

/* The scores of a Softmax: a product of queries and keys, scaled, and perhaps a mask that is added. */
static OrtStatus *match_scores(const graph *g, const bool *taken, size_t scores, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    size_t sum = inner(g, taken, scores, "Add"), product = NO_PLACE;
    made->attention.scale = 1.0f;
    for (size_t i = 0; i < 2 && product == NO_PLACE; i++) {
        step tried = *made;
        size_t value = scores;
        if (sum != NO_PLACE) {
            value = g->node[sum].input[i];
            tried.input[MASK] = g->node[sum].input[1 - i];
            step_add(&tried, sum);
        }
        look_through_scale(g, taken, &tried, &value);
        product = inner(g, taken, value, "MatMul");
        if (product != NO_PLACE)
            *made = tried;
    }
    if (product == NO_PLACE)
        return NULL;
    step_add(made, product);
    for (size_t i = QUERY; i <= KEY; i++) {
        made->input[i] = g->node[product].input[i];
        look_through_scale(g, taken, made, &made->input[i]);
        made->attention.view[i] = view_of(g, made->input[i]);
    }
    /* Keys come as (..., size, length). */
    made->attention.view[KEY].axis[2] = made->attention.view[QUERY].axis[3];
    made->attention.view[KEY].axis[3] = made->attention.view[QUERY].axis[2];
    ORT_TRY(look_through(g, taken, made, QUERY));
    ORT_TRY(look_through(g, taken, made, KEY));
    made->attention.has_scale = true;
    *found = true;
fail:
    return failure;
}

static const char *why_refused(const graph *g, const step *made)
{
    for (size_t i = QUERY; i <= VALUE; i++) {
        size_t value = made->input[i], rank = made->attention.view[i].rank;
        if (!is_float(g, value) || g->value[value].type != g->value[made->input[QUERY]].type)
            return "queries, keys and values are not all float32 or all float16";
        if (rank != made->attention.output.rank || (rank != 3 && rank != 4))
            return "queries, keys and values do not all have three or all four dimensions";
    }
    if (made->input[MASK] != NO_PLACE) {
        const graph_value *mask = &g->value[made->input[MASK]];
        if (mask->type != ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL && !is_float(g, made->input[MASK]))
            return "the mask is neither boolean, float32 nor float16";
        if (mask->rank < 1 || mask->rank > 4)
            return "the mask's number of dimensions is not known, or is not 1 to 4";
    }
    return NULL;
}

/* The weights that a Softmax makes: PyTorch's exporter makes those of rows that are masked everywhere 0, by IsNaN and Where,
 * which is what clattn has there anyway. */
static size_t look_through_where(const graph *g, const bool *taken, size_t weights, step *made)
{
    size_t input;
    const size_t asks = reader_of(g, taken, weights, "IsNaN");
    if (g->value[weights].consumers != 2 || g->value[weights].leaves || asks == NO_PLACE)
        return weights;
    const size_t where = follower(g, taken, g->node[asks].output[0], "Where", &input);
    if (where == NO_PLACE || input != 0 || g->node[where].input[2] != weights ||
        !is_number(g, g->node[where].input[1], 0))
        return weights;
    step_add(made, asks);
    step_add(made, where);
    return g->node[where].output[0];
}

/* MatMul, perhaps Mul or Div and Add, Softmax, MatMul, and transpositions around them. */
OrtStatus *match_softmax(const graph *g, size_t softmax, const bool *taken, step *made, bool *found,
                         const char **reason)
{
    OrtStatus *failure = NULL;
    int64_t axis = 0;
    size_t perm[MOST_DIMENSIONS];
    bool matched = false;
    size_t rank = rank_of(g, g->node[softmax].input[0]), input = 0;
    const size_t weights = look_through_where(g, taken, g->node[softmax].output[0], made);
    size_t last = follower(g, taken, weights, "MatMul", &input), turned;
    ORT_TRY(graph_integer(g, softmax, "axis", g->node[softmax].version < 13 ? 1 : -1, &axis));
    if ((rank != 3 && rank != 4) || (axis != -1 && axis != (int64_t)rank - 1) || last == NO_PLACE || input != 0) {
        *reason = "this Softmax is not that of attention on arrays of three or four dimensions";
        return NULL;
    }
    made->kind = STEP_ATTENTION;
    step_add(made, softmax);
    step_add(made, last);
    ORT_TRY(match_scores(g, taken, g->node[softmax].input[0], made, &matched));
    if (!matched) {
        *reason = "what this Softmax reads is no product of two arrays, scaled by a constant and masked by a sum";
        return NULL;
    }
    made->input[VALUE] = g->node[last].input[1];
    made->attention.view[VALUE] = view_of(g, made->input[VALUE]);
    ORT_TRY(look_through(g, taken, made, VALUE));
    made->output[0] = g->node[last].output[0];
    made->attention.output = view_of(g, made->output[0]);
    turned = follower(g, taken, made->output[0], "Transpose", &input);
    if (turned != NO_PLACE) {
        bool known = false;
        ORT_TRY(read_permutation(g, turned, rank, perm, &known));
        if (known && made->attention.output.rank == rank && step_add(made, turned)) {
            for (size_t i = 0; i < rank; i++)
                made->attention.output.axis[perm[i] + 4 - rank] = i;
            made->output[0] = g->node[turned].output[0];
        }
    }
    *reason = why_refused(g, made);
    *found = !*reason;
fail:
    return failure;
}

/* Reads a cache: keys and values of before, to which those of now are put.  *reason tells what is not taken. */
static void read_cache(const graph *g, size_t node, bool grouped, step *made, const char **reason)
{
    const graph_node *n = &g->node[node];
    const bool before = made->input[PAST_KEY] != NO_PLACE, behind = has(n->output, n->outputs, PRESENT_KEY);
    if (before != (made->input[PAST_VALUE] != NO_PLACE) || behind != has(n->output, n->outputs, PRESENT_VALUE) ||
        (grouped ? !behind : before != behind))
        *reason = "its cache is read without being written, or the other way round";
    if (!behind || *reason)
        return;
    for (size_t i = 0; i < 2; i++) {
        const size_t value = made->input[PAST_KEY + i];
        made->output[PRESENT_KEY + i] = n->output[PRESENT_KEY + i];
        if (before && (!is_float(g, value) || g->value[value].type != g->value[made->input[QUERY]].type ||
                       rank_of(g, value) != 4))
            *reason = "its cache has not four dimensions, or another type";
    }
}

/* Whether there are tables of rotary positions, of `rank` dimensions and of the type of `value`. */
static bool has_tables(const graph *g, const step *made, size_t value, size_t rank)
{
    for (size_t i = COSINES; i <= SINES; i++)
        if (!is_float(g, made->input[i]) || g->value[made->input[i]].type != g->value[value].type ||
            rank_of(g, made->input[i]) != rank)
            return false;
    return true;
}

/* What only GroupQueryAttention has: lengths of a cache, rotary positions and a window. */
static OrtStatus *read_grouped(const graph *g, size_t node, step *made, const char **reason)
{
    OrtStatus *failure = NULL;
    int64_t rotates = 0, interleaved = 0, smooth = 0;
    ORT_TRY(graph_integer(g, node, "do_rotary", 0, &rotates));
    ORT_TRY(graph_integer(g, node, "rotary_interleaved", 0, &interleaved));
    ORT_TRY(graph_integer(g, node, "smooth_softmax", 0, &smooth));
    ORT_TRY(graph_integer(g, node, "local_window_size", -1, &made->attention.window));
    for (size_t i = LENGTHS; i <= TOTAL; i++)
        if (made->input[i] == NO_PLACE || g->value[made->input[i]].type != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)
            *reason = "it has no lengths of int32";
    if (smooth > 0 || made->attention.window == 0)
        *reason = "it has a smooth softmax, or a window of 0";
    made->rope.interleaved = interleaved != 0;
    if (!rotates)
        made->input[COSINES] = made->input[SINES] = NO_PLACE;
    else if (!has_tables(g, made, made->input[QUERY], 2))
        *reason = "it has no tables of rotary positions, of two dimensions and its own type";
fail:
    return failure;
}

/* The operator Attention of ONNX 23, and MultiHeadAttention and GroupQueryAttention of com.microsoft. */
OrtStatus *match_attention(const graph *g, size_t node, step *made, bool *found, const char **reason)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const bool own = graph_is(g, node, "", "Attention"),
               grouped = graph_is(g, node, "com.microsoft", "GroupQueryAttention");
    const bool packed = grouped && made->input[KEY] == NO_PLACE && made->input[VALUE] == NO_PLACE;
    int64_t heads = 0, kv_heads = 0, causal = 0;
    if (has(n->output, n->outputs, 3)) {
        *reason = "the scores are an output";
        return NULL;
    }
    for (size_t i = QUERY; i <= VALUE; i++) {
        if (packed)
            made->input[i] = made->input[QUERY];
        if (made->input[i] == NO_PLACE) {
            *reason = "queries, keys and values are not apart";
            return NULL;
        }
        made->attention.view[i] = view_of(g, made->input[i]);
    }
    made->output[ATTENDED] = n->output[0];
    made->attention.output = made->attention.view[QUERY];
    ORT_TRY(graph_integer(g, node, own ? "q_num_heads" : "num_heads", 0, &heads));
    ORT_TRY(graph_integer(g, node, own || grouped ? "kv_num_heads" : "num_heads", 0, &kv_heads));
    ORT_TRY(graph_integer(g, node, own ? "is_causal" : "unidirectional", grouped, &causal));
    ORT_TRY(graph_float(g, node, "scale", 0, &made->attention.scale));
    ORT_TRY(graph_float(g, node, "softcap", 0, &made->attention.softcap));
    if (causal && !own && !grouped) {
        *reason = "what unidirectional means with fewer queries than keys is not known";
        return NULL;
    }
    if (!(made->attention.softcap >= 0) || isinf(made->attention.softcap)) {
        *reason = "its softcap is no number from 0 on";
        return NULL;
    }
    made->attention.causal = causal != 0;
    made->attention.has_scale = made->attention.scale != 0;
    made->attention.short_mask = own || grouped;
    read_cache(g, node, grouped, made, reason);
    if (grouped)
        ORT_TRY(read_grouped(g, node, made, reason));
    if (*reason)
        return NULL;
    if (rank_of(g, made->input[QUERY]) == 3) {
        if (heads <= 0 || kv_heads <= 0 || heads > INT32_MAX || kv_heads > INT32_MAX) {
            *reason = "arrays of three dimensions need the number of heads";
            return NULL;
        }
        const size_t own_heads[3] = {(size_t)heads, (size_t)kv_heads, (size_t)kv_heads};
        for (size_t i = QUERY, next = 0; i <= VALUE; next += own_heads[i++]) {
            attention_view *view = &made->attention.view[i];
            view->heads = own_heads[i];
            view->first = packed ? next : 0;
            view->split = packed ? own_heads[0] + 2 * own_heads[1] : own_heads[i];
        }
        made->attention.output.split = made->attention.output.heads = own_heads[QUERY];
    }
    step_add(made, node);
    *reason = grouped && rank_of(g, made->input[QUERY]) != 3 ? "its arrays do not have three dimensions"
                                                             : why_refused(g, made);
    *found = !*reason;
fail:
    return failure;
}

/* RotaryEmbedding of ONNX 23 and of com.microsoft, which differ in what their tables and positions may be. */
OrtStatus *match_rope(const graph *g, size_t node, step *made, bool *found, const char **reason)
{
    OrtStatus *failure = NULL;
    const bool own = graph_is(g, node, "", "RotaryEmbedding");
    const size_t x = made->input[ROPE_X], positions = made->input[ROPE_POSITIONS];
    int64_t heads = 0, interleaved = 0, packed = 0;
    float scale = 1;
    ORT_TRY(graph_integer(g, node, "num_heads", 0, &heads));
    ORT_TRY(graph_integer(g, node, "rotary_embedding_dim", 0, &made->rope.size));
    ORT_TRY(graph_integer(g, node, "interleaved", 0, &interleaved));
    ORT_TRY(graph_integer(g, node, "is_packed_batching", 0, &packed));
    ORT_TRY(graph_float(g, node, "scale", 1, &scale));
    const size_t rank = rank_of(g, x);
    if (!is_float(g, x) || (rank != 3 && rank != 4) || !has_tables(g, made, x, positions == NO_PLACE ? 3 : 2)) {
        *reason =
            "its array and its tables are not all float32 or all float16, or their dimensions are not known in number";
        return NULL;
    }
    if (positions == NO_PLACE
            ? !own
            : g->value[positions].type != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 || (own && rank_of(g, positions) != 2)) {
        *reason = "its positions are not of int64, or not one for each element";
        return NULL;
    }
    if (packed || scale != 1 || heads < 0 || made->rope.size < 0 || made->rope.size % 2) {
        *reason = "it is packed, or has a scale or an odd size";
        return NULL;
    }
    made->attention.view[ROPE_X] = view_of(g, x);
    if (rank == 3) {
        /* com.microsoft's finds the size of heads in the tables. */
        const int64_t pairs = last_extent(g, made->input[COSINES]), whole = last_extent(g, x);
        if (heads == 0 && !own && made->rope.size == 0 && pairs > 0 && whole > 0)
            heads = whole / 2 / pairs;
        if (heads == 0) {
            *reason = "arrays of three dimensions need the number of heads";
            return NULL;
        }
        made->attention.view[ROPE_X].split = made->attention.view[ROPE_X].heads = (size_t)heads;
    }
    made->rope.interleaved = interleaved != 0;
    made->output[0] = g->node[node].output[0];
    step_add(made, node);
    *found = true;
fail:
    return failure;
}
