/* Every solver computes LayerNorm and RMSNorm of rows of 1 to a million elements over any trailing axes and strides,
 * storage types, broadcast scales and biases, statistics, also in place.
 *
 * Holds: what clattn/norm.h says about accuracy, which is tighter than the accuracy rule of docs/numerics.md, and about
 * NaN, Inf, constant rows and overflow; guard bands; what is refused. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "support/ops/norm_case.h"
#include "support/operator.h"

#define DIMS(n, ...) .rank = (n), .extent = {__VA_ARGS__}
#define FACTOR(n, ...) \
    { \
        .rank = (n), .extent = { __VA_ARGS__ } \
    }
#define BOTH(n, ...) .scale = FACTOR(n, __VA_ARGS__), .bias = FACTOR(n, __VA_ARGS__)
#define RMS .rms = true

static const norm_case rows[] = {
    {"one element", ALL, DIMS(2, 3, 1), BOTH(1, 1)},
    {"one element", ALL, DIMS(2, 3, 1), RMS},
    {"short rows", ALL, DIMS(2, 5, 2), BOTH(1, 2)},
    {"short rows", BIG, DIMS(2, 7, 3), RMS, .scale = FACTOR(1, 3)},
    {"a vector - 1", ALL, DIMS(2, 3, 15), BOTH(1, 15)},
    {"a vector", ALL, DIMS(2, 3, 16), BOTH(1, 16)},
    {"a vector + 1", ALL, DIMS(2, 3, 17), BOTH(1, 17)},
    {"a vector + 1", ALL, DIMS(2, 3, 17), RMS, .scale = FACTOR(1, 17)},
    {"work-group - 1", BIG, DIMS(2, 5, 255), BOTH(1, 255)},
    {"work-group", BIG, DIMS(2, 5, 256), BOTH(1, 256)},
    {"work-group + 1", BIG, DIMS(2, 5, 257), RMS, .scale = FACTOR(1, 257)},
    {"prime", BIG, DIMS(2, 11, 4099), BOTH(1, 4099)},
    {"prime", BIG, DIMS(2, 11, 4099), RMS, .scale = FACTOR(1, 4099)},
    {"many rows", BIG, DIMS(2, 10007, 5), BOTH(1, 5)},
    {"a long row", BIG, DIMS(1, 65537), .long_loops = true},
    {"a long row", FULL, DIMS(2, 2, 1000000), BOTH(1, 1000000), .long_loops = true},
    {"side by side, 1 column", ALL, DIMS(2, 37, 1), BOTH(1, 1)},
    {"side by side, 2 columns", BIG, DIMS(2, 37, 2), BOTH(1, 2)},
    {"side by side, 5 columns", ALL, DIMS(2, 37, 5), BOTH(1, 5), .outputs = NORM_MEAN | NORM_INVERSE},
    {"side by side, 8 columns", BIG, DIMS(2, 37, 8), RMS, .scale = FACTOR(1, 8), .outputs = NORM_INVERSE},
    {"side by side, 9 columns", ALL, DIMS(2, 37, 9), RMS, .scale = FACTOR(1, 9)},
    {"side by side, 16 columns", BIG, DIMS(2, 53, 16), BOTH(1, 16), .outputs = NORM_MEAN | NORM_INVERSE},
    {"side by side, 31 columns", BIG, DIMS(2, 5, 31), BOTH(1, 31)},
    {"side by side, 32 columns", BIG, DIMS(2, 5, 32), BOTH(1, 32)},
    {"side by side, 64 columns", BIG, DIMS(2, 37, 64), RMS, .scale = FACTOR(1, 64)},
    {"side by side, 127 columns", BIG, DIMS(2, 37, 127), BOTH(1, 127)},
    {"side by side, 128 columns", BIG, DIMS(2, 37, 128), BOTH(1, 128)},
    {"side by side, gaps", ALL, DIMS(2, 37, 6), .x = FORM_PADDED, .y = FORM_PADDED, BOTH(1, 6)},
    {"side by side, rows contiguous", ALL, DIMS(2, 37, 5), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED, BOTH(1, 5)},
    {"channels of pixels in planes", BIG, DIMS(3, 2, 37, 150), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED, BOTH(1, 150),
     .outputs = NORM_MEAN | NORM_INVERSE},
    {"channels of pixels in planes, 1,024", BIG, DIMS(2, 21, 1024), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED,
     BOTH(1, 1024), .offset = 1e4f, .spread = 1},
    {"groups of channels (GroupNorm)", ALL, DIMS(4, 2, 3, 5, 19), .axes = 2, BOTH(4, 1, 3, 5, 1)},
    {"each channel (InstanceNorm)", BIG, DIMS(4, 2, 3, 5, 19), .axes = 2, BOTH(4, 1, 3, 1, 1)},
    {"side by side, columns apart", BIG, DIMS(2, 37, 9), .x = FORM_SPREAD, .y = FORM_SPREAD, BOTH(1, 9)},
    {"side by side, backwards", BIG, DIMS(2, 37, 9), .x = FORM_FLIPPED, .y = FORM_MIRRORED, BOTH(1, 9)},
    {"side by side, in place", ALL, DIMS(2, 37, 5), .in_place = true, BOTH(1, 5)},
    {"side by side, scale and bias everywhere", BIG, DIMS(2, 37, 19), BOTH(2, 37, 19)},
    {"side by side, scale for each row", BIG, DIMS(2, 37, 19), .scale = FACTOR(2, 37, 1), .bias = FACTOR(1, 1)},
    {"side by side, float16", BIG, DIMS(2, 37, 13), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16},
    {"side by side, bfloat16 to float32", ALL, DIMS(2, 21, 13), RMS, .x_type = CLATTN_DTYPE_BF16},
    {"side by side, offset 1e4", BIG, DIMS(2, 37, 35), .offset = 1e4f, .spread = 1,
     .outputs = NORM_MEAN | NORM_INVERSE},
    {"side by side, NaN", ALL, DIMS(2, 37, 5), .inject = NORM_NAN, .outputs = NORM_MEAN | NORM_INVERSE},
    {"side by side, overflow", BIG, DIMS(2, 37, 11), .inject = NORM_OVERFLOW},
    {"side by side, constant", BIG, DIMS(2, 37, 11), .inject = NORM_CONSTANT, BOTH(1, 11)},
    {"ranks", ALL, DIMS(1, 9), BOTH(1, 9)},
    {"ranks", ALL, DIMS(5, 2, 3, 2, 3, 7), BOTH(1, 7)},
};

static const norm_case axes[] = {
    {"axes", ALL, DIMS(3, 2, 3, 5), .axes = 2, BOTH(2, 3, 5)},
    {"axes", ALL, DIMS(3, 2, 3, 5), .axes = 3, BOTH(3, 2, 3, 5)},
    {"axes", BIG, DIMS(5, 2, 3, 2, 3, 67), .axes = 3, BOTH(3, 2, 3, 67)},
    {"axes", BIG, DIMS(5, 2, 3, 2, 3, 67), .axes = 5, RMS, .scale = FACTOR(1, 67)},
    {"axes with gaps", ALL, DIMS(3, 2, 3, 5), .axes = 2, BOTH(2, 3, 5), .x = FORM_PADDED, .y = FORM_PADDED},
    {"axes with gaps", BIG, DIMS(4, 2, 3, 5, 67), .axes = 3, RMS, .scale = FACTOR(3, 3, 5, 67), .x = FORM_PADDED},
    {"axes, columns outermost", ALL, DIMS(3, 2, 5, 19), .axes = 2, BOTH(2, 5, 19), .x = FORM_TRANSPOSED,
     .y = FORM_TRANSPOSED},
    {"axes, columns outermost", BIG, DIMS(3, 2, 67, 31), .axes = 2, BOTH(2, 67, 31), .x = FORM_TRANSPOSED},
    {"axes backwards", BIG, DIMS(3, 2, 7, 19), .axes = 2, BOTH(2, 7, 19), .x = FORM_FLIPPED, .y = FORM_MIRRORED},
    {"axes, heads inside", BIG, DIMS(4, 2, 3, 5, 7), .axes = 3, BOTH(3, 3, 5, 7), .x = FORM_BSHD, .y = FORM_PADDED},
    {"axes of one", BIG, DIMS(4, 3, 1, 19, 1), .axes = 3, BOTH(3, 1, 19, 1)},
};

static const norm_case forms[] = {
    {"heads inside", ALL, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD, .y = FORM_BSHD, BOTH(1, 7)},
    {"gaps", BIG, DIMS(3, 3, 5, 259), .x = FORM_PADDED, .y = FORM_PADDED, BOTH(1, 259)},
    {"columns apart", ALL, DIMS(3, 2, 3, 19), .x = FORM_SPREAD, .y = FORM_SPREAD, BOTH(1, 19)},
    {"columns backwards", ALL, DIMS(2, 5, 19), .x = FORM_MIRRORED, .y = FORM_MIRRORED, BOTH(1, 19)},
    {"columns backwards", BIG, DIMS(2, 5, 259), RMS, .x = FORM_MIRRORED, .scale = FACTOR(1, 259)},
    {"rows backwards", BIG, DIMS(2, 5, 19), .x = FORM_FLIPPED, .y = FORM_FLIPPED, BOTH(1, 19)},
    {"rows contiguous", BIG, DIMS(2, 67, 259), .x = FORM_TRANSPOSED, BOTH(1, 259)},
    {"one row for all", ALL, DIMS(3, 2, 3, 19), .x = FORM_SHARED_ROWS, BOTH(1, 19)},
    {"in place", ALL, DIMS(2, 5, 19), .in_place = true, BOTH(1, 19)},
    {"in place", BIG, DIMS(2, 5, 8209), .in_place = true, BOTH(1, 8209)},
    {"in place", BIG, DIMS(2, 5, 4099), RMS, .in_place = true, .scale = FACTOR(1, 4099)},
    {"in place, strided", ALL, DIMS(3, 2, 5, 19), .axes = 2, .x = FORM_SPREAD, .in_place = true, BOTH(2, 5, 19)},
};

static const norm_case factors[] = {
    {"bare", ALL, DIMS(2, 3, 19)},
    {"scale alone", BIG, DIMS(2, 3, 19), .scale = FACTOR(1, 19)},
    {"bias alone", BIG, DIMS(2, 3, 19), .bias = FACTOR(1, 19)},
    {"RMS with a bias", BIG, DIMS(2, 3, 19), RMS, BOTH(1, 19)},
    {"scale and bias everywhere", ALL, DIMS(3, 2, 3, 19), BOTH(3, 2, 3, 19)},
    {"scale and bias for each batch item", ALL, DIMS(3, 2, 3, 19), .scale = FACTOR(3, 2, 1, 19),
     .bias = FACTOR(3, 2, 1, 1)},
    {"scale for each row", BIG, DIMS(4, 2, 3, 5, 19), .axes = 2, .scale = FACTOR(3, 3, 1, 1), .bias = FACTOR(1, 1)},
    {"scale broadcast within axes", BIG, DIMS(3, 2, 5, 19), .axes = 2, .scale = FACTOR(2, 5, 1), .bias = FACTOR(1, 19)},
    {"scale backwards", BIG, DIMS(2, 3, 19), .scale = {.rank = 1, .extent = {19}, .form = FORM_MIRRORED},
     .bias = {.rank = 1, .extent = {19}, .form = FORM_SPREAD}},
};

static const norm_case types[] = {
    {"float16", ALL, DIMS(2, 5, 35), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16,
     .scale = {1, {35}, FORM_PLAIN, CLATTN_DTYPE_F16}, .bias = {1, {35}, FORM_PLAIN, CLATTN_DTYPE_F16}},
    {"float16", BIG, DIMS(2, 7, 1031), RMS, .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16,
     .scale = {1, {1031}, FORM_PLAIN, CLATTN_DTYPE_F16}},
    {"float16, huge", BIG, DIMS(2, 7, 67), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16, .spread = 65000,
     .scale = {1, {67}, FORM_PLAIN, CLATTN_DTYPE_F16}, .bias = {1, {67}, FORM_PLAIN, CLATTN_DTYPE_F16}},
    {"bfloat16", ALL, DIMS(2, 5, 35), .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16,
     .scale = {1, {35}, FORM_PLAIN, CLATTN_DTYPE_BF16}, .bias = {1, {35}, FORM_PLAIN, CLATTN_DTYPE_BF16}},
    {"bfloat16", BIG, DIMS(2, 7, 1031), RMS, .x_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16,
     .scale = {1, {1031}, FORM_PLAIN, CLATTN_DTYPE_BF16}},
    {"float16 to float32", BIG, DIMS(2, 7, 131), .x_type = CLATTN_DTYPE_F16,
     .scale = {1, {131}, FORM_PLAIN, CLATTN_DTYPE_BF16}, .bias = FACTOR(1, 131), .outputs = NORM_MEAN | NORM_INVERSE},
    {"float32 to float16, strided", BIG, DIMS(2, 7, 131), .y_type = CLATTN_DTYPE_F16, .y = FORM_SPREAD,
     .bias = {1, {131}, FORM_PLAIN, CLATTN_DTYPE_F16}},
};

static const norm_case accuracy[] = {
    {"offset 1e4", ALL, DIMS(2, 3, 35), .offset = 1e4f, .spread = 1},
    {"offset 1e6", BIG, DIMS(2, 3, 1031), .offset = 1e6f, .spread = 1, BOTH(1, 1031),
     .outputs = NORM_MEAN | NORM_INVERSE},
    {"offset -1e6, long rows", BIG, DIMS(2, 3, 8209), .offset = -1e6f, .spread = 10,
     .outputs = NORM_MEAN | NORM_INVERSE},
    {"offset 1e4", BIG, DIMS(2, 3, 1031), RMS, .offset = 1e4f, .spread = 1, .outputs = NORM_INVERSE},
    {"large", ALL, DIMS(2, 3, 35), .spread = 1e16f, .outputs = NORM_MEAN | NORM_INVERSE},
    {"small, epsilon 0", ALL, DIMS(2, 3, 35), .spread = 1e-12f, .explicit_epsilon = true, .epsilon = 0,
     .outputs = NORM_MEAN | NORM_INVERSE},
    {"small", BIG, DIMS(2, 3, 35), RMS, .spread = 1e-12f, .outputs = NORM_INVERSE},
    {"epsilon 0", BIG, DIMS(2, 3, 259), RMS, .explicit_epsilon = true, .epsilon = 0, .outputs = NORM_INVERSE},
    {"epsilon 1", ALL, DIMS(2, 3, 19), .explicit_epsilon = true, .epsilon = 1, .outputs = NORM_INVERSE},
    {"mean", ALL, DIMS(4, 2, 3, 5, 7), .axes = 2, .y = FORM_PADDED, .outputs = NORM_MEAN | NORM_INVERSE, BOTH(2, 5, 7)},
    {"mean alone", BIG, DIMS(5, 2, 3, 2, 5, 7), .axes = 1, .outputs = NORM_MEAN},
    {"mean of all", BIG, DIMS(3, 2, 5, 7), .axes = 3, .outputs = NORM_MEAN | NORM_INVERSE},
};

#define RESIDUAL(n, ...) .residual = FACTOR(n, __VA_ARGS__)
#define SUM .sum = true
#define STORED(x, n, ...) {.rank = (n), .extent = {__VA_ARGS__}, .dtype = CLATTN_DTYPE_##x}

static const norm_case residuals[] = {
    {"residual", ALL, DIMS(2, 3, 19), RESIDUAL(2, 3, 19), SUM, BOTH(1, 19)},
    {"residual", BIG, DIMS(2, 5, 4099), RESIDUAL(2, 5, 4099), SUM, BOTH(1, 4099), .outputs = NORM_MEAN | NORM_INVERSE},
    {"residual", BIG, DIMS(2, 5, 259), RMS, RESIDUAL(2, 5, 259), SUM, .scale = FACTOR(1, 259), .outputs = NORM_INVERSE},
    {"residual, side by side", ALL, DIMS(2, 37, 5), RESIDUAL(2, 37, 5), SUM, BOTH(1, 5)},
    {"residual of one row, side by side", BIG, DIMS(2, 37, 24), RESIDUAL(1, 24), SUM},
    {"residual, sum in its place, y in x's, side by side", BIG, DIMS(2, 37, 24), .in_place = true, RESIDUAL(2, 37, 24),
     SUM, .sum_in_place = true},
    {"residual, no sum", ALL, DIMS(2, 3, 35), RESIDUAL(2, 3, 35), BOTH(1, 35)},
    {"residual, RMS", ALL, DIMS(2, 3, 35), RMS, RESIDUAL(2, 3, 35), SUM},
    {"residual of one row", ALL, DIMS(3, 2, 3, 19), RESIDUAL(1, 19), SUM},
    {"residual of one batch item", BIG, DIMS(3, 2, 3, 19), RESIDUAL(2, 3, 19), SUM, BOTH(1, 19)},
    {"residual of each batch item", BIG, DIMS(3, 2, 3, 19), RESIDUAL(3, 2, 1, 19), SUM},
    {"residual, strided", ALL, DIMS(3, 2, 3, 19), .x = FORM_PADDED, .y = FORM_SPREAD,
     .residual = {3, {2, 3, 19}, FORM_MIRRORED, 0}, SUM, .sum_form = FORM_BSHD},
    {"residual, columns outermost", BIG, DIMS(3, 2, 67, 31), .axes = 2, .x = FORM_TRANSPOSED, RESIDUAL(3, 2, 67, 31),
     SUM, .sum_form = FORM_PADDED},
    {"residual, axes with gaps", ALL, DIMS(3, 2, 3, 5), .axes = 2, RESIDUAL(3, 2, 3, 5), SUM, .sum_form = FORM_PADDED},
    {"residual, sum in its place", ALL, DIMS(2, 5, 19), RESIDUAL(2, 5, 19), SUM, .sum_in_place = true, BOTH(1, 19)},
    {"residual, sum in its place, y in x's", ALL, DIMS(2, 5, 19), .in_place = true, RESIDUAL(2, 5, 19), SUM,
     .sum_in_place = true},
    {"residual, sum in its place, y in x's", BIG, DIMS(2, 5, 8209), .in_place = true, RESIDUAL(2, 5, 8209), SUM,
     .sum_in_place = true, BOTH(1, 8209)},
    {"residual, sum in its place, strided", BIG, DIMS(3, 2, 5, 19), .axes = 2, .x = FORM_SPREAD, .in_place = true,
     .residual = {3, {2, 5, 19}, FORM_TRANSPOSED, 0}, SUM, .sum_in_place = true},
    {"residual, float16", ALL, DIMS(2, 5, 35), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16,
     .residual = STORED(F16, 2, 5, 35), SUM, .sum_type = CLATTN_DTYPE_F16, BOTH(1, 35)},
    {"residual, bfloat16 to float32", BIG, DIMS(2, 5, 259), RMS, .x_type = CLATTN_DTYPE_BF16,
     .y_type = CLATTN_DTYPE_BF16, SUM, .residual = STORED(F32, 2, 5, 259), .scale = FACTOR(1, 259)},
    {"residual, each another", BIG, DIMS(2, 5, 259), .x_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F32, SUM,
     .residual = STORED(BF16, 2, 5, 259), .sum_type = CLATTN_DTYPE_BF16, .sum_form = FORM_SPREAD},
    {"residual, offset 1e4", ALL, DIMS(2, 3, 35), RESIDUAL(2, 3, 35), SUM, .offset = 1e4f, .spread = 1,
     .outputs = NORM_MEAN | NORM_INVERSE},
    {"residual, NaN", ALL, DIMS(2, 3, 19), RESIDUAL(2, 3, 19), SUM, .inject = NORM_NAN},
    {"residual, beyond the batch", ALL, DIMS(3, 4, 3, 19), RESIDUAL(3, 4, 3, 19), SUM, .inject = NORM_BEYOND,
     .explicit_batch = true, .batch = 2},
    {"residual, no rows", ALL, DIMS(2, 0, 19), RESIDUAL(2, 0, 19), SUM},
    {"residual of one element", ALL, DIMS(2, 3, 1), RESIDUAL(2, 3, 1), SUM},
};

/* Draws residuals, forms and types at random. */
#define MOST_RANDOM 16

