/* Log-mel spectrograms as Whisper was trained on. */
#ifndef CLATTN_TOOL_TRANSCRIBE_SOUND_MEL_H
#define CLATTN_TOOL_TRANSCRIBE_SOUND_MEL_H

#include <stdbool.h>
#include <stddef.h>

#define MEL_RATE 16000  /* samples a second */
#define MEL_HOP 160     /* samples a frame */
#define MEL_LENGTH 400  /* samples of a transform */
#define MEL_WINDOW 3000 /* frames of a window of 30 s */
#define MEL_SECONDS ((double)MEL_HOP / MEL_RATE)

/* Zeroed: none.  Release with mel_release. */
typedef struct mel_spectrogram {
    size_t bins;
    size_t frames; /* one for each 160 samples that are there in full, and one more */
    float *values; /* [frame * bins + bin] */
} mel_spectrogram;

/* The spectrogram of samples at 16 kHz: Hann windows of 400 samples around each multiple of 160, the
 * recording mirrored at its start and continued by 160 zeros, then mirrored, at its end; the power spectrum;
 * triangles of Slaney's mel scale, of area 1 in Hz; log10 of what is at least 1e-10, raised to the largest of
 * all minus 8; (x + 4) / 4.  Computed in double precision.  False when memory runs out. */
bool mel_compute(const float *samples, size_t count, size_t bins, mel_spectrogram *mel);

/* `MEL_WINDOW` frames from `first` on into [frame * bins + bin]; zeros after `count` frames. */
void mel_window(const mel_spectrogram *mel, size_t first, size_t count, float *window);

void mel_release(mel_spectrogram *mel);

#endif
