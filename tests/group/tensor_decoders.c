/* Decoders that ranks have together: masks and probabilities are those of a rank's own heads, logits and vectors those of all.
 *
 * Holds: group.h, decoder.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/threads.h"
#include "support/device.h"
#include "support/nn/run.h"
#include "support/random.h"
#include "support/suite.h"

enum {
    MOST_RANKS = 4,
    ITEMS = 2,
    LENGTH = 4,
    CACHE = 5,
    MEMORY = 3,
    COLUMNS = 32,
    OF_MEMORY = 20,
    HEADS = 4,
    WORDS = 17
};

/* What a decoder makes of four tokens, and then of another one. */
typedef struct made {
    float logits[2][ITEMS * LENGTH * WORDS], vectors[2][ITEMS * LENGTH * COLUMNS];
    float self[2][2 * ITEMS * HEADS * LENGTH * CACHE], cross[2][ITEMS * HEADS * LENGTH * MEMORY];
} made;

typedef struct part {
    const clattn_stack_desc *stack;
    const nn_store *store;
    clattn_group group;
    size_t first, heads; /* the rank's own */
    made *made;
} part;

static float mask_of_self[HEADS * LENGTH * CACHE], mask_of_memory[HEADS * MEMORY], memory[ITEMS * MEMORY * OF_MEMORY];

static clattn_binding bind(const void *data, size_t bytes)
{
    return clattn_binding_buffer(nn_buffer(device_context(), bytes, data), 0);
}

static void take(cl_command_queue queue, const clattn_binding *from, size_t bytes, float *to)
{
    read_buffer(queue, from->buffer, bytes, to);
    clReleaseMemObject(from->buffer);
}

