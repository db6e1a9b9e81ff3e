/* Every wrong description of the other operators is refused, and the message names the field that is wrong. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/core/refusals.h"

static void the_other_operators_check_their_descriptions(void **state)
{
    (void)state;
    clattn_layout two = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){4, 6});
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    softmax.x = softmax.y = two;
    WRONG(softmax, softmax, STRUCT, d.size = 1)
    WRONG(softmax, softmax, INVALID, d.direction = -1)
    WRONG(softmax, softmax, INVALID, d.short_mask = 2)
    WRONG(softmax, softmax, LAYOUT | INVALID, d.y.extent[1] = 5)
    WRONG(softmax, softmax, LAYOUT | INVALID, d.y.rank = 1)
    WRONG(softmax, softmax, LAYOUT | INVALID, d.y.stride[0] = 0)
    WRONG(softmax, softmax, LAYOUT | INVALID, memset(&d.x, 0, sizeof d.x))
    WRONG(softmax, softmax, LAYOUT | INVALID, (d.mask = two, d.mask.extent[0] = 3))
    WRONG(softmax, softmax, LAYOUT | INVALID, (d.mask = two, d.mask.extent[1] = 7))
    WRONG(softmax, softmax, TOO_BIG | LAYOUT | UNSUPPORTED,
          d.x = d.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){1, SIZE_MAX / 4}))
    WRONG(softmax, softmax, TOO_BIG | LAYOUT | UNSUPPORTED,
          d.x = d.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){1, (size_t)1 << 31}))
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    matmul.a = two;
    matmul.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){6, 5});
    matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){4, 5});
    WRONG(matmul, matmul, STRUCT, d.size = 1)
    WRONG(matmul, matmul, INVALID, d.direction = -1)
    WRONG(matmul, matmul, INVALID, d.prepack = 2)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.b.extent[0] = 7)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.c.extent[0] = 3)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.c.extent[1] = 6)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.c.stride[0] = 1)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.a.rank = 1)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.bias = two)
    WRONG(matmul, matmul, LAYOUT | INVALID, d.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){4}))
    WRONG(matmul, matmul, TOO_BIG | LAYOUT | UNSUPPORTED,
          (d.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){(size_t)1 << 33, 6}),
           d.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){(size_t)1 << 33, 5})))
    clattn_mha_desc mha = CLATTN_MHA_DESC_INIT;
    mha.batch = 1;
    mha.query_length = 4;
    mha.d_model = 8;
    mha.heads = 2;
    assert_status(context, clattn_mha_supports(context, &mha, NULL), CLATTN_SUCCESS);
    WRONG(mha, mha, STRUCT, d.size = 1)
    WRONG(mha, mha, INVALID | LAYOUT, d.direction = -1)
    WRONG(mha, mha, INVALID | LAYOUT, d.short_mask = 2)
    WRONG(mha, mha, INVALID | LAYOUT, d.cross = 2)
    WRONG(mha, mha, INVALID | LAYOUT, d.packed_weights = -1)
    WRONG(mha, mha, INVALID | LAYOUT, d.weights = 3)
    WRONG(mha, mha, INVALID | LAYOUT, d.alignment = 9)
    WRONG(mha, mha, INVALID | LAYOUT | UNSUPPORTED, d.dtype = 55)
    WRONG(mha, mha, INVALID | LAYOUT, d.heads = 0)
    WRONG(mha, mha, INVALID | LAYOUT, d.d_model = 0)
    WRONG(mha, mha, INVALID | LAYOUT, d.heads = 3) /* 8 is not divisible by 3 */
    WRONG(mha, mha, INVALID | LAYOUT, (d.heads = 4, d.kv_heads = 3))
    WRONG(mha, mha, INVALID | LAYOUT,
          (d.packed_weights = 1, d.kv_heads = 1)) /* needs as many K/V heads as query heads */
    WRONG(mha, mha, INVALID | LAYOUT, (d.explicit_scale = 1, d.scale = (float)NAN))
    WRONG(mha, mha, INVALID | LAYOUT | TOO_BIG | UNSUPPORTED, d.query_length = SIZE_MAX)
    WRONG(mha, mha, INVALID | LAYOUT | TOO_BIG | UNSUPPORTED, d.d_model = d.heads = SIZE_MAX / 2)
    WRONG(mha, mha, INVALID | LAYOUT, d.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 4))
}

