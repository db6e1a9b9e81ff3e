#include "tool/text/generator.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/cli/progress.h"
#include "tool/run/model_config.h"
#include "tool/tool.h"

#define SEQUENCES 64    /* that are generated side by side, those of beams included */
#define PROMPT_CHUNK 32 /* pieces of a prompt that one enqueue reads */
#define MORE_THAN_SOURCE \
    50 /* a translation has at most so many pieces more than its source, as in the paper (section 6.1) */
#define LENGTH_PENALTY 0.6f /* of beam search, as there */

static int no_memory(void)
{
    return complain(TOOL_FAILED, "no memory for the pieces of the texts");
}

static int open_file(const text_generator *g, model_path *path, clattn_safetensors **file)
{
    clattn_io_error error;
    model_path_in(g->model->folder, TEXT_MODEL_WEIGHTS, path);
    const clattn_status status = clattn_safetensors_create(path->text, file, &error);
    return status == CLATTN_SUCCESS ? TOOL_DONE : model_file_fail(status, &error);
}

int text_generator_open(text_generator *g, int status)
{
    clattn_transformer_desc desc;
    clattn_stack_desc encoder, decoder;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_safetensors *file = NULL;
    model_path path;
    const clattn_group *row = world_row(g->world);
    if (status == TOOL_DONE)
        status = open_file(g, &path, &file);
    TOOL_TRY(world_agree(g->world, status)); /* none waits for one that has failed */
    text_shape_describe(&g->model->shape, &desc, &encoder, &decoder);
    desc.dtype = g->dtype;
    source.lookup = clattn_safetensors_lookup;
    source.user = file;
    for (size_t i = 0; i < g->pool->count && status == TOOL_DONE; i++) {
        text_device *on = &g->on[i];
        on->device = &g->pool->member[i].device;
        clattn_context *context = on->device->context;
        const clattn_status made = row != NULL
                                       ? clattn_group_transformer_create(context, row, &desc, &source, &on->transformer)
                                       : clattn_transformer_create(context, &desc, &source, &on->transformer);
        status = device_check(on->device, made, path.text);
    }
    status = world_agree(g->world, status);
fail:
    clattn_safetensors_release(&file);
    return status;
}

static void release_plans(text_device *on)
{
    clattn_decoder_state_release(&on->state);
    clattn_plan_release(&on->decoder);
    clattn_plan_release(&on->encoder);
    if (on->source != NULL)
        clReleaseMemObject(on->source);
    if (on->memory != NULL)
        clReleaseMemObject(on->memory);
    on->source = on->memory = NULL;
    on->batch = on->length = 0;
}

const char *text_generator_solver(const text_generator *g)
{
    for (size_t i = 0; i < POOL_MOST; i++)
        if (g->on[i].decoder != NULL)
            return clattn_plan_solver(g->on[i].decoder);
    return "";
}

void text_generator_close(text_generator *g)
{
    for (size_t i = 0; i < POOL_MOST; i++) {
        release_plans(&g->on[i]);
        clattn_transformer_release(&g->on[i].transformer);
    }
}

/* The smallest power of two that is at least `wanted`, but at most `most`, which `wanted` is not above. */
static size_t rounded(size_t wanted, size_t most)
{
    size_t size = 1;
    while (size < wanted)
        size *= 2;
    return size_min(size, most);
}

static clattn_status make_encoder(const text_generator *g, text_device *on, const clattn_plan_options *options)
{
    const size_t elements = g->batch * g->length;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_status status;
    desc.batch = g->batch;
    desc.length = g->length;
    TRY(clattn_encoder_plan_create(on->transformer, &desc, options, &on->encoder));
    TRY(device_output(on->device, elements * sizeof(int32_t), &on->source));
    TRY(device_output(on->device, elements * g->model->shape.d_model * clattn_dtype_size(g->dtype), &on->memory));
fail:
    return status;
}

/* Sees that plans take `count` sequences, or as many as go side by side, whose inputs have at most `longest` pieces. */
static void need_sizes(text_generator *g, size_t count, size_t longest)
{
    const text_shape *shape = &g->model->shape;
    const size_t most = size_max(SEQUENCES / g->beams, 1);
    const bool translation = shape->kind == TEXT_KIND_TRANSLATION;
    g->batch = size_max(g->batch, rounded(size_min(count, most), most));
    g->length = size_max(g->length, rounded(longest, translation ? shape->source_length : shape->target_length));
}

