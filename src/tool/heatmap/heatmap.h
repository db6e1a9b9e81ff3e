/* Heat maps of attention: matrices of probabilities, a row for each query and a column for each key, of any number
 * of layers and heads, as a page for a browser (.html) or as a picture (.png).
 *
 * The page stands alone: it holds its program, its style and its numbers, and loads nothing.  What is shown is
 * chosen in it, by mouse or keys.  Probabilities are stored as 16-bit numbers, 0 ... 65534 for 0 ... the largest of
 * their matrix, so that they are off by at most largest / 131068; 65535 is NaN.
 *
 * The picture has a line for each layer of each part and in it, from left to right, the heads; those of a part with
 * one layer go into lines of ⌈√heads⌉.  In each matrix queries go down and keys to the right, every cell a square of
 * the same size, from white for 0 to dark blue for the largest of that matrix.  NaN is magenta.  Grey, 2 pixels wide,
 * stands around and between the matrices, and where there is none.
 *
 * If keys are patches of a picture, the page also shows them over it, for the query that is chosen.  The PNG file then has a
 * line for each part instead of matrices: the picture, and the same with what the mean of the last layer's heads attends
 * to.  Each pixel is 2/5 the picture's and 3/5 a colour, from dark blue for 0 to pale yellow for the largest of the patches. */
#ifndef CLATTN_TOOL_HEATMAP_HEATMAP_H
#define CLATTN_TOOL_HEATMAP_HEATMAP_H

#include <stdbool.h>
#include <stddef.h>

/* The most probabilities of one file, with which a page has about 45 MB. */
#define HEATMAP_CELLS ((size_t)1 << 24)

/* One side of a matrix. */
typedef struct heatmap_axis {
    const char *name; /* of one element: "query", "word", "time" */
    size_t count;
    const char *const *labels; /* `count` of them, any bytes; or NULL: they are numbers, */
    double first, step;        /* first + step * index, */
    const char *unit;          /* followed by this: " s"; NULL: by nothing */
} heatmap_axis;

/* A picture of which keys are patches, row by row.  All is borrowed. */
typedef struct heatmap_picture {
    size_t width, height;        /* in pixels, multiples of columns and rows */
    size_t rows, columns;        /* of patches */
    size_t first;                /* the key that is the first patch */
    bool summary;                /* the PNG shows what query 0 attends to; false: the mean of the patches' queries */
    const unsigned char *pixels; /* (height, width, 3); may be NULL for heatmap_check */
} heatmap_picture;

/* Matrices with the same axes, such as a decoder's self-attention. */
typedef struct heatmap_part {
    const char *name;       /* "self", "cross" */
    const char *layer_name; /* of one layer: "layer", "batch item" */
    size_t layers, heads;
    heatmap_axis query, key;
    const float *values;            /* (layers, heads, queries, keys), contiguous */
    const heatmap_picture *picture; /* NULL: there is none; all parts of a map have one or none has */
} heatmap_part;

/* All is borrowed. */
typedef struct heatmap {
    const char *title;
    size_t part_count;
    const heatmap_part *parts;
} heatmap;

/* Refuses a path with another ending and a map that is too large. Called before the computation, so that the map needs
 * no data yet. */
int heatmap_check(const heatmap *map, const char *path);

/* Writes a map that heatmap_check has accepted; the file changes as a whole or not at all. */
int heatmap_store(const heatmap *map, const char *path);

/* Parts of heatmap_store, each in a file of its own, and what they share. */
int heatmap_store_html(const heatmap *map, const char *path);
int heatmap_check_png(const heatmap *map, const char *path);
int heatmap_store_png(const heatmap *map, const char *path);
int heatmap_check_overlay(const heatmap *map, const char *path);
int heatmap_store_overlay(const heatmap *map, const char *path);
const float *heatmap_row(const heatmap_part *part, size_t layer, size_t head, size_t query);
float heatmap_largest(const heatmap_part *part, size_t layer,
                      size_t head); /* NaN is not counted; 0 if there is nothing else */

#endif
