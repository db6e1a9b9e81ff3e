/* A vocabulary of pieces of words, made from texts by Debian's sentencepiece: texts to numbers, and back. */
#ifndef CLATTN_TOOL_TEXT_VOCABULARY_H
#define CLATTN_TOOL_TEXT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ids that are no piece of a text. */
enum { VOCABULARY_PAD = 0, VOCABULARY_UNKNOWN = 1, VOCABULARY_BEGIN = 2, VOCABULARY_END = 3, VOCABULARY_SPECIALS = 4 };

#define VOCABULARY_MOST 65536 /* pieces */

/* Immutable: any number of threads may use one at once. */
typedef struct vocabulary vocabulary;

/* Numbers of pieces.  Zeroed, it is empty; the caller frees `id`. */
typedef struct vocabulary_ids {
    int32_t *id;
    size_t count, capacity;
} vocabulary_ids;

/* Makes a vocabulary of at most `pieces` pieces, those above included, of the lines of all `files`, and writes it to `path`,
 * whole or not at all.  The same lines in the same order give the same bytes.  Texts with few words have fewer pieces.
 * Returns an exit status. */
int vocabulary_train(const char *const *files, size_t count, size_t pieces, const char *path);

/* Returns an exit status; the caller closes *result. */
int vocabulary_open(const char *path, vocabulary **result);

/* Accepts NULL. */
void vocabulary_close(vocabulary *v);

size_t vocabulary_size(const vocabulary *v);

/* Appends the numbers of a text's pieces, nothing before or behind them.  Bytes that are not UTF-8 are unknown pieces.  Returns
 * an exit status. */
int vocabulary_encode(const vocabulary *v, const char *text, size_t bytes, vocabulary_ids *ids);

/* Appends one number.  Returns an exit status. */
int vocabulary_append(vocabulary_ids *ids, int32_t id);

/* Makes *text, which the caller frees, of the pieces; those that are no piece of a text make none.  All numbers are of this
 * vocabulary.  Returns an exit status. */
int vocabulary_decode(const vocabulary *v, const int32_t *ids, size_t count, char **text);

/* The piece of a number of this vocabulary as it is shown, with U+2581 in place of a space; it lives as long as `v`. */
const char *vocabulary_piece(const vocabulary *v, int32_t id);

#ifdef __cplusplus
}
#endif

#endif
