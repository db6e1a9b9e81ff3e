/* Attention's plans keep within their cost, and choose how many heads an item of decoding takes.
 *
 * Holds: that neither kernels nor workspace grow with S_q * S_k, forward and backward. */
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"
#include "support/attention/engine_cases.h"
#include "support/core/inject.h"

/* ---- what a plan costs ---- */

static const attention_case costs[] = {
    {"cost of a plan", ALL, .dim = {2, 4, 2, 64, 64, 8, 8}},
    {"cost of many features", ALL, .dim = {2, 4, 2, 64, 64, 8, 8}, .softcap = 2, .bias = MASK_FINITE, .alibi = 2,
     .mask = MASK_BOOL, .sinks = true, .causal = true, AT(BOTTOM_RIGHT, 0), .windowed = true, .left = 30, .right = -1,
     .dropout = 0.5f, .entropy = true, .list = {.queries = LIST(0, 0), .keys = LIST(0, 0)}},
    {"cost of int8 pages", ALL, .dim = {2, 4, 2, 64, 64, 8, 8},
     .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8}, .key_groups = 2, .value_groups = 1, PAGED(9, 16),
     .list.keys = LIST(0, 0)},
    {"cost of packed queries", ALL, .dim = {2, 4, 2, 64, 64, 8, 8}, .additive = true,
     .list.query_starts = LIST(0, 0, 0)},
};

/* Returns a description whose S_q and S_k are `times` as long.  It is never run, so its layouts may be of any size. */
static clattn_attention_desc lengthened(const clattn_attention_desc *desc, size_t times)
{
    clattn_attention_desc longer = *desc;
    clattn_layout *const rows[] = {&longer.query, &longer.output, &longer.outputs.lse, &longer.outputs.entropy,
                                   &longer.outputs.scores};
    clattn_layout *const pairs[] = {&longer.mask, &longer.bias, &longer.outputs.scores};
    int64_t apart = 1 << 12;

    for (size_t n = 0; n < COUNT_OF(rows); n++) {
        rows[n]->extent[2] *= times;
        for (int d = rows[n]->rank - 1; d >= 0; d--) {
            rows[n]->stride[d] = d == 3 ? 1 : d == 2 ? apart : rows[n]->stride[d + 1] * (int64_t)rows[n]->extent[d + 1];
        }
    }
    for (size_t n = 0; n < COUNT_OF(pairs); n++) {
        pairs[n]->extent[3] *= times;
        pairs[n]->extent[2] *= pairs[n] == &longer.outputs.scores ? 1 : times;
    }
    if (desc->cache.kind == CLATTN_CACHE_KIND_PAGED) {
        longer.cache.block_table.extent[1] *= times;
    } else {
        longer.key.extent[2] *= times;
        longer.value.extent[2] *= times;
    }
    return longer;
}

static void read_cost(const clattn_attention_desc *desc, const char *solver, size_t *kernels, size_t *workspace)
{
    clattn_plan *plan = operator_plan(&attention_operator, desc, solver);

    *kernels = clattn_plan_launch_count(plan);
    *workspace = clattn_plan_workspace_size(plan);
    clattn_plan_release(&plan);
}

/* Neither launches nor workspace grow with S_q * S_k; asking for the scores adds one launch and a row's workspace. */
static void plan_cost(const void *which, const char *solver)
{
    const attention_case *test = which;
    const size_t times = 32, keys = test->dim.keys * times;
    test_job job = {0};
    clattn_attention_desc desc = attention_prepare(&job, test, 1);

    for (int mode = CLATTN_SCORES_MODE_RAW - 1; mode <= CLATTN_SCORES_MODE_PROBABILITIES; mode += 2) {
        size_t kernels[2], workspace[2];
        bool given = mode >= CLATTN_SCORES_MODE_RAW;

        if (attention_refuses(test, solver) || (given && (test->list.query_starts || level() == LEVEL_TINY))) {
            break;
        }
        desc.outputs.scores =
            given ? clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){2, 4, 64, 64}) : (clattn_layout){0};
        desc.outputs.scores_mode = given ? mode : 0;
        desc.outputs.lse = (clattn_layout){0};
        read_cost(&desc, solver, &kernels[0], &workspace[0]);
        clattn_attention_desc longer = lengthened(&desc, times);
        read_cost(&longer, solver, &kernels[1], &workspace[1]);
        size_t rows = test->dim.batch * test->dim.heads * longer.query.extent[2];
        assert_true(kernels[1] <= kernels[0] + 2); /* split keys add packing and merging */
        assert_true(kernels[1] <= (given ? 5 : 4));
        assert_true(workspace[1] <= workspace[0] * 2 * times + 65536); /* linear */
        assert_true(workspace[1] < rows * keys * sizeof(float) / 4);
    }
    job_release(&job);
}