/* Sees that the device has plans of these sizes. */
static clattn_status make_plans(const text_generator *g, text_device *on)
{
    const text_shape *shape = &g->model->shape;
    const bool translation = shape->kind == TEXT_KIND_TRANSLATION;
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_status status = CLATTN_SUCCESS;
    if (on->batch == g->batch && on->length == g->length)
        return CLATTN_SUCCESS;
    release_plans(on);
    on->batch = g->batch;
    on->length = g->length;
    options.solver = g->solver;
    if (translation)
        TRY(make_encoder(g, on, &options));
    desc.items = g->batch;
    desc.beams = g->beams;
    desc.length = translation ? 1 : size_min(g->length, PROMPT_CHUNK);
    desc.cache_length = shape->target_length;
    desc.memory_length = translation ? g->length : 0;
    desc.logits = CLATTN_LOGITS_LAST;
    desc.prepack = device_prepacks(on->device, on->transformer);
    TRY(clattn_decoder_plan_create(on->transformer, &desc, &options, &on->decoder));
    TRY(clattn_decoder_state_create(on->decoder, &on->state));
fail:
    return status;
}

/* Items that are generated side by side. */
typedef struct batch {
    const text_generator *generator;
    const text_device *on;
    text_item **items; /* the longest input first */
    size_t count;
    bool translation;
    int32_t *source;  /* (count, length), filled up with VOCABULARY_PAD */
    int32_t *prompts; /* one behind the other */
    int32_t *lengths; /* of sources */
    size_t *prompt_lengths;
    int32_t *tokens; /* (count, most) */
    size_t *generated;
    float *scores;
    size_t most; /* pieces of an output */
} batch;

static bool begin_batch(batch *b)
{
    const text_shape *shape = &b->generator->model->shape;
    const size_t count = b->count, longest = b->items[0]->input.count, shortest = b->items[count - 1]->input.count;
    size_t prompts = 0;
    b->most = b->translation ? size_min(shape->target_length, longest + MORE_THAN_SOURCE)
                             : shape->target_length + 1 - shortest;
    b->source = calloc(b->translation ? count * b->generator->length : 1, sizeof *b->source);
    b->prompts = malloc((b->translation ? count : count * longest) * sizeof *b->prompts);
    b->lengths = malloc(count * sizeof *b->lengths);
    b->prompt_lengths = malloc(count * sizeof *b->prompt_lengths);
    b->tokens = malloc(count * b->most * sizeof *b->tokens);
    b->generated = malloc(count * sizeof *b->generated);
    b->scores = malloc(count * sizeof *b->scores);
    if (b->source == NULL || b->prompts == NULL || b->lengths == NULL || b->prompt_lengths == NULL ||
        b->tokens == NULL || b->generated == NULL || b->scores == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        static const int32_t begin = VOCABULARY_BEGIN;
        const vocabulary_ids *input = &b->items[i]->input;
        if (b->translation)
            memcpy(b->source + i * b->generator->length, input->id, input->count * sizeof *input->id);
        b->lengths[i] = (int32_t)input->count;
        b->prompt_lengths[i] = b->translation ? 1 : input->count;
        memcpy(b->prompts + prompts, b->translation ? &begin : input->id, b->prompt_lengths[i] * sizeof *input->id);
        prompts += b->prompt_lengths[i];
    }
    return true;
}

static void release_batch(batch *b)
{
    free(b->source);
    free(b->prompts);
    free(b->lengths);
    free(b->prompt_lengths);
    free(b->tokens);
    free(b->generated);
    free(b->scores);
}

static clattn_status encode(const batch *b)
{
    const text_device *on = b->on;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_status status;
    args.input = clattn_binding_buffer(on->source, 0);
    args.output = clattn_binding_buffer(on->memory, 0);
    args.explicit_lengths = 1;
    args.batch = b->count;
    args.length = b->items[0]->input.count;
    args.lengths = b->lengths;
    TRY(device_write(on->device, on->source, b->count * on->length * sizeof *b->source, b->source));
    TRY(clattn_encoder_enqueue(on->encoder, on->device->queue, &args, 0, NULL, NULL));
fail:
    return status;
}

/* Ends a translation that is as long as it may be. */
static clattn_status limit_length(void *user, const clattn_logits_view *view)
{
    const batch *b = user;
    if (view->length - view->prompt_length >= b->items[view->item]->input.count + MORE_THAN_SOURCE)
        for (size_t i = 0; i < view->count; i++)
            view->logits[i] = -INFINITY;
    return CLATTN_SUCCESS;
}

