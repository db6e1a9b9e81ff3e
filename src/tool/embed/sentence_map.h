/* The attention probabilities of a sentence encoder, for a heat map: for each text, layer and head. */
#ifndef CLATTN_TOOL_EMBED_SENTENCE_MAP_H
#define CLATTN_TOOL_EMBED_SENTENCE_MAP_H

#include "tool/heatmap/heatmap.h"
#include "tool/embed/sentence.h"

typedef struct sentence_map_text sentence_map_text;

/* A zeroed one is empty.  It borrows the model's token texts: release it with sentence_map_release before the model is
 * closed. */
typedef struct sentence_map {
    size_t count;
    heatmap_part *parts;      /* owned, one a text: (layers, heads, tokens, tokens) */
    sentence_map_text *texts; /* owned */
} sentence_map;

/* Cuts `count` texts into tokens, so that the map's size can be checked before the computation; needs no device.
 * Returns an exit status. */
int sentence_map_begin(const sentence_model *model, const sentence_text *texts, size_t count, sentence_map *map);

/* Computes the probabilities of one text after another; blocks.  The map has been accepted by heatmap_check. */
int sentence_map_compute(sentence_model *model, sentence_map *map);

void sentence_map_release(sentence_map *map);

#endif
