/* clattn transcribe: a recording's text, by a Whisper model. */
#include "tool/tool.h"

#ifdef CLATTN_SPEECH

#include <stdio.h>
#include <stdlib.h>

#include "tool/heatmap/options.h"
#include "tool/transcribe/sound/audio.h"
#include "tool/transcribe/whisper.h"
#include "tool/transcribe/device.h"
#include "tool/transcribe/json.h"
#include "tool/cli/options.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/report.h"

#define SAMPLES 5

typedef struct transcribe_options {
    const char *files[2];
    const char *device;
    size_t beams;
    int32_t dtype;
    option_whole seed;
    bool words, independent, no_fallback, json;
    option_list maps;
} transcribe_options;

#define FIELD(name) offsetof(transcribe_options, name)

static const option_row rows[] = {
    {"--words", OPTION_FLAG, FIELD(words), .help = "a line a word: start, end (seconds) and the word"},
    {"--beams", OPTION_COUNT, FIELD(beams), "N",
     .help = "beam search of N texts side by side, up to 8; default 1, greedy", .count = WHISPER_SEQUENCES},
    {"--no-fallback", OPTION_FLAG, FIELD(no_fallback),
     .help = "keep what is unlikely or repeats itself, rather than try again at random"},
    {"--seed", OPTION_WHOLE, FIELD(seed), "N", .help = "of these tries; default 0"},
    {"--independent", OPTION_FLAG, FIELD(independent), .help = "windows of 30 s do not see the text before them"},
    HEATMAP_OPTION_ROW(transcribe_options, maps, "when each token of the text is heard, by the decoder's attention"),
    OPTION_ROW_DTYPE(transcribe_options, "of the model's weights and of what its layers store"),
    OPTION_ROW_DEVICE(transcribe_options),
    OPTION_ROW_JSON(transcribe_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "transcribe",
    .summary = "The text that is spoken in a recording, by a Whisper model for English in CTranslate2's format.",
    .operands = "MODEL_DIR AUDIO.wav",
    .operand_offset = FIELD(files),
    .operand_least = 2,
    .operand_count = 2,
    .rows = rows,
};

/* The state and the measurements of a run. */
typedef struct run {
    audio sound;
    whisper_tokens tokens;
    mel_spectrogram mel;
    tool_device device;
    whisper_device *model;
    whisper_transcript transcript;
    whisper_map map;
    double loading, hearing; /* seconds to load the model, and for all after it */
} run;

static int hear(const transcribe_options *o, run *r)
{
    size_t beams = o->beams > 0 ? o->beams : 1, samples = beams > 1 ? beams : SAMPLES;
    whisper_options options = {.beams = beams,
                               .samples = samples,
                               .words = o->words,
                               .fallback = !o->no_fallback,
                               .independent = o->independent,
                               .seed = o->seed.value,
                               .map = o->maps.count > 0 ? &r->map : NULL};
    whisper_attention attention = o->maps.count > 0 ? WHISPER_ATTENTION_ALL
                                  : o->words        ? WHISPER_ATTENTION_WORDS
                                                    : WHISPER_ATTENTION_NONE;
    double started = os_seconds();
    /* Wrong files are reported before a device is opened. */
    int status;
    TOOL_TRY(heatmap_files_check(&o->maps, &o->files[1], 1));
    TOOL_TRY(audio_load(o->files[1], &r->sound));
    TOOL_TRY(whisper_tokens_load(o->files[0], &r->tokens));
    TOOL_TRY(device_open(o->device, &r->device));
    TOOL_TRY(whisper_device_open(&r->device, o->files[0], option_dtypes[o->dtype], &r->tokens, beams,
                                 o->no_fallback ? beams : samples, attention, &r->model));
    r->loading = os_seconds() - started;
    started = os_seconds();
    whisper_engine engine = whisper_device_engine(r->model);
    if (!mel_compute(r->sound.samples, r->sound.count, engine.bins, &r->mel))
        return complain(TOOL_FAILED, "%s: no memory for its spectrogram", o->files[1]);
    TOOL_TRY(whisper_transcribe(&engine, &r->tokens, &r->mel, &options, &r->transcript));
fail:
    r->hearing = os_seconds() - started;
    return status;
}

static int write_json(const transcribe_options *o, const run *r)
{
    tool_report report = {whisper_transcript_json(&r->transcript, o->words)};
    report_text(&report, "device", r->device.info.name);
    report_text(&report, "platform", r->device.info.platform);
    report_text(&report, "dtype", clattn_dtype_name(option_dtypes[o->dtype]));
    report_number(&report, "duration", r->sound.seconds);
    report_count(&report, "sample_rate", (size_t)r->sound.rate);
    report_count(&report, "channels", (size_t)r->sound.channels);
    report_count(&report, "tokens", r->transcript.generated);
    report_number(&report, "seconds_loading", r->loading);
    report_number(&report, "seconds", r->hearing);
    report_number(&report, "real_time_factor", r->sound.seconds > 0.0 ? r->hearing / r->sound.seconds : 0.0);
    report_count(&report, "weight_bytes", whisper_device_weight_bytes(r->model));
    report_count(&report, "work_bytes", whisper_device_work_bytes(r->model));
    return report_finish(&report, true);
}

static int write_text(const run *r)
{
    char *text = whisper_transcript_text(&r->transcript);
    if (text == NULL)
        return complain(TOOL_FAILED, "no memory for the text of a recording");
    puts(text);
    free(text);
    return TOOL_DONE;
}

static void write_words(const run *r)
{
    for (size_t i = 0; i < r->transcript.count; i++) {
        const whisper_words *words = &r->transcript.segment[i].words;
        for (size_t w = 0; w < words->count; w++)
            printf("%.2f %.2f %s\n", words->word[w].start, words->word[w].end,
                   words->word[w].text + (words->word[w].text[0] == ' '));
    }
}

/* Writes the heat maps; the text has been written before, so a failure here does not lose it. */
static int write_maps(const transcribe_options *o, const run *r)
{
    char title[512];
    snprintf(title, sizeof title, "Cross-attention of %s", o->files[1]);
    const heatmap map = {title, r->map.count, r->map.parts};
    if (o->maps.count == 0)
        return TOOL_DONE;
    if (map.part_count == 0)
        return complain(TOOL_BAD_INPUT, "%s: there is no text in %s to draw", o->maps.item[0], o->files[1]);
    int status = heatmap_files_accept(&o->maps, &map);
    return status == TOOL_DONE ? heatmap_files_store(&o->maps, &map) : status;
}

int cmd_transcribe(int argc, char **argv)
{
    transcribe_options options = {0};
    run r = {0};
    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    TOOL_TRY(hear(&options, &r));
    if (options.json)
        TOOL_TRY(write_json(&options, &r));
    else if (options.words)
        write_words(&r);
    else
        TOOL_TRY(write_text(&r));
    TOOL_TRY(write_maps(&options, &r));
fail:
    whisper_map_release(&r.map);
    whisper_transcript_release(&r.transcript);
    mel_release(&r.mel);
    whisper_device_close(r.model);
    device_close(&r.device);
    whisper_tokens_release(&r.tokens);
    audio_release(&r.sound);
    return status;
}

#else

int cmd_transcribe(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return complain(TOOL_BAD_INPUT, "transcribe: this clattn was built without libsndfile, soxr, FFTW or zlib "
                                    "(-Dspeech=enabled)");
}

#endif
