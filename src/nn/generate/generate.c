/* Generation: prompts, steps, and the greedy and sampling methods, which have one sequence an item. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/generate/generate.h"

void clattn_generate_desc_init(clattn_generate_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

void clattn_generated_init(clattn_generated *generated)
{
    struct_init(generated, sizeof *generated);
}

static struct device *device_of(const struct generation *g)
{
    return &g->state->plan->base.context->device;
}

static clattn_status refuse(const struct generation *g, const char *reason)
{
    return report_error(&device_of(g)->report, CLATTN_ERROR_INVALID_ARGUMENT, "generate: %s", reason);
}

/* ---- checks ---- */

static clattn_status check_method(const struct generation *g)
{
    const clattn_generate_desc *d = &g->desc;
    const bool beam = d->method == CLATTN_GENERATE_METHOD_BEAM, sample = d->method == CLATTN_GENERATE_METHOD_SAMPLE;
    if (d->method < 0 || d->method > CLATTN_GENERATE_METHOD_BEAM || d->length_rule < 0 ||
        d->length_rule > CLATTN_LENGTH_RULE_POWER)
        return refuse(g, "unknown method or length_rule");
    if (!d->max_tokens || d->max_tokens > INT32_MAX)
        return refuse(g, "max_tokens is 1 to 2^31 - 1");
    if (d->stop_count && !d->stop_tokens)
        return refuse(g, "stop_tokens is NULL");
    if (!beam && (d->beams > 1 || d->results > 1))
        return refuse(g, "beams and results above 1 are for beam search");
    if (beam && (!d->beams || (d->beams > 1 && d->beams != g->state->plan->desc.beams) || d->results > d->beams))
        return refuse(g, "beams is 1 or the plan's, and results at most beams");
    if (!beam && (d->length_penalty || d->patience))
        return refuse(g, "length_penalty and patience are for beam search");
    if (!isfinite(d->length_penalty) || !(d->patience >= 0) || d->patience > 1000)
        return refuse(g, "length_penalty is not finite, or patience is not 0 to 1000");
    if (!sample && (d->temperature || d->top_p || d->top_k))
        return refuse(g, "temperature, top_p and top_k are for sampling");
    if (!(d->temperature >= 0) || !isfinite(d->temperature) || !(d->top_p >= 0) || d->top_p > 1)
        return refuse(g, "temperature is negative or not finite, or top_p is not 0 to 1");
    return CLATTN_SUCCESS;
}

static clattn_status check_prompts(const struct generation *g, const int32_t *prompts, const size_t *prompt_lengths)
{
    struct report *report = &device_of(g)->report;
    const size_t vocabulary = g->state->plan->model->decoder.desc.vocabulary;
    for (size_t i = 0; i < g->items; prompts += prompt_lengths[i++]) {
        const size_t length = prompt_lengths[i];
        if (!length)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "generate: prompt %zu has no tokens", i);
        if (length > g->capacity)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "generate: prompt %zu has %zu tokens, more than the %zu of the cache or the table of "
                                "positions",
                                i, length, g->capacity);
        for (size_t j = 0; j < length; j++)
            if (prompts[j] < 0 || (size_t)prompts[j] >= vocabulary)
                return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                                    "generate: prompt %zu has token %d in place %zu, which is not in the vocabulary", i,
                                    (int)prompts[j], j);
    }
    return CLATTN_SUCCESS;
}

static clattn_status check(const struct generation *g, const int32_t *prompts, const size_t *prompt_lengths)
{
    const struct decoder_plan *plan = g->state->plan;
    const clattn_status status = check_method(g);
    if (status != CLATTN_SUCCESS)
        return status;
    if (!g->state->begun)
        return refuse(g, "the state wants a clattn_decoder_begin first");
    if (!plan->desc.logits || plan->model->decoder.desc.input != CLATTN_STACK_INPUT_TOKENS)
        return refuse(g, "the decoder's plan has no logits, or its input is not tokens");
    if (plan->model->output_size > plan->model->decoder.desc.vocabulary)
        return refuse(g, "the logits have more columns than the embedding has rows");
    if (!prompts || !prompt_lengths || !g->results->tokens || !g->results->lengths)
        return refuse(g, "prompts, prompt_lengths, or the results' tokens or lengths are NULL");
    return check_prompts(g, prompts, prompt_lengths);
}

/* ---- sequences ---- */

