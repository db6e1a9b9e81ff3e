#include "pictures/common.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/opencl_check.h"
#include "base/try.h"
#include "pictures/levels.h"

/* More than any memory has, and little enough for the products below. */
#define MOST_SIDE ((size_t)1 << 31)

clattn_status call_fail(clattn_io_error *error, clattn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (error != NULL)
        vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    /* A file's names and paths may have anything in them. */
    for (char *at = error != NULL ? error->message : NULL; at != NULL && *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    return status;
}

clattn_status call_check(clattn_io_error *error, clattn_status status, const char *own, const clattn_context *context)
{
    return call_check_file(error, status, own, context, "");
}

clattn_status call_check_file(clattn_io_error *error, clattn_status status, const char *own,
                              const clattn_context *context, const char *path)
{
    char text[sizeof error->message];
    if (status == CLATTN_SUCCESS)
        return status;
    if (own[0] != '\0')
        return call_fail(error, status, "%s", own);
    clattn_context_message(context, text, sizeof text);
    text[strcspn(text, "\n")] = '\0'; /* what a compiler says goes on */
    return call_fail(error, status, "%s%s%s", path, path[0] != '\0' ? ": " : "",
                     text[0] != '\0' ? text : clattn_status_string(status));
}

clattn_status call_check_struct(clattn_io_error *error, const char *name, size_t size, size_t expected)
{
    if (size == expected)
        return CLATTN_SUCCESS;
    return call_fail(error, size == 0 ? CLATTN_ERROR_INVALID_ARGUMENT : CLATTN_ERROR_INVALID_STRUCT,
                     "%s: its size is %zu, expected %zu, as its INIT macro sets it", name, size, expected);
}

static clattn_status check_queue(clattn_io_error *error, const clattn_context *context, cl_command_queue *queue)
{
    cl_context owner = NULL;
    cl_device_id device = NULL;
    cl_command_queue_properties properties = 0;
    if (*queue == NULL)
        *queue = clattn_context_queue(context);
    cl_int code = clGetCommandQueueInfo(*queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL);
    if (code == CL_SUCCESS)
        code = clGetCommandQueueInfo(*queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL);
    if (code == CL_SUCCESS)
        code = clGetCommandQueueInfo(*queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (code != CL_SUCCESS)
        return call_fail(error, CLATTN_ERROR_OPENCL, "clGetCommandQueueInfo failed with OpenCL error %d", (int)code);
    if (owner != clattn_context_opencl_context(context) || device != clattn_context_opencl_device(context))
        return call_fail(error, CLATTN_ERROR_WRONG_CONTEXT, "the queue belongs to another OpenCL context or device");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "the queue is out of order, expected one in order");
    return CLATTN_SUCCESS;
}

clattn_status call_begin(clattn_io_error *error, const clattn_context *context, cl_command_queue *queue,
                         clattn_control *control, size_t calls)
{
    if (context_is_of_another_process(context))
        return call_fail(error, CLATTN_ERROR_FORKED,
                         "the context was made in another process; OpenCL does not survive a fork");
    if (clattn_control_is_cancelled(control))
        return call_fail(error, CLATTN_ERROR_CANCELLED, "the call's control was cancelled");
    const clattn_status status = check_queue(error, context, queue);
    if (status == CLATTN_SUCCESS)
        clattn_control_expect(control, calls);
    return status;
}

clattn_status call_end(clattn_status status, clattn_control *control)
{
    clattn_control_expect(control, 1);
    return status;
}

clattn_status call_check_weights(clattn_io_error *error, const char *weights, clattn_dtype dtype)
{
    if (weights == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "params.weights is NULL");
    if (dtype > CLATTN_DTYPE_BF16 || dtype < CLATTN_DTYPE_NONE)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "params.dtype is %d, expected F32, F16 or BF16",
                         (int)dtype);
    return CLATTN_SUCCESS;
}

clattn_status call_check_picture(clattn_io_error *error, const char *name, const clattn_picture *p)
{
    if (p->pixels == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "%s.pixels is NULL", name);
    if (p->components < 1 || p->components > 4)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "%s.components is %d, expected 1 to 4", name,
                         (int)p->components);
    if (p->type != CLATTN_COMPONENT_U8 && p->type != CLATTN_COMPONENT_U16 && p->type != CLATTN_COMPONENT_F32)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "%s.type is %d, expected a clattn_component", name,
                         (int)p->type);
    if (p->height < 1 || p->width < 1 || p->height > MOST_SIDE || p->width > MOST_SIDE)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "%s has %zu x %zu pixels, expected 1 to 2^31 each", name,
                         p->height, p->width);
    if (p->row_bytes != 0 && (p->row_bytes < p->width * pixel_bytes(p) || p->row_bytes % component_bytes(p) != 0))
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT,
                         "%s.row_bytes is %zu, expected 0 or a multiple of %zu of at least %zu", name, p->row_bytes,
                         component_bytes(p), p->width * pixel_bytes(p));
    if ((p->height - 1) > (PTRDIFF_MAX - p->width * pixel_bytes(p)) / picture_step(p))
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "%s has rows %zu bytes apart, more than memory can have",
                         name, picture_step(p));
    return CLATTN_SUCCESS;
}

/* Whether two pictures have bytes in common, gaps between rows included. */
static bool overlap(const clattn_picture *a, const clattn_picture *b)
{
    const uintptr_t a_begin = (uintptr_t)a->pixels, b_begin = (uintptr_t)b->pixels;
    return a_begin < b_begin + (b->height - 1) * picture_step(b) + b->width * pixel_bytes(b) &&
           b_begin < a_begin + (a->height - 1) * picture_step(a) + a->width * pixel_bytes(a);
}

clattn_status call_check_result(clattn_io_error *error, const clattn_picture *from, size_t factor,
                                const clattn_picture *to)
{
    static const char *const type_names[] = {
        [CLATTN_COMPONENT_U8] = "U8", [CLATTN_COMPONENT_U16] = "U16", [CLATTN_COMPONENT_F32] = "F32"};
    clattn_status status;
    TRY(call_check_picture(error, "args.from", from));
    TRY(call_check_picture(error, "args.to", to));
    if (to->height != from->height * factor || to->width != from->width * factor)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "args.to has %zu x %zu pixels, expected %zu x %zu",
                         to->height, to->width, from->height * factor, from->width * factor);
    if (to->components != from->components || to->type != from->type)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT,
                         "args.to has %d components of %s, expected %d of %s as args.from", (int)to->components,
                         type_names[to->type], (int)from->components, type_names[from->type]);
    if (overlap(from, to))
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "args.to has memory in common with args.from");
fail:
    return status;
}
