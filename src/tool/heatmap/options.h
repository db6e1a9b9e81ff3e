/* Heat maps of one attention: their options, and the calls by which a command checks and writes them. */
#ifndef CLATTN_TOOL_HEATMAP_OPTIONS_H
#define CLATTN_TOOL_HEATMAP_OPTIONS_H

#include "tool/heatmap/heatmap.h"
#include "tool/heatmap/labels.h"
#include "tool/cli/options.h"

typedef struct heatmap_options {
    option_list files;
    const char *labels, *key_labels;
} heatmap_options;

/* Rows of a command's table, for its field `field`. */
#define HEATMAP_OPTION_ROWS(type, field) \
    {"--attention", OPTION_LIST, offsetof(type, field.files), "OUT.html|OUT.png", \
     .help = "draw the probabilities: a page to look around in, or a picture; may be given for both"}, \
        {"--labels", OPTION_TEXT, offsetof(type, field.labels), "FILE.txt", \
         .help = "what --attention calls the queries, a line each, and the keys of the same sequence"}, \
        {"--key-labels", OPTION_TEXT, offsetof(type, field.key_labels), "FILE.txt", \
         .help = "what it calls the keys, where they are others"}

/* --attention of a command that runs a model, whose tokens name themselves: its field `field` is an option_list. */
#define HEATMAP_OPTION_ROW(type, field, what) \
    {"--attention", OPTION_LIST, offsetof(type, field), "OUT.html|OUT.png", \
     .help = "draw " what ": a page to look around in, or a picture; may be given for both"}

/* Refuses, before any work, files of maps whose names are none, that cannot be written, or are one of the inputs (NULLs
 * are accepted) or each other. */
int heatmap_files_check(const option_list *files, const char *const *inputs, size_t input_count);

/* heatmap_check and heatmap_store of each file. */
int heatmap_files_accept(const option_list *files, const heatmap *map);
int heatmap_files_store(const option_list *files, const heatmap *map);

/* Refuses labels if no map is asked for. */
int heatmap_options_check(const char *command, const heatmap_options *options);

/* Refuses a map in the file of another output, of which NULLs are accepted, or of another map. */
int heatmap_files_check_distinct(const option_list *files, const char *const *outputs, size_t count);

typedef struct heatmap_shape {
    size_t batch, heads, queries, keys;
} heatmap_shape;

/* The maps that were asked for, with their labels. A zeroed one has none. Release with heatmap_request_release. */
typedef struct heatmap_request {
    const heatmap_options *options; /* borrowed */
    label_list query, key;
    heatmap_part part;
    char title[512];
} heatmap_request;

/* Before the work.  `same`: as many keys as queries are the same sequence, so that one file labels both; `name` is the
 * input's. */
int heatmap_request_begin(const heatmap_options *options, const heatmap_shape *shape, bool same, const char *name,
                          heatmap_request *request);

/* Writes the maps of probabilities (batch, heads, queries, keys), if any were asked for. */
int heatmap_request_store(heatmap_request *request, const float *probabilities);

void heatmap_request_release(heatmap_request *request);

#endif
