/* A solver whose kernel disagrees with the reference is refused with the reason, and the next solver does the work; the
 * wrong program is not saved, and the check can be turned off.  A folder of kernel sources with one wrong constant
 * stands in for a driver that miscompiles.
 *
 * Holds: of docs/decisions.md, "Kernels are compared before their first use". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plan/sources.h"

static clattn_attention_desc attention_of(size_t queries)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, queries, 8);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 8, 8);
    return desc;
}

/* Makes and releases a plan with more queries than decoding has. */
static clattn_status plan_by(clattn_context *context, const char *solver)
{
    const clattn_attention_desc desc = attention_of(24);
    return operator_makes(context, &attention_operator, &desc, solver);
}

static void a_wrong_solver_is_refused_with_the_reason(void **state)
{
    struct sources sources;
    const clattn_attention_desc decoding = attention_of(1);
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, plan_by(context, "cpu"), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("attention_cpu") "output[");
    assert_status(context, operator_makes(context, &attention_operator, &decoding, "cpu"), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("attention_cpu_decode") "output[");
    assert_status(context, plan_by(context, "generic"), CLATTN_SUCCESS);
    release_context(&context);

    sources_damage(&sources, SCALAR_EXP);
    context = sources_context(&sources, NULL, true);
    assert_status(context, plan_by(context, "generic"), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "attention_generic disagrees with the reference");
    /* The second plan gets the same answer without another run of the check. */
    assert_status(context, plan_by(context, "generic"), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, "attention_generic disagrees with the reference");
    release_context(&context);
}

/* Softmax and matrix products are checked too. */
static void other_operators_are_checked(void **state)
{
    struct sources sources;
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    (void)state;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){7, 20});
    matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){9, 9});
    sources_damage(&sources, "lib/exp.h", "-LN2_HIGH), x)) * LOG2E", "-LN2_HIGH), x)) * 0.99f * LOG2E");
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, operator_makes(context, &softmax_operator, &softmax, "cpu"), CLATTN_ERROR_MISCOMPILED);
    assert_message_has(context, DISAGREES("softmax_cpu_short") "y[");
    assert_status(context, operator_makes(context, &matmul_operator, &matmul, "cpu"), CLATTN_SUCCESS);
    release_context(&context);
    static const struct damage gradients[] = {
        {"cpu", "softmax/backward_cpu.cl", "return sum_lanes(sum)", "return sum_lanes(sum) * 1.001f",
         DISAGREES("softmax_backward_cpu") "gradients.x["},
        {"tile", "softmax/backward_tile.cl", "kept_dy[n] = dy_c", "kept_dy[n] = dy_c * 1.001f",
         DISAGREES("softmax_backward_tile") "gradients.x["},
        {"generic", "softmax/backward.h", "((dy) - (sum)) * (a)->scale", "((dy) + (sum)) * (a)->scale",
         DISAGREES("softmax_backward_generic") "gradients.x["},
    };
    softmax.direction = CLATTN_DIRECTION_BACKWARD;
    softmax.gradients.x = softmax.gradients.y = softmax.x;
    softmax.x = (clattn_layout){0};
    damage_is_found(&softmax_operator, &softmax, gradients, COUNT_OF(gradients));

    /* The damage is not in fma.h because devices that do not fuse use its other half. */
    static const struct damage products[] = {
        {"cpu", "matmul/cpu/packed.cl", "ADD_PRODUCT(x, y[v], acc[r][v])", "ADD_PRODUCT(x, y[v], acc[r][v] * 1.001f)",
         DISAGREES("matmul_cpu") "c["},
        /* The program serves other plans with other activations, so a plan without one checks them, too. */
        {"cpu", "lib/activate.h", "return act_RELU(x, alpha)", "return 1.001f * act_RELU(x, alpha)",
         DISAGREES("matmul_cpu") "c["},
        {"cpu", "lib/activate.h", "return act_LEAKY_RELU(x, alpha)", "return act_LEAKY_RELU(x, 1.01f * alpha)",
         DISAGREES("matmul_cpu") "c["},
        {"cpu", "lib/activation.h", "TAIL_1 -0x1.40a26cp-4f", "TAIL_1 -0x1.42a26cp-4f", DISAGREES("matmul_cpu") "c["},
        {"cpu", "lib/activation.h", "TANH_3 0x1.2444f2p-4f", "TANH_3 0x1.3444f2p-4f", DISAGREES("matmul_cpu") "c["},
        {"cpu", "lib/activation.h", "factor = (floatv)(alpha)", "factor = (floatv)(1.001f * alpha)",
         DISAGREES("matmul_cpu") "c["},
    };
    damage_is_found(&matmul_operator, &matmul, products, COUNT_OF(products));

    /* So does one without a bias or an operand. */
    static const struct damage arrays[] = {
        {"cpu", "matmul/epilogue.h", "#define HAS_BIAS(a) ((a).has_bias)", "#define HAS_BIAS(a) 0",
         DISAGREES("matmul_cpu") "c["},
        {"cpu", "matmul/epilogue.h", "WITH_OPERAND(x, y) ((x) + (y))", "WITH_OPERAND(x, y) ((x) + 1.001f * (y))",
         DISAGREES("matmul_cpu") "c["},
    };
    damage_is_found(&matmul_operator, &matmul, arrays, COUNT_OF(arrays));

    /* And a plan with one checks how plain sums are stored, if its lanes lie along n, as they do unless m is small. */
    static const struct damage plain = {"cpu", "matmul/cpu/store.h", "v * LANES, sums[v] + add[v])",
                                        "v * LANES, 1.001f * (sums[v] + add[v]))", DISAGREES("matmul_cpu") "c["};
    matmul.activation = CLATTN_ACTIVATION_GELU;
    matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){70, 70});
    damage_is_found(&matmul_operator, &matmul, &plain, 1);

    static const struct damage product_gradients[] = {
        {"generic", "matmul/backward.cl", "g *= SLOPE(s, a.alpha)", "g *= 1.001f * SLOPE(s, a.alpha)",
         DISAGREES("matmul_backward") "the sums' gradient["},
        {"generic", "matmul/backward.cl", "sum, lost, of_operand", "sum, lost, 1.001f * of_operand",
         DISAGREES("matmul_backward") "gradients.operand["},
    };
    matmul.direction = CLATTN_DIRECTION_BACKWARD;
    matmul.operand = matmul.gradients.operand = matmul.gradients.a = matmul.gradients.c = matmul.c;
    matmul.operand_use = CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
    matmul.c = (clattn_layout){0};
    damage_is_found(&matmul_operator, &matmul, product_gradients, COUNT_OF(product_gradients));
}

