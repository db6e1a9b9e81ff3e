/* Every solver drops the elements that clattn/dropout.h says, of all storage types, ranks and strides, also in place, and
 * so do its gradients.
 *
 * Holds: which elements are kept, by the tests' own generator and by clattn_dropout_keep; how many; +0 for what is
 * dropped, whatever it held; sums with a residual; the accuracy of one product and one sum; gradients that are those of a
 * linear function; results that are the same in every bit from run to run, whatever the solver, the strides and the batch;
 * guard bands; what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/ops/backward/dropout_case.h"

#define DIMS(n, ...) .rank = (n), .extent = {__VA_ARGS__}
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

/* A case and its gradient. */
#define BOTH(...) \
    {__VA_ARGS__}, \
    { \
        __VA_ARGS__, .backward = true \
    }

static const dropout_case shapes[] = {
    BOTH("one element", ALL, 0.5f, DIMS(1, 1)),
    BOTH("a block - 1", ALL, 0.5f, DIMS(1, 3)),
    BOTH("a block + 1", ALL, 0.5f, DIMS(1, 5)),
    BOTH("vectors of blocks - 1", ALL, 0.5f, DIMS(1, 63)),
    BOTH("vectors of blocks", ALL, 0.5f, DIMS(1, 64)),
    BOTH("vectors of blocks + 1", ALL, 0.5f, DIMS(1, 65)),
    BOTH("pieces", BIG, 0.5f, DIMS(2, 3, 40009)),
    BOTH("rows that begin within a block", ALL, 0.5f, DIMS(2, 7, 67), .x = FORM_PADDED),
    BOTH("pieces of rows that begin within a block", BIG, 0.5f, DIMS(2, 3, 40009), .x = FORM_PADDED),
    BOTH("short rows", BIG, 0.5f, DIMS(2, 10007, 3), .x = FORM_PADDED),
    BOTH("many", FULL, 0.5f, DIMS(1, 1000003)),
    BOTH("ranks", ALL, 0.5f, DIMS(5, 2, 3, 2, 3, 7)),
    {"extents of one", ALL, 0.5f, DIMS(5, 1, 3, 1, 7, 1), .add = true},
    BOTH("nothing", ALL, 0.5f, DIMS(2, 0, 7)),
    BOTH("nothing", ALL, 0.5f, DIMS(2, 7, 0)),
    BOTH("nothing at enqueue", ALL, 0.5f, DIMS(2, 3, 7), .explicit_batch = true, .batch = 0),
    BOTH("beyond the batch", ALL, 0.5f, DIMS(2, 4, 19), .explicit_batch = true, .batch = 2),
    {"beyond the batch", ALL, 0.5f, DIMS(2, 4, 19), .add = true, .explicit_batch = true, .batch = 3},
    BOTH("beyond the batch, columns outermost", ALL, 0.5f, DIMS(2, 19, 5), .explicit_batch = true, .batch = 7,
         .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED),
};

static const dropout_case probabilities[] = {
    BOTH("nothing is dropped", ALL, 0, DIMS(2, 3, 37), .special = true),
    BOTH("little", ALL, 0x1p-32f, DIMS(2, 3, 37)),
    BOTH("a tenth, special values", ALL, 0.1f, DIMS(2, 3, 67), .special = true),
    BOTH("most, special values", ALL, 0.9f, DIMS(2, 3, 67), .special = true),
    BOTH("nearly all", ALL, 0x1.fffffep-1f, DIMS(2, 3, 37)),
    {"special values on both sides", ALL, 0.4f, DIMS(2, 3, 67), .add = true, .special = true},
};

