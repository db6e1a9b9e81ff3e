/* Attention's arrays have the storage types float16, bfloat16, float32 and float64, all the same or each its own.
 *
 * Holds: Meaning 6 (float32 state whatever the storage; nothing inside becomes Inf from float16 inputs up to 65504),
 * the accuracy rule of 16-bit storage, the float32 rule where neither V nor the output has 16 bits, and the same rule
 * in float64; NaN, Inf and what cannot leak in every type. */
#include "support/attention/case.h"

#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16
#define F64 CLATTN_DTYPE_F64
#define HALF .type = FOUR(F16)
#define BFLOAT .type = FOUR(BF16)
#define DOUBLE .type = FOUR(F64)

static const attention_case halves[] = {
    {"float16", ALL, LITTLE, HALF},
    {"float16", BIG | TILE, LARGE, HALF},
    {"float16, one query", BIG, .dim = {2, 4, 2, 1, 131, 8, 8}, HALF},
    {"float16, logits near 1e4 and -1e4", BIG, MEDIUM, HALF, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"float16, logits far apart", BIG, MEDIUM, HALF, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"float16, products that float16 does not hold", ALL, LITTLE, HALF, .scaled = true, .scale = 1e-9f,
     .fill = FILL_LARGE},
    {"float16, products that float16 does not hold", BIG, MEDIUM, HALF, .scaled = true, .scale = 1e-9f,
     .fill = FILL_LARGE},
    {"float16, scores that float16 does not hold", BIG | TILE, MEDIUM, HALF, .fill = FILL_LARGE},
    {"float16, NaN key", BIG, MEDIUM, HALF, .inject = INJECT_KEY_NAN},
    {"float16, infinite key", BIG, MEDIUM, HALF, .inject = INJECT_KEY_INF},
    {"float16, infinite value", BIG, MEDIUM, HALF, .inject = INJECT_VALUE_INF},
    {"float16, beyond the lengths", ALL, LITTLE, HALF, .shorter = true, .actual = {1, 3, 7}, .inject = INJECT_MASKED},
    {"float16, beyond the lengths", BIG | TILE, LARGE, HALF, .shorter = true, .actual = {1, 67, 97},
     .inject = INJECT_MASKED},
    {"float16, gaps", BIG, MEDIUM, HALF, .form = {FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PADDED, FORM_PLAIN}},
    {"float16, columns apart", BIG, MEDIUM, HALF,
     .form = {FORM_SPREAD, FORM_SPREAD, FORM_SPREAD, FORM_SPREAD, FORM_PLAIN}},
    {"float16, (batch, length, heads, size)", BIG, MEDIUM, HALF,
     .form = {FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_BSHD, FORM_PLAIN}},
    {"float16, odd sizes", BIG, .dim = {2, 2, 1, 35, 67, 7, 13}, HALF, .causal = true},
    {"float16, head size 64", FULL, .dim = {1, 2, 1, 70, 131, 64, 64}, HALF},
    {"float16, head size 128", FULL, .dim = {1, 2, 1, 70, 131, 128, 128}, HALF},
    {"bfloat16", ALL, LITTLE, BFLOAT},
    {"bfloat16", BIG | TILE, LARGE, BFLOAT},
    {"bfloat16, logits near 1e4 and -1e4", BIG, MEDIUM, BFLOAT, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"bfloat16, NaN value", BIG, MEDIUM, BFLOAT, .inject = INJECT_VALUE_NAN},
    {"bfloat16, NaN query", BIG, MEDIUM, BFLOAT, .inject = INJECT_QUERY_NAN},
    {"bfloat16, beyond the lengths", BIG | TILE, LARGE, BFLOAT, .shorter = true, .actual = {1, 67, 97},
     .inject = INJECT_MASKED},
    {"bfloat16, columns backwards", BIG, MEDIUM, BFLOAT,
     .form = {FORM_MIRRORED, FORM_MIRRORED, FORM_MIRRORED, FORM_MIRRORED, FORM_PLAIN}},
    {"bfloat16, head size 64", FULL, .dim = {1, 2, 1, 70, 131, 64, 64}, BFLOAT},
};