/* `supports` and the message name a layout that was forgotten or is wrong in itself. */
static void wrong_layouts_are_named(void **state)
{
    const clattn_layout two = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){4, 6}), empty = {0};
    const clattn_layout four = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, 8);
    const clattn_layout five = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (const size_t[]){1, 1, 2, 2, 4});
    (void)state;
#define WITHOUT(name, desc, field) NAMED(name, desc, d.field = empty, LAYOUT, #field ": the layout is missing")
#define BROKEN(field, change, set, words) \
    NAMED(attention, problem.desc, (d.field = d.query, d.field.change), set, #field ": the " words)
    WITHOUT(attention, problem.desc, query)
    WITHOUT(attention, problem.desc, key)
    WITHOUT(attention, problem.desc, value)
    WITHOUT(attention, problem.desc, output)
    BROKEN(key, dtype = 99, LAYOUT, "layout has an unknown dtype")
    BROKEN(mask, rank = 9, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(bias, extent[2] = SIZE_MAX / 4, TOO_BIG, "layout's extents overflow")
    BROKEN(scoring.alibi, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(scoring.sinks, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(scoring.vector, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(lengths.query, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(lengths.key, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(lengths.positions, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(lengths.query_starts, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(lengths.key_starts, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(cache.block_table, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(cache.key_scale, stride[2] = INT64_MAX, TOO_BIG, "layout reaches beyond 63-bit addresses")
    BROKEN(cache.value_scale, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(outputs.lse, stride[2] = 0, LAYOUT, "output layout's elements overlap")
    BROKEN(outputs.entropy, stride[2] = 0, LAYOUT, "output layout's elements overlap")
    BROKEN(outputs.scores, stride[2] = 0, LAYOUT, "output layout's elements overlap")
    const clattn_softmax_desc softmax = {.size = sizeof softmax, .x = two, .y = two};
    WITHOUT(softmax, softmax, x)
    WITHOUT(softmax, softmax, y)
    const clattn_matmul_desc matmul = {.size = sizeof matmul, .a = two, .b = two, .c = two};
    WITHOUT(matmul, matmul, a)
    WITHOUT(matmul, matmul, b)
    WITHOUT(matmul, matmul, c)
    const clattn_norm_desc norm = {.size = sizeof norm, .x = two, .y = two};
    WITHOUT(norm, norm, x)
    WITHOUT(norm, norm, y)
    const clattn_activation_desc activation = {.size = sizeof activation, .x = two, .y = two};
    WITHOUT(activation, activation, x)
    WITHOUT(activation, activation, y)
    const clattn_activation_desc slope = {
        .size = sizeof slope, .direction = CLATTN_DIRECTION_BACKWARD, .x = two, .gradients = {two, two}};
    WITHOUT(activation, slope, x)
    WITHOUT(activation, slope, gradients.x)
    WITHOUT(activation, slope, gradients.y)
    const clattn_dropout_desc dropout = {.size = sizeof dropout, .x = two, .y = two};
    WITHOUT(dropout, dropout, x)
    WITHOUT(dropout, dropout, y)
    const clattn_dropout_desc dropped = {
        .size = sizeof dropped, .direction = CLATTN_DIRECTION_BACKWARD, .gradients = {two, two}};
    WITHOUT(dropout, dropped, gradients.x)
    WITHOUT(dropout, dropped, gradients.y)
    const clattn_embedding_desc embedding = {
        .size = sizeof embedding,
        .ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[]){4, 6}),
        .table = two,
        .y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){4, 6, 6}),
    };
    WITHOUT(embedding, embedding, ids)
    WITHOUT(embedding, embedding, table)
    WITHOUT(embedding, embedding, y)
    const clattn_embedding_desc table = {.size = sizeof table,
                                         .direction = CLATTN_DIRECTION_BACKWARD,
                                         .ids = embedding.ids,
                                         .gradients = {two, embedding.y}};
    WITHOUT(embedding, table, ids)
    WITHOUT(embedding, table, gradients.table)
    WITHOUT(embedding, table, gradients.y)
    const clattn_cross_entropy_desc entropy = {
        .size = sizeof entropy,
        .x = two,
        .labels = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[]){4}),
        .loss = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){4}),
    };
    WITHOUT(cross_entropy, entropy, x)
    WITHOUT(cross_entropy, entropy, labels)
    const clattn_pool_desc pool = {.size = sizeof pool, .window = {1, 1}, .x = four, .y = four};
    WITHOUT(pool, pool, x)
    WITHOUT(pool, pool, y)
    const clattn_pool_desc pooled = {.size = sizeof pooled,
                                     .direction = CLATTN_DIRECTION_BACKWARD,
                                     .window = {1, 1},
                                     .x = four,
                                     .gradients = {four, four}};
    WITHOUT(pool, pooled, x)
    WITHOUT(pool, pooled, gradients.x)
    WITHOUT(pool, pooled, gradients.y)
    const clattn_resize_desc resize = {.size = sizeof resize, .x = four, .y = four};
    WITHOUT(resize, resize, x)
    WITHOUT(resize, resize, y)
    const clattn_rope_desc rope = {.size = sizeof rope, .x = four, .y = four};
    WITHOUT(rope, rope, x)
    WITHOUT(rope, rope, y)
    const clattn_rope_desc opposite = {
        .size = sizeof opposite, .direction = CLATTN_DIRECTION_BACKWARD, .gradients = {four, four}};
    WITHOUT(rope, opposite, gradients.x)
    WITHOUT(rope, opposite, gradients.y)
    const clattn_kv_append_desc append = {
        .size = sizeof append, .key = four, .value = four, .key_cache = four, .value_cache = four};
    WITHOUT(kv_append, append, key)
    WITHOUT(kv_append, append, value)
    WITHOUT(kv_append, append, key_cache)
    WITHOUT(kv_append, append, value_cache)
    const clattn_merge_desc merge = {.size = sizeof merge, .partial = five, .partial_lse = four, .output = four};
    WITHOUT(merge, merge, partial)
    WITHOUT(merge, merge, partial_lse)
    WITHOUT(merge, merge, output)
    const clattn_layout one = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){1});
    const clattn_adam_desc adam = {
        .size = sizeof adam, .parameter = one, .gradient = one, .first_moment = one, .second_moment = one};
    WITHOUT(adam, adam, parameter)
    WITHOUT(adam, adam, gradient)
    WITHOUT(adam, adam, first_moment)
    WITHOUT(adam, adam, second_moment)
    const clattn_square_sum_desc square_sum = {.size = sizeof square_sum, .x = one, .result = one};
    WITHOUT(square_sum, square_sum, x)
    WITHOUT(square_sum, square_sum, result)
    const clattn_conv2d_desc convolution = {.size = sizeof convolution, .x = four, .weight = four, .y = four};
    WITHOUT(conv2d, convolution, x)
    WITHOUT(conv2d, convolution, weight)
    WITHOUT(conv2d, convolution, y)
    clattn_neighbourhood_desc window = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    window.query = window.key = window.value = window.output = five;
    window.window[0] = window.window[1] = 1;
    WITHOUT(neighbourhood, window, query)
    WITHOUT(neighbourhood, window, key)
    WITHOUT(neighbourhood, window, value)
    WITHOUT(neighbourhood, window, output)
    window.direction = CLATTN_DIRECTION_BACKWARD;
    window.output = (clattn_layout){0};
    window.gradients.output = window.gradients.query = window.query;
    WITHOUT(neighbourhood, window, key)
    WITHOUT(neighbourhood, window, gradients.output)
}

/* If one rule is for several fields, the message names the field that broke it. */
static void the_field_is_named(void **state)
{
    const clattn_layout one = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[]){1});
    const clattn_layout many = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[]){7});
    const clattn_layout mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 5, 999);
    const char *const snippet = "int mask_mod(int b, int h, int i, int j, user_data u) { return 1; }";
    char text[32];
    (void)state;
