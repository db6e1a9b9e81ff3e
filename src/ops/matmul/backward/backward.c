/* The gradients of a matrix product: planning.  Each is a product again, or a sum of columns, of the gradient of the sums, which
 * one kernel makes in between (elements.c). */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/matmul/backward/backward.h"

/* A product for the gradient of b adds up at most so many rows in one chain. */
#define MOST_ROWS 4096

#define ALIGNMENT 128 /* bytes, what a workspace is aligned to */

/* ---- what the parts are ---- */

static clattn_layout transposed(clattn_layout layout)
{
    const int last = layout.rank - 1;
    const size_t extent = layout.extent[last];
    const int64_t stride = layout.stride[last];
    layout.extent[last] = layout.extent[last - 1];
    layout.stride[last] = layout.stride[last - 1];
    layout.extent[last - 1] = extent;
    layout.stride[last - 1] = stride;
    return layout;
}

size_t matmul_backward_rows(const struct matmul_backward_problem *problem, size_t batch, size_t m, size_t *items)
{
    const array4 a = problem->forward.a, sums = matmul_strides(&problem->sums);
    const bool one_axis = batch <= 1 || !m || (a.batch == (int64_t)m * a.row && sums.batch == (int64_t)m * sums.row);
    *items = !problem->b_shared || (one_axis && batch * m <= LENGTH_LIMIT) ? 1 : batch;
    return problem->b_shared && *items == 1 ? batch * m : m;
}

/* Whether the gradient of b may take more than one product; it is then added up in float32. */
static bool adds_products(const struct matmul_backward_problem *problem)
{
    return problem->forward.m > MOST_ROWS || (problem->b_shared && problem->forward.batch > 1);
}

static bool stores_b(const struct matmul_backward_problem *problem)
{
    return adds_products(problem) && matmul_backward_desc(problem)->gradients.b.dtype != CLATTN_DTYPE_F32;
}

static size_t most_rows(const struct matmul_backward_problem *problem)
{
    size_t items;
    const struct matmul_problem *forward = &problem->forward;
    return size_min(matmul_backward_rows(problem, forward->batch, forward->m, &items), MOST_ROWS);
}

static void describe_sums(const struct matmul_backward_problem *problem, clattn_matmul_desc *desc)
{
    const clattn_matmul_desc *of = matmul_backward_desc(problem);
    desc->a = of->a;
    desc->b = of->b;
    desc->bias = of->bias;
    desc->c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, problem->sums.extent);
}

static void describe_a(const struct matmul_backward_problem *problem, clattn_matmul_desc *desc)
{
    desc->a = problem->sums;
    desc->b = transposed(matmul_backward_desc(problem)->b);
    desc->c = matmul_backward_desc(problem)->gradients.a;
}

/* The product of so many rows, of one item if b is shared and of all items otherwise. */
static void describe_b(const struct matmul_backward_problem *problem, bool more, clattn_matmul_desc *desc)
{
    const array4 a = problem->forward.a, sums = matmul_strides(&problem->sums);
    const clattn_matmul_desc *of = matmul_backward_desc(problem);
    const size_t items = of->gradients.b.extent[0], rows = most_rows(problem);
    desc->a = (clattn_layout){.dtype = of->a.dtype,
                              .rank = 3,
                              .extent = {items, problem->forward.k, rows},
                              .stride = {a.batch, a.col, a.row}};
    desc->b = (clattn_layout){.dtype = problem->sums.dtype,
                              .rank = 3,
                              .extent = {items, rows, problem->forward.n},
                              .stride = {sums.batch, sums.row, sums.col}};
    desc->c = of->gradients.b;
    if (stores_b(problem))
        desc->c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, of->gradients.b.extent);
    if (more)
        desc->operand = desc->c;
}

