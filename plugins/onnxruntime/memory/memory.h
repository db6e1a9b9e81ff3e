/* Arrays in OpenCL buffers, as ONNX Runtime sees them: by addresses.
 *
 * The address of an application's array is its cl_mem.  A buffer that ONNX Runtime asks for has a range of addresses where
 * nothing can be read or written, as ONNX Runtime adds offsets to them. */
#ifndef CLATTN_ONNXRUNTIME_MEMORY_H
#define CLATTN_ONNXRUNTIME_MEMORY_H

#include "base/cl.h"
#include "graph.h"

/* Reserves addresses that nobody can read or write; NULL if there are none. */
void *os_addresses_reserve(size_t bytes);
void os_addresses_release(void *begin, size_t bytes);

/* Whether an array is in buffers, whose memory is `device`. */
OrtStatus *memory_is_of(const OrtApi *ort, const OrtMemoryDevice *device, const OrtValue *value, bool *is);

/* Finds where `bytes` bytes at an address are; fails if these are not in a buffer of that context.  An address that is neither of
 * a range nor of a cl_mem may crash, as it does in any function of OpenCL's. */
OrtStatus *memory_find(const OrtApi *ort, cl_context context, const void *address, size_t bytes, cl_mem *buffer,
                       size_t *offset);

/* Makes an allocator of buffers in the queue's context, which copies by that queue; `info` is borrowed.  With a NULL queue it has no
 * memory to give. */
OrtStatus *memory_allocator(const OrtApi *ort, const OrtMemoryInfo *info, const struct cl_table *cl, cl_context context,
                            cl_command_queue queue, OrtAllocator **made);
void memory_release_allocator(OrtAllocator *base);

/* Makes what copies between buffers, described by `info`, and the host's memory. */
OrtStatus *memory_transfer(const OrtApi *ort, const OrtMemoryInfo *info, OrtDataTransferImpl **made);

#endif
