/* Calls of OpenCL and of the system, and exchanges, fail while a rank makes its share of an attention and runs it: the answer is a status
 * that names the call, every reference comes back, every exchange that was started is waited for, and the context works again.
 *
 * Holds: group.h, "after a failure". */
#include <math.h>
#include <string.h>

#include "support/core/inject_run.h"
#include "support/device.h"
#include "support/harness.h"
#include "support/random.h"
#include "support/suite.h"

enum { RANKS = 2, HEADS = 2, ROWS = 8, SIZE = 4, FLOATS = 4096, RUNS = 2 };

/* ---- a group whose other rank agrees to all, and then sends zeros ---- */

struct other {
    int started, waited; /* exchanges */
    int fails_at,
        wait_fails; /* the exchange that fails, 1 is the first; 0: none.  Whether it fails in the wait for it. */
};

static clattn_status other_exchange(void *user, const clattn_group_exchange *exchange, void **request,
                                    char message[CLATTN_GROUP_MESSAGE])
{
    struct other *other = user;
    (void)message;
    if (other->fails_at == other->started + 1 && !other->wait_fails)
        return CLATTN_ERROR_GROUP;
    other->started++;
    assert_int_equal(exchange->send_bytes, exchange->receive_bytes);
    if (other->started == 1)
        memcpy(exchange->receive, exchange->send, exchange->send_bytes);
    else
        memset(exchange->receive, 0, exchange->receive_bytes);
    *request = other;
    return CLATTN_SUCCESS;
}

static clattn_status other_wait(void *user, void *request, char message[CLATTN_GROUP_MESSAGE])
{
    struct other *other = user;
    (void)message;
    assert_ptr_equal(request, other);
    return ++other->waited == other->fails_at && other->wait_fails ? CLATTN_ERROR_GROUP : CLATTN_SUCCESS;
}

static clattn_group group_of(struct other *other)
{
    clattn_group group = CLATTN_GROUP_INIT;
    group.ranks = RANKS;
    group.user = other;
    group.exchange = other_exchange;
    group.wait = other_wait;
    return group;
}

/* ---- a share that has everything ---- */

struct way {
    clattn_group_mode mode;
    bool backward;
};

/* Arrays lie one behind the other in one buffer; the results are the last. */
struct arrays {
    cl_mem buffer;
    size_t floats, results;
};

static clattn_layout put(struct arrays *a, clattn_binding *at, int rank, const size_t *extent)
{
    const clattn_layout layout = clattn_layout_contiguous(CLATTN_DTYPE_F32, rank, extent);
    *at = clattn_binding_buffer(a->buffer, (int64_t)a->floats);
    a->floats += (size_t)layout.extent[0] * (size_t)layout.stride[0];
    return layout;
}

static void describe(const struct way *way, struct arrays *a, clattn_attention_desc *d, clattn_attention_args *args)
{
    const size_t rows[4] = {1, HEADS, ROWS, SIZE}, keys[2] = {1, RANKS * ROWS}, pairs[2] = {ROWS, RANKS * ROWS},
                 heads[1] = {HEADS};
    const bool by_rows = way->mode != CLATTN_GROUP_MODE_HEADS;
    clattn_attention_desc_init(d);
    clattn_attention_args_init(args);
    d->causal = 1;
    d->query = put(a, &args->query, 4, rows);
    d->key = put(a, &args->key, 4, rows);
    d->value = put(a, &args->value, 4, rows);
    d->bias = put(a, &args->bias, 2, keys);
    if (by_rows)
        d->mask = put(a, &args->mask, 2, pairs);
    d->scoring.sinks = put(a, &args->scoring.sinks, 1, heads);
    if (way->backward) {
        d->direction = CLATTN_DIRECTION_BACKWARD;
        d->gradients.output = put(a, &args->gradients.output, 4, rows);
    } else {
        a->results = a->floats;
    }
    d->output = put(a, &args->output, 4, rows);
    d->outputs.lse = put(a, &args->outputs.lse, 3, rows);
    if (!way->backward)
        return;
    a->results = a->floats;
    d->gradients.query = put(a, &args->gradients.query, 4, rows);
    d->gradients.key = put(a, &args->gradients.key, 4, rows);
    d->gradients.value = put(a, &args->gradients.value, 4, rows);
    d->gradients.bias = put(a, &args->gradients.bias, 2, keys);
    if (by_rows)
        d->gradients.mask = put(a, &args->gradients.mask, 2, pairs);
    d->gradients.sinks = put(a, &args->gradients.sinks, 1, heads);
}

