/* Steps of Adam and AdamW, and sums of squares, agree with the definition in double precision, for all types, lengths, clipping,
 * weight decay and steps; a broken sum of squares leaves everything as it was; results are the same in every bit from run to run;
 * guard bands stay; what is refused.
 *
 * Holds: include/clattn/optimizer.h. */
#include "support/ops/backward/optimizer_case.h"

#include <math.h>
#include <stdlib.h>

#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16
#define RATE .learning_rate = 1e-2

static const adam_case steps[] = {
    {"one element", ALL, 1, RATE},
    {"a vector - 1", ALL, 15, RATE, .step = 3},
    {"a vector", ALL, 16, RATE, .step = 1000},
    {"a vector + 1", ALL, 17, RATE, .step = 1000000000000},
    {"groups", BIG, 100003, RATE, .step = 2},
    {"nothing", ALL, 0, RATE},
    {"learning rate 0", ALL, 37, .step = 2},
    {"AdamW", ALL, 61, RATE, .weight_decay = 0.1, .decoupled = true, .step = 7},
    {"Adam with weight decay", ALL, 61, RATE, .weight_decay = 0.1, .step = 7},
    {"betas and epsilon", ALL, 61, RATE, .explicit_betas = true, .beta1 = 0.3, .beta2 = 0.7, .explicit_epsilon = true,
     .epsilon = 0.1, .step = 4},
    {"betas 0", ALL, 61, RATE, .explicit_betas = true},
    {"scaled gradients", ALL, 61, RATE, .gradient_scale = 1.0 / 1024},
    {"gradients turned over", BIG, 61, RATE, .gradient_scale = -3},
    {"clipped", ALL, 61, RATE, .squares = true, .sum = 90, .clip_norm = 0.5},
    {"clipped and scaled", ALL, 61, RATE, .squares = true, .sum = 90, .clip_norm = 0.5, .gradient_scale = -0.25,
     .weight_decay = 0.1},
    {"short enough not to be clipped", ALL, 61, RATE, .squares = true, .sum = 90, .clip_norm = 20},
    {"a norm of 0", BIG, 61, RATE, .squares = true, .sum = 0, .clip_norm = 0.5},
    {"squares are only looked at", BIG, 61, RATE, .squares = true, .sum = 90},
    {"squares are NaN", ALL, 61, RATE, .squares = true, .sum = NAN, .clip_norm = 1},
    {"squares are infinite", ALL, 61, RATE, .squares = true, .sum = INFINITY},
    {"NaN and infinite gradients", ALL, 61, RATE, .special = true},
    {"float16", ALL, 61, F16, F16, RATE, .step = 5},
    {"bfloat16", ALL, 61, BF16, BF16, RATE, .step = 5, .weight_decay = 0.1, .decoupled = true},
    {"bfloat16", BIG, 50021, BF16, BF16, RATE, .step = 5},
    {"float32, stored as bfloat16, clipped", MORE, 1009, 0, BF16, RATE, .squares = true, .sum = 9, .clip_norm = 1},
    {"float16, stored as bfloat16, squares are NaN", ALL, 61, F16, BF16, RATE, .squares = true, .sum = NAN},
};

static const square_sum_case sums[] = {
    {"nothing", ALL, .count = 0},
    {"nothing, accumulated", ALL, .count = 0, .accumulate = true},
    {"one element", ALL, .count = 1},
    {"a vector + 1", ALL, .count = 17},
    {"a row", ALL, .count = 64},
    {"a row + 1", ALL, .count = 65},
    {"rows", ALL, .count = 771},
    {"a block - 1", BIG, .count = 16383},
    {"a block", BIG, .count = 16384},
    {"a block + 1", ALL, .count = 16385},
    {"blocks", BIG, .count = 200003, .accumulate = true},
    {"nearly equal numbers", BIG, .count = 1000003, .low = 0.1f, .high = 0.1000001f},
    {"rows of blocks", MORE, .count = 3000017, .low = 0.9f, .high = 1},
    {"float16", ALL, .count = 1009, .type = F16, .accumulate = true},
    {"float16", BIG, .count = 40009, .type = F16},
    {"bfloat16", ALL, .count = 1009, .type = BF16},
    {"bfloat16", BIG, .count = 40009, .type = BF16},
    {"a NaN", ALL, .count = 333, .special = NAN},
    {"an infinity", ALL, .count = 333, .special = -INFINITY},
};

