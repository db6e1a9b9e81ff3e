/* Models that ranks cannot have together are refused, and a rank that fails ends the others' calls.
 *
 * Holds: group.h. */
#include <stdlib.h>
#include <string.h>

#include "support/core/threads.h"
#include "support/device.h"
#include "support/nn/run.h"
#include "support/suite.h"

enum { MOST_RANKS = 4, BATCH = 2, POSITIONS = 5, VOCABULARY = 17 };

/* A rank, a thread each: makes a model, and encodes twice if it has one. */
typedef struct part {
    clattn_group own,
        group; /* `group` fails in exchange number `fails`, counted from 1, and otherwise passes on to `own` */
    int fails, cancels, exchanges;
    int32_t columns;           /* it has the model with those of its row in a grid of so many; 0: with all */
    clattn_control *control;   /* which exchange number `cancels` cancels */
    cl_mem_flags output_flags; /* of the first output, besides CL_MEM_READ_WRITE */
    clattn_stack_desc stack;
    clattn_transformer_desc model;
    nn_store store;
    clattn_status made, encoded[2];
    char message[512], encoded_message[512];
} part;

static clattn_status exchange(void *user, const clattn_group_exchange *exchange, void **request,
                              char message[CLATTN_GROUP_MESSAGE])
{
    part *p = user;
    if (++p->exchanges == p->fails) {
        clattn_group_exchange other = *exchange; /* what the other rank refuses at once */
        other.send_bytes++;
        other.receive_bytes++;
        assert_int_equal(p->own.exchange(p->own.user, &other, request, message), CLATTN_SUCCESS);
        assert_int_equal(p->own.wait(p->own.user, *request, message), CLATTN_ERROR_GROUP);
        *request = NULL;
        strcpy(message, "the test's failure");
        return CLATTN_ERROR_IO;
    }
    if (p->exchanges == p->cancels)
        clattn_control_cancel(p->control);
    return p->own.exchange(p->own.user, exchange, request, message);
}

static clattn_status finish(void *user, void *request, char message[CLATTN_GROUP_MESSAGE])
{
    const part *p = user;
    return p->own.wait(p->own.user, request, message);
}

static clattn_status encode(const part *p, clattn_plan *plan, cl_mem_flags flags)
{
    clattn_context *context = device_context();
    static const float x[BATCH * POSITIONS * 32];
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    cl_int code;
    cl_mem in = nn_buffer(context, sizeof x, x);
    cl_mem out =
        clCreateBuffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE | flags, sizeof x, NULL, &code);
    assert_cl(code);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    args.control = p->control;
    const clattn_status status = clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL);
    clFinish(clattn_context_queue(context));
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    return status;
}

/* Makes the rank's row, and a grid of the row, in which all of it are a row once more. */
static void make_row(const part *p, clattn_group_grid *grids[2], clattn_group *row)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(clattn_group_grid_create(i ? row : &p->group, p->columns, &grids[i]), CLATTN_SUCCESS);
        assert_int_equal(clattn_group_grid_row(grids[i], row), CLATTN_SUCCESS);
    }
}

static int run(void *user)
{
    part *p = user;
    clattn_context *context = device_context();
    clattn_group_grid *grids[2] = {NULL};
    clattn_group group = p->group;
    const clattn_weight_source source = nn_source(&p->store);
    const clattn_encoder_desc desc = nn_encoder_desc(BATCH, POSITIONS);
    clattn_transformer *model = NULL;
    clattn_plan *plan = NULL;
    if (p->columns)
        make_row(p, grids, &group);
    p->made = clattn_group_transformer_create(context, &group, &p->model, &source, &model);
    clattn_context_message(context, p->message, sizeof p->message);
    p->encoded[0] = p->encoded[1] = CLATTN_ERROR_INTERNAL;
    if (p->made != CLATTN_SUCCESS || !p->model.encoder)
        goto end;
    p->encoded[0] = clattn_encoder_plan_create(model, &desc, NULL, &plan);
    for (int i = 0; i < 2 && plan; i++) {
        p->encoded[i] = encode(p, plan, i ? 0 : p->output_flags);
        clattn_context_message(context, p->encoded_message, sizeof p->encoded_message);
        clattn_control_reset(p->control);
    }
end:
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    for (int i = 2; i-- > 0;)
        clattn_group_grid_release(&grids[i]);
    return 0;
}

static void prepare(part *parts, int count, const clattn_stack_desc *stack)
{
    for (int i = 0; i < count; i++) {
        part *p = &parts[i];
        *p = (part){.stack = *stack, .store = {.seed = 5}};
        p->model = (clattn_transformer_desc){.size = sizeof p->model, .encoder = &p->stack};
    }
}

