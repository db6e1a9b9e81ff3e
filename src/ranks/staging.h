/* Host memory that ranks exchange, and that a device's memory is copied to and from. */
#ifndef CLATTN_RANKS_STAGING_H
#define CLATTN_RANKS_STAGING_H

#include <stdbool.h>

#include "device/device.h"

/* Memory is pinned if the driver gives such memory: that of a buffer which it allocates on the host and which stays mapped.  A GPU reads
 * and writes it without a further copy. */
struct staging {
    cl_mem pinned; /* NULL: the memory is malloc's */
    void *memory;
};

/* Makes memory of so many bytes; false if there is none.  Blocks. */
bool staging_make(struct staging *staging, const struct device *device, cl_command_queue queue, size_t bytes);

/* Gives it back, when no command of any queue uses it.  A zeroed one is ignored. */
void staging_release(struct staging *staging, const struct device *device, cl_command_queue queue);

#endif
