/* The self-check judges a program by problems of its own, whatever the plan's sizes and scales are, leaves the caller's
 * workspaces alone, blames the kernel that is wrong and no other, and tells what has been checked from what has not.
 *
 * Holds: of docs/decisions.md, "Kernels are compared before their first use". */
#include <string.h>

#include "support/attention/engine_cases.h"
#include "support/plan/sources.h"

static clattn_attention_desc attention_of(size_t batch, size_t queries, size_t keys)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, batch, 2, queries, 8);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, batch, 2, keys, 8);
    return desc;
}

/* Describes attention of one head, which has so few work-groups that every device splits the keys. */
static clattn_attention_desc split_of(void)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, 8);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 65536, 8);
    return desc;
}

static clattn_attention_desc paged_of(size_t page, size_t blocks)
{
    clattn_attention_desc desc = attention_of(1, 1, page);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 4, 2, page, 8);
    desc.cache.kind = CLATTN_CACHE_KIND_PAGED;
    desc.cache.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[2]){1, blocks});
    return desc;
}

static clattn_status attention_by(clattn_context *context, const char *solver, const clattn_attention_desc *desc)
{
    return operator_makes(context, &attention_operator, desc, solver);
}

#define SOFTMAX_EXP "lib/exp.h", "-LN2_HIGH), x)) * LOG2E", "-LN2_HIGH), x)) * 0.99f * LOG2E"

/* If queries attend one key or none, the exponential cannot be wrong, and the self-check must find the damage with a
 * problem of its own. */
static void a_short_problem_is_checked_like_a_long_one(void **state)
{
    struct sources sources;
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    const struct {
        clattn_attention_desc desc;
        const char *message;
    } cases[] = {
        {attention_of(1, 1, 1), DISAGREES("attention_cpu_decode")},
        {attention_of(1, 24, 1), DISAGREES("attention_cpu")},
        {attention_of(1, 24, 0), DISAGREES("attention_cpu")},
        {attention_of(0, 24, 9), DISAGREES("attention_cpu")},
        {attention_of(1, 0, 9), DISAGREES("attention_cpu_decode")},
        {paged_of(16, 0), DISAGREES("attention_cpu_decode")},
        {paged_of(4096, 1), DISAGREES("attention_cpu_decode")},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_context *context = sources_context(&sources, NULL, true);
        assert_status(context, attention_by(context, "cpu", &cases[i].desc), CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, cases[i].message);
        release_context(&context);
    }
    /* Queries attend a window of one key. */
    clattn_attention_desc desc = attention_of(1, 24, 24);
    desc.window.explicit_left = desc.window.explicit_right = 1;
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, attention_by(context, "cpu", &desc), CLATTN_ERROR_MISCOMPILED);
    release_context(&context);
}

enum { NORM, SOFTMAX, MATMUL, ROPE, NEIGHBOURHOOD, CONV2D, DEPTHWISE };

static clattn_status plan_of(clattn_context *context, int kind, const size_t sizes[3], const char *solver)
{
    clattn_norm_desc norm = CLATTN_NORM_DESC_INIT;
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
    clattn_neighbourhood_desc map = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_conv2d_desc conv2d = CLATTN_CONV2D_DESC_INIT;
    switch (kind) {
    case NORM:
        norm.x = norm.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, sizes);
        return operator_makes(context, &norm_operator, &norm, solver);
    case SOFTMAX:
        softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, sizes);
        return operator_makes(context, &softmax_operator, &softmax, solver);
    case MATMUL:
        matmul.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, sizes);
        matmul.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, sizes + 1);
        matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){sizes[0], sizes[2]});
        return operator_makes(context, &matmul_operator, &matmul, solver);
    case ROPE:
        rope.x = rope.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, sizes[0], sizes[1], sizes[2]);
        return operator_makes(context, &rope_operator, &rope, solver);
    case CONV2D:
    case DEPTHWISE: /* 1 x 1, of sizes[0] channels */
        conv2d.x = conv2d.y =
            clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){1, sizes[0], sizes[1], sizes[2]});
        conv2d.groups = kind == DEPTHWISE ? (int32_t)sizes[0] : 1;
        conv2d.weight = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4,
                                                 (const size_t[4]){sizes[0], kind == DEPTHWISE ? 1 : sizes[0], 1, 1});
        return operator_makes(context, &conv2d_operator, &conv2d, solver);
    default:
        map.query = map.key = map.value = map.output =
            clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (const size_t[5]){1, 1, sizes[0], sizes[1], 8});
        map.window[0] = map.window[1] = (int32_t)sizes[2];
        return operator_makes(context, &neighbourhood_operator, &map, solver);
    }
}

