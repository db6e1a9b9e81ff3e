/* Calls of OpenCL and of the system, and exchanges, fail while a rank makes its share of an attention or its part of a model, and runs
 * or trains it: the answer is a status that names the call, every reference comes back, every exchange that was started is waited for,
 * and the context works again.
 *
 * Holds: group.h, "after a failure". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/inject_run.h"
#include "support/device.h"
#include "support/harness.h"
#include "support/nn/run.h"
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
    if (exchange->send_bytes > 8 && !memcmp(exchange->send, "version=", 8)) /* what ranks have to agree about */
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
    clattn_status (*model)(clattn_context *context, struct other *other,
                           float results[FLOATS]); /* NULL: an attention */
    const char *name;
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

/* ---- a part of a model ---- */

enum { ITEMS = 2, LENGTH = 5, COLUMNS = 32, VOCABULARY = 17 };

/* A call that has started exchanges and fails makes each one that follows fail, before it exchanges anything; where memory goes on to
 * lack, perhaps by that. */
static void check_again(clattn_status status, const struct other *other, int before, clattn_status (*again)(void *),
                        void *user)
{
    const int started = other->started;
    if (status == CLATTN_SUCCESS || started == before)
        return;
    const clattn_status second = again(user);
    assert_true(second == CLATTN_ERROR_GROUP || (inject_failed() && second == CLATTN_ERROR_OUT_OF_MEMORY));
    assert_int_equal(other->started, started);
}

static void take_event(cl_event *event)
{
    if (!*event)
        return;
    assert_cl(clWaitForEvents(1, event));
    clReleaseEvent(*event);
    *event = NULL;
    inject_event_taken();
}

struct encoding {
    clattn_plan *plan;
    clattn_encoder_args args;
};

static clattn_status encode_again(void *user)
{
    const struct encoding *e = user;
    return clattn_encoder_enqueue(e->plan, NULL, &e->args, 0, NULL, NULL);
}