/* The kernel for few rows: how a team rescales, which needs more keys than its work-group has in a step, what it does with
 * several loads, how teams are added up, and what it leaves for the merge if keys are split. */
static void few_rows_are_checked(void **state)
{
#define KERNEL "attention/gpu/decode.cl"
#define WRONG DISAGREES("attention_decode_rows")
    static const struct damage whole[] = {
        {"decode", KERNEL, "out[r][e] *= rescale;", "out[r][e] *= 1.0f;", WRONG "output["},
        {"decode", KERNEL, "row_sum[r] = FMA(row_sum[r], rescale, p)", "row_sum[r] += p", WRONG "output["},
        {"decode", KERNEL, "u * KEYS_AT_ONCE + own_key", "own_key", WRONG "output["},
        {"decode", KERNEL, "u * VALUES_AT_ONCE + own_value", "own_value", WRONG "output["},
        {"decode", KERNEL, "n < TEAMS * TEAM; n += VALUE_ITEMS", "n < TEAMS * TEAM; n += 2 * VALUE_ITEMS",
         WRONG "output["},
    };
    static const struct damage split[] = {
        {"decode", KERNEL, "0.0f : o * factor", "0.0f : o * factor * 1.001f", WRONG},
        {"decode", KERNEL, "row.i)] = row_lse", "row.i)] = row_lse * 1.01f", WRONG},
    };
#undef WRONG
#undef KERNEL
    const clattn_attention_desc decoding = attention_of(1);
    clattn_attention_desc one_head = decoding;
    (void)state;
    one_head.query = one_head.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, 8);
    one_head.key = one_head.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 4096, 8);
    damage_is_found(&attention_operator, &decoding, whole, by_level(2, 2, COUNT_OF(whole), COUNT_OF(whole)));
    damage_is_found(&attention_operator, &one_head, split, by_level(1, 1, COUNT_OF(split), COUNT_OF(split)));
}