static void decode(const part *p, clattn_transformer *model)
{
    static const int32_t tokens[2][ITEMS * LENGTH] = {{1, 5, 3, 16, 2, 0, 9, 11}, {7, 4}};
    clattn_context *context = device_context();
    cl_command_queue queue = new_queue(context, false);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    clattn_plan *plan = NULL;
    clattn_decoder_state *state = NULL;
    desc.items = ITEMS;
    desc.length = LENGTH;
    desc.cache_length = CACHE;
    desc.memory_length = MEMORY;
    desc.logits = CLATTN_LOGITS_ALL;
    desc.self_probabilities = 3;
    desc.cross_probabilities = 2;
    desc.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, p->heads, LENGTH, CACHE);
    desc.memory_mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, p->heads, 1, MEMORY);
    assert_status(context, clattn_decoder_plan_create(model, &desc, NULL, &plan), CLATTN_SUCCESS);
    assert_status(context, clattn_decoder_state_create(plan, &state), CLATTN_SUCCESS);
    begin.items = ITEMS;
    begin.memory = bind(memory, sizeof memory);
    begin.memory_length = MEMORY;
    assert_status(context, clattn_decoder_begin(state, queue, &begin, 0, NULL, NULL), CLATTN_SUCCESS);
    for (int i = 0; i < 2; i++) {
        made *m = p->made;
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        args.length = i ? 1 : LENGTH;
        const size_t rows = ITEMS * args.length;
        args.input = bind(tokens[i], sizeof tokens[i]);
        args.mask = bind(mask_of_self + p->first * LENGTH * CACHE, p->heads * LENGTH * CACHE * sizeof(float));
        args.memory_mask = bind(mask_of_memory + p->first * MEMORY, p->heads * MEMORY * sizeof(float));
        args.logits = bind(m->logits[i], sizeof m->logits[i]);
        args.output = bind(m->vectors[i], sizeof m->vectors[i]);
        args.self_probabilities = bind(m->self[i], sizeof m->self[i]);
        args.cross_probabilities = bind(m->cross[i], sizeof m->cross[i]);
        assert_status(context, clattn_decoder_enqueue(state, queue, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        take(queue, &args.logits, rows * WORDS * sizeof(float), m->logits[i]);
        take(queue, &args.output, rows * COLUMNS * sizeof(float), m->vectors[i]);
        take(queue, &args.self_probabilities, sizeof m->self[i] / HEADS * p->heads, m->self[i]);
        take(queue, &args.cross_probabilities, sizeof m->cross[i] / HEADS * p->heads, m->cross[i]);
        clReleaseMemObject(args.input.buffer);
        clReleaseMemObject(args.mask.buffer);
        clReleaseMemObject(args.memory_mask.buffer);
    }
    clReleaseMemObject(begin.memory.buffer);
    clattn_decoder_state_release(&state);
    clattn_plan_release(&plan);
    clReleaseCommandQueue(queue);
}

static int decode_part(void *user)
{
    const part *p = user;
    const clattn_transformer_desc desc = {
        .size = sizeof desc, .decoder = p->stack, .output = CLATTN_MODEL_OUTPUT_OWN, .output_bias = 1};
    nn_store store = *p->store; /* is only read */
    const clattn_weight_source source = nn_source(&store);
    clattn_transformer *model = NULL;
    assert_status(device_context(),
                  clattn_group_transformer_create(device_context(), &p->group, &desc, &source, &model), CLATTN_SUCCESS);
    decode(p, model);
    clattn_transformer_release(&model);
    return 0;
}

static double apart_of(const float *found, const float *expected, size_t count)
{
    double apart = 0;
    for (size_t i = 0; i < count; i++) {
        const double one = fabs((double)found[i] - (double)expected[i]) / fmax(1, fabs((double)expected[i]));
        apart = one <= apart ? apart : isnan(one) ? INFINITY : one;
    }
    return apart;
}

/* How far probabilities (groups, heads, `square`) are from those of the rank's heads among all. */
static double heads_apart(const part *p, const float *found, const float *all, size_t groups, size_t square)
{
    double apart = 0;
    for (size_t i = 0; i < groups; i++)
        apart = fmax(apart,
                     apart_of(found + i * p->heads * square, all + (i * HEADS + p->first) * square, p->heads * square));
    return apart;
}

static double most_apart(const part *p, const made *whole)
{
    double apart = 0;
    for (int i = 0; i < 2; i++) {
        const size_t length = i ? 1 : LENGTH, rows = ITEMS * length;
        apart = fmax(apart, apart_of(p->made->logits[i], whole->logits[i], rows * WORDS));
        apart = fmax(apart, apart_of(p->made->vectors[i], whole->vectors[i], rows * COLUMNS));
        apart = fmax(apart, heads_apart(p, p->made->self[i], whole->self[i], (size_t)2 * ITEMS, length * CACHE));
        apart = fmax(apart, heads_apart(p, p->made->cross[i], whole->cross[i], ITEMS, length * MEMORY));
    }
    return apart;
}

static void decoders_agree(void **state)
{
    static made of_all, of_ranks[MOST_RANKS];
    (void)state;
    fill_floats(mask_of_self, HEADS * LENGTH * CACHE, 21);
    fill_floats(mask_of_memory, HEADS * MEMORY, 22);
    fill_floats(memory, ITEMS * MEMORY * OF_MEMORY, 23);
    for (size_t kv_heads = 2; kv_heads <= HEADS; kv_heads += 2) {
        const clattn_stack_desc stack = {SHAPE(GELU),
                                         PRE,
                                         .layers = 2,
                                         .kv_heads = kv_heads,
                                         .causal = 1,
                                         .cross = 1,
                                         .d_memory = OF_MEMORY,
                                         .final_norm = 1,
                                         .layer_scale = 1,
                                         .query_key_norm = 1,
                                         .rotary = CLATTN_ROTARY_HALVES,
                                         .input = CLATTN_STACK_INPUT_TOKENS,
                                         .vocabulary = WORDS};
        const size_t words = WORDS;
        nn_store store = {.seed = 5};
        part parts[MOST_RANKS], whole = {.stack = &stack, .store = &store, .heads = HEADS, .made = &of_all};
        clattn_group_local *local;
        nn_store_add_stack(&store, "decoder", &stack);
        nn_store_add(&store, "output.weight", 2, (const size_t[2]){words, COLUMNS}, 0.4f, 0);
        nn_store_add(&store, "output.bias", 1, &words, 0.4f, 0);
        const clattn_transformer_desc desc = {
            .size = sizeof desc, .decoder = &stack, .output = CLATTN_MODEL_OUTPUT_OWN, .output_bias = 1};
        clattn_transformer *model = nn_transformer(device_context(), &desc, &store);
        decode(&whole, model);
        clattn_transformer_release(&model);
        for (int ranks = 1; ranks <= (int)kv_heads; ranks++) {
            thrd_t threads[MOST_RANKS];
            double apart = 0;
            assert_int_equal(clattn_group_local_create(ranks, 20000, &local), CLATTN_SUCCESS);
            for (int i = 0; i < ranks; i++) {
                const size_t first = kv_heads * (size_t)i / (size_t)ranks,
                             end = kv_heads * (size_t)(i + 1) / (size_t)ranks, each = HEADS / kv_heads;
                parts[i] = (part){&stack, &store, {0}, first * each, (end - first) * each, &of_ranks[i]};
                assert_int_equal(clattn_group_local_rank(local, i, &parts[i].group), CLATTN_SUCCESS);
                assert_int_equal(thrd_create(&threads[i], decode_part, &parts[i]), thrd_success);
            }
            for (int i = 0; i < ranks; i++)
                thrd_join(threads[i], NULL);
            for (int i = 0; i < ranks; i++) {
                apart = fmax(apart, most_apart(&parts[i], &of_all));
                assert_memory_equal(of_ranks[i].logits[0], of_ranks[0].logits[0], sizeof of_ranks[0].logits[0]);
            }
            print_message("# %zu heads of keys, %d ranks: %.2g\n", kv_heads, ranks, apart);
            assert_true(apart <= 5e-6);
            clattn_group_local_release(&local);
        }
        nn_store_clear(&store);
    }
}

int main(int argc, char **argv)
{
    suite_add(decoders_agree, "group tensor: decoders' masks and probabilities are those of a rank's own heads");
    return suite_run("group_tensor_decoders", argc, argv);
}
