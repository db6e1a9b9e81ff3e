/* A safetensors header: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, …},
 * optionally with "__metadata__": {"KEY": "VALUE", …}, and spaces up to the header's given length. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "io/json_stream.h"
#include "io/safetensors.h"

/* The bytes that the records may have, including their index and the memory for sorting it.  Together with the window they
 * stay below the 1 MB that io.h promises.  So many are allocated before the header is read,
 * and those that no record has taken are given back after it. */
#define TABLE_BUDGET 800000
#define RANK_MOST 64
#define NAME_MOST 2047
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

/* What a header says of a tensor. */
typedef struct description {
    char dtype[DTYPE_NAME_MOST + 1];
    size_t rank, extent[RANK_MOST], offset[2];
} description;

/* Records CLATTN_ERROR_FORMAT, unless something failed earlier; false. */
static bool wrong(json_stream *stream, const char *what, const char *name, const char *expected)
{
    if (stream->status == CLATTN_SUCCESS)
        stream->status = io_fail(stream->error, CLATTN_ERROR_FORMAT, stream->file->path,
                                 "the %s of '%.100s', expected %s", what, name, expected);
    return false;
}

static const char members[3][13] = {"dtype", "shape", "data_offsets"};
#define ALL_MEMBERS 7u
#define EXACTLY "exactly dtype, shape and data_offsets"

static bool take_dtype(json_stream *stream, const char *name, description *to)
{
    size_t bytes;
    if (json_stream_peek_token(stream) != '"')
        return wrong(stream, "description", name, EXACTLY);
    if (!json_stream_take_string(stream, to->dtype, DTYPE_NAME_MOST, &bytes))
        return false;
    if (bytes > DTYPE_NAME_MOST || memchr(to->dtype, '\0', bytes) != NULL)
        return wrong(stream, "description", name, EXACTLY);
    to->dtype[bytes] = '\0';
    return true;
}

/* Takes a member of a description.  `given` has a bit for each that has been taken. */
static bool take_member(json_stream *stream, const char *name, description *to, unsigned *given)
{
    char member[sizeof members[0]];
    size_t bytes, offsets, which = 0;
    if (json_stream_peek_token(stream) != '"')
        json_stream_expected(stream, "a name");
    if (!json_stream_take_string(stream, member, sizeof member, &bytes) || !json_stream_take(stream, ':'))
        return false;
    while (which < 3 && (bytes != strlen(members[which]) || memcmp(member, members[which], bytes) != 0))
        which++;
    if (which == 3 || *given & 1u << which)
        return wrong(stream, "description", name, EXACTLY);
    *given |= 1u << which;
    if (which == 0)
        return take_dtype(stream, name, to);
    if (which == 2)
        return (json_stream_take_sizes(stream, to->offset, 2, &offsets) && offsets == 2) ||
               wrong(stream, "data_offsets", name, "two sizes");
    if (!json_stream_take_sizes(stream, to->extent, RANK_MOST, &to->rank))
        return wrong(stream, "shape", name, "sizes");
    if (to->rank > RANK_MOST)
        stream->status = io_fail(stream->error, CLATTN_ERROR_UNSUPPORTED, stream->file->path,
                                 "'%.100s' has rank %zu, expected at most %d", name, to->rank, RANK_MOST);
    return to->rank <= RANK_MOST;
}

static bool take_description(json_stream *stream, const char *name, description *to)
{
    unsigned given = 0;
    if (json_stream_peek_token(stream) != '{')
        json_stream_expected(stream, "a description");
    if (!json_stream_take(stream, '{'))
        return false;
    while (json_stream_peek_token(stream) != '}' || given != ALL_MEMBERS) {
        if (json_stream_peek_token(stream) == '}')
            return wrong(stream, "description", name, EXACTLY);
        if ((given != 0 && !json_stream_take(stream, ',')) || !take_member(stream, name, to, &given))
            return false;
    }
    return json_stream_take(stream, '}');
}

/* Checks one tensor's description and appends it to the table. */
static clattn_status add_tensor(tensor_table *table, const char *name, const description *given, const os_file *file,
                                size_t data_bytes, clattn_io_error *error)
{
    const char *dtype_name = given->dtype;
    const size_t *extent = given->extent, *offset = given->offset, rank = given->rank;
    size_t bytes;

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
    char name[NAME_MOST + 1];
    size_t bytes;
    if (json_stream_peek_token(stream) != '"')
        json_stream_expected(stream, "a name");
    if (!json_stream_take_string(stream, name, NAME_MOST, &bytes))
        return false;
    if (bytes > NAME_MOST) {
        stream->status =
            io_fail(stream->error, CLATTN_ERROR_UNSUPPORTED, stream->file->path,
                    "a name in its safetensors header has %zu bytes, expected at most %d", bytes, NAME_MOST);
        return false;
    }
    name[bytes] = '\0';
    if (memchr(name, '\0', bytes) != NULL)
        json_stream_expected(stream, "a name without U+0000");
    if (!json_stream_take(stream, ':'))
        return false;
    if (strcmp(name, "__metadata__") == 0) {
        if (*metadata_seen)
            json_stream_expected(stream, "__metadata__ only once");
        else
            json_stream_skip_strings(stream);
        *metadata_seen = true;
        return stream->status == CLATTN_SUCCESS;
    }
    description given;
    if (take_description(stream, name, &given))
        stream->status = add_tensor(table, name, &given, stream->file, data_bytes, stream->error);
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
