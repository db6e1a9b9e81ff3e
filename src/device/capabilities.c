#include "device/capabilities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "device/queries.h"
#include "device/quirks.h"

static clattn_status read_value(const struct cl_table *cl, cl_device_id device, cl_device_info query, const char *name,
                                void *value, size_t bytes)
{
    cl_int code = cl->clGetDeviceInfo(device, query, bytes, value, NULL);
    if (code != CL_SUCCESS)
        return report_error(NULL, CLATTN_ERROR_OPENCL, "clGetDeviceInfo(%s) failed: %s (%d)", name,
                            opencl_code_name(code), code);
    return CLATTN_SUCCESS;
}

static clattn_status read_text(const struct cl_table *cl, cl_platform_id platform, cl_device_id device, cl_uint query,
                               const char *name, const char **text)
{
    size_t bytes = 0;
    cl_int code = device ? cl->clGetDeviceInfo(device, query, 0, NULL, &bytes)
                         : cl->clGetPlatformInfo(platform, query, 0, NULL, &bytes);
    char *copy = code == CL_SUCCESS ? calloc(bytes + 1, 1) : NULL;
    if (copy)
        code = device ? cl->clGetDeviceInfo(device, query, bytes, copy, NULL)
                      : cl->clGetPlatformInfo(platform, query, bytes, copy, NULL);
    if (code != CL_SUCCESS || !copy) {
        free(copy);
        if (code == CL_SUCCESS)
            return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for %s", name);
        return report_error(NULL, CLATTN_ERROR_OPENCL, "querying %s failed: %s (%d)", name, opencl_code_name(code),
                            code);
    }
    /* Drivers pad names with blanks. */
    size_t start = strspn(copy, " "), end = strlen(copy);
    while (end > start && copy[end - 1] == ' ')
        end--;
    memmove(copy, copy + start, end - start);
    copy[end - start] = '\0';
    *text = copy;
    return CLATTN_SUCCESS;
}

#define TRY_VALUE(query, member) TRY(read_value(cl, device, query, #query, &(member), sizeof(member)))
#define TRY_TEXT(query, member) TRY(read_text(cl, platform, device, query, #query, &(member)))

static int32_t parse_version(const char *text)
{
    int major = 1, minor = 0;
    if (sscanf(text, "OpenCL %d.%d", &major, &minor) != 2)
        return 100;
    return major * 100 + minor * 10;
}

static bool contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static clattn_device_class classify(const clattn_device_info *info)
{
    if (contains(info->platform, "Oclgrind") || contains(info->name, "llvmpipe") || contains(info->name, "softpipe") ||
        contains(info->name, "swrast"))
        return CLATTN_DEVICE_CLASS_SOFTWARE;
    if (info->type & CL_DEVICE_TYPE_GPU)
        return CLATTN_DEVICE_CLASS_GPU;
    if (info->type & CL_DEVICE_TYPE_CPU)
        return contains(info->platform, "Portable Computing Language") ? CLATTN_DEVICE_CLASS_POCL
                                                                       : CLATTN_DEVICE_CLASS_CPU;
    return CLATTN_DEVICE_CLASS_ACCELERATOR;
}

/* Leaves one blank between two names; drivers separate them by any white space. */
static void space_singly(const char *text)
{
    char *to = (char *)(uintptr_t)text;
    for (const char *from = text; *from;) {
        size_t length = strcspn(from, " \t\n"), gap = strspn(from + length, " \t\n");
        memmove(to, from, length);
        to += length;
        from += length + gap;
        if (length && *from)
            *to++ = ' ';
    }
    *to = '\0';
}

static bool have_sub_groups(const struct cl_table *cl, cl_device_id device, const struct capabilities *caps)
{
    cl_uint most = 0;
    if (capabilities_have(caps, "cl_khr_subgroups") || capabilities_have(caps, "cl_intel_subgroups"))
        return true;
    /* OpenCL 3.0 made sub-groups optional again: a device without them answers 0. */
    return caps->info.opencl_version >= 210 &&
           cl->clGetDeviceInfo(device, CL_DEVICE_MAX_NUM_SUB_GROUPS, sizeof most, &most, NULL) == CL_SUCCESS &&
           most > 0;
}

