/* Attention to parts of larger arrays: the queries, or the items, come in two calls, and lengths, alignment and dropout are about all
 * of them. */
#include "support/attention/backward_job.h"
#include "support/attention/case.h"
#include "support/suite.h"

static const attention_case cases[] = {
    {"lengths, causal from the bottom right", ALL, .dim = {3, 2, 1, 13, 21, 8, 8}, .causal = true, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(13, 4, 9), .keys = LIST(5, 21, 17)}},
    {"dropout, a window", ALL, .dim = {2, 4, 2, 13, 21, 8, 8}, WINDOW(9, 3), .dropout = 0.3F, .seed = 5,
     .dropout_offset = 2},
    {"ALiBi at positions, a mask, lengths of queries", ALL, .dim = {2, 2, 1, 13, 21, 8, 8}, .alibi = 1, AT(EXPLICIT, 3),
     .mask = MASK_FLOAT, .list = {.queries = LIST(13, 7), .positions = LIST(2, -4)}},
    {"a position and positions that are large and cancel", ALL, .dim = {2, 2, 1, 13, 21, 8, 8}, .causal = true,
     AT(EXPLICIT, (int64_t)1 << 40), .list = {.positions = LIST(4 - ((int64_t)1 << 40), 2 - ((int64_t)1 << 40))},
     .type = {.integers = CLATTN_DTYPE_I64}},
    {"more queries than keys, causal from the bottom right", ALL, .dim = {2, 2, 1, 21, 13, 8, 8}, .causal = true,
     AT(BOTTOM_RIGHT, 0), .sinks = true},
};

/* Lets the call have `count` queries from `first` on. */
static void take_queries(test_job *job, const clattn_attention_desc *desc, const clattn_attention_args *whole,
                         size_t first, size_t count)
{
    clattn_attention_args *a = &job->args.attention;
    const int64_t rows = (int64_t)first;
    *a = *whole;
    a->query_length = count;
    a->whole.query = first;
    a->whole.query_length = whole->query_length;
    a->query.offset += rows * desc->query.stride[2];
    a->output.offset += rows * desc->output.stride[2];
    a->outputs.lse.offset += rows * desc->outputs.lse.stride[2];
    if (desc->mask.rank == 4)
        a->mask.offset += rows * desc->mask.stride[2];
}

/* Lets the call have `count` items from `first` on. */
static void take_items(test_job *job, const clattn_attention_desc *desc, const clattn_attention_args *whole,
                       size_t first, size_t count)
{
    clattn_attention_args *a = &job->args.attention;
    const int64_t items = (int64_t)first;
    *a = *whole;
    a->batch = count;
    a->whole.batch = first;
    a->query.offset += items * desc->query.stride[0];
    a->key.offset += items * desc->key.stride[0];
    a->value.offset += items * desc->value.stride[0];
    a->output.offset += items * desc->output.stride[0];
    a->outputs.lse.offset += items * desc->outputs.lse.stride[0];
}

typedef void (*taker)(test_job *job, const clattn_attention_desc *desc, const clattn_attention_args *whole,
                      size_t first, size_t count);

/* Computes a case in two calls, of which the second begins at `first` of `all`. */
static void check_parts(const attention_case *test, const char *solver, taker take, size_t first, size_t all)
{
    test_job job = {0};
    const clattn_attention_desc desc = attention_prepare(&job, test, 3);
    if (job_plan(&job, &attention_operator, &desc, solver, attention_refuses(test, solver) ? JOB_REFUSED : JOB_TAKEN)) {
        clattn_attention_args whole = job.args.attention;
        whole.explicit_lengths = 1;
        whole.batch = test->dim.batch;
        whole.query_length = test->dim.queries;
        whole.key_length = test->dim.keys;
        for (int part = 0; part < 2; part++) {
            take(&job, &desc, &whole, part ? first : 0, part ? all - first : first);
            assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_SUCCESS);
        }
        assert_cl(clFinish(clattn_context_queue(device_context())));
        array_download(&job.output[OUTPUT]);
        array_download(&job.output[LSE]);
        attention_judge(&job, test);
    }
    job_release(&job);
}

static void check_queries(const void *which, const char *solver)
{
    const attention_case *test = which;
    check_parts(test, solver, take_queries, 6, test->dim.queries);
}

/* Dropout knows how many items are before the part's. */
static void check_items(const void *which, const char *solver)
{
    const attention_case *test = which;
    check_parts(test, solver, take_items, 1, test->dim.batch);
}

static const attention_case of_items = {"", ALL, .dim = {3, 4, 2, 13, 21, 8, 8}, .dropout = 0.3F, .seed = 5};

