/* Reductions in sub-groups use the device's own sub-groups if it has them, and sub-groups emulated in local memory
 * everywhere; GPUs on paper tell which have which.
 *
 * Holds: what tests/ops/softmax.c and tests/ops/norm.c hold of a row, for rows a little shorter and longer than a
 * sub-group, a work-group and what items keep; by what means each GPU has sub-groups; that without a self-check only a
 * caller who names the solver gets them; and that the planner falls back to local memory if the self-check finds them
 * wrong. tests/plan/self_check_engines.c holds that the self-check notices a value from the wrong item. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "offline/paper.h"
#include "support/ops/norm_case.h"
#include "support/ops/softmax_case.h"

#define DIMS(n, ...) .rank = (n), .extent = {__VA_ARGS__}
#define FACTOR(n, ...) \
    { \
        .rank = (n), .extent = { __VA_ARGS__ } \
    }
#define BOTH(n, ...) .scale = FACTOR(n, __VA_ARGS__), .bias = FACTOR(n, __VA_ARGS__)

/* A program is determined by the storage types, the mask's type, how many items a row takes and how many elements each
 * of them keeps.  Rows that need no other length have 33 to 61 elements, so that they share programs. */
static const softmax_case softmax_cases[] = {
    {"one element", ALL, DIMS(2, 3, 1)},
    {"fewer than a sub-group", ALL, DIMS(2, 5, 7)},
    {"a sub-group", ALL, DIMS(2, 5, 8)},
    {"a sub-group + 1", ALL, DIMS(2, 5, 9)},
    {"some sub-groups", ALL, DIMS(2, 3, 61)},
    {"work-group - 1", BIG, DIMS(2, 5, 255)},
    {"work-group", BIG, DIMS(2, 5, 256)},
    {"work-group + 1", BIG, DIMS(2, 5, 257)},
    {"as many as are kept", BIG, DIMS(2, 5, 4096)},
    {"more than are kept", BIG, DIMS(2, 5, 4099)},
    {"many rows", BIG, DIMS(2, 1009, 33)},
    {"a long row", BIG, DIMS(1, 65537), .long_loops = true},
    {"logits of 1e4", BIG, DIMS(2, 37, 1031), .spread = 1e4f},
    {"huge logits", BIG, DIMS(2, 37, 131), .spread = 1e37f},
    {"float16, apart", BIG, DIMS(2, 7, 131), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16, .x = FORM_SPREAD},
    {"boolean mask", ALL, DIMS(2, 5, 37), .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {5, 37}},
    {"float mask", BIG, DIMS(2, 5, 37), .mask = MASK_FLOAT, .mask_rank = 2, .mask_extent = {5, 37}},
    {"nothing attended", BIG, DIMS(2, 5, 37), .mask = MASK_INF, .mask_rank = 2, .mask_extent = {5, 37}},
    {"NaN", ALL, DIMS(2, 5, 37), .inject = SOFTMAX_NAN},
    {"+inf", BIG, DIMS(2, 5, 37), .inject = SOFTMAX_INF},
    {"-inf: probability 0", BIG, DIMS(2, 5, 37), .inject = SOFTMAX_MINUS_INF},
    {"-inf alone: NaN", BIG, DIMS(2, 5, 37), .inject = SOFTMAX_EMPTY},
    {"in place", BIG, DIMS(2, 5, 4099), .in_place = true},
    {"some sub-groups", ALL, DIMS(2, 3, 61), .backward = true},
    {"more than are kept", BIG, DIMS(2, 5, 4099), .backward = true},
};