/* The size of every kernel's sub-groups; 0 if there are several sizes and the compiler chooses, or if no query
 * tells. */
static uint32_t sub_group_of(const struct cl_table *cl, cl_device_id device, const struct capabilities *caps)
{
    size_t sizes[16], bytes = 0;
    cl_uint width = 0;
    if (capabilities_have(caps, "cl_intel_required_subgroup_size") &&
        cl->clGetDeviceInfo(device, SUB_GROUP_SIZES_QUERY, sizeof sizes, sizes, &bytes) == CL_SUCCESS)
        return bytes == sizeof sizes[0] ? (uint32_t)sizes[0] : 0;
    if (capabilities_have(caps, "cl_nv_device_attribute_query") &&
        cl->clGetDeviceInfo(device, WARP_QUERY, sizeof width, &width, NULL) == CL_SUCCESS)
        return width;
    if (capabilities_have(caps, "cl_amd_device_attribute_query") &&
        cl->clGetDeviceInfo(device, WAVEFRONT_QUERY, sizeof width, &width, NULL) == CL_SUCCESS)
        return width;
    return 0;
}

static uint32_t usable_lanes(const struct capabilities *caps)
{
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return 4;
    const size_t native = size_max(caps->info.native_float_lanes, caps->info.preferred_float_lanes);
    return native >= 16 ? 16 : native >= 8 ? 8 : 4;
}

/* No query returns the registers of a work-item.  NVIDIA's compiler allots up to 255; AMD's 256 (512 on some GPUs,
 * half of them only as spare storage).  Intel's threads have 128 registers of 8 floats, so an item has 128 if 8
 * items share a thread, and 64 if 16 do.  Other GPUs are assumed to have 256. */
static uint32_t registers_of(const clattn_device_info *info)
{
    if (info->device_class != CLATTN_DEVICE_CLASS_GPU)
        return 0;
    return contains(info->vendor, "Intel") ? 128 : 256;
}

/* Whether the user has PoCL compile kernels of one work-item as loops, too. */
static bool pocl_always_loops(void)
{
    return os_environment("POCL_WORK_GROUP_METHOD") || os_environment("POCL_FULL_REPLICATION_THRESHOLD");
}

/* Whether kernels can contain x86 inline assembly.  The PoCL drivers named below run on this very processor and
 * compile with LLVM, which assembles an instruction even if the processor lacks it; 16 lanes say that PoCL compiles
 * for AVX-512. */
static bool takes_assembly(const struct capabilities *caps)
{
    const char *const names[] = {"pthread", "basic", "cpu"};
    bool here = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        here = here || !strncmp(caps->info.name, names[i], strlen(names[i]));
    return here && caps->info.device_class == CLATTN_DEVICE_CLASS_POCL && caps->lanes == 16 &&
           !((caps->quirks & QUIRK_GROUPS_BREAK) && pocl_always_loops());
}

bool capabilities_on_nvidia(const struct capabilities *caps)
{
    return !strcmp(caps->info.platform, "NVIDIA CUDA");
}

/* NVIDIA's driver reports 48 KiB, and builds and runs kernels with as much as a block of CUDA may have (seen on compute
 * capability 9.0; the sizes are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability"). */
static cl_ulong local_most_of(const struct cl_table *cl, const struct capabilities *caps)
{
    static const struct {
        cl_uint capability;
        cl_ulong kibibytes;
    } table[] = {{70, 96}, {75, 64}, {80, 163}, {86, 99}, {87, 163}, {89, 99}, {90, 227}, {100, 227}, {120, 99}};
    cl_uint major = 0, minor = 0;
    if (!capabilities_on_nvidia(caps) || caps->info.local_memory != 48 << 10 ||
        cl->clGetDeviceInfo(caps->device, CAPABILITY_MAJOR_QUERY, sizeof major, &major, NULL) != CL_SUCCESS ||
        cl->clGetDeviceInfo(caps->device, CAPABILITY_MINOR_QUERY, sizeof minor, &minor, NULL) != CL_SUCCESS)
        return caps->info.local_memory;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].capability == 10 * major + minor)
            return table[i].kibibytes << 10;
    return caps->info.local_memory;
}

