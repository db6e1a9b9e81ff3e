/* What a rank sends depends on its arrays alone, not on what its device's memory held before, nor on whether the driver gives pinned memory.
 *
 * Holds: group.h, what an exchange sends. */
#include <string.h>

#include "support/core/inject.h"
#include "support/device.h"
#include "support/group/share.h"
#include "support/suite.h"

enum pinning { PINNED, NOT_CREATED, NOT_MAPPED };

/* A driver: by which byte all memory begins, and what becomes of memory that is to be pinned. */
struct driver {
    unsigned char byte;
    enum pinning pinning;
};

static struct driver driver;
static int mapped;

static cl_mem CL_API_CALL create(cl_context opencl, cl_mem_flags flags, size_t bytes, void *data, cl_int *code)
{
    cl_device_id device;
    if ((flags & CL_MEM_ALLOC_HOST_PTR) && driver.pinning == NOT_CREATED) {
        *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    cl_mem buffer = clCreateBuffer(opencl, flags, bytes, data, code);
    inject_count(INJECT_MEMORY, buffer != NULL);
    if (!buffer || data)
        return buffer;
    assert_cl(clGetContextInfo(opencl, CL_CONTEXT_DEVICES, sizeof device, &device, NULL));
    cl_command_queue queue = clCreateCommandQueue(opencl, device, 0, NULL);
    assert_cl(clEnqueueFillBuffer(queue, buffer, &driver.byte, sizeof driver.byte, 0, bytes, 0, NULL, NULL));
    assert_cl(clFinish(queue));
    clReleaseCommandQueue(queue);
    return buffer;
}

static void *CL_API_CALL map(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags, size_t offset,
                             size_t bytes, cl_uint n, const cl_event *waits, cl_event *event, cl_int *code)
{
    if (driver.pinning == NOT_MAPPED) {
        *code = CL_MAP_FAILURE;
        return NULL;
    }
    void *memory = clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, bytes, n, waits, event, code);
    inject_count(INJECT_MEMORY, memory != NULL);
    mapped += memory != NULL;
    return memory;
}

static void *get_proc(void *user, const char *name)
{
    __typeof__(clCreateBuffer) *const own_create = create;
    __typeof__(clEnqueueMapBuffer) *const own_map = map;
    void *pointer = inject_get_proc(user, name);
    if (!strcmp(name, "clCreateBuffer"))
        memcpy(&pointer, &own_create, sizeof pointer);
    if (!strcmp(name, "clEnqueueMapBuffer"))
        memcpy(&pointer, &own_map, sizeof pointer);
    return pointer;
}

static uint64_t sent_by(const share_way *way, struct driver how, float *results)
{
    other_rank other = {0};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    enum inject_kind kind;
    params.get_proc = get_proc;
    driver = how;
    mapped = 0;
    inject_mark();
    clattn_context *context = new_context_with(&params);
    assert_status(context, share_run(context, way, &other, results), CLATTN_SUCCESS);
    release_context(&context);
    if (!inject_balanced(&kind))
        fail_msg("%s: not all has come back", inject_kind_name(kind));
    assert_true(other.started > 2);
    assert_true((mapped > 0) == (how.pinning == PINNED));
    return other.sent;
}

static void arrays_alone_are_sent(const void *way, const char *unused)
{
    static const struct driver others[] = {{0xee, PINNED}, {0xee, NOT_CREATED}, {0xee, NOT_MAPPED}};
    static float expected[OTHER_FLOATS], results[OTHER_FLOATS];
    (void)unused;
    const uint64_t sent = sent_by(way, (struct driver){0x11, PINNED}, expected);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        assert_true(sent_by(way, others[i], results) == sent);
        if (!((const share_way *)way)->packed) /* the results have rows that nobody owns */
            assert_memory_equal(results, expected, sizeof results);
    }
}

int main(int argc, char **argv)
{
    static share_way ways[12];
    static const char *const modes[] = {"ring", "gather", "heads"};
    for (int i = 0; i < 12; i++) {
        ways[i] = (share_way){(clattn_group_mode)(i / 4), i & 1, i & 2};
        suite_add_case(arrays_alone_are_sent, &ways[i], "", "group: what is sent is of arrays, %s, %s%s", modes[i / 4],
                       i & 1 ? "backward" : "forward", i & 2 ? ", packed" : "");
    }
    return suite_run("group_sent", argc, argv);
}
