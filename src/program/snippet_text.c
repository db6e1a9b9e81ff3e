/* The text of a snippet and of a kernel's source as a compiler reads it. */
#include "program/snippet_text.h"

#include <ctype.h>
#include <string.h>

#include "base/strbuf.h"

#define BLANKS " \t\v\f"

/* ---- words ---- */

bool word_is(struct word word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

struct word word_at(const char *text)
{
    struct word word = {text, 0};
    while (text[word.length] == '_' || isalnum((unsigned char)text[word.length]))
        word.length++;
    return word;
}

struct word word_behind(struct word word)
{
    const char *text = word.text + word.length;
    return word_at(text + strspn(text, BLANKS));
}

struct word word_next(const char *text, const char *end)
{
    while (text < end && *text != '_' && !isalnum((unsigned char)*text))
        text++;
    return text < end ? word_at(text) : (struct word){end, 0};
}

bool word_directive(const char *line, struct word *name)
{
    line += strspn(line, BLANKS);
    const size_t mark = *line == '#' ? 1 : !strncmp(line, "%:", 2) ? 2 : 0;
    *name = word_behind((struct word){line, mark});
    return mark != 0;
}

/* ---- lines, comments and strings ---- */

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

char *snippet_plain(const char *text)
{
    char *plain = string_copy(text);
    if (plain) {
        join_lines(plain);
        blank_quoted(plain);
    }
    return plain;
}
