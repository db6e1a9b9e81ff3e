/* The self-check of the matrix product: a plan's own kernels on a small one. */
#include <float.h>

#include "base/try.h"
#include "ops/matmul.h"
#include "plan/self_check.h"
#include "ref/ref.h"

#define ROWS 21
#define COLUMNS 70
#define DEPTH 67
#define WORKSPACE ((size_t)1 << 20) /* is enough for the small product's packed panels */

struct matmul_check {
    struct matmul_problem small, original;
    clattn_matmul_args args;
    struct check_array a, b, bias, c, workspace;
};

/* A matrix of the small product with the neighbourhood of the large one's: along rows, along columns, or of neither.  A single
 * row or column may have both, and then an operand has both here too: its elements overlap. */
static clattn_layout small_matrix(const clattn_layout *full, bool is_operand, size_t rows, size_t columns)
{
    int last = full->rank - 1;
    clattn_layout layout = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[2]){rows, columns});
    if (full->stride[last] == 1 && full->stride[last - 1] == 1 && is_operand)
        layout.stride[0] = 1;
    if (full->stride[last] == 1)
        return layout;
    layout.stride[0] = full->stride[last - 1] == 1 ? 1 : 2 * (int64_t)columns;
    layout.stride[1] = full->stride[last - 1] == 1 ? (int64_t)rows : 2;
    return layout;
}

static clattn_status make(struct matmul_check *check, clattn_context *context)
{
    clattn_status status;
    const clattn_matmul_desc *full = &check->original.desc;
    const size_t m = ROWS, n = COLUMNS, k = DEPTH; /* whatever the plan's are: one program serves all */
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    const char *reason;
    uint32_t random = 0x9e3779b9;
    desc.a = small_matrix(&full->a, true, m, k);
    desc.b = small_matrix(&full->b, true, k, n);
    desc.c = small_matrix(&full->c, false, m, n);
    if (check->original.has_bias)
        desc.bias = clattn_layout_contiguous(CLATTN_F32, 1, &n);
    TRY(matmul_problem_read(&desc, &check->small, &reason));
    struct {
        const clattn_layout *layout;
        struct check_array *array;
        clattn_binding *binding;
    } all[] = {{&desc.a, &check->a, &check->args.a},
               {&desc.b, &check->b, &check->args.b},
               {&desc.c, &check->c, &check->args.c},
               {&desc.bias, &check->bias, &check->args.bias}};
    for (size_t i = 0; i < (check->original.has_bias ? 4 : 3); i++) {
        TRY(check_array_room(context, all[i].layout, all[i].array));
        check_array_fill(all[i].array, CLATTN_F32, false, &random);
        TRY(check_array_upload(context, all[i].array, all[i].binding));
    }
fail:
    return status;
}

static clattn_status judge(const struct matmul_check *check, struct report *report, const char *kernel)
{
    const clattn_matmul_desc *desc = &check->small.desc;
    double exact[2 * COLUMNS];
    float plain[COLUMNS];
    ref_matmul_problem reference = {
        .batch = 1,
        .m = (int64_t)check->small.m,
        .n = (int64_t)check->small.n,
        .k = (int64_t)check->small.k,
        .a = {check->a.host, 0, 0, desc->a.stride[0], desc->a.stride[1]},
        .b = {check->b.host, 0, 0, desc->b.stride[0], desc->b.stride[1]},
        .bias = check->bias.host,
        .bias_col = 1,
    };
    for (int64_t i = 0; i < reference.m; i++) {
        ref_matmul_row(&reference, 0, i, exact, exact + COLUMNS);
        ref_matmul_naive_row(&reference, 0, i, plain);
        for (int64_t j = 0; j < reference.n; j++) {
            double value = ((const float *)check->c.host)[i * desc->c.stride[0] + j * desc->c.stride[1]];
            double slack = check_slack(exact[j], plain[j], exact[COLUMNS + j], FLT_EPSILON, FLT_EPSILON);
            if (!check_agrees(value, exact[j], slack))
                return check_disagrees(report, kernel, "c", (const int64_t[4]){0, 0, i, j}, value, exact[j]);
        }
    }
    return CLATTN_SUCCESS;
}

clattn_status matmul_self_check(clattn_plan *base)
{
    clattn_status status;
    struct matmul_plan *plan = (struct matmul_plan *)base;
    clattn_context *context = base->context;
    struct matmul_check check = {.original = plan->problem, .args = CLATTN_MATMUL_ARGS_INIT};
    size_t workspace = base->workspace;
    base->unchecked = plan->foreign;
    if (base->unchecked)
        return CLATTN_SUCCESS;
    report_hold();
    mtx_lock(&context->warm_lock);
    TRY(context_warm_objects(context));
    TRY(make(&check, context));
    TRY(check_workspace(context, WORKSPACE, &check.workspace, &check.args.workspace));
    plan->problem = check.small;
    base->workspace = WORKSPACE;
    status = clattn_matmul_enqueue(base, context->warm_queue, &check.args, 0, NULL, NULL);
    plan->problem = check.original;
    base->workspace = workspace;
    TRY(status);
    TRY(check_array_read(context, &check.c));
    status = judge(&check, &context->device.report, base->kernels[base->kernel_count - 1].name);
fail:
    mtx_unlock(&context->warm_lock);
    report_deliver();
    check_array_clear(context, &check.a);
    check_array_clear(context, &check.b);
    check_array_clear(context, &check.bias);
    check_array_clear(context, &check.c);
    check_array_clear(context, &check.workspace);
    return status;
}
