/* Whom a sentence encoder's tokens attend to: the probabilities of each layer and head, text by text, for a heat map. */
#ifndef CLATTN_TOOL_EMBED_SENTENCE_MAP_H
#define CLATTN_TOOL_EMBED_SENTENCE_MAP_H

#include "tool/heatmap/heatmap.h"
#include "tool/embed/sentence.h"

typedef struct sentence_map_text sentence_map_text;

/* Zeroed: none.  Release with sentence_map_release, before the model is closed, whose tokens' names it borrows. */
typedef struct sentence_map {
    size_t count;
    heatmap_part *parts;      /* owned, one a text: (layers, heads, tokens, tokens) */
    sentence_map_text *texts; /* owned */
} sentence_map;

/* Tokens and sizes of the `count` texts, so that a map can be checked before the work: needs no device.  An exit status. */
int sentence_map_begin(const sentence_model *model, const sentence_text *texts, size_t count, sentence_map *map);

/* The probabilities, one text after the other; blocks.  The map has been accepted by heatmap_check. */
int sentence_map_compute(sentence_model *model, sentence_map *map);

void sentence_map_release(sentence_map *map);

#endif
