/* PNG files in and out, through libpng. */
#ifndef CLATTN_TOOL_CLI_PNG_FILE_H
#define CLATTN_TOOL_CLI_PNG_FILE_H

#include <stddef.h>

/* At most so many pixels, and of 2^20 − 1 in a row or column: what a file of a few bytes can make us
 * allocate. */
#define PICTURE_PIXELS ((size_t)1 << 27)

/* A picture in host memory, rows one after the other without gaps.  Zeroed: none.  Release with
 * picture_release. */
typedef struct picture {
    size_t width, height;
    int channels;              /* 1 grey, 2 grey and alpha, 3 colours, 4 colours and alpha */
    int bits;                  /* of a component: 8, or 16 (uint16_t) */
    unsigned char *pixels;     /* width * height * channels * bits / 8 bytes */
    struct png_chunks *chunks; /* what the file says about its colours and its resolution */
} picture;

static inline size_t picture_row(const picture *p)
{
    return p->width * (size_t)p->channels * (size_t)(p->bits / 8);
}

/* Reads a PNG of any kind: palettes become colours, fewer than 8 bits 8, transparent colours alpha.  Returns
 * an exit status. */
int picture_load(const char *path, picture *result);

/* Writes it, with the chunks it came with; the file changes as a whole or not at all. */
int picture_store(const char *path, const picture *p);

void picture_release(picture *p);

#endif
