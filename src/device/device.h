/* One device in use: what the layers above need to make OpenCL calls and to report their failures. */
#ifndef CLATTN_DEVICE_DEVICE_H
#define CLATTN_DEVICE_DEVICE_H

#include "device/capabilities.h"

/* Immutable once its owner (the context) has set it up, but for the report, which locks itself. */
struct device {
    struct cl_table cl;
    struct report report;
    struct capabilities caps;
    cl_context context; /* retained by the owner */
    long process;       /* the process that made it */
};

#endif
