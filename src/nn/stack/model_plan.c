#include "nn/stack/model_plan.h"

#include "base/size.h"
#include "base/try.h"

clattn_status model_plan_read(const clattn_transformer *model, const struct model_plan_call *call, clattn_plan **result)
{
    clattn_status status;
    plan_results_clear(call->options, result);
    if (!model)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the transformer is NULL");
    TRY(context_check(model->context));
    struct report *report = &model->context->device.report;
    TRY(plan_options_read(model->context, call->options, call->options_copy));
    if (!result && !call->options_copy->background.job)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "plan is NULL");
    if (!call->has_stack)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "the model has no %s", call->name);
    status = struct_read(call->desc_copy, call->desc_bytes, call->desc_bytes, call->desc);
    if (status != CLATTN_SUCCESS)
        report_error(report, status, "desc is NULL, or its size is none that clattn_%s_desc ever had", call->name);
fail:
    return status;
}

clattn_status model_plan_finish(clattn_plan *plan, const struct graph *const *graphs, size_t count, const char *name)
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

static clattn_status check_kind(clattn_context *context, const clattn_binding *binding, const char *name)
{
    if (binding_is_none(binding) || binding->kind == CLATTN_BINDING_KIND_BUFFER)
        return CLATTN_SUCCESS;
    return report_error(&context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s: models take buffers only", name);
}

clattn_status model_bindings_check(clattn_context *context, const struct bound_array *arrays, size_t count,
                                   const clattn_binding *workspace)
{
    clattn_status status;
    for (size_t i = 0; i < count; i++)
        TRY(arrays[i].present ? check_kind(context, arrays[i].binding, arrays[i].name)
                              : binding_absent_field(context, arrays[i].binding, arrays[i].name, "array"));
    TRY(check_kind(context, workspace, "workspace"));
    status = bindings_check(context, arrays, count);
fail:
    return status;
}
