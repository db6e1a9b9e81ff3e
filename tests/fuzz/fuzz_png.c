/* libFuzzer target for the command's pictures.
 *
 * The first byte says whether the chunks' checksums are mended, so that damage is found behind them.  Whatever the bytes: an
 * exit status of bad input, or a picture that comes back unchanged when it is written and read again. */
#define _GNU_SOURCE
#include "fuzz_complain.h"
#include "fuzz_file.h"

#include <string.h>

#include <zlib.h>

#include "tool/cli/png_file.h"

#define SIGNATURE 8 /* bytes */

static uint32_t number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Writes the checksums of a file's chunks: length, type, data, checksum over both. */
static void mend(uint8_t *file, size_t size)
{
    for (size_t at = SIGNATURE; at + 12 <= size && number(file + at) <= size - at - 12; at += 12 + number(file + at)) {
        const uint32_t bytes = number(file + at), sum = (uint32_t)crc32(0, file + at + 4, bytes + 4);
        for (int i = 0; i < 4; i++)
            file[at + 8 + bytes + i] = (uint8_t)(sum >> (24 - 8 * i));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    picture first, again;
    if (size < 1)
        return 0;
    uint8_t *file = malloc(size);
    REQUIRE(file != NULL);
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1)
        mend(file, size - 1);
    int status = picture_load(fuzz_file(file, size - 1), &first);
    free(file);
    if (status != TOOL_DONE) {
        REQUIRE(status == TOOL_BAD_INPUT && first.pixels == NULL && first.chunks == NULL);
        return 0;
    }
    REQUIRE(first.width > 0 && first.height > 0 && first.width <= PICTURE_PIXELS / first.height);
    fuzz_touch(first.pixels, first.height * picture_row(&first));
    const char *path = fuzz_path("again.png");
    if (picture_store(path, &first) == TOOL_DONE) { /* libpng may refuse to write a chunk that it has read */
        REQUIRE(picture_load(path, &again) == TOOL_DONE);
        REQUIRE(again.width == first.width && again.height == first.height && again.channels == first.channels);
        REQUIRE(again.bits == first.bits &&
                memcmp(again.pixels, first.pixels, first.height * picture_row(&first)) == 0);
        picture_release(&again);
        unlink(path);
    }
    picture_release(&first);
    return 0;
}
