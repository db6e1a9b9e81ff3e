#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "io/os_file.h"

/*
 * A model.bin, all numbers little-endian:
 *
 *   u32 binary version   text spec   u32 revision
 *   u32 variables, each:  text name   u8 rank   u32 extent[rank]   u8 element type   u32 bytes   the bytes
 *   u32 aliases, each:    text alias   text name
 *
 * where a text is u16 length, its NUL included, and as many bytes.  Older versions than the fourth have an
 * element's size instead of its type; none has been seen for years.
 */
#define FIRST_VERSION 4
#define LAST_VERSION 6

/* The fewest bytes of a variable and of an alias: a count is checked against the file's size by them before memory is
 * allocated. */
#define VARIABLE_LEAST (2 + 2 + 1 + 1 + 4)
#define ALIAS_LEAST (2 * (2 + 2))
#define RECORDS_MOST 100000

/* The element types by the file's numbers. 16-bit integers are read as attributes only. */
static const struct {
    const char *name;
    uint32_t size;
    clattn_dtype dtype;
} types[] = {
    {"float32", 4, CLATTN_DTYPE_F32}, {"int8", 1, CLATTN_DTYPE_I8},     {"int16", 2, CLATTN_DTYPE_NONE},
    {"int32", 4, CLATTN_DTYPE_I32},   {"float16", 2, CLATTN_DTYPE_F16}, {"bfloat16", 2, CLATTN_DTYPE_BF16},
};
#define TYPES (sizeof types / sizeof types[0])

typedef struct variable {
    const char *name; /* in the map */
    const char *data; /* in the map, or NULL */
    size_t bytes;
    size_t extent[CLATTN_MAX_RANK];
    uint8_t rank, type;
} variable;

struct clattn_ctranslate2 {
    const char *map;
    size_t map_bytes;
    const char *spec;
    uint32_t revision;
    size_t count;
    variable *variables; /* in the byte order of their names; an alias is one more */
    char path[];         /* for messages */
};

/* The place in the file.  The first error is recorded, and everything that is read after it is 0. */
typedef struct cursor {
    const clattn_ctranslate2 *file;
    size_t at;
    clattn_status status;
    clattn_io_error *error;
} cursor;

static size_t left_of(const cursor *from)
{
    return from->status == CLATTN_SUCCESS ? from->file->map_bytes - from->at : 0;
}

/* The next `bytes` bytes; NULL if the file ends before them. */
static const char *take(cursor *from, size_t bytes, const char *what)
{
    if (from->status != CLATTN_SUCCESS)
        return NULL;
    if (bytes > left_of(from)) {
        from->status = io_fail(from->error, CLATTN_ERROR_FORMAT, from->file->path,
                               "is not a CTranslate2 model, or is cut short: %s at byte %zu needs %zu bytes, %zu "
                               "are left",
                               what, from->at, bytes, left_of(from));
        return NULL;
    }
    const char *bytes_at = from->file->map + from->at;
    from->at += bytes;
    return bytes_at;
}

static uint32_t take_number(cursor *from, size_t bytes, const char *what)
{
    const unsigned char *digits = (const unsigned char *)take(from, bytes, what);
    uint32_t value = 0;
    for (size_t i = bytes; digits != NULL && i-- > 0;)
        value = value << 8 | digits[i];
    return value;
}

/* A text of at least one byte, in the map with its NUL; "" after an error. */
static const char *take_text(cursor *from, const char *what)
{
    size_t start = from->at, length = take_number(from, 2, what);
    const char *text = take(from, length, what);
    if (text == NULL)
        return "";
    if (length < 2 || memchr(text, '\0', length) != text + length - 1) {
        from->status = io_fail(from->error, CLATTN_ERROR_FORMAT, from->file->path,
                               "is not a CTranslate2 model: %s at byte %zu is empty, or does not end with its only NUL",
                               what, start);
        return "";
    }
    return text;
}

/* The number of records that the file declares; an error if the file is too short for them. */
static size_t take_count(cursor *from, size_t least, const char *what)
{
    size_t count = take_number(from, 4, what);
    if (from->status == CLATTN_SUCCESS && count > RECORDS_MOST)
        from->status = io_fail(from->error, CLATTN_ERROR_UNSUPPORTED, from->file->path,
                               "has %zu %s, expected at most %d", count, what, RECORDS_MOST);
    else if (from->status == CLATTN_SUCCESS && count > left_of(from) / least)
        from->status = io_fail(from->error, CLATTN_ERROR_FORMAT, from->file->path,
                               "is not a CTranslate2 model, or is cut short: %zu %s do not fit its %zu bytes", count,
                               what, from->file->map_bytes);
    return from->status == CLATTN_SUCCESS ? count : 0;
}

