/* Where the components of a picture are, and what numbers they stand for. */
#ifndef CLATTN_PICTURES_LEVELS_H
#define CLATTN_PICTURES_LEVELS_H

#include <stdbool.h>

#include "clattn/pictures.h"

static inline size_t component_bytes(const clattn_picture *p)
{
    return p->type == CLATTN_COMPONENT_U8 ? 1 : p->type == CLATTN_COMPONENT_U16 ? 2 : 4;
}

static inline size_t pixel_bytes(const clattn_picture *p)
{
    return (size_t)p->components * component_bytes(p);
}

/* Bytes from a row to the next one. */
static inline size_t picture_step(const clattn_picture *p)
{
    return p->row_bytes != 0 ? p->row_bytes : p->width * pixel_bytes(p);
}

static inline unsigned char *picture_row_at(const clattn_picture *p, size_t y)
{
    return (unsigned char *)p->pixels + y * picture_step(p);
}

/* Colours of a pixel; alpha may follow. */
static inline size_t picture_colours(const clattn_picture *p)
{
    return p->components < 3 ? 1 : 3;
}

static inline bool picture_has_alpha(const clattn_picture *p)
{
    return p->components % 2 == 0;
}

/* The component at `at`, black 0 and white 1.  Of floats, what is not a number is 0, and others are limited to this range. */
float level_at(const clattn_picture *p, const unsigned char *at);

/* The `user` of both functions.  `out` has the components and type of `in`. */
typedef struct level_pair {
    const clattn_picture *in, *out;
} level_pair;

/* The functions of restore_work (restore.h). */
void levels_read(void *user, size_t y, size_t x, const size_t size[2], float *values);
void levels_write(void *user, size_t y, const float *row, size_t step);

#endif
