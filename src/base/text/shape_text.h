/* Shapes in messages, as NumPy writes them: "(1, 8, 128, 64)". */
#ifndef CLATTN_BASE_TEXT_SHAPE_TEXT_H
#define CLATTN_BASE_TEXT_SHAPE_TEXT_H

#include <stdio.h>

#include "clattn/tensor.h"

typedef struct shape_text {
    char text[128];
} shape_text;

static inline shape_text shape_of_extents(int32_t rank, const size_t *extent)
{
    shape_text shape = {"("};
    size_t used = 1;
    for (int32_t i = 0; i < rank && used < sizeof shape.text; i++)
        used += (size_t)snprintf(shape.text + used, sizeof shape.text - used, "%s%zu", i == 0 ? "" : ", ", extent[i]);
    if (used < sizeof shape.text)
        snprintf(shape.text + used, sizeof shape.text - used, rank == 1 ? ",)" : ")");
    return shape;
}

static inline shape_text shape_of(const clattn_host_tensor *tensor)
{
    return shape_of_extents(tensor->rank, tensor->extent);
}

#endif
