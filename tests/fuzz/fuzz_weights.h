/* Tensors of zeros: lines of a name, a space and the extents with commas between become a safetensors file. */
#ifndef TESTS_FUZZ_WEIGHTS_H
#define TESTS_FUZZ_WEIGHTS_H

#include <string.h>

#include "fuzz_file.h"

#define FUZZ_MOST_BYTES ((size_t)1 << 24) /* of a file */

/* The entry of one line, if it is one; returns the bytes of the tensor. */
static inline size_t fuzz_write_entry(FILE *header, const char *line, size_t length, size_t at)
{
    const char *space = memchr(line, ' ', length);
    size_t bytes = 2, extents = 0;
    char shape[256] = "";
    if (space == NULL || space == line)
        return 0;
    for (const char *c = line; c < space; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            return 0;
    for (const char *from = space + 1; from < line + length && extents < 6; extents++) {
        char *end;
        const unsigned long extent = strtoul(from, &end, 10);
        if (end == from || (extent != 0 && bytes > FUZZ_MOST_BYTES / extent))
            return 0;
        bytes *= extent;
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lu", extents > 0 ? "," : "", extent);
        from = end + 1;
    }
    fprintf(header, "%s\"%.*s\":{\"dtype\":\"F16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            ftell(header) > 9 ? "," : "", (int)(space - line), line, shape, at, at + bytes);
    return bytes;
}

/* Makes model.safetensors in the fuzzer's folder. */
static inline void fuzz_write_weights(const char *lines, size_t length)
{
    size_t bytes = 0;
    FILE *header = fopen(fuzz_path("model.safetensors"), "wb");
    REQUIRE(header != NULL && fwrite("12345678{", 1, 9, header) == 9);
    while (length > 0 && bytes < FUZZ_MOST_BYTES) {
        const char *end = memchr(lines, '\n', length);
        const size_t line = end != NULL ? (size_t)(end - lines) : length;
        bytes += fuzz_write_entry(header, lines, line, bytes);
        lines += end != NULL ? line + 1 : line;
        length -= end != NULL ? line + 1 : line;
    }
    fputc('}', header);
    const uint64_t size = (uint64_t)ftell(header) - 8;
    rewind(header);
    REQUIRE(fwrite(&size, sizeof size, 1, header) == 1 && fflush(header) == 0);
    REQUIRE(ftruncate(fileno(header), (off_t)(8 + size + bytes)) == 0 && fclose(header) == 0);
}

#endif