/* Each of the two kinds of kernels of the small operators gets a wrong constant of its own. */
static void small_operators_are_checked(void **state)
{
    static const struct damage norms[] = {
        {"cpu", "norm/cpu_short.cl", "- drift) * *factor", "- drift) * (*factor * 1.001f)",
         DISAGREES("norm_cpu_short") "y["},
        {"tile", "norm/tile.cl", "inverse[inverse_at] = m.factor", "inverse[inverse_at] = m.factor * 1.001f",
         DISAGREES("norm_tile") "inv_std_dev["},
    };
    static const struct damage norm_gradients[] = {
        {"cpu", "norm/backward_cpu.cl", "run[SUM_G] += g;", "run[SUM_G] += 1.01f * g;",
         DISAGREES("norm_backward_cpu") "gradients.x["},
        {"tile", "norm/backward_tile.cl", "sum_gd, lost_gd, (g * d)", "sum_gd, lost_gd, (1.01f * g * d)",
         DISAGREES("norm_backward_tile") "gradients.x["},
        {"generic", "norm/backward.h", "(n) * (m)->mean_gn", "(n) * 0.99f * (m)->mean_gn",
         DISAGREES("norm_backward_generic") "gradients.x["},
        {"cpu", "norm/weights.cl", "block < a.blocks; block++", "block < 1; block++",
         DISAGREES("norm_weights_sum") "gradients.scale["},
        {"generic", "norm/weights.cl", "statistics + 2,", "statistics + 1,",
         DISAGREES("norm_weights_sum") "gradients.scale["},
    };
    static const struct damage rotations[] = {
        {"cpu", "rope/rope.h", "#define SIN_3 -1.66", "#define SIN_3 -1.65", DISAGREES("rope_cpu") "y["},
        {"generic", "rope/rope.h", "turn * (ulong)position) >> 32", "turn * (ulong)(position % 4096)) >> 32",
         DISAGREES("rope_generic") "y["},
    };
    static const struct damage opposite[] = {
        {"cpu", "rope/cpu.cl", "rotation.sines = -rotation.sines", "rotation.sines = rotation.sines",
         DISAGREES("rope_cpu") "gradients.x["},
        {"generic", "rope/generic.cl", "rotation.y = -rotation.y", "rotation.y = rotation.y",
         DISAGREES("rope_generic") "gradients.x["},
    };
    static const struct damage activations[] = {
        {"cpu", "lib/activation.h", "TANH_3 0x1.2444f2p-4f", "TANH_3 0x1.2454f2p-4f", DISAGREES("activation_cpu") "y["},
        {"generic", "lib/activation.h", "max(e->power, (intv)(-100))", "max(e->power, (intv)(-10))",
         DISAGREES("activation_generic") "y["},
    };
    static const struct damage slopes[] = {
        {"cpu", "activation/slope.h", "3.0f * TANH_3", "2.9f * TANH_3",
         DISAGREES("activation_backward_cpu") "gradients.x["},
        {"generic", "activation/backward.h", "slope * gradient)", "gradient)",
         DISAGREES("activation_backward_generic") "gradients.x["},
    };
    static const struct damage dropouts[] = {
        {"cpu", "dropout/dropout.h", "word < (uintv)(a->threshold)", "word <= (uintv)(2 * a->threshold - 1)",
         DISAGREES("dropout_cpu") "y["},
        {"cpu", "dropout/cpu.cl", "zip_high(w0, w2)", "zip_low(w0, w2)", DISAGREES("dropout_cpu") "y["},
        {"generic", "dropout/generic.cl", "i = max(piece.first - c, 0)", "i = max(piece.first - c, 1)",
         DISAGREES("dropout_generic") "y["},
        {"generic", "dropout/dropout.h", "count) + result", "count) + 1.001f * result",
         DISAGREES("dropout_generic") "y["},
    };
    static const struct damage pools[] = {
        {"cpu", "pool/pool.h", "w.end - w.begin;", "w.end - w.begin + (w.begin > 0);", DISAGREES("pool_cpu") "y["},
        {"cpu", "pool/cpu.cl", "rows > 0; rows--, x += down", "rows > 1; rows--, x += down",
         DISAGREES("pool_cpu") "y["},
        {"cpu", "pool/cpu.cl", "value[v] / (rows.divisor", "value[v] / (0.999f * rows.divisor",
         DISAGREES("pool_cpu") "y["},
        {"generic", "pool/generic.cl", "y > x || isnan(y)", "y > x + 0.5f || isnan(y)", DISAGREES("pool_generic") "y["},
        {"generic", "pool/generic.cl", "turn < step", "turn < step - 1", DISAGREES("pool_generic") "y["},
    };
    static const struct damage pool_gradients[] = {
        {"cpu", "pool/backward_cpu.cl", "(value > largest)", "(value >= largest)",
         DISAGREES("pool_backward_cpu") "gradients.x["},
        {"cpu", "pool/backward_cpu.cl", "gradient /= rows.divisor", "gradient /= 1.001f * rows.divisor",
         DISAGREES("pool_backward_cpu") "gradients.x["},
        {"generic", "pool/backward_generic.cl", "earlier & (other == own)", "(other == own) & (r != row)",
         DISAGREES("pool_backward_generic") "gradients.x["},
        {"generic", "pool/backward_generic.cl", "gradient / (rows.divisor * columns.divisor)",
         "gradient / (rows.divisor * 2.0f)", DISAGREES("pool_backward_generic") "gradients.x["},
        {"generic", "pool/backward.h", "beyond > 0 ? (beyond - 1)", "beyond > 0 ? beyond",
         DISAGREES("pool_backward_generic") "gradients.x["},
    };
    static const struct damage maps[] = {
        {"generic", "neighbourhood/backward_generic.cl", "t < window ? 0 : low", "t <= window ? 0 : low",
         DISAGREES("neighbourhood_backward_bias") "gradients.key["},
        {"generic", "neighbourhood/backward_generic.cl", "p * (slope - row[2])", "p * (slope - 0.99f * row[2])",
         DISAGREES("neighbourhood_backward_bias") "gradients.query["},
        {"generic", "neighbourhood/backward_generic.cl", "sum += head_sum", "sum += 1.01f * head_sum",
         DISAGREES("neighbourhood_backward_bias") "gradients.bias["},
    };
    static const struct damage resizes[] = {
        {"cpu", "resize/resize.h", "(a->cubic + 2.0f)", "(a->cubic + 2.01f)", DISAGREES("resize_cpu") "y["},
        {"cpu", "resize/cpu.cl", "t->span[e + depth];", "t->span[e + depth] * 1.01f;", DISAGREES("resize_cpu") "y["},
        {"cpu", "resize/cpu.cl", "0.5f * weight[0];\n            at[1] = at[0];\n        }\n        t->taps[e]",
         "0.501f * weight[0];\n            at[1] = at[0];\n        }\n        t->taps[e]",
         DISAGREES("resize_cpu") "y["},
        {"generic", "resize/resize.h", "1.0f - inner;", "1.0f - 1.01f * inner;", DISAGREES("resize_generic") "y["},
        {"generic", "resize/resize.h", "1.0f / sum", "1.001f / sum", DISAGREES("resize_generic") "y["},
        {"generic", "resize/resize.h", "+ a->centre)", ")", DISAGREES("resize_generic") "y["},
    };
    static const struct damage embeddings[] = {
        {"generic", "embedding/embedding.cl", "v = gather_table(", "v = 1.001f * gather_table(",
         DISAGREES("embedding") "y["},
        {"generic", "embedding/embedding.cl", "id < (uint)a.all_rows", "id <= (uint)a.all_rows",
         DISAGREES("embedding") "y["},
        {"generic", "embedding/embedding.cl", "row < (uint)a.rows", "row <= (uint)a.all_rows",
         DISAGREES("embedding") "y["},
        {"generic", "rope/rope.h", "#define COS_4 4.16", "#define COS_4 4.36", DISAGREES("embedding") "y["},
    };
    static const struct damage lists[] = {
        {"generic", "embedding/backward.cl", "move_sum(&runs[v], &run[v]);", "run[v] = (floatv)(0.0f);",
         DISAGREES("embedding_backward") "gradients.table["},
        {"generic", "embedding/backward.cl", "if (r == row)", "if (r <= row)",
         DISAGREES("embedding_backward") "gradients.table["},
    };
    clattn_norm_desc norm = CLATTN_NORM_DESC_INIT;
    clattn_rope_desc rope = CLATTN_ROPE_DESC_INIT;
    clattn_activation_desc activation = CLATTN_ACTIVATION_DESC_INIT;
    clattn_dropout_desc dropout = CLATTN_DROPOUT_DESC_INIT;
    clattn_neighbourhood_desc map = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_embedding_desc embedding = CLATTN_EMBEDDING_DESC_INIT;
    clattn_pool_desc pool = CLATTN_POOL_DESC_INIT;
    clattn_resize_desc resize = CLATTN_RESIZE_DESC_INIT;
    (void)state;
    map.direction = CLATTN_DIRECTION_BACKWARD;
    map.window[0] = map.window[1] = 3;
    map.query = map.key = map.value = map.gradients.output = map.gradients.query = map.gradients.key =
        map.gradients.value = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (const size_t[5]){1, 1, 5, 7, 6});
    map.bias = map.gradients.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){1, 1, 5, 7});
    pool.window[0] = pool.window[1] = 1;
    pool.x = pool.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 3, 8);
    resize.x = resize.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 3, 8);
    norm.x = norm.y = activation.x = activation.y = dropout.x = dropout.residual = dropout.y =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){7, 20});
    norm.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){7, 1});
    rope.x = rope.y = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 3, 8);
    activation.function = CLATTN_ACTIVATION_GELU_TANH;
    embedding.positions = CLATTN_POSITIONS_SINUSOIDS;
    embedding.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[2]){1, 3});
    embedding.table = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){5, 8});
    embedding.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){1, 3, 8});
    damage_is_found(&norm_operator, &norm, norms, COUNT_OF(norms));
    clattn_norm_desc norm_backward = CLATTN_NORM_DESC_INIT;
    norm_backward.direction = CLATTN_DIRECTION_BACKWARD;
    norm_backward.x = norm_backward.gradients.x = norm_backward.gradients.y = norm.x;
    norm_backward.scale = norm_backward.gradients.scale = norm_backward.gradients.bias =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &norm.x.extent[norm.x.rank - 1]);
    damage_is_found(&norm_operator, &norm_backward, norm_gradients, COUNT_OF(norm_gradients));
    /* The last damage needs work-items that share an element, so a device without work-groups of several does not show it. */
    const size_t of_pools = COUNT_OF(pools) - device_breaks("tile");
    damage_is_found(&pool_operator, &pool, pools, by_level(2, 2, of_pools, of_pools));
    pool.direction = CLATTN_DIRECTION_BACKWARD;
    pool.gradients.x = pool.gradients.y = pool.x;
    pool.y = (clattn_layout){0};
    damage_is_found(&pool_operator, &pool, pool_gradients, COUNT_OF(pool_gradients));
    damage_is_found(&neighbourhood_operator, &map, maps, COUNT_OF(maps));
    damage_is_found(&resize_operator, &resize, resizes, by_level(2, 3, COUNT_OF(resizes), COUNT_OF(resizes)));
    damage_is_found(&rope_operator, &rope, rotations, COUNT_OF(rotations));
    rope.direction = CLATTN_DIRECTION_BACKWARD;
    rope.gradients.x = rope.gradients.y = rope.x;
    rope.x = rope.y = (clattn_layout){0};
    damage_is_found(&rope_operator, &rope, opposite, COUNT_OF(opposite));
    damage_is_found(&activation_operator, &activation, activations, COUNT_OF(activations));
    activation.direction = CLATTN_DIRECTION_BACKWARD;
    activation.gradients.x = activation.gradients.y = activation.y;
    activation.y = (clattn_layout){0};
    damage_is_found(&activation_operator, &activation, slopes, COUNT_OF(slopes));
    damage_is_found(&dropout_operator, &dropout, dropouts, COUNT_OF(dropouts));
    damage_is_found(&embedding_operator, &embedding, embeddings, COUNT_OF(embeddings));
    embedding.direction = CLATTN_DIRECTION_BACKWARD;
    embedding.positions = CLATTN_POSITIONS_NONE;
    embedding.gradients.table = embedding.table;
    embedding.gradients.y = embedding.y;
    embedding.table = embedding.y = (clattn_layout){0};
    damage_is_found(&embedding_operator, &embedding, lists, COUNT_OF(lists));
}

