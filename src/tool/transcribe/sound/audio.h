/* Recordings in WAV files. */
#ifndef CLATTN_TOOL_TRANSCRIBE_SOUND_AUDIO_H
#define CLATTN_TOOL_TRANSCRIBE_SOUND_AUDIO_H

#include <stddef.h>

/* The longest recording, in hours: a bound on what a small compressed file can make us allocate. */
#define AUDIO_HOURS 24

/* Sound at 16 kHz, one channel.  Zeroed: none.  Release with audio_release. */
typedef struct audio {
    size_t count;
    float *samples; /* -1 … 1, of 16 bits */
    double seconds; /* of the file */
    int rate, channels;
} audio;

/* Reads a WAV file (RIFF, RIFX, RF64; any sample format, channels and rate): the mean of its channels,
 * resampled to 16 kHz, rounded to 16 bits.  A file that ends before its header says is read as far as it
 * goes.  Returns an exit status. */
int audio_load(const char *path, audio *result);

void audio_release(audio *a);

#endif