/* ---- what a plan of the backward direction costs ---- */

struct backward_cost {
    const char *solver;
    unsigned levels;
    clattn_dtype dtype;
    bool with_pairs; /* gradients of a mask and a bias, which are as large as their arrays */
};

static const struct backward_cost backward_costs[] = {
    {"generic", ALL, CLATTN_DTYPE_F32, true},
    {"cpu", ALL, CLATTN_DTYPE_F32, false},
    {"cpu-bf16", ALL, CLATTN_DTYPE_BF16, false},
    {"cpu-amx", ALL, CLATTN_DTYPE_F32, false},
    /* Kernels that take a CPU's compiler ten seconds and more. */
    {"tile", BIG, CLATTN_DTYPE_F32, true},
    {"emulated-mma", BIG, CLATTN_DTYPE_BF16, true},
};

static clattn_attention_desc backward_of_length(const struct backward_cost *test, size_t length)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.query = desc.output = desc.gradients.query = desc.gradients.output =
        clattn_layout_bhsd(test->dtype, 2, 4, length, 8);
    desc.key = desc.value = desc.gradients.key = desc.gradients.value =
        clattn_layout_bhsd(test->dtype, 2, 2, length, 8);
    desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 4, length});
    if (test->with_pairs) {
        desc.mask = desc.bias = desc.gradients.mask = desc.gradients.bias =
            clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 4, length, length);
    }
    return desc;
}

/* Sequences twice as long take the same launches, and at most twice the workspace.  They are so long that even 1,024 compute units
 * have parts of the queries of their own, whose number then grows no further. */
static void backward_plan_cost(const void *which, const char *solver)
{
    const size_t length = 65536;
    size_t kernels[2], workspace[2];

    if (device_breaks(solver)) {
        skip();
    }
    for (size_t n = 0; n < 2; n++) {
        const clattn_attention_desc desc = backward_of_length(which, length << n);
        read_cost(&desc, solver, &kernels[n], &workspace[n]);
    }
    assert_true(workspace[0] > 0 && workspace[1] <= 2 * workspace[0] + 4096);
    assert_int_equal(kernels[0], kernels[1]);
}

/* ---- heads in turn ---- */

/* One token of 8 heads runs by attention_cpu_decode; a paged cache has the rows of all heads close together. */
static const attention_case paged_token = {"pages", ALL, PAGED(8, 16), .dim = {1, 8, 8, 1, 128, 64, 64}};
static const attention_case plain_token = {"plain cache", ALL, .dim = {1, 8, 8, 1, 128, 64, 64}};

/* Returns how many work-items share the 8 heads.  The plan is for so many batch items that taking some heads in turn
 * leaves no compute unit idle and splits no keys; the launch is for one. */
static size_t items_for_heads(attention_case test, const char *solver)
{
    clattn_device_info info = {.size = sizeof info};
    size_t grid[3];
    test_job job = {0};

    assert_status(device_context(), clattn_context_device_info(device_context(), &info), CLATTN_SUCCESS);
    test.dim.batch = 2 * (size_t)info.compute_units;
    test.shorter = true;
    test.actual.batch = test.actual.queries = 1;
    test.actual.keys = test.dim.keys;
    assert_true(attention_job(&job, &test, solver, 1));
    inject_watch("attention_cpu_decode");
    job_run(&job, NULL);
    assert_true(inject_grid(grid));
    inject_watch(NULL);
    assert_int_equal(grid[2], 1); /* the keys are not split */
    attention_judge(&job, &test);
    job_release(&job);
    return grid[1];
}

static void heads_in_turn_of_pages(const void *test, const char *solver)
{
    assert_in_range(items_for_heads(*(const attention_case *)test, solver), 1, 7);
}

static void one_head_of_a_plain_cache(const void *test, const char *solver)
{
    assert_int_equal(items_for_heads(*(const attention_case *)test, solver), 8);
}

int main(int argc, char **argv)
{
    device_use_functions(inject_get_proc);
    attention_add_check(plan_cost, costs, COUNT_OF(costs));
    for (size_t n = 0; n < COUNT_OF(backward_costs); n++) {
        const char *solver = backward_costs[n].solver;
        const bool is_offered = strcmp(solver, "cpu-amx") != 0 || !emulates_amx_too_slowly();
        if (is_offered && backward_costs[n].levels & level()) {
            suite_add_case(backward_plan_cost, &backward_costs[n], solver, "attention backward %s: cost of a plan",
                           solver);
        }
    }
    suite_add_case(heads_in_turn_of_pages, &paged_token, "cpu", "attention cpu: several heads in turn from pages");
    suite_add_case(one_head_of_a_plain_cache, &plain_token, "cpu", "attention cpu: one head from a plain cache");
    return suite_run("attention plans", argc, argv);
}
