/* A safetensors header: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, …},
 * optionally with "__metadata__": {"KEY": "VALUE", …}, and spaces up to the header's given length. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "io/json_stream.h"
#include "io/safetensors.h"

/* The bytes that the records may have, including their index and the memory for sorting it.  Together with jansson's
 * values and the window they stay below the 1 MB that io.h promises.  So many are allocated before the header is read,
 * and those that no record has taken are given back after it. */
#define TABLE_BUDGET 800000
#define RANK_MOST 64
#define DTYPE_NAME_MOST 15

size_t tensor_record_extents(const tensor_record *record)
{
    return record->rank <= CLATTN_MAX_RANK ? record->rank : 0;
}

const char *tensor_record_name(const tensor_record *record)
{
    return (const char *)(record->extent + tensor_record_extents(record));
}

const char *tensor_record_dtype_name(const tensor_record *record)
{
    return tensor_record_name(record) + record->name_bytes;
}

/* Appends a record with room for `bytes`.  Each record also needs a pointer in the index, and qsort may copy that. */
static tensor_record *append_record(tensor_table *table, size_t bytes, const os_file *file, clattn_status *status,
                                    clattn_io_error *error)
{
    const size_t index = (table->count + 1) * 2 * sizeof(tensor_record *);
    tensor_record *record = (tensor_record *)(void *)(table->records + table->bytes);
    bytes = round_up(bytes, sizeof(size_t));
    if (table->bytes + bytes + index > TABLE_BUDGET) {
        *status = io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path,
                          "its safetensors header needs over %d bytes for its table, after %zu tensors", TABLE_BUDGET,
                          table->count);
        return NULL;
    }
    record->record_bytes = (uint32_t)bytes;
    table->bytes += bytes;
    table->count++;
    return record;
}

/* Fills `values` from an array of integers and returns their number; SIZE_MAX if the value is no such array, has more
 * than `capacity` elements, or an element that is no size_t. */
static size_t read_sizes(const json_t *array, size_t *values, size_t capacity)
{
    if (!json_is_array(array) || json_array_size(array) > capacity)
        return SIZE_MAX;
    size_t count = json_array_size(array);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t value = json_is_integer(item) ? json_integer_value(item) : -1;
        if (value < 0 || (uint64_t)value > SIZE_MAX)
            return SIZE_MAX;
        values[i] = (size_t)value;
    }
    return count;
}

/* Checks one tensor's description and appends it to the table. */
static clattn_status add_tensor(tensor_table *table, const char *name, const json_t *description, const os_file *file,
                                size_t data_bytes, clattn_io_error *error)
{
    const json_t *shape = json_object_get(description, "shape");
    const char *dtype_name = json_string_value(json_object_get(description, "dtype"));
    size_t extent[RANK_MOST], offset[2], bytes;

    if (json_object_size(description) != 3 || dtype_name == NULL || strlen(dtype_name) > DTYPE_NAME_MOST)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path,
                       "the description of '%.100s', expected exactly dtype, shape and data_offsets", name);
    if (json_array_size(shape) > RANK_MOST)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path, "'%.100s' has rank %zu, expected at most %d", name,
                       json_array_size(shape), RANK_MOST);
    size_t rank = read_sizes(shape, extent, RANK_MOST);
    if (rank == SIZE_MAX)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "the shape of '%.100s', expected sizes", name);
    if (read_sizes(json_object_get(description, "data_offsets"), offset, 2) != 2)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "the data_offsets of '%.100s', expected two sizes",
                       name);
    if (offset[0] > offset[1] || offset[1] > data_bytes)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path,
                       "the data_offsets of '%.100s' are %zu and %zu, expected a range within %zu bytes", name,
                       offset[0], offset[1], data_bytes);

    const io_dtype *type = io_dtype_find_safetensors(dtype_name);
    if (!io_shape_bytes(rank, extent, type != NULL ? type->size : 1, &bytes))
        return io_fail(error, CLATTN_ERROR_OVERFLOW, file->path, "the product of the shape of '%.100s' overflows",
                       name);
    if (type != NULL && bytes != offset[1] - offset[0])
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "'%.100s' has %zu bytes, expected %zu for its shape",
                       name, offset[1] - offset[0], bytes);

    clattn_status status = CLATTN_SUCCESS;
    size_t extents = rank <= CLATTN_MAX_RANK ? rank : 0;
    size_t name_bytes = strlen(name) + 1, dtype_bytes = strlen(dtype_name) + 1;
    size_t fixed = offsetof(tensor_record, extent) + extents * sizeof(size_t);
    tensor_record *record = append_record(table, fixed + name_bytes + dtype_bytes, file, &status, error);
    if (record == NULL)
        return status;
    record->begin = offset[0];
    record->bytes = offset[1] - offset[0];
    record->name_bytes = (uint16_t)name_bytes;
    record->dtype = (uint8_t)(type != NULL ? type->dtype : CLATTN_DTYPE_NONE);
    record->rank = (uint8_t)rank;
    memcpy(record->extent, extent, extents * sizeof(size_t));
    memcpy((char *)record + fixed, name, name_bytes);
    memcpy((char *)record + fixed + name_bytes, dtype_name, dtype_bytes);
    return CLATTN_SUCCESS;
}

