/* A snippet is built as the last text of a small program first: its mistakes are then the user's, in the user's lines,
 * and no solver has to be tried.  Kernels are built without warnings, so only this build can tell of a snippet's. */
#include "program/snippet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "program/driver.h"
#include "program/snippet_log.h"
#include "program/snippet_refuse.h"

/* Builds the program and forgets it; *failure is driver_build's, and *log the log of a build that succeeds, or NULL. */
static clattn_status build(struct program_cache *cache, const char *name, const char *text, const char *language,
                           const char *options, char **failure, char **log)
{
    cl_program program = NULL;
    struct strbuf all = {0};
    clattn_status status;
    strbuf_printf(&all, "%s%s", language, options);
    if (all.failed)
        return report_error(&cache->device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for build options");
    report_hold();
    mtx_lock(&cache->build);
    status = driver_build(cache->device, name, text, all.text, &program, failure);
    mtx_unlock(&cache->build);
    report_deliver();
    if (program) {
        *log = driver_build_log(cache->device, program);
        cache->device->cl.clReleaseProgram(program);
    }
    strbuf_clear(&all);
    return status;
}

/* Appends what is wrong with the snippet to `message`, or its warnings to `warnings`; it is the last of `text`.  Warnings are
 * errors in the first build, because rusticl gives no log of a build that succeeds; Oclgrind gives one, and ignores
 * -Werror; NVIDIA's gives one, and none of any warning with -Werror. */
static clattn_status compile(struct program_cache *cache, const struct source_snippet *snippet, const char *text,
                             const char *options, struct strbuf *message, struct strbuf *warnings)
{
    clattn_status status;
    char *strict = NULL, *log = NULL, *failure = NULL, *ignored = NULL;
    struct snippet_place place = {snippet->name, 0, 1};
    const size_t length = strlen(snippet->text);
    const char *begin = text + strlen(text) - length - (snippet->text[length - 1] != '\n'); /* one was added */
    const bool tells = capabilities_on_nvidia(&cache->device->caps);
    for (const char *at = text; *at; at++)
        *(at < begin ? &place.before : &place.lines) += *at == '\n';
    TRY(build(cache, snippet->name, text, tells ? PROGRAM_LANGUAGE : PROGRAM_LANGUAGE " -Werror", options, &strict,
              &log));
    if (strict)
        TRY(build(cache, snippet->name, text, program_base_options, options, &failure, &ignored));
    if (failure)
        snippet_log_error(&place, failure, strict, message);
    else if (strict) /* its first line repeats one of the log */
        snippet_log_warnings(&place, strict + strcspn(strict, "\n"), warnings);
    else if (log)
        snippet_log_warnings(&place, log, warnings);
fail:
    free(strict);
    free(log);
    free(failure);
    free(ignored);
    return status;
}

/* Checks snippet `index`, which may use what those before it define. */
static clattn_status check(struct program_cache *cache, const char *prelude, const char *options,
                           const struct source_snippets *snippets, size_t index, struct strbuf *message,
                           struct strbuf *warnings)
{
    clattn_status status;
    struct report *report = &cache->device->report;
    struct strbuf program = {0};
    struct source_snippets some = *snippets;
    for (size_t i = index + 1; i < SOURCE_SNIPPETS; i++)
        some.snippet[i].name = NULL;
    strbuf_printf(&program, "#define SNIPPETS %zu\n", index + 1);
    TRY(source_expand(report, cache->kernel_dir, prelude, &some, &program));
    source_append(&program, options, &some);
    if (program.failed || !snippet_refuse(snippets, index, message))
        status = report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a snippet");
    else if (!message->length)
        status = compile(cache, &snippets->snippet[index], program.text, options, message, warnings);
fail:
    strbuf_clear(&program);
    return status;
}

/* Logs each line and appends it to `explain`. */
static void tell(struct report *report, const char *warnings, struct strbuf *explain)
{
    for (const char *line = warnings; *line;) {
        int length = (int)strcspn(line, "\n");
        report_log(report, CLATTN_LOG_LEVEL_WARNING, "%.*s", length, line);
        strbuf_printf(explain, "    %.*s\n", length, line);
        line += length + 1;
    }
}

clattn_status snippets_check(struct program_cache *cache, const char *prelude, const char *options,
                             const struct source_snippets *snippets, struct strbuf *explain)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &cache->device->report;
    struct strbuf message = {0}, warnings = {0};
    for (size_t i = 0; i < SOURCE_SNIPPETS && !message.length; i++)
        if (snippets->snippet[i].name && *snippets->snippet[i].text)
            TRY(check(cache, prelude, options, snippets, i, &message, &warnings));
    if (message.failed || warnings.failed)
        status = report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the check of snippets");
    else if (message.length)
        status = report_error(report, CLATTN_ERROR_BUILD, "%s", message.text);
    else if (warnings.length)
        tell(report, warnings.text, explain);
fail:
    strbuf_clear(&message);
    strbuf_clear(&warnings);
    return status;
}