static void cross_entropies_are_checked(void **state)
{
#define SHARED "cross_entropy/cross_entropy.h"
#define CPU "cross_entropy/cpu.cl"
    static const struct damage cases[] = {
        {"generic", SHARED, "+ spread)", "+ 0.9f * spread)", DISAGREES("cross_entropy_generic") "loss["},
        {"generic", SHARED, "row_max + log_sum", "row_max + 1.01f * log_sum",
         DISAGREES("cross_entropy_generic") "lse["},
        {"generic", SHARED, "counts &= !ignored", "counts &= 1", DISAGREES("cross_entropy_generic") "loss["},
        {"generic", SHARED, "counts = label == nearest", "counts = 1", DISAGREES("cross_entropy_generic") "loss["},
        {"generic", SHARED, "- (a)->kept) *", "- 1.0f) *", DISAGREES("cross_entropy_generic") "gradients.x["},
        {"cpu", CPU, "total *= factor", "total *= 1.0f", DISAGREES("cross_entropy_cpu") "loss["},
        {"cpu", CPU, "target->label * a->gradient.col", "0", DISAGREES("cross_entropy_cpu") "gradients.x["},
    };
#undef SHARED
#undef CPU
    clattn_cross_entropy_desc desc = CLATTN_CROSS_ENTROPY_DESC_INIT;
    (void)state;
    desc.smoothing = 0.1f;
    desc.x = desc.gradients.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){7, 2000});
    desc.labels = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){7});
    desc.loss = desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[1]){7});
    damage_is_found(&cross_entropy_operator, &desc, cases, COUNT_OF(cases));
}