static void run_all(part *parts, int count, uint32_t timeout_ms)
{
    thrd_t threads[MOST_RANKS];
    clattn_group_local *local;
    device_context(); /* is made by one thread */
    assert_int_equal(clattn_group_local_create(count, timeout_ms, &local), CLATTN_SUCCESS);
    for (int i = 0; i < count; i++) {
        part *p = &parts[i];
        nn_store_add_stack(&p->store, p->model.decoder ? "decoder" : "encoder", &p->stack);
        if (p->message[0]) /* the test's word: a tensor that this rank's file does not have */
            nn_store_remove(&p->store, p->message);
        assert_int_equal(clattn_group_local_rank(local, i, &p->own), CLATTN_SUCCESS);
        p->group = p->own;
        p->group.user = p;
        p->group.exchange = exchange;
        p->group.wait = finish;
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(thrd_create(&threads[i], run, &parts[i]), thrd_success);
    for (int i = 0; i < count; i++)
        thrd_join(threads[i], NULL);
    for (int i = 0; i < count; i++)
        nn_store_clear(&parts[i].store);
    clattn_group_local_release(&local);
}

static void expect(const part *p, clattn_status status, const char *message)
{
    if (p->made != status || !strstr(p->message, message))
        fail_msg("%s: %s, expected %s: %s", clattn_status_string(p->made), p->message, clattn_status_string(status),
                 message);
}

static const clattn_stack_desc small = {SHAPE(RELU), .layers = 2, POST};

static void too_few(void **state)
{
    static part parts[MOST_RANKS];
    (void)state;
    for (int i = 0; i < 5; i++) {
        static const char *const messages[5] = {"transformer: encoder: 2 heads of keys for 3 ranks",
                                                "transformer: encoder: 2 hidden numbers (d_ff) for 3 ranks",
                                                "transformer: decoder: 2 tokens of the vocabulary for 3 ranks",
                                                "transformer: decoder: 1 heads of keys for 3 ranks",
                                                "transformer: output: 2 logits for 3 ranks"};
        clattn_stack_desc stack = small;
        stack.kv_heads = i == 0 ? 2 : i == 3 ? 1 : 0;
        stack.d_ff = i == 1 ? 2 : 48;
        if (i >= 2) {
            stack.input = CLATTN_STACK_INPUT_TOKENS;
            stack.vocabulary = i == 2 ? 2 : VOCABULARY;
        }
        prepare(parts, 3, &stack);
        for (int k = 0; k < 3 && i >= 2; k++) {
            parts[k].model.encoder = NULL;
            parts[k].model.decoder = &parts[k].stack;
            parts[k].model.output = i == 4 ? CLATTN_MODEL_OUTPUT_OWN : CLATTN_MODEL_OUTPUT_TIED;
            parts[k].model.output_size = i == 4 ? 2 : 0;
        }
        run_all(parts, 3, 20000);
        for (int k = 0; k < 3; k++)
            expect(&parts[k], CLATTN_ERROR_INVALID_LAYOUT, messages[i]);
    }
}

/* The ranks beside the one that is different compare with it, or hear of it. */
static void different(void **state)
{
    static part parts[MOST_RANKS];
    (void)state;
    prepare(parts, 3, &small);
    parts[1].stack.d_ff = 52;
    run_all(parts, 3, 20000);
    expect(&parts[1], CLATTN_ERROR_INVALID_ARGUMENT,
           "rank 1 has encoder: layers=2 d_model=32 heads=4 kv_heads=0 head_size=0 d_ff=52, and rank 0 has encoder: "
           "layers=2 d_model=32 heads=4 kv_heads=0 head_size=0 d_ff=48");
    expect(&parts[2], CLATTN_ERROR_INVALID_ARGUMENT, "and rank 1 has encoder: layers=2");
    expect(&parts[0], CLATTN_ERROR_GROUP, "rank 1 has no model: invalid argument");
    prepare(parts, 2, &small);
    parts[1].stack.epsilon = 0.5f;
    parts[1].stack.explicit_epsilon = 1;
    run_all(parts, 2, 20000);
    expect(&parts[0], CLATTN_ERROR_INVALID_ARGUMENT, "rank 0 has encoder: digest of all=");
    prepare(parts, 2, &small);
    parts[0].model.dtype = CLATTN_DTYPE_F16;
    run_all(parts, 2, 20000);
    expect(&parts[1], CLATTN_ERROR_INVALID_ARGUMENT,
           "rank 1 has dtype=none weights of none, and rank 0 has dtype=float16");
    prepare(parts, 2, &small);
    strcpy(parts[1].message, "encoder.layers.1.feed_forward.in.weight");
    run_all(parts, 2, 20000);
    expect(&parts[1], CLATTN_ERROR_FORMAT, "encoder.layers.1.feed_forward.in.weight");
    expect(&parts[0], CLATTN_ERROR_GROUP, "rank 1 has no model: ");
    prepare(parts, 2, &small);
    parts[0].model.size = 3;
    run_all(parts, 2, 20000);
    expect(&parts[0], CLATTN_ERROR_INVALID_STRUCT, "clattn_transformer_desc");
    expect(&parts[1], CLATTN_ERROR_INVALID_ARGUMENT, "rank 0 has a description that it refuses");
}

/* Messages name the ranks of a row by their numbers in the whole group; other rows do not hear of what is wrong in it. */
static void rows(void **state)
{
    static part parts[MOST_RANKS];
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        prepare(parts, 4, &small);
        for (int i = 0; i < 4; i++)
            parts[i].columns = 2;
        if (missing)
            strcpy(parts[3].message, "encoder.layers.1.feed_forward.in.weight");
        else
            parts[3].stack.d_ff = 52;
        run_all(parts, 4, 20000);
        expect(&parts[0], CLATTN_SUCCESS, "");
        expect(&parts[1], CLATTN_SUCCESS, "");
        expect(&parts[2], missing ? CLATTN_ERROR_GROUP : CLATTN_ERROR_INVALID_ARGUMENT,
               missing ? "rank 3 has no model: " : "and rank 3 has encoder: layers=2");
        expect(&parts[3], missing ? CLATTN_ERROR_FORMAT : CLATTN_ERROR_INVALID_ARGUMENT,
               missing ? "encoder.layers.1.feed_forward.in.weight" : "and rank 2 has encoder: layers=2");
    }
}

