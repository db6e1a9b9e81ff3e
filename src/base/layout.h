/* Checks on layouts. */
#ifndef CLATTN_BASE_LAYOUT_H
#define CLATTN_BASE_LAYOUT_H

#include <stdbool.h>

#include "clattn/layout.h"

enum layout_use { LAYOUT_INPUT, LAYOUT_OUTPUT };

bool layout_is_none(const clattn_layout *layout);

/* The product of the extents of a layout that layout_check has passed. */
size_t layout_elements(const clattn_layout *layout);

/* Zeroes the unused members of a layout, so that equal layouts are equal bytes. */
void layout_normalise(clattn_layout *layout);

/* Why a layout is refused, in words that name the array.  They are literals, for reasons are static strings. */
struct layout_words {
    const char *missing, *dtype, *rank, *extents, *reach, *overlap;
};

#define LAYOUT_WORDS(name) \
    {name ": the layout is missing", \
     name ": the layout has an unknown dtype", \
     name ": the layout's rank is not 1 to 5", \
     name ": the layout's extents overflow", \
     name ": the layout reaches beyond 63-bit addresses", \
     name ": the output layout's elements overlap"}

/* The words of one array as an argument; they live as long as the block that contains the expression. */
#define LAYOUT_OF(name) (&(const struct layout_words)LAYOUT_WORDS(name))

/* Checks dtype, rank and overflow, and that an output's elements do not overlap (its dimensions must nest).  A
 * layout with a zero extent passes.  If the check fails, *reason is one of `words`. */
clattn_status layout_check(const clattn_layout *layout, enum layout_use use, const struct layout_words *words,
                           const char **reason);

/* One layout of a description. */
struct layout_rule {
    clattn_layout *layout;
    const struct layout_words *words;
    enum layout_use use;
    int32_t rank; /* the rank that the layout must have; 0: any */
    bool optional;
};

/* Runs layout_check on each layout that is present; returns INVALID_LAYOUT with the reason `ranks` if a layout has
 * another rank than its rule says.  All layouts are normalised. */
clattn_status layouts_read(const struct layout_rule *rules, size_t count, const char *ranks, const char **reason);

/* Finds the lowest and the highest element index that the first extent[i] elements of each dimension reach; every
 * extent is at least 1.  False on overflow. */
bool layout_reach(const clattn_layout *layout, const size_t *extent, int64_t offset, int64_t *lowest, int64_t *highest);

/* An array in memory: the first extent[i] elements of each dimension of `layout`, beginning at element `offset`
 * after `address` (in bytes; 0 for an array in a buffer). */
struct array_place {
    const clattn_layout *layout;
    const size_t *extent;
    uint64_t address;
    int64_t offset;
};

/* Whether two arrays, in one buffer or in the address space of shared virtual memory, have a byte in common.  The
 * answer is exact unless the layouts are so contrived that the search takes more than OVERLAP_STEPS steps: such
 * arrays, and arrays that reach beyond all memory, count as overlapping. */
#define OVERLAP_STEPS 4096
bool arrays_overlap(const struct array_place *a, const struct array_place *b);

/* Whether the elements with equal indices have the same place in both arrays. */
bool arrays_coincide(const struct array_place *a, const struct array_place *b);

#endif
