#include "program/ptx_splice.h"

#include <stdbool.h>
#include <string.h>

#include "base/characters.h"

#define MOST_BYTES ((size_t)64 << 20)
#define MOST_FLOATS 128
#define MARK "//clattn."

/* A part of the text. */
struct span {
    const char *at;
    size_t length;
};

/* The markers that the text must have, a bit each. */
enum { FENCE = 1, MULTIPLY = 2, COMMIT = 4, WAIT = 8, PROXY = 16, ALL_MARKS = 31 };

struct splice {
    struct strbuf *out;
    int directives; /* number of .version and .target seen, in that order */
    int depth;      /* of nested braces */
    unsigned marks;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is(struct span word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.at, text, word.length);
}

static bool begins(struct span text, const char *start)
{
    return text.length >= strlen(start) && !memcmp(text.at, start, strlen(start));
}

static struct span trimmed(struct span text)
{
    while (text.length && is_blank(text.at[0]))
        text.at++, text.length--;
    while (text.length && (is_blank(text.at[text.length - 1]) || text.at[text.length - 1] == '\r'))
        text.length--;
    return text;
}

/* Takes the next word and the blank before it from *rest; returns an empty word if there is none, or if other than
 * one blank precedes it. */
static struct span next_word(struct span *rest)
{
    struct span word = {rest->at, 0};
    if (rest->length < 2 || rest->at[0] != ' ')
        return word;
    word.at++;
    while (word.length + 1 < rest->length && !is_blank(word.at[word.length]))
        word.length++;
    rest->at += word.length + 1;
    rest->length -= word.length + 1;
    return word;
}

/* The value of a decimal number without leading zeros, at most `most`, or -1. */
static int number_of(struct span word, int most)
{
    int number = 0;
    if (!word.length || word.length > 4 || (word.length > 1 && word.at[0] == '0'))
        return -1;
    for (size_t i = 0; i < word.length; i++) {
        if (!is_digit(word.at[i]))
            return -1;
        number = 10 * number + (word.at[i] - '0');
    }
    return number <= most ? number : -1;
}

/* %NAME and digits: the compiler's registers. */
static bool is_register(struct span word, const char *name)
{
    size_t start = strlen(name);
    if (!begins(word, name) || word.length == start || word.length > start + 9)
        return false;
    for (size_t i = start; i < word.length; i++)
        if (!is_digit(word.at[i]))
            return false;
    return true;
}

/* Newer compilers hold floats in any kind of 32-bit register. */
static bool is_float_register(struct span word)
{
    return is_register(word, "%f") || is_register(word, "%r");
}

static void print(struct splice *s, struct span text)
{
    strbuf_append(s->out, text.at, text.length);
}

static void print_text(struct splice *s, const char *text)
{
    strbuf_append(s->out, text, strlen(text));
}

/* ---- markers ---- */

static const char *multiply(struct splice *s, struct span rest)
{
    struct span floats[MOST_FLOATS], n_word = next_word(&rest), type = next_word(&rest);
    int n = number_of(n_word, 2 * MOST_FLOATS);
    if (n < 8 || n % 8)
        return "a marker's number of columns is not 8, 16, ... 256";
    if (!is(type, "bf16") && !is(type, "f16"))
        return "a marker's type is neither bf16 nor f16";
    struct span transposed_a = next_word(&rest), transposed_b = next_word(&rest);
    if (number_of(transposed_a, 1) < 0 || number_of(transposed_b, 1) < 0)
        return "a marker's TRANSPOSED flag is neither 0 nor 1";
    struct span a = next_word(&rest), b = next_word(&rest);
    if (!is_register(a, "%rd") || !is_register(b, "%rd"))
        return "a marker's descriptor is no register of 64 bits";
    for (int i = 0; i < n / 2; i++) {
        floats[i] = next_word(&rest);
        if (!is_float_register(floats[i]))
            return "a marker has a sum that is no register of 32 bits, or too few";
        for (int j = 0; j < i; j++)
            if (floats[i].length == floats[j].length && !memcmp(floats[i].at, floats[j].at, floats[i].length))
                return "a marker has one register for two sums";
    }
    if (rest.length)
        return "a marker has more words than it should";
    print_text(s,
               "\t{\n\t.reg .pred clattn_add;\n\tsetp.ne.b32 clattn_add, 1, 0;\n\twgmma.mma_async.sync.aligned.m64n");
    print(s, n_word);
    print_text(s, "k16.f32.");
    print(s, type);
    print_text(s, ".");
    print(s, type);
    print_text(s, " {");
    for (int i = 0; i < n / 2; i++) {
        print_text(s, i ? ", " : "");
        print(s, floats[i]);
    }
    print_text(s, "}, ");
    print(s, a);
    print_text(s, ", ");
    print(s, b);
    print_text(s, ", clattn_add, 1, 1, ");
    print(s, transposed_a);
    print_text(s, ", ");
    print(s, transposed_b);
    print_text(s, ";\n\t}\n");
    s->marks |= MULTIPLY;
    return NULL;
}

