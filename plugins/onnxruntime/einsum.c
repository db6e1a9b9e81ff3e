/* An Einsum of two arrays that is a product of matrices: each index is of both arrays and the result (a batch), of both arrays alone
 * (summed over), or of one array and the result. */
#include <string.h>

#include "run.h"

/* ---- matching ---- */

/* Reads indices up to a character of `ends`; false if one is no letter, is there twice, or is the ninth. */
static bool read_indices(const char **text, const char *ends, char index[MOST_DIMENSIONS + 1])
{
    size_t count = 0;
    for (; **text && !strchr(ends, **text); ++*text) {
        const char c = **text;
        if (c == ' ')
            continue;
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) || count == MOST_DIMENSIONS || memchr(index, c, count))
            return false;
        index[count++] = c;
    }
    index[count] = '\0';
    return true;
}

static bool read_equation(const char *text, step *made)
{
    char(*index)[MOST_DIMENSIONS + 1] = made->einsum.index;
    if (!read_indices(&text, ",", index[0]) || *text++ != ',' || !read_indices(&text, ",-", index[1]) ||
        strncmp(text, "->", 2) != 0)
        return false;
    text += 2;
    if (!read_indices(&text, "", index[2]))
        return false;
    for (size_t i = 0; i < 3; i++) /* each index is in two of the three at least */
        for (const char *c = index[i]; *c; c++)
            if (!strchr(index[(i + 1) % 3], *c) && !strchr(index[(i + 2) % 3], *c))
                return false;
    return true;
}

OrtStatus *match_einsum(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    char equation[64];
    ORT_TRY(graph_text(g, node, "equation", equation, sizeof equation));
    if (n->inputs != 2 || !is_float(g, n->input[1]) || g->value[n->input[0]].type != g->value[n->input[1]].type ||
        !read_equation(equation, made))
        return NULL;
    for (size_t i = 0; i < 2; i++)
        if (rank_of(g, n->input[i]) == 0 || rank_of(g, n->input[i]) != strlen(made->einsum.index[i]))
            return NULL;
    made->kind = STEP_EINSUM;
    made->input[1] = n->input[1];
    *found = true;
fail:
    return failure;
}

/* ---- computing ---- */

/* The extent that an index has; 1 in an array that is broadcast. */
static int64_t extent_of(const step *s, char index, run_array *const input[])
{
    int64_t extent = 1;
    for (size_t i = 0; i < 2; i++) {
        const char *at = strchr(s->einsum.index[i], index);
        if (at && input[i]->dim[at - s->einsum.index[i]] != 1)
            extent = input[i]->dim[at - s->einsum.index[i]];
    }
    return extent;
}

OrtStatus *einsum_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output)
{
    for (size_t i = 0; i < 2; i++) {
        if (input[i]->rank != strlen(s->einsum.index[i]))
            return wrong_shape(ort, "an Einsum's array has not as many dimensions as its equation says");
        for (size_t d = 0; d < input[i]->rank; d++)
            if (input[i]->dim[d] != 1 && input[i]->dim[d] != extent_of(s, s->einsum.index[i][d], input))
                return wrong_shape(ort, "an Einsum's index has two extents");
    }
    output->dtype = input[0]->dtype;
    output->rank = strlen(s->einsum.index[2]);
    for (size_t d = 0; d < output->rank; d++)
        output->dim[d] = extent_of(s, s->einsum.index[2][d], input);
    return count_elements(ort, output);
}

/* Those indices of one array that are, or are not, in another. */
static void pick(const char *from, const char *other, bool in, char found[MOST_DIMENSIONS + 1])
{
    size_t count = 0;
    for (; *from; from++)
        if ((strchr(other, *from) != NULL) == in)
            found[count++] = *from;
    found[count] = '\0';
}

/* An array as (batch, rows, columns), each of which is indices. */
typedef struct matrices {
    const char *index[3];
    int64_t extent[MOST_DIMENSIONS + 1], stride[MOST_DIMENSIONS + 1]; /* of the indices, in their order */
    size_t rank;
    clattn_layout layout; /* in row-major order, or as the array lies, */
    bool lies;            /* if it can lie so */
} matrices;

