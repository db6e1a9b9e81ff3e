/* The options of `clattn train`, and what they come to. */
#ifndef CLATTN_TOOL_TRAIN_OPTIONS_H
#define CLATTN_TOOL_TRAIN_OPTIONS_H

#include "tool/cli/options.h"
#include "tool/train/loop.h"

typedef struct train_options {
    const char *source, *target, *text;
    const char *valid_source, *valid_target, *valid_text;
    const char *out, *device;
    option_whole seed;
    option_float minutes, learning_rate, dropout, label_smoothing, clip, weight_decay;
    size_t steps, warmup, batch_tokens, parts, every, patience, tensor_parallel;
    size_t layers, d_model, heads, d_ff, vocabulary, length;
    int32_t preset, schedule, dtype;
    bool resume, recompute, json;
} train_options;

extern const option_table train_option_table;

/* Refuses options that contradict each other.  Returns an exit status. */
int train_options_check(const train_options *options);

/* The shape that the options ask for; its vocabulary is the most pieces.  Returns an exit status. */
int train_options_shape(const train_options *options, text_shape *shape);

/* What the options say about the loop, save for times and the seed. */
train_rule train_options_rule(const train_options *options);

/* The most tokens of a batch, padding included. */
size_t train_options_tokens(const train_options *options);

clattn_dtype train_options_dtype(const train_options *options);

#endif
