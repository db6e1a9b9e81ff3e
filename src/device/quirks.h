/* The one table of devices that need care. */
#ifndef CLATTN_DEVICE_QUIRKS_H
#define CLATTN_DEVICE_QUIRKS_H

#include "clattn/context.h"

/* The `enum quirk` bits of the device that `info` describes. */
unsigned quirks_of(const clattn_device_info *info);

#endif
