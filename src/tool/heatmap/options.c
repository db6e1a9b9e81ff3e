#include "tool/heatmap/options.h"

#include <stdio.h>
#include <stdlib.h>

#include "tool/run/host.h"
#include "tool/tool.h"

int heatmap_files_check(const option_list *files, const char *const *inputs, size_t input_count)
{
    const heatmap none = {0};
    int status;
    TOOL_TRY(heatmap_files_accept(files, &none));
    for (size_t i = 0; i < files->count; i++)
        TOOL_TRY(host_check_output(files->item[i], inputs, input_count));
    TOOL_TRY(heatmap_files_check_distinct(files, NULL, 0));
fail:
    return status;
}

int heatmap_files_accept(const option_list *files, const heatmap *map)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < files->count && status == TOOL_DONE; i++)
        status = heatmap_check(map, files->item[i]);
    return status;
}

int heatmap_files_store(const option_list *files, const heatmap *map)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < files->count && status == TOOL_DONE; i++)
        status = heatmap_store(map, files->item[i]);
    return status;
}

int heatmap_options_check(const char *command, const heatmap_options *options)
{
    const char *given = options->labels != NULL ? "--labels" : options->key_labels != NULL ? "--key-labels" : NULL;
    if (given == NULL || options->files.count > 0)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "%s: %s is given without --attention OUT.html", command, given);
}

int heatmap_files_check_distinct(const option_list *files, const char *const *outputs, size_t count)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < files->count; i++) {
        for (size_t j = 0; j < i; j++)
            TOOL_TRY(host_check_distinct(files->item[j], files->item[i]));
        for (size_t j = 0; j < count; j++)
            TOOL_TRY(host_check_distinct(outputs[j], files->item[i]));
    }
fail:
    return status;
}

static int load_labels(const heatmap_options *options, bool same, heatmap_request *request)
{
    heatmap_axis *query = &request->part.query, *key = &request->part.key;
    int status = TOOL_DONE;
    if (options->labels != NULL)
        TOOL_TRY(labels_load(options->labels, query->count, "queries", &request->query));
    if (options->key_labels != NULL)
        TOOL_TRY(labels_load(options->key_labels, key->count, "keys", &request->key));
    query->labels = request->query.label;
    key->labels = request->key.label;
    if (key->labels == NULL && same && key->count == query->count)
        key->labels = query->labels;
fail:
    return status;
}

int heatmap_request_begin(const heatmap_options *options, const heatmap_shape *shape, bool same, const char *name,
                          heatmap_request *request)
{
    *request = (heatmap_request){.options = options};
    if (options->files.count == 0)
        return TOOL_DONE;
    request->part = (heatmap_part){
        .name = "attention",
        .layer_name = "batch item",
        .layers = shape->batch,
        .heads = shape->heads,
        .query = {.name = "query", .count = shape->queries, .step = 1.0},
        .key = {.name = "key", .count = shape->keys, .step = 1.0},
    };
    snprintf(request->title, sizeof request->title, "Attention of %s", name);
    const heatmap map = {request->title, 1, &request->part};
    int status;
    TOOL_TRY(heatmap_files_accept(&options->files, &map));
    TOOL_TRY(load_labels(options, same, request));
fail:
    if (status != TOOL_DONE)
        heatmap_request_release(request);
    return status;
}

int heatmap_request_store(heatmap_request *request, const float *probabilities)
{
    const heatmap map = {request->title, 1, &request->part};
    request->part.values = probabilities;
    return heatmap_files_store(&request->options->files, &map);
}

void heatmap_request_release(heatmap_request *request)
{
    labels_release(&request->query);
    labels_release(&request->key);
    *request = (heatmap_request){0};
}
