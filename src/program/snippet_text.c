/* The compiler alone could not refuse these texts: it builds them, and they then mean something else than they say. */
#include "program/snippet_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\v\f"

static const char directives[] = " define undef if ifdef ifndef elif else endif error warning pragma ";
static const char pragmas[] = " OPENCL unroll ";

/* What reads files, and what changes the compiler's treatment of other text. */
static const char refused[] = " __has_include __has_include_next __has_embed _Pragma __pragma asm __asm __asm__ "
                              "overloadable __overloadable__ ";

/* Of OpenCL C 1.2, section 6.1.9. */
static const char keywords[] =
    " auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool "
    "_Complex "
    "_Imaginary bool uchar ushort uint ulong half size_t ptrdiff_t intptr_t uintptr_t image2d_t image3d_t "
    "image2d_array_t image1d_t image1d_buffer_t image1d_array_t sampler_t event_t __global global __local local "
    "__constant constant __private private __kernel kernel __read_only read_only __write_only write_only __read_write "
    "read_write uniform pipe __attribute__ ";
static const char vectors[] = " char uchar short ushort int uint long ulong float double half ";

/* ---- words ---- */

struct word {
    const char *text;
    size_t length;
};

static bool is(struct word word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

/* Whether the list, whose words stand between blanks, has the word. */
static bool is_listed(struct word word, const char *list)
{
    for (const char *at = list; word.length && (at = strchr(at, ' ')) != NULL;) {
        at++;
        if (!strncmp(at, word.text, word.length) && at[word.length] == ' ')
            return true;
    }
    return false;
}

static bool is_keyword(struct word word)
{
    struct word base = word;
    while (base.length && isdigit((unsigned char)base.text[base.length - 1]))
        base.length--;
    struct word digits = {base.text + base.length, word.length - base.length};
    return is_listed(word, keywords) || (is_listed(base, vectors) && is_listed(digits, " 2 3 4 8 16 "));
}

/* The name or number that begins at `text`; its length is 0 if there is none. */
static struct word word_at(const char *text)
{
    struct word word = {text, 0};
    while (text[word.length] == '_' || isalnum((unsigned char)text[word.length]))
        word.length++;
    return word;
}

static struct word word_behind(const char *text)
{
    return word_at(text + strspn(text, BLANKS));
}

/* The first name or number from `text` on, at most up to `end`. */
static struct word next_word(const char *text, const char *end)
{
    while (text < end && *text != '_' && !isalnum((unsigned char)*text))
        text++;
    return text < end ? word_at(text) : (struct word){end, 0};
}

/* The name of the directive in the line that begins at `line`, its '#' may be "%:"; false if the line is none. */
static bool find_directive(const char *line, struct word *name)
{
    line += strspn(line, BLANKS);
    size_t mark = *line == '#' ? 1 : !strncmp(line, "%:", 2) ? 2 : 0;
    *name = word_behind(line + mark);
    return mark != 0;
}

/* ---- the text as a compiler sees it ---- */

/* The length of a newline that a backslash hides, or 0. */
static size_t splice_at(const char *at)
{
    if (*at != '\\')
        return 0;
    size_t length = 1 + strspn(at + 1, BLANKS);
    const char first = at[length], second = first ? at[length + 1] : '\0';
    if (first != '\n' && first != '\r')
        return 0;
    return length + 1 + ((second == '\n' || second == '\r') && second != first);
}

/* Joins lines that a backslash continues.  Their newlines follow behind the joined line, so that lines keep their
 * numbers; every newline becomes one '\n'. */
static void join_lines(char *text)
{
    char *to = text;
    size_t owed = 0;
    for (const char *at = text; *at;) {
        size_t splice = splice_at(at);
        if (splice) {
            owed++;
            at += splice;
        } else if (*at == '\n' || *at == '\r') {
            at += at[0] == '\r' && at[1] == '\n' ? 2 : 1;
            *to++ = '\n';
            for (; owed; owed--)
                *to++ = '\n';
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
}

/* The end of the comment, string or character that begins at `at`, or `at` if none does. */
static const char *end_of_quoted(const char *at)
{
    const char quote = *at;
    if (!strncmp(at, "//", 2))
        return at + strcspn(at, "\n");
    if (!strncmp(at, "/*", 2)) {
        const char *end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (quote != '"' && quote != '\'')
        return at;
    for (at++; *at && *at != '\n' && *at != quote; at++)
        if (*at == '\\' && at[1] && at[1] != '\n')
            at++;
    return at + (*at == quote);
}

/* Puts a blank for each comment, string and character of joined lines; newlines in comments follow as above. */
static void blank_quoted(char *text)
{
    char *to = text;
    size_t owed = 0;
    for (const char *at = text; *at;) {
        const char *end = end_of_quoted(at);
        if (end > at) {
            for (; at < end; at++)
                owed += *at == '\n';
            *to++ = ' ';
        } else {
            *to++ = *at;
            for (; *at == '\n' && owed; owed--)
                *to++ = '\n';
            at++;
        }
    }
    *to = '\0';
}

/* ---- what is refused ---- */

/* The first "??" of the text that begins a trigraph, or NULL.  Compilers disagree about whether trigraphs count. */
static const char *find_trigraph(const char *text)
{
    for (; (text = strstr(text, "??")) != NULL; text++)
        if (text[2] && strchr("=/'()!<>-", text[2]))
            return text;
    return NULL;
}

/* Appends the reason against the directive; nothing if it is allowed. */
static void refuse_directive(const struct source_snippets *snippets, const char *place, int line, struct word name,
                             struct strbuf *message)
{
    struct word word = word_behind(name.text + name.length);
    const bool pragma = is(name, "pragma");
    if (name.length && (!is_listed(name, directives) || (pragma && !is_listed(word, pragmas))))
        strbuf_printf(
            message,
            "%s:%d: #%.*s%s%.*s is refused, expected no directive but #define, #undef, #if with its branches, "
            "#error, #warning, #pragma OPENCL and #pragma unroll",
            place, line, (int)name.length, name.text, pragma ? " " : "", pragma ? (int)word.length : 0, word.text);
    if (!is(name, "define"))
        return;
    bool taken = is_keyword(word);
    for (size_t i = 0; i < SOURCE_SNIPPETS; i++)
        taken = taken || (snippets->snippet[i].name && is(word, snippets->snippet[i].name));
    if (taken)
        strbuf_printf(message, "%s:%d: the macro %.*s is refused, expected a name that is neither a keyword nor a %s",
                      place, line, (int)word.length, word.text, "snippet's function");
}

/* Appends the reason against the first word or directive that is refused, if there is one. */
static void refuse_words(const struct source_snippets *snippets, const char *place, const char *text,
                         struct strbuf *message)
{
    int number = 1;
    for (const char *line = text; *line && !message->length; number++) {
        const char *end = line + strcspn(line, "\n");
        struct word word;
        if (find_directive(line, &word))
            refuse_directive(snippets, place, number, word, message);
        for (word = next_word(line, end); word.length && !message->length;
             word = next_word(word.text + word.length, end))
            if (is_listed(word, refused))
                strbuf_printf(message, "%s:%d: %.*s is refused in a snippet", place, number, (int)word.length,
                              word.text);
        line = end + (*end == '\n');
    }
}

static bool has_word(const char *text, const char *wanted)
{
    const char *end = text + strlen(text);
    for (struct word word = next_word(text, end); word.length; word = next_word(word.text + word.length, end))
        if (is(word, wanted))
            return true;
    return false;
}

/* Whether a '{' follows on the name and its parameters.  A mere declaration would leave drivers with a call of nothing,
 * at which Oclgrind 21.10 crashes. */
static bool defines(const char *text, const char *name)
{
    const char *end = text + strlen(text);
    for (struct word word = next_word(text, end); word.length; word = next_word(word.text + word.length, end)) {
        const char *at = word.text + word.length;
        at += strspn(at, BLANKS "\n");
        if (!is(word, name) || *at != '(')
            continue;
        for (int open = 1; open && *at;) {
            at++;
            open += (*at == '(') - (*at == ')');
        }
        if (*at == ')' && at[1 + strspn(at + 1, BLANKS "\n")] == '{')
            return true;
    }
    return false;
}

bool snippet_refuse(const struct source_snippets *snippets, size_t index, struct strbuf *message)
{
    const struct source_snippet *snippet = &snippets->snippet[index];
    const char *trigraph = find_trigraph(snippet->text);
    char *text = string_copy(snippet->text);
    if (!text)
        return false;
    join_lines(text);
    blank_quoted(text);
    if (trigraph) {
        int line = 1;
        for (const char *at = snippet->text; at < trigraph; at++)
            line += *at == '\n';
        strbuf_printf(message, "%s:%d: the trigraph %.3s is refused", snippet->name, line, trigraph);
    } else {
        refuse_words(snippets, snippet->name, text, message);
    }
    if (!message->length && !defines(text, snippet->name))
        strbuf_printf(message, "%s: defines no function of that name, expected %s", snippet->name, snippet->signature);
    if (!message->length && !has_word(text, "return"))
        strbuf_printf(message, "%s: has no return, expected %s", snippet->name, snippet->signature);
    free(text);
    return !message->failed;
}

/* ---- the place in a program ---- */

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

void snippets_append(struct strbuf *program, const char *options, const struct source_snippets *snippets)
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
            if (find_directive(line, &name) && is(name, "define"))
                undefine(&names, word_behind(name.text + name.length));
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