static const char *mark(struct splice *s, struct span line)
{
    static const struct {
        const char *line, *instruction;
        unsigned bit;
    } fixed[] = {
        {MARK "wgmma fence", "\twgmma.fence.sync.aligned;\n", FENCE},
        {MARK "wgmma commit", "\twgmma.commit_group.sync.aligned;\n", COMMIT},
        {MARK "wgmma proxy", "\tfence.proxy.async.shared::cta;\n", PROXY},
    };
    static const char product[] = MARK "wgmma multiply", wait[] = MARK "wgmma wait";
    if (s->depth < 1)
        return "a marker is outside of all functions";
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (is(line, fixed[i].line)) {
            print_text(s, fixed[i].instruction);
            s->marks |= fixed[i].bit;
            return NULL;
        }
    if (begins(line, product))
        return multiply(s, (struct span){line.at + sizeof product - 1, line.length - (sizeof product - 1)});
    if (!begins(line, wait))
        return "a marker is unknown";
    struct span rest = {line.at + sizeof wait - 1, line.length - (sizeof wait - 1)}, count = next_word(&rest);
    if (number_of(count, 7) < 0 || rest.length)
        return "a marker does not say for how many groups to wait";
    print_text(s, "\twgmma.wait_group.sync.aligned ");
    print(s, count);
    print_text(s, ";\n");
    s->marks |= WAIT;
    return NULL;
}

/* ---- directives ---- */

/* `.version 8.4`: wgmma came with 8.0, sm_90 with 7.8. */
static const char *version(struct splice *s, struct span line)
{
    struct span rest = trimmed((struct span){line.at + strlen(".version"), line.length - strlen(".version")});
    const char *dot = memchr(rest.at, '.', rest.length);
    if (s->directives != 0)
        return ".version is not the first directive, or there are two";
    if (!dot)
        return ".version has no number";
    struct span after = {dot + 1, rest.length - (size_t)(dot + 1 - rest.at)};
    int major = number_of((struct span){rest.at, (size_t)(dot - rest.at)}, 99), minor = number_of(after, 99);
    if (major < 0 || minor < 0)
        return ".version has no number";
    if (major < 7 || (major == 7 && minor < 8))
        return ".version is below 7.8, which is without sm_90";
    print_text(s, ".version ");
    if (major == 7)
        print_text(s, "8.0");
    else
        print(s, rest);
    print_text(s, "\n");
    s->directives = 1;
    return NULL;
}

/* `.target sm_90, texmode_independent`: the option is OpenCL's. */
static const char *target(struct splice *s, struct span line)
{
    struct span rest = trimmed((struct span){line.at + strlen(".target"), line.length - strlen(".target")});
    const char *comma = memchr(rest.at, ',', rest.length);
    struct span name = trimmed((struct span){rest.at, comma ? (size_t)(comma - rest.at) : rest.length});
    if (s->directives != 1)
        return ".target does not follow .version, or there are two";
    if (!is(name, "sm_90") && !is(name, "sm_90a"))
        return ".target is neither sm_90 nor sm_90a";
    print_text(s, ".target sm_90a");
    if (comma) {
        struct span option = trimmed((struct span){comma + 1, rest.length - (size_t)(comma + 1 - rest.at)});
        if (!is(option, "texmode_independent") && !is(option, "texmode_unified"))
            return ".target has an unknown option";
        print_text(s, ", ");
        print(s, option);
    }
    print_text(s, "\n");
    s->directives = 2;
    return NULL;
}

/* ---- lines ---- */

static bool has(struct span line, const char *part)
{
    for (size_t i = 0; i + strlen(part) <= line.length; i++)
        if (!memcmp(line.at + i, part, strlen(part)))
            return true;
    return false;
}

/* Counts braces outside of strings and comments. */
static const char *scan(struct splice *s, struct span line)
{
    bool quoted = false;
    for (size_t i = 0; i < line.length; i++) {
        char c = line.at[i], next = i + 1 < line.length ? line.at[i + 1] : '\0';
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if (c == '/' && next == '/')
            break;
        else if (c == '/' && next == '*')
            return "there is a comment of another kind than //";
        else if (c == '{')
            s->depth++;
        else if (c == '}' && --s->depth < 0)
            return "its braces do not match";
    }
    return quoted ? "a string does not end in its line" : NULL;
}

static const char *splice_line(struct splice *s, struct span whole)
{
    struct span line = trimmed(whole);
    if (begins(line, MARK))
        return mark(s, line);
    if (has(line, MARK))
        return "a marker is not alone in its line";
    if (line.length && !begins(line, "//")) {
        if (begins(line, ".version"))
            return version(s, line);
        if (begins(line, ".target"))
            return target(s, line);
        if (s->directives < 2)
            return "it does not begin with .version and .target";
    }
    const char *reason = scan(s, line);
    print(s, whole);
    print_text(s, "\n");
    return reason;
}

const char *ptx_splice(const void *binary, size_t bytes, struct strbuf *spliced)
{
    struct splice s = {.out = spliced};
    const char *text = binary, *reason = NULL;
    size_t length = bytes;
    if (bytes > MOST_BYTES)
        return "it is longer than 64 MiB";
    while (length && text[length - 1] == '\0')
        length--;
    for (size_t i = 0; i < length; i++)
        if ((text[i] < ' ' || text[i] > '~') && text[i] != '\n' && text[i] != '\t' && text[i] != '\r')
            return "it is no text";
    for (size_t at = 0; at < length && !reason;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end ? (size_t)(end - (text + at)) : length - at;
        reason = splice_line(&s, (struct span){text + at, line});
        at += line + 1;
    }
    if (reason)
        return reason;
    if (s.directives < 2)
        return "it does not begin with .version and .target";
    if (s.depth)
        return "its braces do not match";
    if (s.marks != ALL_MARKS)
        return s.marks ? "it lacks some of the markers" : "it has no markers";
    /* Drivers end their PTX with a NUL, and may expect one. */
    strbuf_append(spliced, "", bytes > length);
    return NULL;
}