static void take_variable(cursor *from, variable *v)
{
    v->name = take_text(from, "a variable's name");
    size_t rank = take_number(from, 1, "a rank"), bytes;
    if (rank > CLATTN_MAX_RANK) {
        from->status = io_fail(from->error, CLATTN_ERROR_UNSUPPORTED, from->file->path,
                               "variable '%.100s' has rank %zu, expected at most %d", v->name, rank, CLATTN_MAX_RANK);
        return;
    }
    v->rank = (uint8_t)rank;
    for (size_t i = 0; i < rank; i++)
        v->extent[i] = take_number(from, 4, "an extent");
    uint32_t type = take_number(from, 1, "an element type");
    size_t said = take_number(from, 4, "a length");
    if (from->status != CLATTN_SUCCESS)
        return;
    if (type >= TYPES) {
        from->status =
            io_fail(from->error, CLATTN_ERROR_UNSUPPORTED, from->file->path,
                    "variable '%.100s' has element type %u, expected 0 to %d", v->name, type, (int)TYPES - 1);
        return;
    }
    if (!io_shape_bytes(rank, v->extent, types[type].size, &bytes)) {
        from->status = io_fail(from->error, CLATTN_ERROR_OVERFLOW, from->file->path,
                               "variable '%.100s' has more elements than can be counted", v->name);
        return;
    }
    if (bytes != said) {
        from->status = io_fail(from->error, CLATTN_ERROR_FORMAT, from->file->path,
                               "variable '%.100s' has %zu bytes, expected %zu by its shape and %s", v->name, said,
                               bytes, types[type].name);
        return;
    }
    v->type = (uint8_t)type;
    v->bytes = bytes;
    v->data = take(from, bytes, "a variable's data");
    if (bytes == 0)
        v->data = NULL;
}

static int by_name(const void *first, const void *second)
{
    return strcmp(((const variable *)first)->name, ((const variable *)second)->name);
}

static int name_against(const void *name, const void *element)
{
    return strcmp(name, ((const variable *)element)->name);
}

static const variable *find(const clattn_ctranslate2 *file, const char *name, size_t count)
{
    return count > 0 ? bsearch(name, file->variables, count, sizeof *file->variables, name_against) : NULL;
}

/* Sorts the first `count` variables and refuses a name that occurs twice. */
static void sort(cursor *from, variable *all, size_t count)
{
    if (from->status != CLATTN_SUCCESS || count == 0)
        return;
    qsort(all, count, sizeof *all, by_name);
    for (size_t i = 1; i < count && from->status == CLATTN_SUCCESS; i++)
        if (strcmp(all[i - 1].name, all[i].name) == 0)
            from->status = io_fail(from->error, CLATTN_ERROR_FORMAT, from->file->path,
                                   "variable '%.100s' is there twice", all[i].name);
}

static bool grow(cursor *from, clattn_ctranslate2 *file, size_t count)
{
    variable *more = from->status == CLATTN_SUCCESS ? realloc(file->variables, (count + 1) * sizeof *more) : NULL;
    if (more == NULL) {
        if (from->status == CLATTN_SUCCESS)
            from->status =
                io_fail(from->error, CLATTN_ERROR_OUT_OF_MEMORY, file->path, "no memory for %zu variables", count);
        return false;
    }
    memset(more + file->count, 0, (count - file->count + 1) * sizeof *more);
    file->variables = more;
    return true;
}

/* Makes each alias a variable with its target's data. An alias of an alias, or of a name that does not exist, is
 * refused. */
static void take_aliases(cursor *from, clattn_ctranslate2 *file)
{
    size_t count = take_count(from, ALIAS_LEAST, "aliases"), targets = file->count;
    if (!grow(from, file, targets + count))
        return;
    for (size_t i = 0; i < count && from->status == CLATTN_SUCCESS; i++) {
        const char *alias = take_text(from, "an alias");
        const char *name = take_text(from, "an alias's variable");
        if (from->status != CLATTN_SUCCESS)
            return;
        const variable *target = find(file, name, targets);
        if (target == NULL) {
            from->status = io_fail(from->error, CLATTN_ERROR_FORMAT, file->path,
                                   "alias '%.100s' stands for '%.100s', which is not there", alias, name);
            return;
        }
        file->variables[file->count] = *target;
        file->variables[file->count++].name = alias;
    }
    sort(from, file->variables, file->count);
}

static clattn_status read_all(clattn_ctranslate2 *file, clattn_io_error *error)
{
    cursor from = {file, 0, CLATTN_SUCCESS, error};
    uint32_t version = take_number(&from, 4, "the version");
    if (from.status == CLATTN_SUCCESS && (version < FIRST_VERSION || version > LAST_VERSION))
        return io_fail(error, version < 64 ? CLATTN_ERROR_UNSUPPORTED : CLATTN_ERROR_FORMAT, file->path,
                       "%s %u, expected %d to %d",
                       version < 64 ? "is a CTranslate2 model of version"
                                    : "is not a CTranslate2 model: it begins with",
                       version, FIRST_VERSION, LAST_VERSION);
    file->spec = take_text(&from, "the kind of model");
    file->revision = take_number(&from, 4, "the revision");
    size_t count = take_count(&from, VARIABLE_LEAST, "variables");
    if (grow(&from, file, count))
        for (; file->count < count && from.status == CLATTN_SUCCESS; file->count++)
            take_variable(&from, &file->variables[file->count]);
    sort(&from, file->variables, file->count);
    take_aliases(&from, file);
    if (from.status == CLATTN_SUCCESS && left_of(&from) > 0)
        return io_fail(error, CLATTN_ERROR_FORMAT, file->path,
                       "is not a CTranslate2 model: it goes on for %zu bytes after its end", left_of(&from));
    return from.status;
}

