#include "tool/transcribe/json.h"

#include <stdlib.h>

/* Both take over `value`; false if it is NULL or memory runs out. */
static bool put(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

static bool append(json_t *array, json_t *value)
{
    return json_array_append_new(array, value) == 0;
}

/* Returns NULL if memory runs out for any part. */
static json_t *whole(json_t *value, bool there)
{
    if (there)
        return value;
    json_decref(value);
    return NULL;
}

/* json_real() returns NULL for a number that is not finite. */
static json_t *word_json(const whisper_word *w)
{
    json_t *object = json_object();
    return whole(object, put(object, "start", json_real(w->start)) && put(object, "end", json_real(w->end)) &&
                             put(object, "word", json_string(w->text)) &&
                             put(object, "probability", json_real(w->probability)));
}

static json_t *words_json(const whisper_words *words)
{
    json_t *array = json_array();
    bool there = array != NULL;
    for (size_t i = 0; i < words->count && there; i++)
        there = append(array, word_json(&words->word[i]));
    return whole(array, there);
}

static json_t *tokens_json(const whisper_segment *s)
{
    json_t *array = json_array();
    bool there = array != NULL;
    for (size_t i = 0; i < s->token_count && there; i++)
        there = append(array, json_integer(s->tokens[i]));
    return whole(array, there);
}

static json_t *segment_json(const whisper_segment *s, bool words)
{
    json_t *object = json_object();
    return whole(object, put(object, "start", json_real(s->start)) && put(object, "end", json_real(s->end)) &&
                             put(object, "text", json_string(s->text)) && put(object, "tokens", tokens_json(s)) &&
                             put(object, "avg_logprob", json_real(s->average)) &&
                             put(object, "no_speech_prob", json_real(s->no_speech)) &&
                             put(object, "temperature", json_real(s->temperature)) &&
                             put(object, "compression_ratio", json_real(s->compression)) &&
                             (!words || put(object, "words", words_json(&s->words))));
}

static json_t *segments_json(const whisper_transcript *transcript, bool words)
{
    json_t *array = json_array();
    bool there = array != NULL;
    for (size_t i = 0; i < transcript->count && there; i++)
        there = append(array, segment_json(&transcript->segment[i], words));
    return whole(array, there);
}

json_t *whisper_transcript_json(const whisper_transcript *transcript, bool words)
{
    char *text = whisper_transcript_text(transcript);
    json_t *object = text != NULL ? json_object() : NULL;
    bool there = put(object, "text", text != NULL ? json_string(text) : NULL) &&
                 put(object, "segments", segments_json(transcript, words)) &&
                 put(object, "windows", json_integer((json_int_t)transcript->windows));
    free(text);
    return whole(object, there);
}