static clattn_status generate(batch *b)
{
    static const int32_t end = VOCABULARY_END;
    const text_generator *g = b->generator;
    const text_device *on = b->on;
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    clattn_generate_desc desc = CLATTN_GENERATE_DESC_INIT;
    clattn_generated generated = CLATTN_GENERATED_INIT;
    clattn_status status;
    begin.items = b->count;
    begin.beams = 1;
    if (b->translation) {
        TRY(encode(b));
        begin.memory = clattn_binding_buffer(on->memory, 0);
        begin.memory_length = b->items[0]->input.count;
        begin.memory_lengths = b->lengths;
        desc.hook = limit_length;
        desc.hook_user = b;
    }
    TRY(clattn_decoder_begin(on->state, on->device->queue, &begin, 0, NULL, NULL));
    desc.method = g->beams > 1 ? CLATTN_GENERATE_METHOD_BEAM : CLATTN_GENERATE_METHOD_GREEDY;
    desc.beams = g->beams > 1 ? g->beams : 0;
    desc.length_penalty = g->beams > 1 ? LENGTH_PENALTY : 0.0f;
    desc.max_tokens = b->most;
    desc.stop_tokens = &end;
    desc.stop_count = 1;
    generated.tokens = b->tokens;
    generated.lengths = b->generated;
    generated.scores = b->scores;
    TRY(clattn_generate(on->state, on->device->queue, &desc, b->prompts, b->prompt_lengths, &generated));
fail:
    return status;
}

static int finish_batch(const batch *b)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < b->count; i++) {
        b->items[i]->score = b->scores[i];
        if (b->generated[i] == 0 || !isfinite(b->scores[i])) /* the first piece always fits */
            return complain(TOOL_BAD_INPUT, "%s: its weights make probabilities that are no numbers",
                            b->generator->model->folder);
        for (size_t k = 0; k < b->generated[i]; k++)
            TOOL_TRY(vocabulary_append(&b->items[i]->output, b->tokens[i * b->most + k]));
    }
fail:
    return status;
}

static int longer_first(const void *left, const void *right)
{
    const text_item *a = *(text_item *const *)left, *b = *(text_item *const *)right;
    if (a->input.count != b->input.count)
        return a->input.count < b->input.count ? 1 : -1;
    return (a > b) - (a < b);
}

/* Texts that are divided into batches, which are parts of the pool's work. */
typedef struct work {
    text_generator *generator;
    text_item **items; /* the longest input first */
    size_t count;
    double *sizes;
    atomic_size_t done; /* items */
} work;

static int prepare(void *user, size_t device, size_t part)
{
    const work *w = user;
    text_device *on = &w->generator->on[device];
    (void)part;
    return device_check(on->device, make_plans(w->generator, on), NULL);
}

static int run_batch(void *user, size_t device, size_t part)
{
    work *w = user;
    const text_generator *g = w->generator;
    const size_t first = part * g->batch;
    batch b = {.generator = g,
               .on = &g->on[device],
               .items = w->items + first,
               .count = size_min(w->count - first, g->batch),
               .translation = g->model->shape.kind == TEXT_KIND_TRANSLATION};
    int status = begin_batch(&b) ? device_check(b.on->device, generate(&b), NULL) : no_memory();
    if (status == TOOL_DONE)
        status = finish_batch(&b);
    release_batch(&b);
    progress_show((double)(atomic_fetch_add(&w->done, b.count) + b.count) / (double)w->count);
    return status;
}

int text_generator_run(text_generator *g, text_item *items, size_t count)
{
    work w = {.generator = g, .items = malloc(size_max(count, 1) * sizeof *w.items)};
    int status = TOOL_DONE;
    w.sizes = malloc(size_max(count, 1) * sizeof *w.sizes);
    progress_begin(g->model->shape.kind == TEXT_KIND_TRANSLATION ? "translate" : "generate");
    if (w.items == NULL || w.sizes == NULL)
        TOOL_TRY(no_memory());
    for (size_t i = 0; i < count; i++)
        if (items[i].input.count > 0)
            w.items[w.count++] = &items[i];
    if (w.count == 0)
        goto fail;
    qsort(w.items, w.count, sizeof *w.items, longer_first);
    need_sizes(g, w.count, w.items[0]->input.count);
    pool_work parts = {.prepare = prepare, .run = run_batch, .user = &w, .size = w.sizes};
    for (size_t first = 0; first < w.count; first += g->batch)
        w.sizes[parts.parts++] = (double)(size_min(w.count - first, g->batch) * w.items[first]->input.count);
    status = pool_run(g->pool, &parts);
fail:
    progress_end();
    free(w.items);
    free(w.sizes);
    return status;
}