static clattn_status run_encoder(clattn_context *context, struct other *other, float results[FLOATS])
{
    static const clattn_stack_desc stack = {SHAPE(RELU), POST, .layers = 2};
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &stack};
    const clattn_encoder_desc sizes = nn_encoder_desc(ITEMS, LENGTH);
    const clattn_group group = group_of(other);
    const size_t bytes = ITEMS * LENGTH * COLUMNS * sizeof(float);
    struct encoding e = {.args = CLATTN_ENCODER_ARGS_INIT};
    clattn_transformer *model = NULL;
    nn_store store = {.seed = 6};
    nn_store_add_stack(&store, "encoder", &stack);
    const clattn_weight_source source = nn_source(&store);
    float *x = nn_floats(ITEMS * LENGTH * COLUMNS, 8);
    cl_mem in = nn_buffer(context, bytes, x), out = nn_buffer(context, bytes, NULL);
    e.args.input = clattn_binding_buffer(in, 0);
    e.args.output = clattn_binding_buffer(out, 0);
    clattn_status status = clattn_group_transformer_create(context, &group, &desc, &source, &model);
    assert_true((status == CLATTN_SUCCESS) == (model != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_encoder_plan_create(model, &sizes, NULL, &e.plan);
    for (int i = 0; i < RUNS && status == CLATTN_SUCCESS; i++) {
        cl_event event = NULL;
        const int before = other->started;
        status = clattn_encoder_enqueue(e.plan, NULL, &e.args, 0, NULL, &event);
        assert_true((status == CLATTN_SUCCESS) == (event != NULL));
        check_again(status, other, before, encode_again, &e);
        take_event(&event);
    }
    clattn_plan_release(&e.plan);
    clattn_transformer_release(&model);
    assert_int_equal(other->started, other->waited);
    clFinish(clattn_context_queue(context));
    memset(results, 0, FLOATS * sizeof *results);
    if (status == CLATTN_SUCCESS)
        read_buffer(clattn_context_queue(context), out, bytes, results);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    nn_store_clear(&store);
    free(x);
    return status;
}

struct training {
    clattn_trainer *trainer;
    clattn_plan *plan;
    clattn_training_args args;
    clattn_update_args update;
};

static clattn_status step_again(void *user)
{
    const struct training *t = user;
    return clattn_training_enqueue(t->plan, NULL, &t->args, 0, NULL, NULL);
}

static clattn_status update_again(void *user)
{
    const struct training *t = user;
    return clattn_trainer_update(t->trainer, NULL, &t->update, 0, NULL, NULL);
}

/* A step of training, and the update. */
static clattn_status run_step(struct training *t, const struct other *other)
{
    cl_event event = NULL;
    int before = other->started;
    clattn_status status = clattn_training_enqueue(t->plan, NULL, &t->args, 0, NULL, &event);
    assert_true((status == CLATTN_SUCCESS) == (event != NULL));
    check_again(status, other, before, step_again, t);
    take_event(&event);
    if (status != CLATTN_SUCCESS)
        return status;
    before = other->started;
    t->update.step++;
    status = clattn_trainer_update(t->trainer, NULL, &t->update, 0, NULL, &event);
    assert_true((status == CLATTN_SUCCESS) == (event != NULL));
    check_again(status, other, before, update_again, t);
    take_event(&event);
    return status;
}

/* Trains a model that ranks have together by a trainer alone or, with `column`, by one of a group. */
static clattn_status run_training(clattn_context *context, struct other *other, bool column, float results[FLOATS])
{
    static const clattn_stack_desc stack = {SHAPE(RELU),
                                            PRE,
                                            .layers = 1,
                                            .final_norm = 1,
                                            .causal = 1,
                                            .input = CLATTN_STACK_INPUT_TOKENS,
                                            .vocabulary = VOCABULARY};
    static const int32_t ids[ITEMS * LENGTH] = {1, 16, 5, 15, 2, 12, 9, 9, 3, 6};
    const clattn_transformer_desc desc = {
        .size = sizeof desc, .decoder = &stack, .output = CLATTN_MODEL_OUTPUT_TIED, .dtype = CLATTN_DTYPE_BF16};
    const clattn_group group = group_of(other);
    clattn_training_desc sizes = CLATTN_TRAINING_DESC_INIT;
    struct training t = {.args = CLATTN_TRAINING_ARGS_INIT, .update = CLATTN_UPDATE_ARGS_INIT};
    clattn_transformer *model = NULL;
    nn_store store = {.seed = 6};
    nn_store_add_stack(&store, "decoder", &stack);
    const clattn_weight_source source = nn_source(&store);
    cl_mem tokens = nn_buffer(context, sizeof ids, ids),
           losses = nn_buffer(context, ITEMS * LENGTH * sizeof(float), NULL);
    sizes.batch = ITEMS;
    sizes.target_length = LENGTH;
    t.args.target = t.args.labels = clattn_binding_buffer(tokens, 0);
    t.args.losses = clattn_binding_buffer(losses, 0);
    t.update.learning_rate = 0.001;
    t.update.clip_norm = 1;
    clattn_status status = clattn_group_transformer_create(context, &group, &desc, &source, &model);
    if (status == CLATTN_SUCCESS)
        status =
            column ? clattn_group_trainer_create(model, &group, &t.trainer) : clattn_trainer_create(model, &t.trainer);
    assert_true((status == CLATTN_SUCCESS) == (t.trainer != NULL));
    if (status == CLATTN_SUCCESS)
        status = clattn_training_plan_create(t.trainer, &sizes, NULL, &t.plan);
    for (int i = 0; i < RUNS && status == CLATTN_SUCCESS; i++)
        status = run_step(&t, other);
    clattn_plan_release(&t.plan);
    clattn_trainer_release(&t.trainer);
    clattn_transformer_release(&model);
    assert_int_equal(other->started, other->waited);
    clFinish(clattn_context_queue(context));
    memset(results, 0, FLOATS * sizeof *results);
    if (status == CLATTN_SUCCESS)
        read_buffer(clattn_context_queue(context), losses, ITEMS * LENGTH * sizeof(float), results);
    clReleaseMemObject(tokens);
    clReleaseMemObject(losses);
    nn_store_clear(&store);
    return status;
}

static clattn_status run_training_alone(clattn_context *context, struct other *other, float results[FLOATS])
{
    return run_training(context, other, false, results);
}

static clattn_status run_training_column(clattn_context *context, struct other *other, float results[FLOATS])
{
    return run_training(context, other, true, results);
}

/* ---- calls ---- */

static clattn_status run_way(clattn_context *context, const struct way *way, struct other *other, float results[FLOATS])
{
    return way->model ? way->model(context, other, results) : run_share(context, way, other, results);
}

static const struct way *tried; /* by `use` */
static float expected[FLOATS];
static bool is_known; /* what is expected: the first success has given it */

static clattn_status use(clattn_context *context)
{
    static float results[FLOATS];
    struct other other = {0};
    const clattn_status status = run_way(context, tried, &other, is_known ? results : expected);
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
    assert_status(context, run_way(context, which, &all, results), CLATTN_SUCCESS);
    assert_true(all.started >= 3);
    for (int i = 1; i <= all.started; i++)
        for (int wait_fails = 0; wait_fails < 2; wait_fails++) {
            struct other other = {.fails_at = i, .wait_fails = wait_fails};
            assert_int_equal(run_way(context, which, &other, results), CLATTN_ERROR_GROUP);
        }
    clattn_context_release(&context);
    inject_check_balance((inject_failure){.layer = INJECT_OPENCL});
}

static const struct way ways[] = {
    {CLATTN_GROUP_MODE_RING, false, NULL, "ring, forward"},
    {CLATTN_GROUP_MODE_RING, true, NULL, "ring, backward"},
    {CLATTN_GROUP_MODE_GATHER, false, NULL, "gather, forward"},
    {CLATTN_GROUP_MODE_GATHER, true, NULL, "gather, backward"},
    {CLATTN_GROUP_MODE_HEADS, false, NULL, "heads, forward"},
    {CLATTN_GROUP_MODE_HEADS, true, NULL, "heads, backward"},
    {.model = run_encoder, .name = "a part of an encoder"},
    {.model = run_training_alone, .name = "training of a part of a model"},
    {.model = run_training_column, .name = "training of a part of a model by a column"},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(exchanges_fail, &ways[i], "", "group: exchanges fail, %s", ways[i].name);
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(calls_fail, &ways[i], "", "group: calls fail, %s", ways[i].name);
    return suite_run("group_inject", argc, argv);
}
