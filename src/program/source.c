#include "program/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/sha256.h"
#include "base/try.h"
#include "program/snippet_text.h"

#define SOURCE_LIMIT (1024 * 1024)
#define MAX_INCLUDES 32
#define MAX_NAME 128

struct expansion {
    struct report *report;
    const char *folder;
    const struct source_snippets *snippets;
    struct strbuf *text;
    char seen[MAX_INCLUDES][MAX_NAME];
    size_t seen_count;
};

/* Finds the text of one file; the caller frees *owned. */
static clattn_status find_text(struct expansion *expansion, const char *name, const char **text, char **owned)
{
    if (!expansion->folder) {
        for (size_t i = 0; i < embedded_source_count; i++)
            if (!strcmp(embedded_sources[i].name, name)) {
                *text = embedded_sources[i].text;
                return CLATTN_SUCCESS;
            }
        return report_error(expansion->report, CLATTN_ERROR_INTERNAL, "no embedded kernel source \"%s\"", name);
    }
    struct strbuf path = {0};
    size_t bytes;
    strbuf_printf(&path, "%s/%s", expansion->folder, name);
    if (path.failed)
        return report_error(expansion->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a path");
    clattn_status status = CLATTN_SUCCESS;
    if (os_read_file(path.text, SOURCE_LIMIT, owned, &bytes))
        *text = *owned;
    else
        status = report_error(expansion->report, CLATTN_ERROR_IO, "cannot read the kernel source \"%s\"", path.text);
    strbuf_clear(&path);
    return status;
}

/* If `line` is `#include "name"`, copies the name out. */
static bool parse_include(const char *line, size_t length, char name[MAX_NAME])
{
    static const char directive[] = "#include \"";
    if (length < sizeof directive || memcmp(line, directive, sizeof directive - 1) != 0)
        return false;
    const char *start = line + sizeof directive - 1;
    const char *end = memchr(start, '"', length - (sizeof directive - 1));
    if (!end || end - start >= MAX_NAME)
        return false;
    memcpy(name, start, (size_t)(end - start));
    name[end - start] = '\0';
    return true;
}

static bool is_seen(const struct expansion *expansion, const char *name)
{
    for (size_t i = 0; i < expansion->seen_count; i++)
        if (!strcmp(expansion->seen[i], name))
            return true;
    return false;
}

static clattn_status expand(struct expansion *expansion, const char *name);

/* Declares the function of the snippet of that name, if it is given. */
static void declare(struct expansion *expansion, const char *name)
{
    for (size_t i = 0; expansion->snippets && i < SOURCE_SNIPPETS; i++) {
        const struct source_snippet *snippet = &expansion->snippets->snippet[i];
        if (snippet->name && *snippet->text && !strcmp(snippet->name, name))
            strbuf_printf(expansion->text, "\nstatic %s;\n", snippet->signature);
    }
}

/* Expands an included file the first time, and to nothing from then on. */
static clattn_status include(struct expansion *expansion, const char *name)
{
    if (is_seen(expansion, name))
        return CLATTN_SUCCESS;
    if (expansion->seen_count == MAX_INCLUDES)
        return report_error(expansion->report, CLATTN_ERROR_INTERNAL,
                            "a kernel source includes \"%s\" after %d other files, the most there may be", name,
                            MAX_INCLUDES);
    snprintf(expansion->seen[expansion->seen_count++], MAX_NAME, "%s", name);
    return expand(expansion, name);
}

static clattn_status expand(struct expansion *expansion, const char *name)
{
    clattn_status status;
    const char *text = NULL;
    char *owned = NULL;
    char included[MAX_NAME];
    int number = 0;
    TRY(find_text(expansion, name, &text, &owned));
    strbuf_printf(expansion->text, "#line 1 \"%s\"\n", name);
    const char *end = text + strlen(text);
    for (const char *line = text; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((newline ? newline + 1 : end) - line);
        number++;
        if (parse_include(line, length, included)) {
            if (strchr(included, '.'))
                TRY(include(expansion, included));
            else
                declare(expansion, included);
            strbuf_printf(expansion->text, "#line %d \"%s\"\n", number + 1, name);
        } else {
            strbuf_append(expansion->text, line, length);
        }
        line += length;
    }
    if (expansion->text->failed)
        status = report_error(expansion->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for kernel sources");
fail:
    free(owned);
    return status;
}

clattn_status source_expand(struct report *report, const char *folder, const char *name,
                            const struct source_snippets *snippets, struct strbuf *text)
{
    struct expansion expansion = {.report = report, .folder = folder, .snippets = snippets, .text = text};
    return expand(&expansion, name);
}

static void undefine(struct strbuf *text, struct word name)
{
    if (name.length)
        strbuf_printf(text, "#undef %.*s\n", (int)name.length, name.text);
}

/* Whether the program has what source_expand puts in for the snippet's #include. */
static bool is_declared(const struct strbuf *program, const struct source_snippet *snippet)
{
    struct strbuf declaration = {0};
    if (!snippet->name || !*snippet->text)
        return false;
    strbuf_printf(&declaration, "\nstatic %s;\n", snippet->signature);
    bool found = declaration.failed || strstr(program->text, declaration.text) != NULL;
    strbuf_clear(&declaration);
    return found;
}

void source_append(struct strbuf *program, const char *options, const struct source_snippets *snippets)
{
    struct strbuf added = {0};
    struct word name;
    for (size_t i = 0; snippets && !program->failed && i < SOURCE_SNIPPETS; i++) {
        const struct source_snippet *snippet = &snippets->snippet[i];
        if (is_declared(program, snippet))
            strbuf_printf(&added, "\n#line 1 \"%s\"\n%s%s", snippet->name, snippet->text,
                          snippet->text[strlen(snippet->text) - 1] == '\n' ? "" : "\n");
    }
    if (added.length) {
        struct strbuf names = {0};
        for (const char *line = program->text; *line; line += strcspn(line, "\n"), line += *line == '\n')
            if (word_directive(line, &name) && word_is(name, "define"))
                undefine(&names, word_behind(name));
        for (const char *at = options; (at = strstr(at, " -D")) != NULL; at++)
            undefine(&names, word_at(at + 3));
        strbuf_append(program, names.text ? names.text : "", names.length);
        strbuf_append(program, added.text, added.length);
        program->failed = program->failed || names.failed;
        strbuf_clear(&names);
    }
    program->failed = program->failed || added.failed;
    strbuf_clear(&added);
}

void source_digest(const char *folder, char digest[SOURCE_DIGEST])
{
    struct sha256 hash;
    uint8_t bytes[SHA256_BYTES];
    if (!folder) {
        snprintf(digest, SOURCE_DIGEST, "%s", embedded_digest);
        return;
    }
    sha256_init(&hash);
    for (size_t i = 0; i < embedded_source_count; i++) {
        struct strbuf path = {0};
        char *text;
        size_t size;
        strbuf_printf(&path, "%s/%s", folder, embedded_sources[i].name);
        if (!path.failed && os_read_file(path.text, SOURCE_LIMIT, &text, &size)) {
            sha256_update(&hash, text, size);
            free(text);
        }
        strbuf_clear(&path);
    }
    sha256_final(&hash, bytes);
    for (int i = 0; i < 8; i++)
        snprintf(digest + 2 * i, 3, "%02x", bytes[i]);
}