/* Whatever an array holds, the same calls leave the same bits. */
static void same_bits(const struct operator_calls *calls, test_job *job, const void *args)
{
    unsigned char *first = NULL;
    for (size_t run = 0; run < by_level(5, 100, 100, 100); run++) {
        job_poison(job);
        assert_status(device_context(), calls->enqueue(job->plan, NULL, args, 0, NULL, NULL), CLATTN_SUCCESS);
        for (int i = 0; i < JOB_OUTPUTS; i++)
            if (job->output[i].memory)
                array_download(&job->output[i]);
        unsigned char *now = job_snapshot(job);
        if (first)
            assert_memory_equal(now, first, job_bytes(job));
        free(first);
        first = now;
    }
    free(first);
}

/* A job of both operators: the gradient's squares, which the step is clipped by. */
struct both {
    test_job step, sum;
    clattn_adam_desc desc;
    clattn_square_sum_desc sum_desc;
};

static void make_both(struct both *both, size_t count)
{
    clattn_adam_args *args = &both->step.args.adam;
    const size_t one = 1;
    *both = (struct both){.desc = CLATTN_ADAM_DESC_INIT, .sum_desc = CLATTN_SQUARE_SUM_DESC_INIT};
    *args = (clattn_adam_args)CLATTN_ADAM_ARGS_INIT;
    both->sum.args.square_sum = (clattn_square_sum_args)CLATTN_SQUARE_SUM_ARGS_INIT;
    test_array gradient = job_array(&both->sum, ROLE_INPUT, CLATTN_DTYPE_F32, 1, &count, FORM_PLAIN);
    job_fill(&gradient, 1, -1, 1, false);
    clattn_layout *const layouts[] = {&both->desc.parameter, &both->desc.first_moment, &both->desc.second_moment};
    clattn_binding *const bindings[] = {&args->parameter, &args->first_moment, &args->second_moment};
    for (int n = 0; n < 3; n++) {
        both->step.output[n] = job_array(&both->step, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 1, &count, FORM_PLAIN);
        job_fill(&both->step.output[n], 2 + (uint64_t)n, 0, 1, false);
        array_own(&both->step.output[n], &count);
        array_bind(&both->step.output[n], layouts[n], bindings[n]);
    }
    both->sum.output[0] = job_array(&both->sum, ROLE_READABLE_OUTPUT, CLATTN_DTYPE_F32, 1, &one, FORM_PLAIN);
    array_own(&both->sum.output[0], &one);
    array_bind(&gradient, &both->sum_desc.x, &both->sum.args.square_sum.x);
    array_bind(&both->sum.output[0], &both->sum_desc.result, &both->sum.args.square_sum.result);
    array_bind(&gradient, &both->desc.gradient, &args->gradient);
    array_bind(&both->sum.output[0], &both->desc.squares, &args->squares);
    args->learning_rate = 0.1;
    args->clip_norm = 0.5;
    args->step = 2;
    both->sum.plan = operator_plan(&square_sum_operator, &both->sum_desc, NULL);
    both->step.plan = operator_plan(&adam_operator, &both->desc, NULL);
}

static void release_both(struct both *both)
{
    job_release(&both->step);
    job_release(&both->sum);
}

static void the_same_in_every_run(void **state)
{
    struct both both;
    (void)state;
    make_both(&both, by_level(300, 40009, 400009, 400009));
    same_bits(&square_sum_operator, &both.sum, &both.sum.args.square_sum);
    same_bits(&adam_operator, &both.step, &both.step.args.adam);
    release_both(&both);
}

