/* The three uses of attention in a Transformer ("Attention Is All You Need", Vaswani et al. 2017, section 3.2.3), on
 * two sentences of four words:
 *
 *   self     the words of a sentence look at each other                    (in the encoder)
 *   masked   each looks at itself and those before it, never ahead         (in the decoder, which is still writing)
 *   cross    the words of one sentence look at those of another            (in the decoder, at what it translates)
 *
 * The operator is the same each time. Only two things change: where queries, keys and values come from, and `causal`.
 * In a Transformer, learned matrices make queries, keys and values from the words' vectors; here the vectors are made
 * up and stand for all three. */
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

enum { WORDS = 4, SIZE = 4 };

/* Each word's vector says how much of an article, a noun, an adjective and a verb it is. Words that mean the same have
 * the same vector. */
struct sentence {
    const char *word[WORDS];
    float vector[WORDS][SIZE];
};
static const struct sentence english = {{"the", "black", "cat", "sleeps"},
                                        {{3, 1, 0, 0}, {0, 1, 3, 0}, {1, 3, 1, 1}, {0, 1, 0, 3}}};
static const struct sentence french = {{"le", "chat", "noir", "dort"},
                                       {{3, 1, 0, 0}, {1, 3, 1, 1}, {0, 1, 3, 0}, {0, 1, 0, 3}}};

static clattn_context *context;

static void check(clattn_status status)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
    exit(1);
}

static clattn_binding buffer_of(const void *data, size_t bytes)
{
    cl_mem_flags flags = data != NULL ? CL_MEM_COPY_HOST_PTR : 0;
    return clattn_binding_buffer(
        clCreateBuffer(clattn_context_opencl_context(context), flags, bytes, (void *)(size_t)data, NULL), 0);
}

/* Attends from one sentence to another or the same. Queries come from `from`, keys and values from `to`. Word i gets
 * the sum of the values, weighted by weight[i][j] for word j. */
static void attend(const struct sentence *from, const struct sentence *to, int causal, float weight[WORDS][WORDS])
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT; /* one sentence, one head */
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, WORDS, SIZE);
    desc.causal = causal;
    desc.outputs.scores = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, WORDS, WORDS); /* a second result, to look at */
    desc.outputs.scores_mode = CLATTN_SCORES_MODE_PROBABILITIES;

    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = buffer_of(from->vector, sizeof from->vector);
    args.key = args.value = buffer_of(to->vector, sizeof to->vector);
    args.output = buffer_of(NULL, sizeof from->vector);
    args.outputs.scores = buffer_of(NULL, sizeof(float[WORDS][WORDS]));
    check(clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));
    clEnqueueReadBuffer(clattn_context_queue(context), args.outputs.scores.buffer, CL_TRUE, 0,
                        sizeof(float[WORDS][WORDS]), weight, 0, NULL, NULL);
    clReleaseMemObject(args.query.buffer);
    clReleaseMemObject(args.key.buffer);
    clReleaseMemObject(args.output.buffer);
    clReleaseMemObject(args.outputs.scores.buffer);
}

/* Prints the weights, and returns whether those of each word sum to 1. */
static int show(const char *title, const struct sentence *from, const struct sentence *to, float weight[WORDS][WORDS])
{
    int sums_right = 1;
    printf("%s\n%8s", title, "");
    for (int j = 0; j < WORDS; j++)
        printf("%8s", to->word[j]);
    for (int i = 0; i < WORDS; i++) {
        float sum = 0;
        printf("\n%8s", from->word[i]);
        for (int j = 0; j < WORDS; j++) {
            printf("%7.1f%%", 100.0 * weight[i][j]);
            sum += weight[i][j];
        }
        sums_right = sums_right && sum > 0.9999f && sum < 1.0001f;
    }
    printf("\n\n");
    return sums_right;
}

int main(void)
{
    float self[WORDS][WORDS], masked[WORDS][WORDS], cross[WORDS][WORDS];
    check(clattn_context_create(NULL, &context)); /* the best device here */
    attend(&english, &english, 0, self);
    attend(&french, &french, 1, masked);
    attend(&french, &english, 0, cross);
    clattn_context_release(&context);

    int right = show("self: every word sees every word", &english, &english, self);
    right &= show("masked: no word sees those after it", &french, &french, masked);
    right &= show("cross: French words see English ones", &french, &english, cross);
    for (int i = 0; i < WORDS; i++)
        for (int j = i + 1; j < WORDS; j++)
            right = right && masked[i][j] == 0; /* exactly */
    static const int translation[WORDS] = {0, 2, 1, 3};
    for (int i = 0; i < WORDS; i++)
        right = right && cross[i][translation[i]] > 0.5f;
    puts(right ? "The weights are as they should be." : "The weights are WRONG.");
    return !right;
}