struct sequence *sequences_create(const struct generation *g, size_t count)
{
    const size_t most = g->most, fresh = g->desc.max_tokens;
    struct sequence *made = calloc(count, sizeof *made + most * sizeof(int32_t) + fresh * sizeof(float));
    if (!made)
        return NULL;
    int32_t *tokens = (int32_t *)(made + count);
    float *log_probabilities = (float *)(tokens + count * most);
    for (size_t i = 0; i < count; i++) {
        made[i].tokens = tokens + i * most;
        made[i].log_probabilities = log_probabilities + i * fresh;
    }
    return made;
}

void sequence_append(struct sequence *sequence, int32_t token, double log_probability)
{
    sequence->log_probabilities[generated(sequence)] = (float)log_probability;
    sequence->tokens[sequence->length++] = token;
    sequence->score += log_probability;
}

void sequence_copy(struct sequence *to, const struct sequence *from)
{
    memcpy(to->tokens, from->tokens, from->length * sizeof *to->tokens);
    memcpy(to->log_probabilities, from->log_probabilities, generated(from) * sizeof *to->log_probabilities);
    to->prompt = from->prompt;
    to->length = from->length;
    to->score = from->score;
}

bool generation_stopped(const struct generation *g, int32_t token)
{
    for (size_t i = 0; i < g->desc.stop_count; i++)
        if (g->desc.stop_tokens[i] == token)
            return true;
    return false;
}

bool generation_can_grow(const struct generation *g, const struct sequence *sequence)
{
    return generated(sequence) < g->desc.max_tokens && sequence->length <= g->capacity;
}

void generation_result(struct generation *g, size_t item, size_t rank, const struct sequence *sequence, double score)
{
    const size_t results = size_max(g->desc.results, 1), place = item * results + rank;
    const size_t count = sequence ? generated(sequence) : 0;
    g->results->lengths[place] = count;
    if (count)
        memcpy(g->results->tokens + place * g->stride, sequence->tokens + sequence->prompt, count * sizeof(int32_t));
    if (count && g->results->log_probabilities)
        memcpy(g->results->log_probabilities + place * g->stride, sequence->log_probabilities, count * sizeof(float));
    if (g->results->scores)
        g->results->scores[place] = (float)score;
}

clattn_status generation_hook(const struct generation *g, const struct sequence *sequence, size_t item, size_t beam,
                              float *logits)
{
    if (!g->desc.hook)
        return CLATTN_SUCCESS;
    const clattn_logits_view view = {.size = sizeof view,
                                     .item = item,
                                     .beam = beam,
                                     .tokens = sequence->tokens,
                                     .prompt_length = sequence->prompt,
                                     .length = sequence->length,
                                     .logits = logits,
                                     .count = g->vocabulary};
    /* What the hook may run with the same control is no part of the progress. */
    const struct control_range range = control_part(g->desc.control, 0, 0);
    const clattn_status status = g->desc.hook(g->desc.hook_user, &view);
    control_restore(g->desc.control, range);
    if (status != CLATTN_SUCCESS)
        report_error(&device_of(g)->report, status, "generate: the hook gave up");
    return status;
}

/* ---- steps ---- */

/* Uploads a row of `row` tokens for each sequence, appends lengths[s] of them to sequence s, and reads the logits that
 * follow. */
static clattn_status append(struct generation *g, const int32_t *tokens, size_t row, size_t length,
                            const int32_t *lengths, float *logits)
{
    clattn_status status;
    struct device *device = device_of(g);
    const struct cl_table *cl = &device->cl;
    const struct decoder_plan *plan = g->state->plan;
    const size_t sequences = g->state->items * g->state->beams, v = g->vocabulary;
    const bool all = plan->desc.logits == CLATTN_LOGITS_ALL && length > 1;
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    cl_event written = NULL, done = NULL;
    args.input = clattn_binding_buffer(g->tokens, 0);
    args.logits = clattn_binding_buffer(g->logits, 0);
    args.length = length;
    args.lengths = lengths;
    args.control = g->desc.control;
    status = CLATTN_SUCCESS;
    const struct control_range range = control_step(g->desc.control, g->step++, g->steps);
    TRY_CL(&device->report, "clEnqueueWriteBuffer",
           cl->clEnqueueWriteBuffer(g->queue, g->tokens, CL_TRUE, 0, sequences * row * sizeof *tokens, tokens, 0, NULL,
                                    &written));
    TRY(clattn_decoder_enqueue(g->state, g->queue, &args, 1, &written, &done));
    for (size_t s = 0; s < sequences; s++) {
        if (!lengths[s])
            continue;
        const size_t from = (all ? s * row + (size_t)lengths[s] - 1 : s) * v * sizeof(float);
        TRY_CL(&device->report, "clEnqueueReadBuffer",
               cl->clEnqueueReadBuffer(g->queue, g->logits, CL_TRUE, from, v * sizeof(float), logits + s * v, 1, &done,
                                       NULL));
    }
fail:
    control_restore(g->desc.control, range);
    if (written)
        cl->clReleaseEvent(written);
    if (done)
        cl->clReleaseEvent(done);
    return status;
}

