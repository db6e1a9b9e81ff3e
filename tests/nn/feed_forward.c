/* The feed-forward block alone agrees with the reference: all activations, gates, biases, residuals and types, fewer
 * rows than the plan has; prewarm makes the programs that run needs; wrong descriptions and arguments are refused.
 *
 * Holds: clattn/feed_forward.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/judge.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"
#include "support/storage.h"

enum { ROWS = 9, FEW = 5, D = 20, F = 28 };
enum { X, W_IN, B_IN, W_GATE, B_GATE, W_OUT, B_OUT, Y, ARRAYS };

static const char *const names[ARRAYS] = {"x", "w_in", "b_in", "w_gate", "b_gate", "w_out", "b_out", "y"};
static const size_t counts[ARRAYS] = {ROWS * D, F *D, F, F *D, F, D *F, D, ROWS *D};

/* A problem, whose arguments have the arrays that its description has. */
typedef struct block {
    clattn_feed_forward_desc desc;
    clattn_feed_forward_args args;
    cl_mem buffers[ARRAYS];
    float *values[ARRAYS]; /* the buffers' contents */
} block;

static clattn_binding *binding_of(clattn_feed_forward_args *args, int array)
{
    clattn_binding *const all[ARRAYS] = {&args->x,      &args->w_in,  &args->b_in,  &args->w_gate,
                                         &args->b_gate, &args->w_out, &args->b_out, &args->y};
    return all[array];
}

static bool has(const clattn_feed_forward_desc *d, int array)
{
    const bool there[ARRAYS] = {true, true, d->bias_in, d->gated, d->gated && d->bias_in, true, d->bias_out, true};
    return there[array];
}

static clattn_feed_forward_desc describe(clattn_dtype dtype, int32_t activation, bool gated, bool bias_in,
                                         bool bias_out, bool residual)
{
    clattn_feed_forward_desc desc = CLATTN_FEED_FORWARD_DESC_INIT;
    desc.dtype = dtype;
    desc.activation = activation;
    desc.gated = gated;
    desc.bias_in = bias_in;
    desc.bias_out = bias_out;
    desc.residual = residual;
    desc.rows = ROWS;
    desc.d_model = D;
    desc.d_ff = F;
    return desc;
}

static clattn_dtype dtype_of(const clattn_feed_forward_desc *d)
{
    return d->dtype ? d->dtype : CLATTN_DTYPE_F32;
}

/* Fills y with NaN. */
static block open_block(const clattn_feed_forward_desc *desc)
{
    block b = {.desc = *desc, .args = CLATTN_FEED_FORWARD_ARGS_INIT};
    const clattn_dtype dtype = dtype_of(desc);
    const size_t bytes = clattn_dtype_size(dtype);
    for (int a = 0; a < ARRAYS; a++) {
        unsigned char *stored = malloc(counts[a] * bytes);
        assert_non_null(stored);
        b.values[a] = nn_floats(counts[a], 10 + (uint32_t)a);
        memset(stored, 0xff, counts[a] * bytes);
        for (size_t i = 0; i < counts[a]; i++)
            b.values[a][i] = (float)storage_round(dtype, b.values[a][i]);
        for (size_t i = 0; i < counts[a] && a != Y; i++)
            storage_set(dtype, stored + i * bytes, b.values[a][i]);
        b.buffers[a] = nn_buffer(context, counts[a] * bytes, stored);
        if (has(desc, a))
            *binding_of(&b.args, a) = clattn_binding_buffer(b.buffers[a], 0);
        free(stored);
    }
    return b;
}

static void close_block(block *b)
{
    for (int a = 0; a < ARRAYS; a++) {
        clReleaseMemObject(b->buffers[a]);
        free(b->values[a]);
    }
}

/* Computes the block's formula; rounds what lies between two products, and y, to `dtype`, as a naive computation
 * would. */
