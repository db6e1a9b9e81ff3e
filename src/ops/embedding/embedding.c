/* The embedding operator: its one solver, planning and enqueueing. */
#include "ops/embedding/embedding.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

#define GROUP_ELEMENTS 16384 /* that make a work-group of a CPU worth its launch and stay in a core's cache */
#define MAX_ITEMS 64         /* of a GPU's */
#define GPU_LANES 4
#define POINTERS 7

/* ---- the solver ---- */

static int lanes_of(const struct capabilities *caps)
{
    return capabilities_on_cpu(caps) ? (int)caps->lanes : GPU_LANES;
}

/* Loops of a work-item with that many places and items beside it, at the most. */
static double iterations(const struct capabilities *caps, const struct embedding_problem *problem, size_t places,
                         size_t items)
{
    double lanes = lanes_of(caps), vectors = (double)problem->kernel.size / (lanes * (double)items) + 1;
    return vectors * (lanes * (ROPE_RATIOS + 1) + (double)places * (1 + 8 * lanes));
}

static size_t items_of(const struct capabilities *caps, const struct embedding_problem *problem)
{
    size_t items = 1;
    while (!capabilities_on_cpu(caps) && items * 2 <= size_min(MAX_ITEMS, caps->info.max_work_item[0]) &&
           items * GPU_LANES < (size_t)problem->kernel.size)
        items *= 2;
    return items;
}

static size_t places_of(const struct capabilities *caps, const struct embedding_problem *problem)
{
    size_t places =
        capabilities_on_cpu(caps) ? size_max(1, GROUP_ELEMENTS / size_max(1, (size_t)problem->kernel.size)) : 1;
    while (places > 1 && !capabilities_allow_loops(caps, iterations(caps, problem, places, 1)))
        places /= 2;
    return places;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct capabilities *caps = &context->device.caps;
    (void)forced;
    return refuse_loops(caps, iterations(caps, data, 1, items_of(caps, data)));
}

static size_t groups_of(const struct embedding_plan *plan, size_t batch, size_t length)
{
    return divide_up(batch * length, plan->places_per_group);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct embedding_plan *plan = (struct embedding_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const clattn_embedding_desc *desc = &plan->problem.desc;
    const size_t local[3] = {items_of(caps, &plan->problem), 1, 1};
    struct strbuf options = {0};
    plan->places_per_group = places_of(caps, &plan->problem);
    plan->whole_vectors = desc->y.extent[2] % (size_t)lanes_of(caps) == 0;
    define_token(&options, "TABLE_TYPE", storage_token(desc->table.dtype));
    define_token(&options, "POSITION_TABLE_TYPE", storage_token(desc->position_table.dtype));
    define_token(&options, "SEGMENT_TYPE", storage_token(desc->segment_table.dtype));
    define_token(&options, "Y_TYPE", storage_token(desc->y.dtype));
    define_int(&options, "POSITIONS", desc->positions);
    define_int(&options, "SEGMENTS", plan->problem.has_segments);
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "WHOLE_VECTORS", plan->whole_vectors);
    define_int(&options, "LANES", lanes_of(caps));
    TRY(plan_add_kernel(base, "embedding/embedding.cl", &options, "embedding", POINTERS, sizeof(embedding_args),
                        local));
    if (!plan->problem.empty)
        plan_kernel_largest(&base->kernels[0],
                            (const size_t[3]){groups_of(plan, desc->y.extent[0], desc->y.extent[1]), 1, 1});
    base->launches = 1;
fail:
    return status;
}

static const struct solver embedding_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&embedding_generic_solver};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return embedding_problem_read(desc, problem, reason);
}

/* ---- the calls ---- */

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct embedding_plan *plan = (const struct embedding_plan *)handle;
    const struct embedding_problem *problem = call->problem;
    clattn_embedding_args args;
    embedding_args kernel_args;
    TRY(embedding_args_read(handle->context, problem, given, &args, &kernel_args));
    if (!kernel_args.batch)
        return plan_enqueue_nothing(handle, call);
    /* In the place of an array that is not there, one that the kernel has anyway. */
    bool table = problem->desc.positions == CLATTN_POSITIONS_TABLE;
    const clattn_binding *bindings[POINTERS] = {
        &args.ids,
        &args.table,
        table ? &args.position_table : &args.table,
        kernel_args.has_offsets ? &args.offsets : &args.ids,
        problem->has_segments ? &args.segments : &args.ids,
        problem->has_segments ? &args.segment_table : &args.table,
        &args.y,
    };
    const size_t groups[3] = {groups_of(plan, (size_t)kernel_args.batch, (size_t)kernel_args.length), 1, 1};
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static const struct operator_type embedding_operator = {
    .name = "embedding",
    .plan_bytes = sizeof(struct embedding_plan),
    .problem_offset = offsetof(struct embedding_plan, problem),
    .problem_bytes = sizeof(struct embedding_problem),
    .desc_bytes = sizeof(clattn_embedding_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .check = embedding_self_check,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
};

OPERATOR_CALLS(embedding, clattn_embedding_desc_init, clattn_embedding_args_init, clattn_embedding_supports,
               clattn_embedding_plan_create, clattn_embedding_enqueue, clattn_embedding_prewarm, clattn_embedding_run)
