/* Dropout on CPU devices: one work-item a work-group walks pieces with whole vectors. */
#include "base/size.h"
#include "ops/common/arrays.h"
#include "ops/dropout/dropout.h"

/* A work-group of so many elements is worth its launch. */
#define GROUP_ELEMENTS 16384

/* The most loop iterations of a work-item with so many elements in so many pieces. */
static double iterations(const struct capabilities *caps, double elements, double pieces, bool unit)
{
    const double blocks = elements / (4.0 * caps->lanes) + 2 * pieces, vectors = elements / caps->lanes + 2 * pieces;
    return pieces * 5 + blocks * 11 + vectors * (unit ? 1 : 1 + 3.0 * caps->lanes) + pieces * 6 * caps->lanes;
}

/* The largest chunk that the device lets an item loop over. */
static int chunk_of(const struct capabilities *caps, const struct dropout_problem *problem)
{
    int chunk = GROUP_ELEMENTS;
    while (chunk > 256 && !capabilities_allow_loops(caps, iterations(caps, chunk, 1, problem->unit_columns)))
        chunk /= 2;
    return chunk;
}

static const char *refuse(const struct offer *offer)
{
    return refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    struct dropout_plan *plan = (struct dropout_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    plan->chunk = chunk_of(caps, &plan->problem);
    double columns = (double)size_max(1, size_min((size_t)plan->problem.columns, (size_t)plan->chunk));
    plan->pieces_per_group = size_max(1, (size_t)(GROUP_ELEMENTS / columns));
    while (plan->pieces_per_group > 1 &&
           !capabilities_allow_loops(caps, iterations(caps, columns * (double)plan->pieces_per_group,
                                                      (double)plan->pieces_per_group, plan->problem.unit_columns)))
        plan->pieces_per_group /= 2;
    return dropout_add_kernel(plan, "dropout/cpu.cl", "dropout_cpu", caps->lanes, 1);
}

const struct solver dropout_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