static const dropout_case forms[] = {
    BOTH("heads inside", ALL, 0.3f, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD),
    {"heads inside the residual", ALL, 0.3f, DIMS(4, 2, 3, 5, 7), .add = true, .residual = FORM_BSHD},
    {"gaps", ALL, 0.3f, DIMS(3, 2, 3, 19), .add = true, .x = FORM_PADDED, .residual = FORM_PADDED, .y = FORM_PADDED},
    {"columns apart", ALL, 0.3f, DIMS(3, 2, 3, 19), .add = true, .x = FORM_SPREAD, .residual = FORM_SPREAD,
     .y = FORM_SPREAD},
    BOTH("backwards", ALL, 0.3f, DIMS(2, 5, 19), .x = FORM_MIRRORED, .y = FORM_FLIPPED),
    BOTH("transposed", ALL, 0.3f, DIMS(2, 67, 19), .x = FORM_TRANSPOSED),
    {"one residual for all", ALL, 0.3f, DIMS(3, 2, 3, 19), .add = true, .residual = FORM_SHARED_FIRST},
    BOTH("one row for all", ALL, 0.3f, DIMS(3, 2, 3, 19), .x = FORM_SHARED_ROWS),
    BOTH("in place", ALL, 0.3f, DIMS(2, 5, 19), .in_place = PLACE_X),
    BOTH("in place", BIG, 0.3f, DIMS(2, 5, 40009), .in_place = PLACE_X),
    BOTH("in place, strided", ALL, 0.3f, DIMS(3, 2, 5, 19), .x = FORM_SPREAD, .in_place = PLACE_X),
    {"in x's place", ALL, 0.3f, DIMS(2, 5, 19), .add = true, .in_place = PLACE_X},
    {"in the residual's place", ALL, 0.3f, DIMS(2, 5, 19), .add = true, .in_place = PLACE_RESIDUAL},
};

static const dropout_case types[] = {
    BOTH("float16", ALL, 0.2f, DIMS(1, 131), .x_type = F16, .y_type = F16),
    BOTH("bfloat16", ALL, 0.2f, DIMS(1, 131), .x_type = BF16, .y_type = BF16),
    {"float16", BIG, 0.2f, DIMS(1, 5003), .add = true, .x_type = F16, .residual_type = F16, .y_type = F16},
    {"bfloat16", BIG, 0.2f, DIMS(1, 5003), .add = true, .x_type = BF16, .residual_type = BF16, .y_type = BF16},
    {"bfloat16 behind float32", ALL, 0.2f, DIMS(2, 3, 131), .add = true, .x_type = BF16},
    {"float32 behind float16 to bfloat16, strided", BIG, 0.2f, DIMS(2, 7, 131), .add = true, .residual_type = F16,
     .y_type = BF16, .y = FORM_SPREAD},
};

/* Runs a case by each solver; `judge` has the job and what it gave. */
static void by_each_solver(const dropout_case *test, void (*judge)(test_job *job, const unsigned char *given))
{
    for (size_t n = 0; n < DROPOUT_SOLVERS; n++) {
        test_job job = {0};
        assert_true(dropout_make(&job, test, dropout_solvers[n]));
        job_run(&job, NULL);
        unsigned char *given = job_snapshot(&job);
        judge(&job, given);
        free(given);
        job_release(&job);
    }
}

static void same_bits(void **state)
{
    static const dropout_case test = {"repeated", ALL, 0.5f, DIMS(2, 5, 1009), .add = true};
    (void)state;
    by_each_solver(&test, job_repeat);
}

/* The first items of a batch are the same without the others. */
enum { BATCH = 5, COLUMNS = 1009 };
static void alone(test_job *job, const unsigned char *given)
{
    float *whole = malloc(sizeof(float) * BATCH * COLUMNS), *part = malloc(sizeof(float) * BATCH * COLUMNS);

    (void)given;
    assert_non_null(whole);
    assert_non_null(part);
    job_copy_output(job, whole);
    job->args.dropout.explicit_batch = 1;
    for (size_t batch = 1; batch < BATCH; batch++) {
        job->args.dropout.batch = batch;
        array_own(&job->output[0], (size_t[]){batch, COLUMNS});
        job_poison(job);
        job_run(job, NULL);
        job_copy_output(job, part);
        assert_memory_equal(part, whole, sizeof(float) * batch * COLUMNS);
    }
    free(whole);
    free(part);
}

static void any_batch(void **state)
{
    static const dropout_case test = {"batches", ALL, 0.5f, DIMS(2, BATCH, COLUMNS), .add = true};
    (void)state;
    by_each_solver(&test, alone);
}

