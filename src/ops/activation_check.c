/* The self-check of activations: a plan's own kernel on some numbers, tails included. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/activation.h"
#include "ops/arrays.h"
#include "plan/self_check.h"
#include "ref/attention_reference.h"
#include "ref/ref.h"

#define ROWS 3
#define COLUMNS 67

struct activation_check {
    struct activation_problem small, original;
    clattn_activation_args args;
    struct check_array x, y;
};

/* Numbers of every binary magnitude from 2^-4 to 2^7, of which each of the four types holds a part exactly.
 */
static void spread(struct check_array *array, int32_t dtype)
{
    for (size_t i = 0; i < array->elements; i++) {
        uint16_t *half = (uint16_t *)array->host + i;
        if (dtype == CLATTN_F32)
            ((float *)array->host)[i] *= (float)(1 << i % 8);
        else
            *half = (uint16_t)(*half + ((unsigned)(i % 8) << (dtype == CLATTN_F16 ? 10 : 7)));
    }
}

/* Every -D of the kernel is the same: types, function, columns side by side or not. */
static clattn_status make(struct activation_check *check, clattn_context *context)
{
    clattn_status status;
    const clattn_activation_desc *full = &check->original.desc;
    clattn_activation_desc desc = *full;
    const size_t extent[2] = {ROWS, COLUMNS};
    const char *reason;
    uint32_t random = 0x9e3779b9;
    desc.explicit_alpha = 1;
    desc.alpha = copysignf(1.25f, full->alpha); /* the plan's may leave nothing to see */
    desc.x = clattn_layout_contiguous((clattn_dtype)full->x.dtype, 2, extent);
    desc.y = clattn_layout_contiguous((clattn_dtype)full->y.dtype, 2, extent);
    if (!check->original.unit_columns) {
        desc.x.stride[0] *= 2;
        desc.x.stride[1] *= 2;
    }
    TRY(activation_problem_read(&desc, &check->small, &reason));
    TRY(check_array_room(context, &desc.x, &check->x));
    TRY(check_array_room(context, &desc.y, &check->y));
    check_array_fill(&check->x, desc.x.dtype, false, &random);
    spread(&check->x, desc.x.dtype);
    TRY(check_array_upload(context, &check->x, &check->args.x));
    TRY(check_array_upload(context, &check->y, &check->args.y));
fail:
    return status;
}

static clattn_status judge(const struct activation_check *check, struct report *report, const char *kernel)
{
    static const ref_activation functions[] = {
        [CLATTN_ACTIVATION_RELU] = REF_RELU,
        [CLATTN_ACTIVATION_GELU] = REF_GELU,
        [CLATTN_ACTIVATION_GELU_TANH] = REF_GELU_TANH,
        [CLATTN_ACTIVATION_SWISH] = REF_SWISH,
    };
    const clattn_activation_desc *desc = &check->small.desc;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            double x = reference_element(check->x.host, desc->x.dtype,
                                         row * desc->x.stride[0] + c * desc->x.stride[1]);
            double value = reference_element(check->y.host, desc->y.dtype, row * COLUMNS + c);
            double exact = ref_activate(functions[desc->function], (double)desc->alpha, x);
            if (fabs(exact) >= 32768 && desc->y.dtype == CLATTN_F16)
                continue; /* may be rounded to Inf */
            if (!check_agrees(
                    value, exact,
                    check_slack(exact, exact, fabs(exact), FLT_EPSILON, storage_epsilon(desc->y.dtype))))
                return check_disagrees(report, kernel, "y", (const int64_t[4]){0, 0, row, c}, value, exact);
        }
    return CLATTN_SUCCESS;
}

clattn_status activation_self_check(clattn_plan *base)
{
    clattn_status status;
    struct activation_plan *plan = (struct activation_plan *)base;
    clattn_context *context = base->context;
    struct activation_check check = {.original = plan->problem, .args = CLATTN_ACTIVATION_ARGS_INIT};
    base->unchecked = check.original.empty;
    if (base->unchecked)
        return CLATTN_SUCCESS;
    report_hold();
    mtx_lock(&context->warm_lock);
    TRY(context_warm_objects(context));
    TRY(make(&check, context));
    plan->problem = check.small;
    status = clattn_activation_enqueue(base, context->warm_queue, &check.args, 0, NULL, NULL);
    plan->problem = check.original;
    TRY(status);
    TRY(check_array_read(context, &check.y));
    status = judge(&check, &context->device.report, base->kernels[0].name);
fail:
    mtx_unlock(&context->warm_lock);
    report_deliver();
    check_array_clear(context, &check.x);
    check_array_clear(context, &check.y);
    return status;
}
