/* The texts that a model is trained with: lines of files, and the pieces that they are cut into. */
#ifndef CLATTN_TOOL_TRAIN_CORPUS_H
#define CLATTN_TOOL_TRAIN_CORPUS_H

#include "tool/text/text_lines.h"
#include "tool/text/text_model.h"

/* The lines of two files, or of one.  A zeroed one is empty. */
typedef struct train_lines {
    const char *path[2]; /* source and target; a text's is the target, and there is no source.  Borrowed */
    text_lines side[2];
} train_lines;

/* Reads the files.  Refuses pairs of different numbers of lines, and pairs with an empty line; empty lines of a text alone are
 * left out.  Returns an exit status; the caller calls train_lines_release in any case. */
int train_lines_read(const char *source, const char *target, train_lines *lines);

void train_lines_release(train_lines *lines);

/* An item: its source with VOCABULARY_END, and its target with VOCABULARY_BEGIN before and VOCABULARY_END behind it. */
typedef struct train_item {
    size_t first;  /* of train_items.ids */
    size_t source; /* pieces; 0: a text */
    size_t target; /* pieces that the decoder reads, which are one less than there are */
} train_item;

/* A zeroed one is empty. */
typedef struct train_items {
    vocabulary_ids ids;
    train_item *item;
    size_t count, capacity;
    size_t left_out; /* pairs that are longer than the model takes */
} train_items;

/* Cuts the lines with numbers n (from 0) for which n % of is at least `from` and less than `to`.  A pair that is longer than
 * the model takes is left out, a text is cut.  Returns an exit status; the caller calls train_items_release in any case. */
int train_items_cut(const train_lines *lines, const text_model *model, size_t from, size_t to, size_t of,
                    train_items *items);

void train_items_release(train_items *items);

/* A number for which items train and which validate. */
uint64_t train_items_digest(const train_items *train, const train_items *validate);

#endif