static const norm_case norm_cases[] = {
    {"one element", ALL, DIMS(2, 3, 1), BOTH(1, 1)},
    {"fewer than a sub-group", ALL, DIMS(2, 5, 7), BOTH(1, 7)},
    {"some sub-groups", ALL, DIMS(2, 3, 61), .rms = true, .scale = FACTOR(1, 61)},
    {"work-group - 1", BIG, DIMS(2, 5, 255), BOTH(1, 255)},
    {"work-group", BIG, DIMS(2, 5, 256), BOTH(1, 256), .outputs = NORM_MEAN | NORM_INVERSE},
    {"work-group + 1", BIG, DIMS(2, 5, 257), .rms = true, .scale = FACTOR(1, 257)},
    {"more than are kept", BIG, DIMS(2, 11, 4099), BOTH(1, 4099)},
    {"many rows", BIG, DIMS(2, 1009, 33), BOTH(1, 33)},
    {"a long row", BIG, DIMS(1, 65537), .long_loops = true},
    {"offset 1e4", BIG, DIMS(2, 37, 135), .offset = 1e4f, .spread = 1, .outputs = NORM_MEAN | NORM_INVERSE},
    {"two axes", BIG, DIMS(3, 3, 5, 19), .axes = 2, .x = FORM_PADDED},
    {"NaN", ALL, DIMS(2, 5, 37), .inject = NORM_NAN, .outputs = NORM_MEAN | NORM_INVERSE},
    {"-inf", BIG, DIMS(2, 5, 37), .inject = NORM_INF},
    {"overflow", BIG, DIMS(2, 5, 37), .inject = NORM_OVERFLOW},
    {"constant", BIG, DIMS(2, 5, 37), .inject = NORM_CONSTANT, BOTH(1, 37)},
    {"in place", BIG, DIMS(2, 5, 300), .in_place = true, BOTH(1, 300)},
    {"gradients", ALL, DIMS(2, 3, 61), BOTH(1, 61), .gradients = NORM_DX | NORM_DSCALE | NORM_DBIAS},
    {"gradients", BIG, DIMS(2, 11, 4099), BOTH(1, 4099), .gradients = NORM_DX | NORM_DSCALE | NORM_DBIAS},
};

/* ---- whose sub-groups ---- */

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
    {"dg2", "sub-groups of 16 by cl_intel_subgroups" NEVER},
};

enum { SOFTMAX, NORM, OPERATORS };
static const char *const names[OPERATORS] = {"softmax", "norm"};

static clattn_status tuned_plan_of(clattn_context *context, int which, const char *solver, const char *tuning,
                                   clattn_plan **plan)
{
    const clattn_plan_options options = {.size = sizeof options, .solver = solver, .tuning = tuning};
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_norm_desc norm = CLATTN_NORM_DESC_INIT;
    softmax.x = softmax.y = norm.x = norm.y =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){64, 1024});
    return which == SOFTMAX ? clattn_softmax_plan_create(context, &softmax, &options, plan)
                            : clattn_norm_plan_create(context, &norm, &options, plan);
}

static clattn_status plan_of(clattn_context *context, int which, const char *solver, clattn_plan **plan)
{
    return tuned_plan_of(context, which, solver, NULL, plan);
}

static void gpus(void **state)
{
    char line[256];
    (void)state;
    for (size_t i = 0; i < target_count; i++) {
        assert_string_equal(targets[i].name, known[i].target);
        for (int which = 0; which < OPERATORS; which++) {
            clattn_plan *plan = NULL;
            /* Without a self-check only a caller who names the solver gets sub-groups. */
            clattn_context *context = paper_context(&targets[i], false);
            assert_int_equal(plan_of(context, which, "sub-group", &plan), CLATTN_SUCCESS);
            snprintf(line, sizeof line, "it reduces in %s\n", known[i].means);
            assert_contains(clattn_plan_explain(plan), line);
            clattn_plan_release(&plan);
            assert_int_equal(plan_of(context, which, NULL, &plan), CLATTN_SUCCESS);
            assert_string_equal(clattn_plan_solver(plan), "tile");
            assert_contains(clattn_plan_explain(plan),
                            "sub-group: refused, the planner takes shuffles only behind the self-check, which is off");
            assert_contains(clattn_plan_explain(plan), "it reduces through local memory");
            assert_null(strstr(clattn_plan_explain(plan), "emulated"));
            clattn_plan_release(&plan);
            clattn_context_release(&context);

            /* With a self-check sub-groups are tried first and found wrong, and then local memory is tried. */
            context = paper_context(&targets[i], true);
            assert_int_equal(plan_of(context, which, NULL, &plan), CLATTN_ERROR_MISCOMPILED);
            snprintf(line, sizeof line, "%s: solver sub-group failed, trying the next: %s_tile disagrees", names[which],
                     names[which]);
            assert_contains(paper_log, line);
            snprintf(line, sizeof line, "%s: solver tile failed, trying the next: %s_tile disagrees", names[which],
                     names[which]);
            assert_contains(paper_log, line);
            clattn_context_release(&context);
        }
    }
}

