/* libFuzzer target for what is read in a user's function and in what compilers say of it.
 *
 * The first byte says what the rest is: a text, or a log of a compiler. Whatever the bytes: a text is refused with one
 * line that names it, or becomes the last of a program whose macros are undefined before it; and each warning names a
 * line that the text has. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "program/snippet_log.h"
#include "program/snippet_refuse.h"
#include "program/snippet_text.h"

/* The library's kernels, which have no part in it. */
const struct embedded_source embedded_sources[] = {{"", ""}};
const size_t embedded_source_count = 0;
const char embedded_digest[] = "";

static const char signature[] = "float score_mod(float score, int batch, int head, int query, int key, user_data user)";

static size_t newlines(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == '\n' || (*text == '\r' && text[1] != '\n');
    return count;
}

static void append(const struct source_snippets *snippets)
{
    static const char expected[] = "#undef WINDOW\n#undef LOAD\n#undef D_K\n\n#line 1 \"score_mod\"\n";
    const char *text = snippets->snippet[0].text;
    struct strbuf program = {0};
    strbuf_printf(&program, "#define WINDOW 4\n  # define LOAD(x) x\nint a;\nstatic %s;\n", signature);
    const size_t before = program.length;
    source_append(&program, "-cl-std=CL1.2 -w -DD_K=64", snippets);
    REQUIRE(!program.failed && strncmp(program.text + before, expected, sizeof expected - 1) == 0);
    REQUIRE(strncmp(program.text + before + sizeof expected - 1, text, strlen(text)) == 0);
    REQUIRE(program.text[program.length - 1] == '\n');
    strbuf_clear(&program);
}

static void read_text(const char *text)
{
    const struct source_snippets snippets = {
        {{"score_mod", text, signature}, {"mask_mod", "", "int mask_mod(int key)"}}};
    struct strbuf message = {0};
    char *plain = snippet_plain(text);
    REQUIRE(plain != NULL && strlen(plain) <= strlen(text) && newlines(plain) <= newlines(text));
    REQUIRE(snippet_refuse(&snippets, 0, &message));
    if (message.length > 0)
        REQUIRE(strncmp(message.text, "score_mod:", 10) == 0 && strchr(message.text, '\n') == NULL);
    else
        REQUIRE(strstr(plain, "score_mod") != NULL && strstr(plain, "return") != NULL);
    if (*text != '\0')
        append(&snippets);
    strbuf_clear(&message);
    free(plain);
}

static void read_log(const char *log)
{
    const struct snippet_place place = {"score_mod", 40, 9};
    struct strbuf warnings = {0}, error = {0};
    snippet_log_warnings(&place, log, &warnings);
    for (const char *line = warnings.text; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        REQUIRE(strncmp(line, "score_mod:", 10) == 0 && line[10] >= '1' && line[10] <= '9');
        REQUIRE((line[11] < '0' || line[11] > '9') && strchr(line, '\n') != NULL);
    }
    snippet_log_error(&place, log, log, &error);
    REQUIRE(strncmp(error.text, "score_mod:", 10) == 0 && strlen(error.text) > strlen(log));
    strbuf_clear(&warnings);
    strbuf_clear(&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1);
    REQUIRE(text != NULL);
    memcpy(text, data, size);
    if (size > 0 && text[0] == 'l')
        read_log(text + 1);
    else if (size > 0)
        read_text(text + 1);
    free(text);
    return 0;
}