static const attention_case limited = {"",
                                       ALL,
                                       .dim = {2, 2, 1, 20, 31, 8, 8},
                                       .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(0, 14, 31)},
                                       .longest = 6,
                                       .shorter = true,
                                       .actual = {2, 5, 12},
                                       .causal = true,
                                       .mask = MASK_BOOL};

/* Makes the larger arrays those that are there. */
static void take_all(clattn_attention_args *args)
{
    args->whole.query_length = limited.dim.queries;
    args->whole.key_length = limited.dim.keys;
}

/* Of packed sequences no more rows than query_length and key_length count, also if the larger arrays have more. */
static void limits_rows(const void *unused, const char *solver)
{
    static struct backward_job backward;
    test_job job = {0};
    const clattn_attention_desc desc = attention_prepare(&job, &limited, 3);
    (void)unused;
    assert_true(job_plan(&job, &attention_operator, &desc, solver, JOB_TAKEN));
    take_all(&job.args.attention);
    job_run(&job, NULL);
    attention_judge(&job, &limited);
    job_release(&job);
    backward_prepare(&backward, &limited);
    if (backward_plan(&backward, solver)) {
        take_all(&backward.job.args.attention);
        backward_run(&backward);
        backward_judge(&backward);
    }
    backward_release(&backward);
}

static void refusals(void **state)
{
    const attention_case plain = {"", ALL, .dim = {2, 2, 1, 5, 8, 8, 8}, .dropout = 0.5F},
                         packed = {"", ALL, .dim = {2, 2, 1, 9, 11, 8, 8}, .dropout = 0.5F,
                                   .list = {.query_starts = LIST(0, 4, 9), .key_starts = LIST(0, 5, 11)}},
                         ring = {"", ALL, .dim = {2, 2, 1, 5, 8, 8, 8}, .cache = CLATTN_CACHE_KIND_RING};
    test_job job = {0};
    clattn_attention_args a;
    (void)state;
    clattn_attention_desc desc = attention_prepare(&job, &plain, 3);
    assert_true(job_plan(&job, &attention_operator, &desc, "generic", JOB_TAKEN));
    const clattn_attention_args given = job.args.attention;
#define REFUSES(status, change) \
    a = given; \
    change; \
    operator_refuses(&attention_operator, job.plan, &a, CLATTN_##status, __FILE__, __LINE__, #change)
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.query = 1);
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.query_length = 4);
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.query = 2; a.whole.query_length = 6);
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.head = 1; a.whole.heads = 2);
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.key = 2; a.whole.key_length = 10);
    assert_message_has(device_context(), "multiple of 4");
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.key_length = SIZE_MAX);
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.batch = SIZE_MAX);
    REFUSES(ERROR_INVALID_ARGUMENT, a.whole.batch = (INT32_MAX - 65536) / 2 - 1);
    assert_message_has(device_context(), "heads of all items");
    job_release(&job);
    job = (test_job){0};
    desc = attention_prepare(&job, &packed, 3);
    assert_true(job_plan(&job, &attention_operator, &desc, "generic", JOB_TAKEN));
    a = job.args.attention;
    a.whole.key = 4;
    a.whole.key_length = 40;
    operator_refuses(&attention_operator, job.plan, &a, CLATTN_ERROR_INVALID_ARGUMENT, __FILE__, __LINE__, "packed");
    assert_message_has(device_context(), "or 0 if keys are packed");
    job_release(&job);
    job = (test_job){0};
    desc = attention_prepare(&job, &ring, 3);
    assert_true(job_plan(&job, &attention_operator, &desc, "generic", JOB_TAKEN));
    a = job.args.attention;
    a.whole.heads = 4;
    operator_refuses(&attention_operator, job.plan, &a, CLATTN_ERROR_UNSUPPORTED, __FILE__, __LINE__, "ring");
#undef REFUSES
    job_release(&job);
}

int main(int argc, char **argv)
{
    static const char *const solvers[] = {"generic", "cpu", "tile"};
    suite_add(refusals, "refusals");
    for (size_t n = 0; n < COUNT_OF(cases); n++)
        for (size_t i = 0; i < COUNT_OF(solvers); i++)
            suite_add_case(check_queries, &cases[n], solvers[i], "parts of the queries, %s: %s", solvers[i],
                           cases[n].rule);
    for (size_t i = 0; i < COUNT_OF(solvers); i++)
        suite_add_case(check_items, &of_items, solvers[i], "parts of the items, with dropout, %s", solvers[i]);
    for (size_t i = 0; i < COUNT_OF(solvers); i++)
        suite_add_case(limits_rows, NULL, solvers[i], "packed sequences whose rows are limited, %s", solvers[i]);
    return suite_run("attention, parts", argc, argv);
}
