/* The gradients of neighbourhood attention with all windows, dilations, kinds of edges, tiles, biases, types and strides.
 *
 * Holds: what clattn/neighbourhood.h says of CLATTN_DIRECTION_BACKWARD; docs/numerics.md's accuracy rule; that a key which is
 * outside the window or dropped neither leaks nor gets anything; results that are the same in every bit from run to run and
 * whatever the batch; guard bands; what is refused.  The tests' own gradients are held to differences of the tests' own
 * attention. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/ops/neighbourhood_case.h"

#define MAP(h, w, kh, kw) .map = {h, w}, .window = {kh, kw}
#define OF_ALL .gradients = DQUERY | DKEY | DVALUE
#define DQUERY NEIGHBOURHOOD_DQUERY
#define DKEY NEIGHBOURHOOD_DKEY
#define DVALUE NEIGHBOURHOOD_DVALUE
#define DBIAS NEIGHBOURHOOD_DBIAS
#define BIASED .gradients = DQUERY | DKEY | DVALUE | DBIAS
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

static const neighbourhood_case windows[] = {
    {"whole", ALL, MAP(3, 3, 3, 3), OF_ALL},
    {"one key", ALL, MAP(3, 4, 1, 1), OF_ALL},
    {"small", ALL, MAP(5, 6, 3, 3), OF_ALL},
    {"small", ALL, MAP(5, 6, 3, 3), .clip = true, OF_ALL},
    {"edges", BIG, MAP(9, 20, 7, 7), OF_ALL},
    {"edges", BIG, MAP(9, 20, 7, 7), .clip = true, OF_ALL},
    {"clipped on both sides", ALL, MAP(4, 5, 9, 7), .clip = true, OF_ALL},
    {"a column", BIG, MAP(33, 1, 7, 1), OF_ALL},
    {"a line", BIG, MAP(1, 67, 1, 7), OF_ALL},
    {"wide", BIG, MAP(3, 131, 3, 105), .long_loops = true, OF_ALL},
    {"dilated", ALL, MAP(6, 7, 3, 3), .dilation = {2, 2}, OF_ALL},
    {"dilated", ALL, MAP(6, 7, 3, 3), .dilation = {2, 2}, .clip = true, OF_ALL},
    {"dilated apart", BIG, MAP(10, 21, 3, 3), .dilation = {3, 2}, OF_ALL},
    {"dilated, edges", BIG, MAP(23, 37, 5, 5), .dilation = {3, 5}, OF_ALL},
    {"dilated, edges", BIG, MAP(15, 24, 7, 7), .dilation = {2, 3}, .clip = true, OF_ALL},
    {"beyond the map", ALL, MAP(5, 9, 3, 3), .dilation = {7, 30}, .clip = true, OF_ALL},
};

static const neighbourhood_case heads[] = {
    {"batch and heads", ALL, MAP(4, 5, 3, 3), .batch = 2, .heads = 2, OF_ALL},
    {"grouped heads", ALL, MAP(4, 5, 3, 3), .heads = 4, .kv_heads = 2, OF_ALL},
    {"grouped heads", BIG, MAP(9, 11, 7, 7), .batch = 2, .heads = 6, .kv_heads = 2, OF_ALL},
    {"no batch", ALL, MAP(4, 5, 3, 3), .batch = 2, .explicit_sizes = true, .actual_map = {4, 5}, .actual_tile = {4, 5},
     OF_ALL},
    {"no queries: +0", ALL, MAP(4, 5, 3, 3), .explicit_sizes = true, .actual_batch = 1, .actual_map = {4, 5},
     .actual_tile = {4, 0}, OF_ALL},
    {"size 1", BIG, MAP(5, 19, 3, 3), .d_k = 1, .d_v = 1, OF_ALL},
    {"odd sizes", BIG, MAP(5, 9, 3, 3), .d_k = 17, .d_v = 13, OF_ALL},
    {"many columns", BIG, MAP(5, 7, 3, 3), .d_k = 3, .d_v = 70, OF_ALL},
    {"many columns", BIG, MAP(5, 7, 3, 3), .d_k = 70, .d_v = 3, OF_ALL},
    {"a tile", ALL, MAP(5, 6, 3, 3), .tile = {2, 3}, .tile_at = {1, 2}, OF_ALL},
    {"a tile at the corner", ALL, MAP(5, 6, 3, 3), .tile = {2, 3}, .tile_at = {3, 3}, .clip = true, OF_ALL},
    {"a tile, dilated", BIG, MAP(21, 30, 5, 7), .dilation = {2, 3}, .tile = {7, 11}, .tile_at = {5, 17}, OF_ALL},
    {"a tile, dilated", BIG, MAP(21, 30, 7, 7), .dilation = {3, 2}, .tile = {7, 11}, .tile_at = {4, 19}, .clip = true,
     OF_ALL},
    {"smaller than planned", ALL, MAP(6, 7, 3, 3), .batch = 2, .explicit_sizes = true, .actual_batch = 1,
     .actual_map = {4, 5}, .actual_tile = {2, 3}, .tile_at = {2, 1}, .bias = BIAS_FINITE, .bias_batch = 2, BIASED},
};

static const neighbourhood_case arrays[] = {
    {"query alone", ALL, MAP(4, 5, 3, 3), .gradients = DQUERY},
    {"key alone", ALL, MAP(4, 5, 3, 3), .gradients = DKEY},
    {"value alone", ALL, MAP(4, 5, 3, 3), .gradients = DVALUE},
    {"bias alone", ALL, MAP(4, 5, 3, 3), .bias = BIAS_FINITE, .gradients = DBIAS},
    {"a bias", ALL, MAP(5, 6, 3, 3), .batch = 2, .heads = 2, .bias = BIAS_FINITE, BIASED},
    {"a bias that drops", ALL, MAP(5, 6, 3, 3), .bias = BIAS_DROPS, .inject = NEIGHBOURHOOD_DROPPED, BIASED},
    {"everything dropped", ALL, MAP(4, 5, 3, 3), .bias = BIAS_NOTHING, BIASED},
    {"a bias for each", ALL, MAP(4, 5, 3, 3), .batch = 2, .heads = 2, .bias = BIAS_DROPS, .bias_batch = 2,
     .bias_heads = 2, BIASED},
    {"a bias for each batch item", BIG, MAP(5, 9, 3, 3), .batch = 2, .heads = 2, .bias = BIAS_FINITE, .bias_batch = 2,
     BIASED},
    {"a bias for each head", BIG, MAP(5, 9, 3, 3), .batch = 2, .heads = 4, .kv_heads = 2, .bias = BIAS_FINITE,
     .bias_heads = 4, BIASED},
    {"NaN", ALL, MAP(5, 6, 3, 3), .inject = NEIGHBOURHOOD_NAN, OF_ALL},
    {"NaN in a corner", ALL, MAP(5, 6, 3, 3), .inject = NEIGHBOURHOOD_CORNER, .clip = true, OF_ALL},
    {"scale 0", BIG, MAP(5, 9, 3, 3), .scaled = true, .scale = 0, OF_ALL},
    {"negative scale", ALL, MAP(5, 6, 3, 3), .scaled = true, .scale = -1.5f, OF_ALL},
    {"heads inside", ALL, MAP(5, 6, 3, 3), .batch = 2, .heads = 2, .form = FORM_BSHD, OF_ALL},
    {"gaps", ALL, MAP(5, 6, 3, 3), .form = FORM_PADDED, .bias = BIAS_FINITE, BIASED},
    {"planes", ALL, MAP(5, 6, 3, 3), .form = FORM_TRANSPOSED, OF_ALL},
    {"backwards", BIG, MAP(5, 9, 3, 3), .form = FORM_MIRRORED, OF_ALL},
    {"one batch item for all", BIG, MAP(5, 9, 3, 3), .batch = 3, .form = FORM_SHARED_FIRST, OF_ALL},
    {"float16", ALL, MAP(5, 6, 3, 3), .d_k = 9, .q = F16, .k = F16, .v = F16, .o = F16, .dq = F16, .dk = F16, .dv = F16,
     OF_ALL},
    {"bfloat16", ALL, MAP(5, 6, 3, 3), .d_v = 9, .q = BF16, .k = BF16, .v = BF16, .o = BF16, .dq = BF16, .dk = BF16,
     .dv = BF16, OF_ALL},
    {"each its own", BIG, MAP(5, 9, 3, 3), .q = F16, .k = BF16, .v = F16, .dq = BF16, .dv = F16, OF_ALL},
};

/* The tests' gradients of a weighted sum of the output are central differences of it. */
static void references_agree(void **state)
{
    enum { BATCH = 1, HEADS = 2, KEYS = 6, D_K = 3, D_V = 2 };
    enum {
        QUERY_SIZE = HEADS * KEYS * D_K,
        KEY_SIZE = KEYS * D_K,
        VALUE_SIZE = KEYS * D_V,
        ADDENDS = HEADS * KEYS * KEYS
    };
    double query[QUERY_SIZE], key[KEY_SIZE], value[VALUE_SIZE], addend[ADDENDS], weight[HEADS * KEYS * D_V];
    double output[HEADS * KEYS * D_V], size[HEADS * KEYS * D_V];
    double made[QUERY_SIZE + KEY_SIZE + VALUE_SIZE + HEADS * KEYS] = {0};
    random_stream stream = random_start(11);
    struct {
        double *numbers;
        size_t count, each; /* each: so many addends are one bias */
        const double *gradient;
    } inputs[] = {{query, QUERY_SIZE, 0, made},
                  {key, KEY_SIZE, 0, made + QUERY_SIZE},
                  {value, VALUE_SIZE, 0, made + QUERY_SIZE + KEY_SIZE}};
    const reference_problem p = {.batch = BATCH,
                                 .heads = HEADS,
                                 .kv_heads = 1,
                                 .queries = KEYS,
                                 .keys = KEYS,
                                 .d_k = D_K,
                                 .d_v = D_V,
                                 .scale = 0.7,
                                 .query = query,
                                 .key = key,
                                 .value = value,
                                 .addend = addend};

    (void)state;
    for (size_t n = 0; n < COUNT_OF(inputs); n++)
        for (size_t i = 0; i < inputs[n].count; i++)
            inputs[n].numbers[i] = (double)random_float(&stream, -1, 1);
    for (size_t i = 0; i < COUNT_OF(weight); i++)
        weight[i] = (double)random_float(&stream, -1, 1);
    for (size_t i = 0; i < ADDENDS; i++)
        addend[i] = neighbourhood_attends((int)(i / KEYS % KEYS), (int)(i % KEYS), KEYS, 3, 1, false) ? 0 : -INFINITY;
    neighbourhood_gradient_reference(&p, weight, false,
                                     &(neighbourhood_gradients){made, made + QUERY_SIZE, made + QUERY_SIZE + KEY_SIZE,
                                                                made + QUERY_SIZE + KEY_SIZE + VALUE_SIZE},
                                     NULL);
    for (size_t n = 0; n < COUNT_OF(inputs); n++)
        for (size_t i = 0; i < inputs[n].count; i++) {
            const double kept = inputs[n].numbers[i];
            double sum[2] = {0};
            for (int side = 0; side < 2; side++) {
                inputs[n].numbers[i] = kept + (side ? 1e-4 : -1e-4);
                reference_attention(&p, false, &(reference_result){.output = output, .magnitude = size});
                for (size_t w = 0; w < COUNT_OF(weight); w++)
                    sum[side] += weight[w] * output[w];
            }
            inputs[n].numbers[i] = kept;
            assert_true(fabs((sum[1] - sum[0]) / 2e-4 - inputs[n].gradient[i]) < 1e-7);
        }
    for (size_t n = 0; n < HEADS * KEYS; n++) { /* the bias of a head's key: an addend of each of its queries */
        double sum[2] = {0};
        for (int side = 0; side < 2; side++) {
            for (size_t q = 0; q < KEYS; q++)
                addend[(n / KEYS * KEYS + q) * KEYS + n % KEYS] += side ? 2e-4 : -1e-4;
            reference_attention(&p, false, &(reference_result){.output = output, .magnitude = size});
            for (size_t w = 0; w < COUNT_OF(weight); w++)
                sum[side] += weight[w] * output[w];
        }
        for (size_t q = 0; q < KEYS; q++)
            addend[(n / KEYS * KEYS + q) * KEYS + n % KEYS] -= 1e-4;
        assert_true(fabs((sum[1] - sum[0]) / 2e-4 - made[QUERY_SIZE + KEY_SIZE + VALUE_SIZE + n]) < 1e-7);
    }
}

