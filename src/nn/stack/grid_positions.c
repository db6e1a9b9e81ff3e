/* Positions of a grid of patches that are computed: sinusoids, and the angles that queries and keys are rotated by. */
#include <math.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/layers.h"

#define PI 3.14159265358979323846

/* Where patch `i` of `count` on an axis stands. */
static double place_of(size_t i, size_t count, bool centred)
{
    return centred ? 2 * PI * (2 * ((double)i + 0.5) / (double)count - 1) : (double)i;
}

/* The angles place * base^(-i/n), i = 0 ... n - 1, of all rows and then of all columns. */
static double *angles_of(struct grid grid, size_t n, double base, bool centred)
{
    double *angles = malloc((grid.rows + grid.columns) * n * sizeof *angles);
    for (size_t line = 0; angles && line < grid.rows + grid.columns; line++) {
        const double place =
            line < grid.rows ? place_of(line, grid.rows, centred) : place_of(line - grid.rows, grid.columns, centred);
        for (size_t i = 0; i < n; i++)
            angles[line * n + i] = place * pow(base, -(double)i / (double)n);
    }
    return angles;
}

/* The angles of a patch's row, or of its column. */
static const double *angles_at(const double *angles, struct grid grid, size_t n, size_t patch, bool column)
{
    return angles + (column ? grid.rows + patch % grid.columns : patch / grid.columns) * n;
}

clattn_status add_grid_sinusoids(const struct builder *b, struct grid grid, int *array)
{
    clattn_status status;
    const size_t columns = b->stack->desc.d_model, n = columns / 4, patches = grid.rows * grid.columns;
    double *angles = NULL;
    float *values = NULL;
    TRY(check_places(b, patches));
    angles = angles_of(grid, n, 10000, false);
    values = malloc(patches * columns * sizeof *values);
    if (!angles || !values) {
        status = no_memory(b);
        goto fail;
    }
    for (size_t patch = 0; patch < patches; patch++)
        for (size_t i = 0; i < columns; i++) {
            const double angle = angles_at(angles, grid, n, patch, i >= 2 * n)[i % n];
            values[patch * columns + i] = (float)(i / n % 2 ? cos(angle) : sin(angle));
        }
    status = graph_constant_array(b->graph, CLATTN_DTYPE_F32, patches * columns, values, array);
fail:
    free(angles);
    free(values);
    return status;
}

clattn_status add_grid_angles(const struct builder *b, struct grid grid, struct angles *made)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->stack->desc;
    const size_t pairs = d->rotary_size / 2, n = pairs / 2, patches = grid.rows * grid.columns, count = patches * pairs;
    double *angles = NULL;
    float *cosines = NULL;
    TRY(check_places(b, patches));
    angles = angles_of(grid, n, d->rotary_base != 0 ? d->rotary_base : 10000, d->rotary_centred);
    cosines = malloc(2 * count * sizeof *cosines);
    if (!angles || !cosines) {
        status = no_memory(b);
        goto fail;
    }
    float *sines = cosines + count;
    for (size_t i = 0; i < count; i++) {
        const double angle = angles_at(angles, grid, n, i / pairs, i % pairs >= n)[i % n];
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    TRY(graph_constant_array(b->graph, CLATTN_DTYPE_F32, count, cosines, &made->cosines));
    TRY(graph_constant_array(b->graph, CLATTN_DTYPE_F32, count, sines, &made->sines));
    made->patches = patches;
fail:
    free(angles);
    free(cosines);
    return status;
}

clattn_status add_grid_rope(const struct builder *b, const struct matrix *matrix, size_t heads,
                            const struct angles *angles)
{
    const clattn_stack_desc *d = &b->stack->desc;
    const size_t table[3] = {1, angles->patches, d->rotary_size / 2};
    clattn_rope_desc desc;
    struct graph_step step = {
        .op = GRAPH_ROPE, .batch = b->rows.batch_number, .length = graph_number(b->graph, angles->patches, NUMBER_ONE)};
    clattn_rope_desc_init(&desc);
    desc.pairing = rope_pairing(d);
    desc.rotary_size = d->rotary_size;
    desc.x = heads_layout(b->stack, b->rows, matrix, heads);
    desc.x.extent[2] = angles->patches;
    desc.y = desc.x;
    desc.cos = desc.sin = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, table);
    step.operand[ROPE_X] = step.operand[ROPE_Y] =
        (struct graph_operand){matrix->data.array, matrix->data.offset + (int64_t)(stack_prefix(d) * matrix->stride)};
    step.operand[ROPE_COS] = operand_of(angles->cosines);
    step.operand[ROPE_SIN] = operand_of(angles->sines);
    return graph_add_operator(b->graph, &step, &desc, NULL);
}
