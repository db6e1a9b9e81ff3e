/* A user's function is compiled in the midst of the library's text.  What is wrong inside it the compiler places by
 * #line; a brace that is not closed, a name or a parameter that is not the expected one it finds only later, in text
 * that the user has never seen.  So after a build that failed, and only then, the snippet is read here: not as a
 * compiler would, but enough to name those three. */
#include "program/snippet.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define NESTING 64

/* ---- the log ---- */

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where the line says "NAME:3", as a place and not as part of another; NULL: nowhere. */
static const char *place_in(const char *line, size_t length, const char *name)
{
    size_t own = strlen(name);
    for (size_t i = 0; i + own + 1 < length; i++)
        if (!strncmp(line + i, name, own) && line[i + own] == ':' && isdigit((unsigned char)line[i + own + 1]) &&
            (!i || (!in_name(line[i - 1]) && line[i - 1] != '=')))
            return line + i;
    return NULL;
}

/* The first line with the word, and with a place in the snippet if there is one given, from that place on. */
static const char *find_line(const char *log, const char *name, size_t *length)
{
    for (const char *line = log ? log : "", *next; *line; line = next) {
        size_t bytes = strcspn(line, "\r\n");
        const char *from = name ? place_in(line, bytes, name) : line;
        next = line + bytes + strspn(line + bytes, "\r\n");
        for (size_t i = 0; from && i + 5 <= bytes; i++)
            if (tolower((unsigned char)line[i]) == 'e' && !strncmp(line + i + 1, "rror", 4)) {
                *length = (size_t)(line + bytes - from);
                return from;
            }
    }
    *length = 0;
    return "";
}

const char *log_first_error(const char *log, size_t *length)
{
    return find_line(log, NULL, length);
}

/* ---- the text ---- */

/* A snippet without comments, strings and directives, which are blanks; and what of it is not closed. */
struct code {
    char text[2 * 8192]; /* as long as the snippet, which its operator bounds */
    int comment;         /* the line of a comment that does not end, or 0 */
    int conditional;     /* of an #if without an #endif, or 0 */
    bool conditionals;   /* it has some: brackets may then come in alternatives */
};

static void read_directive(struct code *code, const char *word, int line, int *open, int *depth)
{
    word += strspn(word, " \t");
    if (!strncmp(word, "if", 2)) {
        code->conditionals = true;
        if (*depth < NESTING)
            open[*depth] = line;
        ++*depth;
    } else if (!strncmp(word, "endif", 5) && *depth) {
        --*depth;
    }
}

/* The end of what begins at `from`: a comment, a string or a character, a directive; `from` itself for none. */
static const char *skip(const char *from, bool first_in_line)
{
    const char *at = from + 1;
    if (!strncmp(from, "//", 2))
        return from + strcspn(from, "\n");
    if (!strncmp(from, "/*", 2)) {
        at = strstr(from + 2, "*/");
        return at ? at + 2 : from + strlen(from);
    }
    if (*from != '"' && *from != '\'' && !(*from == '#' && first_in_line))
        return from;
    for (; *at && *at != '\n' && (*from == '#' || *at != *from); at++)
        if (*at == '\\' && at[1])
            at++;
    return at + (*at && *from != '#' && *at == *from);
}

static void blank(struct code *code, const char *text)
{
    int open[NESTING], depth = 0, line = 1;
    bool first = true;
    size_t length = strlen(text);
    memset(code, 0, sizeof *code);
    if (length >= sizeof code->text)
        return;
    memcpy(code->text, text, length);
    for (const char *at = text; *at;) {
        const char *end = skip(at, first);
        if (end == at) {
            first = *at == '\n' || (first && isspace((unsigned char)*at));
            line += *at++ == '\n';
            continue;
        }
        if (*at == '#')
            read_directive(code, at + 1, line, open, &depth);
        if (!strncmp(at, "/*", 2) && (end < at + 4 || strncmp(end - 2, "*/", 2) != 0))
            code->comment = line;
        for (; at < end; at++) {
            line += *at == '\n';
            if (*at != '\n')
                code->text[at - text] = ' ';
        }
    }
    if (depth)
        code->conditional = open[depth < NESTING ? depth - 1 : NESTING - 1];
}

static char closer(char c)
{
    return c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : '\0';
}

/* The line of a bracket without its other half, or 0; *bracket is that one. */
static int unbalanced(const char *text, char *bracket)
{
    char open[NESTING];
    int at[NESTING], depth = 0, line = 1;
    for (; *text; text++) {
        line += *text == '\n';
        *bracket = *text;
        if (closer(*text)) {
            if (depth == NESTING)
                return 0;
            at[depth] = line;
            open[depth++] = *text;
        } else if (*text && strchr(")]}", *text)) {
            if (!depth)
                return line;
            depth--;
            if (closer(open[depth]) == *text)
                continue;
            *bracket = open[depth];
            return at[depth];
        }
    }
    if (!depth)
        return 0;
    *bracket = open[depth - 1];
    return at[depth - 1];
}

/* ---- the function ---- */

/* A definition's head: its result, its parameters, the line of its name. */
struct head {
    const char *result, *result_end, *parameters, *end;
    int line;
};

