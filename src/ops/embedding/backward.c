/* The gradient of an embedding's table: reading the description, the one solver, and enqueueing. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/embedding/backward.h"
#include "ops/embedding/embedding.h"
#include "program/defines.h"

_Static_assert(sizeof(embedding_backward_args) == 24 + 2 * 40 + 4 * 8 + 6 * 4, "embedding_backward_args has padding");

#define GROUP_ELEMENTS 16384 /* enough for a work-group of a CPU to be worth its launch */
#define MAX_ITEMS 64         /* of a GPU's work-group */
#define GPU_LANES 4
#define CPU_VECTORS 4
#define GPU_LINK_GROUPS 16 /* each of their items reads all ids */

enum { LINK, ADD }; /* the plan's kernels */

/* ---- the description ---- */

static clattn_status read_options(clattn_embedding_desc *desc, const char **reason)
{
    if (!desc->explicit_scale)
        desc->scale = 1;
    REQUIRE(is_flag(desc->explicit_scale), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_scale is neither 0 nor 1");
    REQUIRE(isfinite(desc->scale), CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    REQUIRE(layout_is_none(&desc->table) && layout_is_none(&desc->y), CLATTN_ERROR_INVALID_ARGUMENT,
            "table and y are for CLATTN_DIRECTION_FORWARD");
    REQUIRE(desc->positions == CLATTN_POSITIONS_NONE && layout_is_none(&desc->position_table) &&
                layout_is_none(&desc->offsets) && layout_is_none(&desc->segments) &&
                layout_is_none(&desc->segment_table),
            CLATTN_ERROR_INVALID_ARGUMENT, "positions and segments are for CLATTN_DIRECTION_FORWARD");
    return CLATTN_SUCCESS;
}

static clattn_status read_arrays(clattn_embedding_desc *desc, const char **reason)
{
    clattn_status status;
    const clattn_layout *ids = &desc->ids, *table = &desc->gradients.table, *y = &desc->gradients.y;
    const struct layout_rule rules[] = {
        {&desc->ids, LAYOUT_OF("ids"), LAYOUT_INPUT, 2, false},
        {&desc->gradients.y, LAYOUT_OF("gradients.y"), LAYOUT_INPUT, 3, false},
        {&desc->gradients.table, LAYOUT_OF("gradients.table"), LAYOUT_OUTPUT, 2, false},
    };
    TRY(layouts_read(rules, COUNT_OF(rules),
                     "ids are (batch, length), gradients.y is (batch, length, size), gradients.table (rows, size)",
                     reason));
    REQUIRE(ids->dtype == CLATTN_DTYPE_I32, CLATTN_ERROR_UNSUPPORTED, "ids are int32");
    REQUIRE(dtype_is_storage(table->dtype) && dtype_is_storage(y->dtype), CLATTN_ERROR_UNSUPPORTED,
            "gradients are float32, float16 or bfloat16");
    REQUIRE(ids->extent[0] == y->extent[0] && ids->extent[1] == y->extent[1] && table->extent[1] == y->extent[2],
            CLATTN_ERROR_INVALID_LAYOUT,
            "ids are (batch, length), gradients.y is (batch, length, size), gradients.table (rows, size)");
fail:
    return status;
}

static clattn_status problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct embedding_backward_problem *problem = result;
    clattn_embedding_desc *desc = &problem->desc;
    const clattn_layout *table = &desc->gradients.table, *y = &desc->gradients.y;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_embedding_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(read_options(desc, reason));
    TRY(read_arrays(desc, reason));
    REQUIRE(size_mul(y->extent[0], y->extent[1], &problem->places) && problem->places <= LENGTH_LIMIT &&
                table->extent[0] <= LENGTH_LIMIT && table->extent[1] <= LENGTH_LIMIT,
            CLATTN_ERROR_OVERFLOW, "batch times length, the rows, or the size, are more than 2^31 - 65537");
    *reason = embedding_check_part(desc, table->extent[0]);
    REQUIRE(!*reason, CLATTN_ERROR_INVALID_LAYOUT, *reason);
    problem->empty = !table->extent[0] || !table->extent[1];
    problem->unit_columns = table->stride[1] == 1 && y->stride[2] == 1;
    problem->kernel = (embedding_backward_args){
        .table = {.row = table->stride[0], .col = table->stride[1]},
        .y = {.batch = y->stride[0], .row = y->stride[1], .col = y->stride[2]},
        .ids_batch = desc->ids.stride[0],
        .ids_row = desc->ids.stride[1],
        .size = (int)table->extent[1],
        .scale = desc->scale,
        .first_row = (int)desc->part.first,
    };
fail:
    return status;
}

/* ---- the solver ---- */

static int lanes_of(const struct capabilities *caps)
{
    return capabilities_on_cpu(caps) ? (int)caps->lanes : GPU_LANES;
}

static size_t vectors_of(const struct capabilities *caps)
{
    return capabilities_on_cpu(caps) ? CPU_VECTORS : 1;
}

/* The items of a work-group that share `count` equal pieces of work. */
static size_t items_of(const struct capabilities *caps, size_t count)
{
    const size_t most = capabilities_on_cpu(caps) || caps->quirks & QUIRK_GROUPS_BREAK ? 1 : MAX_ITEMS;
    size_t items = 1;
    while (items * 2 <= size_min(most, caps->info.max_work_item[0]) && items < count)
        items *= 2;
    return items;
}

static size_t rows_per_group(const struct capabilities *caps, size_t size)
{
    return capabilities_on_cpu(caps) ? size_max(1, GROUP_ELEMENTS / size_max(1, size)) : 1;
}

static void groups_of(const struct capabilities *caps, size_t rows, size_t size, size_t link[3], size_t add[3])
{
    link[0] = size_min(rows, capabilities_on_cpu(caps) ? caps->info.compute_units : GPU_LINK_GROUPS);
    add[0] = divide_up(rows, rows_per_group(caps, size));
    link[1] = link[2] = add[1] = add[2] = 1;
}

/* An item may walk along one list of all places for each of its shares of the columns, and it reads all ids. */
static const char *refuse(const struct offer *offer)
{
    const struct embedding_backward_problem *problem = offer->problem;
    const struct capabilities *caps = offer->caps;
    const clattn_layout *table = &problem->desc.gradients.table;
    const double lanes = lanes_of(caps), vectors = (double)vectors_of(caps), size = (double)table->extent[1];
    const double items = (double)items_of(caps, divide_up(table->extent[1], (size_t)lanes));
    const double walks = floor(size / (lanes * vectors * items)) + 1, places = (double)problem->places;
    const double each = vectors * (problem->unit_columns ? 1 : lanes + 1);
    const double rows = (double)rows_per_group(caps, table->extent[1]);
    return refuse_loops(caps,
                        fmax(places + (double)table->extent[0], walks * (places * (1 + each) + rows * (1 + 3 * each))));
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    const struct embedding_backward_problem *problem = &((struct embedding_backward_plan *)base)->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const clattn_layout *table = &problem->desc.gradients.table;
    const size_t rows = table->extent[0], size = table->extent[1];
    const size_t
        local[2][3] = {{items_of(caps, rows), 1, 1}, {items_of(caps, divide_up(size, (size_t)lanes_of(caps))), 1, 1}};
    size_t groups[2][3];
    groups_of(caps, problem->empty ? 0 : rows, size, groups[LINK], groups[ADD]);
    if (!size_mul(2 * rows + problem->places, sizeof(int32_t), &base->workspace) || base->workspace > INT64_MAX / 2)
        return report_error(&base->context->device.report, CLATTN_ERROR_OVERFLOW, "embedding: the workspace overflows");
    for (int i = LINK; i <= ADD; i++) {
        struct strbuf options = {0};
        define_token(&options, "TABLE_TYPE", storage_token(table->dtype));
        define_token(&options, "Y_TYPE", storage_token(problem->desc.gradients.y.dtype));
        define_int(&options, "UNIT_STRIDE", problem->unit_columns);
        define_int(&options, "VECTORS", (long long)vectors_of(caps));
        define_int(&options, "LANES", lanes_of(caps));
        TRY(plan_add_kernel(base, "embedding/backward.cl", &options,
                            i == LINK ? "embedding_link" : "embedding_backward", i == LINK ? 2 : 3,
                            sizeof(embedding_backward_args), local[i], groups[i]));
    }
    base->kernels[LINK].prepares = true;
fail:
    return status;
}

static const struct solver generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&generic_solver};

