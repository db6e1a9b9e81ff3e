#include "tool/text/generator.h"

#include <math.h>
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
    const clattn_group *group = world_group(g->world);
    clattn_context *context = g->device->context;
    if (status == TOOL_DONE)
        status = open_file(g, &path, &file);
    TOOL_TRY(world_agree(g->world, status)); /* none waits for one that has failed */
    text_shape_describe(&g->model->shape, &desc, &encoder, &decoder);
    desc.dtype = g->dtype;
    source.lookup = clattn_safetensors_lookup;
    source.user = file;
    status = device_check(g->device,
                          group != NULL && g->together
                              ? clattn_group_transformer_create(context, group, &desc, &source, &g->transformer)
                              : clattn_transformer_create(context, &desc, &source, &g->transformer),
                          path.text);
    status = world_agree(g->world, status);
fail:
    clattn_safetensors_release(&file);
    return status;
}

static void release_plans(text_generator *g)
{
    clattn_decoder_state_release(&g->state);
    clattn_plan_release(&g->decoder);
    clattn_plan_release(&g->encoder);
    if (g->source != NULL)
        clReleaseMemObject(g->source);
    if (g->memory != NULL)
        clReleaseMemObject(g->memory);
    g->source = g->memory = NULL;
    g->batch = g->length = 0;
}

void text_generator_close(text_generator *g)
{
    release_plans(g);
    clattn_transformer_release(&g->transformer);
}

/* The smallest power of two that is at least `wanted`, but at most `most`, which `wanted` is not above. */
static size_t rounded(size_t wanted, size_t most)
{
    size_t size = 1;
    while (size < wanted)
        size *= 2;
    return size_min(size, most);
}

static clattn_status make_encoder(text_generator *g, const clattn_plan_options *options)
{
    const size_t elements = g->batch * g->length;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_status status;
    desc.batch = g->batch;
    desc.length = g->length;
    TRY(clattn_encoder_plan_create(g->transformer, &desc, options, &g->encoder));
    TRY(device_output(g->device, elements * sizeof(int32_t), &g->source));
    TRY(device_output(g->device, elements * g->model->shape.d_model * clattn_dtype_size(g->dtype), &g->memory));
fail:
    return status;
}

/* Sees that the plans take `count` sequences, or as many as go side by side, whose inputs have at most `longest` pieces. */
static clattn_status need_plans(text_generator *g, size_t count, size_t longest)
{
    const text_shape *shape = &g->model->shape;
    const bool translation = shape->kind == TEXT_KIND_TRANSLATION;
    const size_t most = size_max(SEQUENCES / g->beams, 1);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_status status = CLATTN_SUCCESS;
    count = rounded(size_min(count, most), most);
    longest = rounded(longest, translation ? shape->source_length : shape->target_length);
    if (g->batch >= count && g->length >= longest)
        return CLATTN_SUCCESS;
    count = size_max(count, g->batch);
    longest = size_max(longest, g->length);
    release_plans(g);
    g->batch = count;
    g->length = longest;
    options.solver = g->solver;
    if (translation)
        TRY(make_encoder(g, &options));
    desc.items = g->batch;
    desc.beams = g->beams;
    desc.length = translation ? 1 : size_min(g->length, PROMPT_CHUNK);
    desc.cache_length = shape->target_length;
    desc.memory_length = translation ? g->length : 0;
    desc.logits = CLATTN_LOGITS_LAST;
    TRY(clattn_decoder_plan_create(g->transformer, &desc, &options, &g->decoder));
    TRY(clattn_decoder_state_create(g->decoder, &g->state));
fail:
    return status;
}

/* Items that are generated side by side. */
typedef struct batch {
    text_generator *generator;
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
    const text_generator *g = b->generator;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_status status;
    args.input = clattn_binding_buffer(g->source, 0);
    args.output = clattn_binding_buffer(g->memory, 0);
    args.explicit_lengths = 1;
    args.batch = b->count;
    args.length = b->items[0]->input.count;
    args.lengths = b->lengths;
    TRY(device_write(g->device, g->source, b->count * g->length * sizeof *b->source, b->source));
    TRY(clattn_encoder_enqueue(g->encoder, g->device->queue, &args, 0, NULL, NULL));
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
    text_generator *g = b->generator;
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    clattn_generate_desc desc = CLATTN_GENERATE_DESC_INIT;
    clattn_generated generated = CLATTN_GENERATED_INIT;
    clattn_status status;
    begin.items = b->count;
    begin.beams = 1;
    if (b->translation) {
        TRY(encode(b));
        begin.memory = clattn_binding_buffer(g->memory, 0);
        begin.memory_length = b->items[0]->input.count;
        begin.memory_lengths = b->lengths;
        desc.hook = limit_length;
        desc.hook_user = b;
    }
    TRY(clattn_decoder_begin(g->state, g->device->queue, &begin, 0, NULL, NULL));
    desc.method = g->beams > 1 ? CLATTN_GENERATE_METHOD_BEAM : CLATTN_GENERATE_METHOD_GREEDY;
    desc.beams = g->beams > 1 ? g->beams : 0;
    desc.length_penalty = g->beams > 1 ? LENGTH_PENALTY : 0.0f;
    desc.max_tokens = b->most;
    desc.stop_tokens = &end;
    desc.stop_count = 1;
    generated.tokens = b->tokens;
    generated.lengths = b->generated;
    generated.scores = b->scores;
    TRY(clattn_generate(g->state, g->device->queue, &desc, b->prompts, b->prompt_lengths, &generated));
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

static int run_batch(text_generator *g, text_item **items, size_t count)
{
    batch b = {g, items, count, .translation = g->model->shape.kind == TEXT_KIND_TRANSLATION};
    int status = begin_batch(&b) ? device_check(g->device, generate(&b), NULL) : no_memory();
    if (status == TOOL_DONE)
        status = finish_batch(&b);
    release_batch(&b);
    return status;
}

static int longer_first(const void *left, const void *right)
{
    const text_item *a = *(text_item *const *)left, *b = *(text_item *const *)right;
    if (a->input.count != b->input.count)
        return a->input.count < b->input.count ? 1 : -1;
    return (a > b) - (a < b);
}

int text_generator_run(text_generator *g, text_item *items, size_t count)
{
    text_item **sorted = malloc(size_max(count, 1) * sizeof *sorted);
    size_t filled = 0;
    int status = TOOL_DONE;
    if (sorted == NULL)
        return no_memory();
    for (size_t i = 0; i < count; i++)
        if (items[i].input.count > 0)
            sorted[filled++] = &items[i];
    qsort(sorted, filled, sizeof *sorted, longer_first);
    progress_begin(g->model->shape.kind == TEXT_KIND_TRANSLATION ? "translate" : "generate");
    if (filled > 0)
        TOOL_TRY(device_check(g->device, need_plans(g, filled, sorted[0]->input.count), NULL));
    for (size_t first = 0; first < filled; first += g->batch) {
        progress_show((double)first / (double)filled);
        TOOL_TRY(run_batch(g, sorted + first, size_min(filled - first, g->batch)));
    }
fail:
    progress_end();
    free(sorted);
    return status;
}
