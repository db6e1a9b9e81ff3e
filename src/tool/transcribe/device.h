/* Whisper on an OpenCL device: an engine of whisper_engine.h by the library's encoder and decoder. */
#ifndef CLATTN_TOOL_TRANSCRIBE_DEVICE_H
#define CLATTN_TOOL_TRANSCRIBE_DEVICE_H

#include "tool/run/device.h"
#include "tool/transcribe/engine.h"

typedef struct whisper_device whisper_device;

/* The heads whose cross-attention the engine's `align` returns. */
typedef enum whisper_attention {
    WHISPER_ATTENTION_NONE,
    WHISPER_ATTENTION_WORDS, /* the tokens' alignment heads' */
    WHISPER_ATTENTION_ALL    /* every head's */
} whisper_attention;

/* Loads `folder`/model.bin, CTranslate2's, onto the device and compiles what the first window needs at least: for `beams`
 * sequences and, unless no attention is wanted, `align`.  A window that asks for more sequences, `most_beams` at the most, or
 * brings a prompt compiles more.  Weights, activations and caches are of
 * type `dtype`.  Returns an exit status; *made is NULL after a failure. */
int whisper_device_open(tool_device *device, const char *folder, clattn_dtype dtype, const whisper_tokens *tokens,
                        size_t beams, size_t most_beams, whisper_attention attention, whisper_device **made);

/* The engine; valid until it is closed. */
whisper_engine whisper_device_engine(whisper_device *model);

/* Bytes on the device: weights, and what plans and caches work in. */
size_t whisper_device_weight_bytes(const whisper_device *model);
size_t whisper_device_work_bytes(const whisper_device *model);

/* NULL is accepted. */
void whisper_device_close(whisper_device *model);

#endif
