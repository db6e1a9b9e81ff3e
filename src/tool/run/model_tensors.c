#include "tool/run/model_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "io/common.h"

clattn_status model_count_numbered(const clattn_safetensors *file, const char *path, const char *stem, size_t most,
                                   size_t *count, clattn_io_error *error)
{
    const size_t length = strlen(stem);
    clattn_safetensors_entry entry;
    *count = 0;
    for (size_t i = 0; clattn_safetensors_at(file, i, &entry) == CLATTN_SUCCESS; i++) {
        if (strncmp(entry.name, stem, length) != 0)
            continue;
        const size_t digits = strspn(entry.name + length, "0123456789");
        const unsigned long found = strtoul(entry.name + length, NULL, 10);
        if (digits == 0 || entry.name[length + digits] != '.')
            continue;
        if (digits > 6 || found >= most)
            return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "has a layer %.20s, expected at most %zu layers",
                           entry.name + length, most);
        *count = found + 1 > *count ? found + 1 : *count;
    }
    return CLATTN_SUCCESS;
}