static void other_operators_short_problems_too(void **state)
{
    struct sources sources;
    static const struct {
        int kind;
        size_t sizes[3];
        const char *solver, *file, *from, *to, *message;
    } cases[] = {
        {NORM, {7, 130}, "cpu", "norm/cpu.cl", "* m->factor", "* (m->factor * 1.001f)", DISAGREES("norm_cpu")},
        {NORM,
         {7, 1},
         "cpu",
         "norm/cpu_short.cl",
         "- drift) * *factor",
         "- drift) * (*factor * 1.001f)",
         DISAGREES("norm_cpu_short")},
        {NORM, {7, 0}, "generic", "norm/norm.h", "? 1.0f / sqrt(", "? 1.001f / sqrt(", DISAGREES("norm_generic")},
        {SOFTMAX, {7, 130}, "cpu", SOFTMAX_EXP, DISAGREES("softmax_cpu")},
        {SOFTMAX, {7, 1}, "cpu", SOFTMAX_EXP, DISAGREES("softmax_cpu_short")},
        {SOFTMAX, {7, 0}, "cpu", SOFTMAX_EXP, DISAGREES("softmax_cpu_short")},
        {MATMUL,
         {9, 0, 9},
         "cpu",
         "matmul/cpu/packed.cl",
         "ADD_PRODUCT(x, y[v], acc[r][v])",
         "ADD_PRODUCT(x, y[v], acc[r][v] * 1.001f)",
         DISAGREES("matmul_cpu")},
        {MATMUL,
         {9, 1, 9},
         "cpu",
         "matmul/cpu/packed.cl",
         "ADD_PRODUCT(x, y[v], acc[r][v])",
         "ADD_PRODUCT(x, y[v], acc[r][v] * 1.001f)",
         DISAGREES("matmul_cpu")},
        {ROPE, {1, 1, 2}, "cpu", "rope/rope.h", "#define SIN_3 -1.66", "#define SIN_3 -1.65", DISAGREES("rope_cpu")},
        {ROPE,
         {0, 3, 8},
         "generic",
         "rope/rope.h",
         "#define SIN_3 -1.66",
         "#define SIN_3 -1.65",
         DISAGREES("rope_generic")},
        {NEIGHBOURHOOD, {9, 9, 1}, "cpu", VECTOR_EXP, DISAGREES("neighbourhood_cpu")},
        {NEIGHBOURHOOD, {0, 0, 3}, "cpu", VECTOR_EXP, DISAGREES("neighbourhood_cpu")},
        {CONV2D, {3, 1, 1}, "cpu", "conv2d/cpu.cl", "l * w.across", "l * w.down", DISAGREES("conv2d_cpu")},
        {DEPTHWISE,
         {3, 1, 1},
         "cpu",
         "conv2d/depthwise.cl",
         "b = (floatv)(panel[lane])",
         "b = (floatv)(panel[0])",
         DISAGREES("conv2d_depthwise")},
        {CONV2D, {2, 1, 1}, "generic", "conv2d/generic.cl", "k * a->weight.row", "k", DISAGREES("conv2d_generic")},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sources_damage(&sources, cases[i].file, cases[i].from, cases[i].to);
        clattn_context *context = sources_context(&sources, NULL, true);
        assert_status(context, plan_of(context, cases[i].kind, cases[i].sizes, cases[i].solver),
                      CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, cases[i].message);
        release_context(&context);
    }
}

static clattn_context *plain_context(size_t workspace_limit)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    params.workspace_limit = workspace_limit;
    return new_context_with(&params);
}

