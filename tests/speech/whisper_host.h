/* Whisper in plain C on the host, an implementation to compare the library's with. */
#ifndef TESTS_SPEECH_WHISPER_HOST_H
#define TESTS_SPEECH_WHISPER_HOST_H

#include "tool/transcribe/engine.h"

/* Returns an engine by `folder`/model.bin, for once in a program.  It ends the program, with a line on stderr, if the file
 * is no English Whisper model and when memory runs out. */
whisper_engine whisper_host(const char *folder);

#endif