clattn_status generation_step(struct generation *g)
{
    return append(g, g->next, 1, 1, g->fresh, g->host);
}

/* Appends all prompts, as many tokens at once as the plan takes; `host` then has the logits that follow each prompt. */
static clattn_status read_prompts(struct generation *g)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t longest = g->state->plan->desc.length;
    int32_t *tokens = calloc(g->items, longest * sizeof *tokens);
    size_t left = 1;
    if (!tokens)
        return report_error(&device_of(g)->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for prompts");
    for (size_t read = 0; left; read += longest) {
        size_t most = 0;
        left = 0;
        for (size_t i = 0; i < g->items; i++) {
            const size_t length = g->sequences[i].prompt;
            const size_t here = length > read ? size_min(longest, length - read) : 0;
            g->fresh[i] = (int32_t)here;
            most = size_max(most, here);
            left += length > read + here;
        }
        const size_t row = most > 1 ? longest : 1;
        for (size_t i = 0; i < g->items; i++)
            memcpy(tokens + i * row, g->sequences[i].tokens + (g->fresh[i] ? read : 0),
                   (size_t)g->fresh[i] * sizeof *tokens);
        TRY(append(g, tokens, row, most, g->fresh, g->host));
    }
fail:
    free(tokens);
    return status;
}

/* ---- greedy and sampling ---- */

static double random_number(const struct generation *g, size_t item, size_t place)
{
    uint32_t words[4] = {(uint32_t)place, (uint32_t)item, 0, 0};
    philox(words, g->desc.seed);
    return ((double)words[0] + (double)words[1] * 0x1p-32) * 0x1p-32 * (1 - 0x1p-53);
}

/* Chooses and appends an item's next token; *stopped: the sequence has ended. */
static clattn_status choose(struct generation *g, size_t item, size_t *order, bool *stopped)
{
    struct sequence *sequence = &g->sequences[item];
    float *logits = logits_of(g, item);
    const clattn_generate_desc *d = &g->desc;
    const bool sample = d->method == CLATTN_GENERATE_METHOD_SAMPLE;
    const double temperature = sample && d->temperature ? d->temperature : 1;
    size_t token = SIZE_MAX;
    *stopped = !generation_can_grow(g, sequence);
    if (*stopped)
        return CLATTN_SUCCESS;
    const clattn_status status = generation_hook(g, sequence, item, 0, logits);
    if (status != CLATTN_SUCCESS)
        return status;
    token = sample ? logits_sample(logits, g->vocabulary, temperature, d->top_k, d->top_p ? d->top_p : 1,
                                   random_number(g, item, generated(sequence)), order)
                   : logits_largest(logits, g->vocabulary);
    *stopped = token == SIZE_MAX;
    if (*stopped)
        return CLATTN_SUCCESS;
    sequence_append(sequence, (int32_t)token,
                    logits[token] / temperature - logits_log_sum(logits, g->vocabulary, temperature));
    *stopped = generation_stopped(g, (int32_t)token) || !generation_can_grow(g, sequence);
    return CLATTN_SUCCESS;
}

static clattn_status one_by_one(struct generation *g)
{
    clattn_status status = CLATTN_SUCCESS;
    size_t *order = malloc(g->vocabulary * sizeof *order);
    size_t live = g->items;
    if (!order)
        return report_error(&device_of(g)->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for sampling");
    for (size_t i = 0; i < g->items; i++)
        g->fresh[i] = 1;
    while (live) {
        for (size_t i = 0; i < g->items; i++) {
            bool stopped;
            if (!g->fresh[i])
                continue;
            TRY(choose(g, i, order, &stopped));
            g->fresh[i] = !stopped;
            live -= stopped;
            if (!stopped)
                g->next[i] = g->sequences[i].tokens[g->sequences[i].length - 1];
        }
        if (live)
            TRY(generation_step(g));
    }
    for (size_t i = 0; i < g->items; i++)
        generation_result(g, i, 0, &g->sequences[i], g->sequences[i].score);
fail:
    free(order);
    return status;
}

/* ---- memory, and the call ---- */

static clattn_status give_buffers(struct generation *g, size_t sequences)
{
    struct device *device = device_of(g);
    const struct decoder_plan *plan = g->state->plan;
    const size_t many = g->items * plan->desc.length, rows = plan->desc.logits == CLATTN_LOGITS_ALL ? many : g->items;
    cl_int code;
    g->tokens = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                                          size_max(sequences, many) * sizeof(int32_t), NULL, &code);
    if (!g->tokens)
        return report_opencl(&device->report, "clCreateBuffer", code);
    g->logits = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                                          size_max(sequences, rows) * g->vocabulary * sizeof(float), NULL, &code);
    if (!g->logits)
        return report_opencl(&device->report, "clCreateBuffer", code);
    return CLATTN_SUCCESS;
}

