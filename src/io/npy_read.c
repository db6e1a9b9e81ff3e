/* The header of a .npy file: "\x93NUMPY", a version of two bytes, the dictionary's length (little-endian, two
 * bytes in version 1.0, four in 2.0 and 3.0), and the dictionary, a Python literal.  What is read of Python:
 *
 *   header  = "{" entry { "," entry } [ "," ] "}" { " " } "\n"      each of the three keys exactly once
 *   entry   = quote "descr" quote ":" quote type quote
 *           | quote "fortran_order" quote ":" ( "True" | "False" )
 *           | quote "shape" quote ":" "(" [ number "," [ number { "," number } [ "," ] ] ] ")"
 *   number  = "0" | digit from 1 to 9, more digits
 *
 * with spaces allowed between any two of these, and either of Python's quotes. */
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "io/os_file.h"

#define HEADER_MOST 65535
#define VERSION_BYTES 8

struct clattn_npy {
    clattn_host_tensor tensor;
    void *data; /* owned; what tensor.data points to */
};

/* The parser's place. The text ends with a newline, at `end`, which no rule steps over, so that each rule may read *at
 * without checking for the end. */
typedef struct cursor {
    const char *at;
    const char *end;
    const char *path;
    clattn_io_error *error;
} cursor;

static void skip_spaces(cursor *c)
{
    while (*c->at == ' ')
        c->at++;
}

static bool take(cursor *c, char wanted)
{
    skip_spaces(c);
    if (*c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* A quoted string without escapes of fewer than `capacity` bytes. */
static bool take_string(cursor *c, char *text, size_t capacity)
{
    size_t used = 0;
    skip_spaces(c);
    char quote = *c->at;
    if (quote != '\'' && quote != '"')
        return false;
    for (c->at++; *c->at != quote; c->at++) {
        if (c->at == c->end || *c->at == '\\' || *c->at < 0x20 || *c->at > 0x7e || used + 1 >= capacity)
            return false;
        text[used++] = *c->at;
    }
    c->at++;
    text[used] = '\0';
    return true;
}

static bool take_word(cursor *c, const char *word)
{
    size_t length = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

static clattn_status malformed(const cursor *c, const char *what)
{
    return io_fail(c->error, CLATTN_ERROR_FORMAT, c->path, "its npy header is malformed, expected %s: \"%.60s\"", what,
                   c->at == c->end ? "" : c->at);
}

static clattn_status parse_descr(cursor *c, const io_dtype **type)
{
    char descr[32];
    skip_spaces(c);
    if (*c->at == '[')
        return io_fail(c->error, CLATTN_ERROR_UNSUPPORTED, c->path, "has a record type, expected plain numbers");
    if (!take_string(c, descr, sizeof descr))
        return malformed(c, "an element type as in '<f4'");
    *type = io_dtype_find_npy(descr);
    if (*type != NULL)
        return CLATTN_SUCCESS;
    return io_fail(c->error, CLATTN_ERROR_UNSUPPORTED, c->path,
                   "element type '%s'%s, expected one of "
                   "<f4 <f2 <f8 <u2 (bfloat16) |b1 <i4 <i8 |u1 |i1",
                   descr, descr[0] == '>' ? " is big-endian" : "");
}

static clattn_status parse_order(cursor *c)
{
    if (take_word(c, "False"))
        return CLATTN_SUCCESS;
    if (!take_word(c, "True"))
        return malformed(c, "True or False");
    return io_fail(c->error, CLATTN_ERROR_UNSUPPORTED, c->path,
                   "is in Fortran order, expected C order (numpy.ascontiguousarray)");
}

static clattn_status parse_number(cursor *c, size_t *number)
{
    size_t value = 0;
    skip_spaces(c);
    const char *from = c->at;
    for (; *c->at >= '0' && *c->at <= '9'; c->at++) {
        size_t digit = (size_t)(*c->at - '0');
        if (value > (SIZE_MAX - digit) / 10)
            return io_fail(c->error, CLATTN_ERROR_OVERFLOW, c->path, "an extent of %.*s is too large",
                           (int)strspn(from, "0123456789"), from);
        value = value * 10 + digit;
    }
    if (c->at == from || (*from == '0' && c->at - from > 1))
        return malformed(c, "an extent");
    *number = value;
    return CLATTN_SUCCESS;
}

static clattn_status parse_shape(cursor *c, clattn_host_tensor *tensor)
{
    size_t rank = 0;
    bool comma = true; /* "(3)" is a number to Python and no tuple: one extent needs its comma */
    if (!take(c, '('))
        return malformed(c, "a shape as in (2, 3)");
    while (!take(c, ')')) {
        size_t number = 0;
        clattn_status status = comma ? parse_number(c, &number) : malformed(c, "a comma or parenthesis");
        if (status != CLATTN_SUCCESS)
            return status;
        if (rank < CLATTN_MAX_RANK)
            tensor->extent[rank] = number;
        rank++;
        comma = take(c, ',');
    }
    if (rank == 1 && !comma)
        return malformed(c, "a comma after a single extent");
    if (rank > CLATTN_MAX_RANK)
        return io_fail(c->error, CLATTN_ERROR_UNSUPPORTED, c->path, "has rank %zu, expected at most %d", rank,
                       CLATTN_MAX_RANK);
    tensor->rank = (int32_t)rank;
    return CLATTN_SUCCESS;
}

/* Parses the dictionary into the tensor's dtype, rank and extents. */
static clattn_status parse_header(cursor *c, clattn_host_tensor *tensor, const io_dtype **type)
{
    enum { DESCR, ORDER, SHAPE, KEYS };
    static const char *const names[KEYS] = {"descr", "fortran_order", "shape"};
    bool seen[KEYS] = {false};
    bool comma = true;

    if (*c->at != '{')
        return malformed(c, "a dictionary");
    c->at++;
    while (!take(c, '}')) {
        char key[16];
        int which = 0;
        if (!comma)
            return malformed(c, "a comma or brace");
        if (!take_string(c, key, sizeof key))
            return malformed(c, "a key");
        while (which < KEYS && strcmp(names[which], key) != 0)
            which++;
        if (which == KEYS || seen[which])
            return io_fail(c->error, CLATTN_ERROR_FORMAT, c->path,
                           "key '%s' in its npy header, expected descr, fortran_order and shape once each", key);
        seen[which] = true;
        if (!take(c, ':'))
            return malformed(c, "a colon");
        clattn_status status = which == DESCR   ? parse_descr(c, type)
                               : which == ORDER ? parse_order(c)
                                                : parse_shape(c, tensor);
        if (status != CLATTN_SUCCESS)
            return status;
        comma = take(c, ',');
    }
    for (int i = 0; i < KEYS; i++)
        if (!seen[i])
            return io_fail(c->error, CLATTN_ERROR_FORMAT, c->path, "key '%s' is missing in its npy header", names[i]);
    skip_spaces(c);
    if (c->at != c->end)
        return malformed(c, "spaces and a newline");
    tensor->dtype = (*type)->dtype;
    return CLATTN_SUCCESS;
}

/* Reads and checks magic, version and length; the dictionary is bytes [*offset, *offset + *length). */
static clattn_status read_prefix(const os_file *file, size_t *offset, size_t *length, clattn_io_error *error)
{
    unsigned char bytes[12] = {0};
    size_t had = file->size < sizeof bytes ? file->size : sizeof bytes;
    clattn_status status = os_file_read(file, 0, bytes, had, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (had < VERSION_BYTES + 2 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "is not a npy file (%zu bytes)", file->size);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path, "npy version %d.%d, expected 1.0, 2.0 or 3.0",
                       bytes[6], bytes[7]);
    *offset = bytes[6] == 1 ? VERSION_BYTES + 2 : VERSION_BYTES + 4;
    *length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] != 1)
        *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (file->size < *offset || *length > file->size - *offset)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path,
                       "its npy header has %zu bytes, but the file ends at byte %zu", *length, file->size);
    if (*length > HEADER_MOST)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path, "its npy header has %zu bytes, expected at most %d",
                       *length, HEADER_MOST);
    return CLATTN_SUCCESS;
}

