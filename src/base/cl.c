#include "base/cl.h"

#include <string.h>

#include "base/os.h"

/* Object and function pointers have one representation wherever there is a dlsym. */
#define STORE_FUNCTION(member, pointer) memcpy(&(member), &(pointer), sizeof(pointer))

static clattn_status fill_by_name(struct cl_table *table, clattn_get_proc get_proc, void *user)
{
    void *found;
#define FETCH_REQUIRED(name) \
    found = get_proc(user, #name); \
    if (!found) \
        return report_error(NULL, CLATTN_ERROR_NO_OPENCL, \
                            "the OpenCL loader has no %s: OpenCL 1.2 or later is needed", #name); \
    STORE_FUNCTION(table->name, found);
#define FETCH_OPTIONAL(name) \
    found = get_proc(user, #name); \
    STORE_FUNCTION(table->name, found);
    CL_FUNCTIONS(FETCH_REQUIRED, FETCH_OPTIONAL)
#undef FETCH_REQUIRED
#undef FETCH_OPTIONAL
    return CLATTN_SUCCESS;
}

#ifdef CLATTN_OPENCL_DLOPEN

#if defined(_WIN32)
static const char *const loaders[] = {"OpenCL.dll"};
#define LOADER_COMES_WITH "the driver of the graphics card, or Intel's OpenCL runtime for CPUs"
#elif defined(__APPLE__)
static const char *const loaders[] = {"/System/Library/Frameworks/OpenCL.framework/OpenCL"};
#define LOADER_COMES_WITH "a macOS that has OpenCL"
#else
static const char *const loaders[] = {"libOpenCL.so.1", "libOpenCL.so"};
#define LOADER_COMES_WITH "ocl-icd-libopencl1 and a platform such as pocl-opencl-icd"
#endif

static void *symbol_of_library(void *library, const char *name)
{
    return os_library_symbol(library, name);
}

static clattn_status fill_from_loader(struct cl_table *table)
{
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof loaders / sizeof loaders[0]; i++)
        library = os_library_open(loaders[i]);
    if (!library)
        return report_error(NULL, CLATTN_ERROR_NO_OPENCL, "no OpenCL loader (%s): install %s", loaders[0],
                            LOADER_COMES_WITH);
    return fill_by_name(table, symbol_of_library, library);
}

#else

static clattn_status fill_from_loader(struct cl_table *table)
{
#define TAKE(name) table->name = name;
    CL_FUNCTIONS(TAKE, TAKE)
#undef TAKE
    return CLATTN_SUCCESS;
}

#endif

clattn_status cl_table_fill(struct cl_table *table, clattn_get_proc get_proc, void *user)
{
    return get_proc ? fill_by_name(table, get_proc, user) : fill_from_loader(table);
}

#define RELEASE_NOTHING(name, type) \
    static cl_int CL_API_CALL keep_##name(type o) \
    { \
        (void)o; \
        return CL_SUCCESS; \
    }
RELEASE_NOTHING(clReleaseDevice, cl_device_id)
RELEASE_NOTHING(clReleaseContext, cl_context)
RELEASE_NOTHING(clReleaseCommandQueue, cl_command_queue)
RELEASE_NOTHING(clReleaseMemObject, cl_mem)
RELEASE_NOTHING(clReleaseProgram, cl_program)
RELEASE_NOTHING(clReleaseKernel, cl_kernel)
RELEASE_NOTHING(clReleaseEvent, cl_event)

static cl_int CL_API_CALL keep_mapped(cl_command_queue queue, cl_mem memory, void *mapped, cl_uint wait_count,
                                      const cl_event *wait_list, cl_event *event)
{
    (void)queue, (void)memory, (void)mapped, (void)wait_count, (void)wait_list, (void)event;
    return CL_SUCCESS;
}

void cl_table_disown(struct cl_table *table)
{
    table->clReleaseDevice = keep_clReleaseDevice;
    table->clReleaseContext = keep_clReleaseContext;
    table->clReleaseCommandQueue = keep_clReleaseCommandQueue;
    table->clReleaseMemObject = keep_clReleaseMemObject;
    table->clReleaseProgram = keep_clReleaseProgram;
    table->clReleaseKernel = keep_clReleaseKernel;
    table->clReleaseEvent = keep_clReleaseEvent;
    table->clEnqueueUnmapMemObject = keep_mapped;
}