/* Makes a share, runs it, and reads the results. */
static clattn_status run_share(clattn_context *context, const struct way *way, struct other *other,
                               float results[FLOATS])
{
    static float data[FLOATS];
    clattn_attention_desc own;
    clattn_attention_args args;
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_group_attention *attention = NULL;
    cl_command_queue queue = clattn_context_queue(context);
    const clattn_group group = group_of(other);
    struct arrays a = {0};
    fill_floats(data, FLOATS, 5);
    a.buffer = new_buffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, sizeof data, data);
    describe(way, &a, &own, &args);
    assert_true(a.floats <= FLOATS);
    desc.mode = way->mode;
    desc.order = CLATTN_GROUP_ORDER_ZIGZAG;
    desc.attention = &own;
    clattn_status status = clattn_group_attention_create(context, &group, &desc, &attention);
    assert_true((status == CLATTN_SUCCESS) == (attention != NULL));
    for (int i = 0; i < RUNS && status == CLATTN_SUCCESS; i++) {
        cl_event event = NULL;
        const int before = other->started;
        status = clattn_group_attention_run(attention, NULL, &args, 0, NULL, &event);
        assert_true((status == CLATTN_SUCCESS) == (event != NULL));
        if (status != CLATTN_SUCCESS && other->started > before) { /* the other rank may wait for what is left of it */
            const int started = other->started;
            assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_GROUP);
            assert_int_equal(other->started, started);
        }
        if (event) {
            assert_cl(clWaitForEvents(1, &event));
            clReleaseEvent(event);
            inject_event_taken();
        }
    }
    clattn_group_attention_release(&attention);
    assert_int_equal(other->started, other->waited);
    clFinish(queue);
    if (status == CLATTN_SUCCESS) {
        read_buffer(queue, a.buffer, sizeof data, data);
        memset(results, 0, FLOATS * sizeof *results);
        memcpy(results, data + a.results, (a.floats - a.results) * sizeof *data);
    }
    clReleaseMemObject(a.buffer);
    return status;
}

/* ---- calls ---- */

static const struct way *tried; /* by `use` */
static float expected[FLOATS];
static bool is_known; /* what is expected: the first success has given it */

static clattn_status use(clattn_context *context)
{
    static float results[FLOATS];
    struct other other = {0};
    const clattn_status status = run_share(context, tried, &other, is_known ? results : expected);
    for (int i = 0; i < FLOATS && status == CLATTN_SUCCESS && is_known; i++) /* another solver may have had to do */
        if (!(fabsf(results[i] - expected[i]) <= 1e-5F))
            fail_msg("%s failed, the status was success, and %.9g should be %.9g",
                     inject_failed() ? inject_failed() : "nothing", (double)results[i], (double)expected[i]);
    is_known |= status == CLATTN_SUCCESS;
    return status;
}

static void calls_fail(const void *which, const char *unused)
{
    inject_scenario scenario = inject_scenario_of(use, CLATTN_CACHE_MODE_ON);
    char folder[FOLDER_SIZE];
    (void)unused;
    tried = which;
    is_known = false;
    new_folder(folder);
    scenario.params.cache_dir = folder;
    scenario.attempts = (unsigned)by_level(5, 30, 200, 1000);
    inject_run(&scenario);
}

/* ---- exchanges ---- */

static void exchanges_fail(const void *which, const char *unused)
{
    static float results[FLOATS];
    struct other all = {0};
    const inject_scenario scenario = inject_scenario_of(NULL, CLATTN_CACHE_MODE_OFF);
    clattn_context *context = NULL;
    (void)unused;
    inject_begin_failure((inject_failure){.layer = INJECT_OPENCL});
    assert_int_equal(clattn_context_create(&scenario.params, &context), CLATTN_SUCCESS);
    assert_status(context, run_share(context, which, &all, results), CLATTN_SUCCESS);
    assert_true(all.started >= 3);
    for (int i = 1; i <= all.started; i++)
        for (int wait_fails = 0; wait_fails < 2; wait_fails++) {
            struct other other = {.fails_at = i, .wait_fails = wait_fails};
            assert_int_equal(run_share(context, which, &other, results), CLATTN_ERROR_GROUP);
        }
    clattn_context_release(&context);
    inject_check_balance((inject_failure){.layer = INJECT_OPENCL});
}

static const struct way ways[] = {
    {CLATTN_GROUP_MODE_RING, false},  {CLATTN_GROUP_MODE_RING, true},   {CLATTN_GROUP_MODE_GATHER, false},
    {CLATTN_GROUP_MODE_GATHER, true}, {CLATTN_GROUP_MODE_HEADS, false}, {CLATTN_GROUP_MODE_HEADS, true},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(exchanges_fail, &ways[i], "", "group: exchanges fail, mode %d, %s", (int)ways[i].mode,
                       ways[i].backward ? "backward" : "forward");
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(calls_fail, &ways[i], "", "group: calls fail, mode %d, %s", (int)ways[i].mode,
                       ways[i].backward ? "backward" : "forward");
    return suite_run("group_inject", argc, argv);
}
