/* Merging partials: the definition in double precision, what -inf and NaN mean, and that keys attended in two parts and
 * merged give what one attention gives.
 *
 * Holds: include/clattn/merge.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

/* A merge's shape and what is special about it. */
struct problem {
    const char *rule;
    size_t parts, batch, heads, queries, columns;
    bool sinks, lse, strided;
    size_t used; /* parts that count at enqueue; 0: all */
};

static const struct problem problems[] = {
    {"one part", 1, 1, 2, 3, 5, false, true, false, 0},
    {"three parts", 3, 2, 2, 5, 8, false, true, false, 0},
    {"without lse", 3, 2, 2, 5, 8, false, false, false, 0},
    {"a sink", 3, 2, 2, 5, 8, true, true, false, 0},
    {"a sink, without lse", 2, 1, 3, 2, 7, true, false, false, 0},
    {"many parts, many columns", 40, 1, 2, 3, 200, true, true, false, 0},
    {"strides", 4, 2, 3, 3, 9, true, true, true, 0},
    {"fewer parts than planned", 5, 2, 2, 3, 8, false, true, false, 2},
};

/* Strides of the given order of dimensions, the last one fastest, with `gap` elements between columns. */
static clattn_layout laid_out(int rank, const size_t *extent, const int *order, int64_t gap)
{
    clattn_layout layout = {.dtype = CLATTN_DTYPE_F32, .rank = rank};
    int64_t stride = gap;
    memcpy(layout.extent, extent, (size_t)rank * sizeof *extent);
    for (int i = rank - 1; i >= 0; i--) {
        layout.stride[order[i]] = stride;
        stride *= (int64_t)extent[order[i]];
    }
    return layout;
}

static size_t elements(const clattn_layout *layout)
{
    size_t last = 0;
    for (int i = 0; i < layout->rank; i++)
        last += (layout->extent[i] - 1) * (size_t)layout->stride[i];
    return last + 1;
}

/* One row in double precision. */
static double expected_row(const struct problem *p, size_t parts, const float *lse, size_t step, const double *sink,
                           const double *values, double *out)
{
    double top = sink ? *sink : -INFINITY, total = 0;
    for (size_t n = 0; n < parts; n++)
        top = lse[n * step] > top ? lse[n * step] : top;
    total = sink ? exp(*sink - top) : 0;
    for (size_t d = 0; d < p->columns; d++)
        out[d] = 0;
    for (size_t n = 0; n < parts; n++) {
        if (lse[n * step] == -INFINITY)
            continue;
        double w = exp(lse[n * step] - top);
        total += w;
        for (size_t d = 0; d < p->columns; d++)
            out[d] += w * values[n * p->columns + d];
    }
    for (size_t d = 0; d < p->columns; d++)
        out[d] = total == 0 ? 0 : out[d] / total;
    return total == 0 ? -INFINITY : top + log(total);
}

static void near(double got, double wanted, const char *rule)
{
    bool right = isnan(wanted)   ? isnan(got)
                 : isinf(wanted) ? got == wanted
                                 : fabs(got - wanted) <= 4e-6 * (1 + fabs(wanted));
    if (!right) {
        print_error("%s: %.9g instead of %.9g\n", rule, got, wanted);
        fail();
    }
}