/* ---- enqueueing ---- */

/* A copy of the caller's args, and what they and the problem tell the kernels.  The arrays of forward are not bound. */
static clattn_status read_args(clattn_context *context, const struct embedding_backward_problem *problem,
                               const void *given, clattn_embedding_args *args, embedding_backward_args *kernel_args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const clattn_layout *y = &problem->desc.gradients.y;
    TRY(args_read(report, "clattn_embedding_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, y->extent[0]));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, y->extent[1]));
    if (args->position)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "position, and there are no positions");
    TRY(binding_absent(context, &args->table, "table"));
    TRY(binding_absent(context, &args->y, "y"));
    TRY(binding_absent(context, &args->position_table, "position_table"));
    TRY(binding_absent(context, &args->offsets, "offsets"));
    TRY(binding_absent(context, &args->segments, "segments"));
    TRY(binding_absent(context, &args->segment_table, "segment_table"));
    *kernel_args = problem->kernel;
    kernel_args->ids_offset = args->ids.offset;
    kernel_args->table.offset = args->gradients.table.offset;
    kernel_args->y.offset = args->gradients.y.offset;
    kernel_args->batch = (int)args->batch;
    kernel_args->length = (int)args->length;
    kernel_args->rows = (int)problem->desc.gradients.table.extent[0];
fail:
    return status;
}

static clattn_status launch(const clattn_plan *plan, struct chain *chain, const clattn_embedding_args *args,
                            embedding_backward_args *kernel_args)
{
    clattn_status status;
    const bool places = args->batch && args->length;
    const clattn_binding *link[] = {places ? &args->ids : NULL, &chain->workspace};
    const clattn_binding *add[] = {places ? &args->gradients.y : NULL, &chain->workspace, &args->gradients.table};
    size_t link_groups[3], add_groups[3];
    groups_of(&plan->context->device.caps, (size_t)kernel_args->rows, (size_t)kernel_args->size, link_groups,
              add_groups);
    kernel_args->lists_offset = chain->workspace.offset / (int64_t)sizeof(int32_t);
    TRY(chain_launch(chain, plan, LINK, link, kernel_args, link_groups, false));
    TRY(chain_launch(chain, plan, ADD, add, kernel_args, add_groups, true));
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct embedding_backward_problem *problem = call->problem;
    const clattn_embedding_desc *desc = &problem->desc;
    const clattn_layout *table = &desc->gradients.table;
    clattn_embedding_args args;
    embedding_backward_args kernel_args;
    struct chain chain;
    TRY(read_args(plan->context, problem, given, &args, &kernel_args));
    if (problem->empty)
        return plan_enqueue_nothing(plan, call);
    const size_t places[3] = {args.batch, args.length, table->extent[1]};
    const unsigned read = BINDING_READ | (args.batch && args.length ? 0 : BINDING_OPTIONAL);
    const struct bound_array arrays[] = {
        {&args.ids, &desc->ids, places, read, "ids", true},
        {&args.gradients.y, &desc->gradients.y, places, read, "gradients.y", true},
        {&args.gradients.table, table, table->extent, BINDING_WRITE, "gradients.table", true},
    };
    TRY(bindings_check(plan->context, arrays, COUNT_OF(arrays)));
    status = chain_begin(&chain, plan->context, call, &args.workspace);
    chain.work = ((double)args.batch * (double)args.length + (double)table->extent[0]) * (double)table->extent[1] *
                 WORK_OF_ELEMENT;
    if (status == CLATTN_SUCCESS)
        status = launch(plan, &chain, &args, &kernel_args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(embedding, ids),
    LAYOUT_PLACE(embedding, gradients.y),
    LAYOUT_PLACE(embedding, gradients.table),
    {NULL, 0},
};

const struct operator_type embedding_backward_operator = {
    .name = "embedding backward",
    .bytes = {sizeof(struct embedding_backward_plan), offsetof(struct embedding_backward_plan, problem),
              sizeof(struct embedding_backward_problem), sizeof(clattn_embedding_desc),
              offsetof(clattn_embedding_args, control)},
    .read = problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = embedding_backward_self_check,
};
