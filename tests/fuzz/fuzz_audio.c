/* libFuzzer target for WAV files, header and all, to their spectrogram.
 *
 * Whatever the bytes: an exit status of bad input, or samples of 16 bits that have a spectrogram. */
#define _GNU_SOURCE
#include "fuzz_complain.h"
#include "fuzz_file.h"

#include <math.h>

#include "tool/transcribe/sound/audio.h"
#include "tool/transcribe/sound/mel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    audio a;
    int status = audio_load(fuzz_file(data, size), &a);
    REQUIRE(status == TOOL_DONE || (status == TOOL_BAD_INPUT && a.samples == NULL));
    if (status != TOOL_DONE)
        return 0;
    for (size_t i = 0; i < a.count; i++)
        REQUIRE(a.samples[i] >= -1.0f && a.samples[i] < 1.0f &&
                a.samples[i] * 32768.0f == rintf(a.samples[i] * 32768.0f));
    mel_spectrogram mel;
    if (a.count < 20000) {
        REQUIRE(mel_compute(a.samples, a.count, 80, &mel) && mel.frames == a.count / MEL_HOP + 1);
        for (size_t i = 0; i < mel.frames * 80; i++)
            REQUIRE(isfinite(mel.values[i]));
        mel_release(&mel);
    }
    audio_release(&a);
    return 0;
}
