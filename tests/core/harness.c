/* The tests' own tools: the reference agrees with values worked out by hand, and the accuracy checker lets through what
 * the rule allows and nothing else.  Needs no device.
 *
 * Holds: the accuracy rule of docs/numerics.md, and the meaning of masked rows, NaN and Inf, as the other tests take
 * them for granted. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-14)

/* Two keys have scores 0 and log 3, hence weights 1/4 and 3/4. */
static void attention_by_hand(void **state)
{
    double query[] = {1}, key[] = {0, log(3)}, value[] = {1, -2, 5, 6};
    double output[2], magnitude[2], lse[1], weights[2], bound[2];
    reference_problem p = {.batch = 1,
                           .heads = 1,
                           .kv_heads = 1,
                           .queries = 1,
                           .keys = 2,
                           .d_k = 1,
                           .d_v = 2,
                           .scale = 1,
                           .query = query,
                           .key = key,
                           .value = value};
    const reference_result all = {
        .output = output, .magnitude = magnitude, .lse = lse, .weights = weights, .weights_magnitude = bound};

    (void)state;
    reference_attention(&p, false, &all);
    NEAR(output[0], 0.25 * 1 + 0.75 * 5);
    NEAR(output[1], 0.25 * -2 + 0.75 * 6);
    NEAR(magnitude[1], 0.25 * 2 + 0.75 * 6);
    NEAR(lse[0], log(4));
    NEAR(weights[1], 0.75);

    double second_masked[] = {0, -INFINITY};
    key[1] = NAN;
    p.addend = second_masked;
    reference_attention(&p, false, &all);
    NEAR(output[1], -2);
    NEAR(lse[0], 0);
    assert_true(bound[1] == EXACT_ZERO);

    double none[] = {-INFINITY, -INFINITY};
    p.addend = none;
    reference_attention(&p, false, &all);
    assert_true(output[0] == 0 && !signbit(output[0]) && magnitude[0] == EXACT_ZERO);
    assert_true(lse[0] == -INFINITY);

    double lowest[] = {-FLT_MAX, -FLT_MAX};
    key[1] = 2;
    p.addend = lowest;
    reference_attention(&p, true, &(reference_result){.output = output, .lse = lse});
    NEAR(output[0], 3); /* the mean of V */

    key[0] = INFINITY;
    p.addend = NULL;
    reference_attention(&p, false, &(reference_result){.output = output, .magnitude = magnitude, .lse = lse});
    assert_true(isnan(output[0]) && isnan(output[1]) && isnan(lse[0]));
}

/* Four query heads share two key/value heads. */
static void groups_of_heads(void **state)
{
    double query[4] = {1, 1, 1, 1}, key[2] = {1, 1}, value[2] = {10, 20}, output[4];
    reference_problem p = {.batch = 1,
                           .heads = 4,
                           .kv_heads = 2,
                           .queries = 1,
                           .keys = 1,
                           .d_k = 1,
                           .d_v = 1,
                           .scale = 1,
                           .query = query,
                           .key = key,
                           .value = value};

    (void)state;
    reference_attention(&p, false, &(reference_result){.output = output});
    assert_true(output[0] == 10 && output[1] == 10 && output[2] == 20 && output[3] == 20);
}

static void causality_and_position(void **state)
{
    static const struct {
        int64_t position;
        int attended[3]; /* how many of four keys queries 0, 1 and 2 attend */
    } table[] = {{0, {1, 2, 3}}, {1, {2, 3, 4}}, {-2, {0, 0, 1}}, {INT32_MIN, {0, 0, 0}}, {9, {4, 4, 4}}};

    (void)state;
    assert_null(reference_addend(NULL, false, 0, 1, 1, 3, 4));
    for (size_t t = 0; t < COUNT_OF(table); t++) {
        double *addend = reference_addend(NULL, true, table[t].position, 1, 1, 3, 4);
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 4; j++) {
                assert_true(addend[i * 4 + j] == (j < table[t].attended[i] ? 0 : -INFINITY));
            }
        }
        free(addend);
    }
}