static double *reference_of(const block *b, size_t rows, clattn_dtype dtype)
{
    const clattn_feed_forward_desc *d = &b->desc;
    double *x = nn_doubles(b->values[X], rows * D);
    double *h = nn_reference_linear(x, rows, D, b->values[W_IN], F, d->bias_in ? b->values[B_IN] : NULL);
    double *g = nn_reference_linear(x, rows, D, b->values[W_GATE], F, d->bias_in ? b->values[B_GATE] : NULL);
    for (size_t i = 0; i < rows * F; i++)
        h[i] = storage_round(dtype, d->gated ? h[i] * storage_round(dtype, nn_activate(d->activation, g[i]))
                                             : nn_activate(d->activation, h[i]));
    double *y = nn_reference_linear(h, rows, F, b->values[W_OUT], D, d->bias_out ? b->values[B_OUT] : NULL);
    for (size_t i = 0; i < rows * D; i++)
        y[i] = storage_round(dtype, y[i] + (d->residual ? x[i] : 0));
    free(x);
    free(h);
    free(g);
    return y;
}

static void judge_block(const block *b, size_t rows, const void *y)
{
    const clattn_feed_forward_desc *d = &b->desc;
    const clattn_dtype dtype = dtype_of(d);
    double *expected = reference_of(b, rows, CLATTN_DTYPE_F64), *naive = reference_of(b, rows, dtype);
    char what[160];
    snprintf(what, sizeof what, "%s, activation %d%s%s%s%s, %zu rows", clattn_dtype_name(dtype), (int)d->activation,
             d->gated ? ", gated" : "", d->bias_in ? ", b_in" : "", d->bias_out ? ", b_out" : "",
             d->residual ? ", residual" : "", rows);
    if (dtype == CLATTN_DTYPE_F32) {
        const double apart = nn_difference(y, expected, rows, D, rows, NULL);
        if (!(apart < 1e-5))
            fail_msg("%s: off by %.3g", what, apart);
    } else {
        nn_judgement j = {0};
        for (size_t i = 0; i < rows * D; i++)
            nn_judge(&j, dtype, storage_get(dtype, (const uint16_t *)y + i), naive[i], expected[i]);
        nn_judgement_assert(&j, what);
    }
    free(expected);
    free(naive);
}

/* Prewarms, runs without another program, and compares; rows behind the computed ones keep their contents. */
static void compute(const clattn_feed_forward_desc *desc, size_t rows, bool in_place)
{
    static float y[ROWS * D], original[ROWS * D];
    const size_t bytes = clattn_dtype_size(dtype_of(desc)), used = rows * D * bytes, all = ROWS * D * bytes;
    block b = open_block(desc);
    const cl_mem result = b.buffers[in_place ? X : Y];
    read_buffer(clattn_context_queue(context), result, all, original);
    b.args.explicit_rows = rows != desc->rows;
    b.args.rows = b.args.explicit_rows ? rows : 12345; /* ignored without explicit_rows */
    if (in_place)
        b.args.y = b.args.x;
    assert_status(context, clattn_feed_forward_supports(context, desc, NULL), CLATTN_SUCCESS);
    assert_status(context, clattn_feed_forward_prewarm(context, desc), CLATTN_SUCCESS);
    const clattn_program_statistics before = programs_of(context);
    assert_true(before.built + before.loaded > 0);
    assert_status(context, clattn_feed_forward_run(context, NULL, desc, &b.args, 0, NULL, NULL), CLATTN_SUCCESS);
    const clattn_program_statistics after = programs_of(context);
    assert_int_equal(before.built + before.loaded, after.built + after.loaded);
    read_buffer(clattn_context_queue(context), result, all, y);
    judge_block(&b, rows, y);
    assert_memory_equal((unsigned char *)y + used, (unsigned char *)original + used, all - used);
    close_block(&b);
}

/* Each of four activations is gated and plain and has each other option on and off; any two options occur in all four
 * combinations. */
static void float32(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        const bool second = i / 8, gated = i / 4 % 2, odd = i % 2, high = i / 2 % 2, residual = second != high;
        const clattn_feed_forward_desc desc =
            describe(i % 3 ? CLATTN_DTYPE_F32 : 0, 1 + i % 4, gated, second != odd, second != gated, residual);
        compute(&desc, odd != high ? FEW : ROWS, residual && gated);
    }
}

