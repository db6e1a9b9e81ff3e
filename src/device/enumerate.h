/* All devices of all platforms, ranked, and the choice among them. */
#ifndef CLATTN_DEVICE_ENUMERATE_H
#define CLATTN_DEVICE_ENUMERATE_H

#include "device/capabilities.h"

struct clattn_devices {
    struct cl_table cl;
    struct capabilities *caps; /* ranked, best first */
    size_t count, capacity;
    char **skipped; /* a line each: which platform or device, and why */
    size_t skipped_count, skipped_capacity;
};

/* Fills zeroed `devices` except `cl`, which must be set.  A broken platform hides no other: it gets a line in
 * `skipped`.  Returns NO_OPENCL (with the thread's message) if there is no platform at all, or OUT_OF_MEMORY. */
clattn_status devices_enumerate(struct clattn_devices *devices);
void devices_clear(struct clattn_devices *devices);

/* Finds the device that `spec` asks for: NULL or "" means the best that is no software device; "gpu", "cpu" and
 * "pocl" name a class; otherwise an index, or "platform:device", two substrings without regard to case, either of
 * which may be empty.  Returns NO_DEVICE with the thread's message. */
clattn_status devices_choose(const struct clattn_devices *devices, const char *spec, size_t *index);

#endif