#define FIELD(change, set, begins) NAMED(attention, problem.desc, change, set, begins)
    FIELD(d.lengths.query = many, LAYOUT, "lengths.query is (batch)")
    FIELD(d.lengths.key = many, LAYOUT, "lengths.key is (batch)")
    FIELD((d.lengths.positions = many, d.alignment = CLATTN_ALIGNMENT_EXPLICIT), LAYOUT, "lengths.positions is (batch)")
    FIELD((d.lengths.query = one, d.lengths.query.dtype = CLATTN_DTYPE_F32), LAYOUT, "lengths.query is (batch)")
    FIELD(d.lengths.key_starts = many, LAYOUT, "lengths.key_starts is (batch + 1)")
    FIELD(d.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, d.key.extent[2] - 1), LAYOUT, "mask has fewer keys")
    FIELD(d.bias = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 1, d.key.extent[2] - 1), LAYOUT, "bias has fewer keys")
    FIELD(d.mask = mask, LAYOUT, "mask covers more keys")
    FIELD(d.bias = mask, LAYOUT, "bias covers more keys")
    FIELD(d.outputs.lse = mask, LAYOUT, "outputs.lse is (batch, heads, S_q)")
    FIELD(d.outputs.entropy = mask, LAYOUT, "outputs.entropy is (batch, heads, S_q)")
    FIELD(d.snippets.score_mod = "", INVALID, "snippets.score_mod is empty")
    FIELD(d.snippets.mask_mod = "", INVALID, "snippets.mask_mod is empty")
    FIELD(d.snippets.score_mod_grad = "", INVALID, "snippets.score_mod_grad is empty")
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++) {
        snprintf(text, sizeof text, "snippets.buffer_dtype[%d] is", i);
        FIELD((d.snippets.mask_mod = snippet, d.snippets.buffer_dtype[i] = CLATTN_DTYPE_F64), INVALID, text)
        snprintf(text, sizeof text, "snippets.buffer[%d]: bound", i);
        ARGS_WITH(INVALID, a.snippets.buffer[i] = a.query)
        assert_message_has(context, text);
        assert_message_has(context, "no user_dtype");
    }
    clattn_attention_desc with_user = problem.desc;
    with_user.snippets.mask_mod = snippet;
    with_user.snippets.buffer_dtype[2] = CLATTN_DTYPE_F32;
    assert_status(context, clattn_attention_run(context, NULL, &with_user, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "snippets.buffer[2]: no buffer is bound");
    clattn_matmul_desc product = CLATTN_MATMUL_DESC_INIT;
    product.a = product.b = product.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){4, 4});
    const clattn_layout four = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){4});
