/* A transcript as JSON. */
#ifndef CLATTN_TOOL_TRANSCRIBE_JSON_H
#define CLATTN_TOOL_TRANSCRIBE_JSON_H

#include <jansson.h>

#include "tool/transcribe/whisper.h"

/* {"text", "segments": [{"start", "end", "text", "tokens", "avg_logprob", "no_speech_prob", "temperature",
 * "compression_ratio", and with `words` "words": [{"start", "end", "word", "probability"}]}], "windows"}:
 * segments' names are those that faster-whisper has.  NULL when memory runs out, or if a number is not finite. */
json_t *whisper_transcript_json(const whisper_transcript *transcript, bool words);

#endif
