#include "tool/transcribe/sound/audio.h"

#include <math.h>
#include <sndfile.h>
#include <soxr.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/os_tool.h"
#include "tool/tool.h"
#include "tool/transcribe/sound/mel.h"

/* Frames that are read at a time, so that a wrong length in a header allocates nothing. */
#define BLOCK 16384
#define LEAST_RATE 1000
#define MOST_RATE 768000

/* 16-bit samples in one step of 1/32768. */
#define STEPS 32768.0f

/* Floats beyond full scale are clipped after resampling; far larger ones are clipped before, so that no sum overflows. */
#define LOUDEST 65536.0f

static bool is_wav(int format)
{
    switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
    case SF_FORMAT_WAVEX:
    case SF_FORMAT_RF64: return true;
    default: return false;
    }
}

/* Integers wider than 16 bits lose their last ones, as the loader that Whisper's users know does; all else is
 * rounded. */
static bool is_wide(int format)
{
    int kind = format & SF_FORMAT_SUBMASK;
    return kind == SF_FORMAT_PCM_24 || kind == SF_FORMAT_PCM_32;
}

static bool is_float(int format)
{
    int kind = format & SF_FORMAT_SUBMASK;
    return kind == SF_FORMAT_FLOAT || kind == SF_FORMAT_DOUBLE;
}

static float to_16_bits(float value)
{
    return value < -STEPS ? -STEPS : value > STEPS - 1.0f ? STEPS - 1.0f : value;
}

/* Writes the mean of each frame's channels; false if a sample is not a finite number. */
static bool mix(const float *frames, size_t count, int channels, int format, bool resampled, float *mono)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0.0f;
        for (int c = 0; c < channels; c++) {
            float sample = frames[i * (size_t)channels + (size_t)c];
            if (!isfinite(sample))
                return false;
            sum += fminf(fmaxf(sample, -LOUDEST), LOUDEST);
        }
        float value = sum / (float)channels;
        if (!resampled) {
            float steps = value * STEPS;
            if (channels == 1 && is_wide(format))
                steps = floorf(steps);
            else
                steps = is_float(format) || is_wide(format) ? rintf(steps) : floorf(steps + 0.5f);
            value = to_16_bits(steps) / STEPS;
        }
        mono[i] = value;
    }
    return true;
}

/* Reads and mixes all of the file's frames. */
static int read_frames(SNDFILE *file, const char *path, const SF_INFO *info, audio *a)
{
    size_t capacity = 0, channels = (size_t)info->channels,
           most = (size_t)AUDIO_HOURS * 3600 * (size_t)info->samplerate;
    bool resampled = info->samplerate != MEL_RATE;
    float *frames = malloc(BLOCK * channels * sizeof *frames);
    int status = TOOL_DONE;
    if (frames == NULL)
        TOOL_TRY(complain(TOOL_FAILED, "%s: no memory to read it", path));
    for (sf_count_t got; (got = sf_readf_float(file, frames, BLOCK)) > 0; a->count += (size_t)got) {
        if (a->count + (size_t)got > most)
            TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: is longer than %d hours", path, AUDIO_HOURS));
        if (a->count + (size_t)got > capacity) {
            capacity = 2 * (a->count + (size_t)got);
            float *more = realloc(a->samples, capacity * sizeof *more);
            if (more == NULL)
                TOOL_TRY(complain(TOOL_FAILED, "%s: no memory for %zu samples", path, capacity));
            a->samples = more;
        }
        if (!mix(frames, (size_t)got, info->channels, info->format, resampled, a->samples + a->count))
            TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: a sample between %.2f s and %.2f s is not a finite number", path,
                              (double)a->count / info->samplerate,
                              (double)(a->count + (size_t)got) / info->samplerate));
    }
fail:
    free(frames);
    return status;
}

/* Resamples to 16 kHz and rounds to 16 bits. */
static int resample(const char *path, int rate, audio *a)
{
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    size_t room = (size_t)((double)a->count * MEL_RATE / rate) + 64, done = 0;
    float *samples = malloc(room * sizeof *samples);
    if (samples == NULL)
        return complain(TOOL_FAILED, "%s: no memory to resample it", path);
    soxr_error_t error = a->count > 0 ? soxr_oneshot(rate, MEL_RATE, 1, a->samples, a->count, NULL, samples, room,
                                                     &done, NULL, &quality, NULL)
                                      : NULL;
    if (error != NULL) {
        free(samples);
        return complain(TOOL_FAILED, "%s: cannot be resampled from %d Hz: %s", path, rate, soxr_strerror(error));
    }
    for (size_t i = 0; i < done; i++)
        samples[i] = to_16_bits(rintf(samples[i] * STEPS)) / STEPS;
    free(a->samples);
    a->samples = samples;
    a->count = done;
    return TOOL_DONE;
}

int audio_load(const char *path, audio *result)
{
    SF_INFO info = {0};
    *result = (audio){0};
    switch (os_look_at(path)) {
    case OS_PATH_FILE: break;
    case OS_PATH_MISSING: return complain(TOOL_BAD_INPUT, "%s: there is no such file", path);
    case OS_PATH_FOLDER: return complain(TOOL_BAD_INPUT, "%s: is a folder, expected a WAV file", path);
    default: return complain(TOOL_BAD_INPUT, "%s: is not a regular file, expected a WAV file", path);
    }
    SNDFILE *file = sf_open(path, SFM_READ, &info);
    if (file == NULL)
        return complain(TOOL_BAD_INPUT, "%s: is not a WAV file that can be read: %s", path, sf_strerror(NULL));
    int status = TOOL_DONE;
    if (!is_wav(info.format))
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: is sound of another kind, expected a WAV file", path));
    else if (info.samplerate < LEAST_RATE || info.samplerate > MOST_RATE)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: has %d samples a second, expected %d to %d", path, info.samplerate,
                          LEAST_RATE, MOST_RATE));
    TOOL_TRY(read_frames(file, path, &info, result));
    result->rate = info.samplerate;
    result->channels = info.channels;
    result->seconds = (double)result->count / info.samplerate;
    if (info.samplerate != MEL_RATE)
        TOOL_TRY(resample(path, info.samplerate, result));
fail:
    sf_close(file);
    if (status != TOOL_DONE)
        audio_release(result);
    return status;
}

void audio_release(audio *a)
{
    free(a->samples);
    *a = (audio){0};
}
