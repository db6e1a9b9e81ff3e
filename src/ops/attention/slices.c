/* Launches that stay short: a desktop's screen waits while a kernel runs, and a watchdog may end it. */
#include "base/size.h"
#include "ops/attention/launch.h"

/* Floating-point operations a second that the solver reaches at least, from what the device says of itself. */
static double speed(const struct attention_plan *plan)
{
    const struct capabilities *caps = &plan->base.context->device.caps;
    double units = caps->info.compute_units, clock = caps->info.clock_mhz ? caps->info.clock_mhz : 500;
    double lanes = capabilities_on_cpu(caps) ? caps->lanes : 32;
    return size_max(1, (size_t)units) * clock * 1e6 * lanes * 2 * plan->efficiency;
}

/* Keys that a query attends at the most. */
static double attended(const struct attention_problem *problem, size_t keys)
{
    const clattn_attention_desc *desc = &problem->desc;
    double count = (double)keys;
    if (desc->window.explicit_left && (desc->window.explicit_right || desc->causal)) {
        double right = desc->causal ? 0 : (double)desc->window.right;
        double width = (double)desc->window.left + right + 1 + 64;
        count = count < width ? count : width;
    }
    return count;
}

struct attention_slices attention_slice(const struct attention_plan *plan, const struct attention_problem *problem,
                                        size_t batch, size_t queries, size_t keys)
{
    struct attention_slices slices = {batch, problem->heads, queries};
    if (!problem->desc.launch.max_ms || !batch || !problem->heads || !queries)
        return slices;
    double row = attended(problem, size_min(keys, problem->key_length)) * 2 * (double)(problem->d_k + problem->d_v) + 1;
    double rows = problem->desc.launch.max_ms * 1e-3 * speed(plan) / row;
    double head = (double)queries, item = head * (double)problem->heads;
    size_t step = size_max(1, plan->queries_per_group);
    if (rows >= item * (double)batch)
        return slices;
    if (rows >= item) {
        slices.batch = size_max(1, (size_t)(rows / item));
        return slices;
    }
    slices.batch = 1;
    if (rows >= head) {
        slices.heads = size_max(1, (size_t)(rows / head));
        return slices;
    }
    slices.heads = 1;
    slices.queries = size_min(queries, size_max(step, (size_t)rows / step * step));
    return slices;
}

size_t attention_slice_count(const struct attention_slices *slices, const attention_args *whole)
{
    return divide_up((size_t)whole->batch, slices->batch) * divide_up((size_t)whole->launch_heads, slices->heads) *
           divide_up((size_t)whole->launch_queries, slices->queries);
}

bool attention_next_slice(const struct attention_slices *slices, const attention_args *whole, size_t *position,
                          attention_args *a)
{
    size_t heads = divide_up((size_t)whole->launch_heads, slices->heads);
    size_t blocks = divide_up((size_t)whole->launch_queries, slices->queries);
    size_t block = *position % blocks, head = *position / blocks % heads, item = *position / blocks / heads;
    size_t first = item * slices->batch, first_head = head * slices->heads, first_query = block * slices->queries;
    if (first >= (size_t)whole->batch)
        return false;
    *a = *whole;
    a->first_batch = (int)first;
    a->first_head = (int)first_head;
    a->first_query = (int)first_query;
    a->batch = (int)size_min(slices->batch, (size_t)whole->batch - first);
    a->launch_heads = (int)size_min(slices->heads, (size_t)whole->launch_heads - first_head);
    a->launch_queries = (int)size_min(slices->queries, (size_t)whole->launch_queries - first_query);
    ++*position;
    return true;
}
