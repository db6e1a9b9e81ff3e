/* Pooling on CPU devices: one work-item a work-group walks pieces of rows with whole vectors. */
#include "base/size.h"
#include "ops/pool/pool.h"

/* A work-group that reads or writes so many elements is worth its launch. */
#define GROUP_ELEMENTS 32768

/* The most loop iterations of a work-item with LANES lines of the tile, or with one of depth is a multiple of LANES. */
static double iterations(const struct capabilities *caps, const pool_args *args)
{
    const double lanes = caps->lanes, rows = args->rows.window, columns = args->cols.window, part = args->share;
    const double pixels = (double)args->tile / args->depth, shuffles = 12 * lanes;
    if (args->depth >= (int)caps->lanes)
        return pixels * (1 + POOL_BLOCK * (1 + rows * (1 + columns * (1 + lanes))));
    const double span = ((pixels - 1) * args->cols.stride + (part - 1) * args->cols.dilation + 1) * args->depth;
    const double fill = 2 * span + (span / lanes + POOL_BLOCK) * (lanes * (3 + rows * (1 + lanes)) + shuffles);
    return lanes + (columns / part + 1) * (fill + args->tile * (2 + part)) + args->tile * (3.0 + lanes) +
           (args->tile / lanes + 1) * shuffles;
}

/* Sets the tile to `pixels` columns and `share` to as much of a window as the span has room for; false if that is not even one of
 * its columns. */
static bool has_room(pool_args *args, int pixels)
{
    const double room = (double)POOL_SPAN / args->depth - (pixels - 1.0) * args->cols.stride - 1;
    args->tile = pixels * args->depth;
    if (room < 0)
        return false;
    args->share = (int)size_min((size_t)args->cols.window, (size_t)(room / args->cols.dilation) + 1);
    return true;
}

/* Sets depth, tile and share, or returns false if the device's loops are too short. */
static bool choose_piece(const struct capabilities *caps, const struct pool_problem *problem, pool_args *args)
{
    const int lanes = (int)caps->lanes, most = args->cols.target;
    args->share = args->cols.window;
    if (problem->unit_channels && args->channels >= lanes) {
        args->depth =
            (int)size_min(POOL_BLOCK * (size_t)lanes, divide_up((size_t)args->channels, (size_t)lanes) * (size_t)lanes);
        args->tile = (int)size_min(POOL_TILE, (size_t)most) * args->depth;
        while (args->tile > args->depth && !capabilities_allow_loops(caps, iterations(caps, args)))
            args->tile = args->tile / args->depth / 2 * args->depth;
        return capabilities_allow_loops(caps, iterations(caps, args));
    }
    args->depth = problem->joined && args->channels < lanes ? args->channels : 1;
    /* The largest tile of whole windows and whole vectors, of whole windows, and one column. */
    for (int whole = 2; whole >= 0; whole--)
        for (int pixels = whole ? POOL_TILE / args->depth : 1; pixels > 0; pixels--)
            if (has_room(args, pixels) && (whole < 1 || args->share == args->cols.window) &&
                (whole < 2 || args->tile % lanes == 0) && capabilities_allow_loops(caps, iterations(caps, args)))
                return true;
    return false;
}

static void shape(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch, pool_args *args)
{
    const struct capabilities *caps = &plan->base.context->device.caps;
    choose_piece(caps, problem, args); /* refuse has asked */
    const size_t lines = pool_lines_of(args, batch), step = args->depth < (int)caps->lanes ? caps->lanes : 1;
    const size_t tile = size_min((size_t)args->tile, (size_t)args->cols.target * (size_t)args->depth);
    const double window = (double)args->rows.window * args->cols.window;
    const double line = (double)tile * (window < 4 ? window : window / 4 + 3); /* windows overlap in caches */
    size_t band = step;
    while (band * 2 <= lines && (double)band * 2 * line <= GROUP_ELEMENTS &&
           capabilities_allow_loops(caps, iterations(caps, args) * 2 * (double)(band / step)))
        band *= 2;
    /* Few lines of large windows are worth a work-group each. */
    while (band > 1 && divide_up(lines, band) < caps->info.compute_units && (double)band * line > GROUP_ELEMENTS)
        band /= 2;
    args->band = (int)band;
}

static const char *refuse(const struct offer *offer)
{
    const struct pool_problem *problem = offer->problem;
    pool_args args = problem->kernel;
    const char *reason = NULL;
    if (!problem->empty && !choose_piece(offer->caps, problem, &args))
        reason = LOOPS_REASON;
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    struct pool_plan *plan = (struct pool_plan *)base;
    plan->items = 1;
    plan->shape = shape;
    return pool_add_kernel(plan, "pool/cpu.cl", "pool_cpu", base->context->device.caps.lanes);
}

const struct solver pool_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
