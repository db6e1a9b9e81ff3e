/* WordPiece, as BERT and the sentence encoders made of it have it: text to token numbers.
 *
 * The steps are those of the tokenizers package of PyPI (BertNormalizer, BertPreTokenizer, WordPiece, [CLS] A
 * [SEP]), and the numbers the same, which the tests hold on thousands of strings:
 *
 *   1. the special tokens ("[SEP]"), where the text itself has them, are cut out and stand for themselves;
 *   2. in between, what bert_text.h says: cleaning, spaces around Chinese characters, accents, lower case;
 *   3. words end at white space, and each punctuation mark is a word;
 *   4. a word is cut greedily into the longest pieces that the vocabulary has, all but the first with the
 * prefix "##"; one that cannot be cut so, or has more than 100 characters, is [UNK] as a whole.
 *
 * Text need not be well-formed UTF-8: what is not counts as U+FFFD, which cleaning drops. */
#ifndef CLATTN_TOOL_EMBED_WORDPIECE_H
#define CLATTN_TOOL_EMBED_WORDPIECE_H

#include <clattn/io.h>

#include "tool/embed/bert_text.h"

/* Immutable: any number of threads may encode by one. */
typedef struct wordpiece wordpiece;

/* Reads vocab.txt: UTF-8, a token a line, the first of number 0, [UNK], [CLS] and [SEP] among them, no token
 * twice, none empty.  The rules are those of uncased BERT: all of bert_rules.
 *
 * CLATTN_ERROR_IO, CLATTN_ERROR_FORMAT: not what is said above; CLATTN_ERROR_UNSUPPORTED: over 16 MiB, over
 * 2^20 tokens, or one of over 1,024 bytes; CLATTN_ERROR_OUT_OF_MEMORY. */
clattn_status wordpiece_open_vocab(const char *path, wordpiece **tokenizer, clattn_io_error *error);

/* Reads tokenizer.json: a WordPiece model, BertNormalizer, BertPreTokenizer, and a post-processor of BERT's
 * form; the same limits.  Its truncation and padding are ignored: the caller says how much is wanted.
 *
 * The same statuses; CLATTN_ERROR_UNSUPPORTED also for tokenizers of other kinds. */
clattn_status wordpiece_open_json(const char *path, wordpiece **tokenizer, clattn_io_error *error);

/* Frees *tokenizer and sets it to NULL; NULL and a pointer to NULL are accepted. */
void wordpiece_close(wordpiece **tokenizer);

/* The largest number plus 1. */
size_t wordpiece_size(const wordpiece *tokenizer);

/* The text of a number; NULL if there is none.  Lives as long as the tokenizer. */
const char *wordpiece_token(const wordpiece *tokenizer, int32_t number);

/* The tokens of one text.  Zeroed: none.  Can be used for one text after another; wordpiece_ids_release frees
 * it. */
typedef struct wordpiece_ids {
    int32_t *id; /* [CLS] … [SEP] */
    size_t count;
    size_t capacity;
    size_t whole;   /* as many there would be without the limit */
    size_t unknown; /* words of the text that became [UNK] */
} wordpiece_ids;

/* The first most − 2 tokens of the text between [CLS] and [SEP]; `most` is 2 or more.  Memory is bound by
 * `most`, time is linear in `bytes`.  CLATTN_SUCCESS or CLATTN_ERROR_OUT_OF_MEMORY. */
clattn_status wordpiece_encode(const wordpiece *tokenizer, const char *text, size_t bytes, size_t most,
                               wordpiece_ids *ids);

void wordpiece_ids_release(wordpiece_ids *ids);

#endif
