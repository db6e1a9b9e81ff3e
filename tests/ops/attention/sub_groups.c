/* Attention reduces its rows in sub-groups, in the device's own if it has them and in sub-groups emulated in local
 * memory everywhere; GPUs on paper tell which get them.
 *
 * Holds: the accuracy rule, NaN and Inf, what cannot leak, for rows that are in one sub-group and in parts of several;
 * of docs/kernels.md, "Sub-groups", what test_sub_groups.c holds of softmax and norms. */
#include <stdio.h>
#include <string.h>

#include "offline/paper.h"
#include "support/attention/case.h"

/* The fewest queries that get a tile of 16 x 16 items, each row of which has two emulated sub-groups. */
#define TWO_PARTS .dim = {1, 2, 1, 67, 131, 8, 8}

static const attention_case cases[] = {
    {"a row", ALL, LITTLE},
    {"a row of several tiles", BIG, MEDIUM},
    {"rows in two parts", BIG, TWO_PARTS},
    {"rows in two parts, large tiles", BIG, LARGE, .causal = true},
    {"rows in two parts, float16, head size 64", BIG, .dim = {1, 2, 1, 70, 131, 64, 64},
     .type = FOUR(CLATTN_DTYPE_F16)},
    {"one key", BIG, .dim = {2, 4, 2, 35, 1, 8, 8}},
    {"one query, grouped heads", ALL, .dim = {1, 8, 2, 1, 33, 8, 8}},
    {"boolean mask", ALL, LITTLE, .mask = MASK_BOOL},
    {"float mask in two parts", BIG, TWO_PARTS, .mask = MASK_FLOAT},
    {"nothing attended", BIG, MEDIUM, .mask = MASK_FALSE},
    {"causal, before the first key", ALL, LITTLE, .causal = true, AT(EXPLICIT, -3)},
    {"window, softcap, sinks", BIG, TWO_PARTS, WINDOW(9, 20), .softcap = 3, .sinks = true},
    {"lengths of each item", BIG, MEDIUM, .list = {.queries = LIST(0, 35), .keys = LIST(67, 0)},
     .inject = INJECT_MASKED},
    {"dropout", BIG, TWO_PARTS, .dropout = 0.25f, .seed = 5},
    {"entropy", ALL, LITTLE, .entropy = true},
    {"entropy in two parts", BIG, TWO_PARTS, .entropy = true},
    {"logits far apart", BIG, TWO_PARTS, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"a negative scale", BIG, MEDIUM, .scaled = true, .scale = -0.5f},
    {"NaN key", BIG, TWO_PARTS, .inject = INJECT_KEY_NAN},
    {"infinite key", ALL, LITTLE, .inject = INJECT_KEY_INF},
    {"NaN query", BIG, TWO_PARTS, .inject = INJECT_QUERY_NAN},
    {"pages", BIG, .dim = {2, 2, 1, 5, 15, 8, 8}, PAGED(7, 5)},
};

#define NEVER ", which has never run on a GPU"

/* How GPUs on paper reduce in sub-groups. */
static const struct {
    const char *target, *means;
} known[] = {
    {"sm_80", "sub-groups of 32 by NVIDIA's shfl.sync"},
    {"sm_90", "sub-groups of 32 by NVIDIA's shfl.sync"},
    {"gfx1030", "sub-groups of 32 by AMD's ds_bpermute" NEVER},
    {"gfx90a", "sub-groups of 64 by AMD's ds_bpermute" NEVER},
    {"gfx1100", "sub-groups of 32 by AMD's ds_bpermute" NEVER},
    {"dg2", "sub-groups of 8 by cl_intel_subgroups" NEVER},
};

static clattn_status plan_of(const offline_target *target, bool checks, const char *solver, clattn_context **context,
                             clattn_plan **plan)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    *context = paper_context(target, checks);
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 4, 256, 64);
    options.solver = solver;
    return clattn_attention_plan_create(*context, &desc, &options, plan);
}

static void gpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < target_count; i++) {
        clattn_context *context;
        clattn_plan *plan = NULL;
        char line[256];
        assert_string_equal(targets[i].name, known[i].target);
        assert_int_equal(plan_of(&targets[i], false, "sub-group", &context, &plan), CLATTN_SUCCESS);
        snprintf(line, sizeof line, "it reduces in %s\n", known[i].means);
        assert_contains(clattn_plan_explain(plan), line);
        clattn_plan_release(&plan);
        clattn_context_release(&context);

        assert_int_equal(plan_of(&targets[i], false, NULL, &context, &plan), CLATTN_SUCCESS);
        assert_string_equal(clattn_plan_solver(plan), "tile");
        assert_contains(clattn_plan_explain(plan),
                        "sub-group: refused, the planner takes shuffles only behind the self-check, which is off");
        assert_contains(clattn_plan_explain(plan), "it reduces through local memory");
        clattn_plan_release(&plan);
        clattn_context_release(&context);

        assert_int_equal(plan_of(&targets[i], true, "sub-group", &context, &plan), CLATTN_ERROR_MISCOMPILED);
        clattn_context_message(context, line, sizeof line);
        assert_contains(line, "attention_tile disagrees with the reference on this device");
        clattn_context_release(&context);
    }
}

int main(int argc, char **argv)
{
    attention_add_by("emulated-sub-group", cases, COUNT_OF(cases));
    attention_add_by("sub-group", cases, COUNT_OF(cases));
    suite_add(gpus, "attention in sub-groups: of GPUs on paper");
    return suite_run("attention_sub_groups", argc, argv);
}
