#include "device/matrix_engine.h"

#include <string.h>

#include "device/capabilities.h"
#include "device/queries.h"

static const struct {
    const char *name;
    uint32_t lanes;
} engines[MATRIX_ENGINES] = {
    [MATRIX_NONE] = {"none", 0},
    [MATRIX_MMA] = {"NVIDIA's mma.sync", 32},
    [MATRIX_WMMA] = {"AMD's WMMA", 32},
    [MATRIX_MFMA] = {"AMD's MFMA", 64},
    [MATRIX_DPAS8] = {"Intel's dpas in sub-groups of 8", 8},
    [MATRIX_DPAS16] = {"Intel's dpas in sub-groups of 16", 16},
};

const char *matrix_engine_name(enum matrix_engine engine)
{
    return engines[engine].name;
}

uint32_t matrix_engine_lanes(enum matrix_engine engine)
{
    return engines[engine].lanes;
}

/* NVIDIA's have run on an H100 (2026-11-26), AMD's and Intel's nowhere. */
bool matrix_engine_has_run(enum matrix_engine engine)
{
    return engine == MATRIX_MMA;
}

static bool begins(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* Only NVIDIA's own compiler takes inline PTX. */
static const char *of_nvidia(const struct cl_table *cl, cl_device_id device, enum matrix_engine *engine)
{
    cl_uint major = 0;
    if (cl->clGetDeviceInfo(device, CAPABILITY_MAJOR_QUERY, sizeof major, &major, NULL) != CL_SUCCESS)
        return "the driver does not tell the compute capability";
    if (major < 8)
        return "its compute capability is below 8.0, from which the matrix instructions are used";
    *engine = MATRIX_MMA;
    return NULL;
}

/* Only compute capability 9.0 has wgmma: later GPUs have another instruction instead. */
static const char *wgmma_of(const struct cl_table *cl, const struct capabilities *caps)
{
    cl_uint major = 0, minor = 0;
    if (caps->matrix == MATRIX_NONE)
        return caps->no_matrix;
    if (caps->matrix != MATRIX_MMA)
        return "it is no GPU of NVIDIA's";
    if (cl->clGetDeviceInfo(caps->device, CAPABILITY_MAJOR_QUERY, sizeof major, &major, NULL) != CL_SUCCESS ||
        cl->clGetDeviceInfo(caps->device, CAPABILITY_MINOR_QUERY, sizeof minor, &minor, NULL) != CL_SUCCESS)
        return "the driver does not tell the compute capability";
    return major == 9 && minor == 0 ? NULL : "its compute capability is not 9.0, the only one with wgmma";
}

/* AMD's own driver names a device by its instruction set. */
static const char *of_amd(const struct capabilities *caps, enum matrix_engine *engine)
{
    const char *name = caps->info.name;
    bool wmma = begins(name, "gfx110") || begins(name, "gfx115");
    if (!wmma && !begins(name, "gfx90a") && !begins(name, "gfx94"))
        return "it has neither WMMA (gfx11) nor MFMA (gfx90a, gfx94x)";
    if (caps->info.sub_group != (wmma ? 32u : 64u))
        return "its wavefronts have another size than the instruction's";
    *engine = wmma ? MATRIX_WMMA : MATRIX_MFMA;
    return NULL;
}

/* The instruction wants the smallest sub-groups that the device has. */
static const char *of_intel(const struct cl_table *cl, cl_device_id device, const struct capabilities *caps,
                            enum matrix_engine *engine)
{
    size_t sizes[16], bytes = 0, smallest = 64;
    if (!capabilities_have(caps, "cl_intel_subgroup_matrix_multiply_accumulate"))
        return "it has no cl_intel_subgroup_matrix_multiply_accumulate";
    if (!capabilities_have(caps, "cl_intel_required_subgroup_size") ||
        cl->clGetDeviceInfo(device, SUB_GROUP_SIZES_QUERY, sizeof sizes, sizes, &bytes) != CL_SUCCESS)
        return "the driver does not tell its sub-groups' sizes";
    for (size_t i = 0; i < bytes / sizeof sizes[0]; i++)
        smallest = sizes[i] < smallest ? sizes[i] : smallest;
    if (smallest != 8 && smallest != 16)
        return "its smallest sub-groups have neither 8 nor 16 items";
    *engine = smallest == 8 ? MATRIX_DPAS8 : MATRIX_DPAS16;
    return NULL;
}

void capabilities_read_matrix(const struct cl_table *cl, struct capabilities *caps)
{
    const char *platform = caps->info.platform;
    caps->matrix = MATRIX_NONE;
    if (caps->info.device_class != CLATTN_DEVICE_CLASS_GPU)
        caps->no_matrix = "the device is no GPU";
    else if (capabilities_on_nvidia(caps))
        caps->no_matrix = of_nvidia(cl, caps->device, &caps->matrix);
    else if (!strcmp(platform, "AMD Accelerated Parallel Processing"))
        caps->no_matrix = of_amd(caps, &caps->matrix);
    else if (begins(platform, "Intel(R) OpenCL"))
        caps->no_matrix = of_intel(cl, caps->device, caps, &caps->matrix);
    else
        caps->no_matrix = "matrix engines are reached through NVIDIA's, AMD's and Intel's own drivers alone";
    caps->no_wgmma = wgmma_of(cl, caps);
    caps->wgmma = !caps->no_wgmma;
}