/* Merging and appending have one solver each, so that no other one takes over. */
static void merging_is_checked(void **state)
{
    static const struct damage cases[] = {
        {NULL, "merge/merge.cl", "1.0f / row_sum", "1.001f / row_sum", DISAGREES("merge") "output["},
        {NULL, "merge/merge.cl", "sinks[a.sinks_offset + h * a.sinks_stride]", "sinks[a.sinks_offset]",
         DISAGREES("merge") "output["},
        {NULL, "merge/merge.cl", "row_max + log(row_sum)", "row_max + native_log(row_sum) * 1.01f",
         DISAGREES("merge") "lse["},
        {NULL, "merge/merge.cl", "if (x == -INFINITY)", "if (isnan(x))", DISAGREES("merge") "output["},
    };
    static const size_t extent[5] = {3, 1, 4, 2, 20};
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    (void)state;
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    desc.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent + 2);
    desc.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent + 1);
    desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent + 1);
    damage_is_found(&merge_operator, &desc, cases, COUNT_OF(cases));
}

static void the_optimizer_is_checked(void **state)
{
    static const struct damage steps[] = {
        {NULL, "optimizer/adam.cl", "old * a.shrink -", "old * a.shrink * 1.0001f -", DISAGREES("adam") "parameter["},
        {NULL, "optimizer/adam.cl", "g = FMA((floatv)(a.decay), old, g)", "g = old", DISAGREES("adam") "parameter["},
        {NULL, "optimizer/adam.cl", "g, m * a.beta1", "g, m * a.beta2", DISAGREES("adam") "parameter["},
        {NULL, "optimizer/adam.cl", "scatter_f32(second_moment, i, 1, true, count, v)",
         "scatter_f32(second_moment, i, 1, true, count, v * 1.001f)", DISAGREES("adam") "second_moment["},
        {NULL, "optimizer/adam.cl", "scatter_stored(stored, i", "scatter_stored(stored, first",
         DISAGREES("adam") "stored["},
        {NULL, "optimizer/adam.cl", "scale *= fmin(1.0f, ", "scale *= fmin(0.9f, ", DISAGREES("adam") "parameter["},
    };
    static const struct damage sums[] = {
        {NULL, "optimizer/square_sum.cl", "FMA(term, term, run[n])", "FMA(term, fabs(term), run[n])",
         DISAGREES("square_sum_add") "result["},
        {NULL, "optimizer/square_sum.cl",
         "block < a.blocks; block +=", "block < 1; block +=", DISAGREES("square_sum_add") "result["},
        {NULL, "optimizer/square_sum.cl", "a.accumulate ?", "a.accumulate < 0 ?",
         DISAGREES("square_sum_add") "result["},
    };
    const size_t count = 20;
    clattn_adam_desc step = CLATTN_ADAM_DESC_INIT;
    clattn_square_sum_desc sum = CLATTN_SQUARE_SUM_DESC_INIT;
    (void)state;
    step.parameter = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &count);
    step.gradient = step.first_moment = step.second_moment = sum.x = step.parameter;
    step.stored = clattn_layout_contiguous(CLATTN_DTYPE_F16, 1, &count);
    step.squares = sum.result = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){1});
    damage_is_found(&adam_operator, &step, steps, COUNT_OF(steps));
    damage_is_found(&square_sum_operator, &sum, sums, COUNT_OF(sums));
}

