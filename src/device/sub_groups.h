/* The means by which kernels pass values between the items of a sub-group: see cl/lib/sub_group.h. */
#ifndef CLATTN_DEVICE_SUB_GROUPS_H
#define CLATTN_DEVICE_SUB_GROUPS_H

#include <stdbool.h>

/* The numbers are the kernels' SUB_GROUPS. */
enum sub_group_means {
    SUB_GROUPS_NONE,
    SUB_GROUPS_INTEL,
    SUB_GROUPS_PTX,
    SUB_GROUPS_AMD,
    SUB_GROUPS_EMULATED, /* for tests; no device has it */
    SUB_GROUPS_MEANS,
};

/* The name of the means. */
const char *sub_group_means_name(enum sub_group_means means);

/* Whether a GPU has shuffled by the means in the tests; explain says so of means by which none has. */
bool sub_group_means_has_run(enum sub_group_means means);

#endif