/* A scale is passed at run time, so a result that it drowns says nothing about the program. */
static void an_extreme_scale_refuses_no_solver(void **state)
{
    clattn_context *context = plain_context(0);
    static const float scales[] = {3e38f, -3e38f, 1e-44f, 0}, softcaps[] = {1e-44f, 3e38f, 0, 0},
                       dropouts[] = {0, 0, 0.99999994f, 0};
    static const size_t extent[2] = {7, 20};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int explicit_scale = 0; explicit_scale < 2; explicit_scale++) {
            clattn_attention_desc desc = attention_of(1, 24, 24);
            desc.scoring.explicit_scale = explicit_scale;
            desc.scoring.scale = explicit_scale ? scales[i] : 0;
            desc.scoring.softcap = softcaps[i];
            desc.dropout.probability = dropouts[i];
            assert_status(context, attention_by(context, "cpu", &desc), CLATTN_SUCCESS);
            assert_status(context, attention_by(context, "generic", &desc), CLATTN_SUCCESS);
        }
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_norm_desc norm = CLATTN_NORM_DESC_INIT;
    clattn_activation_desc activation = CLATTN_ACTIVATION_DESC_INIT;
    clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
    softmax.x = softmax.y = norm.x = norm.y = activation.x = activation.y =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
    softmax.explicit_scale = norm.explicit_epsilon = activation.explicit_alpha = 1;
    softmax.scale = norm.epsilon = activation.alpha = rope.base = 3e38f;
    activation.function = CLATTN_ACTIVATION_SWISH;
    rope.x = rope.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 3, 8);
    assert_status(context, operator_makes(context, &softmax_operator, &softmax, NULL), CLATTN_SUCCESS);
    assert_status(context, operator_makes(context, &norm_operator, &norm, NULL), CLATTN_SUCCESS);
    assert_status(context, operator_makes(context, &activation_operator, &activation, NULL), CLATTN_SUCCESS);
    assert_status(context, operator_makes(context, &rope_operator, &rope, NULL), CLATTN_SUCCESS);
    release_context(&context);
}

/* Plans that need more workspace than the pool may hold can be made, with pages of any size too. */
static void the_check_takes_no_workspace_of_the_callers(void **state)
{
    clattn_context *context = plain_context(1);
    clattn_attention_desc scores = attention_of(2, 24, 24), split = split_of(), huge = paged_of(1 << 24, 1);
    clattn_attention_desc empty = paged_of(16, 0), scored = paged_of(65536, 1);
    (void)state;
    scores.outputs.scores = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){2, 2, 24, 24});
    scored.outputs.scores = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){1, 2, 1, 65536});
    scores.outputs.scores_mode = scored.outputs.scores_mode = CLATTN_SCORES_MODE_PROBABILITIES;
    assert_status(context, attention_by(context, "cpu", &scores), CLATTN_SUCCESS);
    assert_status(context, attention_by(context, "cpu", &split), CLATTN_SUCCESS);
    assert_status(context, attention_by(context, "cpu", &scored), CLATTN_SUCCESS);
    assert_status(context, attention_by(context, "cpu", &huge), CLATTN_SUCCESS);
    assert_status(context, attention_by(context, NULL, &empty), CLATTN_SUCCESS);
    assert_status(context, plan_of(context, MATMUL, (const size_t[3]){64, 64, 64}, "cpu"), CLATTN_SUCCESS);
    assert_status(context, plan_of(context, NEIGHBOURHOOD, (const size_t[3]){9, 9, 3}, "cpu"), CLATTN_SUCCESS);
    release_context(&context);
}

