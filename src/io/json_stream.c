#include "io/json_stream.h"
#include "io/json_load.h"

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

/* Fills the window until it has at least `wanted` bytes or all that are left; returns how many it has. */
static size_t fill(json_stream *stream, size_t wanted)
{
    size_t has = stream->filled - stream->at;
    if (has < wanted && stream->next < stream->end && stream->status == CLATTN_SUCCESS) {
        memmove(stream->window, stream->window + stream->at, has);
        stream->at = 0;
        stream->filled = has;
        size_t more = sizeof stream->window - has;
        if (more > stream->end - stream->next)
            more = stream->end - stream->next;
        stream->status = os_file_read(stream->file, stream->next, stream->window + has, more, stream->error);
        if (stream->status == CLATTN_SUCCESS) {
            stream->next += more;
            stream->filled += more;
        }
    }
    return stream->status == CLATTN_SUCCESS ? stream->filled - stream->at : 0;
}

int json_stream_peek(json_stream *stream)
{
    return fill(stream, 1) > 0 ? (unsigned char)stream->window[stream->at] : -1;
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

/* The length of the string or object at `text`, by its quotes and braces; 0 if `bytes` hold only part of it,
 * SIZE_MAX if something is nested deeper than an array in an object. */
static size_t measure(const char *text, size_t bytes)
{
    unsigned depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']'))
            depth--;
        else
            continue;
        if (depth > 2)
            return SIZE_MAX;
        if (depth == 0 && !quoted)
            return i + 1 < bytes ? i + 1 : bytes;
    }
    return 0;
}

static json_t *parse(json_stream *stream, char first, const char *what)
{
    json_error_t problem;
    if (json_stream_peek_token(stream) != (unsigned char)first) {
        json_stream_expected(stream, what);
        return NULL;
    }
    size_t has = fill(stream, JSON_TOKEN_BYTES);
    if (stream->status != CLATTN_SUCCESS)
        return NULL;
    if (has > JSON_TOKEN_BYTES)
        has = JSON_TOKEN_BYTES;
    const char *text = stream->window + stream->at;
    size_t length = measure(text, has);
    if (length == SIZE_MAX) {
        json_stream_expected(stream, "no deeper nesting than an array in a description");
        return NULL;
    }
    if (length == 0) {
        stream->status = has < JSON_TOKEN_BYTES
                             ? io_fail(stream->error, CLATTN_ERROR_FORMAT, stream->file->path,
                                       "its safetensors header ends within what begins at byte %zu", position(stream))
                             : io_fail(stream->error, CLATTN_ERROR_UNSUPPORTED, stream->file->path,
                                       "%s at byte %zu of its safetensors header is over %d bytes", what,
                                       position(stream), JSON_TOKEN_BYTES);
        return NULL;
    }
    bool no_memory;
    json_t *value = json_load(text, length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &problem, &no_memory);
    if (value == NULL) {
        stream->status =
            no_memory ? io_fail(stream->error, CLATTN_ERROR_OUT_OF_MEMORY, stream->file->path, "no memory for %s", what)
                      : io_fail(stream->error, CLATTN_ERROR_FORMAT, stream->file->path,
                                "its safetensors header, %s at byte %zu: %s", what, position(stream), problem.text);
        return NULL;
    }
    stream->at += length;
    return value;
}

json_t *json_stream_parse_string(json_stream *stream)
{
    return parse(stream, '"', "a name");
}

json_t *json_stream_parse_flat_object(json_stream *stream)
{
    return parse(stream, '{', "a description");
}

static int take_byte(json_stream *stream)
{
    int c = json_stream_peek(stream);
    if (c >= 0)
        stream->at++;
    return c;
}

static bool skip_escape(json_stream *stream)
{
    int c = take_byte(stream);
    if (c != 'u')
        return c > 0 && strchr("\"\\/bfnrt", c) != NULL;
    for (int i = 0; i < 4; i++) {
        c = take_byte(stream);
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
            return false;
    }
    return true;
}

/* Checks the rest of a UTF-8 sequence that began with `lead`: shortest form, no surrogates, at most U+10FFFF, all of
 * which are conditions on the second byte. */
static bool skip_utf8(json_stream *stream, int lead)
{
    int low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    int high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    int more = lead < 0xc2 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : 0;
    if (more == 0)
        return false;
    for (; more > 0; more--, low = 0x80, high = 0xbf) {
        int c = take_byte(stream);
        if (c < low || c > high)
            return false;
    }
    return true;
}

/* Checks metadata without storing it: clattn does not use it, and it may be long, since training tools store whole
 * configurations in it. */
static bool skip_string(json_stream *stream)
{
    if (!json_stream_take(stream, '"'))
        return false;
    for (;;) {
        int c = take_byte(stream);
        if (c == '"')
            return true;
        if (c < 0x20 || (c == '\\' && !skip_escape(stream)) || (c >= 0x80 && !skip_utf8(stream, c))) {
            json_stream_expected(stream, "a well-formed string");
            return false;
        }
    }
}

bool json_stream_skip_strings(json_stream *stream)
{
    if (!json_stream_take(stream, '{'))
        return false;
    if (json_stream_peek_token(stream) == '}')
        return json_stream_take(stream, '}');
    for (;;) {
        if (!skip_string(stream) || !json_stream_take(stream, ':') || !skip_string(stream))
            return false;
        if (json_stream_peek_token(stream) != ',')
            return json_stream_take(stream, '}');
        stream->at++;
    }
}
