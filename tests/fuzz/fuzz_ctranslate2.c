/* libFuzzer target for the reader of CTranslate2 models.
 *
 * Whatever the bytes: a status and a message, or variables within the file. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "clattn/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    clattn_ctranslate2 *file;
    clattn_ctranslate2_entry entry;
    clattn_host_tensor tensor;
    clattn_io_error error;
    int32_t value;
    if (size == 0)
        return 0;
    memset(&error, 0xff, sizeof error);
    clattn_status status = clattn_ctranslate2_create(fuzz_file(data, size), &file, &error);
    if (status != CLATTN_SUCCESS) {
        REQUIRE(file == NULL && memchr(error.message, '\0', sizeof error.message) != NULL);
        REQUIRE(status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED || status == CLATTN_ERROR_OVERFLOW);
        return 0;
    }
    const char *before = "";
    REQUIRE(strlen(clattn_ctranslate2_spec(file)) < size);
    for (size_t i = 0; i < clattn_ctranslate2_count(file); i++) {
        REQUIRE(clattn_ctranslate2_at(file, i, &entry) == CLATTN_SUCCESS);
        REQUIRE(strcmp(before, entry.name) < 0);
        before = entry.name;
        REQUIRE(entry.tensor.bytes < size);
        fuzz_touch(entry.tensor.data, entry.tensor.bytes);
        status = clattn_ctranslate2_find(file, entry.name, &tensor, &error);
        REQUIRE((status == CLATTN_SUCCESS) == (entry.tensor.dtype != CLATTN_DTYPE_NONE));
        REQUIRE(status != CLATTN_SUCCESS || memcmp(&tensor, &entry.tensor, sizeof tensor) == 0);
        REQUIRE(!clattn_ctranslate2_integer(file, entry.name, &value) || entry.tensor.bytes <= 4);
    }
    clattn_ctranslate2_release(&file);
    return 0;
}