#define PRODUCT(change, set, begins) NAMED(matmul, product, change, set, begins)
    PRODUCT(d.activation = 9, INVALID, "unknown activation")
    PRODUCT(d.operand_use = 1, INVALID, "operand_use")
    PRODUCT((d.operand = product.c, d.operand.rank = 9), LAYOUT, "operand: the layout's rank is not 1 to 5")
    PRODUCT((d.operand = product.c, d.operand.extent[1] = 5), LAYOUT, "operand is (m, n)")
    PRODUCT(d.b.dtype = CLATTN_DTYPE_I8, LAYOUT, "b_scale is missing")
    PRODUCT(d.b_scale = many, LAYOUT, "b_scale, and b is not int8")
    PRODUCT(d.direction = 2, INVALID, "unknown direction")
    PRODUCT(d.gradients.a = product.a, INVALID, "gradients are for CLATTN_DIRECTION_BACKWARD")
    product.direction = CLATTN_DIRECTION_BACKWARD;
    product.gradients.a = product.gradients.c = product.a;
    PRODUCT((void)d, INVALID, "c is for CLATTN_DIRECTION_FORWARD")
    product.c = (clattn_layout){0};
    PRODUCT(d.gradients.c.rank = 9, LAYOUT, "gradients.c: the layout's rank is not 1 to 5")
    PRODUCT(d.gradients.c = (clattn_layout){0}, LAYOUT, "gradients.c: the layout is missing")
    PRODUCT(d.gradients.a = (clattn_layout){0}, INVALID, "no gradient is asked for")
    PRODUCT(d.gradients.a.extent[0] = 5, LAYOUT, "a and its gradient differ in extents")
    PRODUCT(d.gradients.a.stride[0] = 0, LAYOUT, "gradients.a: the output layout's elements overlap")
    PRODUCT((d.gradients.b = product.a, d.gradients.b.extent[0] = 5), LAYOUT, "gradients.b is (batch, k, n)")
    PRODUCT((d.gradients.b = product.a, d.gradients.b.dtype = CLATTN_DTYPE_F64), UNSUPPORTED, "gradients are float32")
    PRODUCT(d.gradients.bias = four, INVALID, "gradients.bias, and there is no bias")
    PRODUCT((d.bias = four, d.gradients.bias = four, d.gradients.bias.extent[0] = 5), LAYOUT,
            "gradients.bias is not (n)")
    PRODUCT(d.gradients.operand = product.a, INVALID, "gradients.operand, and there is no operand")
    PRODUCT((d.operand = product.a, d.gradients.operand = product.a, d.gradients.operand.extent[0] = 5), LAYOUT,
            "gradients.operand is (batch, m, n)")
    PRODUCT((d.b.dtype = CLATTN_DTYPE_I8, d.b_scale = four), UNSUPPORTED, "a product by an int8 b has no gradients")
    const clattn_kv_append_desc append = CLATTN_KV_APPEND_DESC_INIT;
    NAMED(kv_append, append, d.direction = 1, INVALID, "direction")
    NAMED(kv_append, append, d.cache = 3, INVALID, "unknown cache")
    NAMED(kv_append, append, d.rotate = 2, INVALID, "rotate is neither 0 nor 1")
    NAMED(kv_append, append, d.reserved = 1, INVALID, "reserved is not 0")
}

