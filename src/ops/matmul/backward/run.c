/* The gradients of a matrix product: enqueueing. */
#include "base/size.h"
#include "base/try.h"
#include "ops/matmul/backward/backward.h"
#include "ops/norm/norm.h"

/* An enqueue: what every step of it needs. */
struct run {
    const struct matmul_backward_plan *plan;
    const struct matmul_backward_problem *problem;
    const clattn_matmul_args *args; /* with lengths filled in */
    bool wanted[PARTS];             /* the plan has the part, and it has something to do */
    size_t steps, done;
    struct chain chain;
};

/* ---- the arguments ---- */

/* Which arrays the gradients are made of, and which parts have elements to write. */
struct needs {
    bool a, b, bias, operand, c_gradient;
    bool a_gradient, b_gradient, bias_gradient, operand_gradient;
};

static struct needs needs_of(const struct matmul_backward_problem *problem, size_t batch, size_t m)
{
    const struct matmul_problem *forward = &problem->forward;
    const clattn_matmul_desc *desc = &forward->desc;
    const bool rows = batch && m, sums = rows && forward->n;
    struct needs needs = {.a_gradient = !layout_is_none(&desc->gradients.a) && rows && forward->k,
                          .b_gradient = !layout_is_none(&desc->gradients.b) && forward->k && forward->n &&
                                        (problem->b_shared || batch),
                          .bias_gradient = !layout_is_none(&desc->gradients.bias) && forward->n,
                          .operand_gradient = !layout_is_none(&desc->gradients.operand) && m && forward->n &&
                                              (problem->operand_shared || batch)};
    needs.a = sums && forward->k && (problem->reads_sums || needs.b_gradient);
    needs.b = sums && forward->k && (problem->reads_sums || needs.a_gradient);
    needs.bias = sums && forward->has_bias && problem->reads_sums;
    needs.operand = sums && problem->multiplies && problem->writes_sums;
    needs.c_gradient = sums;
    return needs;
}

static unsigned access_of(bool needed, unsigned access)
{
    return needed ? access : access | BINDING_OPTIONAL;
}

static clattn_status check_arrays(const struct run *run, const struct needs *needs)
{
    const clattn_matmul_args *args = run->args;
    const struct matmul_problem *forward = &run->problem->forward;
    const clattn_matmul_desc *desc = &forward->desc;
    const size_t k = forward->k, n = forward->n, batch = args->batch;
    const size_t a[3] = {batch, args->m, k}, c[3] = {batch, args->m, n};
    const size_t b[3] = {run->problem->b_shared ? 1 : batch, k, n};
    const size_t operand[3] = {run->problem->operand_shared ? 1 : batch, args->m, n};
    const bool adds = run->plan->part[PART_B_MORE] && !run->plan->part[PART_B_STORED]; /* to what is in gradients.b */
    const struct bound_array arrays[] = {
        {&args->a, &desc->a, a + 3 - desc->a.rank, access_of(needs->a, BINDING_READ), "a", true},
        {&args->b, &desc->b, b + 3 - desc->b.rank, access_of(needs->b, BINDING_READ), "b", true},
        {&args->bias, &desc->bias, &n, access_of(needs->bias, BINDING_READ), "bias", forward->has_bias},
        {&args->operand, &desc->operand, operand + (forward->has_operand ? 3 - desc->operand.rank : 0),
         access_of(needs->operand, BINDING_READ), "operand", forward->has_operand},
        {&args->gradients.c, &desc->gradients.c, c + 3 - desc->gradients.c.rank,
         access_of(needs->c_gradient, BINDING_READ), "gradients.c", true},
        {&args->gradients.a, &desc->gradients.a, a, access_of(needs->a_gradient, BINDING_WRITE), "gradients.a",
         !layout_is_none(&desc->gradients.a)},
        {&args->gradients.b, &desc->gradients.b, b,
         access_of(needs->b_gradient, adds ? BINDING_READ_WRITE : BINDING_WRITE), "gradients.b",
         !layout_is_none(&desc->gradients.b)},
        {&args->gradients.bias, &desc->gradients.bias, &n, access_of(needs->bias_gradient, BINDING_WRITE),
         "gradients.bias", !layout_is_none(&desc->gradients.bias)},
        {&args->gradients.operand, &desc->gradients.operand, operand, access_of(needs->operand_gradient, BINDING_WRITE),
         "gradients.operand", !layout_is_none(&desc->gradients.operand)},
        {&args->c, &desc->c, c, BINDING_READ, "c", false},
        {&args->b_scale, &desc->b_scale, &n, BINDING_READ, "b_scale", false},
    };
    return bindings_check(run->plan->base.context, arrays, COUNT_OF(arrays));
}

