/* WordPiece, the tokenizer of BERT and of the sentence encoders that are made of BERT: text to token numbers.
 *
 * The steps are those of PyPI's package tokenizers (BertNormalizer, BertPreTokenizer, WordPiece, [CLS] A [SEP]).
 * The tests compare the numbers with that package's on thousands of strings.
 *
 *   1. A special token ("[SEP]") that the text contains is cut out and stands for itself.
 *   2. The text between special tokens is normalised, as bert_text.h says: cleaning, spaces around Chinese
 *      characters, no accents, lower case.
 *   3. White space ends a word, and each punctuation mark is a word.
 *   4. A word is cut greedily into the longest pieces that the vocabulary has; every piece but the first has the
 *      prefix "##".  A word that cannot be cut so, or has more than 100 characters, becomes [UNK].
 *
 * A byte that is part of no well-formed UTF-8 counts as U+FFFD, which cleaning drops. */
#ifndef CLATTN_TOOL_EMBED_WORDPIECE_H
#define CLATTN_TOOL_EMBED_WORDPIECE_H

#include <clattn/io.h>

#include "tool/embed/bert_text.h"

/* Immutable: any number of threads may encode with one tokenizer. */
typedef struct wordpiece wordpiece;

/* Reads vocab.txt: UTF-8, one token a line, numbered from 0, with [UNK], [CLS] and [SEP], none twice, none empty.
 * The tokenizer is that of uncased BERT: all of bert_rules apply.
 *
 * CLATTN_ERROR_IO; CLATTN_ERROR_FORMAT: the file is not as described; CLATTN_ERROR_UNSUPPORTED: it has over 16 MiB
 * or 2^20 tokens, or a token of over 1,024 bytes; CLATTN_ERROR_OUT_OF_MEMORY. */
clattn_status wordpiece_open_vocab(const char *path, wordpiece **tokenizer, clattn_io_error *error);

/* Reads tokenizer.json: a WordPiece model, BertNormalizer, BertPreTokenizer, and a post-processor of BERT's
 * form, within the limits of vocab.txt.  Truncation and padding are ignored: the caller limits the tokens.
 *
 * The statuses of wordpiece_open_vocab; CLATTN_ERROR_UNSUPPORTED also for tokenizers of other kinds. */
clattn_status wordpiece_open_json(const char *path, wordpiece **tokenizer, clattn_io_error *error);

/* Frees *tokenizer and sets it to NULL; NULL and a pointer to NULL are accepted. */
void wordpiece_close(wordpiece **tokenizer);

/* The largest token number plus 1. */
size_t wordpiece_size(const wordpiece *tokenizer);

/* The text of a token number, or NULL if there is none.  It lives as long as the tokenizer. */
const char *wordpiece_token(const wordpiece *tokenizer, int32_t number);

/* The tokens of one text; a zeroed one is empty.  One may be used for one text after another, and is freed by
 * wordpiece_ids_release. */
typedef struct wordpiece_ids {
    int32_t *id; /* [CLS] … [SEP] */
    size_t count;
    size_t capacity;
    size_t total;   /* tokens of the text, also those beyond the limit */
    size_t unknown; /* words of the text that became [UNK] */
} wordpiece_ids;

/* Puts the first most − 2 tokens of the text between [CLS] and [SEP]; `most` is 2 or more.  The memory is bounded
 * by `most`, the time is linear in `bytes`.  CLATTN_SUCCESS or CLATTN_ERROR_OUT_OF_MEMORY. */
clattn_status wordpiece_encode(const wordpiece *tokenizer, const char *text, size_t bytes, size_t most,
                               wordpiece_ids *ids);

void wordpiece_ids_release(wordpiece_ids *ids);

#endif
