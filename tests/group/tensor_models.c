/* Encoders, decoders and generation of models that ranks have together make what one device makes with the whole model.
 *
 * Holds: group.h, transformer.h, decoder.h, generate.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/threads.h"
#include "support/device.h"
#include "support/nn/generate_case.h"
#include "support/nn/run.h"
#include "support/storage.h"
#include "support/suite.h"

enum { MOST_RANKS = 4, BATCH = 3, POSITIONS = 7 };

/* A rank, a thread each, whose assertions end the program. */
typedef struct part {
    clattn_group group;
    const struct nn_encoder_run *run;
    const nn_world *whole;
    const clattn_generate_desc *how;
    clattn_decoder_desc desc;
    cl_mem out;
    int32_t tokens[ITEMS * MOST];
    size_t lengths[ITEMS];
    float scores[ITEMS];
    float logits[ITEMS * LENGTH * NN_VOCABULARY];
} part;

static void all(part *parts, int count, int (*action)(void *))
{
    thrd_t threads[MOST_RANKS];
    clattn_group_local *local;
    device_context(); /* is made by one thread */
    assert_int_equal(clattn_group_local_create(count, 20000, &local), CLATTN_SUCCESS);
    for (int i = 0; i < count; i++) {
        assert_int_equal(clattn_group_local_rank(local, i, &parts[i].group), CLATTN_SUCCESS);
        assert_int_equal(thrd_create(&threads[i], action, &parts[i]), thrd_success);
    }
    for (int i = 0; i < count; i++)
        thrd_join(threads[i], NULL);
    clattn_group_local_release(&local);
}

/* ---- encoders ---- */

static int encode(void *user)
{
    part *p = user;
    const clattn_weight_source source = nn_source(p->run->store);
    clattn_transformer_desc desc = p->run->model;
    clattn_transformer *model = NULL;
    desc.size = sizeof desc;
    desc.encoder = p->run->d;
    assert_status(device_context(),
                  clattn_group_transformer_create(device_context(), &p->group, &desc, &source, &model), CLATTN_SUCCESS);
    nn_encode(device_context(), model, p->run, p->out);
    clattn_transformer_release(&model);
    return 0;
}

/* All ranks make the same bits, and what one device makes. */
static void agrees(const char *name, nn_encoder_run *run, int most, double tolerance)
{
    static part parts[MOST_RANKS];
    const clattn_dtype dtype = run->model.dtype ? run->model.dtype : CLATTN_DTYPE_F32;
    const clattn_stack_desc *last = run->d;
    while (last->next)
        last = last->next;
    const size_t count = run->desc.batch * nn_encoder_positions(run) * (last->neck ? last->neck : last->d_model);
    const size_t bytes = count * clattn_dtype_size(dtype);
    unsigned char *expected = nn_run_encoder(device_context(), run), *found = malloc(bytes), *first = malloc(bytes);
    assert_non_null(found);
    assert_non_null(first);
    for (int ranks = 1; ranks <= most; ranks++) {
        double apart = 0;
        for (int i = 0; i < ranks; i++) {
            parts[i].run = run;
            parts[i].out = nn_buffer(device_context(), bytes, NULL);
        }
        all(parts, ranks, encode);
        for (int i = 0; i < ranks; i++) {
            read_buffer(clattn_context_queue(device_context()), parts[i].out, bytes, i ? found : first);
            clReleaseMemObject(parts[i].out);
            if (i)
                assert_memory_equal(found, first, bytes);
        }
        for (size_t i = 0; i < count; i++) {
            const double one = storage_get(dtype, expected + i * clattn_dtype_size(dtype));
            apart =
                fmax(apart, fabs(storage_get(dtype, first + i * clattn_dtype_size(dtype)) - one) / fmax(1, fabs(one)));
        }
        print_message("# %s: %d ranks: %.2g\n", name, ranks, apart);
        assert_true(apart <= tolerance);
    }
    free(expected);
    free(found);
    free(first);
}