/* The wrong one of several kernels is named, and solvers that share the others take over. */
static void the_wrong_kernel_alone_is_blamed(void **state)
{
    struct sources sources;
    clattn_attention_desc plain = attention_of(1, 24, 24), raw = plain, weights = plain, split = split_of();
    clattn_attention_desc split_weights = split;
    const char *const tiles = device_breaks("tile") ? "generic" : "tile";
    (void)state;
    raw.outputs.scores = weights.outputs.scores =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){1, 2, 24, 24});
    split_weights.outputs.scores = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){1, 1, 1, 65536});
    weights.outputs.scores_mode = split_weights.outputs.scores_mode = CLATTN_SCORES_MODE_PROBABILITIES;
    /* The attention kernel is wrong. */
    sources_damage(&sources, VECTOR_EXP);
    clattn_context *context = sources_context(&sources, NULL, true);
    const clattn_attention_desc *const shared[] = {&raw, &weights, &split, &split_weights};
    for (size_t i = 0; i < 4; i++) {
        assert_status(context, attention_by(context, "cpu", shared[i]), CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, i < 2 ? DISAGREES("attention_cpu") : DISAGREES("attention_cpu_decode"));
        assert_status(context, attention_by(context, NULL, shared[i]), CLATTN_SUCCESS);
    }
    release_context(&context);
    /* The log-sum-exp, which only the probabilities need, is wrong. */
    sources_damage(&sources, "attention/core.h", "total_max + log_total", "total_max + log_total * 1.01f");
    context = sources_context(&sources, NULL, true);
    assert_status(context, attention_by(context, "generic", &weights), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("attention_generic") "outputs.lse[");
    assert_status(context, attention_by(context, "generic", &raw), CLATTN_SUCCESS);
    release_context(&context);
    /* The kernel of the scores is wrong. */
    sources_damage(&sources, "attention/scores.cl", "a.scores.offset + b", "(i == 0) + a.scores.offset + b");
    context = sources_context(&sources, NULL, true);
    assert_status(context, attention_by(context, tiles, &weights), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("attention_scores") "scores[");
    assert_status(context, attention_by(context, "cpu", &weights), CLATTN_SUCCESS);
    assert_status(context, attention_by(context, "generic", &raw), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("attention_scores") "scores[");
    assert_status(context, attention_by(context, "cpu", &plain), CLATTN_SUCCESS);
    release_context(&context);
    sources_damage(&sources, "attention/cpu/scores.cl", "a.scores.offset + b", "(row == 0) + a.scores.offset + b");
    context = sources_context(&sources, NULL, true);
    assert_status(context, attention_by(context, "cpu", &weights), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("attention_cpu_scores") "scores[");
    assert_status(context, attention_by(context, tiles, &weights), CLATTN_SUCCESS);
    release_context(&context);
    /* The merging kernel is wrong. */
    sources_damage(&sources, "merge/merge.cl", "1.0f / row_sum", "1.001f / row_sum");
    context = sources_context(&sources, NULL, true);
    assert_status(context, attention_by(context, "cpu", &split), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("merge") "output[");
    assert_status(context, attention_by(context, "cpu", &split_weights), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("merge") "output[");
    assert_status(context, attention_by(context, "cpu", &plain), CLATTN_SUCCESS);
    release_context(&context);
}

/* With other text in a kernel, the plan by the solver fails, and that is said. */
static void expect_blame(const char *file, const char *text, const char *instead, const char *solver, const char *said,
                         const clattn_attention_desc *desc)
{
    struct sources sources;
    sources_damage(&sources, file, text, instead);
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, attention_by(context, solver, desc), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, said);
    release_context(&context);
}

/* Each kernel of the backward direction is blamed for what it writes. */
static void backward_kernels_are_checked(void **state)
{
    static const struct {
        const char *file, *text, *instead, *solver, *said;
    } damages[] = {
        {"attention/backward/generic.cl", "to_query[c] * factor *", "to_query[c] * 1.01f * factor *", "generic",
         DISAGREES("attention_backward_rows") "gradients.query["},
        {"attention/backward/generic.cl", "sum[c] * ATTENTION_SCALE(&a)", "sum[c] * 1.01f * ATTENTION_SCALE(&a)",
         "generic", DISAGREES("attention_backward_keys") "gradients.key["},
        {"attention/backward/generic.cl", "= (float)sum;", "= 1.01f * (float)sum;", "generic",
         DISAGREES("attention_backward_sum") "gradients.sinks["},
        {"attention/backward/generic.cl", "+ j * a.output.col] = sum;", "+ j * a.output.col] = 1.01f * sum;", "generic",
         DISAGREES("attention_backward_pairs") "gradients.bias["},
        {"attention/backward/tile.cl", "to_query[c][r] * factor *", "to_query[c][r] * 1.01f * factor *", "tile",
         DISAGREES("attention_backward_tile_rows") "gradients.query["},
        {"attention/backward/tile.cl", "to_key[c][r] * a.scale", "to_key[c][r] * 1.01f * a.scale", "tile",
         DISAGREES("attention_backward_tile_keys") "gradients.key["},
        {"attention/backward/cpu.cl", "QUERY_VECTORS + v] * a->scale", "QUERY_VECTORS + v] * 1.01f * a->scale", "cpu",
         DISAGREES("attention_backward_cpu") "gradients.query["},
        {"attention/backward/cpu.cl", "sum * ATTENTION_DROPOUT_SCALE(&a)", "sum * 1.01f", "cpu",
         DISAGREES("attention_backward_cpu_keys") "gradients.value["},
        {"attention/backward/products_amx.h", "LANE_TILE, lane_count,", "LANE_TILE, 1,", "cpu-amx",
         DISAGREES("attention_backward_cpu") "gradients.query["},
        {"attention/backward/products_amx.h", "weights.blocks + j / 32 * steps * BLOCK_WORDS, weights.count",
         "weights.blocks + j / 32 * steps * BLOCK_WORDS, 1", "cpu-amx",
         DISAGREES("attention_backward_cpu_keys") "gradients.key["},
        {"attention/backward/matrix.cl", "sum[n] * times * a.scale", "sum[n] * 1.5f * times * a.scale", "emulated-mma",
         DISAGREES("attention_backward_matrix_rows") "gradients.query["},
        {"attention/backward/matrix.cl", "sum[c].sum[n] * a.scale", "sum[c].sum[n] * 1.5f * a.scale", "emulated-mma",
         DISAGREES("attention_backward_matrix_keys") "gradients.key["},
    };
    clattn_attention_desc desc = attention_of(2, 24, 24);
    (void)state;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, desc.query.extent);
    desc.gradients.output = desc.output;
    desc.gradients.query = desc.query;
    desc.gradients.key = desc.key;
    desc.gradients.value = desc.value;
    const clattn_attention_desc plain = desc;
    desc.scoring.sinks = desc.gradients.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &desc.query.extent[1]);
    desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){24, 24});
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        if (device_breaks(damages[i].solver) ||
            (strcmp(damages[i].solver, "cpu-amx") == 0 && emulates_amx_too_slowly()))
            continue;
        const bool is_engine = strcmp(damages[i].solver, "emulated-mma") == 0;
        desc.gradients.bias = strncmp(damages[i].solver, "cpu", 3) != 0 ? desc.bias : (clattn_layout){0};
        desc.query.dtype = desc.key.dtype = desc.value.dtype = desc.gradients.output.dtype =
            is_engine ? CLATTN_DTYPE_BF16 : CLATTN_DTYPE_F32;
        expect_blame(damages[i].file, damages[i].text, damages[i].instead, damages[i].solver, damages[i].said, &desc);
    }
    desc = plain;
    desc.outputs.partial = 1;
    expect_blame("attention/backward/core.h", "row_lse == -INFINITY ? 0.0f : 1.0f", "1.0f / sum", "generic",
                 DISAGREES("attention_backward_rows") "gradients.query[", &desc);
}

