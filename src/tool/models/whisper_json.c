#include "whisper_json.h"

#include <stdlib.h>

static json_t *words_json(const whisper_words *words)
{
    json_t *array = json_array();
    for (size_t i = 0; i < words->count; i++) {
        const whisper_word *w = &words->word[i];
        json_array_append_new(array, json_pack("{s:f, s:f, s:s, s:f}", "start", w->start, "end", w->end,
                                               "word", w->text, "probability", w->probability));
    }
    return array;
}

static json_t *segment_json(const whisper_segment *s, bool words)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < s->token_count; i++)
        json_array_append_new(tokens, json_integer(s->tokens[i]));
    json_t *object =
        json_pack("{s:f, s:f, s:s, s:o, s:f, s:f, s:f, s:f}", "start", s->start, "end", s->end, "text",
                  s->text, "tokens", tokens, "avg_logprob", s->average, "no_speech_prob", s->no_speech,
                  "temperature", s->temperature, "compression_ratio", s->compression);
    if (words)
        json_object_set_new(object, "words", words_json(&s->words));
    return object;
}

json_t *whisper_transcript_json(const whisper_transcript *transcript, bool words)
{
    char *text = whisper_transcript_text(transcript);
    json_t *segments = json_array();
    for (size_t i = 0; i < transcript->count; i++)
        json_array_append_new(segments, segment_json(&transcript->segment[i], words));
    json_t *object = text != NULL ? json_pack("{s:s, s:o, s:I}", "text", text, "segments", segments,
                                              "windows", (json_int_t)transcript->windows)
                                  : NULL;
    free(text);
    return object;
}
