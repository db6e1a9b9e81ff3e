/* What a rank sends depends on its arrays alone, not on what its device's memory held before.
 *
 * Holds: group.h, what an exchange sends. */
#include <string.h>

#include "support/core/inject.h"
#include "support/device.h"
#include "support/group/share.h"
#include "support/suite.h"

static unsigned char held; /* by each byte of memory that the library gets */

static cl_mem CL_API_CALL create_held(cl_context opencl, cl_mem_flags flags, size_t bytes, void *data, cl_int *code)
{
    cl_device_id device;
    cl_mem buffer = clCreateBuffer(opencl, flags, bytes, data, code);
    if (!buffer || data)
        return buffer;
    assert_cl(clGetContextInfo(opencl, CL_CONTEXT_DEVICES, sizeof device, &device, NULL));
    cl_command_queue queue = clCreateCommandQueue(opencl, device, 0, NULL);
    assert_cl(clEnqueueFillBuffer(queue, buffer, &held, sizeof held, 0, bytes, 0, NULL, NULL));
    assert_cl(clFinish(queue));
    clReleaseCommandQueue(queue);
    return buffer;
}

static void *get_proc(void *user, const char *name)
{
    __typeof__(clCreateBuffer) *const create = create_held;
    void *pointer;
    if (strcmp(name, "clCreateBuffer"))
        return inject_get_proc(user, name);
    memcpy(&pointer, &create, sizeof pointer);
    return pointer;
}

static void memory_is_not_sent(const void *way, const char *unused)
{
    static float results[SHARE_FLOATS];
    share_other other[2] = {{0}, {0}};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)unused;
    params.get_proc = get_proc;
    for (int i = 0; i < 2; i++) {
        held = i ? 0xee : 0x11;
        clattn_context *context = new_context_with(&params);
        assert_status(context, share_run(context, way, &other[i], results), CLATTN_SUCCESS);
        release_context(&context);
    }
    assert_true(other[0].started > 2);
    assert_int_equal(other[0].started, other[1].started);
    assert_true(other[0].sent == other[1].sent);
}

int main(int argc, char **argv)
{
    static share_way ways[12];
    static const char *const modes[] = {"ring", "gather", "heads"};
    for (int i = 0; i < 12; i++) {
        ways[i] = (share_way){(clattn_group_mode)(i / 4), i & 1, i & 2};
        suite_add_case(memory_is_not_sent, &ways[i], "", "group: what is sent is of arrays, %s, %s%s", modes[i / 4],
                       i & 1 ? "backward" : "forward", i & 2 ? ", packed" : "");
    }
    return suite_run("group_sent", argc, argv);
}