static const attention_case mixed[] = {
    {"float16 in, float32 out", ALL, LITTLE, .type = TYPES(F16, F16, F16, CLATTN_DTYPE_F32)},
    {"float16 in, float32 out", BIG, LARGE, .type = TYPES(F16, F16, F16, CLATTN_DTYPE_F32)},
    {"float32, float16, bfloat16 in, float16 out, float16 mask", ALL, LITTLE, .mask = MASK_FLOAT,
     .type = TYPES(CLATTN_DTYPE_F32, F16, BF16, F16), .type.mask = F16, .inject = INJECT_MASKED},
    {"float32, float16, bfloat16 in, float16 out, float16 mask", BIG | TILE, MEDIUM, .mask = MASK_FLOAT,
     .type = TYPES(CLATTN_DTYPE_F32, F16, BF16, F16), .type.mask = F16, .inject = INJECT_MASKED},
    {"bfloat16 query and output, boolean mask", BIG, MEDIUM, .mask = MASK_BOOL, .causal = true,
     .type = TYPES(BF16, CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, BF16), .inject = INJECT_MASKED},
    {"float32 with a bfloat16 mask", BIG, MEDIUM, .mask = MASK_FLOAT, .type.mask = BF16},
    {"float16 with bfloat16 bias, softcap, ALiBi, sinks, window", BIG, MEDIUM, HALF, .type.bias = BF16,
     .bias = MASK_FLOAT, .softcap = 3, .alibi = 1, .sinks = true, .windowed = true, .left = 9, .right = 20,
     .inject = INJECT_MASKED},
    {"bfloat16 with a float16 bias, additive, causal, dropout, entropy", BIG, MEDIUM, BFLOAT, .type.bias = F16,
     .bias = MASK_FINITE, .additive = true, .causal = true, .dropout = 0.25f, .seed = 5, .entropy = true},
};

static const attention_case doubles[] = {
    {"float64", ALL, LITTLE, DOUBLE},
    {"float64", BIG, LARGE, DOUBLE},
    {"float64, logits near 1e4 and -1e4", BIG, MEDIUM, DOUBLE, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"float64, NaN key", BIG, MEDIUM, DOUBLE, .inject = INJECT_KEY_NAN},
    {"float64, beyond the lengths", BIG, LARGE, DOUBLE, .shorter = true, .actual = {1, 67, 97},
     .inject = INJECT_MASKED},
    {"float64, float64 mask", BIG, MEDIUM, DOUBLE, .type.mask = F64, .mask = MASK_FLOAT, .inject = INJECT_MASKED},
    {"float64, everything", BIG, MEDIUM, DOUBLE, .type.bias = F64, .bias = MASK_FLOAT, .softcap = 3, .alibi = 2,
     .sinks = true, .windowed = true, .left = 20, .right = 20, .dropout = 0.2f, .seed = 77, .entropy = true,
     .mask = MASK_BOOL, .inject = INJECT_MASKED},
    {"float64, causal, columns backwards", BIG, LARGE, DOUBLE, .causal = true,
     .form = {FORM_MIRRORED, FORM_MIRRORED, FORM_MIRRORED, FORM_MIRRORED, FORM_PLAIN}},
    {"float64, one query, queries of a group together", BIG, .dim = {2, 8, 2, 1, 131, 8, 8}, DOUBLE, .entropy = true},
    {"float64, packed sequences", BIG, .dim = {2, 4, 2, 50, 130, 8, 8}, DOUBLE, .causal = true,
     .list = {.query_starts = LIST(0, 17, 50), .key_starts = LIST(0, 97, 130)}, .longest = 33},
    {"float64, odd sizes", FULL, .dim = {1, 2, 1, 21, 70, 129, 130}, DOUBLE},
    {"float64, additive, float32 mask", FULL, MEDIUM, DOUBLE, .additive = true, .mask = MASK_FLOAT},
};

int main(int argc, char **argv)
{
    attention_add_frugal(halves, COUNT_OF(halves));
    attention_add_frugal(mixed, COUNT_OF(mixed));
    attention_add_frugal(doubles, COUNT_OF(doubles));
    return suite_run("attention storage", argc, argv);
}
