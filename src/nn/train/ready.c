/* When gradients are ready: ranks of a group exchange the pieces of those that are while the others are computed. */
#include <stdlib.h>

#include "base/size.h"
#include "nn/train/trainer.h"

/* The weight that has a number of a buffer, or NULL. */
static const struct weight *find_weight(const clattn_transformer *model, size_t buffer, size_t number)
{
    const size_t element = clattn_dtype_size(model->weight_dtype);
    for (size_t i = 1; i < model->weight_count; i++) {
        const struct weight *weight = &model->weights[i];
        const size_t first = weight->at / element;
        if (weight->buffer == buffer && number >= first && number - first < weight->rows * weight->columns)
            return weight;
    }
    return NULL;
}

/* Records that a step computes the gradient of a weight, or of a part of it. */
static void touch(const struct trainer_group *group, struct graph_mark *marks, const struct weight *weight,
                  size_t element, size_t step)
{
    const size_t first = weight->at / element, end = first + weight->rows * weight->columns;
    for (size_t i = 0; i < group->piece_count; i++) {
        const struct piece *piece = &group->pieces[i];
        if (piece->buffer == weight->buffer && first < piece->first + piece->count && end > piece->first)
            marks[i].step = size_max(marks[i].step, step);
    }
}

static int by_step(const void *left, const void *right)
{
    const size_t a = ((const struct graph_mark *)left)->step, b = ((const struct graph_mark *)right)->step;
    return (a > b) - (a < b);
}

clattn_status training_find_ready(struct training_plan *plan)
{
    const struct trainer_group *group = plan->trainer->group;
    const clattn_transformer *model = plan->trainer->model;
    const struct graph *graph = &plan->graph;
    if (!group)
        return CLATTN_SUCCESS;
    plan->marks = calloc(group->piece_count + 1, sizeof *plan->marks);
    if (!plan->marks)
        return report_error(&model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    for (size_t i = 0; i < group->piece_count; i++)
        plan->marks[i].event = &group->pieces[i].ready;
    for (size_t i = plan->turn; i < graph->step_count; i++)
        for (int k = 0; k < GRAPH_OPERANDS; k++) {
            const struct graph_operand *operand = &graph->steps[i].operand[k];
            const struct graph_array *array = &graph->arrays[operand->array];
            const int slot = array->slot - TRAINING_GRADIENTS;
            if (!operand->array || array->place != GRAPH_BOUND || slot < 0 || (size_t)slot >= model->buffer_count ||
                graph->steps[i].condition) /* sums of parts, which come last */
                continue;
            const struct weight *weight = find_weight(model, (size_t)slot, (size_t)operand->offset);
            if (weight)
                touch(group, plan->marks, weight, clattn_dtype_size(model->weight_dtype), i);
        }
    qsort(plan->marks, group->piece_count, sizeof *plan->marks, by_step);
    return CLATTN_SUCCESS;
}

void trainer_forget_ready(const clattn_trainer *trainer)
{
    const struct cl_table *cl = &trainer->model->context->device.cl;
    const struct trainer_group *group = trainer->group;
    for (size_t i = 0; group && i < group->piece_count; i++) {
        if (group->pieces[i].ready)
            cl->clReleaseEvent(group->pieces[i].ready);
        group->pieces[i].ready = NULL;
    }
}