/* ---- the steps ---- */

static clattn_binding in_workspace(const struct run *run, size_t at, size_t element)
{
    clattn_binding binding = run->chain.workspace;
    binding.offset = (binding.offset + (int64_t)at) / (int64_t)element;
    return binding;
}

/* The gradient of the sums from a row of an item on. */
static clattn_binding sums_from(const struct run *run, size_t item, size_t row)
{
    const array4 strides = matmul_strides(&run->problem->sums);
    clattn_binding sums = run->problem->writes_sums ? in_workspace(run, 0, sizeof(float)) : run->args->gradients.c;
    sums.offset += (int64_t)item * strides.batch + (int64_t)row * strides.row;
    return sums;
}

/* Enqueues a part, as the next step; `problem` is its own or one of fewer rows that its kernels also fit. */
static clattn_status enqueue_part(struct run *run, enum matmul_part which, const void *problem, const void *args)
{
    const clattn_plan *part = run->plan->part[which];
    const struct control_range range = control_step(run->chain.control, run->done, run->steps);
    struct step step;
    chain_step(&run->chain, ++run->done == run->steps, &step);
    struct enqueue_call call = chain_call(&run->chain, &step);
    call.problem = problem;
    call.workspace = part->workspace;
    const clattn_status status = part->type->enqueue(part, &call, args);
    if (status == CLATTN_SUCCESS)
        chain_stepped(&run->chain, &step);
    else
        chain_failed(&run->chain, &step);
    control_restore(run->chain.control, range);
    return status;
}

/* A product's arguments; arrays without elements may be unbound, and then c stands for them. */
static clattn_matmul_args product_args(const struct run *run, enum matmul_part part, clattn_binding a, clattn_binding b,
                                       clattn_binding c)
{
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    args.a = binding_is_none(&a) ? c : a;
    args.b = binding_is_none(&b) ? c : b;
    args.c = c;
    args.explicit_lengths = 1;
    if (run->plan->part[part]->workspace)
        args.workspace = in_workspace(run, run->plan->parts_at, 1);
    return args;
}

static clattn_status make_sums(struct run *run)
{
    clattn_matmul_args args =
        product_args(run, PART_SUMS, run->args->a, run->args->b, in_workspace(run, 0, sizeof(float)));
    args.bias = run->args->bias;
    args.batch = run->args->batch;
    args.m = run->args->m;
    return enqueue_part(run, PART_SUMS, operator_problem(run->plan->part[PART_SUMS]), &args);
}

static clattn_status make_elements(struct run *run)
{
    const struct matmul_elements_args args = {.sums = in_workspace(run, 0, sizeof(float)),
                                              .c_gradient = run->args->gradients.c,
                                              .operand = run->args->operand,
                                              .operand_gradient = run->args->gradients.operand,
                                              .batch = run->args->batch,
                                              .m = run->args->m};
    return enqueue_part(run, PART_ELEMENTS, operator_problem(run->plan->part[PART_ELEMENTS]), &args);
}

static clattn_status make_a(struct run *run)
{
    clattn_matmul_args args = product_args(run, PART_A, sums_from(run, 0, 0), run->args->b, run->args->gradients.a);
    args.batch = run->args->batch;
    args.m = run->args->m;
    return enqueue_part(run, PART_A, operator_problem(run->plan->part[PART_A]), &args);
}

/* Adds the product of `rows` rows of an item to the gradient of b; the first one is stored. */
static clattn_status add_b(struct run *run, size_t item, size_t row, size_t rows, bool first)
{
    const enum matmul_part part = first ? PART_B_FIRST : PART_B_MORE;
    struct matmul_problem problem = *(const struct matmul_problem *)operator_problem(run->plan->part[part]);
    const array4 strides = run->problem->forward.a;
    clattn_binding a = run->args->a;
    const clattn_binding c = run->plan->part[PART_B_STORED] ? in_workspace(run, run->plan->b_gradient_at, sizeof(float))
                                                            : run->args->gradients.b;
    a.offset += (int64_t)item * strides.batch + (int64_t)row * strides.row;
    clattn_matmul_args args = product_args(run, part, a, sums_from(run, item, row), c);
    args.batch = run->problem->b_shared ? 1 : run->args->batch;
    args.m = problem.m;
    if (!first)
        args.operand = c;
    problem.k = rows; /* the plan's own are the most */
    return enqueue_part(run, part, &problem, &args);
}