/* Ranks see a difference in the last of many stages, whose description is longer than what they tell each other. */
static void many_stages(void **state)
{
    enum { STAGES = 40 };
    static clattn_stack_desc stages[2][STAGES];
    static part parts[MOST_RANKS];
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < STAGES; i++) {
            stages[k][i] = (clattn_stack_desc){SHAPE(RELU), PRE, .layers = 1, .input = CLATTN_STACK_INPUT_CONTINUED};
            stages[k][i].softcap = k && i + 1 == STAGES ? 2 : 1;
            stages[k][i].next = i + 1 < STAGES ? &stages[k][i + 1] : NULL;
        }
    for (int k = 0; k < 2; k++) {
        stages[k][0].input = CLATTN_STACK_INPUT_PICTURES;
        stages[k][0].patches = (clattn_patches){.channels = 1, .height = 2, .width = 2};
    }
    for (int differ = 0; differ < 2; differ++) {
        prepare(parts, 2, stages[0]);
        if (differ)
            parts[1].stack = stages[1][0];
        run_all(parts, 2, 20000);
        for (int k = 0; k < 2; k++)
            expect(&parts[k], differ ? CLATTN_ERROR_INVALID_ARGUMENT : CLATTN_SUCCESS, differ ? "digest of all=" : "");
    }
}

/* Whatever exchange fails, all ranks' calls end, and the model computes no more. */
static void failing(void **state)
{
    static part parts[MOST_RANKS];
    (void)state;
    prepare(parts, 2, &small);
    run_all(parts, 2, 20000);
    const int exchanges = parts[0].exchanges;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2; i++)
            assert_int_equal(parts[k].encoded[i], CLATTN_SUCCESS);
    assert_int_equal(exchanges, 2 + 2 * 2 * 2 * 2); /* twice four sublayers, whose sums are made and then spread */
    for (int fails = 1; fails <= exchanges; fails++) {
        prepare(parts, 2, &small);
        parts[1].fails = fails;
        run_all(parts, 2, 20000);
        if (fails <= 2) {
            expect(&parts[1], CLATTN_ERROR_IO, "rank 1: the test's failure");
            assert_int_equal(parts[0].made, CLATTN_ERROR_GROUP);
            continue;
        }
        const int first = (fails - 3) / 8; /* the call that fails */
        assert_int_equal(parts[1].made, CLATTN_SUCCESS);
        assert_int_equal(parts[1].encoded[first], CLATTN_ERROR_IO);
        assert_int_equal(parts[0].encoded[first], CLATTN_ERROR_GROUP);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 2; i++)
                if (i != first)
                    assert_int_equal(parts[k].encoded[i], i < first ? CLATTN_SUCCESS : CLATTN_ERROR_GROUP);
        if (first == 0)
            assert_non_null(strstr(parts[1].encoded_message, "rank 1: the group has failed before"));
    }
}

