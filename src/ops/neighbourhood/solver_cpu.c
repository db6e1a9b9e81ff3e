/* Neighbourhood attention on CPU devices: the lanes are neighbouring queries, keys and values are packed into planes. */
#include "base/size.h"
#include "base/try.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "program/defines.h"

#define MAX_SIZE 256

enum { PACK, ATTEND }; /* kernels of the plan */

struct geometry {
    size_t lanes, rows, key_step, column_step;
};

/* Chooses how many of `count` distances the register tile has.  A cycle does two fused multiply-adds, and a load of
 * keys, which is never aligned, takes as long; of the cheapest tiles the largest is chosen. */
static size_t step_for(size_t count, size_t rows)
{
    size_t best = 1;
    double least = 0;
    for (size_t step = 1; step <= 8 && step * rows <= 24; step++) {
        double multiply = 0.5 * (double)(step * rows), load = (double)step + 0.5 * (double)rows;
        double cost = (double)divide_up(count, step) * (multiply > load ? multiply : load);
        if (step == 1 || cost <= least) {
            best = step;
            least = cost;
        }
    }
    return best;
}

/* Chooses the geometry by measurements (docs/notes/kernels-others.md): three rows share most of a large window, two
 * of a small one, and at a window's ends each row is computed alone. */
static struct geometry geometry_of(const clattn_context *context, const struct neighbourhood_problem *problem)
{
    const struct capabilities *caps = &context->device.caps;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return (struct geometry){4, 1, 2, 2};
    struct geometry g = {.lanes = caps->lanes};
    size_t keys = neighbourhood_keys(problem, 0);
    g.rows = keys > 9 ? 3 : keys >= 3 ? 2 : 1;
    g.key_step = step_for(neighbourhood_keys(problem, 1), g.rows);
    g.column_step = size_min(problem->d_v, 8);
    return g;
}

/* Chooses the scores for each rescaling, enough that it costs little. */
static size_t score_tile(const struct geometry *g)
{
    return round_up(80, g->key_step);
}

/* The most loop iterations of a work-item of the second kernel; see the loops of neighbourhood/cpu.cl. */
static double iterations(const struct geometry *g, const struct neighbourhood_problem *problem)
{
    double rows = (double)neighbourhood_keys(problem, 0) * (double)g->rows;
    double span = 2 * (double)neighbourhood_keys(problem, 1); /* at an edge lanes' windows differ */
    double sizes = (double)problem->d_k / (double)g->key_step + (double)problem->d_v / (double)g->column_step;
    double lanes = (double)g->lanes;
    return rows * (span * (sizes + 4) + (double)problem->d_k + 8) +
           4 * (double)g->rows * (double)(problem->d_k + problem->d_v) + 16 * lanes;
}

static const char *refuse(const struct offer *offer)
{
    const struct neighbourhood_problem *problem = offer->problem;
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 256";
    struct geometry g = geometry_of(offer->context, problem);
    const char *reason = refuse_loops(offer->caps, iterations(&g, problem));
    return reason ? reason : refuse_all_but_cpu(offer);
}

static void groups_of(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                      const clattn_neighbourhood_args *args, size_t pack[3], size_t attend[3])
{
    size_t dilation = (size_t)problem->desc.dilation[0];
    pack[0] = divide_up(args->key_width, plan->lanes) + 2;
    pack[1] = args->key_height;
    pack[2] =
        size_max(args->batch * problem->kv_heads, size_min(problem->bias_batch, args->batch) * problem->bias_heads);
    attend[0] = divide_up(args->query_width, plan->lanes);
    attend[1] = dilation * divide_up(divide_up(args->query_height, dilation), plan->rows);
    attend[2] = args->batch * problem->heads;
}

/* Floats in a packed line of the map.  Lines that lie a multiple of 4 KiB apart would share few sets of the caches. */
static size_t packed_width(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem)
{
    size_t vectors = divide_up(problem->width, plan->lanes) + 2;
    return (vectors + (vectors % 2 == 0)) * plan->lanes;
}

