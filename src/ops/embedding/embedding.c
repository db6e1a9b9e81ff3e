/* The embedding operator: its one solver, planning and enqueueing. */
#include "ops/embedding/embedding.h"

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "ops/embedding/backward.h"
#include "program/defines.h"

#define GROUP_ELEMENTS \
    16384            /* enough for a work-group of a CPU to be worth its launch, and few enough for a core's cache */
#define MAX_ITEMS 64 /* of a GPU's work-group */
#define GPU_LANES 4
#define FARTHEST ((int64_t)1 << 31)
#define ARRAYS 7 /* of the kernel */

/* ---- the solver ---- */

static int lanes_of(const struct capabilities *caps)
{
    return capabilities_on_cpu(caps) ? (int)caps->lanes : GPU_LANES;
}

/* The most loop iterations of a work-item in a work-group of so many places and items. */
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

static const char *refuse(const struct offer *offer)
{
    const struct capabilities *caps = offer->caps;
    return refuse_loops(caps, iterations(caps, offer->problem, 1, items_of(caps, offer->problem)));
}

static size_t groups_of(const struct embedding_plan *plan, size_t batch, size_t length)
{
    return divide_up(batch * length, plan->places_per_group);
}

static clattn_status prepare(clattn_plan *base)
{
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
    const size_t groups[3] = {plan->problem.empty ? 0 : groups_of(plan, desc->y.extent[0], desc->y.extent[1]), 1, 1};
    return plan_add_kernel(base, "embedding/embedding.cl", &options, "embedding", ARRAYS, sizeof(embedding_args), local,
                           groups);
}

static const struct solver embedding_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&embedding_generic_solver};

/* ---- the calls ---- */

/* A copy of the caller's args, and what they and the problem tell the kernel; its batch stays 0 if there is nothing to do. */
static clattn_status read_args(struct report *report, const struct embedding_problem *problem, const void *given,
                               clattn_embedding_args *args, embedding_args *kernel_args)
{
    clattn_status status;
    TRY(args_read(report, "clattn_embedding_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, problem->desc.y.extent[0]));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, problem->desc.y.extent[1]));
    if (args->position > FARTHEST || args->position < -FARTHEST)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "position %lld is beyond 2^31",
                            (long long)args->position);
    *kernel_args = problem->kernel;
    if (problem->empty || !args->batch || !args->length)
        return CLATTN_SUCCESS;
    kernel_args->ids_offset = args->ids.offset;
    kernel_args->table.offset = args->table.offset;
    kernel_args->y.offset = args->y.offset;
    kernel_args->position_table.offset = args->position_table.offset;
    kernel_args->offsets_offset = args->offsets.offset;
    kernel_args->segments_offset = args->segments.offset;
    kernel_args->segment_table.offset = args->segment_table.offset;
    kernel_args->position = args->position;
    kernel_args->batch = (int)args->batch;
    kernel_args->length = (int)args->length;
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct embedding_plan *plan = (const struct embedding_plan *)handle;
    const struct embedding_problem *problem = call->problem;
    const clattn_embedding_desc *desc = &problem->desc;
    clattn_embedding_args args;
    embedding_args kernel_args;
    TRY(read_args(&handle->context->device.report, problem, given, &args, &kernel_args));
    TRY(binding_absent(handle->context, &args.gradients.table, "gradients.table"));
    TRY(binding_absent(handle->context, &args.gradients.y, "gradients.y"));
    TRY(binding_absent(handle->context, &args.workspace, "workspace"));
    const size_t places[3] = {args.batch, args.length, desc->y.extent[2]};
    const size_t segments[2] = {desc->segments.extent[0] == 1 ? 1 : args.batch, args.length};
    const struct bound_array arrays[ARRAYS] = {
        {&args.ids, &desc->ids, places, BINDING_READ, "ids", true},
        {&args.table, &desc->table, desc->table.extent, BINDING_READ, "table", true},
        {&args.position_table, &desc->position_table, desc->position_table.extent, BINDING_READ, "position_table",
         !layout_is_none(&desc->position_table)},
        {&args.offsets, &desc->offsets, places, BINDING_READ, "offsets", !layout_is_none(&desc->offsets)},
        {&args.segments, &desc->segments, segments, BINDING_READ, "segments", problem->has_segments},
        {&args.segment_table, &desc->segment_table, desc->segment_table.extent, BINDING_READ, "segment_table",
         problem->has_segments},
        {&args.y, &desc->y, places, BINDING_WRITE, "y", true},
    };
    const size_t groups[3] = {kernel_args.batch ? groups_of(plan, args.batch, args.length) : 0, 1, 1};
    const double elements = (double)args.batch * (double)args.length * (double)desc->y.extent[2];
    status = simple_enqueue(handle, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(embedding, ids),
    LAYOUT_PLACE(embedding, table),
    LAYOUT_PLACE(embedding, y),
    LAYOUT_PLACE(embedding, position_table),
    LAYOUT_PLACE(embedding, offsets),
    LAYOUT_PLACE(embedding, segments),
    LAYOUT_PLACE(embedding, segment_table),
    {NULL, 0},
};

static const struct operator_type embedding_operator = {
    .name = "embedding",
    .bytes = OPERATOR_BYTES(embedding),
    .read = embedding_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .backward = &embedding_backward_operator,
    .check = embedding_self_check,
};

OPERATOR_CALLS(embedding, clattn_embedding_desc_init, clattn_embedding_args_init, clattn_embedding_supports,
               clattn_embedding_plan_create, clattn_embedding_enqueue, clattn_embedding_prewarm, clattn_embedding_run)
