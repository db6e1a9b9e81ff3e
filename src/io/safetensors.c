#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "io/safetensors.h"

#define LENGTH_BYTES 8
#define HEADER_MOST 100000000

struct clattn_safetensors {
    tensor_table table;
    const void *map;
    size_t map_bytes;
    const char *data; /* in the map, after the header */
    char path[];      /* for messages */
};

/* Reads the header's length, the first eight bytes, and checks it against the file's size. */
static clattn_status read_length(const os_file *file, size_t *length, clattn_io_error *error)
{
    unsigned char bytes[LENGTH_BYTES];
    if (file->size < LENGTH_BYTES)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "is not a safetensors file (%zu bytes)", file->size);
    clattn_status status = os_file_read(file, 0, bytes, sizeof bytes, error);
    if (status != CLATTN_SUCCESS)
        return status;
    uint64_t value = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    if (value > file->size - LENGTH_BYTES)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path,
                       "is not a safetensors file, or is cut short: its header would have %llu bytes, the file "
                       "has %zu",
                       (unsigned long long)value, file->size);
    if (value > HEADER_MOST)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path,
                       "its safetensors header has %llu bytes, expected at most %d", (unsigned long long)value,
                       HEADER_MOST);
    *length = (size_t)value;
    return CLATTN_SUCCESS;
}

clattn_status clattn_safetensors_create(const char *path, clattn_safetensors **file, clattn_io_error *error)
{
    os_file source = OS_FILE_INIT;
    clattn_safetensors *made = NULL;
    size_t length = 0;

    if (file != NULL)
        *file = NULL;
    if (path == NULL || file == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "safetensors file",
                       "its path or the result's place is NULL");
    clattn_status status;
    TRY(os_file_open(&source, path, error));
    TRY(read_length(&source, &length, error));
    made = calloc(1, sizeof *made + strlen(path) + 1);
    if (made == NULL)
        TRY(io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its handle"));
    strcpy(made->path, path);
    TRY(tensor_table_read(&made->table, &source, length, source.size - LENGTH_BYTES - length, error));
    TRY(os_file_map(&source, &made->map, error));
    made->map_bytes = source.size;
    made->data = (const char *)made->map + LENGTH_BYTES + length;
fail:
    os_file_close(&source);
    if (status != CLATTN_SUCCESS)
        clattn_safetensors_release(&made);
    *file = made;
    return status;
}

size_t clattn_safetensors_count(const clattn_safetensors *file)
{
    return file != NULL ? file->table.count : 0;
}

static bool usable(const tensor_record *record)
{
    return record->dtype != CLATTN_DTYPE_NONE && record->rank <= CLATTN_MAX_RANK;
}

static clattn_host_tensor make_tensor(const clattn_safetensors *file, const tensor_record *record)
{
    clattn_host_tensor tensor = {0};
    tensor.bytes = record->bytes;
    tensor.data = record->bytes > 0 ? file->data + record->begin : NULL;
    if (usable(record)) {
        tensor.dtype = record->dtype;
        tensor.rank = record->rank;
        memcpy(tensor.extent, record->extent, record->rank * sizeof record->extent[0]);
    }
    return tensor;
}

clattn_status clattn_safetensors_at(const clattn_safetensors *file, size_t index, clattn_safetensors_entry *entry)
{
    if (entry == NULL)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *entry = (clattn_safetensors_entry){0};
    if (file == NULL || index >= file->table.count)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    const tensor_record *record = file->table.index[index];
    entry->name = tensor_record_name(record);
    entry->dtype_name = tensor_record_dtype_name(record);
    entry->tensor = make_tensor(file, record);
    return CLATTN_SUCCESS;
}

static int name_against(const void *name, const void *element)
{
    return strcmp(name, tensor_record_name(*(tensor_record *const *)element));
}

clattn_status clattn_safetensors_find(const clattn_safetensors *file, const char *name, clattn_host_tensor *tensor,
                                      clattn_io_error *error)
{
    if (tensor != NULL)
        *tensor = (clattn_host_tensor){0};
    if (file == NULL || name == NULL || tensor == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, file != NULL ? file->path : "safetensors file",
                       "a NULL among the arguments");
    tensor_record *const *found =
        bsearch(name, file->table.index, file->table.count, sizeof *file->table.index, name_against);
    if (found == NULL)
        return CLATTN_SUCCESS;
    if (!usable(*found))
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path,
                       "tensor '%.100s' has element type %s and rank %d, expected F32 F16 BF16 F64 BOOL I32 I64 U8 or "
                       "I8 and rank at most %d",
                       name, tensor_record_dtype_name(*found), (*found)->rank, CLATTN_MAX_RANK);
    *tensor = make_tensor(file, *found);
    return CLATTN_SUCCESS;
}

clattn_status clattn_safetensors_lookup(void *user, const char *name, clattn_host_tensor *tensor,
                                        clattn_io_error *error)
{
    return clattn_safetensors_find(user, name, tensor, error);
}

void clattn_safetensors_release(clattn_safetensors **file)
{
    if (file == NULL || *file == NULL)
        return;
    os_file_unmap((*file)->map, (*file)->map_bytes);
    tensor_table_release(&(*file)->table);
    free(*file);
    *file = NULL;
}
