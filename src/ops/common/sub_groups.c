#include "ops/common/sub_groups.h"

#include "program/defines.h"

struct sub_groups sub_groups_none(void)
{
    return (struct sub_groups){SUB_GROUPS_NONE, 1};
}

struct sub_groups sub_groups_emulated(void)
{
    return (struct sub_groups){SUB_GROUPS_EMULATED, EMULATED_SUB_GROUP};
}

struct sub_groups sub_groups_of(const clattn_context *context, size_t wanted)
{
    const struct capabilities *caps = &context->device.caps;
    if (caps->sub_groups == SUB_GROUPS_NONE)
        return sub_groups_none();
    size_t size = wanted;
    while (size > 1 && !(caps->sub_group_sizes & size))
        size /= 2;
    if (size == 1)
        for (size = wanted; !(caps->sub_group_sizes & size);)
            size *= 2;
    return (struct sub_groups){caps->sub_groups, size};
}

const char *refuse_sub_groups(const clattn_context *context, bool forced)
{
    const struct capabilities *caps = &context->device.caps;
    if (caps->sub_groups == SUB_GROUPS_NONE)
        return caps->no_sub_groups;
    if (!forced && !context->programs.checks)
        return "shuffles have never run on a GPU, and the self-check that would tell is off";
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
        strbuf_printf(&plan->explain, "    it reduces in sub-groups of %zu by %s, which has never run on a GPU\n",
                      groups->size, sub_group_means_name(groups->means));
}