static void encoders_agree(void **state)
{
    static const struct {
        const char *name;
        clattn_stack_desc stack;
        clattn_dtype dtype, weights;
        double tolerance;
        int most;
    } cases[] = {
        {"post-norm", {SHAPE(GELU), .layers = 2, POST}, CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, 2e-6, MOST_RANKS},
        {"pre-norm, gated, LayerScale, grouped heads",
         {SHAPE(SWISH), .layers = 2, PRE, .gated = 1, .layer_scale = 1, .kv_heads = 2, .final_norm = 1},
         CLATTN_DTYPE_F32,
         CLATTN_DTYPE_F32,
         2e-6,
         2},
        {"float16, heads of another size",
         {SHAPE(RELU), .layers = 2, POST, .head_size = 24},
         CLATTN_DTYPE_F16,
         CLATTN_DTYPE_F16,
         1e-2,
         3},
        {"bfloat16", {SHAPE(RELU), .layers = 2, PRE, .final_norm = 1}, CLATTN_DTYPE_BF16, CLATTN_DTYPE_BF16, 3e-2, 3},
        {"int8", {SHAPE(RELU), .layers = 2, POST}, CLATTN_DTYPE_F32, CLATTN_DTYPE_I8, 3e-2, 3},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const clattn_dtype dtype = cases[i].dtype;
        nn_store store = {.seed = 5};
        float *x = nn_floats(BATCH * POSITIONS * 32, 3);
        unsigned char *narrow = malloc(BATCH * POSITIONS * 32 * 4);
        assert_non_null(narrow);
        nn_store_add_stack(&store, "encoder", &cases[i].stack);
        for (size_t n = 0; n < BATCH * POSITIONS * 32; n++)
            storage_set(dtype, narrow + n * clattn_dtype_size(dtype), x[n]);
        nn_encoder_run run = {.d = &cases[i].stack,
                              .store = &store,
                              .desc = nn_encoder_desc(BATCH, POSITIONS),
                              .input = narrow,
                              .model = {.dtype = dtype, .weight_dtype = cases[i].weights}};
        agrees(cases[i].name, &run, cases[i].most, cases[i].tolerance);
        nn_store_clear(&store);
        free(x);
        free(narrow);
    }
}

/* A rank has rows of the table of tokens, and the first one adds positions and segments. */
static void texts_agree(void **state)
{
    static const clattn_stack_desc stacks[] = {
        {SHAPE(RELU), .layers = 1, POST, .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = 50, .scale_embeddings = 1,
         .positions = CLATTN_POSITIONS_SINUSOIDS},
        {SHAPE(GELU), .layers = 2, POST, .input = CLATTN_STACK_INPUT_TOKENS, .vocabulary = 50,
         .positions = CLATTN_POSITIONS_TABLE, .position_count = 9, .first_position = 2, .segments = 2, .input_norm = 1},
    };
    int32_t ids[BATCH * POSITIONS], segments[BATCH * POSITIONS];
    (void)state;
    for (int n = 0; n < BATCH * POSITIONS; n++) {
        ids[n] = n * 31 % 50;
        segments[n] = n % POSITIONS > 3;
    }
    for (size_t i = 0; i < COUNT_OF(stacks); i++) {
        nn_store store = {.seed = 5};
        nn_store_add_stack(&store, "encoder", &stacks[i]);
        nn_encoder_run run = {.d = &stacks[i],
                              .store = &store,
                              .desc = nn_encoder_desc(BATCH, POSITIONS),
                              .input = ids,
                              .segments = stacks[i].segments ? segments : NULL};
        agrees("texts", &run, MOST_RANKS, 2e-6);
        nn_store_clear(&store);
    }
}

/* Tables of distances have a column for each head; vectors for distances are all heads'. */
static void pictures_agree(void **state)
{
    static const clattn_windows windows[] = {{2, 3, 1, CLATTN_POSITION_BIAS_TABLE, 0},
                                             {2, 2, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 2},
                                             {3, 2, 1, CLATTN_POSITION_BIAS_TABLE, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(windows); i++) {
        clattn_stack_desc stages[2] = {{SHAPE(GELU), PRE, .layers = 2, .input = CLATTN_STACK_INPUT_PICTURES}};
        nn_store store = {.seed = 5};
        float *picture = nn_floats((size_t)2 * 3 * 12 * 8, 3);
        stages[0].windows = windows[i];
        stages[0].patches = (clattn_patches){.channels = 3, .height = 2, .width = 2, .grid_rows = 6, .grid_columns = 4};
        if (i != 1)
            stages[0].patches.grid_rows = stages[0].patches.grid_columns = 0;
        if (i == 2) {
            stages[1] = stages[0];
            stages[1].patches = (clattn_patches){0};
            stages[1].input = CLATTN_STACK_INPUT_MERGED;
            stages[1].d_model = 48;
            stages[0].next = &stages[1];
        }
        nn_store_add_stack(&store, "encoder", stages);
        nn_encoder_run run = {.d = stages, .store = &store, .desc = nn_encoder_desc(2, 0), .input = picture};
        run.desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 12, 8);
        agrees("pictures", &run, 3, 3e-6);
        nn_store_clear(&store);
        free(picture);
    }
}

/* ---- decoders ---- */

static void begin_part(part *p, nn_world *w, const clattn_decoder_desc *desc)
{
    const clattn_transformer_desc model = {
        .size = sizeof model, .decoder = p->whole->d, .output = p->whole->output, .output_size = p->whole->output_size};
    nn_store store = p->whole->store; /* is only read */
    const clattn_weight_source source = nn_source(&store);
    *w = *p->whole;
    w->model = NULL;
    assert_status(device_context(),
                  clattn_group_transformer_create(device_context(), &p->group, &model, &source, &w->model),
                  CLATTN_SUCCESS);
    assert_status(device_context(), clattn_decoder_plan_create(w->model, desc, NULL, &w->plan), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_decoder_state_create(w->plan, &w->state), CLATTN_SUCCESS);
}

