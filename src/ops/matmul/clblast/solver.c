/* Matrix products by CLBlast: GEMM, and strided-batched GEMM for batches.
 *
 * CLBlast takes no wait list, so barriers order its work on an out-of-order queue.  A product with a bias goes to the
 * workspace, and a kernel adds the bias on the way to C: so C is only written, as by every other solver. */
#include <clblast_c.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/matmul/clblast/library.h"
#include "ops/matmul/matmul.h"
#include "program/defines.h"

/* A matrix as CLBlast sees it in row-major order: rows `ld` apart, or the transpose of that. */
struct operand {
    bool transposed;
    size_t ld;
};

static bool operand_of(const array4 *array, size_t rows, size_t columns, struct operand *operand)
{
    /* The stride of a single row or column does not matter. */
    int64_t row = rows > 1 ? array->row : INT64_MAX, column = columns > 1 ? array->col : INT64_MAX;
    if ((column == 1 || columns <= 1) && (row == INT64_MAX || row >= (int64_t)columns)) {
        *operand = (struct operand){false, rows > 1 ? (size_t)row : columns};
        return true;
    }
    if ((row == 1 || rows <= 1) && (column == INT64_MAX || column >= (int64_t)rows)) {
        *operand = (struct operand){true, columns > 1 ? (size_t)column : rows};
        return true;
    }
    return false;
}

/* What CLBlast writes: C, or the sums in the workspace that a bias is added to. */
static array4 result_of(const struct matmul_problem *problem, size_t m)
{
    if (!problem->has_bias)
        return problem->c;
    return (array4){.batch = (int64_t)(m * problem->n), .row = (int64_t)problem->n, .col = 1};
}

struct operands {
    struct operand a, b, c;
};

static bool operands_of(const struct matmul_problem *problem, size_t m, struct operands *operands)
{
    const array4 result = result_of(problem, m);
    return operand_of(&problem->a, m, problem->k, &operands->a) &&
           operand_of(&problem->b, problem->k, problem->n, &operands->b) &&
           operand_of(&result, m, problem->n, &operands->c) && !operands->c.transposed;
}

/* Bytes of the sums that a bias is added to; false on overflow. */
static bool sums_bytes(const struct matmul_problem *problem, size_t *bytes)
{
    *bytes = 0;
    return !problem->has_bias || (size_mul(problem->batch, problem->m, bytes) && size_mul(*bytes, problem->n, bytes) &&
                                  size_mul(*bytes, sizeof(float), bytes));
}

static const char *refuse(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    struct operands operands;
    size_t bytes;
    if (offer->context->clblast == CLATTN_CLBLAST_MODE_NEVER)
        return "the context's params exclude it";
    if (offer->context->foreign_opencl)
        return "CLBlast calls the linked loader, and the application brought OpenCL functions of its own";
    if (offer->caps->quirks & QUIRK_GROUPS_BREAK)
        return "this driver's compiler may end the process for CLBlast's kernels";
    if (!problem->m || !problem->n || !problem->k || !problem->batch)
        return "CLBlast takes no empty products";
    const clattn_matmul_desc *desc = &problem->desc;
    if (desc->a.dtype != CLATTN_DTYPE_F32 || desc->b.dtype != CLATTN_DTYPE_F32 || desc->c.dtype != CLATTN_DTYPE_F32 ||
        (problem->has_bias && desc->bias.dtype != CLATTN_DTYPE_F32))
        return "CLBlast is asked for float32 alone: its float16 sums in float16";
    if (matmul_has_epilogue(problem))
        return "CLBlast knows neither activations nor a second array to add or multiply";
    if (!sums_bytes(problem, &bytes))
        return "the sums that a bias is added to overflow";
    if (!operands_of(problem, problem->m, &operands))
        return "CLBlast needs rows or columns that lie next to each other";
    if (problem->a.batch < 0 || problem->b.batch < 0 || problem->c.batch < 0)
        return "CLBlast takes no negative strides";
    if (!offer->forced && offer->context->clblast != CLATTN_CLBLAST_MODE_PREFER && capabilities_on_cpu(offer->caps))
        return "on a CPU the own kernels are faster, cold and warm";
    if (!offer->forced && offer->context->clblast != CLATTN_CLBLAST_MODE_PREFER && capabilities_on_nvidia(offer->caps))
        return "on NVIDIA's GPUs the own tiles are faster";
    return NULL;
}

static clattn_status check(clattn_context *context, CLBlastStatusCode code)
{
    return code == CLBlastSuccess
               ? CLATTN_SUCCESS
               : report_error(&context->device.report, CLATTN_ERROR_OPENCL, "CLBlast failed with status %d", (int)code);
}