/* Solvers, strides and storage types drop the same elements: dense results are the same where all values are whole. */
static void any_layout(void **state)
{
    enum { ROWS = 7, COUNT = ROWS * 67 };
    static const dropout_case tests[] = {
        {"plain", ALL, 0.5f, DIMS(2, ROWS, 67)},
        {"transposed", ALL, 0.5f, DIMS(2, ROWS, 67), .x = FORM_TRANSPOSED, .y = FORM_SPREAD},
        {"float16", ALL, 0.5f, DIMS(2, ROWS, 67), .x_type = F16, .x = FORM_PADDED},
        {"gradient", ALL, 0.5f, DIMS(2, ROWS, 67), .backward = true, .x = FORM_MIRRORED},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        for (size_t n = 0; n < DROPOUT_SOLVERS; n++) {
            test_job job = {0};
            assert_true(dropout_make(&job, &tests[i], dropout_solvers[n]));
            job_fill(&job.input[0], 5, 1, 2, false); /* no 0 */
            clattn_dropout_args *args = &job.args.dropout;
            args->seed = 0xfedcba9876543210;
            args->offset = 0x80000003;
            job_run(&job, NULL);
            double *y = array_dense(&job.output[0], 2, tests[i].extent);
            for (uint32_t e = 0; e < COUNT; e++) {
                const int keep = clattn_dropout_keep(args->seed, args->offset, 0.5f, 1, 0, 0, 0, e);
                assert_int_equal(keep, dropout_keeps(args, 0.5f, e));
                assert_int_equal(keep, y[e] != 0);
                assert_false(signbit(y[e])); /* +0 */
            }
            free(y);
            job_release(&job);
        }
}

/* So many elements are kept as the probability says, within five standard deviations; other seeds and offsets keep others. */
static void rates(void **state)
{
    enum { LAST = 4 };
    const size_t count = by_level(1 << 10, 1 << 16, 1 << 18, 1 << 22);
    static const float probability[] = {0.01f, 0.1f, 0.5f, 0.9f};
    double *before = zeros(count);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(probability); i++)
        for (size_t n = 0; n < DROPOUT_SOLVERS; n++) {
            const dropout_case test = {"rates", ALL, probability[i], DIMS(1, count)};
            test_job job = {0};
            assert_true(dropout_make(&job, &test, dropout_solvers[n]));
            job_fill(&job.input[0], 5, 1, 2, false);
            for (uint32_t call = 0; call < LAST; call++) {
                size_t kept = 0, same = 0;
                const double p = (double)probability[i], agree = p * p + (1 - p) * (1 - p);
                job.args.dropout.seed = call / 2;
                job.args.dropout.offset = call % 2;
                job_poison(&job);
                job_run(&job, NULL);
                double *y = array_dense(&job.output[0], 1, &count);
                for (size_t e = 0; e < count; e++) {
                    kept += y[e] != 0;
                    same += (y[e] != 0) == (before[e] != 0);
                }
                assert_true(fabs((double)kept - (1 - p) * (double)count) < 5 * sqrt(p * (1 - p) * (double)count) + 1);
                if (call > 0)
                    assert_true(fabs((double)same - agree * (double)count) <
                                5 * sqrt(agree * (1 - agree) * (double)count) + 1);
                memcpy(before, y, sizeof *y * count);
                free(y);
            }
            job_release(&job);
        }
    free(before);
}

/* Forward is linear in x, so differences of forward are its gradient's transpose: the sum of dropped(u) * v is that of
 * u * dropped(v). */
static void adjoint(void **state)
{
    static const dropout_case forward = {"forward", ALL, 0.5f, DIMS(2, 7, 67)},
                              backward = {"backward", ALL, 0.5f, DIMS(2, 7, 67), .backward = true};
    (void)state;
    for (size_t n = 0; n < DROPOUT_SOLVERS; n++) {
        double sum[2] = {0};
        test_job job[2] = {{0}, {0}};
        assert_true(dropout_make(&job[0], &forward, dropout_solvers[n]));
        assert_true(dropout_make(&job[1], &backward, dropout_solvers[n]));
        job_fill(&job[1].input[0], 9, -4, 4, false);
        for (int i = 0; i < 2; i++)
            job_run(&job[i], NULL);
        for (int i = 0; i < 2; i++) {
            double *u = array_dense(&job[!i].input[0], 2, forward.extent);
            double *v = array_dense(&job[i].output[0], 2, forward.extent);
            for (size_t e = 0; e < 7 * 67; e++)
                sum[i] += u[e] * v[e];
            free(u);
            free(v);
        }
        assert_true(fabs(sum[0] - sum[1]) <= 1e-9 * fabs(sum[0])); /* 1 / (1 - 0.5) is exact */
        job_release(&job[0]);
        job_release(&job[1]);
    }
}

static clattn_dropout_desc good_desc(clattn_direction direction)
{
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    const clattn_layout array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){3, 5});

    desc.probability = 0.25f;
    desc.direction = direction;
    if (direction == CLATTN_DIRECTION_BACKWARD)
        desc.gradients.x = desc.gradients.y = array;
    else
        desc.x = desc.residual = desc.y = array;
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(dropout, status, good_desc(direction), change)

