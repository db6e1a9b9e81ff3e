/* Matrix products on CPU devices: one operand packed into panels across vector lanes, the other broadcast
 * from where it lies. */
#include "base/size.h"
#include "ops/matmul.h"
#include "program/defines.h"

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct matmul_problem *problem = data;
    size_t packed;
    if (!size_mul(round_up(size_max(problem->m, problem->n), 64), size_max(problem->k, 1) * sizeof(float),
                  &packed) ||
        !size_mul(packed, size_max(problem->batch, 1), &packed))
        return "the packed operand overflows";
    if (!forced && !capabilities_on_cpu(&context->device.caps))
        return "the device is no CPU";
    return NULL;
}

/* How many items the packed side has: one if all items share it. */
static size_t packed_items(const struct matmul_plan *plan, size_t batch)
{
    int64_t stride = plan->lanes_along_m ? plan->problem.a.batch : plan->problem.b.batch;
    return stride ? batch : 1;
}

static clattn_status launch(struct matmul_plan *plan, struct chain *chain, const clattn_matmul_args *args,
                            const matmul_args *given)
{
    matmul_args kernel_args = *given;
    const clattn_binding *lanes = plan->lanes_along_m ? &args->a : &args->b;
    const clattn_binding *rows = plan->lanes_along_m ? &args->b : &args->a;
    size_t lane_count = (size_t)(plan->lanes_along_m ? given->m : given->n);
    size_t row_count = (size_t)(plan->lanes_along_m ? given->n : given->m);
    size_t panels = divide_up(lane_count, plan->panel);
    const size_t pack_groups[3] = {panels, divide_up((size_t)given->k, plan->pack_depth),
                                   packed_items(plan, (size_t)given->batch)};
    const size_t groups[3] = {panels, divide_up(row_count, plan->tile_rows), (size_t)given->batch};
    const clattn_binding *pack_bindings[2] = {lanes, &chain->workspace};
    const clattn_binding *bindings[4] = {rows, &chain->workspace};
    size_t count = 2;
    if (plan->problem.has_bias)
        bindings[count++] = &args->bias;
    bindings[count] = &args->c;
    kernel_args.packed_offset = chain->workspace.offset / (int64_t)sizeof(float);
    clattn_status status = CLATTN_SUCCESS;
    if (given->k)
        status = chain_launch(chain, &plan->base.kernels[0], pack_bindings, &kernel_args, pack_groups, false);
    if (status == CLATTN_SUCCESS)
        status = chain_launch(chain, &plan->base.kernels[1], bindings, &kernel_args, groups, true);
    return status;
}

/* The register tile: ROWS x LANE_VECTORS accumulators and their operands fit the vector registers. */
static void geometry(const clattn_context *context, struct matmul_plan *plan, struct strbuf *options)
{
    size_t lanes = context->device.caps.lanes, rows = lanes == 16 ? 12 : 4, vectors = 2, tiles = 8,
           depth = 256;
    if (context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        rows = 4, vectors = 1, tiles = 2, depth = 64;
    plan->panel = lanes * vectors;
    plan->tile_rows = rows * tiles;
    plan->pack_depth = 256;
    define_int(options, "LANES", (long long)lanes);
    define_int(options, "ROWS", (long long)rows);
    define_int(options, "LANE_VECTORS", (long long)vectors);
    define_int(options, "TILES", (long long)tiles);
    define_int(options, "DEPTH", (long long)depth);
    define_int(options, "PACK_DEPTH", (long long)plan->pack_depth);
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    struct matmul_plan *plan = (struct matmul_plan *)base;
    const struct matmul_problem *problem = &plan->problem;
    clattn_status status;
    struct strbuf options = {0}, again = {0};
    /* Packing costs a pass over the packed operand: take the smaller one, all items of a batch counted. */
    size_t m_elements = problem->m * (problem->a.batch ? problem->batch : 1);
    size_t n_elements = problem->n * (problem->b.batch ? problem->batch : 1);
    plan->lanes_along_m = m_elements < n_elements;
    matmul_defines(problem, &options);
    geometry(base->context, plan, &options);
    define_int(&options, "LANES_ALONG_M", plan->lanes_along_m);
    define_int(&options, "ROW_UNIT", (plan->lanes_along_m ? problem->b.row : problem->a.col) == 1);
    strbuf_printf(&again, "%s", options.text ? options.text : "");
    size_t lane_count = plan->lanes_along_m ? problem->m : problem->n;
    /* An enqueue folds a batch that shares b into m: its panels are then those of one tall item, plus none.
     */
    size_t panels = packed_items(plan, problem->batch) * divide_up(lane_count, plan->panel);
    base->workspace = panels * plan->panel * problem->k * sizeof(float);
    plan->launch = launch;
    base->launches = 2;
    status = plan_add_kernel(base, "matmul_cpu.cl", &options, "matmul_pack", 2, sizeof(matmul_args), one);
    if (status == CLATTN_SUCCESS)
        status = plan_add_kernel(base, "matmul_cpu.cl", &again, "matmul_cpu", 3u + problem->has_bias,
                                 sizeof(matmul_args), one);
    strbuf_clear(&again);
    return status;
}

const struct solver matmul_cpu_solver = {"cpu", refuse, prepare};