static void appending_is_checked(void **state)
{
#define KERNEL "kv_append/kv_append.cl"
#define WRONG(what) DISAGREES("kv_append") what "["
    static const struct {
        const char *file, *from, *to, *message;
        int32_t cache, dtype;
    } cases[] = {
        {KERNEL, "VALUE_UNIT + c) * a.value.col", "VALUE_UNIT) * a.value.col", WRONG("value_cache"),
         CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_F32},
        {KERNEL, ": j >= a.capacity)", ": j >= a.capacity - 1)", WRONG("key_cache"), CLATTN_CACHE_KIND_PLAIN,
         CLATTN_DTYPE_BF16},
        {"lib/storage.h", "bf16_bits(x)", "bf16_bits((x) * 0.998f)", WRONG("value_cache"), CLATTN_CACHE_KIND_PLAIN,
         CLATTN_DTYPE_BF16},
        {KERNEL, "count = min(count, LOAD_INT", "count = max(count, LOAD_INT", WRONG("a row that is not appended to"),
         CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_F16},
        {KERNEL, "i < count - a.capacity :", "i < count - a.capacity + 1 :", WRONG("key_cache"), CLATTN_CACHE_KIND_RING,
         CLATTN_DTYPE_F32},
        {KERNEL, "+ block * a.block_table.col", "", WRONG("key_cache"), CLATTN_CACHE_KIND_PAGED, CLATTN_DTYPE_F32},
        {KERNEL, "level((x)[c_], scale, 127)", "level((x)[c_] * 0.98f, scale, 127)", WRONG("key_cache"),
         CLATTN_CACHE_KIND_PAGED, CLATTN_DTYPE_I8},
        {KERNEL, "return finite ?", "return levels ?", WRONG("key_scale"), CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_I8},
        {KERNEL, "15) << 4)", "15) << 3)", WRONG("key_cache"), CLATTN_CACHE_KIND_RING, CLATTN_DTYPE_I4},
        {"rope/rope.h", "#define SIN_3 -1.66", "#define SIN_3 -1.65", WRONG("key_cache"), CLATTN_CACHE_KIND_PLAIN,
         CLATTN_DTYPE_F32},
    };
#undef WRONG
#undef KERNEL
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
        bool paged = cases[i].cache == CLATTN_CACHE_KIND_PAGED;
        size_t heads = 2, pages = paged ? 5 : 1;
        desc.cache = cases[i].cache;
        desc.rotate = 1;
        desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, heads, 3, 16);
        desc.key_cache = desc.value_cache = clattn_layout_bhsd(cases[i].dtype, pages, heads, 9, 16);
        if (cases[i].dtype == CLATTN_DTYPE_I8 || cases[i].dtype == CLATTN_DTYPE_I4)
            desc.key_scale = desc.value_scale = clattn_layout_bhsd(CLATTN_DTYPE_F16, pages, heads, 9, 2);
        if (paged)
            desc.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[2]){1, 3});
        desc.past_lengths = desc.new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I64, 1, (const size_t[1]){1});
        const struct damage damage = {NULL, cases[i].file, cases[i].from, cases[i].to, cases[i].message};
        damage_is_found(&kv_append_operator, &desc, &damage, 1);
    }
}

