/* What the last layer's positions of pictures attend to, as heat maps over the pictures. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_ATTENTION_H
#define CLATTN_TOOL_EMBED_IMAGE_ATTENTION_H

#include "tool/embed_image/vision.h"
#include "tool/heatmap/heatmap.h"

/* A zeroed one has none.  Release with vision_map_release. */
typedef struct vision_map {
    size_t count; /* of pictures */
    heatmap_part *parts;
    struct vision_map_picture *pictures;
    char *text;          /* the labels' */
    const char **labels; /* of positions, which all pictures share */
} vision_map;

/* Prepares the maps of the PNG files at `paths`, which are borrowed; needs no device.  Returns an exit status. */
int vision_map_begin(const vision_model *model, const char *const *paths, size_t count, vision_map *map);

/* Computes what they show; blocks. */
int vision_map_compute(const vision_model *model, vision_map *map);

void vision_map_release(vision_map *map);

#endif
