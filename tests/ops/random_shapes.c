/* Every solver computes random shapes of attention, matrix products, softmax and LayerNorm, drawn by the benchmarks'
 * generator (src/tool/bench/random_shape.h); CLATTN_TEST_SEED draws others.
 *
 * Holds: the accuracy rule and guard bands whatever the shape; and the generator's own promises. */
#include <string.h>

#include "tool/bench/random_shape.h"
#include "support/attention/case.h"
#include "support/ops/matmul_case.h"
#include "support/ops/norm_case.h"
#include "support/ops/softmax_case.h"

#define MOST_EACH 12

static attention_case attentions[MOST_EACH];
static matmul_case products[MOST_EACH];
static softmax_case softmaxes[MOST_EACH];
static norm_case norms[MOST_EACH];

/* Returns the number of shapes of each operator at this level, and sets how much work each may be. */
static size_t count_of_level(random_limits *limits)
{
    *limits = (random_limits){1, by_level(1u << 19, 1u << 22, 1u << 22, 1u << 24)};
    return by_level(2, 2, 4, MOST_EACH);
}

static void draw(size_t count, const random_limits *limits)
{
    for (size_t i = 0; i < count * RANDOM_OPERATORS; i++) {
        const random_shape shape = random_shape_draw(random_seed(), i, limits);
        const size_t *s = shape.size, n = i / RANDOM_OPERATORS;
        switch (shape.of) {
        case RANDOM_ATTENTION:
            attentions[n] = (attention_case){"random", ALL | (n % 2 == 0 ? TILE : 0), .causal = shape.causal,
                                             .dim = {s[0], s[1], s[2], s[3], s[4], s[5], s[6]}, .long_loops = true};
            break;
        case RANDOM_MATMUL: products[n] = (matmul_case){"random", ALL, .m = s[0], .n = s[1], .k = s[2]}; break;
        case RANDOM_SOFTMAX:
            softmaxes[n] = (softmax_case){"random", ALL, .rank = 2, .extent = {s[0], s[1]}, .long_loops = true};
            break;
        case RANDOM_LAYERNORM:
            norms[n] = (norm_case){"random",
                                   ALL,
                                   .rank = 2,
                                   .extent = {s[0], s[1]},
                                   .long_loops = true,
                                   .scale = {1, {s[1]}, FORM_PLAIN, 0},
                                   .bias = {1, {s[1]}, FORM_PLAIN, 0}};
            break;
        }
    }
}

static void a_seed_and_an_index_give_one_shape(void **state)
{
    /* The algorithm gives these shapes on every machine. */
    static const random_limits wide = {1, (uint64_t)1 << 40};
    random_shape first[RANDOM_OPERATORS];

    (void)state;
    for (size_t i = 0; i < RANDOM_OPERATORS; i++) {
        first[i] = random_shape_draw(1, i, &wide);
        const random_shape again = random_shape_draw(1, i, &wide), other = random_shape_draw(2, i, &wide);
        assert_int_equal(first[i].of, i);
        assert_memory_equal(first[i].size, again.size, sizeof again.size);
        assert_true(memcmp(first[i].size, other.size, sizeof other.size) != 0);
    }
#define SIZES(...) ((const size_t[]){__VA_ARGS__})
#define EQUAL(i, ...) assert_memory_equal(first[i].size, SIZES(__VA_ARGS__), sizeof SIZES(__VA_ARGS__))
    EQUAL(RANDOM_ATTENTION, 1, 18, 9, 30, 250, 32, 32);
    EQUAL(RANDOM_MATMUL, 8192, 1798, 31);
    EQUAL(RANDOM_SOFTMAX, 20, 61521);
    EQUAL(RANDOM_LAYERNORM, 59, 2);
}

static void sizes_are_what_the_header_says(void **state)
{
    static const random_limits limits[] = {{1, RANDOM_LEAST_MOST},
                                           {(uint64_t)1 << 25, (uint64_t)1 << 33},
                                           {RANDOM_MOST_MOST / RANDOM_SPAN, RANDOM_MOST_MOST}};
    size_t causal = 0, odd = 0, longer = 0, one = 0;

    (void)state;
    for (size_t i = 0; i < 3 * 4000; i++) {
        const random_limits *l = &limits[i % 3];
        const random_shape shape = random_shape_draw(7, i / 3, l);
        const size_t *s = shape.size;
        assert_true(random_shape_work(&shape, RANDOM_COST_AT_LEAST) >= l->least);
        assert_true(random_shape_work(&shape, RANDOM_COST_AT_MOST) <= l->most);
        for (size_t d = 0; d < 7; d++)
            assert_true(d < shape.rank ? s[d] >= 1 : s[d] == 0);
        if (shape.of != RANDOM_ATTENTION) {
            assert_false(shape.causal);
            continue;
        }
        assert_int_equal(s[1] % s[2], 0);
        assert_true(s[5] <= 256 && s[6] <= 256 && (i % 3 == 0 || (s[5] >= 16 && s[6] >= 16)));
        causal += shape.causal;
        odd += s[4] % 2;
        longer += s[5] != s[6];
        one += s[3] == 1;
    }
    /* There are 3000 shapes in all. */
    assert_in_range(causal, 600, 900);
    assert_in_range(odd, 600, 2000);
    assert_in_range(longer, 400, 1000);
    assert_in_range(one, 150, 1500);
}

int main(int argc, char **argv)
{
    random_limits limits;
    const size_t count = count_of_level(&limits);

    draw(count, &limits);
    suite_add(a_seed_and_an_index_give_one_shape, "random shapes: a seed and an index give one shape");
    suite_add(sizes_are_what_the_header_says, "random shapes: sizes are what the header says");
    attention_add_frugal(attentions, count);
    matmul_add(products, count);
    softmax_add(softmaxes, count);
    norm_add(norms, count);
    return suite_run("random shapes", argc, argv);
}
