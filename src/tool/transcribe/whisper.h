/* A recording's text, by a Whisper model: windows of up to 30 s, each from where the one before ended. */
#ifndef CLATTN_TOOL_TRANSCRIBE_WHISPER_H
#define CLATTN_TOOL_TRANSCRIBE_WHISPER_H

#include "tool/transcribe/sound/mel.h"
#include "tool/transcribe/engine.h"
#include "tool/transcribe/map.h"
#include "tool/transcribe/words.h"

typedef struct whisper_options {
    size_t beams;     /* 1: greedy; up to WHISPER_SEQUENCES */
    bool words;       /* their times, too */
    bool independent; /* no window has the text before it in its prompt */
    bool fallback;    /* a window whose text repeats itself or is unlikely is decoded anew, at random, hotter
                         each time */
    size_t samples;   /* random texts of such a try, of which the likeliest is kept */
    uint64_t seed;    /* of these tries */
    whisper_map *map; /* gets what each window's text attends to; NULL: not wanted.  Borrowed */
} whisper_options;

typedef struct whisper_segment {
    double start, end; /* seconds */
    char *text;
    int32_t *tokens; /* timestamps included */
    size_t token_count;
    double average, no_speech; /* of the whole window; see whisper_result */
    double temperature;
    double compression; /* bytes of the window's text for one byte of it compressed by zlib */
    whisper_words words;
} whisper_segment;

/* Zeroed: empty.  Release with whisper_transcript_release. */
typedef struct whisper_transcript {
    whisper_segment *segment;
    size_t count;
    size_t windows;   /* that were encoded */
    size_t generated; /* tokens, of all tries */
} whisper_transcript;

/* Returns an exit status; what was found before a failure stays to be released. */
int whisper_transcribe(const whisper_engine *engine, const whisper_tokens *tokens, const mel_spectrogram *mel,
                       const whisper_options *options, whisper_transcript *transcript);

/* All segments' text without white space around it.  The caller frees it; NULL when memory runs out. */
char *whisper_transcript_text(const whisper_transcript *transcript);

void whisper_transcript_release(whisper_transcript *transcript);

#endif
