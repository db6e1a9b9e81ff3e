/* The elements between a matrix product and its gradients: planning and launching of cl/matmul/backward.cl. */
#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "ops/common/dimensions.h"
#include "ops/common/simple_operator.h"
#include "ops/matmul/backward/backward.h"
#include "program/defines.h"

_Static_assert(sizeof(matmul_backward_args) == 24 + 4 * 40 + 8 + 8 * 4, "matmul_backward_args has padding");

#define POINTERS 4      /* of the kernel */
#define CPU_CHUNK 16384 /* so many columns are worth a work-group's launch; */
#define GPU_CHUNK 4     /* on a GPU neighbouring items own neighbouring vectors */

/* ---- the walk ---- */

enum { SUMS, C_GRADIENT, OPERAND, OPERAND_GRADIENT }; /* arrays of a dimension */

void matmul_elements_walk(const struct matmul_backward_problem *problem, size_t batch, size_t m, size_t chunk,
                          matmul_backward_args *a)
{
    const struct matmul_problem *forward = &problem->forward;
    const clattn_layout *gradient = &forward->desc.gradients.operand;
    const array4 none = {0};
    /* The sums lie in the workspace as the whole description's, (batch, m, n). */
    const array4 array[] = {{0, (int64_t)(forward->m * forward->n), 0, (int64_t)forward->n, 1},
                            forward->c,
                            problem->multiplies && problem->writes_sums ? forward->operand : none,
                            layout_is_none(gradient) ? none : matmul_strides(gradient)};
    array4 *const walked[] = {&a->sums, &a->c_gradient, &a->operand, &a->operand_gradient};
    const bool summed = problem->operand_shared && !layout_is_none(gradient);
    const size_t extent[3] = {summed ? 1 : batch, m, forward->n};
    struct dimension dimension[3] = {{0}};
    int count = 0;
    *a = (matmul_backward_args){.extent = {1, 1},
                                .columns = 1,
                                .chunk = (int)chunk,
                                .summed = summed ? (int)batch : 1,
                                .alpha = forward->desc.alpha};
    if (!extent[0] || !m || !forward->n)
        return;
    for (int i = 0; i < 3; i++) {
        struct dimension next = {.extent = extent[i]};
        for (size_t n = 0; n < COUNT_OF(array); n++)
            next.stride[n] = i == 0 ? array[n].batch : i == 1 ? array[n].row : array[n].col;
        if (extent[i] != 1)
            count = dimensions_insert(dimension, count, next);
    }
    count = dimensions_join(dimension, count);
    for (size_t n = 0; n < COUNT_OF(array); n++) {
        walked[n]->batch = array[n].batch;
        walked[n]->head = count > 2 ? dimension[count - 3].stride[n] : 0;
        walked[n]->row = count > 1 ? dimension[count - 2].stride[n] : 0;
        walked[n]->col = count > 0 ? dimension[count - 1].stride[n] : 1;
    }
    a->extent[0] = count > 2 ? (int)dimension[count - 3].extent : 1;
    a->extent[1] = count > 1 ? (int)dimension[count - 2].extent : 1;
    a->columns = count > 0 ? (int)dimension[count - 1].extent : 1;
    a->chunks = (a->columns - 1) / a->chunk + 1;
    a->pieces = (args_long)a->extent[0] * a->extent[1] * a->chunks;
}

/* ---- the plan ---- */

static bool has_operand_gradient(const struct matmul_backward_problem *problem)
{
    return !layout_is_none(&matmul_backward_desc(problem)->gradients.operand);
}

static bool reads_operand(const struct matmul_backward_problem *problem)
{
    return problem->multiplies && problem->writes_sums;
}

bool matmul_elements_unit(const struct matmul_backward_problem *problem, const matmul_backward_args *a)
{
    return a->sums.col == 1 && a->c_gradient.col == 1 && (!reads_operand(problem) || a->operand.col == 1) &&
           (!has_operand_gradient(problem) || a->operand_gradient.col == 1);
}