static matrices lay_out(const step *s, size_t which, const char *const index[3], run_array *const input[],
                        const run_array *array)
{
    matrices m = {.layout = {.dtype = array->dtype, .rank = 3}, .lies = true};
    int64_t stride[MOST_DIMENSIONS], whole = 1;
    strides_of(array, stride);
    for (size_t part = 0; part < 3; part++) {
        m.layout.extent[part] = 1;
        m.layout.stride[part] = 0;
        for (const char *c = index[part]; *c; c++) {
            const size_t d = (size_t)(strchr(s->einsum.index[which], *c) - s->einsum.index[which]);
            const int64_t extent = extent_of(s, *c, input);
            m.extent[m.rank] = extent;
            m.stride[m.rank] = array->dim[d] == 1 ? 0 : stride[d];
            if (extent > 1) { /* with those before it, if they lie together */
                m.lies = m.lies && (m.layout.extent[part] == 1 || m.layout.stride[part] == extent * m.stride[m.rank]);
                m.layout.stride[part] = m.stride[m.rank];
            }
            m.layout.extent[part] *= (size_t)extent;
            m.rank++;
        }
    }
    for (size_t part = 3; part-- > 0 && !m.lies;) {
        m.layout.stride[part] = whole;
        whole *= (int64_t)m.layout.extent[part];
    }
    return m;
}

/* Copies an array to where it lies as matrices, or with `back` from there. */
static OrtStatus *copy_matrices(const engine *e, const matrices *m, const run_array *array, bool back,
                                const run_array *made)
{
    int64_t stride[MOST_DIMENSIONS + 1], whole = 1;
    for (size_t i = m->rank; i-- > 0; whole *= m->extent[i])
        stride[i] = whole;
    return back ? copy(e, m->rank, m->extent, stride, m->stride, made, array)
                : copy(e, m->rank, m->extent, m->stride, stride, array, made);
}

OrtStatus *enqueue_einsum(const engine *e, const step *s, run_array *const input[], const run_array *output)
{
    OrtStatus *failure = NULL;
    const char *a = s->einsum.index[0], *b = s->einsum.index[1], *c = s->einsum.index[2];
    char shared[MOST_DIMENSIONS + 1], batch[MOST_DIMENSIONS + 1], rows[MOST_DIMENSIONS + 1],
        columns[MOST_DIMENSIONS + 1], depth[MOST_DIMENSIONS + 1];
    pick(a, b, true, shared);
    pick(c, shared, true, batch);
    pick(shared, c, false, depth);
    pick(a, b, false, rows);
    pick(b, a, false, columns);
    const char *const index[3][3] = {{batch, rows, depth}, {batch, depth, columns}, {batch, rows, columns}};
    run_array array[3] = {*input[0], *input[1], *output};
    cl_mem made[3] = {NULL, NULL, NULL};
    matrices m[3];
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    for (size_t i = 0; i < 3; i++) {
        m[i] = lay_out(s, i, index[i], input, &array[i]);
        const clattn_layout *layout = &m[i].layout;
        const size_t elements = layout->extent[0] * layout->extent[1] * layout->extent[2];
        if (!elements) /* sums of nothing */
            return fill_zero(e, output);
        if (m[i].lies)
            continue;
        ORT_TRY(engine_buffer(e, NULL, elements * clattn_dtype_size(array[i].dtype), true, &made[i]));
        array[i].buffer = made[i];
        array[i].offset = 0;
        if (i < 2)
            ORT_TRY(copy_matrices(e, &m[i], input[i], false, &array[i]));
    }
    desc.a = m[0].layout;
    desc.b = m[1].layout;
    desc.c = m[2].layout;
    args.a = binding_of(&array[0]);
    args.b = binding_of(&array[1]);
    args.c = binding_of(&array[2]);
    ORT_TRY(judge(e, clattn_matmul_run(e->context, e->queue, &desc, &args, 0, NULL, NULL)));
    if (made[2])
        ORT_TRY(copy_matrices(e, &m[2], output, true, &array[2]));
fail:
    for (size_t i = 0; i < 3; i++)
        if (made[i])
            e->cl.clReleaseMemObject(made[i]); /* OpenCL keeps it until it has been read */
    return failure;
}