static void end_part(nn_world *w)
{
    clattn_decoder_state_release(&w->state);
    clattn_plan_release(&w->plan);
    clattn_transformer_release(&w->model);
}

static int generate_part(void *user)
{
    part *p = user;
    nn_world w;
    clattn_generated generated = results_of(p->tokens, p->lengths, p->scores, NULL);
    begin_part(p, &w, &p->desc);
    nn_world_begin(&w, NULL, 1);
    assert_status(device_context(), clattn_generate(w.state, NULL, p->how, prompts, prompt_lengths, &generated),
                  CLATTN_SUCCESS);
    end_part(&w);
    return 0;
}

static void generation_agrees(void **state)
{
    static part parts[MOST_RANKS];
    (void)state;
    for (int i = 0; i < 2 * DECODER_CASES; i++) {
        const decoder_case *c = &decoder_cases[i / 2];
        const size_t beams = i % 2 ? 3 : 0;
        nn_world w = decoder_case_world(device_context(), c, ITEMS);
        clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
        clattn_generate_desc how = CLATTN_GENERATE_DESC_INIT;
        int32_t tokens[ITEMS * MOST];
        size_t lengths[ITEMS];
        float scores[ITEMS];
        const int32_t stop = 5;
        desc.length = 4;
        desc.beams = beams;
        desc.logits = CLATTN_LOGITS_LAST;
        w.memory_lengths = decoder_case_memory_lengths;
        nn_world_open(&w, &desc);
        how.max_tokens = MOST;
        how.stop_tokens = &stop;
        how.stop_count = 1;
        how.beams = beams;
        how.method = beams ? CLATTN_GENERATE_METHOD_BEAM : CLATTN_GENERATE_METHOD_GREEDY;
        nn_world_begin(&w, NULL, 1);
        generate(&w, &how, tokens, lengths, scores, NULL);
        for (int ranks = 1; ranks <= (c->stack.kv_heads ? 2 : MOST_RANKS); ranks++) {
            for (int k = 0; k < ranks; k++) {
                parts[k].whole = &w;
                parts[k].how = &how;
                parts[k].desc = desc;
            }
            all(parts, ranks, generate_part);
            for (int k = 0; k < ranks; k++)
                for (size_t item = 0; item < ITEMS; item++) {
                    assert_int_equal(parts[k].lengths[item], lengths[item]);
                    assert_memory_equal(parts[k].tokens + item * MOST, tokens + item * MOST,
                                        lengths[item] * sizeof *tokens);
                    assert_true(fabsf(parts[k].scores[item] - scores[item]) <= 1e-5f);
                    assert_memory_equal(&parts[k].scores[item], &parts[0].scores[item], sizeof *scores);
                }
        }
        nn_world_close(&w);
    }
}

/* Makes the logits of all tokens of the whole texts at once. */
static int read_part(void *user)
{
    part *p = user;
    nn_world w;
    begin_part(p, &w, &p->desc);
    w.tokens = nn_buffer(device_context(), ITEMS * LENGTH * sizeof(int32_t), NULL);
    w.logits = nn_buffer(device_context(), sizeof p->logits, NULL);
    nn_world_begin(&w, NULL, 1);
    nn_world_append(&w, ITEMS, w.ids, LENGTH, (const size_t[ITEMS]){0}, LENGTH, NULL, LENGTH, p->logits, LENGTH);
    clReleaseMemObject(w.tokens);
    clReleaseMemObject(w.logits);
    end_part(&w);
    return 0;
}

static void logits_agree(void **state)
{
    static part parts[MOST_RANKS];
    (void)state;
    for (int i = 0; i < DECODER_CASES; i++) {
        const decoder_case *c = &decoder_cases[i];
        nn_world w;
        clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
        desc.length = LENGTH;
        desc.logits = CLATTN_LOGITS_ALL;
        decoder_case_open(&w, device_context(), c, &desc);
        for (int ranks = 2; ranks <= (c->stack.kv_heads ? 2 : 3); ranks++) {
            for (int k = 0; k < ranks; k++) {
                parts[k].whole = &w;
                parts[k].desc = desc;
            }
            all(parts, ranks, read_part);
            for (int k = 0; k < ranks; k++)
                assert_memory_equal(parts[k].logits, parts[0].logits, sizeof parts[k].logits);
            for (size_t row = 0; row < ITEMS * LENGTH; row++)
                nn_check_logits(parts[0].logits + row * NN_VOCABULARY, w.expected + row * NN_VOCABULARY, c->name);
        }
        nn_world_close(&w);
    }
}

int main(int argc, char **argv)
{
    suite_add(encoders_agree, "group tensor: encoders agree with one device's");
    suite_add(texts_agree, "group tensor: so do those of texts");
    suite_add(pictures_agree, "group tensor: so do those of pictures");
    suite_add(logits_agree, "group tensor: decoders' logits agree with the reference, and are the same on all ranks");
    suite_add(generation_agrees, "group tensor: generation makes one device's tokens");
    return suite_run("group_tensor_models", argc, argv);
}
