#include "pictures/prefix.h"

#include <string.h>

bool find_prefix(const clattn_safetensors *file, clattn_name_format format, char prefix[PREFIX_BYTES])
{
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_safetensors_entry entry;
    char name[256];
    size_t share, shares, least = SIZE_MAX;
    int32_t transposed;
    source.format = format;
    const size_t length =
        clattn_weight_name(&source, "encoder.patches.weight", name, sizeof name, &share, &shares, &transposed);
    for (size_t i = 0; clattn_safetensors_at(file, i, &entry) == CLATTN_SUCCESS; i++) {
        const size_t whole = strlen(entry.name), before = whole - length;
        if (whole < length || before >= PREFIX_BYTES || before >= least || strcmp(entry.name + before, name) != 0 ||
            (before > 0 && entry.name[before - 1] != '.'))
            continue;
        least = before;
        memcpy(prefix, entry.name, before);
        prefix[before] = '\0';
    }
    return least != SIZE_MAX;
}
