/* Buffers by their addresses, and copies between them and the host's memory. */
#include "memory/memory.h"

#include <stdlib.h>

#include "base/os/os_threads.h"

/* A buffer that ONNX Runtime has asked for. */
typedef struct piece {
    struct piece *next;
    char *begin;
    size_t bytes;
    cl_mem buffer;
} piece;

typedef struct allocator {
    OrtAllocator base; /* first, so that a pointer to it is one to the allocator */
    struct allocator *next;
    const OrtMemoryInfo *info;
    struct cl_table cl;
    cl_context context;
    cl_command_queue queue;
    piece *pieces;
} allocator;

typedef struct transfer {
    OrtDataTransferImpl base;
    const OrtApi *ort;
    const OrtMemoryDevice *device;
} transfer;

/* Where an array is. */
typedef struct place {
    const allocator *owner; /* whose context it is in */
    cl_mem buffer;
    size_t offset;
} place;

/* Copies between arrays belong to no session, so all allocators are in one list.  The lock is held while they are used. */
static mtx_t lock = MTX_INIT;
static allocator *allocators;

/* ---- places ---- */

static bool find_piece(const char *address, place *found, size_t *room)
{
    for (const allocator *a = allocators; a; a = a->next)
        for (const piece *p = a->pieces; p; p = p->next)
            if (address >= p->begin && address < p->begin + p->bytes) {
                *found = (place){a, p->buffer, (size_t)(address - p->begin)};
                *room = p->bytes - found->offset;
                return true;
            }
    return false;
}

/* The same for a cl_mem. */
static bool find_buffer(const void *address, place *found, size_t *room)
{
    const cl_mem buffer = (cl_mem)(uintptr_t)address;
    cl_context context = NULL;
    cl_mem_object_type type = 0;
    const allocator *a = allocators;
    if (!a || !address || (uintptr_t)address % sizeof(void *) != 0 ||
        a->cl.clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof context, &context, NULL) != CL_SUCCESS ||
        a->cl.clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof type, &type, NULL) != CL_SUCCESS ||
        a->cl.clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof *room, room, NULL) != CL_SUCCESS)
        return false;
    while (a && a->context != context)
        a = a->next;
    *found = (place){a, buffer, 0};
    return a && type == CL_MEM_OBJECT_BUFFER;
}

static OrtStatus *find(const OrtApi *ort, const void *address, size_t bytes, place *found)
{
    size_t room = 0;
    if (!find_piece(address, found, &room) && !find_buffer(address, found, &room))
        return ort_failure(ort, ORT_INVALID_ARGUMENT,
                           "clattn: an array's address %p is no cl_mem of a session's context", address);
    if (bytes > room)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: an array has %zu bytes, but its cl_mem only %zu", bytes,
                           room);
    return NULL;
}

OrtStatus *memory_find(const OrtApi *ort, cl_context context, const void *address, size_t bytes, cl_mem *buffer,
                       size_t *offset)
{
    place found = {0};
    mtx_lock(&lock);
    OrtStatus *failure = find(ort, address, bytes, &found);
    if (!failure && found.owner->context != context)
        failure = ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: an array's cl_mem is of another session's context");
    mtx_unlock(&lock);
    *buffer = found.buffer;
    *offset = found.offset;
    return failure;
}

OrtStatus *memory_is_device(const OrtApi *ort, const OrtValue *value, bool *is)
{
    const OrtMemoryInfo *info = NULL;
    OrtMemoryInfoDeviceType type = OrtMemoryInfoDeviceType_CPU;
    OrtStatus *failure = ort->GetTensorMemoryInfo(value, &info);
    if (!failure)
        ort->MemoryInfoGetDeviceType(info, &type);
    *is = type != OrtMemoryInfoDeviceType_CPU;
    return failure;
}

/* ---- allocators ---- */

static void *ORT_API_CALL allocate(OrtAllocator *base, size_t bytes)
{
    allocator *a = (allocator *)(void *)base;
    piece *p = a->queue && bytes ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    cl_int code = CL_SUCCESS;
    p->bytes = bytes;
    p->begin = os_addresses_reserve(bytes);
    p->buffer = p->begin ? a->cl.clCreateBuffer(a->context, CL_MEM_READ_WRITE, bytes, NULL, &code) : NULL;
    if (!p->buffer) {
        if (p->begin)
            os_addresses_release(p->begin, bytes);
        free(p);
        return NULL;
    }
    mtx_lock(&lock);
    p->next = a->pieces;
    a->pieces = p;
    mtx_unlock(&lock);
    return p->begin;
}

static void ORT_API_CALL release(OrtAllocator *base, void *address)
{
    allocator *a = (allocator *)(void *)base;
    mtx_lock(&lock);
    piece **at = &a->pieces, *p;
    while (*at && (*at)->begin != address)
        at = &(*at)->next;
    p = *at;
    if (p)
        *at = p->next;
    mtx_unlock(&lock);
    if (!p)
        return;
    a->cl.clReleaseMemObject(p->buffer);
    os_addresses_release(p->begin, p->bytes);
    free(p);
}

static const OrtMemoryInfo *ORT_API_CALL allocator_info(const OrtAllocator *base)
{
    return ((const allocator *)(const void *)base)->info;
}

