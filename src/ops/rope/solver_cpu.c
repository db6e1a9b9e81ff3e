/* Rotary position embedding on CPU devices: one work-item a work-group walks places with whole vectors of
 * pairs. */
#include "base/size.h"
#include "ops/rope/rope.h"
#include "program/defines.h"

/* A work-group of so many elements is worth its launch, and they stay in a core's cache. */
#define GROUP_ELEMENTS 16384

/* The most loop iterations of a work-item with so many places. */
static double iterations(const struct capabilities *caps, const struct rope_problem *problem, size_t places)
{
    double lanes = caps->lanes, heads = problem->kernel.heads;
    double vectors = problem->kernel.pairs / lanes + 1,
           tail = (problem->kernel.size - 2.0 * problem->kernel.pairs) / lanes + 1;
    double each = 1 + 4 * lanes; /* for a vector that is moved element by element, as each row's last one may be */
    return vectors * (lanes * (ROPE_RATIOS + 1) + (double)places * (1 + 2 * lanes + heads * each)) +
           (double)places * heads * tail * (1 + 2 * lanes);
}

static size_t places_of(const struct capabilities *caps, const struct rope_problem *problem)
{
    double elements = (double)problem->kernel.heads * problem->kernel.size;
    size_t places = size_max(1, (size_t)(GROUP_ELEMENTS / (elements < 1 ? 1 : elements)));
    while (places > 1 && !capabilities_allow_loops(caps, iterations(caps, problem, places)))
        places /= 2;
    return places;
}

static const char *refuse(const struct offer *offer)
{
    const struct capabilities *caps = offer->caps;
    const char *reason = refuse_loops(caps, iterations(caps, offer->problem, 1));
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    struct rope_plan *plan = (struct rope_plan *)base;
    struct strbuf options = {0};
    rope_defines(&plan->problem, &options);
    define_int(&options, "LANES", base->context->device.caps.lanes);
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "INTERLEAVED", plan->problem.desc.pairing == CLATTN_ROPE_PAIRING_INTERLEAVED);
    plan->places_per_group = places_of(&base->context->device.caps, &plan->problem);
    return rope_add_kernel(plan, "rope/cpu.cl", "rope_cpu", &options, one);
}

const struct solver rope_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