static clattn_status call(clattn_context *context, const struct matmul_problem *problem, const matmul_args *args,
                          cl_mem a, cl_mem b, cl_mem c, cl_command_queue queue, cl_event *event)
{
    struct operands o;
    CLBlastStatusCode code;
    size_t m = (size_t)args->m, n = (size_t)args->n, k = (size_t)args->k;
    if (!operands_of(problem, m, &o))
        return report_error(&context->device.report, CLATTN_ERROR_INTERNAL, "CLBlast's operands changed");
    CLBlastTranspose ta = o.a.transposed ? CLBlastTransposeYes : CLBlastTransposeNo;
    CLBlastTranspose tb = o.b.transposed ? CLBlastTransposeYes : CLBlastTransposeNo;
    clblast_library_lock();
    if (args->batch == 1)
        code = CLBlastSgemm(CLBlastLayoutRowMajor, ta, tb, m, n, k, 1.0f, a, (size_t)args->a.offset, o.a.ld, b,
                            (size_t)args->b.offset, o.b.ld, 0.0f, c, (size_t)args->c.offset, o.c.ld, &queue, event);
    else
        code = CLBlastSgemmStridedBatched(CLBlastLayoutRowMajor, ta, tb, m, n, k, 1.0f, a, (size_t)args->a.offset,
                                          o.a.ld, (size_t)args->a.batch, b, (size_t)args->b.offset, o.b.ld,
                                          (size_t)args->b.batch, 0.0f, c, (size_t)args->c.offset, o.c.ld,
                                          (size_t)args->c.batch, (size_t)args->batch, &queue, event);
    clblast_library_unlock();
    return check(context, code);
}

static clattn_status barrier(struct chain *chain, const struct step *step, cl_event *event)
{
    cl_int code =
        chain->context->device.cl.clEnqueueBarrierWithWaitList(chain->queue, step->wait_count, step->wait_list, event);
    return code == CL_SUCCESS ? CLATTN_SUCCESS
                              : report_opencl(&chain->context->device.report, "clEnqueueBarrierWithWaitList", code);
}

/* C = sums + bias, with the items of the batch folded as they are in `kernel_args`: the sums lie the same way then. */
static clattn_status launch_bias(const struct matmul_plan *plan, struct chain *chain, const clattn_matmul_args *args,
                                 matmul_args *kernel_args)
{
    const clattn_binding *bindings[3] = {&chain->workspace, &args->bias, &args->c};
    const size_t groups[3] = {divide_up((size_t)kernel_args->n, plan->tile_columns), (size_t)kernel_args->m,
                              (size_t)kernel_args->batch};
    return chain_launch(chain, &plan->base, 0, bindings, kernel_args, groups, true);
}

static clattn_status launch(const struct matmul_plan *plan, const struct matmul_problem *problem, struct chain *chain,
                            const clattn_matmul_args *args, matmul_args *given)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = plan->base.context;
    const clattn_binding *result = problem->has_bias ? &chain->workspace : &args->c;
    matmul_args kernel_args = *given, product = *given;
    struct operands operands;
    struct step step;
    kernel_args.packed_offset = chain->workspace.offset / (int64_t)sizeof(float);
    /* CLBlast may refuse items that are folded into one taller item: its rows may overlap, for example. */
    if (!operands_of(problem, (size_t)product.m, &operands)) {
        product.batch = (int)args->batch;
        product.m = (int)args->m;
    }
    if (args->a.kind != CLATTN_BINDING_KIND_BUFFER || args->b.kind != CLATTN_BINDING_KIND_BUFFER ||
        result->kind != CLATTN_BINDING_KIND_BUFFER)
        return report_error(&context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "CLBlast takes buffers only: ask for another solver with SVM pointers");
    if (problem->has_bias) {
        product.c = result_of(problem, (size_t)product.m);
        product.c.offset = kernel_args.packed_offset;
    }
    chain_step(chain, !problem->has_bias, &step);
    if (step.wait_count || !chain->in_order)
        TRY(barrier(chain, &step, NULL));
    status = call(context, problem, &product, args->a.buffer, args->b.buffer, result->buffer, chain->queue, step.event);
    if (status == CLATTN_SUCCESS && !chain->in_order)
        status = barrier(chain, &(struct step){0}, NULL);
    /* CLBlast may have enqueued copies before it failed. */
    if (status == CLATTN_SUCCESS)
        chain_stepped(chain, &step);
    else
        chain_failed(chain, &step);
    if (status == CLATTN_SUCCESS)
        status = control_launched(chain->control, context, chain->queue, chain->last, problem->has_bias ? 0.9 : 1);
    if (status == CLATTN_SUCCESS && problem->has_bias)
        status = launch_bias(plan, chain, args, &kernel_args);
