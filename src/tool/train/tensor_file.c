#include "tool/train/tensor_file.h"

#include <stdlib.h>
#include <string.h>

#include "io/os_file.h"
#include "tool/cli/json_text.h"
#include "tool/tool.h"

/* Adds the description of a tensor whose data begins at `begin`. */
static void describe(json_t *header, const train_tensor *t, size_t begin)
{
    char name[512];
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->tensor.rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->tensor.extent[i]));
    snprintf(name, sizeof name, "%s%s", t->prefix, t->name);
    json_object_set_new(header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->tensor.dtype == CLATTN_DTYPE_U8 ? "U8" : "F32",
                                  "shape", shape, "data_offsets", (json_int_t)begin,
                                  (json_int_t)(begin + t->tensor.bytes)));
}

int train_tensors_write(const char *path, const train_tensor *tensors, size_t count)
{
    static const char spaces[8] = "       ";
    clattn_io_error error;
    os_part *parts = calloc(count + 3, sizeof *parts);
    json_t *header = json_object();
    size_t bytes = 0;
    uint8_t length[8];
    int status = TOOL_DONE;
    for (size_t i = 0; i < count && parts != NULL; i++) {
        describe(header, &tensors[i], bytes);
        parts[i + 3] = (os_part){tensors[i].tensor.data, tensors[i].tensor.bytes};
        bytes += tensors[i].tensor.bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (parts == NULL || text == NULL || json_memory_failed())
        TOOL_TRY(complain(TOOL_FAILED, "%s: no memory to write it", path));
    const size_t used = strlen(text), padding = (8 - used % 8) % 8;
    for (size_t i = 0; i < 8; i++)
        length[i] = (uint8_t)((used + padding) >> 8 * i);
    parts[0] = (os_part){length, sizeof length};
    parts[1] = (os_part){text, used};
    parts[2] = (os_part){spaces, padding};
    if (os_file_replace(path, parts, count + 3, &error) != CLATTN_SUCCESS)
        status = complain(TOOL_FAILED, "%s", error.message);
fail:
    json_release(text);
    free(parts);
    return status;
}
