#include "ops/common/sub_groups.h"

#include "program/defines.h"

struct sub_groups sub_groups_for(const clattn_context *context, const struct solver *solver, size_t wanted)
{
    const struct capabilities *caps = &context->device.caps;
    if (solver->variant == REDUCE_EMULATED)
        return (struct sub_groups){SUB_GROUPS_EMULATED, EMULATED_SUB_GROUP};
    if (solver->variant == REDUCE_LOCAL_MEMORY || caps->sub_groups == SUB_GROUPS_NONE)
        return (struct sub_groups){SUB_GROUPS_NONE, 1};
    size_t size = wanted;
    while (size > 1 && !(caps->sub_group_sizes & size))
        size /= 2;
    if (size == 1)
        for (size = wanted; !(caps->sub_group_sizes & size);)
            size *= 2;
    return (struct sub_groups){caps->sub_groups, size};
}

const char *refuse_sub_groups(const struct offer *offer)
{
    if (offer->solver->variant != REDUCE_SUB_GROUPS)
        return NULL;
    if (offer->caps->sub_groups == SUB_GROUPS_NONE)
        return offer->caps->no_sub_groups;
    if (!offer->forced && !offer->context->programs.checks)
        return "the planner takes shuffles only behind the self-check, which is off";
    return NULL;
}

void sub_groups_define(const struct sub_groups *groups, struct strbuf *options)
{
    if (groups->means == SUB_GROUPS_NONE)
        return;
    define_int(options, "SUB_GROUPS", groups->means);
    define_int(options, "SUB_GROUP_SIZE", (long long)groups->size);
}

void sub_groups_explain(const struct sub_groups *groups, clattn_plan *plan)
{
    if (groups->means == SUB_GROUPS_NONE)
        strbuf_printf(&plan->explain, "    it reduces through local memory\n");
    else
        strbuf_printf(&plan->explain, "    it reduces in sub-groups of %zu by %s%s\n", groups->size,
                      sub_group_means_name(groups->means),
                      sub_group_means_has_run(groups->means) ? "" : ", which has never run on a GPU");
}