static norm_case drawn[MOST_RANDOM];

static void draw(size_t count)
{
    static const clattn_dtype kind[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    static const array_form any[] = {FORM_PLAIN,   FORM_PADDED,   FORM_SPREAD,
                                     FORM_FLIPPED, FORM_MIRRORED, FORM_TRANSPOSED};
    random_stream r = random_start(99);

    for (size_t i = 0; i < count; i++) {
        norm_case c = {"random residual", ALL, .rank = random_int(&r, 1, 4), .sum = true};
        for (int d = 0; d < c.rank; d++) {
            c.extent[d] = (size_t)random_int(&r, 1, d == c.rank - 1 ? 90 : 4);
        }
        c.axes = random_int(&r, 1, c.rank);
        c.rms = random_int(&r, 0, 1);
        c.x = any[random_int(&r, 0, 5)];
        c.y = any[random_int(&r, 0, 5)];
        c.sum_form = any[random_int(&r, 0, 5)];
        c.x_type = kind[random_int(&r, 0, 2)];
        c.y_type = kind[random_int(&r, 0, 2)];
        c.sum_type = kind[random_int(&r, 0, 2)];
        c.residual =
            (norm_factor){.rank = c.rank, .form = any[random_int(&r, 0, 5)], .dtype = kind[random_int(&r, 0, 2)]};
        for (int d = 0; d < c.rank; d++) {
            c.residual.extent[d] = random_int(&r, 0, 4) ? c.extent[d] : 1;
        }
        c.scale = (norm_factor){.rank = 1, .extent = {c.extent[c.rank - 1]}};
        c.outputs = c.rms ? 0 : NORM_MEAN;
        drawn[i] = c;
    }
}

static const norm_case values[] = {
    {"NaN", ALL, DIMS(2, 3, 19), .inject = NORM_NAN, .outputs = NORM_MEAN | NORM_INVERSE},
    {"NaN", BIG, DIMS(2, 3, 4099), RMS, .inject = NORM_NAN, .scale = FACTOR(1, 4099), .outputs = NORM_INVERSE},
    {"-inf", ALL, DIMS(2, 3, 19), .inject = NORM_INF},
    {"-inf", BIG, DIMS(2, 3, 259), RMS, .inject = NORM_INF, .outputs = NORM_INVERSE},
    {"overflow", ALL, DIMS(2, 3, 19), .inject = NORM_OVERFLOW},
    {"overflow", BIG, DIMS(2, 3, 259), RMS, .inject = NORM_OVERFLOW},
    {"constant", ALL, DIMS(2, 3, 19), .inject = NORM_CONSTANT, BOTH(1, 19)},
    {"constant", BIG, DIMS(2, 3, 4099), .inject = NORM_CONSTANT, BOTH(1, 4099)},
    {"beyond the batch", ALL, DIMS(3, 4, 3, 19), .inject = NORM_BEYOND, .explicit_batch = true, .batch = 2,
     .scale = FACTOR(3, 4, 1, 19), .outputs = NORM_MEAN | NORM_INVERSE},
    {"beyond the batch", BIG, DIMS(4, 4, 3, 5, 19), .axes = 2, .inject = NORM_BEYOND, .explicit_batch = true,
     .batch = 1, .scale = FACTOR(4, 4, 1, 5, 19), .bias = FACTOR(4, 1, 3, 5, 19)},
    {"no rows", ALL, DIMS(2, 0, 19), BOTH(1, 19)},
    {"no rows at enqueue", ALL, DIMS(2, 3, 19), .explicit_batch = true, .batch = 0, .outputs = NORM_MEAN},
    {"no elements", ALL, DIMS(2, 3, 0)},
};

static clattn_norm_desc good_desc(void)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;

    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 4});
    desc.scale = desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F16, 1, (size_t[]){4});
    desc.mean = desc.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 1});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(norm, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_norm_desc good = good_desc(), zeroed = CLATTN_NORM_DESC_INIT;

    (void)state;
    operator_answers(&norm_operator, &good, CLATTN_SUCCESS);
    operator_answers(&norm_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&norm_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    REFUSED(INVALID_STRUCT, size = 7);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(INVALID_ARGUMENT, kind = 2);
    REFUSED(INVALID_ARGUMENT, kind = CLATTN_NORM_KIND_RMS); /* RMSNorm has no mean */
    REFUSED(INVALID_ARGUMENT, axes = 4);
    REFUSED(INVALID_ARGUMENT, axes = -1);
    REFUSED(INVALID_ARGUMENT, explicit_epsilon = 2);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(INVALID_LAYOUT, axes = 2); /* mean and inv_std_dev would need three rows */
    REFUSED(INVALID_LAYOUT, mean.extent[2] = 4);
    REFUSED(INVALID_LAYOUT, inv_std_dev.rank = 2);
    REFUSED(INVALID_LAYOUT, mean.dtype = CLATTN_DTYPE_F16);
    REFUSED(INVALID_LAYOUT, mean.stride[0] = 0);
    REFUSED(INVALID_LAYOUT, y.extent[1] = 2);
    REFUSED(INVALID_LAYOUT, y.stride[1] = 0);
    REFUSED(INVALID_LAYOUT, scale.extent[0] = 3);
    REFUSED(INVALID_LAYOUT, bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 1, 4}));
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_I32);
    REFUSED(UNSUPPORTED, y.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, scale.dtype = CLATTN_DTYPE_BOOL);
    REFUSED(UNSUPPORTED, residual = clattn_layout_contiguous(CLATTN_DTYPE_I8, 1, (size_t[]){4}));
    REFUSED(INVALID_LAYOUT, residual = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (size_t[]){3}));
    REFUSED(INVALID_LAYOUT, residual = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 1, 4}));
    REFUSED(INVALID_ARGUMENT, sum = desc.x); /* there is no residual to add */
    REFUSED(INVALID_LAYOUT,
            sum = (desc.residual = desc.x, clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){3, 4})));
    clattn_layout overlapping = good.x, wide = good.x;
    overlapping.stride[1] = 0;
    wide.dtype = CLATTN_DTYPE_F64;
    REFUSED(INVALID_LAYOUT, sum = (desc.residual = good.x, overlapping));
    REFUSED(UNSUPPORTED, sum = (desc.residual = good.x, wide));
    REFUSED(OVERFLOW,
            x.extent[0] = desc.y.extent[0] = desc.mean.extent[0] = desc.inv_std_dev.extent[0] = (size_t)1 << 31);
}

