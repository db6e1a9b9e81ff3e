/* JSON read through a small window, so that a header of any size costs a fixed amount of memory, and no allocation can fail. */
#ifndef CLATTN_IO_JSON_STREAM_H
#define CLATTN_IO_JSON_STREAM_H

#include "io/os_file.h"

typedef struct json_stream {
    const os_file *file;
    clattn_io_error *error;
    clattn_status status; /* the first failure; every call below fails from then on */
    size_t next;          /* file offset after the window */
    size_t end;           /* file offset where the stream ends */
    size_t at;            /* index of the next byte in the window */
    size_t filled;        /* bytes of the window that were read */
    char window[8192];
} json_stream;

void json_stream_init(json_stream *stream, const os_file *file, size_t begin, size_t end, clattn_io_error *error);

/* Returns the next byte without taking it; -1 at the end and after a failure. */
int json_stream_peek(json_stream *stream);

/* Takes white space, then returns the next byte without taking it. */
int json_stream_peek_token(json_stream *stream);

/* Takes the next byte after white space, which must be `wanted`. */
bool json_stream_take(json_stream *stream, char wanted);

/* Takes a string and decodes it to UTF-8: what fits `room` is stored, *bytes counts all.  False and CLATTN_ERROR_FORMAT if it
 * is no well-formed string. */
bool json_stream_take_string(json_stream *stream, char *text, size_t room, size_t *bytes);

/* Takes an array of whole numbers that are size_t, of which those that fit `room` are stored and *count counts all.  False if
 * there is none; the caller says what it is expected for. */
bool json_stream_take_sizes(json_stream *stream, size_t *values, size_t room, size_t *count);

/* Checks and passes over an object of strings, whatever the length of each. */
bool json_stream_skip_strings(json_stream *stream);

/* Records CLATTN_ERROR_FORMAT, "malformed at byte N, expected ...", unless something failed earlier. */
void json_stream_expected(json_stream *stream, const char *what);

#endif
