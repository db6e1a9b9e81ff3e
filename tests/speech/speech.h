/* Shared by the tests of the command's speech recognition: its complaints and a small vocabulary. */
#ifndef TESTS_SPEECH_SPEECH_H
#define TESTS_SPEECH_SPEECH_H

#include "io/files.h"
#include "tool/transcribe/tokens.h"

/* The last text given to complain(), which the command would write and then exit. */
extern char complaint[1024];

/* Fails the test unless `status` is TOOL_BAD_INPUT and the complaint contains `part`. */
void assert_complaint(int status, const char *part);

void assert_close(double actual, double expected, double tolerance);

/* Words 0 to 9, then the special tokens, then 1,501 timestamps. */
enum {
    WORDS = 10,
    END = WORDS,
    START,
    PREVIOUS,
    NO_SPEECH,
    NO_STAMPS,
    STAMP,
    VOCABULARY = STAMP + 1501,
    SPECIAL = STAMP - WORDS
};
#define AT(seconds) (STAMP + (int32_t)((seconds) * 50 + 0.5))
extern const char *const special[SPECIAL];

/* A config.json for this vocabulary. */
extern const char good_config[];

/* Writes vocabulary.txt into the test's folder, with the line `instead` in place of the special token `without` (NULL:
 * none). */
void store_vocabulary(const char *without, const char *instead);

/* Writes both files and loads them. */
whisper_tokens load_tokens(void);

#endif
