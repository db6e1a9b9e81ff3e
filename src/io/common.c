#include "io/common.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

/* Bytes of the path's end that a message shows, so that the reason fits. */
#define PATH_SHOWN 200

clattn_status io_fail(clattn_io_error *error, clattn_status status, const char *path, const char *format, ...)
{
    if (error == NULL)
        return status;
    size_t length = strlen(path);
    bool cut = length > PATH_SHOWN;
    int used = snprintf(error->message, sizeof error->message, "%s%s: ", cut ? "..." : "",
                        cut ? path + length - PATH_SHOWN : path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message + used, sizeof error->message - (size_t)used, format, arguments);
    va_end(arguments);
    /* Names may contain newlines or a terminal's escape sequences, which reach to 0x9f.  The path is the user's own
     * and its letters beyond ASCII stay; text from a file may not even be UTF-8. */
    for (int i = 0; error->message[i] != '\0'; i++) {
        unsigned char c = (unsigned char)error->message[i];
        if (c < 0x20 || c == 0x7f || (c > 0x7f && i >= used))
            error->message[i] = '?';
    }
    return status;
}

/* The first match counts, because npy spells bfloat16 like unsigned 16-bit integers. */
static const io_dtype types[] = {
    {CLATTN_DTYPE_F32, 4, "<f4", "F32"},         {CLATTN_DTYPE_F16, 2, "<f2", "F16"},
    {CLATTN_DTYPE_BF16, 2, "<u2", "BF16"},       {CLATTN_DTYPE_F64, 8, "<f8", "F64"},
    {CLATTN_DTYPE_BOOL, 1, "|b1", "BOOL"},       {CLATTN_DTYPE_I32, 4, "<i4", "I32"},
    {CLATTN_DTYPE_I64, 8, "<i8", "I64"},         {CLATTN_DTYPE_U8, 1, "|u1", "U8"},
    {CLATTN_DTYPE_I8, 1, "|i1", "I8"},           {CLATTN_DTYPE_NONE, 2, NULL, "I16"},
    {CLATTN_DTYPE_NONE, 2, NULL, "U16"},         {CLATTN_DTYPE_NONE, 4, NULL, "U32"},
    {CLATTN_DTYPE_NONE, 8, NULL, "U64"},         {CLATTN_DTYPE_NONE, 1, NULL, "F8_E4M3"},
    {CLATTN_DTYPE_NONE, 1, NULL, "F8_E5M2"},     {CLATTN_DTYPE_NONE, 1, NULL, "F8_E4M3FNUZ"},
    {CLATTN_DTYPE_NONE, 1, NULL, "F8_E5M2FNUZ"}, {CLATTN_DTYPE_NONE, 1, NULL, "F8_E8M0"},
    {CLATTN_DTYPE_NONE, 8, NULL, "C64"},
};

#define TYPE_COUNT (sizeof types / sizeof types[0])

const io_dtype *io_dtype_find(clattn_dtype dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype && dtype != CLATTN_DTYPE_NONE)
            return &types[i];
    return NULL;
}

const io_dtype *io_dtype_find_npy(const char *descr)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].npy != NULL && strcmp(types[i].npy, descr) == 0)
            return &types[i];
    return NULL;
}

const io_dtype *io_dtype_find_safetensors(const char *name)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].safetensors != NULL && strcmp(types[i].safetensors, name) == 0)
            return &types[i];
    return NULL;
}

bool io_shape_bytes(size_t rank, const size_t *extent, size_t size, size_t *bytes)
{
    const size_t most = (uint64_t)SIZE_MAX < (uint64_t)INT64_MAX ? SIZE_MAX : (size_t)INT64_MAX;
    size_t product = size;
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        if (extent[i] == 0) {
            empty = true;
            continue;
        }
        if (!size_mul(product, extent[i], &product) || product > most)
            return false;
    }
    *bytes = empty ? 0 : product;
    return true;
}