static void same_bits(void **state)
{
    static const neighbourhood_case test = {"repeated",          ALL,   MAP(5, 6, 3, 3), .batch = 3, .heads = 2,
                                            .bias = BIAS_FINITE, BIASED};
    test_job job = {0};

    (void)state;
    assert_true(neighbourhood_make(&job, &test, "generic"));
    job_run(&job, NULL);
    unsigned char *given = job_snapshot(&job);
    job_repeat(&job, given);
    free(given);
    job_release(&job);
}

/* The first items of a batch are the same without the others. */
static void any_batch(void **state)
{
    static const neighbourhood_case test = {
        "batches", ALL, MAP(5, 6, 3, 3), .batch = 3, .heads = 2, .bias = BIAS_FINITE, .bias_batch = 3, BIASED};
    test_job job = {0};
    double *whole[4];

    (void)state;
    assert_true(neighbourhood_make(&job, &test, "generic"));
    job_run(&job, NULL);
    for (int n = 0; n < 4; n++)
        whole[n] = array_dense(&job.output[n], job.output[n].layout.rank, job.output[n].layout.extent);
    clattn_neighbourhood_args *args = &job.args.neighbourhood;
    args->explicit_sizes = 1;
    args->query_height = args->key_height = 5;
    args->query_width = args->key_width = 6;
    for (size_t batch = 1; batch < 3; batch++) {
        size_t extent[4][5];
        args->batch = batch;
        for (int n = 0; n < 4; n++) {
            memcpy(extent[n], job.output[n].layout.extent, sizeof extent[n]);
            extent[n][0] = batch;
            array_own(&job.output[n], extent[n]);
        }
        job_poison(&job);
        job_run(&job, NULL);
        for (int n = 0; n < 4; n++) {
            const int rank = job.output[n].layout.rank;
            double *part = array_dense(&job.output[n], rank, extent[n]);
            assert_memory_equal(part, whole[n], sizeof *part * array_count(rank, extent[n]));
            free(part);
        }
    }
    for (int n = 0; n < 4; n++)
        free(whole[n]);
    job_release(&job);
}