static void refused_epsilons(void **state)
{
    static const float refused[] = {-1e-30f, NAN, INFINITY};
    clattn_norm_desc desc = good_desc();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        desc.explicit_epsilon = 1;
        desc.epsilon = refused[i];
        operator_answers(&norm_operator, &desc, CLATTN_ERROR_INVALID_ARGUMENT);
        desc.explicit_epsilon = 0; /* epsilon is then ignored */
        operator_answers(&norm_operator, &desc, CLATTN_SUCCESS);
    }
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(norm, job.plan, status, good, change)

/* Arguments are refused if they bind an array that the description does not have, have a batch that is too large or
 * part of the normalised axes, or lack a buffer. */
static void refused_arguments(void **state)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args good = CLATTN_NORM_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    array_bind(&x, &desc.x, &good.x);
    array_bind(job_output(&job, 2, (size_t[]){3, 19}), &desc.y, &good.y);
    job.plan = operator_plan(&norm_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, scale = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, mean = good.y);
    REFUSED_ARGS(INVALID_ARGUMENT, residual = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, sum = good.y);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.x);
    operator_needs_both(&norm_operator, job.plan, &good);
    job_release(&job);
}

/* Structs from before residuals existed are accepted: their size tells. */
static void shorter_structs(void **state)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 2, 1, 7);
    memset(&desc.residual, 0x5a, sizeof desc - offsetof(clattn_norm_desc, residual));
    memset(&args.residual, 0x5a, sizeof args - offsetof(clattn_norm_args, residual));
    desc.size = offsetof(clattn_norm_desc, residual);
    args.size = offsetof(clattn_norm_args, residual);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    desc.explicit_epsilon = 1;
    desc.epsilon = 7;
    assert_status(device_context(), clattn_norm_run(device_context(), NULL, &desc, &args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    job_expect_two_elements(&job, -0.75, 0.75);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 2, 1, 7);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    desc.explicit_epsilon = 1;
    desc.epsilon = 7; /* variance 9: 3 / sqrt(16) */
    operator_runs_prewarmed(&norm_operator, &desc, &args);
    job_expect_two_elements(&job, -0.75, 0.75);
    job_release(&job);
}

int main(int argc, char **argv)
{
    norm_add(rows, COUNT_OF(rows));
    norm_add(axes, COUNT_OF(axes));
    norm_add(forms, COUNT_OF(forms));
    norm_add(factors, COUNT_OF(factors));
    norm_add(types, COUNT_OF(types));
    norm_add(accuracy, COUNT_OF(accuracy));
    norm_add(values, COUNT_OF(values));
    norm_add(residuals, COUNT_OF(residuals));
    size_t count = by_level(4, 4, 8, MOST_RANDOM);
    draw(count);
    norm_add(drawn, count);
    suite_add(refused_descriptions, "norm: descriptions that are refused");
    suite_add(refused_epsilons, "norm: epsilons that are refused");
    suite_add(refused_arguments, "norm: arguments that are refused");
    suite_add(one_call, "norm: prewarm and run");
    suite_add(shorter_structs, "norm: structs without residuals");
    return suite_run("norm", argc, argv);
}