/* A user's snippet cannot be checked, and a program that its plan has saved proves nothing for plans that can be
 * checked. */
static void what_was_saved_unchecked_is_checked_when_it_is_loaded(void **state)
{
    struct sources sources;
    char cache[FOLDER_SIZE];
    clattn_attention_desc modified = split_of(), split = modified;
    (void)state;
    needs_saved_programs();
    modified.snippets.score_mod =
        "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n"
        "{ return score + 1.0f; }\n";
    sources_damage(&sources, "merge/merge.cl", "1.0f / row_sum", "1.001f / row_sum");
    new_folder(cache);
    for (int round = 0; round < 2; round++) {
        clattn_context *context = sources_context(&sources, cache, true);
        assert_status(context, attention_by(context, "cpu", &modified), CLATTN_SUCCESS);
        /* The program is saved before it is known to be wrong, because wrong ones are not saved. */
        assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
        assert_int_equal(programs_of(context).loaded, round ? 2 : 0);
        assert_status(context, attention_by(context, "cpu", &split), CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, DISAGREES("merge") "output[");
        release_context(&context);
    }
}

/* The elements of a single row or column are neighbours in both directions, by which kernels are specialised. */
static void thin_products_refuse_no_solver(void **state)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 5, 1}, {1, 5, 3}, {5, 1, 3}, {40, 1, 1}, {1, 1, 40}};
    static const char *const solvers[] = {"cpu", "tile", "generic"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        clattn_context *context = plain_context(0);
        for (size_t k = 0; k < COUNT_OF(solvers); k++)
            assert_status(context, plan_of(context, MATMUL, sizes[i], solvers[k]), CLATTN_SUCCESS);
        release_context(&context);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thin_products_refuse_no_solver),
        cmocka_unit_test(a_short_problem_is_checked_like_a_long_one),
        cmocka_unit_test(other_operators_short_problems_too),
        cmocka_unit_test(an_extreme_scale_refuses_no_solver),
        cmocka_unit_test(the_check_takes_no_workspace_of_the_callers),
        cmocka_unit_test(the_wrong_kernel_alone_is_blamed),
        cmocka_unit_test(backward_kernels_are_checked),
        cmocka_unit_test(what_was_saved_unchecked_is_checked_when_it_is_loaded),
    };
    return RUN_TESTS("self-check of plans", tests, argc, argv);
}
