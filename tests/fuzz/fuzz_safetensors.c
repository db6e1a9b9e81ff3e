/* libFuzzer target for the safetensors reader.
 *
 * The first eight bytes, the header's length, are made right for most inputs (a fuzzer seldom guesses them):
 * the data is what comes after the last '}' and its spaces.  Whatever the bytes: a status and a message, or
 * tensors that tile the data. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "clattn/io.h"

static void check(const uint8_t *data, size_t size)
{
    clattn_safetensors *file;
    clattn_safetensors_entry entry;
    clattn_host_tensor tensor;
    clattn_io_error error;
    memset(&error, 0xff, sizeof error);
    clattn_status status = clattn_safetensors_create(fuzz_file(data, size), &file, &error);
    if (status != CLATTN_SUCCESS) {
        REQUIRE(file == NULL && memchr(error.message, '\0', sizeof error.message) != NULL);
        REQUIRE(status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED || status == CLATTN_ERROR_OVERFLOW);
        return;
    }
    size_t total = 0;
    const char *before = NULL;
    for (size_t i = 0; i < clattn_safetensors_count(file); i++) {
        REQUIRE(clattn_safetensors_at(file, i, &entry) == CLATTN_SUCCESS);
        REQUIRE(before == NULL || strcmp(before, entry.name) < 0);
        before = entry.name;
        fuzz_touch(entry.tensor.data, entry.tensor.bytes);
        total += entry.tensor.bytes;
        status = clattn_safetensors_find(file, entry.name, &tensor, &error);
        REQUIRE((status == CLATTN_SUCCESS) == (entry.tensor.dtype != CLATTN_DTYPE_NONE));
        REQUIRE(status != CLATTN_SUCCESS || memcmp(&tensor, &entry.tensor, sizeof tensor) == 0);
    }
    REQUIRE(total <= size - 8);
    clattn_safetensors_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    if (size < 8)
        return 0;
    uint8_t *copy = malloc(size);
    size_t end = size;
    while (end > 8 && data[end - 1] != '}')
        end--;
    while (end < size && data[end] == ' ')
        end++;
    memcpy(copy, data, size);
    for (int i = 0; i < 8; i++)
        copy[i] = (uint8_t)((uint64_t)(end - 8) >> 8 * i);
    check(copy, size);
    free(copy);
    return 0;
}
