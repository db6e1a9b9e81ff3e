/* A model of speech that is a script: it says what it is told to, window by window, and hears nothing. */
#ifndef TESTS_SPEECH_SCRIPT_H
#define TESTS_SPEECH_SCRIPT_H

#include "speech/speech.h"
#include "tool/transcribe/sound/mel.h"
#include "tool/transcribe/whisper.h"

typedef struct script {
    /* What each window says, ended by -1: the likeliest token after those before it. */
    const int32_t (*says)[16];
    int windows, window;
    float confidence; /* the logit of what is said, others' being 0 */
    int hot_tries;    /* so many decodings of each window repeat themselves */
    int tries;
    float no_speech;
    int32_t generated[WHISPER_SEQUENCES][WHISPER_LENGTH];
    size_t count, sequences;
    int32_t prompt[WHISPER_LENGTH];
    size_t prompt_count;
} script;

/* An engine that begins with the first window; its functions, for engines that change something of theirs. */
whisper_engine script_engine(script *s);
int script_encode(void *user, const float *window);
int script_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to);
int script_step(void *user, const size_t *parents, const int32_t *tokens, float *to);
/* Token i looks at frames 30 i to 30 i + 30. */
int script_align(void *user, const int32_t *tokens, size_t count, int32_t end, const whisper_head *heads,
                 size_t head_count, double *p, float *attention);

/* To be released by mel_release. */
mel_spectrogram silence(size_t frames);

/* What the script says of so much silence; a failure fails the test. */
void script_transcribe(script *s, const whisper_tokens *t, size_t frames, whisper_options options,
                       whisper_transcript *out);

#endif