static void old_nvidia(offline_target *target)
{
    target->capability = 6;
}

static void of_no_known_width(offline_target *target)
{
    target->wavefront = 0;
}

static void without_intels_extension(offline_target *target)
{
    target->extensions = "cl_khr_subgroups cl_khr_fp16";
}

static void without_any(offline_target *target)
{
    target->extensions = "cl_khr_fp16";
    target->sub_groups_per_group = 0;
}

static void without_sizes(offline_target *target)
{
    target->extensions = "cl_intel_subgroups cl_khr_fp16";
}

static void with_odd_sizes(offline_target *target)
{
    target->sub_groups[0] = 24;
    target->sub_groups[1] = 128;
    target->sub_groups[2] = 0;
}

static const struct refusal {
    size_t target;
    void (*change)(offline_target *target);
    const char *reason;
} refused[] = {
    {0, old_nvidia, "its compute capability is below 7.0, from which shfl.sync is used"},
    {1, paper_hide_capability, "the driver does not tell the compute capability"},
    {0, paper_change_driver, "the device has no sub-groups"},
    {3, paper_change_driver, "it has no cl_intel_subgroups, by which alone OpenCL C 1.2 has sub-groups"},
    {4, of_no_known_width, "its wavefronts have neither 32 nor 64 items"},
    {5, without_intels_extension, "it has no cl_intel_subgroups, by which alone OpenCL C 1.2 has sub-groups"},
    {5, without_any, "the device has no sub-groups"},
    {5, without_sizes, "the driver does not tell its sub-groups' sizes"},
    {5, with_odd_sizes, "none of its sub-groups' sizes is a power of two from 2 to 64"},
};

static void refusals(void **state)
{
    char text[512];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        offline_target target = targets[refused[i].target];
        clattn_plan *plan = NULL;
        refused[i].change(&target);
        clattn_context *context = paper_context(&target, false);
        for (int which = 0; which < OPERATORS; which++) {
            assert_int_equal(plan_of(context, which, "sub-group", &plan), CLATTN_ERROR_UNSUPPORTED);
            clattn_context_message(context, text, sizeof text);
            assert_contains(text, refused[i].reason);
            assert_int_equal(plan_of(context, which, NULL, &plan), CLATTN_SUCCESS);
            assert_string_equal(clattn_plan_solver(plan), "tile");
            snprintf(text, sizeof text, "  sub-group: refused, %s", refused[i].reason);
            assert_contains(clattn_plan_explain(plan), text);
            clattn_plan_release(&plan);
        }
        clattn_context_release(&context);
    }
}

/* A work-group must consist of whole sub-groups, even if tuning asks for another size. */
static void given_work_groups(void **state)
{
    (void)state;
    for (int which = 0; which < OPERATORS; which++) {
        char text[512];
        clattn_plan *plan = NULL;
        for (int i = 0; i < 2; i++) {
            clattn_context *context = paper_context(&targets[3], false);
            assert_int_equal(tuned_plan_of(context, which, "sub-group", i ? "items=64" : "items=32", &plan),
                             i ? CLATTN_SUCCESS : CLATTN_ERROR_UNSUPPORTED);
            if (!i) {
                clattn_context_message(context, text, sizeof text);
                assert_contains(text, "a work-group of 32 items is no whole sub-group of 64");
            }
            clattn_plan_release(&plan);
            clattn_context_release(&context);
        }
    }
}

int main(int argc, char **argv)
{
    static const char *const solvers[] = {"emulated-sub-group", "sub-group"};
    for (size_t i = 0; i < COUNT_OF(solvers); i++) {
        softmax_add_by(solvers[i], softmax_cases, COUNT_OF(softmax_cases));
        norm_add_by(solvers[i], norm_cases, COUNT_OF(norm_cases));
    }
    suite_add(gpus, "sub-groups: of GPUs on paper");
    suite_add(refusals, "sub-groups: refusals");
    suite_add(given_work_groups, "sub-groups: work-groups are whole ones");
    return suite_run("sub_groups", argc, argv);
}
