/* whisper_host MODEL_DIR AUDIO.wav [words] [beams N] [attention]: what `clattn transcribe` does, by the host's
 * implementation of the model; JSON as the command's.  With `attention` also the numbers of its heat map:
 * "attention": [{"layers", "heads", "tokens", "columns", "labels", "first", "step", "cells"}]. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "whisper_host.h"
#include "tool/transcribe/sound/audio.h"
#include "tool/transcribe/whisper.h"
#include "tool/transcribe/json.h"

static json_t *part_json(const heatmap_part *part)
{
    json_t *labels = json_array(), *cells = json_array();
    size_t count = part->layers * part->heads * part->query.count * part->key.count;
    for (size_t i = 0; i < part->query.count; i++)
        json_array_append_new(labels, json_string(part->query.labels[i]));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(cells, json_real((double)part->values[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:o}", "layers", (json_int_t)part->layers, "heads",
                     (json_int_t)part->heads, "tokens", (json_int_t)part->query.count, "columns",
                     (json_int_t)part->key.count, "labels", labels, "first", part->key.first, "step", part->key.step,
                     "cells", cells);
}

int main(int argc, char **argv)
{
    whisper_options options = {.beams = 1};
    audio sound = {0};
    whisper_tokens tokens = {0};
    mel_spectrogram mel = {0};
    whisper_transcript transcript = {0};
    whisper_map map = {0};
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "words") == 0)
            options.words = true;
        else if (strcmp(argv[i], "beams") == 0 && i + 1 < argc)
            options.beams = (size_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "attention") == 0)
            options.map = &map;
    }
    if (argc < 3) {
        fputs("usage: whisper_host MODEL_DIR AUDIO.wav [words] [beams N] [attention]\n", stderr);
        return 2;
    }
    int status = audio_load(argv[2], &sound);
    if (status == 0)
        status = whisper_tokens_load(argv[1], &tokens);
    if (status != 0)
        return status;
    whisper_engine engine = whisper_host(argv[1]);
    if (engine.vocabulary != tokens.count || !mel_compute(sound.samples, sound.count, engine.bins, &mel))
        return 2;
    status = whisper_transcribe(&engine, &tokens, &mel, &options, &transcript);
    if (status == 0) {
        json_t *object = whisper_transcript_json(&transcript, options.words);
        json_t *parts = json_array();
        for (size_t i = 0; i < map.count; i++)
            json_array_append_new(parts, part_json(&map.parts[i]));
        json_object_set_new(object, "attention", parts);
        json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(object);
    }
    whisper_map_release(&map);
    whisper_transcript_release(&transcript);
    mel_release(&mel);
    whisper_tokens_release(&tokens);
    audio_release(&sound);
    return status;
}