static clattn_status make_b(struct run *run)
{
    clattn_status status = CLATTN_SUCCESS;
    size_t items, item = 0, row = 0;
    const size_t rows = matmul_backward_rows(run->problem, run->args->batch, run->args->m, &items);
    do {
        const size_t some = size_min(rows - row, run->plan->most_rows);
        TRY(add_b(run, item, row, some, item == 0 && row == 0));
        row += some;
        if (row == rows) {
            row = 0;
            item++;
        }
    } while (item < items);
    if (run->wanted[PART_B_STORED]) {
        clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
        args.x = in_workspace(run, run->plan->b_gradient_at, sizeof(float));
        args.y = run->args->gradients.b;
        args.explicit_batch = 1;
        args.batch = run->problem->b_shared ? 1 : run->args->batch;
        status = enqueue_part(run, PART_B_STORED, operator_problem(run->plan->part[PART_B_STORED]), &args);
    }
fail:
    return status;
}

static clattn_status make_bias(struct run *run)
{
    clattn_status status;
    clattn_norm_desc desc;
    struct norm_backward_problem problem;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    matmul_backward_bias_desc(run->problem, run->args->batch, run->args->m, &desc);
    TRY(norm_backward_problem_read(&desc, &problem, &(const char *){NULL}));
    args.x = args.gradients.y = sums_from(run, 0, 0);
    args.gradients.bias = run->args->gradients.bias;
    if (run->plan->part[PART_BIAS]->workspace)
        args.workspace = in_workspace(run, run->plan->parts_at, 1);
    status = enqueue_part(run, PART_BIAS, &problem, &args);
fail:
    return status;
}

static size_t b_products(const struct run *run)
{
    size_t items;
    const size_t rows = matmul_backward_rows(run->problem, run->args->batch, run->args->m, &items);
    return rows ? items * divide_up(rows, run->plan->most_rows) : 1;
}

static clattn_status enqueue_steps(struct run *run)
{
    clattn_status status = CLATTN_SUCCESS;
    if (run->wanted[PART_SUMS])
        TRY(make_sums(run));
    if (run->wanted[PART_ELEMENTS])
        TRY(make_elements(run));
    if (run->wanted[PART_A])
        TRY(make_a(run));
    if (run->wanted[PART_B_FIRST])
        TRY(make_b(run));
    if (run->wanted[PART_BIAS])
        TRY(make_bias(run));
fail:
    return status;
}

static void plan_steps(struct run *run, const struct needs *needs)
{
    clattn_plan *const *part = run->plan->part;
    const bool sums = needs->c_gradient;
    run->wanted[PART_SUMS] = part[PART_SUMS] && sums;
    run->wanted[PART_ELEMENTS] = part[PART_ELEMENTS] && (sums || needs->operand_gradient);
    run->wanted[PART_A] = needs->a_gradient;
    run->wanted[PART_B_FIRST] = needs->b_gradient;
    run->wanted[PART_B_STORED] = needs->b_gradient && part[PART_B_STORED];
    run->wanted[PART_BIAS] = needs->bias_gradient;
    for (int i = 0; i < PARTS; i++)
        run->steps += run->wanted[i] ? i == PART_B_FIRST ? b_products(run) : 1 : 0;
}

static clattn_status read_args(const clattn_plan *plan, const struct matmul_backward_problem *problem,
                               const clattn_matmul_args *given, clattn_matmul_args *args)
{
    clattn_status status;
    struct report *report = &plan->context->device.report;
    TRY(args_read(report, "clattn_matmul_args", args, sizeof *args, offsetof(clattn_matmul_args, operand), given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, 0));
    if (args->prepack != CLATTN_PREPACK_NONE)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "prepack is for CLATTN_DIRECTION_FORWARD");
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, problem->forward.batch));
    status = args_length(report, "m", args->explicit_lengths, &args->m, problem->forward.m);
fail:
    return status;
}

clattn_status matmul_backward_enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct matmul_backward_plan *plan = (const struct matmul_backward_plan *)handle;
    clattn_matmul_args args;
    struct run run = {.plan = plan, .problem = call->problem, .args = &args};
    TRY(read_args(handle, run.problem, given, &args));
    const struct needs needs = needs_of(run.problem, args.batch, args.m);
    TRY(check_arrays(&run, &needs));
    plan_steps(&run, &needs);
    if (!run.steps)
        return plan_enqueue_nothing(handle, call);
    status = chain_begin(&run.chain, handle->context, call, &args.workspace);
    if (status == CLATTN_SUCCESS)
        status = enqueue_steps(&run);
    return chain_end(&run.chain, status);
fail:
    return status;
}