static void float16_and_bfloat16(void **state)
{
    static const struct {
        clattn_dtype dtype;
        clattn_activation activation;
        bool gated, bias_in, bias_out, residual;
        size_t rows;
    } cases[] = {{CLATTN_DTYPE_F16, CLATTN_ACTIVATION_GELU, true, true, true, false, ROWS},
                 {CLATTN_DTYPE_BF16, CLATTN_ACTIVATION_GELU_TANH, true, false, false, true, FEW},
                 {CLATTN_DTYPE_F16, CLATTN_ACTIVATION_RELU, false, false, false, true, FEW},
                 {CLATTN_DTYPE_BF16, CLATTN_ACTIVATION_SWISH, false, true, true, false, ROWS},
                 {CLATTN_DTYPE_BF16, CLATTN_ACTIVATION_LEAKY_RELU, true, true, true, false, FEW}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const clattn_feed_forward_desc desc = describe(cases[i].dtype, cases[i].activation, cases[i].gated,
                                                       cases[i].bias_in, cases[i].bias_out, cases[i].residual);
        compute(&desc, cases[i].rows, false);
    }
}

/* Fails the test unless supports refuses the description with the reason and the other functions with a message that
 * contains it. */
static void refuse_desc(const clattn_feed_forward_desc *desc, clattn_status status, const char *saying)
{
    const clattn_feed_forward_args args = CLATTN_FEED_FORWARD_ARGS_INIT;
    const char *reason = NULL;
    clattn_plan *plan = NULL;
    assert_status(context, clattn_feed_forward_supports(context, desc, &reason), status);
    assert_string_equal(reason, saying);
    assert_status(context, clattn_feed_forward_plan_create(context, desc, NULL, &plan), status);
    assert_null(plan);
    assert_message_has(context, saying);
    assert_status(context, clattn_feed_forward_prewarm(context, desc), status);
    assert_status(context, clattn_feed_forward_run(context, NULL, desc, &args, 0, NULL, NULL), status);
    assert_message_has(context, saying);
}

static void descriptions_that_are_refused(void **state)
{
    static const char flags[] = "gated, bias_in, bias_out or residual is neither 0 nor 1, or reserved is not 0",
                      sizes[] = "d_model and d_ff are at least 1", limit[] = "rows, d_model or d_ff is 2^31 or more",
                      types[] = "x, y and weights are float32, float16 or bfloat16",
                      unknown[] = "desc is NULL, or its size is none that clattn_feed_forward_desc ever had";
    const clattn_feed_forward_desc good =
        describe(CLATTN_DTYPE_F32, CLATTN_ACTIVATION_RELU, false, false, false, false);
    (void)state;
    refuse_desc(NULL, CLATTN_ERROR_INVALID_ARGUMENT, unknown);
#define REFUSE(field, value, status, saying) \
    do { \
        clattn_feed_forward_desc desc = good; \
        desc.field = (value); \
        refuse_desc(&desc, (status), (saying)); \
    } while (0)
    REFUSE(size, 0, CLATTN_ERROR_INVALID_STRUCT, unknown);
    REFUSE(direction, 1, CLATTN_ERROR_INVALID_ARGUMENT, "direction: only CLATTN_DIRECTION_FORWARD is known");
    REFUSE(activation, -1, CLATTN_ERROR_INVALID_ARGUMENT, "activation is NONE or unknown");
    REFUSE(activation, INT16_MAX, CLATTN_ERROR_INVALID_ARGUMENT, "activation is NONE or unknown");
    REFUSE(gated, 2, CLATTN_ERROR_INVALID_ARGUMENT, flags);
    REFUSE(bias_in, -1, CLATTN_ERROR_INVALID_ARGUMENT, flags);
    REFUSE(bias_out, 2, CLATTN_ERROR_INVALID_ARGUMENT, flags);
    REFUSE(residual, 2, CLATTN_ERROR_INVALID_ARGUMENT, flags);
    REFUSE(reserved, 1, CLATTN_ERROR_INVALID_ARGUMENT, flags);
    REFUSE(dtype, CLATTN_DTYPE_F64, CLATTN_ERROR_UNSUPPORTED, types);
    REFUSE(dtype, CLATTN_DTYPE_I8, CLATTN_ERROR_UNSUPPORTED, types);
    REFUSE(dtype, 99, CLATTN_ERROR_UNSUPPORTED, types);
    REFUSE(d_model, 0, CLATTN_ERROR_INVALID_LAYOUT, sizes);
    REFUSE(d_ff, 0, CLATTN_ERROR_INVALID_LAYOUT, sizes);
    REFUSE(rows, (size_t)1 << 31, CLATTN_ERROR_OVERFLOW, limit);
    REFUSE(d_model, (size_t)1 << 31, CLATTN_ERROR_OVERFLOW, limit);
    REFUSE(d_ff, (size_t)1 << 31, CLATTN_ERROR_OVERFLOW, limit);
#undef REFUSE
}

