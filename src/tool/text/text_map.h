/* The attention probabilities of the decoder of a model of texts, for a heat map: for each item, layer and head.
 *
 * A translation's is what each piece of the output, when it was chosen, has seen of the source; of a text that was gone on
 * with, what each piece sees of those before. */
#ifndef CLATTN_TOOL_TEXT_TEXT_MAP_H
#define CLATTN_TOOL_TEXT_TEXT_MAP_H

#include "tool/heatmap/heatmap.h"
#include "tool/text/generator.h"

typedef struct text_map_part text_map_part;

/* A zeroed one is empty.  It borrows the vocabulary's pieces: release it before the model is closed. */
typedef struct text_map {
    size_t count;
    heatmap_part *parts;  /* owned, one for each item that has an output */
    text_map_part *texts; /* owned */
} text_map;

/* Names the parts and their pieces, so that the map's size can be checked before the computation.  Returns an exit status; the
 * caller releases the map in any case. */
int text_map_begin(const text_model *model, const text_item *items, size_t count, text_map *map);

/* Computes the probabilities of one part after another; blocks.  The map has been accepted by heatmap_check. */
int text_map_compute(text_generator *g, text_map *map);

void text_map_release(text_map *map);

#endif
