/* The cross-attention of each layer and head of a Whisper model's decoder, of the tokens of a window's text over time,
 * for a heat map.
 *
 * A window's text is read once more, as for the times of words: all at once, without timestamps.  The row of a token
 * is the attention from which it is chosen; the last row chooses the end of the text.  A column is 0.02 s, or a
 * power of two as much, whose probabilities are added, if the map would otherwise be too large.  Positions behind
 * the recording's end have no columns, so that a row's sum may be less than 1. */
#ifndef CLATTN_TOOL_TRANSCRIBE_MAP_H
#define CLATTN_TOOL_TRANSCRIBE_MAP_H

#include "tool/heatmap/heatmap.h"
#include "tool/transcribe/engine.h"

typedef struct whisper_map_window whisper_map_window;

/* Zeroed: empty.  Release with whisper_map_release. */
typedef struct whisper_map {
    size_t most; /* probabilities; 0: HEATMAP_CELLS */
    size_t count;
    heatmap_part *parts;         /* owned, one a window with text: (layers, heads, tokens, columns) */
    whisper_map_window *windows; /* owned */
    size_t merged;               /* positions in a column */
} whisper_map;

/* Adds the window that the engine has encoded: `ids` are what is read, as in whisper_engine's `align`, two tokens
 * before the text and one behind it; the window has `positions` and begins at `offset` seconds.  An exit status. */
int whisper_map_add(whisper_map *map, const whisper_engine *engine, const whisper_tokens *tokens, const int32_t *ids,
                    size_t count, double offset, size_t positions);

void whisper_map_release(whisper_map *map);

#endif
