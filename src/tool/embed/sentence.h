/* A sentence encoder of BERT's kind, as sentence-transformers keeps them in a folder: texts to unit vectors.
 *
 *   config.json                  the shape: model_type "bert", sizes, activation, epsilon
 *   model.safetensors            the weights
 *   tokenizer.json or vocab.txt  see wordpiece.h; the first counts where both are there
 *   sentence_bert_config.json    max_seq_length; if absent, the model's positions count
 *   1_Pooling/config.json        which pooling: the mean over the tokens, or the first one's vector; if
 * absent, the mean */
#ifndef CLATTN_TOOL_EMBED_SENTENCE_H
#define CLATTN_TOOL_EMBED_SENTENCE_H

#include <clattn/transformer.h>

#include "tool/run/device.h"
#include "tool/embed/wordpiece.h"

#define SENTENCE_CLASSES 32 /* of lengths: up to 2^i tokens */

/* One compiled encoder. */
typedef struct sentence_plan {
    clattn_plan *plan; /* NULL: none yet */
    size_t batch, length;
} sentence_plan;

/* Zeroed: none.  Release with sentence_close, before the device is closed. */
typedef struct sentence_model {
    const char *folder; /* borrowed */
    wordpiece *tokenizer;
    clattn_safetensors *file;
    clattn_stack_desc stack;
    int32_t pooling;     /* clattn_pooling */
    size_t most_tokens;  /* of a text, [CLS] and [SEP] included */
    const char *solver;  /* the attention's; NULL: the best.  Borrowed */
    tool_device *device; /* borrowed */
    clattn_transformer *transformer;
    sentence_plan plans[SENTENCE_CLASSES];
} sentence_model;

typedef struct sentence_text {
    const char *text;
    size_t bytes;
} sentence_text;

/* What happened to the texts. */
typedef struct sentence_counts {
    size_t texts, tokens; /* tokens: what the encoder saw */
    size_t unknown;       /* words that the vocabulary lacks */
    size_t cut;           /* texts with more tokens than counted, */
    size_t first_cut;     /* the first of them, from 0, */
    size_t first_whole;   /* and its tokens */
} sentence_counts;

/* Reads what is in the folder, but not yet the weights' values.  `most_tokens` 0: as the files say.  An exit
 * status. */
int sentence_open(const char *folder, size_t most_tokens, sentence_model *model);

/* Brings the weights to the device. */
int sentence_load(sentence_model *model, tool_device *device);

/* `count` texts to as many rows of `vectors`, of model->stack.d_model each; blocks.  Adds to *counts.  Texts
 * of like length are computed together, in an order of their own. */
int sentence_encode(sentence_model *model, const sentence_text *texts, size_t count, float *vectors,
                    sentence_counts *counts);

/* The attention's solver of the plan that was used last; "" before the first. */
const char *sentence_solver(const sentence_model *model);

void sentence_close(sentence_model *model);

#endif
