/* Checked size arithmetic, and structs that carry their own size. */
#ifndef CLATTN_BASE_SIZE_H
#define CLATTN_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "clattn/status.h"

/* How many elements an array (not a pointer) has. */
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Store a * b and a + b in *result; false on overflow, and *result is then undefined. */
static inline bool size_mul(size_t a, size_t b, size_t *result)
{
    *result = a * b;
    return b == 0 || a <= SIZE_MAX / b;
}

static inline bool size_add(size_t a, size_t b, size_t *result)
{
    *result = a + b;
    return *result >= a;
}

static inline bool int64_add(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_add_overflow(a, b, result);
}

static inline bool int64_mul(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_mul_overflow(a, b, result);
}

static inline size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whether a description's flag is 0 or 1. */
static inline bool is_flag(int32_t value)
{
    return value == 0 || value == 1;
}

/* Whether the value of an enum that counts from 0 is at most its last constant. */
static inline bool enum_within(uint32_t value, uint32_t last)
{
    return value <= last;
}

static inline size_t divide_up(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* a rounded up to a multiple of b. */
static inline size_t round_up(size_t a, size_t b)
{
    return divide_up(a, b) * b;
}

/* Sets a caller's struct, whose first member is its own size, to the defaults (zeros); does nothing for NULL. */
static inline void struct_init(void *data, size_t size)
{
    if (!data)
        return;
    memset(data, 0, size);
    memcpy(data, &size, sizeof size);
}

/* Copies a caller's struct whose first member is its own size: `current` bytes are known here, and every
 * version ever released had at least `first` bytes.  Members that the caller's version lacks become 0, the
 * default. */
static inline clattn_status struct_read(void *copy, size_t current, size_t first, const void *given)
{
    if (!given)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < first || size > current)
        return CLATTN_ERROR_INVALID_STRUCT;
    memset(copy, 0, current);
    memcpy(copy, given, size);
    memcpy(copy, &current, sizeof current);
    return CLATTN_SUCCESS;
}

/* Fills a caller's struct, whose first member is its own size, from one of `current` bytes.  The caller's struct may
 * be shorter; what it has more is zeroed.  False if it is smaller than `first`, the smallest size that any version
 * ever had. */
static inline bool struct_write(void *given, size_t current, size_t first, const void *source)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < first)
        return false;
    memset(given, 0, size);
    memcpy(given, source, size_min(size, current));
    memcpy(given, &size, sizeof size);
    return true;
}

#endif
