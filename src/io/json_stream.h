/* JSON read through a small window, so that a header of any size costs a fixed amount of memory.  The stream reads names
 * itself and measures a description by its quotes and braces alone; jansson then parses exactly those bytes. */
#ifndef CLATTN_IO_JSON_STREAM_H
#define CLATTN_IO_JSON_STREAM_H

#include <jansson.h>

#include "io/os_file.h"

/* The longest name with its end, and the longest description: jansson's values for so many hostile bytes stay below 100 KB. */
#define JSON_TOKEN_BYTES 2048

typedef struct json_stream {
    const os_file *file;
    clattn_io_error *error;
    clattn_status status; /* the first failure; every call below fails from then on */
    size_t next;          /* file offset after the window */
    size_t end;           /* file offset where the stream ends */
    size_t at;            /* index of the next byte in the window */
    size_t filled;        /* bytes of the window that were read */
    char window[4 * JSON_TOKEN_BYTES];
} json_stream;

void json_stream_init(json_stream *stream, const os_file *file, size_t begin, size_t end, clattn_io_error *error);

/* Returns the next byte without taking it; -1 at the end and after a failure. */
int json_stream_peek(json_stream *stream);

/* Takes white space, then returns the next byte without taking it. */
int json_stream_peek_token(json_stream *stream);

/* Takes the next byte after white space, which must be `wanted`. */
bool json_stream_take(json_stream *stream, char wanted);

/* Takes a string without U+0000.  CLATTN_ERROR_FORMAT, CLATTN_ERROR_UNSUPPORTED for one that does not fit. */
bool json_stream_take_name(json_stream *stream, char name[JSON_TOKEN_BYTES]);

/* Parses an object without escapes that holds nothing deeper than arrays of plain values.  A new reference, or NULL and a
 * failure: CLATTN_ERROR_FORMAT, CLATTN_ERROR_UNSUPPORTED for one over JSON_TOKEN_BYTES or with a backslash. */
json_t *json_stream_parse_flat_object(json_stream *stream);

/* Checks and passes over an object of strings, whatever the length of each. */
bool json_stream_skip_strings(json_stream *stream);

/* Records CLATTN_ERROR_FORMAT, "malformed at byte N, expected ...", unless something failed earlier. */
void json_stream_expected(json_stream *stream, const char *what);

#endif