static void images_are_checked(void **state)
{
    static const struct damage packing[] = {
        {"generic", "image/image.cl", "clamp(a.origin_x + x + j - a.patch / 2, 0,",
         "clamp(a.origin_x + x + j - a.patch / 2, 1,", DISAGREES("image_pack") "array["},
        {"generic", "image/image.cl", "FMA(stored, stored, sum[into])", "FMA(stored, pixel[c] * 1.001f, sum[into])",
         DISAGREES("image_pack") "norm["},
        {"generic", "image/image.cl", "m[10] * v.z) + m[11]", "m[10] * v.z)", DISAGREES("image_pack") "array["},
    };
    static const struct damage unpacking[] = {
        {"generic", "image/image.cl", "rint(inside * a->levels)", "rint(inside * a->levels - 0.5f)",
         DISAGREES("image_unpack") "image["},
        {"generic", "image/image.cl", "vstore_half_rte(v,", "vstore_half_rte(v * (1.0f - 0x1p-11f),",
         DISAGREES("image_unpack") "image["},
        {"generic", "image/image.cl", "v > 1.0f ? 1.0f", "v > 1.0f ? 0.9f", DISAGREES("image_unpack") "image["},
        {"generic", "image/image.cl", "a.origin_x + x, a.origin_y + y)", "a.origin_x + x + 1, a.origin_y + y)",
         DISAGREES("image_unpack") "image["},
    };
    static const struct damage decoding[] = {
        {"generic", "image/colour.h", "2.4f * log(", "2.2f * log(", DISAGREES("image_pack") "array["},
        {"generic", "image/colour.h", "x <= 0.04045f", "x <= 0.4f", DISAGREES("image_pack") "array["},
        {"generic", "image/colour.h", "select(v / alpha,", "select(v * alpha,", DISAGREES("image_pack") "array["},
        {"generic", "image/colour.h", "alpha == 0.0f", "alpha == 1.0f", DISAGREES("image_pack") "array["},
    };
    static const struct damage encoding[] = {
        {"generic", "image/colour.h", "1.055f * exp(", "1.05f * exp(", DISAGREES("image_unpack") "image["},
        {"generic", "image/colour.h", "x * 12.92f", "x * 12.0f", DISAGREES("image_unpack") "image["},
        {"generic", "image/image.cl", "v = v * alpha", "v = v * v.w", DISAGREES("image_unpack") "image["},
    };
    static const struct damage packing_on_cpus[] = {
        {"cpu", "image/cpu.cl", "clamp(x + l, 0,", "clamp(x + l, 1,", DISAGREES("image_pack_cpu") "array["},
        {"cpu", "image/cpu.cl", "i - margin - a->raw_y, 0", "i - margin - a->raw_y, 1",
         DISAGREES("image_pack_cpu") "array["},
        {"cpu", "image/cpu.cl", "FMA(stored, stored, sum[into])", "FMA(stored, c[k] * 1.001f, sum[into])",
         DISAGREES("image_pack_cpu") "norm["},
        {"cpu", "image/cpu.cl", "if (a->blue_first)", "if (false)", DISAGREES("image_pack_cpu") "array["},
    };
    static const struct damage unpacking_on_cpus[] = {
        {"cpu", "image/cpu.cl", "levels + 0x1p23f", "levels + 0x1.000002p23f", DISAGREES("image_unpack_cpu") "image["},
        {"cpu", "image/cpu.cl", "positive > 1.0f", "positive > 3.0f", DISAGREES("image_unpack_cpu") "image["},
        {"cpu", "image/cpu.cl", "+ m[4 * i + 3]", "", DISAGREES("image_unpack_cpu") "image["},
    };
    static const struct damage encoding_on_cpus[] = {
        {"cpu", "image/cpu.cl", "c[i] = c[i] * c[3]", "c[i] = c[i]", DISAGREES("image_unpack_cpu") "image["},
    };
    clattn_image_desc pack = CLATTN_IMAGE_DESC_INIT, unpack = CLATTN_IMAGE_DESC_INIT;
    const char *reason = NULL;
    (void)state;
    pack.operation = CLATTN_IMAGE_OPERATION_PACK;
    pack.patch = 5;
    pack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){4, 3, 75});
    pack.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){4, 3, 3});
    unpack.operation = CLATTN_IMAGE_OPERATION_UNPACK;
    unpack.patch = 1;
    unpack.array = pack.norm;
    if (clattn_image_supports(device_context(), &pack, &reason) != CLATTN_SUCCESS) {
        assert_non_null(strstr(reason, "no images"));
        return;
    }
    damage_is_found(&image_operator, &pack, packing, COUNT_OF(packing));
    damage_is_found(&image_operator, &pack, packing_on_cpus, COUNT_OF(packing_on_cpus));
    damage_is_found(&image_operator, &unpack, unpacking, COUNT_OF(unpacking));
    damage_is_found(&image_operator, &unpack, unpacking_on_cpus, COUNT_OF(unpacking_on_cpus));
    pack.transfer = unpack.transfer = CLATTN_IMAGE_TRANSFER_SRGB;
    pack.alpha = unpack.alpha = CLATTN_IMAGE_ALPHA_PREMULTIPLIED;
    unpack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){4, 3, 4});
    damage_is_found(&image_operator, &pack, decoding, COUNT_OF(decoding));
    damage_is_found(&image_operator, &unpack, encoding, COUNT_OF(encoding));
    damage_is_found(&image_operator, &unpack, encoding_on_cpus, COUNT_OF(encoding_on_cpus));
}