static void softmax_by_hand(void **state)
{
    double x[] = {-INFINITY, -INFINITY}, y[2], magnitude[2];
    double all[] = {0, 0}, none[] = {-INFINITY, -INFINITY};

    (void)state;
    reference_softmax(2, 1, x, NULL, false, y, magnitude);
    assert_true(isnan(y[0]) && isnan(y[1]));
    reference_softmax(2, 1, x, none, false, y, magnitude);
    assert_true(y[0] == 0 && !signbit(y[0]) && magnitude[1] == EXACT_ZERO);
    x[0] = 1;
    x[1] = 1 + log(4) / 2;
    reference_softmax(2, 2, x, all, false, y, magnitude);
    NEAR(y[1], 0.8);
}

static void matmul_by_hand(void **state)
{
    double a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, -1, 2, 0, 1, 0}, bias[] = {100, 200}, c[4], magnitude[4];

    (void)state;
    reference_matmul(2, 2, 3, a, b, 2, 1, bias, false, c, magnitude);
    assert_true(c[0] == 108 && c[1] == 199 && c[2] == 120 && c[3] == 196);
    assert_true(magnitude[1] == 201);
    reference_matmul(2, 2, 3, a, b, 1, 3, NULL, true, c, NULL); /* the same array read as (n, k) */
    assert_true(c[0] == 5 && c[1] == 2 && c[2] == 11 && c[3] == 5);
}

/* "narrow" computes each operation in float. */
static void narrow_is_float(void **state)
{
    random_stream stream = random_start(1);
    double a[40], b[40], c;
    volatile float sum = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        float x = random_float(&stream, -1, 1), y = random_float(&stream, -3, 3);
        volatile float product = x * y;
        sum = sum + product;
        a[i] = x;
        b[i] = y;
    }
    reference_matmul(1, 1, 40, a, b, 1, 1, NULL, true, &c, NULL);
    assert_true(c == (double)sum);
}

/* The checker must accept right values and find wrong ones, one at a time. */
static void the_rule(void **state)
{
    const double u = FLT_EPSILON;
    static const double inf = INFINITY, none = EXACT_ZERO;
    const struct {
        double value, reference, naive, magnitude;
        bool good;
    } table[] = {
        {1, 1, 1, 1, true},
        {1 + 8 * u, 1, 1, 1, true},
        {1 + 9 * u, 1, 1, 1, false},
        {1 + 2e-3, 1, 1.001, 1, true},
        {1 - 3e-3, 1, 1.001, 1, false},
        {NAN, 1, 1, 1, false},
        {NAN, 1, NAN, NAN, false},
        {1, NAN, NAN, NAN, false},
        {inf, NAN, NAN, NAN, false},
        {-NAN, NAN, NAN, NAN, true},
        {inf, inf, inf, 1, true},
        {-inf, inf, inf, 1, false},
        {FLT_MAX, inf, inf, 1, false},
        {inf, 1, 1, 1, false},
        {inf, 1, inf, 1, false},
        {0.0, 0, 0, none, true},
        {-0.0, 0, 0, none, false},
        {1e-45, 0, 1, none, false},
        {-0.0, 0, 0, 1, true},
    };

    const accuracy_rule rule = accuracy_rule_of(CLATTN_DTYPE_F32);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        size_t found =
            accuracy_find(&rule, 1, &table[i].value, &table[i].reference, &table[i].naive, &table[i].magnitude, NULL);
        if (found != (table[i].good ? 1u : 0u)) {
            fail_msg("row %zu of the table was %s", i, table[i].good ? "refused" : "let through");
        }
    }
}

/* All bit patterns of the 16-bit types survive a conversion; a number between two of them is rounded to the nearer one
 * or, from the middle, to the even one. */