void matmul_backward_bias_desc(const struct matmul_backward_problem *problem, size_t batch, size_t m,
                               clattn_norm_desc *desc)
{
    clattn_norm_desc_init(desc);
    desc->direction = CLATTN_DIRECTION_BACKWARD;
    desc->x = problem->sums; /* which is not read */
    desc->x.extent[0] = batch;
    desc->x.extent[1] = m;
    desc->gradients.y = desc->x;
    desc->gradients.bias = matmul_backward_desc(problem)->gradients.bias;
}

/* Describes a part; false: it is not needed. */
static bool describe(const struct matmul_backward_problem *problem, enum matmul_part part, union matmul_part_desc *desc)
{
    const clattn_matmul_desc *of = matmul_backward_desc(problem);
    const bool has_b = !layout_is_none(&of->gradients.b);
    clattn_matmul_desc_init(&desc->matmul);
    switch (part) {
    case PART_SUMS: describe_sums(problem, &desc->matmul); return problem->reads_sums;
    case PART_ELEMENTS:
        desc->matmul = *of;
        desc->matmul.c = (clattn_layout){0};
        return problem->writes_sums || !layout_is_none(&of->gradients.operand);
    case PART_A: describe_a(problem, &desc->matmul); return !layout_is_none(&of->gradients.a);
    case PART_B_FIRST: describe_b(problem, false, &desc->matmul); return has_b;
    case PART_B_MORE: describe_b(problem, true, &desc->matmul); return has_b && adds_products(problem);
    case PART_B_STORED:
        clattn_activation_desc_init(&desc->activation);
        desc->activation.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, of->gradients.b.extent);
        desc->activation.y = of->gradients.b;
        return has_b && stores_b(problem);
    default:
        matmul_backward_bias_desc(problem, problem->forward.batch, problem->forward.m, &desc->norm);
        return !layout_is_none(&of->gradients.bias);
    }
}

static clattn_status supports_part(clattn_context *context, enum matmul_part part, const union matmul_part_desc *desc,
                                   const char **reason)
{
    switch (part) {
    case PART_ELEMENTS: return operator_supports(&matmul_elements_operator, context, &desc->matmul, reason);
    case PART_B_STORED: return clattn_activation_supports(context, &desc->activation, reason);
    case PART_BIAS: return clattn_norm_supports(context, &desc->norm, reason);
    default: return clattn_matmul_supports(context, &desc->matmul, reason);
    }
}

static clattn_status make_part(clattn_context *context, enum matmul_part part, const union matmul_part_desc *desc,
                               const clattn_plan_options *options, clattn_plan **plan)
{
    switch (part) {
    case PART_ELEMENTS: return operator_plan_create(&matmul_elements_operator, context, &desc->matmul, NULL, plan);
    case PART_B_STORED: return clattn_activation_plan_create(context, &desc->activation, NULL, plan);
    case PART_BIAS: return clattn_norm_plan_create(context, &desc->norm, NULL, plan);
    default: return clattn_matmul_plan_create(context, &desc->matmul, options, plan);
    }
}

/* ---- the plan ---- */

static clattn_status supports(clattn_context *context, const void *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < PARTS; i++) {
        union matmul_part_desc desc;
        if (describe(problem, i, &desc))
            TRY(supports_part(context, i, &desc, reason));
    }
fail:
    return status;
}

static void clear(clattn_plan *handle)
{
    for (int i = 0; i < PARTS; i++)
        clattn_plan_release(&((struct matmul_backward_plan *)handle)->part[i]);
}

/* Lays out the workspace: the sums, those of the gradient of b, and what the parts need, which they need one after another. */
static bool lay_out(struct matmul_backward_plan *plan)
{
    const struct matmul_backward_problem *problem = &plan->problem;
    const struct matmul_problem *forward = &problem->forward;
    size_t sums = 0, b_gradient = 0, parts = 0;
    bool fits = true;
    if (problem->reads_sums || problem->writes_sums)
        fits = size_mul(forward->batch, forward->m, &sums) && size_mul(sums, forward->n, &sums) &&
               size_mul(sums, sizeof(float), &sums);
    if (plan->part[PART_B_STORED])
        b_gradient = layout_elements(&forward->desc.gradients.b) * sizeof(float);
    for (int i = 0; i < PARTS; i++)
        parts = plan->part[i] ? size_max(parts, plan->part[i]->workspace) : parts;
    fits = fits && sums <= SIZE_MAX / 4 && b_gradient <= SIZE_MAX / 4 && parts <= SIZE_MAX / 4;
    plan->b_gradient_at = round_up(sums, ALIGNMENT);
    plan->parts_at = plan->b_gradient_at + round_up(b_gradient, ALIGNMENT);
    plan->base.workspace = plan->parts_at + parts;
    return fits;
}

