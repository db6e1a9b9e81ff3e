#include "tool/bench/random_shape.h"

#include "tool/run/random_next.h"

enum { B, HQ, HKV, SQ, SKV, D, DV };

const char *const random_operator_names[RANDOM_OPERATORS] = {"attention", "matmul", "softmax", "layernorm"};

static uint64_t below(uint64_t *state, uint64_t limit)
{
    return random_next(state) % limit;
}

/* A number from 1 to 2^bits. */
static size_t log_uniform(uint64_t *state, unsigned bits)
{
    uint64_t low = (uint64_t)1 << below(state, bits + 1), size = low + below(state, low);
    return (size_t)(size >> bits ? (uint64_t)1 << bits : size);
}

/* A number from 16 to 256. */
static size_t head_size(uint64_t *state)
{
    uint64_t low = (uint64_t)16 << below(state, 4), size = low + below(state, low);
    return (size_t)(below(state, 2) ? size : (size + 15) / 16 * 16);
}

static random_shape attention(uint64_t *state)
{
    random_shape shape = {.of = RANDOM_ATTENTION, .rank = 7};
    size_t *s = shape.size;
    s[B] = log_uniform(state, 4);
    s[HKV] = log_uniform(state, 4);
    s[HQ] = s[HKV] * log_uniform(state, 3);
    s[SQ] = log_uniform(state, 13);
    s[SKV] = log_uniform(state, 15);
    s[D] = head_size(state);
    s[DV] = below(state, 4) ? s[D] : head_size(state);
    shape.causal = below(state, 4) == 0;
    return shape;
}

static random_shape others(random_operator of, uint64_t *state)
{
    random_shape shape = {.of = of, .rank = of == RANDOM_MATMUL ? 3 : 2};
    for (size_t i = 0; i < shape.rank; i++)
        shape.size[i] = log_uniform(state, of == RANDOM_MATMUL ? 13 : 17);
    return shape;
}

/* Sizes are at most 2^20, and the products of sizes here at most 2^60, so nothing overflows. */
uint64_t random_shape_work(const random_shape *shape, uint64_t per_element)
{
    const size_t *s = shape->size;
    uint64_t work = 0, elements = 0;
    switch (shape->of) {
    case RANDOM_ATTENTION:
        work = 2 * (uint64_t)s[B] * s[HQ] * s[SQ] * s[SKV] * (s[D] + s[DV]);
        elements = (uint64_t)s[B] * (s[HQ] * s[SQ] + s[HKV] * s[SKV]) * (s[D] + s[DV]);
        break;
    case RANDOM_MATMUL:
        work = 2 * (uint64_t)s[0] * s[1] * s[2];
        elements = (uint64_t)s[0] * s[2] + (uint64_t)s[1] * s[2] + (uint64_t)s[0] * s[1];
        break;
    case RANDOM_SOFTMAX:
    case RANDOM_LAYERNORM:
        work = (shape->of == RANDOM_SOFTMAX ? 5 : 7) * (uint64_t)s[0] * s[1];
        elements = 2 * (uint64_t)s[0] * s[1];
        break;
    }
    return work > elements * per_element ? work : elements * per_element;
}

/* Halves the largest of the free sizes, or doubles the smallest and adds 0 or 1.  If all are 1 already, an
 * attention's group of heads becomes one head, then head sizes are halved. */
static void fit(random_shape *shape, bool smaller, uint64_t *state)
{
    static const size_t all[] = {0, 1, 2}, of_attention[] = {SQ, SKV, HKV, B};
    const bool has_heads = shape->of == RANDOM_ATTENTION;
    const size_t *index = has_heads ? of_attention : all;
    size_t *s = shape->size, count = has_heads ? 4 : shape->rank, best = index[0],
           group = has_heads ? s[HQ] / s[HKV] : 1;
    for (size_t i = 1; i < count; i++)
        if (smaller ? s[index[i]] > s[best] : s[index[i]] < s[best])
            best = index[i];
    if (!smaller) {
        s[best] = 2 * s[best] + below(state, 2);
    } else if (s[best] > 1) {
        s[best] /= 2;
    } else if (group > 1) {
        group = 1;
    } else {
        s[D] = (s[D] + 1) / 2;
        s[DV] = (s[DV] + 1) / 2;
    }
    if (has_heads)
        s[HQ] = s[HKV] * group;
}

random_shape random_shape_draw(uint64_t seed, uint64_t index, const random_limits *limits)
{
    uint64_t state = seed;
    state = random_next(&state) + index;
    state = random_next(&state); /* neighbouring indices must not give neighbouring sequences */
    random_operator of = (random_operator)(index % RANDOM_OPERATORS);
    random_shape shape = of == RANDOM_ATTENTION ? attention(&state) : others(of, &state);
    while (random_shape_work(&shape, RANDOM_COST_AT_MOST) > limits->most)
        fit(&shape, true, &state);
    while (random_shape_work(&shape, RANDOM_COST_AT_LEAST) < limits->least)
        fit(&shape, false, &state);
    return shape;
}
