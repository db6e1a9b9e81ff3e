/* Resizing on CPU devices: one work-item a work-group walks pieces of rows with whole vectors. */
#include <math.h>

#include "base/size.h"
#include "ops/resize/resize.h"

/* A work-group of so many elements is worth its launch; of so many more, finding taps no longer counts. */
#define GROUP_ELEMENTS 16384
#define MOST_ELEMENTS 131072
#define GROUPS_A_UNIT 8

/* The most loop iterations of a work-item with so many pieces, each of this tile and of so many times LANES lines. */
static double iterations(const struct capabilities *caps, const resize_args *args, double tile, double bands,
                         double pieces)
{
    const double lanes = caps->lanes, rows = args->rows.taps, columns = args->cols.taps;
    const double span = (tile * (double)args->cols.ratio + columns + 2) * args->depth, shuffles = 12 * lanes;
    const double load = (span / lanes + columns) * (1 + lanes * (3 + rows * (2 + lanes)) + shuffles);
    const double store = (tile / lanes + 1) * (1 + lanes * (3 + columns + lanes) + shuffles);
    const double widened =
        args->rows.source < args->rows.target ? lanes * (2 * rows + (tile / lanes + 1) * (rows + lanes)) : 0;
    return pieces * (1 + (tile + lanes) * (2 + 2 * columns) +
                     (bands + (widened > 0)) * (lanes * (2 + 2 * rows) + load + 2 * span + store + widened));
}

/* Whether the kernel has room for pieces of `tile` elements of planes of `depth` channels. */
static bool has_room(const struct capabilities *caps, const resize_args *args, int depth, int tile)
{
    const double lanes = caps->lanes, taps = args->cols.taps, places = fmax(taps, 2);
    /* A piece may begin within a pixel. */
    const double pixels = depth == 1 ? tile : depth < args->channels ? 1 : ceil((double)tile / depth) + 1;
    const double columns = ceil((pixels - 1) * (double)args->cols.ratio) + 1 + taps;
    return ceil(tile / lanes) * lanes * places <= RESIZE_WEIGHTS && columns * depth <= RESIZE_SPAN;
}

/* Sets depth and tile, or returns false. */
static bool choose_piece(const struct capabilities *caps, const struct resize_problem *problem, resize_args *args)
{
    const int lanes = (int)caps->lanes;
    const double most = problem->joined ? (double)args->cols.target * args->channels : args->cols.target;
    /* All channels of a pixel together, some of them, and one. */
    for (int way = problem->joined ? args->channels <= RESIZE_TILE ? 0 : 1 : 2; way < 3; way++)
        for (int tile = RESIZE_TILE; tile > 0; tile = tile > lanes ? tile - lanes : tile / 2) {
            args->depth = way == 0 ? args->channels : way == 1 ? tile : 1;
            args->tile = tile;
            if ((way != 1 || (tile >= lanes && tile < args->channels)) && has_room(caps, args, args->depth, tile) &&
                capabilities_allow_loops(caps, iterations(caps, args, fmin(tile, most), 1, 1)))
                return true;
        }
    return false;
}

static void shape(const struct resize_plan *plan, const struct resize_problem *problem, size_t batch, resize_args *args)
{
    const struct capabilities *caps = &plan->base.context->device.caps;
    choose_piece(caps, problem, args); /* refuse has asked */
    const size_t lanes = caps->lanes,
                 tile = size_min((size_t)args->tile, (size_t)args->cols.target * (size_t)args->depth);
    const double elements = (double)batch * args->rows.target * args->cols.target * args->channels;
    const double share = elements / (GROUPS_A_UNIT * (double)caps->info.compute_units);
    const double group = share < GROUP_ELEMENTS ? GROUP_ELEMENTS : share > MOST_ELEMENTS ? MOST_ELEMENTS : share;
    size_t bands = size_max(1, (size_t)(group / (double)(tile * lanes)));
    while (bands > 1 && !capabilities_allow_loops(caps, iterations(caps, args, (double)tile, (double)bands, 1)))
        bands /= 2;
    args->band = (int)(bands * lanes);
}

static const char *refuse(const struct offer *offer)
{
    const struct resize_problem *problem = offer->problem;
    resize_args args = problem->kernel;
    const char *reason = NULL;
    if (!problem->empty && (args.rows.taps > RESIZE_ROWS || !choose_piece(offer->caps, problem, &args)))
        reason = offer->caps->quirks & QUIRK_LOOPS_STOP ? LOOPS_REASON : "an element of y has too many taps";
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    struct resize_plan *plan = (struct resize_plan *)base;
    plan->items = 1;
    plan->shape = shape;
    return resize_add_kernel(plan, "resize/cpu.cl", "resize_cpu", base->context->device.caps.lanes);
}

const struct solver resize_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
