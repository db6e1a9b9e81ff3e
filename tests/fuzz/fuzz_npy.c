/* libFuzzer target for the .npy reader.
 *
 * Whatever the bytes: a status and a message, or an array that fits the file and that the writer and the
 * reader carry through unchanged. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "clattn/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    clattn_npy *npy, *again;
    clattn_io_error error;
    memset(&error, 0xff, sizeof error);
    clattn_status status = clattn_npy_create(fuzz_file(data, size), &npy, &error);
    if (status != CLATTN_SUCCESS) {
        REQUIRE(npy == NULL && memchr(error.message, '\0', sizeof error.message) != NULL);
        REQUIRE(status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED || status == CLATTN_ERROR_OVERFLOW);
        return 0;
    }
    clattn_host_tensor tensor = clattn_npy_tensor(npy), copy;
    REQUIRE(tensor.bytes < size && tensor.rank >= 0 && tensor.rank <= CLATTN_MAX_RANK);
    fuzz_touch(tensor.data, tensor.bytes);

    const char *path = fuzz_path("again.npy");
    REQUIRE(clattn_npy_write(path, tensor.dtype, tensor.rank, tensor.extent, tensor.data, &error) == CLATTN_SUCCESS);
    REQUIRE(clattn_npy_create(path, &again, &error) == CLATTN_SUCCESS);
    unlink(path);
    copy = clattn_npy_tensor(again);
    REQUIRE(copy.dtype == tensor.dtype && copy.rank == tensor.rank && copy.bytes == tensor.bytes);
    REQUIRE(memcmp(copy.extent, tensor.extent, sizeof copy.extent) == 0);
    REQUIRE(copy.bytes == 0 || memcmp(copy.data, tensor.data, copy.bytes) == 0);
    clattn_npy_release(&again);
    clattn_npy_release(&npy);
    return 0;
}
