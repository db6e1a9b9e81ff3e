/* A scripted model of speech: it hears nothing and says what it is told to, window by window. */
#ifndef TESTS_SPEECH_SCRIPT_H
#define TESTS_SPEECH_SCRIPT_H

#include "speech/speech.h"
#include "tool/transcribe/sound/mel.h"
#include "tool/transcribe/whisper.h"

typedef struct script {
    /* The tokens that each window says, ended by -1; each is the likeliest after those before it. */
    const int32_t (*says)[16];
    int windows, window;
    float confidence; /* the logit of the tokens that are said; others have 0 */
    int hot_tries;    /* how many decodings of each window repeat themselves */
    int tries;
    float no_speech;
    size_t count, sequences;
    int32_t prompt[WHISPER_LENGTH];
    size_t prompt_count;
} script;

/* An engine that begins with the first window, and its functions, for engines that change some of them. */
whisper_engine script_engine(script *s);
int script_encode(void *user, const float *window);
int script_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to);
int script_step(void *user, const size_t *parents, const int32_t *tokens, float *to);
/* Lets token i look at frames 30 i to 30 i + 30. */
int script_align(void *user, const int32_t *tokens, size_t count, int32_t end, const whisper_head *heads,
                 size_t head_count, double *p, float *attention);

/* Returns a spectrogram of silence, which mel_release releases. */
mel_spectrogram silence(size_t frames);

/* Transcribes that much silence by the script; a failure fails the test. */
void script_transcribe(script *s, const whisper_tokens *t, size_t frames, whisper_options options,
                       whisper_transcript *out);

#endif