static void storage_types(void **state)
{
    static const struct {
        clattn_dtype dtype;
        double one_up, largest, smallest;
    } types[] = {{CLATTN_DTYPE_F16, 1 + 0x1p-10, 65504, 0x1p-24},
                 {CLATTN_DTYPE_BF16, 1 + 0x1p-7, 0x1.fep127, 0x1p-133}};

    (void)state;
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        clattn_dtype dtype = types[t].dtype;
        uint16_t one = dtype == CLATTN_DTYPE_F16 ? 0x3c00 : 0x3f80, next = one + 1, stored;

        assert_true(storage_get(dtype, &one) == 1 && storage_get(dtype, &next) == types[t].one_up);
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t pattern = (uint16_t)bits;
            double value = storage_get(dtype, &pattern);
            storage_set(dtype, &stored, value);
            assert_true(stored == pattern || (isnan(value) && isnan(storage_get(dtype, &stored))));
        }
        for (uint32_t bits = 0; bits < 0x7000; bits++) {
            uint16_t low = (uint16_t)bits, high = (uint16_t)(bits + 1), even = (uint16_t)(bits + (bits & 1));
            double a = storage_get(dtype, &low), b = storage_get(dtype, &high), middle = (a + b) / 2;
            assert_true(storage_round(dtype, middle) == storage_get(dtype, &even));
            assert_true(storage_round(dtype, nextafter(middle, 0)) == a || a == 0);
            assert_true(storage_round(dtype, -nextafter(middle, 1e300)) == -b);
            assert_true(storage_rounding(dtype, middle) == (b - a) / 2);
        }
        double half = storage_rounding(dtype, types[t].largest);
        assert_true(storage_round(dtype, nextafter(types[t].largest + half, 0)) == types[t].largest);
        assert_true(storage_round(dtype, types[t].largest + half) == INFINITY);
        assert_true(storage_round(dtype, -1e300) == -INFINITY && isnan(storage_round(dtype, NAN)));
        assert_true(storage_round(dtype, types[t].smallest) == types[t].smallest);
        assert_true(storage_round(dtype, types[t].smallest / 2) == 0);
    }
}

/* A stored value may be off by one more rounding. */
static void accuracy_of_stored(void **state)
{
    static const double inf = INFINITY;
    const struct {
        clattn_dtype dtype;
        double value, reference;
        bool good;
    } table[] = {
        {CLATTN_DTYPE_F16, 1, 1 + 0x1p-11, true},    {CLATTN_DTYPE_F16, 1 + 0x1p-10, 1 + 0x1p-11, true},
        {CLATTN_DTYPE_F16, 1, 1 + 0x1.1p-11, false}, {CLATTN_DTYPE_F16, 0, 0x1p-25, true},
        {CLATTN_DTYPE_F16, 0x1p-24, 0x1p-27, false}, {CLATTN_DTYPE_F16, inf, 65520, true},
        {CLATTN_DTYPE_F16, inf, 65503, false},       {CLATTN_DTYPE_F16, 65504, 65519, true},
        {CLATTN_DTYPE_F16, 65504, 65536, false},     {CLATTN_DTYPE_F16, -inf, 70000, false},
        {CLATTN_DTYPE_F16, NAN, 70000, false},       {CLATTN_DTYPE_BF16, 1, 1 + 0x1p-8, true},
        {CLATTN_DTYPE_BF16, 1, 1 + 0x1.1p-8, false}, {CLATTN_DTYPE_BF16, inf, 1e38, false},
        {CLATTN_DTYPE_F32, inf, 1e38, false},        {CLATTN_DTYPE_F32, 1, 1 + 0x1p-11, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        double reference = table[i].reference, magnitude = fabs(reference);
        const accuracy_rule rule = accuracy_rule_of(table[i].dtype);
        size_t found = accuracy_find(&rule, 1, &table[i].value, &reference, &reference, &magnitude, NULL);
        if (found != (table[i].good ? 1u : 0u)) {
            fail_msg("row %zu of the table was %s", i, table[i].good ? "refused" : "let through");
        }
    }
}

static void seeds_repeat(void **state)
{
    random_stream one = random_start(5), same = random_start(5), other = random_start(6);
    double low = 1, high = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        uint64_t bits = random_bits(&one);
        assert_true(bits == random_bits(&same) && bits != random_bits(&other));
        float x = random_float(&one, 0, 1);
        assert_true(x >= 0 && x < 1 && x == random_float(&same, 0, 1));
        low = fmin(low, x);
        high = fmax(high, x);
    }
    assert_true(low < 0.01 && high > 0.99);
}

int main(int argc, char **argv)
{
    suite_add(attention_by_hand, "reference: attention by hand");
    suite_add(groups_of_heads, "reference: grouped heads");
    suite_add(causality_and_position, "reference: causality");
    suite_add(softmax_by_hand, "reference: softmax by hand");
    suite_add(matmul_by_hand, "reference: matmul by hand");
    suite_add(narrow_is_float, "reference: the naive computation is float");
    suite_add(the_rule, "accuracy: the rule");
    suite_add(accuracy_of_stored, "accuracy: values stored in 16 bits");
    suite_add(storage_types, "storage: float16 and bfloat16");
    suite_add(seeds_repeat, "random: seeds repeat");
    return suite_run("harness", argc, argv);
}