/* If arrays contradict each other, the message of plan_create has the extents of all that there are.  The operator's name begins it,
 * as that of an enqueue. */
static void extents_are_told(void **state)
{
    (void)state;
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan *none;
    matmul.a = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){4, 6});
    matmul.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){7, 6});
    assert_status(context, clattn_matmul_plan_create(context, &matmul, NULL, &none), CLATTN_ERROR_INVALID_LAYOUT);
    assert_message_has(context, "; a 4 x 6, b 7 x 6, c 4 x 6");
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    matmul.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){6, 6});
    assert_status(context, clattn_matmul_run(context, NULL, &matmul, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "matmul: a: no buffer is bound");
    attention.query = attention.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 5, 8);
    attention.key = attention.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 7, 9);
    assert_status(context, clattn_attention_plan_create(context, &attention, NULL, &none), CLATTN_ERROR_INVALID_LAYOUT);
    assert_message_has(context, "attention: ");
    assert_message_has(context, "; query 1 x 2 x 5 x 8, key 1 x 2 x 7 x 9, value 1 x 2 x 7 x 9, output 1 x 2 x 5 x 8");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_other_operators_check_their_descriptions, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(wrong_layouts_are_named, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(the_field_is_named, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(extents_are_told, refusals_start, refusals_stop),
    };
    return RUN_TESTS("errors of fields", tests, argc, argv);
}