fail:
    return status;
}

/* Elements that a buffer needs so that all of the problem's array, from offset 0, lies in it. */
static size_t reach(const array4 *array, size_t batch, size_t rows, size_t columns)
{
    return (size_t)((int64_t)(batch - 1) * array->batch + (int64_t)(rows - 1) * array->row +
                    (int64_t)(columns - 1) * array->col + 1);
}

/* One call for `batch` items of `m` rows, as an enqueue would make it. */
static clattn_status warm_call(struct matmul_plan *plan, const cl_mem memory[3], size_t batch, size_t m)
{
    clattn_context *context = plan->base.context;
    clattn_matmul_args args = {.batch = batch, .m = m};
    matmul_args kernel_args;
    matmul_fill_args(&plan->problem, &args, &kernel_args);
    kernel_args.batch = (int)batch; /* not folded into one item: `batch` chooses CLBlast's routine */
    kernel_args.m = (int)m;
    kernel_args.c = result_of(&plan->problem, m);
    return call(context, &plan->problem, &kernel_args, memory[0], memory[1], memory[2], context->warm_queue, NULL);
}

/* CLBlast compiles at a routine's first call, which is made here, on the private queue, with memory of its own.  A batch
 * may be one item, or be folded into one, so both routines are called.  If the driver compiles kernels when they are first
 * launched, both are called with one row, too, since CLBlast may choose other kernels for it. */
static clattn_status warm(struct matmul_plan *plan)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = plan->base.context;
    const struct cl_table *cl = &context->device.cl;
    struct report *report = &context->device.report;
    const struct matmul_problem *problem = &plan->problem;
    bool at_launch = context->device.caps.quirks & QUIRK_COMPILES_BY_GRID;
    cl_mem memory[3] = {0};
    const array4 result = result_of(problem, problem->m);
    const size_t elements[3] = {reach(&problem->a, problem->batch, problem->m, problem->k),
                                reach(&problem->b, problem->batch, problem->k, problem->n),
                                reach(&result, problem->batch, problem->m, problem->n)};
    report_hold();
    mtx_lock(&context->warm_lock);
    TRY(context_warm_objects(context));
    for (int i = 0; i < 3; i++) {
        cl_int code;
        memory[i] =
            cl->clCreateBuffer(context->device.context, CL_MEM_READ_WRITE, elements[i] * sizeof(float), NULL, &code);
        if (!memory[i]) {
            status = report_opencl(report, "clCreateBuffer", code);
            goto fail;
        }
    }
    for (size_t batch = problem->batch;; batch = 1) {
        TRY(warm_call(plan, memory, batch, problem->m));
        if (at_launch && problem->m > 1)
            TRY(warm_call(plan, memory, batch, 1));
        if (batch == 1)
            break;
    }
    TRY_CL(report, "clFinish", cl->clFinish(context->warm_queue));
fail:
    mtx_unlock(&context->warm_lock);
    report_deliver();
    for (int i = 0; i < 3; i++)
        if (memory[i])
            cl->clReleaseMemObject(memory[i]);
    return status;
}

static void clear(clattn_plan *plan)
{
    if (!device_is_foreign(&plan->context->device))
        clblast_library_leave();
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct matmul_plan *plan = (struct matmul_plan *)base;
    const size_t local[3] = {capabilities_on_cpu(&base->context->device.caps) ? 1 : 32, 1, 1};
    struct strbuf options = {0};
    if (!base->clear) {
        clblast_library_enter();
        base->clear = clear;
    }
    plan->tile_columns = local[0];
    plan->launch = launch;
    plan->foreign = true;
    if (plan->problem.has_bias) {
        matmul_defines(plan, false, &options);
        (void)sums_bytes(&plan->problem, &base->workspace);
        TRY(plan_add_kernel(base, "matmul/bias.cl", &options, "matmul_bias", 3, matmul_args_bytes(plan), local, NULL));
    }
    TRY(warm(plan));
    /* CLBlast's own count is not told; a padded product takes up to four copies and the product itself. */
    base->launches = base->kernel_count + 5;
fail:
    return status;
}

static bool preferred(const clattn_context *context)
{
    return context->clblast == CLATTN_CLBLAST_MODE_PREFER;
}

const struct solver matmul_clblast_solver = {
    .name = "clblast", .refuse = refuse, .prepare = prepare, .preferred = preferred};