static void refuse_args(clattn_plan *plan, const clattn_feed_forward_args *args, clattn_status status,
                        const char *saying)
{
    cl_event event = NULL;
    assert_status(context, clattn_feed_forward_enqueue(plan, NULL, args, 0, NULL, &event), status);
    assert_message_has(context, saying);
    assert_null(event);
}

/* Fails the test unless the valid arguments with one change are refused. */
#define REFUSE(change, status, ...) \
    do { \
        clattn_feed_forward_args args = b.args; \
        snprintf(saying, sizeof saying, __VA_ARGS__); \
        change; \
        refuse_args(plan, &args, (status), saying); \
    } while (0)

/* Arrays that the description has must be bound correctly, and others must not be bound. */
static void arguments_that_are_refused(void **state)
{
    static float y[ROWS * D], poison[ROWS * D];
    char saying[160];
    (void)state;
    for (int all = 0; all < 2; all++) {
        const clattn_feed_forward_desc desc = describe(CLATTN_DTYPE_F32, CLATTN_ACTIVATION_RELU, all, all, all, false);
        block b = open_block(&desc);
        clattn_plan *plan = NULL;
        clattn_binding other = b.args.w_in;
        assert_status(context, clattn_feed_forward_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
        for (int a = 0; a < ARRAYS; a++) {
            if (!has(&desc, a)) {
                REFUSE(*binding_of(&args, a) = other, CLATTN_ERROR_INVALID_ARGUMENT,
                       "%s: bound, but the plan's description has no array for it", names[a]);
                continue;
            }
            REFUSE(memset(binding_of(&args, a), 0, sizeof other), CLATTN_ERROR_INVALID_ARGUMENT,
                   "%s: no buffer is bound", names[a]);
            REFUSE(*binding_of(&args, a) = clattn_binding_svm(&other, 0), CLATTN_ERROR_UNSUPPORTED,
                   "%s: models take buffers only", names[a]);
            REFUSE(binding_of(&args, a)->offset = 1, CLATTN_ERROR_BUFFER_TOO_SMALL,
                   "%s: elements 1 to %zu are addressed, the buffer holds %zu", names[a], counts[a], counts[a]);
        }
        REFUSE(args.size = 8, CLATTN_ERROR_INVALID_STRUCT, "its size is none that clattn_feed_forward_args ever had");
        REFUSE(args.explicit_rows = 2, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_rows is 2, neither 0 nor 1");
        REFUSE(args.reserved = 7, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is 7, and not 0");
        REFUSE((args.explicit_rows = 1, args.rows = ROWS + 1), CLATTN_ERROR_INVALID_ARGUMENT,
               "rows %d is above the plan's %d", ROWS + 1, ROWS);
        refuse_args(plan, NULL, CLATTN_ERROR_INVALID_ARGUMENT, "args is NULL");
        /* Without rows y keeps its contents, as after all refusals, and nothing need be bound. */
        clattn_feed_forward_args none = CLATTN_FEED_FORWARD_ARGS_INIT;
        none.explicit_rows = 1;
        assert_status(context, clattn_feed_forward_enqueue(plan, NULL, &none, 0, NULL, NULL), CLATTN_SUCCESS);
        memset(poison, 0xff, sizeof poison);
        read_buffer(clattn_context_queue(context), b.buffers[Y], sizeof y, y);
        assert_memory_equal(y, poison, sizeof y);
        clattn_plan_release(&plan);
        close_block(&b);
    }
}
#undef REFUSE

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(float32, open_context, close_context),
        cmocka_unit_test_setup_teardown(float16_and_bfloat16, open_context, close_context),
        cmocka_unit_test_setup_teardown(descriptions_that_are_refused, open_context, close_context),
        cmocka_unit_test_setup_teardown(arguments_that_are_refused, open_context, close_context),
    };
    return RUN_TESTS("feed_forward", tests, argc, argv);
}
