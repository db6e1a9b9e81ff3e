/* A sentence encoder of BERT's kind, in a folder as sentence-transformers writes it: texts to unit vectors.
 *
 *   config.json                  the shape: model_type "bert", sizes, activation, epsilon
 *   model.safetensors            the weights
 *   tokenizer.json or vocab.txt  see wordpiece.h; tokenizer.json is read if both are there
 *   sentence_bert_config.json    max_seq_length; if absent, the model's positions count
 *   1_Pooling/config.json        the pooling: the mean over the tokens, or the first token's vector; the mean if
 *                                the file is absent */
#ifndef CLATTN_TOOL_EMBED_SENTENCE_H
#define CLATTN_TOOL_EMBED_SENTENCE_H

#include <clattn/transformer.h>

#include "base/os/os_threads.h"
#include "tool/pool/pool.h"
#include "tool/run/model_file.h"
#include "tool/embed/wordpiece.h"

#define SENTENCE_BUCKETS 32 /* bucket i: texts of at most 2^i tokens */

/* The model on a device, and encoders, one a bucket, for batches of at most `batch` texts. */
typedef struct sentence_device {
    tool_device *device; /* borrowed */
    clattn_transformer *transformer;
    clattn_plan *plans[SENTENCE_BUCKETS]; /* NULL before the first use */
    size_t batch[SENTENCE_BUCKETS];
} sentence_device;

/* The tokenizer's file, which a thread reads while the device is opened: that takes about as long on PoCL. */
typedef struct sentence_vocabulary {
    model_path path;
    bool json;
    bool read_apart; /* `thread` has to be joined */
    thrd_t thread;
    wordpiece *tokenizer;
    clattn_status status;
    clattn_io_error error;
} sentence_vocabulary;

/* A zeroed one holds nothing.  Close with sentence_close, before the devices are closed. */
typedef struct sentence_model {
    const char *folder; /* borrowed */
    sentence_vocabulary vocabulary;
    const wordpiece *tokenizer; /* the vocabulary's; NULL before sentence_tokenizer */
    clattn_safetensors *file;
    clattn_stack_desc stack;
    int32_t pooling;    /* clattn_pooling */
    size_t most_tokens; /* of a text, [CLS] and [SEP] included */
    const char *solver; /* the attention's; NULL: the best.  Borrowed */
    clattn_dtype dtype; /* of weights and activations */
    tool_pool *pool;    /* borrowed */
    sentence_device on[POOL_MOST];
    size_t batch[SENTENCE_BUCKETS]; /* what plans of each bucket take; 0 before the first use */
} sentence_model;

typedef struct sentence_text {
    const char *text;
    size_t bytes;
} sentence_text;

typedef struct sentence_counts {
    size_t texts, tokens;    /* that the encoder has taken */
    size_t unknown;          /* words that the vocabulary lacks */
    size_t cut;              /* texts of which only the first most_tokens tokens were taken */
    size_t first_cut;        /* the first of them, from 0 */
    size_t first_cut_tokens; /* how many tokens that text has */
} sentence_counts;

/* Reads the files in the folder, the weights' values excepted, and begins to read the tokenizer's.  If `most_tokens` is 0, the
 * files say how many tokens of a text count.  Returns an exit status. */
int sentence_open(const char *folder, size_t most_tokens, sentence_model *model);

/* Waits for the tokenizer, which is there afterwards, and checks it.  Returns an exit status. */
int sentence_tokenizer(sentence_model *model);

/* Waits for the tokenizer, and uploads the weights to the devices. */
int sentence_load(sentence_model *model, tool_pool *pool);

/* Writes the vectors of `count` texts to `vectors`, (count, model->stack.d_model), and adds to *counts; blocks.  Batches do not depend
 * on how many devices there are. */
int sentence_encode(sentence_model *model, const sentence_text *texts, size_t count, float *vectors,
                    sentence_counts *counts);

/* The attention's solver in one of the plans; "" before the first. */
const char *sentence_solver(const sentence_model *model);

void sentence_close(sentence_model *model);

#endif