static void check(clattn_context *context, const struct problem *p)
{
    static const int plain[5] = {0, 1, 2, 3, 4}, mixed[5] = {1, 3, 0, 2, 4}, mixed4[4] = {3, 1, 0, 2};
    static const int mixed_out[4] = {0, 2, 1, 3}, mixed3[3] = {2, 0, 1};
    const size_t extent[5] = {p->parts, p->batch, p->heads, p->queries, p->columns};
    cl_context opencl = clattn_context_opencl_context(context);
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    clattn_merge_args args = CLATTN_MERGE_ARGS_INIT;
    size_t parts = p->used ? p->used : p->parts, rows = p->batch * p->heads * p->queries;
    desc.partial = laid_out(5, extent, p->strided ? mixed : plain, p->strided ? 2 : 1);
    desc.partial_lse = laid_out(4, extent, p->strided ? mixed4 : plain, p->strided ? 3 : 1);
    desc.output = laid_out(4, extent + 1, p->strided ? mixed_out : plain, p->strided ? 2 : 1);
    if (p->lse)
        desc.lse = laid_out(3, extent + 1, p->strided ? mixed3 : plain, 1);
    if (p->sinks)
        desc.sinks = laid_out(1, extent + 2, plain, 1);

    size_t count = elements(&desc.partial), lse_count = elements(&desc.partial_lse);
    float *partial = calloc(count, sizeof *partial), *lse = calloc(lse_count, sizeof *lse), sinks[8];
    float *output = calloc(elements(&desc.output), sizeof *output), *total = calloc(rows + 1, sizeof *total);
    double *values = calloc(p->parts * p->columns, sizeof *values), *wanted = calloc(p->columns, sizeof *wanted);
    assert_true(partial && lse && output && total && values && wanted);
    fill_floats(partial, count, 1);
    fill_floats(lse, lse_count, 2);
    fill_floats(sinks, 8, 3);
    for (size_t i = 0; i < lse_count; i++) {
        lse[i] *= 20;
        if (i % 7 == 3)
            lse[i] = -INFINITY; /* that part has attended nothing: its output may hold anything */
    }
    for (size_t n = 0; n < p->parts; n++) /* row (0, 0, 0) has attended nothing at all */
        lse[n * (size_t)desc.partial_lse.stride[0]] = -INFINITY;
    for (size_t n = 0; n < p->parts; n++)
        for (size_t d = 0; d < p->columns; d++)
            partial[n * (size_t)desc.partial.stride[0] + d * (size_t)desc.partial.stride[4]] = NAN;
    if (p->queries > 1) /* and row (0, 0, 1) is lost */
        lse[(parts - 1) * (size_t)desc.partial_lse.stride[0] + (size_t)desc.partial_lse.stride[3]] = NAN;

    cl_mem buffers[] = {new_buffer(opencl, CL_MEM_READ_ONLY, count * sizeof *partial, partial),
                        new_buffer(opencl, CL_MEM_READ_ONLY, lse_count * sizeof *lse, lse),
                        new_buffer(opencl, CL_MEM_READ_ONLY, sizeof sinks, sinks),
                        new_buffer(opencl, CL_MEM_WRITE_ONLY, elements(&desc.output) * sizeof *output, NULL),
                        new_buffer(opencl, CL_MEM_WRITE_ONLY, (rows + 1) * sizeof *total, NULL)};
    args.partial = clattn_binding_buffer(buffers[0], 0);
    args.partial_lse = clattn_binding_buffer(buffers[1], 0);
    if (p->sinks)
        args.sinks = clattn_binding_buffer(buffers[2], 0);
    args.output = clattn_binding_buffer(buffers[3], 0);
    if (p->lse)
        args.lse = clattn_binding_buffer(buffers[4], 1);
    if (p->used) {
        args.explicit_lengths = 1;
        args.parts = p->used;
        args.batch = p->batch;
        args.query_length = p->queries;
    }
    assert_status(context, clattn_merge_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), buffers[3], elements(&desc.output) * sizeof *output, output);
    read_buffer(clattn_context_queue(context), buffers[4], (rows + 1) * sizeof *total, total);

    for (size_t row = 0; row < rows; row++) {
        size_t i = row % p->queries, h = row / p->queries % p->heads, b = row / p->queries / p->heads;
        double sink = sinks[h];
        const int64_t *s = desc.partial.stride, *l = desc.partial_lse.stride, *o = desc.output.stride;
        for (size_t n = 0; n < parts; n++)
            for (size_t d = 0; d < p->columns; d++)
                values[n * p->columns + d] = partial[n * (size_t)s[0] + b * (size_t)s[1] + h * (size_t)s[2] +
                                                     i * (size_t)s[3] + d * (size_t)s[4]];
        double log_sum = expected_row(p, parts, lse + b * (size_t)l[1] + h * (size_t)l[2] + i * (size_t)l[3],
                                      (size_t)l[0], p->sinks ? &sink : NULL, values, wanted);
        for (size_t d = 0; d < p->columns; d++)
            near(output[b * (size_t)o[0] + h * (size_t)o[1] + i * (size_t)o[2] + d * (size_t)o[3]], wanted[d], p->rule);
        if (p->lse)
            near(total[1 + b * (size_t)desc.lse.stride[0] + h * (size_t)desc.lse.stride[1] +
                       i * (size_t)desc.lse.stride[2]],
                 log_sum, p->rule);
    }
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        clReleaseMemObject(buffers[i]);
    free(partial);
    free(lse);
    free(output);
    free(total);
    free(values);
    free(wanted);
}

static void the_definition_holds(void **state)
{
    clattn_context *context = new_context();
    (void)state;
    for (size_t i = 0; i < COUNT_OF(problems); i++)
        check(context, &problems[i]);
    release_context(&context);
}

