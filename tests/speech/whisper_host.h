/* Whisper in plain C on the host: an implementation of the model to hold the library's against. */
#ifndef TESTS_SPEECH_WHISPER_HOST_H
#define TESTS_SPEECH_WHISPER_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "tool/transcribe/engine.h"

typedef struct whisper_host whisper_host;

/* Reads `folder`/model.bin; NULL, with a line on stderr, if that is no English Whisper model. */
whisper_host *whisper_host_open(const char *folder);

/* The engine, whose `user` is the host; valid until it is closed.  It stops the program when memory runs out.
 */
whisper_engine whisper_host_engine(whisper_host *host);

void whisper_host_close(whisper_host *host);

#endif