static clattn_status launch(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                            struct chain *chain, const clattn_neighbourhood_args *args, neighbourhood_args *kernel_args)
{
    clattn_status status;
    const clattn_binding *pack[] = {&args->key, &args->value, problem->has_bias ? &args->bias : NULL,
                                    &chain->workspace};
    const clattn_binding *attend[] = {&args->query, &chain->workspace, &args->output,
                                      problem->has_lse ? &args->lse : NULL};
    size_t width = packed_width(plan, problem), pack_groups[3], attend_groups[3];
    kernel_args->packed_offset = chain->workspace.offset / (int64_t)sizeof(float);
    kernel_args->packed_width = (int)width;
    kernel_args->packed_bias =
        (int64_t)(args->batch * problem->kv_heads * args->key_height * (problem->d_k + problem->d_v) * width);
    if (problem->bias_heads > 1)
        kernel_args->packed_bias_head = (int64_t)(args->key_height * width);
    if (kernel_args->bias_batch > 1)
        kernel_args->packed_bias_batch = (int64_t)(problem->bias_heads * args->key_height * width);
    groups_of(plan, problem, args, pack_groups, attend_groups);
    TRY(chain_launch(chain, &plan->base, PACK, pack, kernel_args, pack_groups, false));
    TRY(chain_launch(chain, &plan->base, ATTEND, attend, kernel_args, attend_groups, true));
fail:
    return status;
}

/* K, V and the bias are packed as lines of packed_width floats. */
static clattn_status workspace(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                               size_t *bytes)
{
    size_t lines, bias;
    if (!size_mul(problem->batch * problem->kv_heads, problem->height, &lines) ||
        !size_mul(lines, problem->d_k + problem->d_v, &lines) ||
        !size_mul(problem->bias_batch * problem->bias_heads, problem->height, &bias) ||
        !size_add(lines, bias, &lines) || !size_mul(lines, packed_width(plan, problem) * sizeof(float), bytes) ||
        *bytes > INT64_MAX / 2)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW,
                            "neighbourhood: the workspace overflows");
    return CLATTN_SUCCESS;
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    static const char *const names[] = {"neighbourhood_pack", "neighbourhood_cpu"};
    clattn_status status;
    struct neighbourhood_plan *plan = (struct neighbourhood_plan *)base;
    const struct neighbourhood_problem *problem = &plan->problem;
    struct geometry g = geometry_of(base->context, problem);
    const clattn_neighbourhood_args largest = {.batch = problem->batch,
                                               .query_height = problem->query_height,
                                               .query_width = problem->query_width,
                                               .key_height = problem->height,
                                               .key_width = problem->width};
    size_t groups[2][3];
    plan->lanes = g.lanes;
    plan->rows = g.rows;
    plan->launch = launch;
    plan->workspace = workspace;
    TRY(workspace(plan, problem, &base->workspace));
    groups_of(plan, problem, &largest, groups[PACK], groups[ATTEND]);
    for (int i = PACK; i <= ATTEND; i++) {
        struct strbuf options = {0};
        neighbourhood_defines(problem, &options);
        define_int(&options, "LANES", (long long)g.lanes);
        define_int(&options, "ROWS", (long long)g.rows);
        define_int(&options, "KEY_STEP", (long long)g.key_step);
        define_int(&options, "COLUMN_STEP", (long long)g.column_step);
        define_int(&options, "SCORE_TILE", (long long)score_tile(&g));
        TRY(plan_add_kernel(base, "neighbourhood/cpu.cl", &options, names[i], 4, sizeof(neighbourhood_args), one,
                            groups[i]));
    }
    base->kernels[PACK].prepares = true;
fail:
    return status;
}

const struct solver neighbourhood_cpu_solver = {.name = "cpu", .efficiency = 0.1, .refuse = refuse, .prepare = prepare};
