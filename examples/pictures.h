/* Cleans pictures and makes vectors of them, on a context and a queue of the application's: what window.c does beside its window.
 *
 * The thread that calls this is not the window's. Each call blocks until the device is done, and fails soon after `control` is
 * cancelled. What fails returns FALSE and sets *error. */
#ifndef PICTURES_H
#define PICTURES_H

#include <gdk-pixbuf/gdk-pixbuf.h>
#include <gio/gio.h>

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
};

/* Returns whether the call succeeded; otherwise sets *error to what clattn, or OpenCL, says. `context` may be NULL. */
gboolean pictures_good(const clattn_context *context, clattn_status status, GError **error);
gboolean pictures_opencl_good(cl_int code, const char *call, GError **error);

/* Reads a picture the right way up, as RGBA; NULL if the file is none. */
GdkPixbuf *pictures_load(const char *path, GError **error);

/* Loads the model, and makes plans and memory for pictures of that size. */
gboolean pictures_open(struct pictures *p, const char *weights, size_t width, size_t height, GError **error);

/* Cleans a picture of that size, RGBA, in place; a cancelled call leaves it as it was. */
gboolean pictures_clean(struct pictures *p, GdkPixbuf *picture, GError **error);

/* Computes the unit vector of an RGBA picture of any size. The cosine of two pictures is the product of their vectors. */
gboolean pictures_vector(struct pictures *p, const GdkPixbuf *picture, float vector[PICTURES_COLUMNS], GError **error);

/* Waits for what the driver still compiles. */
void pictures_close(struct pictures *p);

#endif
