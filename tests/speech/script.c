#include "speech/script.h"

#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

int script_encode(void *user, const float *window)
{
    script *s = user;
    (void)window;
    s->window++;
    s->tries = 0;
    return s->window < s->windows ? TOOL_DONE : TOOL_FAILED;
}

static void script_logits(const script *s, size_t place, float *to)
{
    const int32_t *says = s->says[s->window];
    for (int i = 0; i < VOCABULARY; i++)
        to[i] = 0.0f;
    size_t length = 0;
    while (says[length] >= 0)
        length++;
    int32_t token = place < length ? says[place] : END;
    if (s->tries <= s->hot_tries && place > 0)
        token = place < 60 ? 0 : place == 60 ? AT(5) : END;
    to[token] = s->confidence;
    if (place == 0)
        to[NO_SPEECH] = s->no_speech;
}

int script_begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *to)
{
    script *s = user;
    memcpy(s->prompt, tokens, count * sizeof *tokens);
    s->prompt_count = count;
    s->count = 0;
    s->sequences = sequences;
    s->tries++;
    script_logits(s, 0, to);
    return TOOL_DONE;
}

int script_step(void *user, const size_t *parents, const int32_t *tokens, float *to)
{
    script *s = user;
    (void)parents;
    (void)tokens;
    s->count++;
    for (size_t i = 0; i < s->sequences; i++)
        script_logits(s, s->count, to + i * VOCABULARY);
    return TOOL_DONE;
}

int script_align(void *user, const int32_t *tokens, size_t count, int32_t end, const whisper_head *heads,
                 size_t head_count, double *p, float *attention)
{
    (void)user;
    (void)heads;
    assert_int_equal(tokens[0], START);
    assert_int_equal(tokens[1], NO_STAMPS);
    assert_int_equal(tokens[count - 1], END);
    assert_int_equal(end, END);
    for (size_t i = 0; i + 1 < count; i++)
        p[i] = 0.1 * (double)i;
    for (size_t h = 0; h < head_count; h++)
        for (size_t i = 0; i < count; i++)
            for (size_t f = 0; f < WHISPER_POSITIONS; f++)
                attention[(h * count + i) * WHISPER_POSITIONS + f] = i > 0 && f / 30 == i - 1 ? 0.03f : 0.0001f;
    return TOOL_DONE;
}

whisper_engine script_engine(script *s)
{
    s->window = -1;
    return (whisper_engine){s, VOCABULARY, 80, 2, 3, script_encode, script_begin, script_step, script_align};
}

mel_spectrogram silence(size_t frames)
{
    mel_spectrogram mel = {80, frames + 1, calloc((frames + 1) * 80, sizeof(float))};
    assert_non_null(mel.values);
    return mel;
}

void script_transcribe(script *s, const whisper_tokens *t, size_t frames, whisper_options options,
                       whisper_transcript *out)
{
    whisper_engine engine = script_engine(s);
    mel_spectrogram mel = silence(frames);
    complaint[0] = '\0';
    if (whisper_transcribe(&engine, t, &mel, &options, out) != TOOL_DONE)
        fail_msg("'%s' after %d windows", complaint, s->window);
    mel_release(&mel);
}
