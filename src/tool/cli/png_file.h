/* Reading and writing PNG files, through libpng. */
#ifndef CLATTN_TOOL_CLI_PNG_FILE_H
#define CLATTN_TOOL_CLI_PNG_FILE_H

#include <stddef.h>

#include "clattn/pictures.h"

/* The most pixels of a picture; a row or column has at most 2^20 − 1.  The limit bounds what a file of a few bytes
 * can make us allocate. */
#define PICTURE_PIXELS ((size_t)1 << 27)

/* A picture in host memory, rows one after the other without gaps; zeroed if there is none.  Release it with
 * picture_release. */
typedef struct picture {
    size_t width, height;
    int channels;              /* 1 grey, 2 grey and alpha, 3 colours, 4 colours and alpha */
    int bits;                  /* bits of a component: 8, or 16 (uint16_t) */
    unsigned char *pixels;     /* width * height * channels * bits / 8 bytes */
    struct png_chunks *chunks; /* the file's data on colours and resolution */
} picture;

/* The picture as the library's functions take it. */
static inline clattn_picture picture_view(const picture *p)
{
    return (clattn_picture){.pixels = p->pixels,
                            .height = p->height,
                            .width = p->width,
                            .components = p->channels,
                            .type = p->bits == 16 ? CLATTN_COMPONENT_U16 : CLATTN_COMPONENT_U8};
}

static inline size_t picture_row(const picture *p)
{
    return p->width * (size_t)p->channels * (size_t)(p->bits / 8);
}

/* Reads a PNG of any kind: palettes become colours, components of fewer than 8 bits get 8, transparent colours
 * become alpha.  Returns an exit status. */
int picture_load(const char *path, picture *result);

/* Does the same, and writes the line that tells of a failure to `message` instead of complaining. */
int picture_read(const char *path, picture *result, char *message, size_t bytes);

/* Writes a picture with the chunks that it was read with; the file is replaced completely or not at all. */
int picture_store(const char *path, const picture *p);

void picture_release(picture *p);

#endif
