#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/nn/generate_case.h"

const int32_t prompts[8] = {3, 8, 21, 30, 11, 17, 2, 9};
const size_t prompt_lengths[MANY] = {2, 1, 3, 2};
const int32_t many_memory_lengths[MANY] = {MEMORY, MEMORY - 2, 1, MEMORY - 1};

const int32_t *prompt_of(size_t item)
{
    const int32_t *prompt = prompts;
    for (size_t i = 0; i < item; i++)
        prompt += prompt_lengths[i];
    return prompt;
}

void logits_behind(const nn_world *w, size_t item, const int32_t *text, size_t length, double *logits)
{
    double *all = nn_world_logits(w, 1, length, text, item, false, NULL, NULL);
    memcpy(logits, all + (length - 1) * VOCABULARY, VOCABULARY * sizeof *logits);
    free(all);
}

void log_softmax(double *logits)
{
    double largest = -INFINITY, sum = 0;
    for (size_t v = 0; v < VOCABULARY; v++)
        largest = fmax(largest, logits[v]);
    for (size_t v = 0; v < VOCABULARY; v++)
        sum += exp(logits[v] - largest);
    for (size_t v = 0; v < VOCABULARY; v++)
        logits[v] -= largest + log(sum);
}

clattn_generated results_of(int32_t *tokens, size_t *lengths, float *scores, float *each)
{
    clattn_generated generated = CLATTN_GENERATED_INIT;
    generated.tokens = tokens;
    generated.lengths = lengths;
    generated.scores = scores;
    generated.log_probabilities = each;
    return generated;
}

nn_world generating_world(clattn_context *context, size_t items, size_t beams)
{
    nn_world w = decoder_case_world(context, &decoder_cases[CASE_PAPER], items);
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    desc.length = 4;
    desc.beams = beams;
    desc.logits = CLATTN_LOGITS_LAST;
    w.memory_lengths = many_memory_lengths;
    nn_world_open(&w, &desc);
    return w;
}

void generate(const nn_world *w, const clattn_generate_desc *how, int32_t *tokens, size_t *lengths, float *scores,
              float *each)
{
    clattn_generated generated = results_of(tokens, lengths, scores, each);
    assert_status(w->context, clattn_generate(w->state, NULL, how, prompts, prompt_lengths, &generated),
                  CLATTN_SUCCESS);
}