/* The solvers of the products, each once, or if there are none that of the first part. */
static void name_solvers(struct matmul_backward_plan *plan)
{
    char *name = plan->solver_name;
    const enum matmul_part products[] = {PART_SUMS, PART_A, PART_B_FIRST};
    for (size_t i = 0; i < COUNT_OF(products); i++) {
        const clattn_plan *part = plan->part[products[i]];
        bool named = !part;
        for (size_t j = 0; j < i; j++)
            named = named || (plan->part[products[j]] && !strcmp(plan->part[products[j]]->solver, part->solver));
        const size_t used = strlen(name);
        if (!named)
            snprintf(name + used, sizeof plan->solver_name - used, "%s%s", used ? "+" : "", part->solver);
    }
    plan->base.solver = name;
    for (int i = 0; i < PARTS && !name[0]; i++)
        if (plan->part[i])
            snprintf(name, sizeof plan->solver_name, "%s", plan->part[i]->solver);
}

static const char *const part_names[PARTS] = {
    "the sums",          "their gradient, the operand's", "the gradient of a", "the gradient of b", "that, added",
    "that, of its type", "the gradient of bias",
};

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status = CLATTN_SUCCESS;
    struct matmul_backward_plan *plan = (struct matmul_backward_plan *)handle;
    const struct matmul_problem *forward = &plan->problem.forward;
    struct report *report = &handle->context->device.report;
    size_t items;
    const size_t rows = matmul_backward_rows(&plan->problem, forward->batch, forward->m, &items);
    const size_t products = size_max(1, items * divide_up(rows, MOST_ROWS));
    handle->clear = clear;
    plan->most_rows = most_rows(&plan->problem);
    for (int i = 0; i < PARTS; i++) {
        union matmul_part_desc desc;
        if (!describe(&plan->problem, i, &desc))
            continue;
        TRY(make_part(handle->context, i, &desc, options, &plan->part[i]));
        handle->launches += plan->part[i]->launches * (i == PART_B_MORE ? products - 1 : 1);
        strbuf_printf(&handle->explain, "%s: %s", part_names[i], clattn_plan_explain(plan->part[i]));
    }
    if (!lay_out(plan))
        return report_error(report, CLATTN_ERROR_OVERFLOW, "matmul backward: the workspace overflows");
    name_solvers(plan);
    plan_explain_workspace(handle);
    if (handle->explain.failed)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(matmul, a),
    LAYOUT_PLACE(matmul, b),
    LAYOUT_PLACE(matmul, bias),
    LAYOUT_PLACE(matmul, operand),
    LAYOUT_PLACE(matmul, gradients.a),
    LAYOUT_PLACE(matmul, gradients.b),
    LAYOUT_PLACE(matmul, gradients.c),
    LAYOUT_PLACE(matmul, gradients.bias),
    LAYOUT_PLACE(matmul, gradients.operand),
    {NULL, 0},
};

const struct operator_type matmul_backward_operator = {
    .name = "matmul backward",
    .bytes = {sizeof(struct matmul_backward_plan), offsetof(struct matmul_backward_plan, problem),
              sizeof(struct matmul_backward_problem), sizeof(clattn_matmul_desc),
              offsetof(clattn_matmul_args, control)},
    .read = matmul_backward_problem_read,
    .enqueue = matmul_backward_enqueue,
    .layouts = layouts,
    .supports = supports,
    .make = make,
};