static void the_next_solver_takes_over(void **state)
{
    struct sources sources;
    const clattn_attention_desc desc = attention_of(24);
    clattn_plan *plan = NULL;
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    clattn_context *context = sources_context(&sources, NULL, true);
    assert_status(context, clattn_attention_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
    assert_string_not_equal(clattn_plan_solver(plan), "cpu");
    clattn_device_info info = {.size = sizeof info};
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    if (info.type & CL_DEVICE_TYPE_CPU)
        assert_non_null(strstr(clattn_plan_explain(plan), "cpu: failed, attention_cpu disagrees with the reference"));
    clattn_plan_release(&plan);
    release_context(&context);
}

static void a_wrong_program_is_not_saved(void **state)
{
    struct sources sources;
    char cache[FOLDER_SIZE];
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    new_folder(cache);
    for (int round = 0; round < 2; round++) {
        clattn_context *context = sources_context(&sources, cache, true);
        assert_status(context, plan_by(context, "cpu"), CLATTN_ERROR_MISCOMPILED);
        assert_int_equal(programs_of(context).loaded, 0);
        release_context(&context);
    }
    /* A context that checks does not trust a program that was saved without a check. */
    clattn_context *context = sources_context(&sources, cache, false);
    assert_status(context, plan_by(context, "cpu"), CLATTN_SUCCESS);
    release_context(&context);
    context = sources_context(&sources, cache, true);
    assert_status(context, plan_by(context, "cpu"), CLATTN_ERROR_MISCOMPILED);
    release_context(&context);
}

static void unknown_modes_are_refused(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context;
    (void)state;
    params.self_check = CLATTN_SELF_CHECK_ALWAYS + 1;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    params.self_check = CLATTN_SELF_CHECK_ON;
    params.save_mode = CLATTN_SAVE_MODE_BACKGROUND + 1;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_solver_is_refused_with_the_reason),
        cmocka_unit_test(other_operators_are_checked),
        cmocka_unit_test(few_rows_are_checked),
        cmocka_unit_test(small_operators_are_checked),
        cmocka_unit_test(cross_entropies_are_checked),
        cmocka_unit_test(merging_is_checked),
        cmocka_unit_test(the_optimizer_is_checked),
        cmocka_unit_test(appending_is_checked),
        cmocka_unit_test(images_are_checked),
        cmocka_unit_test(the_next_solver_takes_over),
        cmocka_unit_test(a_wrong_program_is_not_saved),
        cmocka_unit_test(unknown_modes_are_refused),
    };
    return RUN_TESTS("self-check", tests, argc, argv);
}
