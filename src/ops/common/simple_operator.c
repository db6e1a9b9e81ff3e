#include "ops/common/simple_operator.h"

#include "base/try.h"

clattn_status simple_enqueue(const clattn_plan *plan, const struct enqueue_call *call, const struct bound_array *arrays,
                             size_t count, double elements, void *kernel_args, const size_t groups[3])
{
    clattn_status status;
    const clattn_binding *bindings[SIMPLE_ARRAYS];
    if (!groups[0] || !groups[1] || !groups[2]) {
        TRY(bindings_absent(plan->context, arrays, count));
        return plan_enqueue_nothing(plan, call);
    }
    TRY(bindings_check(plan->context, arrays, count));
    for (size_t i = 0; i < count; i++)
        bindings[i] = arrays[i].present ? arrays[i].binding : NULL;
    status = plan_enqueue_kernel(plan, call, elements * WORK_OF_ELEMENT, bindings, kernel_args, groups);
fail:
    return status;
}
