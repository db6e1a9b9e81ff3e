/* What the kernels of attention's backward direction are built with. */
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

void backward_define(const struct attention_backward_plan *plan, struct strbuf *options)
{
    const struct attention_problem *problem = &plan->problem;
    static const struct {
        enum attention_gradient gradient;
        const char *flag, *type;
    } gradients[] = {
        {GRADIENT_OUTPUT, NULL, "DO_TYPE"},
        {GRADIENT_LSE, "GRADIENT_LSE", NULL},
        {GRADIENT_QUERY, "GRADIENT_QUERY", "DQ_TYPE"},
        {GRADIENT_KEY, "GRADIENT_KEY", "DK_TYPE"},
        {GRADIENT_VALUE, "GRADIENT_VALUE", "DV_TYPE"},
        {GRADIENT_VECTOR, "GRADIENT_VECTOR", NULL},
    };
    attention_defines(problem, &plan->base.context->device.caps, options);
    if (problem->desc.outputs.partial)
        define_int(options, "PARTIAL", 1);
    for (size_t i = 0; i < COUNT_OF(gradients); i++) {
        if (!problem->gradient[gradients[i].gradient])
            continue;
        if (gradients[i].flag)
            define_int(options, gradients[i].flag, 1);
        if (gradients[i].type)
            define_token(options, gradients[i].type,
                         storage_token(attention_gradient_layout(&problem->desc, gradients[i].gradient)->dtype));
    }
}

clattn_status backward_add_kernel(struct attention_backward_plan *plan, int which, const char *file, const char *name,
                                  struct strbuf *options, const size_t local[3])
{
    static const cl_uint pointers[BACKWARD_KERNELS] = {
        [BACKWARD_ROWS] = BACKWARD_ROWS_POINTERS,
        [BACKWARD_KEYS] = BACKWARD_KEYS_POINTERS,
        [BACKWARD_PAIRS] = BACKWARD_PAIRS_POINTERS,
        [BACKWARD_SUM] = BACKWARD_SUM_POINTERS,
    };
    plan->kernel[which] = plan->base.kernel_count;
    return plan_add_kernel(&plan->base, file, options, name, pointers[which], sizeof(attention_args), local, NULL);
}

clattn_status backward_add_walks(struct attention_backward_plan *plan, const char *file, const char *rows,
                                 const char *keys, struct strbuf *options, const size_t local[3])
{
    clattn_status status;
    struct strbuf copy = {0};
    if (backward_has_keys(&plan->problem) && !options->failed)
        strbuf_append(&copy, options->text, options->length);
    copy.failed |= options->failed;
    TRY(backward_add_kernel(plan, BACKWARD_ROWS, file, rows, options, local));
    if (backward_has_keys(&plan->problem))
        TRY(backward_add_kernel(plan, BACKWARD_KEYS, file, keys, &copy, local));
fail:
    strbuf_clear(&copy);
    return status;
}