clattn_status capabilities_read(const struct cl_table *cl, cl_platform_id platform, cl_device_id device,
                                struct capabilities *caps)
{
    clattn_status status;
    clattn_device_info *info = &caps->info;
    cl_device_type type;
    cl_device_local_mem_type local_kind;
    cl_bool unified = CL_FALSE, images = CL_FALSE;
    cl_command_queue_properties queue = 0;
    cl_device_fp_config fp32 = 0, fp64 = 0;
    cl_uint align_bits = 0;
    cl_ulong global_memory, max_allocation, local_memory;
    size_t max_group, max_item[8] = {0};
    cl_uint dimensions = 0;

    memset(caps, 0, sizeof *caps);
    info->size = sizeof *info;
    caps->platform = platform;
    caps->device = device;
    TRY(read_text(cl, platform, NULL, CL_PLATFORM_NAME, "CL_PLATFORM_NAME", &info->platform));
    TRY_TEXT(CL_DEVICE_NAME, info->name);
    TRY_TEXT(CL_DEVICE_VENDOR, info->vendor);
    TRY_TEXT(CL_DRIVER_VERSION, info->driver);
    TRY_TEXT(CL_DEVICE_VERSION, info->version);
    TRY_TEXT(CL_DEVICE_EXTENSIONS, info->extensions);
    space_singly(info->extensions);
    TRY_VALUE(CL_DEVICE_TYPE, type);
    TRY_VALUE(CL_DEVICE_MAX_COMPUTE_UNITS, info->compute_units);
    TRY_VALUE(CL_DEVICE_MAX_CLOCK_FREQUENCY, info->clock_mhz);
    TRY_VALUE(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, info->preferred_float_lanes);
    TRY_VALUE(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, info->native_float_lanes);
    TRY_VALUE(CL_DEVICE_GLOBAL_MEM_SIZE, global_memory);
    TRY_VALUE(CL_DEVICE_MAX_MEM_ALLOC_SIZE, max_allocation);
    TRY_VALUE(CL_DEVICE_LOCAL_MEM_SIZE, local_memory);
    TRY_VALUE(CL_DEVICE_LOCAL_MEM_TYPE, local_kind);
    TRY_VALUE(CL_DEVICE_MAX_WORK_GROUP_SIZE, max_group);
    TRY_VALUE(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, dimensions);
    if (dimensions < 3 || dimensions > 8) {
        status = report_error(NULL, CLATTN_ERROR_OPENCL, "%s claims %u work-item dimensions", info->name, dimensions);
        goto fail;
    }
    TRY(read_value(cl, device, CL_DEVICE_MAX_WORK_ITEM_SIZES, "CL_DEVICE_MAX_WORK_ITEM_SIZES", max_item,
                   dimensions * sizeof max_item[0]));
    TRY_VALUE(CL_DEVICE_MEM_BASE_ADDR_ALIGN, align_bits);
    TRY_VALUE(CL_DEVICE_QUEUE_PROPERTIES, queue);
    TRY_VALUE(CL_DEVICE_SINGLE_FP_CONFIG, fp32);
    if (cl->clGetDeviceInfo(device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL) != CL_SUCCESS)
        images = CL_FALSE;
    /* These two are answered with an error by some drivers and matter only as hints. */
    if (cl->clGetDeviceInfo(device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL) != CL_SUCCESS)
        unified = CL_FALSE;
    if (cl->clGetDeviceInfo(device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof fp64, &fp64, NULL) != CL_SUCCESS)
        fp64 = 0;