OrtStatus *memory_allocator(const OrtApi *ort, const OrtMemoryInfo *info, const struct cl_table *cl, cl_context context,
                            cl_command_queue queue, OrtAllocator **made)
{
    allocator *a = calloc(1, sizeof *a);
    *made = a ? &a->base : NULL;
    if (!a)
        return ort_failure(ort, ORT_FAIL, "clattn: no memory for an allocator");
    a->base.version = ORT_API_VERSION;
    a->base.Alloc = a->base.Reserve = allocate;
    a->base.Free = release;
    a->base.Info = allocator_info;
    a->info = info;
    if (!queue)
        return NULL;
    a->cl = *cl;
    a->context = context;
    a->queue = queue;
    a->cl.clRetainContext(context);
    a->cl.clRetainCommandQueue(queue);
    mtx_lock(&lock);
    a->next = allocators;
    allocators = a;
    mtx_unlock(&lock);
    return NULL;
}

void memory_release_allocator(OrtAllocator *base)
{
    allocator *a = (allocator *)(void *)base;
    if (!a)
        return;
    mtx_lock(&lock);
    allocator **at = &allocators;
    while (*at && *at != a)
        at = &(*at)->next;
    if (*at)
        *at = a->next;
    mtx_unlock(&lock);
    while (a->pieces)
        release(base, a->pieces->begin);
    if (a->queue) {
        a->cl.clReleaseCommandQueue(a->queue);
        a->cl.clReleaseContext(a->context);
    }
    free(a);
}

/* ---- copies ---- */

static void ORT_API_CALL release_transfer(OrtDataTransferImpl *base)
{
    free(base);
}

static bool ORT_API_CALL can_copy(const OrtDataTransferImpl *base, const OrtMemoryDevice *from,
                                  const OrtMemoryDevice *to)
{
    const transfer *t = (const transfer *)(const void *)base;
    const OrtEpApi *ep = t->ort->GetEpApi();
    const bool reads = ep->MemoryDevice_AreEqual(from, t->device), writes = ep->MemoryDevice_AreEqual(to, t->device);
    return (reads || writes) && (reads || ep->MemoryDevice_GetDeviceType(from) == OrtMemoryInfoDeviceType_CPU) &&
           (writes || ep->MemoryDevice_GetDeviceType(to) == OrtMemoryInfoDeviceType_CPU);
}

/* Waits for whatever sessions have enqueued in a context: it may write what is to be copied. */
static cl_int finish(cl_context context)
{
    cl_int code = CL_SUCCESS;
    for (const allocator *a = allocators; a && code == CL_SUCCESS; a = a->next)
        if (a->context == context)
            code = a->cl.clFinish(a->queue);
    return code;
}

/* Copies between buffers (owner NULL: none) or the host's addresses x and y. */
static cl_int copy_bytes(const place *from, const void *x, const place *to, void *y, size_t bytes)
{
    const allocator *a = from->owner ? from->owner : to->owner;
    cl_int code = finish(a->context);
    if (code != CL_SUCCESS)
        return code;
    if (!to->owner)
        return a->cl.clEnqueueReadBuffer(a->queue, from->buffer, CL_TRUE, from->offset, bytes, y, 0, NULL, NULL);
    if (!from->owner)
        return a->cl.clEnqueueWriteBuffer(a->queue, to->buffer, CL_TRUE, to->offset, bytes, x, 0, NULL, NULL);
    code =
        a->cl.clEnqueueCopyBuffer(a->queue, from->buffer, to->buffer, from->offset, to->offset, bytes, 0, NULL, NULL);
    return code == CL_SUCCESS ? a->cl.clFinish(a->queue) : code;
}

static OrtStatus *copy_array(const OrtApi *ort, const OrtValue *from, OrtValue *to)
{
    OrtStatus *failure = NULL;
    const void *x = NULL;
    void *y = NULL;
    size_t bytes = 0;
    bool reads = false, writes = false;
    place source = {0}, target = {0};
    ORT_TRY(ort->GetTensorSizeInBytes(from, &bytes));
    ORT_TRY(ort->GetTensorData(from, &x));
    ORT_TRY(ort->GetTensorMutableData(to, &y));
    ORT_TRY(memory_is_device(ort, from, &reads));
    ORT_TRY(memory_is_device(ort, to, &writes));
    if (!bytes)
        return NULL;
    if (reads)
        ORT_TRY(find(ort, x, bytes, &source));
    if (writes)
        ORT_TRY(find(ort, y, bytes, &target));
    if (reads && writes && source.owner->context != target.owner->context)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: an array's cl_mem is of another session's context");
    const cl_int code = copy_bytes(&source, x, &target, y, bytes);
    if (code != CL_SUCCESS)
        failure = ort_failure(ort, ORT_EP_FAIL, "clattn: copying an array returned %d", code);
fail:
    return failure;
}

static OrtStatus *ORT_API_CALL copy_arrays(OrtDataTransferImpl *base, const OrtValue **from, OrtValue **to,
                                           OrtSyncStream **streams, size_t count)
{
    const transfer *t = (const transfer *)(const void *)base;
    OrtStatus *failure = NULL;
    (void)streams;
    mtx_lock(&lock);
    for (size_t i = 0; i < count && !failure; i++)
        failure = copy_array(t->ort, from[i], to[i]);
    mtx_unlock(&lock);
    return failure;
}

OrtStatus *memory_transfer(const OrtApi *ort, const OrtMemoryInfo *info, OrtDataTransferImpl **made)
{
    transfer *t = calloc(1, sizeof *t);
    *made = t ? &t->base : NULL;
    if (!t)
        return ort_failure(ort, ORT_FAIL, "clattn: no memory for copies");
    t->base.ort_version_supported = ORT_API_VERSION;
    t->base.Release = release_transfer;
    t->base.CanCopy = can_copy;
    t->base.CopyTensors = copy_arrays;
    t->ort = ort;
    t->device = ort->GetEpApi()->MemoryInfo_GetMemoryDevice(info);
    return NULL;
}