/* Returns a valid description: 5 x 6, window 3. */
static clattn_neighbourhood_desc plain(void)
{
    clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.query = desc.key = desc.value = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (size_t[]){1, 2, 5, 6, 4});
    desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 1, 5, 6});
    desc.gradients.output = desc.gradients.query = desc.gradients.key = desc.gradients.value = desc.query;
    desc.gradients.bias = desc.bias;
    desc.window[0] = desc.window[1] = 3;
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(neighbourhood, status, plain(), change)

static void refused_descriptions(void **state)
{
    const clattn_neighbourhood_desc good = plain();
    clattn_neighbourhood_desc nothing = plain();

    (void)state;
    operator_answers(&neighbourhood_operator, &good, CLATTN_SUCCESS);
    memset(&nothing.gradients.query, 0, sizeof nothing.gradients - sizeof nothing.gradients.output);
    operator_answers(&neighbourhood_operator, &nothing, CLATTN_ERROR_INVALID_LAYOUT);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_ARGUMENT, output = good.query);
    REFUSED(INVALID_ARGUMENT, lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, 2, 5, 6}));
    REFUSED(INVALID_LAYOUT, bias = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, query = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.output = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.output.extent[4] = 3);
    REFUSED(INVALID_LAYOUT, gradients.query.extent[3] = 5);
    REFUSED(INVALID_LAYOUT, gradients.key.extent[4] = 3);
    REFUSED(INVALID_LAYOUT, gradients.value.extent[1] = 1);
    REFUSED(INVALID_LAYOUT, gradients.bias.extent[1] = 2);
    REFUSED(INVALID_LAYOUT, gradients.key.stride[3] = 0);
    REFUSED(INVALID_LAYOUT, gradients.value.rank = 4);
    REFUSED(UNSUPPORTED, gradients.output.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.query.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.key.dtype = CLATTN_DTYPE_I32);
    REFUSED(UNSUPPORTED, gradients.bias.dtype = CLATTN_DTYPE_F16);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(neighbourhood, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    static const neighbourhood_case test = {"refused", ALL, MAP(5, 6, 3, 3), .bias = BIAS_FINITE, BIASED};
    test_job job = {0};

    (void)state;
    assert_true(neighbourhood_make(&job, &test, "generic"));
    clattn_neighbourhood_args good = job.args.neighbourhood;
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_sizes = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_sizes = 1, 2));
    REFUSED_ARGS(INVALID_ARGUMENT, output = good.query);
    REFUSED_ARGS(INVALID_ARGUMENT, lse = good.query);
    REFUSED_ARGS(INVALID_ARGUMENT, query = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.output = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.key = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.bias = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.value = good.gradients.key);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.value.offset = 1000000);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.query = good.query);
    operator_needs_both(&neighbourhood_operator, job.plan, &good);
    job_release(&job);
}

int main(int argc, char **argv)
{
    suite_add(references_agree, "neighbourhood backward: the reference is the slope of forward's");
    neighbourhood_add(windows, COUNT_OF(windows));
    neighbourhood_add(heads, COUNT_OF(heads));
    neighbourhood_add(arrays, COUNT_OF(arrays));
    suite_add(same_bits, "neighbourhood backward: the same bits in every run");
    suite_add(any_batch, "neighbourhood backward: the same bits in every batch");
    suite_add(refused_descriptions, "neighbourhood backward: wrong descriptions are refused");
    suite_add(refused_arguments, "neighbourhood backward: wrong arguments are refused");
    return suite_run("neighbourhood_backward", argc, argv);
}