static void refused_descriptions(void **state)
{
    clattn_dropout_desc zeroed = CLATTN_DROPOUT_DESC_INIT;
    const clattn_layout array = good_desc(CLATTN_DIRECTION_FORWARD).x;

    (void)state;
    operator_answers(&dropout_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&dropout_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    for (clattn_direction direction = CLATTN_DIRECTION_FORWARD; direction <= CLATTN_DIRECTION_BACKWARD; direction++) {
        const clattn_dropout_desc good = good_desc(direction);
        operator_answers(&dropout_operator, &good, CLATTN_SUCCESS);
        REFUSED(INVALID_STRUCT, size = 8);
        REFUSED(INVALID_ARGUMENT, direction = 2);
        REFUSED(INVALID_ARGUMENT, probability = 1);
        REFUSED(INVALID_ARGUMENT, probability = -0.1f);
        REFUSED(INVALID_ARGUMENT, probability = NAN);
    }
    clattn_direction direction = CLATTN_DIRECTION_FORWARD;
    REFUSED(INVALID_ARGUMENT, gradients.x = array);
    REFUSED(INVALID_ARGUMENT, gradients.y = array);
    REFUSED(INVALID_LAYOUT, x = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, y = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, y.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, y.rank = 1);
    REFUSED(INVALID_LAYOUT, residual.extent[1] = 1);
    REFUSED(INVALID_LAYOUT, y.stride[0] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, residual.dtype = CLATTN_DTYPE_I8);
    REFUSED(UNSUPPORTED, y.dtype = CLATTN_DTYPE_I8);
    REFUSED(OVERFLOW, x.extent[0] = desc.y.extent[0] = desc.residual.extent[0] = (size_t)1 << 31);
    direction = CLATTN_DIRECTION_BACKWARD;
    REFUSED(INVALID_ARGUMENT, x = array);
    REFUSED(INVALID_ARGUMENT, residual = array);
    REFUSED(INVALID_ARGUMENT, y = array);
    REFUSED(INVALID_LAYOUT, gradients.x = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.y = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.y.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, gradients.x.stride[0] = 0);
    REFUSED(UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_I8);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(dropout, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    clattn_dropout_args good = CLATTN_DROPOUT_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    array_bind(&x, &desc.x, &good.x);
    array_bind(&x, &desc.residual, &good.residual);
    array_bind(job_output(&job, 2, (size_t[]){3, 19}), &desc.y, &good.y);
    job.plan = operator_plan(&dropout_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, residual = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x = good.y);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y = good.x);
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.x);
    operator_needs_both(&dropout_operator, job.plan, &good);
    clattn_plan_release(&job.plan);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.x = desc.y;
    desc.gradients.y = desc.x;
    desc.x = desc.residual = desc.y = (clattn_layout){0};
    good.gradients.x = good.y;
    good.gradients.y = good.x;
    good.x = good.residual = good.y = (clattn_binding){0};
    job.plan = operator_plan(&dropout_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, x = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, residual = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, y = good.gradients.x);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y.buffer = NULL);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 100);
    operator_needs_both(&dropout_operator, job.plan, &good);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    clattn_dropout_args args = CLATTN_DROPOUT_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 1, -3, 4.5);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&job.output[0], &desc.y, &args.y);
    operator_runs_prewarmed(&dropout_operator, &desc, &args);
    job_expect_two_elements(&job, -3, 4.5); /* the probability defaults to 0 */
    job_release(&job);
}

int main(int argc, char **argv)
{
    dropout_add(shapes, COUNT_OF(shapes));
    dropout_add(probabilities, COUNT_OF(probabilities));
    dropout_add(forms, COUNT_OF(forms));
    dropout_add(types, COUNT_OF(types));
    suite_add(same_bits, "dropout: the same bits in every run");
    suite_add(any_batch, "dropout: the same bits in every batch");
    suite_add(any_layout, "dropout: the same elements by every solver, layout and type");
    suite_add(rates, "dropout: as many elements as the probability says");
    suite_add(adjoint, "dropout backward: the transpose of forward");
    suite_add(refused_descriptions, "dropout: descriptions that are refused");
    suite_add(refused_arguments, "dropout: arguments that are refused");
    suite_add(one_call, "dropout: prewarm and run");
    return suite_run("dropout", argc, argv);
}
