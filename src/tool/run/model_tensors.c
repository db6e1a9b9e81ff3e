#include "tool/run/model_tensors.h"

#include "base/text/numbered.h"
#include "base/size.h"
#include "io/common.h"

clattn_status model_count_numbered(const clattn_safetensors *file, const char *path, const char *stem, size_t most,
                                   size_t *count, clattn_io_error *error)
{
    clattn_safetensors_entry entry;
    size_t found;
    *count = 0;
    for (size_t i = 0; clattn_safetensors_at(file, i, &entry) == CLATTN_SUCCESS; i++) {
        if (!numbered(entry.name, stem, &found))
            continue;
        if (found >= most)
            return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "has a layer %.20s, expected at most %zu layers",
                           entry.name + strlen(stem), most);
        *count = size_max(*count, found + 1);
    }
    return CLATTN_SUCCESS;
}