/* Past the bracket that closes the one at `open`. */
static const char *past(const char *open)
{
    int depth = 0;
    for (; *open; open++) {
        depth += closer(*open) != '\0';
        if (strchr(")]}", *open) && --depth == 0)
            return open + 1;
    }
    return open;
}

static bool find_definition(const char *text, const char *name, struct head *head)
{
    size_t own = strlen(name);
    const char *at = text;
    head->result = text;
    while (*at) {
        if (in_name(*at)) {
            const char *word = at;
            while (in_name(*at))
                at++;
            const char *parameters = at + strspn(at, " \t\r\n");
            if ((size_t)(at - word) != own || strncmp(word, name, own) != 0 || *parameters != '(')
                continue;
            at = past(parameters);
            head->result_end = word;
            head->parameters = parameters + 1;
            head->end = at - 1;
            if (at[strspn(at, " \t\r\n")] != '{')
                continue;
            head->line = 1;
            for (const char *c = text; c < word; c++)
                head->line += *c == '\n';
            return true;
        }
        bool next = *at == ';' || *at == '{';
        at = closer(*at) ? past(at) : at + 1;
        if (next)
            head->result = at;
    }
    return false;
}

/* Whether a word makes no difference to how a function is called. */
static bool idle(const char *word, size_t length)
{
    static const char *const words[] = {"const", "static", "inline", "private", "__private"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && !strncmp(words[i], word, length))
            return true;
    return false;
}

/* Appends the types of one parameter, or of the result: its words but for the parameter's name. */
static void append_types(struct strbuf *types, const char *from, const char *end, bool named)
{
    const char *last = "";
    size_t words = 0, last_length = 0;
    while (from < end) {
        size_t length = 0;
        while (from + length < end && in_name(from[length]))
            length++;
        length += !length;
        if (!isspace((unsigned char)*from) && !idle(from, length)) {
            if (words++)
                strbuf_printf(types, "%.*s ", (int)last_length, last);
            last = from;
            last_length = length;
        }
        from += length;
    }
    if (words && (!named || words == 1 || !in_name(*last)))
        strbuf_printf(types, "%.*s ", (int)last_length, last);
}

static void append_signature(struct strbuf *types, const struct head *head)
{
    append_types(types, head->result, head->result_end, false);
    for (const char *from = head->parameters, *end; from <= head->end; from = end + 1) {
        for (end = from; end < head->end && *end != ',';)
            end++;
        strbuf_append(types, ", ", 2);
        append_types(types, from, end, true);
    }
}

/* Whether the function is called as the library calls it. */
static bool alike(const struct head *head, const char *name, const char *signature)
{
    struct strbuf wanted = {0}, found = {0}, expected = {0};
    struct head other;
    bool same = true;
    strbuf_printf(&expected, "%s {}", signature);
    if (!expected.failed && find_definition(expected.text, name, &other)) {
        append_signature(&wanted, &other);
        append_signature(&found, head);
        same = wanted.failed || found.failed || !strcmp(wanted.text, found.text);
    }
    strbuf_clear(&wanted);
    strbuf_clear(&found);
    strbuf_clear(&expected);
    return same;
}

/* ---- the verdict ---- */

static bool tell_unclosed(const struct source_snippet *snippet, const struct code *code, struct strbuf *line)
{
    char bracket = 0;
    int at = code->comment ? code->comment : code->conditional;
    if (at) {
        strbuf_printf(line, "%s:%d: %s", snippet->name, at,
                      code->comment ? "a comment begins here and does not end" : "#if without #endif");
        return true;
    }
    at = code->conditionals ? 0 : unbalanced(code->text, &bracket);
    if (!at)
        return false;
    strbuf_printf(line, "%s:%d: '%c' without its '%c'", snippet->name, at, bracket,
                  closer(bracket)  ? closer(bracket)
                  : bracket == ')' ? '('
                  : bracket == ']' ? '['
                                   : '{');
    return true;
}

static bool tell_function(const struct source_snippet *snippet, const struct code *code, struct strbuf *line)
{
    struct head head;
    if (!find_definition(code->text, snippet->name, &head))
        strbuf_printf(line, "%s: defines no function of that name, expected %s", snippet->name, snippet->signature);
    else if (!alike(&head, snippet->name, snippet->signature))
        strbuf_printf(line, "%s:%d: has another result or other parameters, expected %s", snippet->name, head.line,
                      snippet->signature);
    else
        return false;
    return true;
}

static bool tell_error(const struct source_snippet *snippet, const char *log, struct strbuf *line)
{
    size_t length;
    const char *found = find_line(log, snippet->name, &length);
    strbuf_append(line, found, length);
    return length > 0;
}

/* The first snippet that is not closed swallows the next: so it is told before that one's errors. */
bool snippets_blame(const struct source_snippets *snippets, const char *log, struct strbuf *line)
{
    struct code *code = malloc(sizeof *code);
    bool told = false;
    for (int functions = 0; functions < 2 && code; functions++)
        for (size_t i = 0; snippets && i < SOURCE_SNIPPETS && !told; i++) {
            const struct source_snippet *snippet = &snippets->snippet[i];
            if (!snippet->name || !*snippet->text)
                continue;
            blank(code, snippet->text);
            told = functions ? tell_function(snippet, code, line)
                             : tell_error(snippet, log, line) || tell_unclosed(snippet, code, line);
        }
    free(code);
    return told;
}
