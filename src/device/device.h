/* One device in use: what the layers above need to make OpenCL calls and to report their failures. */
#ifndef CLATTN_DEVICE_DEVICE_H
#define CLATTN_DEVICE_DEVICE_H

#include "base/os.h"
#include "device/capabilities.h"

/* Immutable once its owner (the context) has set it up, except for the report, which locks itself. */
struct device {
    struct cl_table cl;
    struct report report;
    struct capabilities caps;
    cl_context context; /* retained by the owner */
    long process;       /* the process that made it */
};

/* Whether this process is the child of a fork: it may make no OpenCL call, and a lock may be held for ever by a
 * thread that the child does not have. */
static inline bool device_is_foreign(const struct device *device)
{
    return device->process && device->process != os_process_id();
}

#endif