#define REFUSED(status, change) OPERATOR_REFUSES_ARGS(adam, both.step.plan, status, good, change)
#define SUM_REFUSED(status, change) OPERATOR_REFUSES_ARGS(square_sum, both.sum.plan, status, sum, change)

static void refused_arguments(void **state)
{
    struct both both;
    (void)state;
    make_both(&both, 19);
    clattn_adam_args good = both.step.args.adam;
    clattn_square_sum_args sum = both.sum.args.square_sum;
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(INVALID_ARGUMENT, explicit_betas = 2);
    REFUSED(INVALID_ARGUMENT, explicit_epsilon = 2);
    REFUSED(INVALID_ARGUMENT, decoupled = -1);
    REFUSED(INVALID_ARGUMENT, step = 0);
    REFUSED(INVALID_ARGUMENT, learning_rate = -1);
    REFUSED(INVALID_ARGUMENT, learning_rate = 1e39);
    REFUSED(INVALID_ARGUMENT, weight_decay = NAN);
    REFUSED(INVALID_ARGUMENT, gradient_scale = INFINITY);
    REFUSED(INVALID_ARGUMENT, clip_norm = -1);
    REFUSED(INVALID_ARGUMENT, epsilon = (args.explicit_epsilon = 1, -1e-8));
    REFUSED(INVALID_ARGUMENT, beta1 = (args.explicit_betas = 1, 1));
    REFUSED(INVALID_ARGUMENT, beta2 = (args.explicit_betas = 1, -0.5));
    REFUSED(INVALID_ARGUMENT, parameter.buffer = NULL);
    REFUSED(INVALID_ARGUMENT, squares.buffer = NULL);
    REFUSED(INVALID_ARGUMENT, stored = good.gradient);
    REFUSED(INVALID_ARGUMENT, first_moment = good.parameter);
    REFUSED(BUFFER_TOO_SMALL, gradient.offset = 1000);
    REFUSED(BUFFER_ACCESS, second_moment = good.gradient);
    operator_needs_both(&adam_operator, both.step.plan, &good);
    SUM_REFUSED(INVALID_STRUCT, size = 8);
    SUM_REFUSED(INVALID_ARGUMENT, reserved = 1);
    SUM_REFUSED(INVALID_ARGUMENT, accumulate = 2);
    SUM_REFUSED(INVALID_ARGUMENT, x.buffer = NULL);
    SUM_REFUSED(INVALID_ARGUMENT, result.buffer = NULL);
    SUM_REFUSED(BUFFER_TOO_SMALL, x.offset = 1000);
    SUM_REFUSED(BUFFER_ACCESS, result = sum.x);
    operator_needs_both(&square_sum_operator, both.sum.plan, &sum);
    release_both(&both);

    /* Without squares nothing can be clipped. */
    make_both(&both, 19);
    both.desc.squares = (clattn_layout){0};
    clattn_plan_release(&both.step.plan);
    both.step.plan = operator_plan(&adam_operator, &both.desc, NULL);
    clattn_adam_args none = both.step.args.adam;
    none.squares = (clattn_binding){0};
    OPERATOR_REFUSES_ARGS(adam, both.step.plan, INVALID_ARGUMENT, none, clip_norm = 1);
    release_both(&both);
}

static void one_call(void **state)
{
    struct both both;
    (void)state;
    make_both(&both, 19);
    operator_runs_prewarmed(&square_sum_operator, &both.sum_desc, &both.sum.args.square_sum);
    operator_runs_prewarmed(&adam_operator, &both.desc, &both.step.args.adam);
    release_both(&both);
}

int main(int argc, char **argv)
{
    adam_add(steps, COUNT_OF(steps));
    square_sum_add(sums, COUNT_OF(sums));
    suite_add(the_same_in_every_run, "optimizer: the same in every run");
    suite_add(refused_arguments, "optimizer: arguments that are refused");
    suite_add(one_call, "optimizer: prewarm and run");
    return suite_run("optimizer", argc, argv);
}
