#include "tool/text/vocabulary_check.h"

#include <stdint.h>

/* What is left to read. */
typedef struct bytes_left {
    const unsigned char *at;
    size_t count;
} bytes_left;

static bool read_number(bytes_left *left, uint64_t *number)
{
    *number = 0;
    for (int shift = 0; left->count > 0 && shift < 64; shift += 7) {
        const unsigned char byte = *left->at++;
        left->count--;
        *number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* Reads a field's number and its contents, which are empty if it is a number. */
static bool read_field(bytes_left *left, uint64_t *field, bytes_left *contents)
{
    uint64_t key, length = 0, number;
    if (!read_number(left, &key))
        return false;
    *field = key >> 3;
    switch (key & 7) {
    case 0:
        if (!read_number(left, &number))
            return false;
        break;
    case 1: length = 8; break;
    case 2:
        if (!read_number(left, &length))
            return false;
        break;
    case 5: length = 4; break;
    default: return false;
    }
    if (length > left->count)
        return false;
    *contents = (bytes_left){left->at, (size_t)length};
    left->at += length;
    left->count -= (size_t)length;
    return true;
}

bool vocabulary_has_no_table(const char *data, size_t bytes)
{
    bytes_left left = {(const unsigned char *)data, bytes}, rules, contents;
    uint64_t field, inner;
    while (left.count > 0) {
        if (!read_field(&left, &field, &rules))
            return false;
        while ((field == 3 || field == 5) && rules.count > 0)
            if (!read_field(&rules, &inner, &contents) || (inner == 2 && contents.count > 0))
                return false;
    }
    return true;
}
