#include "device/sub_groups.h"

#include <string.h>

#include "device/capabilities.h"
#include "device/queries.h"

const char *sub_group_means_name(enum sub_group_means means)
{
    static const char *const names[SUB_GROUPS_MEANS] = {
        [SUB_GROUPS_NONE] = "none",
        [SUB_GROUPS_INTEL] = "cl_intel_subgroups",
        [SUB_GROUPS_PTX] = "NVIDIA's shfl.sync",
        [SUB_GROUPS_AMD] = "AMD's ds_bpermute",
        [SUB_GROUPS_EMULATED] = "shuffles emulated in local memory",
    };
    return names[means];
}

/* NVIDIA's have run on an H100 (2026-11-26), and what tests emulate in local memory runs wherever kernels do; AMD's and
 * Intel's have run on no GPU. */
bool sub_group_means_has_run(enum sub_group_means means)
{
    return means == SUB_GROUPS_PTX || means == SUB_GROUPS_EMULATED;
}

/* Only Volta and later GPUs are used: on earlier ones a warp's items are not known to reach a shuffle together. */
static const char *of_nvidia(const struct cl_table *cl, struct capabilities *caps)
{
    cl_uint major = 0;
    if (cl->clGetDeviceInfo(caps->device, CAPABILITY_MAJOR_QUERY, sizeof major, &major, NULL) != CL_SUCCESS)
        return "the driver does not tell the compute capability";
    if (major < 7)
        return "its compute capability is below 7.0, from which shfl.sync is used";
    if (caps->info.sub_group != 32)
        return "its warps have another size than 32";
    caps->sub_groups = SUB_GROUPS_PTX;
    caps->sub_group_sizes = 32;
    return NULL;
}

/* AMD's own driver names a device by its instruction set. */
static const char *of_amd(struct capabilities *caps)
{
    if (strncmp(caps->info.name, "gfx", 3) != 0)
        return "its name is no instruction set's";
    if (caps->info.sub_group != 32 && caps->info.sub_group != 64)
        return "its wavefronts have neither 32 nor 64 items";
    caps->sub_groups = SUB_GROUPS_AMD;
    caps->sub_group_sizes = caps->info.sub_group;
    return NULL;
}

/* Kernels are OpenCL C 1.2, which has sub-groups only through cl_intel_subgroups; a kernel then requests its size. */
static const char *of_extension(const struct cl_table *cl, struct capabilities *caps)
{
    size_t sizes[16], bytes = 0;
    uint32_t usable = 0;
    if (!caps->info.has_sub_groups)
        return "the device has no sub-groups";
    if (!capabilities_have(caps, "cl_intel_subgroups"))
        return "it has no cl_intel_subgroups, by which alone OpenCL C 1.2 has sub-groups";
    if (!capabilities_have(caps, "cl_intel_required_subgroup_size") ||
        cl->clGetDeviceInfo(caps->device, SUB_GROUP_SIZES_QUERY, sizeof sizes, sizes, &bytes) != CL_SUCCESS)
        return "the driver does not tell its sub-groups' sizes";
    for (size_t i = 0; i < bytes / sizeof sizes[0]; i++)
        if (sizes[i] >= 2 && sizes[i] <= 64 && (sizes[i] & (sizes[i] - 1)) == 0)
            usable |= (uint32_t)sizes[i];
    if (!usable)
        return "none of its sub-groups' sizes is a power of two from 2 to 64";
    caps->sub_groups = SUB_GROUPS_INTEL;
    caps->sub_group_sizes = usable;
    return NULL;
}

void capabilities_read_sub_groups(const struct cl_table *cl, struct capabilities *caps)
{
    const char *platform = caps->info.platform;
    caps->sub_groups = SUB_GROUPS_NONE;
    if (capabilities_on_nvidia(caps))
        caps->no_sub_groups = of_nvidia(cl, caps);
    else if (!strcmp(platform, "AMD Accelerated Parallel Processing") &&
             caps->info.device_class == CLATTN_DEVICE_CLASS_GPU)
        caps->no_sub_groups = of_amd(caps);
    else
        caps->no_sub_groups = of_extension(cl, caps);
}