/* A call that is cancelled behind an exchange is the model's last. */
static void cancelled(void **state)
{
    static part parts[MOST_RANKS];
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    (void)state;
    params.cancellable = 1;
    for (int at = 0; at <= 2 + 8; at++) { /* behind those of making it, a call has eight; 0: none cancels */
        prepare(parts, 2, &small);
        for (int k = 0; k < 2; k++) {
            parts[k].cancels = at;
            assert_int_equal(clattn_control_create(&params, &parts[k].control), CLATTN_SUCCESS);
        }
        run_all(parts, 2, 20000);
        for (int k = 0; k < 2; k++) {
            const bool before = at == 1 || at == 2,
                       none = at == 0; /* before the call nothing of it has been exchanged */
            assert_int_equal(parts[k].made, CLATTN_SUCCESS);
            assert_int_equal(parts[k].encoded[0], none ? CLATTN_SUCCESS : CLATTN_ERROR_CANCELLED);
            assert_int_equal(parts[k].encoded[1], none || before ? CLATTN_SUCCESS : CLATTN_ERROR_GROUP);
            clattn_control_release(&parts[k].control);
        }
    }
}

/* What the host may not read and write is refused before the other rank waits for it; the call after that succeeds. */
static void hidden_buffers(void **state)
{
    static const cl_mem_flags flags[] = {CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_NO_ACCESS};
    static part parts[MOST_RANKS];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        clattn_stack_desc stack = small;
        stack.norm_place = CLATTN_NORM_PLACE_PRE; /* the sum is made where the output is */
        prepare(parts, 2, &stack);
        for (int k = 0; k < 2; k++)
            parts[k].output_flags = flags[i];
        run_all(parts, 2, 20000);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(parts[k].encoded[0], CLATTN_ERROR_BUFFER_ACCESS);
            assert_int_equal(parts[k].encoded[1], CLATTN_SUCCESS);
        }
    }
}

static void wrong_calls(void **state)
{
    clattn_group_local *local;
    clattn_group group, line;
    clattn_group_grid *grid = NULL;
    clattn_transformer *model = NULL;
    nn_store store = {.seed = 5};
    const clattn_weight_source source = nn_source(&store);
    const clattn_transformer_desc desc = {.size = sizeof desc, .encoder = &small};
    clattn_context *context = device_context();
    (void)state;
    assert_int_equal(clattn_group_local_create(4, 50, &local), CLATTN_SUCCESS);
    assert_int_equal(clattn_group_local_rank(local, 0, &group), CLATTN_SUCCESS);
    assert_status(context, clattn_group_transformer_create(context, NULL, &desc, &source, &model),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_group_transformer_create(context, &group, &desc, &source, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_transformer_create(NULL, &group, &desc, &source, &model),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    for (int32_t columns = -1; columns <= 5; columns++) {
        const bool divides = columns == 1 || columns == 2 || columns == 4;
        assert_int_equal(clattn_group_grid_create(&group, columns, &grid),
                         divides ? CLATTN_SUCCESS : CLATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(grid != NULL, divides);
        clattn_group_grid_release(&grid);
    }
    assert_int_equal(clattn_group_grid_create(NULL, 1, &grid), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_grid_create(&group, 1, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_grid_row(NULL, &line), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_grid_column(NULL, &line), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_grid_create(&group, 2, &grid), CLATTN_SUCCESS);
    assert_int_equal(clattn_group_grid_row(grid, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_grid_column(grid, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_group_grid_release(&grid);
    clattn_group_grid_release(NULL);
    clattn_group_local_release(&local);
    nn_store_clear(&store);
}

int main(int argc, char **argv)
{
    suite_add(too_few, "group tensor: fewer heads, hidden numbers, tokens or logits than ranks are refused");
    suite_add(different, "group tensor: ranks with different models are refused, and both are named");
    suite_add(rows, "group tensor: those of a row are named by their numbers in the whole group");
    suite_add(many_stages, "group tensor: so are those that differ in the last of many stages");
    suite_add(failing, "group tensor: a failed exchange ends all ranks' calls, and all that follow");
    suite_add(cancelled, "group tensor: a call that is cancelled behind an exchange is the last");
    suite_add(hidden_buffers, "group tensor: outputs that the host may not read and write are refused");
    suite_add(wrong_calls, "group tensor: wrong calls are refused");
    return suite_run("group_tensor_refusals", argc, argv);
}
