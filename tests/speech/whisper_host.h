/* Whisper in plain C on the host, an implementation to compare the library's with. */
#ifndef TESTS_SPEECH_WHISPER_HOST_H
#define TESTS_SPEECH_WHISPER_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "tool/transcribe/engine.h"

typedef struct whisper_host whisper_host;

/* Reads `folder`/model.bin; returns NULL, with a line on stderr, if it is no English Whisper model. */
whisper_host *whisper_host_open(const char *folder);

/* Returns an engine whose `user` is the host, valid until the host is closed.  It ends the program when memory runs
 * out. */
whisper_engine whisper_host_engine(whisper_host *host);

void whisper_host_close(whisper_host *host);

#endif
