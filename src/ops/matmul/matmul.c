/* The matrix product operator: planning and enqueueing. */
#include "ops/matmul/matmul.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
#ifdef CLATTN_CLBLAST
    &matmul_clblast_solver,
#endif
    &matmul_wgmma_solver,         &matmul_matrix_solver,        &matmul_cpu_amx_solver,
    &matmul_cpu_bf16_solver,      &matmul_cpu_solver,           &matmul_tile_solver,
    &matmul_generic_solver,       &matmul_matrix_emulations[0], &matmul_matrix_emulations[1],
    &matmul_matrix_emulations[2], &matmul_matrix_emulations[3], &matmul_matrix_emulations[4],
    &matmul_wgmma_emulation,
};

clattn_status matmul_launch_tiles(const struct matmul_plan *plan, const struct matmul_problem *problem,
                                  struct chain *chain, const clattn_matmul_args *args, matmul_args *kernel_args)
{
    const clattn_binding *bindings[MATMUL_POINTERS] = {&args->a, &args->b};
    matmul_bind(plan, problem, args, bindings);
    const size_t groups[3] = {divide_up((size_t)kernel_args->n, plan->tile_columns),
                              divide_up((size_t)kernel_args->m, plan->tile_rows), (size_t)kernel_args->batch};
    return chain_launch(chain, &plan->base, 0, bindings, kernel_args, groups, true);
}

clattn_status matmul_add_tiled_kernel(struct matmul_plan *plan, const char *file, const char *name,
                                      struct strbuf *options, const size_t local[3])
{
    const struct matmul_problem *problem = &plan->problem;
    /* All items of a batch may be folded into one taller item. */
    const size_t groups[3] = {divide_up(problem->n, plan->tile_columns),
                              problem->batch * divide_up(problem->m, plan->tile_rows), problem->batch};
    plan->launch = matmul_launch_tiles;
    return plan_add_kernel(&plan->base, file, options, name, matmul_pointers(plan), matmul_args_bytes(plan), local,
                           groups);
}

clattn_status matmul_add_packed_kernels(struct matmul_plan *plan, const char *file, struct strbuf *options,
                                        const struct packed_kernel kernels[2])
{
    static const size_t one[3] = {1, 1, 1};
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < 2; i++) {
        struct strbuf own = {0};
        strbuf_append(&own, options->text ? options->text : "", options->length);
        own.failed |= options->failed;
        TRY(plan_add_kernel(&plan->base, file, &own, kernels[i].name, kernels[i].pointers, matmul_args_bytes(plan), one,
                            kernels[i].groups));
    }
    plan->base.kernels[0].prepares = true;
fail:
    strbuf_clear(options);
    return status;
}

bool matmul_packs_b(const clattn_plan *plan)
{
    const struct matmul_plan *own = (const struct matmul_plan *)plan;
    return plan->kernels[0].prepares && !own->lanes_along_m && !own->problem.b.batch;
}

bool matmul_packs_alike(const clattn_plan *left, const clattn_plan *right)
{
    const struct matmul_problem *x = &((const struct matmul_plan *)left)->problem,
                                *y = &((const struct matmul_plan *)right)->problem;
    return matmul_packs_b(left) && matmul_packs_b(right) && left->kernels[0].program == right->kernels[0].program &&
           left->workspace == right->workspace && x->k == y->k && x->n == y->n && x->b.row == y->b.row &&
           x->b.col == y->b.col;
}

clattn_status matmul_launch_packed(const struct matmul_plan *plan, struct chain *chain, clattn_prepack prepack,
                                   const matmul_args *given, const clattn_binding **pack_bindings,
                                   const size_t pack_groups[3], const clattn_binding **bindings, const size_t groups[3])
{
    matmul_args kernel_args = *given;
    clattn_status status = CLATTN_SUCCESS;
    kernel_args.packed_offset = chain->workspace.offset / 4;
    if (given->k && (prepack != CLATTN_PREPACK_PACKED || !matmul_packs_b(&plan->base)))
        status = chain_launch(chain, &plan->base, 0, pack_bindings, &kernel_args, pack_groups,
                              prepack == CLATTN_PREPACK_PACK);
    if (status == CLATTN_SUCCESS && prepack != CLATTN_PREPACK_PACK)
        status = chain_launch(chain, &plan->base, 1, bindings, &kernel_args, groups, true);
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct matmul_plan *plan = (const struct matmul_plan *)handle;
    const struct matmul_problem *problem = call->problem;
    clattn_matmul_args args;
    matmul_args kernel_args;
    struct chain chain;
    TRY(matmul_args_read(plan, problem, given, &args));
    if (!args.batch || !args.m || !problem->n ||
        (args.prepack == CLATTN_PREPACK_PACK && (!problem->k || !matmul_packs_b(handle))))
        return plan_enqueue_nothing(handle, call);
    matmul_fill_args(problem, &args, &kernel_args);
    kernel_args.item_rows = (int)plan->item_rows;
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    chain.work = 2 * (double)args.batch * (double)args.m * (double)problem->n * (double)(problem->k + 1);
    if (status == CLATTN_SUCCESS)
        status = plan->launch(plan, problem, &chain, &args, &kernel_args);
    return chain_end(&chain, status);
fail:
    return status;
}

/* How an operand lies in memory: r if a row's elements are neighbours, c if a column's are, else s (strided). */
static char order_of(const array4 *array)
{
    return array->col == 1 ? 'r' : array->row == 1 ? 'c' : 's';
}

static void shape_bucket(const void *data, struct strbuf *text)
{
    const struct matmul_problem *problem = data;
    const clattn_matmul_desc *desc = &problem->desc;
    strbuf_printf(text, "b%zu-m%zu-n%zu-k%zu", bucket_length(problem->batch), bucket_length(problem->m),
                  bucket_length(problem->n), bucket_length(problem->k));
    strbuf_printf(text, "-%s.%c-%s.%c-%s.%c", storage_token(desc->a.dtype), order_of(&problem->a),
                  storage_token(desc->b.dtype), order_of(&problem->b), storage_token(desc->c.dtype),
                  order_of(&problem->c));
    if (problem->batch > 1 && !problem->b.batch)
        strbuf_printf(text, "-shared");
    if (desc->prepack)
        strbuf_printf(text, "-prepack");
    if (problem->has_bias)
        strbuf_printf(text, "-bias.%s", storage_token(desc->bias.dtype));
    if (desc->activation)
        strbuf_printf(text, "-act%d", (int)desc->activation);
    if (problem->has_operand)
        strbuf_printf(text, "-%s.%s.%c", desc->operand_use == CLATTN_MATMUL_OPERAND_USE_ADD ? "add" : "multiply",
                      storage_token(desc->operand.dtype), order_of(&problem->operand));
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(matmul, a),
    LAYOUT_PLACE(matmul, b),
    LAYOUT_PLACE(matmul, c),
    LAYOUT_PLACE(matmul, bias),
    LAYOUT_PLACE(matmul, operand),
    LAYOUT_PLACE(matmul, b_scale),
    {NULL, 0},
};

static const struct operator_type matmul_operator = {
    .name = "matmul",
    .bytes = OPERATOR_BYTES(matmul),
    .read = matmul_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
    .backward = &matmul_backward_operator,
    .check = matmul_self_check,
    .shape_bucket = shape_bucket,
};

OPERATOR_CALLS(matmul, clattn_matmul_desc_init, clattn_matmul_args_init, clattn_matmul_supports,
               clattn_matmul_plan_create, clattn_matmul_enqueue, clattn_matmul_prewarm, clattn_matmul_run)
