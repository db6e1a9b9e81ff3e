/* A kernel's compiler finds some of a snippet's mistakes only in the library's text behind it: a brace that is not closed,
 * a signature that is not the expected one.  The snippet is therefore built as the last text of a small program first. */
#include "program/snippet.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "program/driver.h"

/* ---- words ---- */

struct word {
    const char *text;
    size_t length;
    int line;
};

static bool is(const struct word *word, const char *text)
{
    return word->length == strlen(text) && !strncmp(word->text, text, word->length);
}

/* The end of the comment, string or character at `at`, or `at` itself if there is none. */
static const char *skip(const char *at)
{
    char quote = *at;
    const char *end;
    if (!strncmp(at, "//", 2))
        return at + strcspn(at, "\n");
    if (!strncmp(at, "/*", 2)) {
        end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (quote != '"' && quote != '\'')
        return at;
    for (at++; *at && *at != '\n' && *at != quote; at++)
        if (*at == '\\' && at[1])
            at++;
    return at + (*at == quote);
}

/* Moves on to the next name, number or '#' outside comments and strings; false at the end.  `word` starts as the text's
 * begin, of length 0, in line 1. */
static bool next_word(struct word *word)
{
    const char *at = word->text + word->length;
    while (*at && *at != '#' && *at != '_' && !isalnum((unsigned char)*at)) {
        const char *end = skip(at);
        for (end += end == at; at < end; at++)
            word->line += *at == '\n';
    }
    word->text = at;
    for (word->length = *at == '#';
         *at != '#' && (at[word->length] == '_' || isalnum((unsigned char)at[word->length]));)
        word->length++;
    return *at != '\0';
}

static bool has_word(const char *text, const char *wanted, size_t length)
{
    struct word word = {text, 0, 1};
    while (next_word(&word))
        if (word.length == length && !memcmp(word.text, wanted, length))
            return true;
    return false;
}

/* Whether a kernel of the library has the word. */
static bool is_taken(const struct word *word)
{
    for (size_t i = 0; i < embedded_source_count; i++)
        if (has_word(embedded_sources[i].text, word->text, word->length))
            return true;
    return false;
}

/* Whether the text defines or undefines a macro by a word of the library's; *word is then that. */
static bool find_clash(const char *text, struct word *word)
{
    *word = (struct word){text, 0, 1};
    while (next_word(word))
        if (is(word, "#") && next_word(word) && (is(word, "define") || is(word, "undef")) && next_word(word) &&
            is_taken(word))
            return true;
    return false;
}

/* ---- the build ---- */

/* Appends the place in the snippet and the error that the first line of `failure` tells, then all of it.  `before`: the
 * lines of the program before the snippet, which Oclgrind 21.10 counts too, since it takes no notice of #line. */
static void describe(struct strbuf *message, const char *name, const char *failure, int before)
{
    char line[512], place[32];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(failure, "\n"), failure);
    snprintf(place, sizeof place, "%s:", name);
    const char *found = strstr(line, place), *number = line;
    while (*number && !(*number == ':' && isdigit((unsigned char)number[1])))
        number++;
    if (found) {
        strbuf_printf(message, "%s", found);
    } else if (*number && atoi(number + 1) > before) {
        const char *rest = number + 1 + strspn(number + 1, "0123456789");
        strbuf_printf(message, "%s:%d%s", name, atoi(number + 1) - before, rest);
    } else {
        strbuf_printf(message, "%s: %s", name, line);
    }
    strbuf_printf(message, "\n%s", failure);
}

/* Appends what is wrong with the snippet to `message`, if anything is; `text` is the program up to its end. */
static clattn_status build(struct program_cache *cache, const struct source_snippet *snippet, const char *text,
                           const char *options, int before, struct strbuf *message)
{
    cl_program program = NULL;
    char *failure = NULL;
    report_hold();
    mtx_lock(&cache->build);
    clattn_status status = driver_build(cache->device, snippet->name, text, options, &program, &failure);
    mtx_unlock(&cache->build);
    report_deliver();
    if (program)
        cache->device->cl.clReleaseProgram(program);
    if (failure)
        describe(message, snippet->name, failure, before);
    free(failure);
    return status;
}

static clattn_status check(struct program_cache *cache, const struct source_snippet *snippet, const char *options,
                           struct strbuf *program, struct strbuf *message)
{
    clattn_status status = CLATTN_SUCCESS;
    struct word clash;
    int before = 0;
    strbuf_printf(program, "static %s;\n#line 1 \"%s\"\n", snippet->signature, snippet->name);
    for (size_t i = 0; i < program->length; i++)
        before += program->text[i] == '\n';
    strbuf_printf(program, "%s", snippet->text);
    if (program->failed)
        return report_error(&cache->device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a snippet");
    if (find_clash(snippet->text, &clash))
        strbuf_printf(message, "%s:%d: the macro %.*s has a name that the library's kernels use, choose another one",
                      snippet->name, clash.line, (int)clash.length, clash.text);
    else if (!has_word(snippet->text, snippet->name, strlen(snippet->name)))
        strbuf_printf(message, "%s: defines no function of that name, expected %s", snippet->name, snippet->signature);
    else
        status = build(cache, snippet, program->text, options, before, message);
    if (status == CLATTN_SUCCESS && !message->length && !has_word(snippet->text, "return", 6))
        strbuf_printf(message, "%s: has no return, expected %s", snippet->name, snippet->signature);
    strbuf_printf(program, "\n"); /* the next snippet may call this one's helpers */
    return status;
}

clattn_status snippets_check(struct program_cache *cache, const char *prelude, const char *options,
                             const struct source_snippets *snippets)
{
    clattn_status status;
    struct report *report = &cache->device->report;
    struct strbuf program = {0}, all = {0}, message = {0};
    TRY(source_expand(report, cache->kernel_dir, prelude, NULL, &program));
    strbuf_printf(&program, "kernel void nothing(void) {}\n"); /* some drivers build no program without a kernel */
    strbuf_printf(&all, "%s%s", program_base_options, options);
    for (size_t i = 0; i < SOURCE_SNIPPETS && !message.length && !all.failed; i++)
        if (snippets->snippet[i].name && *snippets->snippet[i].text)
            TRY(check(cache, &snippets->snippet[i], all.text, &program, &message));
    if (all.failed || message.failed)
        status = report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the check of snippets");
    else if (message.length)
        status = report_error(report, CLATTN_ERROR_BUILD, "%s", message.text);
fail:
    strbuf_clear(&program);
    strbuf_clear(&all);
    strbuf_clear(&message);
    return status;
}