static clattn_status give_memory(struct generation *g, const int32_t *prompts, const size_t *prompt_lengths)
{
    const size_t sequences = g->items * size_max(g->desc.beams, 1);
    g->sequences = sequences_create(g, 2 * sequences);
    g->host = malloc(sequences * g->vocabulary * sizeof *g->host);
    g->next = calloc(sequences, sizeof *g->next);
    g->fresh = calloc(sequences, sizeof *g->fresh);
    if (!g->sequences || !g->host || !g->next || !g->fresh)
        return report_error(&device_of(g)->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for sequences");
    for (size_t i = 0; i < g->items; i++) {
        g->sequences[i].prompt = g->sequences[i].length = prompt_lengths[i];
        memcpy(g->sequences[i].tokens, prompts, prompt_lengths[i] * sizeof *prompts);
        prompts += prompt_lengths[i];
    }
    return give_buffers(g, sequences);
}

static void give_back(struct generation *g)
{
    const struct cl_table *cl = &device_of(g)->cl;
    free(g->sequences);
    free(g->host);
    free(g->next);
    free(g->fresh);
    if (g->tokens)
        cl->clReleaseMemObject(g->tokens);
    if (g->logits)
        cl->clReleaseMemObject(g->logits);
}

static clattn_status generate(struct generation *g, const int32_t *prompts, const size_t *prompt_lengths)
{
    clattn_status status;
    const struct decoder_plan *plan = g->state->plan;
    const clattn_stack_desc *d = &plan->model->decoder.desc;
    size_t longest = 0;
    g->items = g->state->items;
    g->vocabulary = plan->model->output_size;
    g->capacity = plan->desc.cache_length;
    if (d->positions == CLATTN_POSITIONS_TABLE)
        g->capacity = size_min(g->capacity, d->position_count - d->first_position);
    TRY(check(g, prompts, prompt_lengths));
    for (size_t i = 0; i < g->items; i++)
        longest = size_max(longest, prompt_lengths[i]);
    /* The last token is never appended to the cache. */
    g->stride = g->desc.max_tokens;
    g->desc.max_tokens = size_min(g->desc.max_tokens, g->capacity + 1);
    g->most = longest + g->desc.max_tokens;
    g->steps = divide_up(longest, size_max(plan->desc.length, 1)) + g->desc.max_tokens;
    status = give_memory(g, prompts, prompt_lengths);
    if (status == CLATTN_SUCCESS) {
        decoder_state_restart(g->state, 1);
        status = read_prompts(g);
        if (status == CLATTN_SUCCESS)
            status = g->desc.method == CLATTN_GENERATE_METHOD_BEAM ? generation_beams(g) : one_by_one(g);
        g->state->begun = g->state->begun && status == CLATTN_SUCCESS;
    }
fail:
    return status;
}

clattn_status clattn_generate(clattn_decoder_state *state, cl_command_queue queue, const clattn_generate_desc *desc,
                              const int32_t *prompts, const size_t *prompt_lengths, clattn_generated *generated_)
{
    clattn_status status;
    clattn_generated results;
    struct generation g = {.state = state, .results = &results};
    TRY(decoder_state_check(state));
    struct report *report = &device_of(&g)->report;
    status = struct_read(&g.desc, sizeof g.desc, sizeof g.desc, desc);
    if (status == CLATTN_SUCCESS)
        status = struct_read(&results, sizeof results, sizeof results, generated_);
    if (status != CLATTN_SUCCESS)
        return report_error(report, status, "desc or generated is NULL, or its size is none that there ever was");
    g.queue = queue ? queue : state->plan->base.context->queue;
    TRY(control_enter(g.desc.control, report));
    status = control_leave(g.desc.control, generate(&g, prompts, prompt_lengths));
    give_back(&g);
fail:
    return status;
}
