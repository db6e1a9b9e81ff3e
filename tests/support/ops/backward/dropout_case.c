/* Dropout: from a table row to arrays, a plan, a reference and a verdict. */
#include "support/ops/backward/dropout_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/philox.h"
#include "support/verdict.h"

const char *const dropout_solvers[DROPOUT_SOLVERS] = {"generic", "cpu"};

typedef struct value_filler {
    random_stream stream;
    bool special;
} value_filler;

static double fill_value(void *context, const size_t *index)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0};
    value_filler *f = context;
    const int choice = f->special ? random_int(&f->stream, 0, 9) : 9;

    (void)index;
    return choice < (int)COUNT_OF(special) ? special[choice] : (double)random_float(&f->stream, -4, 4);
}

bool dropout_keeps(const clattn_dropout_args *args, float probability, uint64_t place)
{
    const uint32_t low = (uint32_t)place, counter[4] = {low / 4, (uint32_t)(place >> 32), 0, args->offset};
    const uint32_t key[2] = {(uint32_t)args->seed, (uint32_t)(args->seed >> 32)};
    uint32_t word[4];

    reference_philox(counter, key, word);
    return word[place % 4] / 4294967296.0 >= (double)probability;
}

bool dropout_make(test_job *job, const void *which, const char *solver)
{
    const dropout_case *test = which;
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    clattn_dropout_args args = CLATTN_DROPOUT_ARGS_INIT;
    size_t written[CLATTN_MAX_RANK];
    value_filler filler = {.stream = random_start(3), .special = test->special};
    test_array *x = &job->input[0], *residual = &job->input[1], *y = &job->output[0];

    *x = job_array(job, test->in_place == PLACE_X ? ROLE_IN_PLACE : ROLE_INPUT, test->x_type, test->rank, test->extent,
                   test->x);
    array_fill(x, fill_value, &filler);
    array_upload(x);
    if (test->add) {
        *residual = job_array(job, test->in_place == PLACE_RESIDUAL ? ROLE_IN_PLACE : ROLE_INPUT, test->residual_type,
                              test->rank, test->extent, test->residual);
        array_fill(residual, fill_value, &filler);
        array_upload(residual);
    }
    *y = test->in_place == PLACE_X ? *x
         : test->in_place == PLACE_RESIDUAL
             ? *residual
             : job_array(job, ROLE_OUTPUT, test->y_type, test->rank, test->extent, test->y);
    memcpy(written, test->extent, sizeof written);
    written[0] = test->explicit_batch ? test->batch : written[0];
    array_own(y, written);

    desc.probability = test->probability;
    desc.direction = test->backward ? CLATTN_DIRECTION_BACKWARD : CLATTN_DIRECTION_FORWARD;
    array_bind(x, test->backward ? &desc.gradients.y : &desc.x, test->backward ? &args.gradients.y : &args.x);
    array_bind(residual, &desc.residual, &args.residual);
    array_bind(y, test->backward ? &desc.gradients.x : &desc.y, test->backward ? &args.gradients.x : &args.y);
    args.seed = random_bits(&filler.stream);
    args.offset = (uint32_t)random_bits(&filler.stream);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.dropout = args;
    return job_plan(job, &dropout_operator, &desc, solver, JOB_TAKEN);
}

/* Grants nothing for the errors of a naive computation. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    const dropout_case *test = which;
    *result = result_of(test->backward ? "gradients.x" : "y", &job->output[0]);
    double *x = array_dense(&job->input[0], test->rank, result->extent);
    double *residual = test->add ? array_dense(&job->input[1], test->rank, result->extent) : NULL;

    for (size_t i = 0; i < result->count; i++) {
        const bool kept = dropout_keeps(&job->args.dropout, test->probability, i);
        const double dropped = kept ? x[i] / (1 - (double)test->probability) : 0, added = residual ? residual[i] : 0;
        result->reference[i] = added + dropped;
        result->magnitude[i] = fabs(added) + fabs(dropped);
    }
    free(residual);
    free(x);
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = dropout_make, .refer = refer};
    job_check(&checker, test, solver);
}

void dropout_add(const dropout_case *cases, size_t count)
{
    for (size_t n = 0; n < DROPOUT_SOLVERS; n++)
        for (size_t i = 0; i < count; i++) {
            const dropout_case *t = &cases[i];

            if (t->levels & level())
                suite_add_case(check, t, dropout_solvers[n], "dropout %s%s: %s, %g%s, rank %d, last %zu",
                               dropout_solvers[n], t->backward ? " backward" : "", t->rule, (double)t->probability,
                               t->add ? ", added" : "", t->rank, t->extent[t->rank - 1]);
        }
}
