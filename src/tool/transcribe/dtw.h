/* Finds the frames of a recording to which a text's tokens belong, by attention. */
#ifndef CLATTN_TOOL_TRANSCRIBE_DTW_H
#define CLATTN_TOOL_TRANSCRIBE_DTW_H

#include <stdbool.h>
#include <stddef.h>

/* Each value becomes the median of the `width` (odd, up to 31) around it, the row being mirrored at its ends.
 * Rows of no more than width / 2 values stay as they are.  `to` is not `from`. */
void median_filter(const float *from, size_t rows, size_t columns, size_t width, float *to);

/* Dynamic time warping: the way from (0, 0) to (rows - 1, columns - 1), by steps of one row, one column or
 * both, along which the sum of `matrix` is largest.  Of equal ways, one that moves by columns.  first[r]
 * becomes the first column of row r. Both extents are at least 1.  False when memory runs out. */
bool dtw_rows(const float *matrix, size_t rows, size_t columns, size_t *first);

/* Aligns tokens with frames by the attention probabilities of `heads` heads, (heads, tokens, stride), of which the
 * first `frames` frames (1 or more) count.  The steps are: each frame's share among these; each head's frame's
 * values over all tokens with mean 0 and variance 1; the median of 7 frames; the mean of the heads; then dtw_rows
 * over `rows` tokens from `skip` on.  False if memory runs out. */
bool align_tokens(const float *probabilities, size_t heads, size_t tokens, size_t stride, size_t frames, size_t skip,
                  size_t rows, size_t *first);

#endif