static void define(const struct matmul_backward_problem *problem, const matmul_backward_args *a, uint32_t lanes,
                   struct strbuf *options)
{
    const clattn_matmul_desc *desc = matmul_backward_desc(problem);
    define_token(options, "C_GRADIENT_TYPE", storage_token(desc->gradients.c.dtype));
    define_token(options, "OPERAND_TYPE",
                 storage_token(reads_operand(problem) ? desc->operand.dtype : CLATTN_DTYPE_F32));
    define_token(options, "OPERAND_GRADIENT_TYPE", storage_token(desc->gradients.operand.dtype));
    define_int(options, "ACTIVATED", desc->activation != CLATTN_ACTIVATION_NONE);
    define_token(options, "ACTIVATION", activation_name(desc->activation));
    define_int(options, "READS_SUMS", problem->reads_sums);
    define_int(options, "WRITES_SUMS", problem->writes_sums);
    define_int(options, "MULTIPLY", problem->multiplies);
    define_int(options, "OPERAND_GRADIENT", has_operand_gradient(problem));
    define_int(options, "UNIT_STRIDE", matmul_elements_unit(problem, a));
    define_int(options, "LANES", lanes);
}

static clattn_status prepare(clattn_plan *base)
{
    struct matmul_elements_plan *plan = (struct matmul_elements_plan *)base;
    const struct matmul_backward_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const bool cpu = capabilities_on_cpu(caps);
    const uint32_t lanes = cpu ? caps->lanes : 4;
    const size_t local[3] = {cpu ? 1 : size_min(64, caps->info.max_work_item[0]), 1, 1};
    struct strbuf options = {0};
    matmul_backward_args a;
    /* An item's loop: over its vectors, the lanes of each if they lie apart, and the items of the batch. */
    plan->chunk = cpu ? CPU_CHUNK : GPU_CHUNK;
    matmul_elements_walk(problem, problem->forward.batch, problem->forward.m, plan->chunk, &a);
    while (plan->chunk > lanes &&
           !capabilities_allow_loops(caps, (double)plan->chunk * 5 * (double)size_max((size_t)a.summed, 1)))
        plan->chunk /= 2;
    if (!capabilities_allow_loops(caps, (double)lanes * 5 * (double)size_max((size_t)a.summed, 1)))
        return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "matmul backward: the operand's gradient has too many terms, and " LOOPS_REASON);
    matmul_elements_walk(problem, problem->forward.batch, problem->forward.m, plan->chunk, &a);
    const size_t groups[3] = {divide_up((size_t)a.pieces, local[0]), 1, 1};
    define(problem, &a, lanes, &options);
    return plan_add_kernel(base, "matmul/backward.cl", &options, "matmul_backward", POINTERS,
                           sizeof(matmul_backward_args), local, groups);
}

static const struct solver solver = {.name = "generic", .prepare = prepare};
static const struct solver *const solvers[] = {&solver};

/* ---- an enqueue ---- */

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    const struct matmul_elements_plan *plan = (const struct matmul_elements_plan *)handle;
    const struct matmul_backward_problem *problem = call->problem;
    const struct matmul_elements_args *args = given;
    const clattn_binding *const bindings[POINTERS] = {
        problem->reads_sums || problem->writes_sums ? &args->sums : NULL,
        &args->c_gradient,
        reads_operand(problem) ? &args->operand : NULL,
        has_operand_gradient(problem) ? &args->operand_gradient : NULL,
    };
    matmul_backward_args a;
    matmul_elements_walk(problem, args->batch, args->m, plan->chunk, &a);
    a.sums.offset = args->sums.offset;
    a.c_gradient.offset = args->c_gradient.offset;
    a.operand.offset = args->operand.offset;
    a.operand_gradient.offset = args->operand_gradient.offset;
    const size_t groups[3] = {divide_up((size_t)a.pieces, handle->kernels[0].local[0]), 1, 1};
    const double elements = (double)a.pieces * (double)plan->chunk * (double)size_max((size_t)a.summed, 1);
    if (!a.pieces)
        return plan_enqueue_nothing(handle, call);
    return plan_enqueue_kernel(handle, call, 4 * elements * WORK_OF_ELEMENT, bindings, &a, groups);
}

const struct operator_type matmul_elements_operator = {
    .name = "matmul backward",
    .bytes = {sizeof(struct matmul_elements_plan), offsetof(struct matmul_elements_plan, problem),
              sizeof(struct matmul_backward_problem), sizeof(clattn_matmul_desc), 0},
    .read = matmul_backward_problem_read,
    .enqueue = enqueue,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = matmul_elements_self_check,
};
