/* Resizing on CPU devices: one work-item a work-group walks tiles of columns with whole vectors, row by row. */
#include <math.h>

#include "base/size.h"
#include "ops/resize/resize.h"

#define TILE 256 /* the kernel's */

/* A work-group of so many elements is worth its launch, and a tile of so many the search for its columns. */
#define GROUP_ELEMENTS 65536

/* The most loop iterations of a work-item with so many pieces, each of these elements and rows. */
static double iterations(const struct capabilities *caps, const struct resize_problem *problem, double tile, double band,
                         double pieces)
{
    const double rows = problem->kernel.rows.taps, columns = problem->kernel.cols.taps;
    const double vectors = tile / caps->lanes + 1, widen = vectors * (1 + columns * (1 + caps->lanes));
    const double row = rows * (2 + widen + vectors) + vectors * (2 + caps->lanes);
    return pieces * (1 + (tile + caps->lanes) * (1 + columns) + vectors + band * row);
}

/* A row of x, of all channels if they are in a run, reaches no further than an int. */
static bool row_is_short(const struct resize_problem *problem)
{
    const clattn_layout *x = &problem->desc.x;
    const double columns = ((double)x->extent[3] - 1) * fabs((double)x->stride[3]);
    const double channels = (problem->kernel.run_channels - 1.0) * fabs((double)x->stride[1]);
    return columns + channels < 0x1p30 && fabs((double)x->stride[3]) < 0x1p30;
}

static const char *refuse(const struct offer *offer)
{
    const struct resize_problem *problem = offer->problem;
    const double tile = problem->kernel.run < 16 ? problem->kernel.run : 16;
    const char *reason = refuse_loops(offer->caps, iterations(offer->caps, problem, tile, 1, 1));
    reason = reason || problem->empty || row_is_short(problem) ? reason : "a row of x reaches over 2^30 elements";
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    struct resize_plan *plan = (struct resize_plan *)base;
    const struct resize_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const size_t run = size_max(1, (size_t)problem->kernel.run), rows = size_max(1, (size_t)problem->kernel.rows.target);
    size_t tile = TILE;
    while (tile > 16 && !capabilities_allow_loops(caps, iterations(caps, problem, (double)size_min(run, tile), 1, 1)))
        tile /= 2;
    const size_t width = size_min(run, tile);
    size_t band = size_min(rows, size_max(1, GROUP_ELEMENTS / width));
    while (band > 1 && !capabilities_allow_loops(caps, iterations(caps, problem, (double)width, (double)band, 1)))
        band /= 2;
    size_t pieces = size_max(1, GROUP_ELEMENTS / (width * band));
    while (pieces > 1 &&
           !capabilities_allow_loops(caps, iterations(caps, problem, (double)width, (double)band, (double)pieces)))
        pieces /= 2;
    plan->tile = (int)tile;
    plan->band = (int)band;
    plan->pieces_per_group = pieces;
    return resize_add_kernel(plan, "resize/cpu.cl", "resize_cpu", caps->lanes, 1);
}

const struct solver resize_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