/* Reads one "NAME": VALUE of the top level. */
static bool read_entry(json_stream *stream, tensor_table *table, size_t data_bytes, bool *metadata_seen)
{
    char name[JSON_TOKEN_BYTES];
    if (!json_stream_take_name(stream, name) || !json_stream_take(stream, ':'))
        return false;
    if (strcmp(name, "__metadata__") == 0) {
        if (*metadata_seen)
            json_stream_expected(stream, "__metadata__ only once");
        else
            json_stream_skip_strings(stream);
        *metadata_seen = true;
    } else {
        json_t *description = json_stream_parse_flat_object(stream);
        if (description != NULL)
            stream->status = add_tensor(table, name, description, stream->file, data_bytes, stream->error);
        json_decref(description);
    }
    return stream->status == CLATTN_SUCCESS;
}

static clattn_status read_header(tensor_table *table, json_stream *stream, size_t data_bytes)
{
    bool metadata_seen = false;
    if (json_stream_peek(stream) != '{')
        json_stream_expected(stream, "'{'");
    else
        json_stream_take(stream, '{');
    if (json_stream_peek_token(stream) != '}')
        while (read_entry(stream, table, data_bytes, &metadata_seen) && json_stream_peek_token(stream) == ',')
            json_stream_take(stream, ',');
    if (stream->status == CLATTN_SUCCESS && json_stream_take(stream, '}')) {
        while (json_stream_peek(stream) == ' ')
            stream->at++;
        if (json_stream_peek(stream) != -1)
            json_stream_expected(stream, "nothing but spaces after the object");
    }
    return stream->status;
}

static int by_place(const void *a, const void *b)
{
    const tensor_record *x = *(tensor_record *const *)a, *y = *(tensor_record *const *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* an empty tensor before its neighbour */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(tensor_record_name(*(tensor_record *const *)a), tensor_record_name(*(tensor_record *const *)b));
}

/* Sorts the records, so that overlaps, holes and duplicates show between neighbours, and checks them. */
static clattn_status check_table(tensor_table *table, const os_file *file, size_t data_bytes, clattn_io_error *error)
{
    size_t end = 0;
    qsort(table->index, table->count, sizeof *table->index, by_place);
    for (size_t i = 0; i < table->count; i++) {
        const tensor_record *record = table->index[i];
        if (record->begin != end)
            return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "'%.100s' begins at %zu, expected %zu: %s",
                           tensor_record_name(record), record->begin, end,
                           record->begin < end ? "tensors overlap" : "there is a hole");
        end += record->bytes;
    }
    if (end != data_bytes)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "has %zu bytes of data, expected %zu for its tensors",
                       data_bytes, end);
    qsort(table->index, table->count, sizeof *table->index, by_name);
    for (size_t i = 1; i < table->count; i++)
        if (by_name(&table->index[i - 1], &table->index[i]) == 0)
            return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "'%.100s' is there more than once",
                           tensor_record_name(table->index[i]));
    return CLATTN_SUCCESS;
}

clattn_status tensor_table_read(tensor_table *table, const os_file *file, size_t header_bytes, size_t data_bytes,
                                clattn_io_error *error)
{
    json_stream stream;
    table->records = malloc(TABLE_BUDGET);
    if (table->records == NULL)
        return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, file->path, "no memory for its table");
    json_stream_init(&stream, file, 8, 8 + header_bytes, error);
    clattn_status status = read_header(table, &stream, data_bytes);
    if (status != CLATTN_SUCCESS)
        return status;
    char *smaller = realloc(table->records, table->bytes + 1);
    table->records = smaller != NULL ? smaller : table->records;
    /* One more than needed: an empty table's index is not NULL, which qsort and bsearch may not be given. */
    table->index = malloc((table->count + 1) * sizeof *table->index);
    if (table->index == NULL)
        return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, file->path, "no memory for its table");
    for (size_t i = 0, at = 0; i < table->count; at += table->index[i++]->record_bytes)
        table->index[i] = (tensor_record *)(void *)(table->records + at);
    return check_table(table, file, data_bytes, error);
}

void tensor_table_release(tensor_table *table)
{
    free(table->index);
    free(table->records);
    *table = (tensor_table){0};
}