clattn_status clattn_ctranslate2_create(const char *path, clattn_ctranslate2 **file, clattn_io_error *error)
{
    os_file source = OS_FILE_INIT;
    clattn_ctranslate2 *made = NULL;
    const void *map = NULL;
    clattn_status status;

    if (file != NULL)
        *file = NULL;
    if (path == NULL || file == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "CTranslate2 model",
                       "its path or the result's place is NULL");
    TRY(os_file_open(&source, path, error));
    if (source.size == 0)
        TRY(io_fail(error, CLATTN_ERROR_FORMAT, path, "is not a CTranslate2 model (0 bytes)"));
    made = calloc(1, sizeof *made + strlen(path) + 1);
    if (made == NULL) {
        status = io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its handle");
        goto fail;
    }
    strcpy(made->path, path);
    TRY(os_file_map(&source, &map, error));
    made->map = map;
    made->map_bytes = source.size;
    TRY(read_all(made, error));
fail:
    os_file_close(&source);
    if (status != CLATTN_SUCCESS)
        clattn_ctranslate2_release(&made);
    *file = made;
    return status;
}

const char *clattn_ctranslate2_spec(const clattn_ctranslate2 *file)
{
    return file != NULL ? file->spec : "";
}

uint32_t clattn_ctranslate2_revision(const clattn_ctranslate2 *file)
{
    return file != NULL ? file->revision : 0;
}

size_t clattn_ctranslate2_count(const clattn_ctranslate2 *file)
{
    return file != NULL ? file->count : 0;
}

static clattn_host_tensor make_tensor(const variable *v)
{
    clattn_host_tensor tensor = {0};
    tensor.bytes = v->bytes;
    tensor.data = v->data;
    tensor.dtype = types[v->type].dtype;
    if (tensor.dtype != CLATTN_DTYPE_NONE) {
        tensor.rank = v->rank;
        memcpy(tensor.extent, v->extent, v->rank * sizeof v->extent[0]);
    }
    return tensor;
}

clattn_status clattn_ctranslate2_at(const clattn_ctranslate2 *file, size_t index, clattn_ctranslate2_entry *entry)
{
    if (entry == NULL)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *entry = (clattn_ctranslate2_entry){0};
    if (file == NULL || index >= file->count)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    const variable *v = &file->variables[index];
    entry->name = v->name;
    entry->dtype_name = types[v->type].name;
    entry->tensor = make_tensor(v);
    return CLATTN_SUCCESS;
}

clattn_status clattn_ctranslate2_find(const clattn_ctranslate2 *file, const char *name, clattn_host_tensor *tensor,
                                      clattn_io_error *error)
{
    if (tensor != NULL)
        *tensor = (clattn_host_tensor){0};
    if (file == NULL || name == NULL || tensor == NULL)
        return io_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, file != NULL ? file->path : "CTranslate2 model",
                       "a NULL among the arguments");
    const variable *found = find(file, name, file->count);
    if (found == NULL)
        return CLATTN_SUCCESS;
    if (types[found->type].dtype == CLATTN_DTYPE_NONE)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, file->path,
                       "variable '%.100s' has element type %s, expected float32, float16, bfloat16, int32 or int8",
                       name, types[found->type].name);
    *tensor = make_tensor(found);
    return CLATTN_SUCCESS;
}

clattn_status clattn_ctranslate2_lookup(void *user, const char *name, clattn_host_tensor *tensor,
                                        clattn_io_error *error)
{
    return clattn_ctranslate2_find(user, name, tensor, error);
}

int clattn_ctranslate2_integer(const clattn_ctranslate2 *file, const char *name, int32_t *value)
{
    const variable *found = file != NULL && name != NULL ? find(file, name, file->count) : NULL;
    if (value != NULL)
        *value = 0;
    if (found == NULL || value == NULL || found->rank != 0 || found->bytes > 4 || found->data == NULL)
        return false;
    if (types[found->type].dtype != CLATTN_DTYPE_I8 && types[found->type].dtype != CLATTN_DTYPE_I32 &&
        types[found->type].dtype != CLATTN_DTYPE_NONE)
        return false;
    /* The sum begins with the highest byte, which has the sign. */
    int32_t sum = (signed char)found->data[found->bytes - 1];
    for (size_t i = found->bytes - 1; i-- > 0;)
        sum = sum * 256 + (unsigned char)found->data[i];
    *value = sum;
    return true;
}

void clattn_ctranslate2_release(clattn_ctranslate2 **file)
{
    if (file == NULL || *file == NULL)
        return;
    os_file_unmap((*file)->map, (*file)->map_bytes);
    free((*file)->variables);
    free(*file);
    *file = NULL;
}
