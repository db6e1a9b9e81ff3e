/* Checks on layouts. */
#ifndef CLATTN_BASE_LAYOUT_H
#define CLATTN_BASE_LAYOUT_H

#include <stdbool.h>

#include "clattn/layout.h"

enum layout_use { LAYOUT_INPUT, LAYOUT_OUTPUT };

bool layout_is_none(const clattn_layout *layout);

/* The product of the extents of a layout that layout_check has passed. */
size_t layout_elements(const clattn_layout *layout);

/* Zeroes what does not count, so that equal layouts are equal bytes. */
void layout_normalise(clattn_layout *layout);

/* Dtype, rank, overflow, and for an output that its elements do not overlap (dimensions must nest).  A layout
 * with a zero extent passes.  *reason is a static string when it does not. */
clattn_status layout_check(const clattn_layout *layout, enum layout_use use, const char **reason);

/* The lowest and the highest element index that the first extent[i] elements of each dimension reach, all
 * extents being at least 1.  False on overflow. */
bool layout_reach(const clattn_layout *layout, const size_t *extent, int64_t offset, int64_t *lowest,
                  int64_t *highest);

#endif
