#include "io/json_stream.h"

#include <string.h>

void json_stream_init(json_stream *stream, const os_file *file, size_t begin, size_t end, clattn_io_error *error)
{
    stream->file = file;
    stream->error = error;
    stream->status = CLATTN_SUCCESS;
    stream->next = begin;
    stream->end = end;
    stream->at = stream->filled = 0;
}

static size_t position(const json_stream *stream)
{
    return stream->next - (stream->filled - stream->at);
}

void json_stream_expected(json_stream *stream, const char *what)
{
    if (stream->status == CLATTN_SUCCESS)
        stream->status =
            io_fail(stream->error, CLATTN_ERROR_FORMAT, stream->file->path,
                    "its safetensors header is malformed at byte %zu, expected %s", position(stream), what);
}

int json_stream_peek(json_stream *stream)
{
    if (stream->status != CLATTN_SUCCESS)
        return -1;
    if (stream->at == stream->filled) {
        size_t more = sizeof stream->window;
        if (more > stream->end - stream->next)
            more = stream->end - stream->next;
        if (more == 0)
            return -1;
        stream->at = stream->filled = 0;
        stream->status = os_file_read(stream->file, stream->next, stream->window, more, stream->error);
        if (stream->status != CLATTN_SUCCESS)
            return -1;
        stream->next += more;
        stream->filled = more;
    }
    return (unsigned char)stream->window[stream->at];
}

int json_stream_peek_token(json_stream *stream)
{
    for (;;) {
        int c = json_stream_peek(stream);
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        stream->at++;
    }
}

bool json_stream_take(json_stream *stream, char wanted)
{
    if (json_stream_peek_token(stream) != (unsigned char)wanted) {
        char what[4] = {'\'', wanted, '\'', '\0'};
        json_stream_expected(stream, what);
        return false;
    }
    stream->at++;
    return true;
}

/* ---- strings ---- */

static int take_byte(json_stream *stream)
{
    int c = json_stream_peek(stream);
    if (c >= 0)
        stream->at++;
    return c;
}

/* A string so far; bytes that have no room are counted only. */
typedef struct string {
    char *text;
    size_t room, bytes;
} string;

static void append(string *to, int byte)
{
    if (to->bytes < to->room)
        to->text[to->bytes] = (char)byte;
    to->bytes++;
}

static void append_utf8(string *to, long code)
{
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xc0, 0xe0, 0xf0};
    append(to, lead[more] | (int)(code >> 6 * more));
    for (int left = more - 1; left >= 0; left--)
        append(to, 0x80 | (int)(code >> 6 * left & 0x3f));
}

/* Takes four hexadecimal digits; -1 if they are none. */
static long take_code_unit(json_stream *stream)
{
    long value = 0;
    for (int i = 0; i < 4; i++) {
        const int c = take_byte(stream), letter = c | 0x20;
        if (c >= '0' && c <= '9')
            value = 16 * value + c - '0';
        else if (letter >= 'a' && letter <= 'f')
            value = 16 * value + letter - 'a' + 10;
        else
            return -1;
    }
    return value;
}

/* Takes what is behind a backslash. */
static bool take_escape(json_stream *stream, string *to)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const int c = take_byte(stream);
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    if (letter != NULL) {
        append(to, meant[letter - letters]);
        return true;
    }
    long code = c == 'u' ? take_code_unit(stream) : -1;
    if (code >= 0xd800 && code < 0xdc00) {
        if (take_byte(stream) != '\\' || take_byte(stream) != 'u')
            return false;
        const long low = take_code_unit(stream);
        if (low < 0xdc00 || low > 0xdfff)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code < 0 || (code >= 0xdc00 && code <= 0xdfff)) {
        return false;
    }
    append_utf8(to, code);
    return true;
}

/* Takes a UTF-8 sequence that begins with `lead`: shortest form, no surrogates, at most U+10FFFF, all of which are
 * conditions on the second byte. */
static bool take_utf8(json_stream *stream, int lead, string *to)
{
    int low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    int high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    int more = lead < 0xc2 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : 0;
    if (more == 0)
        return false;
    append(to, lead);
    for (; more > 0; more--, low = 0x80, high = 0xbf) {
        int c = take_byte(stream);
        if (c < low || c > high)
            return false;
        append(to, c);
    }
    return true;
}

static bool take_string(json_stream *stream, string *to)
{
    if (!json_stream_take(stream, '"'))
        return false;
    for (;;) {
        int c = take_byte(stream);
        if (c == '"')
            return true;
        const bool well_formed = c == '\\' ? take_escape(stream, to) : c >= 0x80 ? take_utf8(stream, c, to) : c >= 0x20;
        if (!well_formed) {
            json_stream_expected(stream, "a well-formed string");
            return false;
        }
        if (c < 0x80 && c != '\\')
            append(to, c);
    }
}

bool json_stream_take_string(json_stream *stream, char *text, size_t room, size_t *bytes)
{
    string to = {text, room, 0};
    if (!take_string(stream, &to))
        return false;
    *bytes = to.bytes;
    return true;
}

/* ---- numbers ---- */

/* False if there is no number, or one that is no size_t. */
static bool take_size(json_stream *stream, size_t *value)
{
    int c = json_stream_peek_token(stream);
    const int first = c;
    size_t digits = 0;
    for (*value = 0; c >= '0' && c <= '9'; c = json_stream_peek(stream), digits++) {
        if (*value > (SIZE_MAX - (size_t)(c - '0')) / 10)
            return false;
        *value = *value * 10 + (size_t)(c - '0');
        stream->at++;
    }
    return digits > 0 && (first != '0' || digits == 1);
}

bool json_stream_take_sizes(json_stream *stream, size_t *values, size_t room, size_t *count)
{
    *count = 0;
    if (json_stream_peek_token(stream) != '[')
        return false;
    stream->at++;
    if (json_stream_peek_token(stream) == ']') {
        stream->at++;
        return true;
    }
    for (;;) {
        size_t value;
        if (!take_size(stream, &value))
            return false;
        if (*count < room)
            values[*count] = value;
        ++*count;
        const int next = json_stream_peek_token(stream);
        if (next != ',' && next != ']')
            return false;
        stream->at++;
        if (next == ']')
            return true;
    }
}

/* Metadata is checked without storing it: clattn does not use it, and it may be long, since training tools store whole
 * configurations in it. */
bool json_stream_skip_strings(json_stream *stream)
{
    if (!json_stream_take(stream, '{'))
        return false;
    if (json_stream_peek_token(stream) == '}')
        return json_stream_take(stream, '}');
    for (;;) {
        string nothing = {NULL, 0, 0};
        if (!take_string(stream, &nothing) || !json_stream_take(stream, ':') || !take_string(stream, &nothing))
            return false;
        if (json_stream_peek_token(stream) != ',')
            return json_stream_take(stream, '}');
        stream->at++;
    }
}
