/* The compiler alone could not refuse these texts: it builds them, and they then mean something else than they say. */
#include "program/snippet_refuse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "program/snippet_text.h"

#define SPACES " \t\v\f\n"

static const char directives[] = " define undef if ifdef ifndef elif else endif error warning pragma ";
static const char pragmas[] = " OPENCL unroll ";

/* What reads files, and what changes the compiler's treatment of other text. */
static const char refused[] = " __has_include __has_include_next __has_embed _Pragma __pragma asm __asm __asm__ "
                              "overloadable __overloadable__ ";

/* Keywords and types of OpenCL C 1.2, section 6.1.9. */
static const char keywords[] =
    " auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "_Bool _Complex _Imaginary bool uchar ushort uint ulong half size_t ptrdiff_t intptr_t uintptr_t image1d_t "
    "image1d_buffer_t image1d_array_t image2d_t image2d_array_t image3d_t sampler_t event_t __global global __local "
    "local __constant constant __private private __kernel kernel __read_only read_only __write_only write_only "
    "__read_write read_write uniform pipe __attribute__ ";
static const char vectors[] = " char uchar short ushort int uint long ulong float double half ";

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

/* The first "??" of the text that begins a trigraph, or NULL.  Compilers disagree about whether trigraphs count. */
static const char *find_trigraph(const char *text)
{
    for (; (text = strstr(text, "??")) != NULL; text++)
        if (text[2] && strchr("=/'()!<>-", text[2]))
            return text;
    return NULL;
}

/* Appends the reason against the directive; nothing if it is allowed. */
static void refuse_directive(const struct source_snippets *snippets, const char *file, int line, struct word name,
                             struct strbuf *message)
{
    struct word word = word_behind(name);
    const bool pragma = word_is(name, "pragma");
    if (name.length && (!is_listed(name, directives) || (pragma && !is_listed(word, pragmas))))
        strbuf_printf(
            message,
            "%s:%d: #%.*s%s%.*s is refused, expected no directive but #define, #undef, #if with its branches, "
            "#error, #warning, #pragma OPENCL and #pragma unroll",
            file, line, (int)name.length, name.text, pragma ? " " : "", pragma ? (int)word.length : 0, word.text);
    if (!word_is(name, "define"))
        return;
    bool taken = is_keyword(word);
    for (size_t i = 0; i < SOURCE_SNIPPETS; i++)
        taken = taken || (snippets->snippet[i].name && word_is(word, snippets->snippet[i].name));
    if (taken)
        strbuf_printf(message, "%s:%d: the macro %.*s is refused, expected a name that is neither a keyword nor a %s",
                      file, line, (int)word.length, word.text, "snippet's function");
}

/* Appends the reason against the first word or directive that is refused, if there is one. */
static void refuse_words(const struct source_snippets *snippets, const char *file, const char *text,
                         struct strbuf *message)
{
    int number = 1;
    for (const char *line = text; *line && !message->length; number++) {
        const char *end = line + strcspn(line, "\n");
        struct word word;
        if (word_directive(line, &word))
            refuse_directive(snippets, file, number, word, message);
        for (word = word_next(line, end); word.length && !message->length;
             word = word_next(word.text + word.length, end))
            if (is_listed(word, refused))
                strbuf_printf(message, "%s:%d: %.*s is refused in a snippet", file, number, (int)word.length,
                              word.text);
        line = end + (*end == '\n');
    }
}

static bool has_word(const char *text, const char *wanted)
{
    const char *end = text + strlen(text);
    for (struct word word = word_next(text, end); word.length; word = word_next(word.text + word.length, end))
        if (word_is(word, wanted))
            return true;
    return false;
}

/* Whether a '{' follows on the name and its parameters.  A mere declaration would leave drivers with a call of nothing,
 * at which Oclgrind 21.10 crashes. */
static bool defines(const char *text, const char *name)
{
    const char *end = text + strlen(text);
    for (struct word word = word_next(text, end); word.length; word = word_next(word.text + word.length, end)) {
        const char *at = word.text + word.length;
        at += strspn(at, SPACES);
        if (!word_is(word, name) || *at != '(')
            continue;
        for (int open = 1; open && *at;) {
            at++;
            open += (*at == '(') - (*at == ')');
        }
        if (*at == ')' && at[1 + strspn(at + 1, SPACES)] == '{')
            return true;
    }
    return false;
}

bool snippet_refuse(const struct source_snippets *snippets, size_t index, struct strbuf *message)
{
    const struct source_snippet *snippet = &snippets->snippet[index];
    const char *trigraph = find_trigraph(snippet->text);
    char *text = snippet_plain(snippet->text);
    if (!text)
        return false;
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
