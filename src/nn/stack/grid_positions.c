/* Positions of a grid of patches that are computed: sinusoids, and the angles that queries and keys are rotated by. */
#include <math.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/layers.h"

#define PI 3.14159265358979323846

static clattn_status out_of_memory(const struct builder *b)
{
    return report_error(&b->graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
}

clattn_status add_grid_sinusoids(const struct builder *b, struct grid grid, int *array)
{
    const size_t columns = b->stack->desc.d_model, quarter = columns / 4, patches = grid.rows * grid.columns;
    size_t count;
    float *values = size_mul(patches, columns, &count) ? malloc(count * sizeof *values) : NULL;
    if (!values)
        return out_of_memory(b);
    for (size_t i = 0; i < count; i++) {
        const size_t patch = i / columns, part = i % columns / quarter;
        const size_t position = part < 2 ? patch / grid.columns : patch % grid.columns;
        const double angle = (double)position * pow(10000, -(double)(i % quarter) / (double)quarter);
        values[i] = (float)(part % 2 ? cos(angle) : sin(angle));
    }
    const clattn_status status = graph_constant_array(b->graph, CLATTN_DTYPE_F32, count, values, array);
    free(values);
    return status;
}

/* Where patch `i` of `count` on an axis stands. */
static double place_of(const clattn_stack_desc *d, size_t i, size_t count)
{
    return d->rotary_centred ? 2 * PI * (2 * ((double)i + 0.5) / (double)count - 1) : (double)i;
}

clattn_status add_grid_angles(const struct builder *b, struct grid grid, struct angles *angles)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->stack->desc;
    const size_t pairs = d->rotary_size / 2, half = pairs / 2, patches = grid.rows * grid.columns;
    const double base = d->rotary_base != 0 ? d->rotary_base : 10000;
    size_t count;
    float *cosines = size_mul(patches, pairs, &count) ? malloc(2 * count * sizeof *cosines) : NULL;
    if (!cosines)
        return out_of_memory(b);
    float *sines = cosines + count;
    for (size_t i = 0; i < count; i++) {
        const size_t patch = i / pairs, pair = i % pairs;
        const double place = pair < half ? place_of(d, patch / grid.columns, grid.rows)
                                         : place_of(d, patch % grid.columns, grid.columns);
        const double angle = place * pow(base, -(double)(pair % half) / (double)half);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    TRY(graph_constant_array(b->graph, CLATTN_DTYPE_F32, count, cosines, &angles->cosines));
    status = graph_constant_array(b->graph, CLATTN_DTYPE_F32, count, sines, &angles->sines);
    angles->patches = patches;
fail:
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
    desc.pairing =
        d->rotary == CLATTN_ROTARY_INTERLEAVED ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
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
