/* Cleans pictures and makes vectors of them, on a context and a queue of the application's: what window.c does beside its window.
 *
 * The thread that calls this is not the window's. Each call blocks until the device is done, ends with CLATTN_ERROR_CANCELLED
 * soon after `control` is cancelled, and leaves in `message` why it failed. */
#ifndef PICTURES_H
#define PICTURES_H

#include <gdk-pixbuf/gdk-pixbuf.h>

#include <clattn/clattn.h>
#include <clattn/io.h>

#define PICTURES_COLUMNS 384 /* numbers of a vector by DINOv2 small */

/* A zeroed one holds nothing. */
struct pictures {
    clattn_context *context;  /* borrowed, as the next two */
    cl_command_queue queue;   /* in order */
    clattn_control *control;  /* cancellable */
    clattn_safetensors *file; /* from here on its own */
    clattn_transformer *model;
    clattn_job *job[4];
    clattn_plan *plan[4];
    cl_mem memory[7];
    char message[512];
};

/* Loads the model, and makes plans and memory for pictures of that size. */
clattn_status pictures_open(struct pictures *p, const char *weights, size_t width, size_t height);

/* Cleans a picture of that size, RGBA, in place; a cancelled call leaves it as it was. */
clattn_status pictures_clean(struct pictures *p, GdkPixbuf *picture);

/* Computes the unit vector of an RGBA picture of any size. The cosine of two pictures is the product of their vectors. */
clattn_status pictures_vector(struct pictures *p, const GdkPixbuf *picture, float vector[PICTURES_COLUMNS]);

/* Waits for what the driver still compiles. */
void pictures_close(struct pictures *p);

#endif
