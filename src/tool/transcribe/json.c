#include "tool/transcribe/json.h"

#include <stdlib.h>

/* Returns NULL if memory ran out for any part. */
static json_t *whole(json_t *value, bool there)
{
    if (there)
        return value;
    json_decref(value);
    return NULL;
}

/* json_pack() returns NULL for a number that is not finite. */
static json_t *words_json(const whisper_words *words)
{
    json_t *array = json_array();
    bool there = array != NULL;
    for (size_t i = 0; i < words->count && there; i++) {
        const whisper_word *w = &words->word[i];
        there = json_array_append_new(array, json_pack("{s:f, s:f, s:s, s:f}", "start", w->start, "end", w->end, "word",
                                                       w->text, "probability", w->probability)) == 0;
    }
    return whole(array, there);
}

static json_t *tokens_json(const whisper_segment *s)
{
    json_t *array = json_array();
    bool there = array != NULL;
    for (size_t i = 0; i < s->token_count && there; i++)
        there = json_array_append_new(array, json_integer(s->tokens[i])) == 0;
    return whole(array, there);
}

static json_t *segment_json(const whisper_segment *s, bool words)
{
    json_t *object = json_pack("{s:f, s:f, s:s, s:o, s:f, s:f, s:f, s:f}", "start", s->start, "end", s->end, "text",
                               s->text, "tokens", tokens_json(s), "avg_logprob", s->average, "no_speech_prob",
                               s->no_speech, "temperature", s->temperature, "compression_ratio", s->compression);
    return whole(object, !words || json_object_set_new(object, "words", words_json(&s->words)) == 0);
}

static json_t *segments_json(const whisper_transcript *transcript, bool words)
{
    json_t *array = json_array();
    bool there = array != NULL;
    for (size_t i = 0; i < transcript->count && there; i++)
        there = json_array_append_new(array, segment_json(&transcript->segment[i], words)) == 0;
    return whole(array, there);
}

json_t *whisper_transcript_json(const whisper_transcript *transcript, bool words)
{
    char *text = whisper_transcript_text(transcript);
    json_t *object = json_pack("{s:s, s:o, s:I}", "text", text, "segments", segments_json(transcript, words), "windows",
                               (json_int_t)transcript->windows);
    free(text);
    return object;
}
