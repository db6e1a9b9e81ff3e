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
    const allocator *owner; /* whose context it is in; NULL: it is in the host's memory */
    cl_mem buffer;
    size_t offset;
} place;

/* A copy between buffers, or a buffer and the host's memory, with all that it needs, retained. */
typedef struct job {
    struct cl_table cl;
    place from, to;
    cl_command_queue *queue; /* of the sessions of the context; the last is that which copies */
    size_t queues;
} job;

/* Copies between arrays belong to no session, so all allocators are in one list.  The lock is held while it is used, but not while
 * a device is waited for. */
static mtx_t lock = MTX_INIT;
static allocator *allocators;

/* What clCreateBuffer returned to the thread's last allocation; CL_SUCCESS, too, if it was not called.  An allocator has no
 * status to return, and ONNX Runtime goes on with NULL until the array is used. */
static _Thread_local cl_int refused;

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
    if (!address)
        return ort_failure(
            ort, ORT_EP_FAIL,
            "clattn: an array of %zu bytes has no memory, an allocation has failed (clCreateBuffer returned %d)", bytes,
            refused);
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

OrtStatus *memory_is_of(const OrtApi *ort, const OrtMemoryDevice *device, const OrtValue *value, bool *is)
{
    const OrtMemoryInfo *info = NULL;
    const OrtEpApi *ep = ort->GetEpApi();
    OrtStatus *failure = ort->GetTensorMemoryInfo(value, &info);
    *is = !failure && ep->MemoryDevice_AreEqual(ep->MemoryInfo_GetMemoryDevice(info), device);
    return failure;
}

/* ---- allocators ---- */

static void *ORT_API_CALL allocate(OrtAllocator *base, size_t bytes)
{
    allocator *a = (allocator *)(void *)base;
    piece *p = a->queue && bytes ? calloc(1, sizeof *p) : NULL;
    refused = CL_SUCCESS;
    if (!p)
        return NULL;
    p->bytes = bytes;
    p->begin = os_addresses_reserve(bytes);
    p->buffer = p->begin ? a->cl.clCreateBuffer(a->context, CL_MEM_READ_WRITE, bytes, NULL, &refused) : NULL;
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

static void release_job(job *j)
{
    const place *places[] = {&j->from, &j->to};
    for (size_t i = 0; i < 2; i++)
        if (places[i]->buffer)
            j->cl.clReleaseMemObject(places[i]->buffer);
    for (size_t i = 0; i < j->queues; i++)
        j->cl.clReleaseCommandQueue(j->queue[i]);
    free(j->queue);
}

/* Retains the places' buffers, and the queues of all sessions of their context. */
static OrtStatus *retain_job(const OrtApi *ort, const place *from, const place *to, job *j)
{
    const allocator *owner = from->owner ? from->owner : to->owner;
    size_t room = 0;
    if (from->owner && to->owner && from->owner->context != to->owner->context)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: an array's cl_mem is of another session's context");
    for (const allocator *a = allocators; a; a = a->next)
        room++;
    j->queue = calloc(room, sizeof *j->queue);
    if (!j->queue)
        return ort_failure(ort, ORT_FAIL, "clattn: no memory for a copy");
    j->cl = owner->cl;
    j->from = *from;
    j->to = *to;
    if (from->buffer)
        j->cl.clRetainMemObject(from->buffer);
    if (to->buffer)
        j->cl.clRetainMemObject(to->buffer);
    for (const allocator *a = allocators; a; a = a->next)
        if (a->context == owner->context && a != owner)
            j->queue[j->queues++] = a->queue;
    j->queue[j->queues++] = owner->queue;
    for (size_t i = 0; i < j->queues; i++)
        j->cl.clRetainCommandQueue(j->queue[i]);
    return NULL;
}

/* Copies behind whatever sessions have enqueued in the context, which may write what is to be copied.  x and y are the host's addresses. */
static cl_int do_job(const job *j, const void *x, void *y, size_t bytes)
{
    const place *from = &j->from, *to = &j->to;
    const cl_command_queue queue = j->queue[j->queues - 1];
    cl_int code = CL_SUCCESS;
    for (size_t i = 0; i < j->queues && code == CL_SUCCESS; i++)
        code = j->cl.clFinish(j->queue[i]);
    if (code != CL_SUCCESS)
        return code;
    if (!to->buffer)
        return j->cl.clEnqueueReadBuffer(queue, from->buffer, CL_TRUE, from->offset, bytes, y, 0, NULL, NULL);
    if (!from->buffer)
        return j->cl.clEnqueueWriteBuffer(queue, to->buffer, CL_TRUE, to->offset, bytes, x, 0, NULL, NULL);
    code = j->cl.clEnqueueCopyBuffer(queue, from->buffer, to->buffer, from->offset, to->offset, bytes, 0, NULL, NULL);
    return code == CL_SUCCESS ? j->cl.clFinish(queue) : code;
}

static OrtStatus *copy_array(const transfer *t, const OrtValue *from, OrtValue *to)
{
    const OrtApi *ort = t->ort;
    OrtStatus *failure = NULL;
    const void *x = NULL;
    void *y = NULL;
    size_t bytes = 0;
    bool reads = false, writes = false;
    place source = {0}, target = {0};
    job j = {0};
    ORT_TRY(ort->GetTensorSizeInBytes(from, &bytes));
    ORT_TRY(ort->GetTensorData(from, &x));
    ORT_TRY(ort->GetTensorMutableData(to, &y));
    ORT_TRY(memory_is_of(ort, t->device, from, &reads));
    ORT_TRY(memory_is_of(ort, t->device, to, &writes));
    if (!bytes || (!reads && !writes))
        return NULL;
    mtx_lock(&lock);
    failure = reads ? find(ort, x, bytes, &source) : NULL;
    if (!failure && writes)
        failure = find(ort, y, bytes, &target);
    if (!failure)
        failure = retain_job(ort, &source, &target, &j);
    mtx_unlock(&lock);
    if (!failure) {
        const cl_int code = do_job(&j, x, y, bytes);
        if (code != CL_SUCCESS)
            failure = ort_failure(ort, ORT_EP_FAIL, "clattn: copying an array returned %d", code);
        release_job(&j);
    }
fail:
    return failure;
}

static OrtStatus *ORT_API_CALL copy_arrays(OrtDataTransferImpl *base, const OrtValue **from, OrtValue **to,
                                           OrtSyncStream **streams, size_t count)
{
    const transfer *t = (const transfer *)(const void *)base;
    OrtStatus *failure = NULL;
    (void)streams;
    for (size_t i = 0; i < count && !failure; i++)
        failure = copy_array(t, from[i], to[i]);
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