/* Two attentions over the first and the last keys, merged, against one over all. */
static void parts_of_the_keys_merge_to_the_whole(void **state)
{
    enum { HEADS = 2, QUERIES = 5, KEYS = 23, D = 8, FIRST = 9 };
    clattn_context *context = new_context();
    cl_context opencl = clattn_context_opencl_context(context);
    float q[HEADS * QUERIES * D], k[HEADS * KEYS * D], v[HEADS * KEYS * D], whole[HEADS * QUERIES * D];
    float merged[HEADS * QUERIES * D];
    const size_t partial_extent[5] = {2, 1, HEADS, QUERIES, D};
    (void)state;
    fill_floats(q, HEADS * QUERIES * D, 1);
    fill_floats(k, HEADS * KEYS * D, 2);
    fill_floats(v, HEADS * KEYS * D, 3);
    expected_attention(HEADS, QUERIES, KEYS, D, D, false, q, k, v, whole);
    cl_mem query = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof q, q);
    cl_mem key = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof k, k);
    cl_mem value = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof v, v);
    cl_mem partial = new_buffer(opencl, CL_MEM_READ_WRITE, 2 * sizeof whole, NULL);
    cl_mem lse = new_buffer(opencl, CL_MEM_READ_WRITE, 2 * HEADS * QUERIES * sizeof(float), NULL);
    cl_mem output = new_buffer(opencl, CL_MEM_WRITE_ONLY, sizeof whole, NULL);
    for (int part = 0; part < 2; part++) {
        clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
        clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
        size_t first = part ? FIRST : 0, keys = part ? KEYS - FIRST : FIRST;
        const size_t lse_extent[3] = {1, HEADS, QUERIES};
        desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, D);
        desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, KEYS, D);
        desc.key.extent[2] = desc.value.extent[2] = keys;
        desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, lse_extent);
        args.query = clattn_binding_buffer(query, 0);
        args.key = clattn_binding_buffer(key, (int64_t)(first * D));
        args.value = clattn_binding_buffer(value, (int64_t)(first * D));
        args.output = clattn_binding_buffer(partial, part * HEADS * QUERIES * D);
        args.outputs.lse = clattn_binding_buffer(lse, part * HEADS * QUERIES);
        assert_status(context, clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    clattn_merge_args args = CLATTN_MERGE_ARGS_INIT;
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, partial_extent);
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, partial_extent);
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, D);
    args.partial = clattn_binding_buffer(partial, 0);
    args.partial_lse = clattn_binding_buffer(lse, 0);
    args.output = clattn_binding_buffer(output, 0);
    assert_status(context, clattn_merge_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), output, sizeof merged, merged);
    assert_true(largest_difference(merged, whole, HEADS * QUERIES * D) < 2e-6);
    cl_mem all[] = {query, key, value, partial, lse, output};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        clReleaseMemObject(all[i]);
    release_context(&context);
}

#define REFUSED(status, change) \
    do { \
        clattn_merge_desc d = good; \
        const char *reason = NULL; \
        change; \
        assert_int_equal(clattn_merge_supports(context, &d, &reason), CLATTN_ERROR_##status); \
        assert_non_null(reason); \
    } while (0)

static void what_does_not_fit_is_refused(void **state)
{
    const size_t extent[5] = {3, 2, 2, 5, 8};
    clattn_context *context = new_context();
    clattn_merge_desc good = CLATTN_MERGE_DESC_INIT;
    (void)state;
    good.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    good.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    good.output = clattn_layout_contiguous(CLATTN_DTYPE_F16, 4, extent + 1);
    assert_int_equal(clattn_merge_supports(context, &good, NULL), CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, d.size--);
    REFUSED(INVALID_ARGUMENT, d.reserved = 1);
    REFUSED(INVALID_ARGUMENT, d.direction = 1);
    REFUSED(UNSUPPORTED, d.partial.dtype = CLATTN_DTYPE_F16);
    REFUSED(UNSUPPORTED, d.partial_lse.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, d.output.dtype = CLATTN_DTYPE_I32);
    REFUSED(INVALID_LAYOUT, d.partial_lse.extent[0] = 2);
    REFUSED(INVALID_LAYOUT, d.output.extent[3] = 7);
    REFUSED(INVALID_LAYOUT, d.output.rank = 3);
    REFUSED(INVALID_LAYOUT, d.output.stride[3] = 0);
    REFUSED(INVALID_LAYOUT, (d.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent)));
    REFUSED(INVALID_LAYOUT, (d.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent)));
    release_context(&context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_definition_holds),
        cmocka_unit_test(parts_of_the_keys_merge_to_the_whole),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return RUN_TESTS("merge", tests, argc, argv);
}