static clattn_status read_header(const os_file *file, clattn_host_tensor *tensor, size_t *data_offset,
                                 clattn_io_error *error)
{
    const io_dtype *type = NULL;
    size_t offset = 0, length = 0;
    clattn_status status = read_prefix(file, &offset, &length, error);
    if (status != CLATTN_SUCCESS)
        return status;
    char *text = malloc(length + 1);
    if (text == NULL)
        return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, file->path, "no memory for its header");
    text[length] = '\0'; /* for messages that show the rest */
    status = os_file_read(file, offset, text, length, error);
    if (status == CLATTN_SUCCESS) {
        cursor c = {text, text + length - (length > 0), file->path, error};
        status = length > 0 && *c.end == '\n'
                     ? parse_header(&c, tensor, &type)
                     : io_fail(error, CLATTN_ERROR_FORMAT, file->path, "its npy header does not end with a newline");
    }
    free(text);
    if (status != CLATTN_SUCCESS)
        return status;
    if (!io_shape_bytes((size_t)tensor->rank, tensor->extent, type->size, &tensor->bytes))
        return io_fail(error, CLATTN_ERROR_OVERFLOW, file->path, "the product of its extents overflows");
    *data_offset = offset + length;
    if (tensor->bytes != file->size - *data_offset)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path, "has %zu bytes of data, expected %zu for its shape",
                       file->size - *data_offset, tensor->bytes);
    return CLATTN_SUCCESS;
}

clattn_status clattn_npy_create(const char *path, clattn_npy **npy, clattn_io_error *error)
{
    os_file file = OS_FILE_INIT;
    clattn_npy *made = NULL;
    size_t offset = 0;

    if (npy != NULL)
        *npy = NULL;
    if (path == NULL || npy == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "npy file", "its path or the result's place is NULL");
    clattn_status status;
    TRY(os_file_open(&file, path, error));
    made = calloc(1, sizeof *made);
    if (made == NULL)
        TRY(io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its handle"));
    TRY(read_header(&file, &made->tensor, &offset, error));
    if (made->tensor.bytes > 0) {
        made->data = os_alloc_aligned(made->tensor.bytes);
        if (made->data == NULL)
            TRY(io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its %zu bytes", made->tensor.bytes));
        made->tensor.data = made->data;
        TRY(os_file_read(&file, offset, made->data, made->tensor.bytes, error));
    }
fail:
    os_file_close(&file);
    if (status != CLATTN_SUCCESS)
        clattn_npy_release(&made);
    *npy = made;
    return status;
}

clattn_host_tensor clattn_npy_tensor(const clattn_npy *npy)
{
    return npy != NULL ? npy->tensor : (clattn_host_tensor){0};
}

void clattn_npy_release(clattn_npy **npy)
{
    if (npy == NULL || *npy == NULL)
        return;
    os_free_aligned((*npy)->data);
    free(*npy);
    *npy = NULL;
}
