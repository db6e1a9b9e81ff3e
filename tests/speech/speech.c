#define _GNU_SOURCE
#include "speech/speech.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tool/tool.h"

char complaint[1024];

int complain(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    return status;
}

void assert_complaint(int status, const char *part)
{
    if (status != TOOL_BAD_INPUT || strstr(complaint, part) == NULL)
        fail_msg("status %d, '%s', expected '%s'", status, complaint, part);
}

void assert_close(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %.3g", actual, expected, tolerance);
}

static const char *const words[WORDS] = {"\xc4\xa0hello", "\xc4\xa0wor",         "ld",       ".",           ",",
                                         "\xc4\xa0\"",    "\304\240caf\303\203", "\xc2\xa9", "\xc4\xa0the", "s"};
const char *const special[SPECIAL] = {"<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|nocaptions|>",
                                      "<|notimestamps|>"};
const char good_config[] =
    "{\"suppress_ids\": [9, 11], \"suppress_ids_begin\": [10], \"alignment_heads\": [[0, 1], [1, 0]]}";

void store_vocabulary(const char *without, const char *instead)
{
    static char text[1 << 16];
    size_t used = 0;
    for (int i = 0; i < WORDS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n", words[i]);
    for (size_t i = 0; i < SPECIAL; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n",
                                 without != NULL && strcmp(special[i], without) == 0 ? instead : special[i]);
    for (int i = 0; i <= 1500; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "<|%d.%02d|>\n", i / 50, i % 50 * 2);
    store("vocabulary.txt", text, used);
}

whisper_tokens load_tokens(void)
{
    whisper_tokens tokens;
    unlink(path_to("vocabulary.json"));
    store_vocabulary(NULL, NULL);
    store("config.json", good_config, strlen(good_config));
    if (whisper_tokens_load(test_folder, &tokens) != TOOL_DONE)
        fail_msg("%s", complaint);
    return tokens;
}
