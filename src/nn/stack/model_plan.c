#include "nn/stack/model_plan.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"

clattn_status whole_create_check(const clattn_transformer *model, clattn_plan **result)
{
    if (result)
        *result = NULL;
    if (!model)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the transformer is NULL");
    clattn_status status = context_check(model->context);
    if (status == CLATTN_SUCCESS && !result)
        status = report_error(&model->context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "plan is NULL");
    return status;
}

clattn_status whole_plan_made(clattn_plan *plan, const struct graph *const *graphs, size_t count, const char *name)
{
    plan->solver = name;
    for (size_t i = 0; i < count; i++) {
        plan->workspace = size_max(plan->workspace, graphs[i]->arena);
        plan->launches = size_max(plan->launches, graphs[i]->launches);
        graph_explain(graphs[i], &plan->explain);
    }
    plan_explain_workspace(plan);
    if (plan->explain.failed)
        return report_error(&plan->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    return CLATTN_SUCCESS;
}

clattn_status whole_check_arrays(clattn_context *context, const struct whole_array *arrays, size_t count)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &context->device.report;
    for (size_t i = 0; i < count; i++) {
        const struct whole_array *array = &arrays[i];
        if (!array->known)
            TRY(binding_absent_field(context, array->binding, array->name, "array"));
        if (binding_is_none(array->binding)) {
            if (array->known && array->required)
                return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: nothing is bound", array->name);
            continue;
        }
        if (array->binding->kind != CLATTN_BINDING_KIND_BUFFER)
            return report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s: whole models take buffers only", array->name);
        if (array->layout)
            TRY(binding_check(context, array->binding, array->layout, array->extent, array->access, array->name));
    }
fail:
    return status;
}

clattn_status whole_integers(clattn_context *context, size_t count, int32_t **integers)
{
    *integers = calloc(size_max(count, 1), sizeof **integers);
    return *integers ? CLATTN_SUCCESS
                     : report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for lengths");
}

void whole_integers_free(int32_t **integers)
{
    free(*integers);
    *integers = NULL;
}
