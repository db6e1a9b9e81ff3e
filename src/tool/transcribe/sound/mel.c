#include "tool/transcribe/sound/mel.h"

#include <fftw3.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SPECTRUM (MEL_LENGTH / 2 + 1)
#define PI 3.14159265358979323846

/* Slaney's scale: linear to 1 kHz, logarithmic above.  Whisper's filters span 0 to 8 kHz. */
#define LINEAR_STEP (200.0 / 3)
#define LOG_FROM_HZ 1000.0
#define LOG_FROM (LOG_FROM_HZ / LINEAR_STEP)
#define LOG_STEP (log(6.4) / 27.0)

static double hz_of(double mel)
{
    return mel < LOG_FROM ? LINEAR_STEP * mel : LOG_FROM_HZ * exp(LOG_STEP * (mel - LOG_FROM));
}

/* A triangle over the spectrum, from its first bin that is not 0 to its last; the values are those that
 * float32 holds, as the model's own filters do. */
typedef struct triangle {
    size_t first, count;
    double value[SPECTRUM];
} triangle;

static void make_triangle(size_t index, size_t bins, triangle *t)
{
    const double top = LOG_FROM + log(MEL_RATE / 2 / LOG_FROM_HZ) / LOG_STEP;
    double edge[3];
    for (size_t i = 0; i < 3; i++)
        edge[i] = hz_of(top * (double)(index + i) / (double)(bins + 1));
    *t = (triangle){0, 0, {0}};
    for (size_t k = 0; k < SPECTRUM; k++) {
        double hz = (double)k * MEL_RATE / MEL_LENGTH;
        double up = (hz - edge[0]) / (edge[1] - edge[0]), down = (edge[2] - hz) / (edge[2] - edge[1]);
        double value = (up < down ? up : down) * 2.0 / (edge[2] - edge[0]);
        if (value <= 0.0)
            continue;
        if (t->count == 0)
            t->first = k;
        t->count = k - t->first + 1;
        t->value[k - t->first] = (double)(float)value;
    }
}

/* The sample at `at` of the recording, which is extended by MEL_HOP zeros and then mirrored at both ends. */
static double sample_at(const float *samples, size_t count, ptrdiff_t at)
{
    ptrdiff_t last = (ptrdiff_t)count + MEL_HOP - 1;
    while (at < 0 || at > last)
        at = at < 0 ? -at : 2 * last - at;
    return (size_t)at < count ? (double)samples[at] : 0.0;
}

/* The plan and the buffers with which a spectrogram is computed. */
typedef struct mel_work {
    fftw_plan plan;
    double *input;
    fftw_complex *output;
    double window[MEL_LENGTH], power[SPECTRUM];
    triangle *triangles;
} mel_work;

static void release_work(mel_work *work)
{
    if (work->plan != NULL)
        fftw_destroy_plan(work->plan);
    fftw_free(work->input);
    fftw_free(work->output);
    free(work->triangles);
}

static bool make_work(size_t bins, mel_work *work)
{
    *work = (mel_work){.input = fftw_alloc_real(MEL_LENGTH), .output = fftw_alloc_complex(SPECTRUM)};
    work->triangles = malloc(bins * sizeof *work->triangles);
    if (work->input != NULL && work->output != NULL && work->triangles != NULL)
        work->plan = fftw_plan_dft_r2c_1d(MEL_LENGTH, work->input, work->output, FFTW_ESTIMATE);
    if (work->plan == NULL) {
        release_work(work);
        return false;
    }
    for (size_t i = 0; i < MEL_LENGTH; i++)
        work->window[i] = (double)(float)(0.5 - 0.5 * cos(2.0 * PI * (double)i / MEL_LENGTH));
    for (size_t i = 0; i < bins; i++)
        make_triangle(i, bins, &work->triangles[i]);
    return true;
}

/* log10 of the mel energies around sample `centre`. */
static void compute_frame(mel_work *work, const float *samples, size_t count, size_t centre, size_t bins, float *values)
{
    for (size_t i = 0; i < MEL_LENGTH; i++)
        work->input[i] =
            work->window[i] * sample_at(samples, count, (ptrdiff_t)(centre + i) - (ptrdiff_t)(MEL_LENGTH / 2));
    fftw_execute(work->plan);
    for (size_t k = 0; k < SPECTRUM; k++)
        work->power[k] = work->output[k][0] * work->output[k][0] + work->output[k][1] * work->output[k][1];
    for (size_t b = 0; b < bins; b++) {
        const triangle *t = &work->triangles[b];
        double sum = 0.0;
        for (size_t k = 0; k < t->count; k++)
            sum += t->value[k] * work->power[t->first + k];
        values[b] = (float)log10(sum > 1e-10 ? sum : 1e-10);
    }
}

bool mel_compute(const float *samples, size_t count, size_t bins, mel_spectrogram *mel)
{
    mel_work work;
    *mel = (mel_spectrogram){bins, count / MEL_HOP + 1, NULL};
    if (mel->frames <= SIZE_MAX / sizeof(float) / bins)
        mel->values = malloc(mel->frames * bins * sizeof(float));
    if (mel->values == NULL || !make_work(bins, &work)) {
        mel_release(mel);
        return false;
    }
    float largest = -10.0f;
    for (size_t t = 0; t < mel->frames; t++) {
        float *values = mel->values + t * bins;
        compute_frame(&work, samples, count, t * MEL_HOP, bins, values);
        for (size_t b = 0; b < bins; b++)
            largest = values[b] > largest ? values[b] : largest;
    }
    for (size_t i = 0; i < mel->frames * bins; i++) {
        float value = mel->values[i] > largest - 8.0f ? mel->values[i] : largest - 8.0f;
        mel->values[i] = (value + 4.0f) / 4.0f;
    }
    release_work(&work);
    return true;
}

void mel_window(const mel_spectrogram *mel, size_t first, size_t count, float *window)
{
    size_t there = first < mel->frames ? mel->frames - first : 0;
    if (count > MEL_WINDOW)
        count = MEL_WINDOW;
    if (count > there)
        count = there;
    memcpy(window, mel->values + first * mel->bins, count * mel->bins * sizeof(float));
    memset(window + count * mel->bins, 0, (MEL_WINDOW - count) * mel->bins * sizeof(float));
}

void mel_release(mel_spectrogram *mel)
{
    free(mel->values);
    *mel = (mel_spectrogram){0};
}
