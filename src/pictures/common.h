/* What the calls of clattn/pictures.h share: checks of what they are given, and messages. */
#ifndef CLATTN_PICTURES_COMMON_H
#define CLATTN_PICTURES_COMMON_H

#include "base/printf_like.h"
#include "clattn/pictures.h"

/* Writes a line to *error, unless that is NULL.  Returns `status`. */
clattn_status call_fail(clattn_io_error *error, clattn_status status, const char *format, ...) PRINTF_LIKE(3, 4);

/* Writes why a call has failed, if it has: `own`, the message of whoever made the call, or the context's.  Returns `status`. */
clattn_status call_check(clattn_io_error *error, clattn_status status, const char *own, const clattn_context *context);

/* Does the same for a call that reads the file at `path`, which `own` names and the context's message does not. */
clattn_status call_check_file(clattn_io_error *error, clattn_status status, const char *own,
                              const clattn_context *context, const char *path);

/* Refuses a struct of the caller's, called `name`, that is NULL (size 0) or of another size than this version's. */
clattn_status call_check_struct(clattn_io_error *error, const char *name, size_t size, size_t expected);

/* Refuses a picture of the caller's, called `name`, whose pixels cannot be read. */
clattn_status call_check_picture(clattn_io_error *error, const char *name, const clattn_picture *picture);

/* Refuses a result that has not this size, not the components and type of what it is made of, or memory in common with that. */
clattn_status call_check_result(clattn_io_error *error, const clattn_picture *from, size_t factor,
                                const clattn_picture *to);

/* Begins a call on a handle of the context, of so many calls of operators whose progress counts together.  Refuses the child of a
 * fork, a control that is cancelled, and a queue that is not of the context's device, or is out of order, for the calls' commands follow each other.  NULL
 * becomes the context's. */
clattn_status call_begin(clattn_io_error *error, const clattn_context *context, cl_command_queue *queue,
                         clattn_control *control, size_t calls);

/* Ends it: the control's next call is one by itself.  Returns `status`. */
clattn_status call_end(clattn_status status, clattn_control *control);

/* Refuses weights that are not named, or to be stored as another type than a model's. */
clattn_status call_check_weights(clattn_io_error *error, const char *weights, clattn_dtype dtype);

/* The dtype that a caller's choice stands for. */
static inline clattn_dtype call_dtype(clattn_dtype chosen)
{
    return chosen == CLATTN_DTYPE_NONE ? CLATTN_DTYPE_F32 : chosen;
}

#endif