    info->type = type;
    info->device_class = classify(info);
    info->opencl_version = parse_version(info->version);
    info->global_memory = global_memory;
    info->max_allocation = max_allocation;
    info->local_memory = local_memory;
    info->local_memory_kind = local_kind == CL_LOCAL    ? CLATTN_LOCAL_MEMORY_DEDICATED
                              : local_kind == CL_GLOBAL ? CLATTN_LOCAL_MEMORY_EMULATED
                                                        : CLATTN_LOCAL_MEMORY_NONE;
    info->max_work_group = (uint32_t)size_min(max_group, UINT32_MAX);
    for (int i = 0; i < 3; i++)
        info->max_work_item[i] = (uint32_t)size_min(max_item[i], UINT32_MAX);
    info->has_fp16 = capabilities_have(caps, "cl_khr_fp16");
    info->has_fp64 = fp64 != 0;
    info->has_sub_groups = have_sub_groups(cl, device, caps);
    info->sub_group = sub_group_of(cl, device, caps);
    info->unified_memory = unified != CL_FALSE;
    info->out_of_order = (queue & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
    info->base_address_align = align_bits / 8;
    if (capabilities_have(caps, "cl_khr_device_uuid") &&
        cl->clGetDeviceInfo(device, UUID_QUERY, sizeof info->uuid, info->uuid, NULL) != CL_SUCCESS)
        memset(info->uuid, 0, sizeof info->uuid);
    caps->quirks = quirks_of(info);
    info->saves_programs = !(caps->quirks & QUIRK_NO_BINARIES);
    caps->lanes = usable_lanes(caps);
    caps->fused = (fp32 & CL_FP_FMA) != 0;
    caps->takes_assembly = takes_assembly(caps);
    caps->fast_bf16 = caps->takes_assembly && os_processor_has_fast_bf16();
    caps->amx_bf16 = caps->takes_assembly && os_processor_has_amx_bf16();
    caps->local_most = local_most_of(cl, caps);
    caps->registers = registers_of(info);
    capabilities_read_matrix(cl, caps);
    capabilities_read_sub_groups(cl, caps);
    caps->images = images != CL_FALSE && cl->clCreateImage && cl->clGetImageInfo && cl->clEnqueueReadImage &&
                   cl->clEnqueueCopyImageToBuffer && cl->clEnqueueCopyBufferToImage;
    return CLATTN_SUCCESS;
fail:
    capabilities_clear(caps);
    return status;
}

void capabilities_clear(struct capabilities *caps)
{
    const char *texts[] = {caps->info.platform, caps->info.name,    caps->info.vendor,
                           caps->info.driver,   caps->info.version, caps->info.extensions};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free((char *)(uintptr_t)texts[i]);
    memset(caps, 0, sizeof *caps);
}

size_t capabilities_local_room(const struct capabilities *caps)
{
    const size_t bytes = (size_t)caps->local_most, taken = capabilities_on_nvidia(caps) ? 1040 : 0;
    return bytes > taken ? bytes - taken : 0;
}

bool capabilities_allow_loops(const struct capabilities *caps, double iterations)
{
    return !(caps->quirks & QUIRK_LOOPS_STOP) || iterations < 65535;
}

void capabilities_define(const struct capabilities *caps, size_t items, struct strbuf *options)
{
    const bool assembly = caps->takes_assembly && (items == 1 || !(caps->quirks & QUIRK_GROUPS_BREAK));
    strbuf_printf(options, " -DFUSED=%d -DX86_F16=%d", caps->fused, assembly);
}

bool capabilities_have(const struct capabilities *caps, const char *extension)
{
    size_t length = strlen(extension);
    for (const char *at = caps->info.extensions; (at = strstr(at, extension)) != NULL; at += length) {
        bool starts = at == caps->info.extensions || at[-1] == ' ';
        if (starts && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

bool capabilities_prefetch(const struct capabilities *caps)
{
    return caps->info.device_class == CLATTN_DEVICE_CLASS_POCL;
}

bool capabilities_pocl_on_intel(const struct capabilities *caps)
{
    return caps->info.device_class == CLATTN_DEVICE_CLASS_POCL && contains(caps->info.vendor, "Intel");
}

bool capabilities_on_cpu(const struct capabilities *caps)
{
    return caps->info.device_class == CLATTN_DEVICE_CLASS_CPU || caps->info.device_class == CLATTN_DEVICE_CLASS_POCL ||
           caps->info.device_class == CLATTN_DEVICE_CLASS_SOFTWARE;
}

clattn_status device_info_write(const struct capabilities *caps, clattn_device_info *info)
{
    if (!struct_write(info, sizeof caps->info, sizeof caps->info, &caps->info))
        return report_error(NULL, CLATTN_ERROR_INVALID_STRUCT, "clattn_device_info.size is %zu, expected at least %zu",
                            info->size, sizeof caps->info);
    return CLATTN_SUCCESS;
}
