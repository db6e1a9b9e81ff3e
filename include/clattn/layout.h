/* Layouts (how an array is walked) and bindings (where its data is). */
#ifndef CLATTN_LAYOUT_H
#define CLATTN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* 1.2 unless the application says otherwise: with clSVMAlloc and clattn_binding_svm it defines 200 or more, in the
 * compiler's options or before the first of these headers. */
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include "dtype.h"
#include "status.h"

CLATTN_BEGIN_DECLS

/* How an array is walked.  Element (i0, i1, …) lies at binding.offset + i0*stride[0] + i1*stride[1] + …,
 * counted in elements.  A plain value: copy it freely.  Strides may be negative; a stride of 0 broadcasts an
 * input; two elements of an output may not share a place.  A zeroed layout means "no such array". */
typedef struct clattn_layout {
    clattn_dtype dtype;
    int32_t rank; /* 1 … CLATTN_MAX_RANK */
    size_t extent[CLATTN_MAX_RANK];
    int64_t stride[CLATTN_MAX_RANK];
} clattn_layout;

/* The row-major (C order) layout of the given extents: the last dimension is contiguous.
 * `rank` 1 … CLATTN_MAX_RANK and `extent` with that many values, otherwise a zeroed layout comes back; an
 * overflow of the strides is reported by whoever uses the layout.  Thread-safe. */
CLATTN_API clattn_layout clattn_layout_contiguous(clattn_dtype dtype, int32_t rank, const size_t *extent);

/* (batch, heads, length, size), contiguous in that order: what ONNX calls 4D attention inputs. */
CLATTN_API clattn_layout clattn_layout_bhsd(clattn_dtype dtype, size_t batch, size_t heads, size_t length, size_t size);

/* The same four dimensions over memory in the order (batch, length, heads, size), the layout that a
 * projection to (batch, length, heads * size) leaves behind. */
CLATTN_API clattn_layout clattn_layout_bshd(clattn_dtype dtype, size_t batch, size_t heads, size_t length, size_t size);

typedef enum clattn_binding_kind {
    CLATTN_BINDING_KIND_BUFFER = 0, /* cl_mem; a zeroed binding is a NULL buffer: "none" */
    CLATTN_BINDING_KIND_SVM = 1,    /* a coarse-grained shared-virtual-memory pointer, OpenCL 2.0 and later */
    CLATTN_BINDING_KIND_IMAGE = 2,  /* an image2d_t, whose cl_mem is `buffer`: clattn_image alone takes it */
    CLATTN_BINDING_KIND_FORCE_32BIT = 0x7fffffff
} clattn_binding_kind;

/* Where an array's data is.  A plain value that borrows the memory: nothing here owns it, and the caller
 * keeps it alive until the work that uses it has completed.  For SVM `svm` is the allocation's first byte and
 * its size is the caller's promise: the library cannot check it. */
typedef struct clattn_binding {
    clattn_binding_kind kind;
    int32_t reserved;
    cl_mem buffer;
    void *svm;
    int64_t offset; /* of element (0, 0, …), in elements from the start of the memory */
} clattn_binding;

/* A binding to `buffer`, `offset` elements in. */
CLATTN_API clattn_binding clattn_binding_buffer(cl_mem buffer, int64_t offset);

/* A binding to shared virtual memory, `offset` elements in.  OpenCL's headers declare clSVMAlloc where
 * CL_TARGET_OPENCL_VERSION is 200 or more; without a definition these headers make it 120. */
CLATTN_API clattn_binding clattn_binding_svm(void *pointer, int64_t offset);

/* A binding to an image2d_t, for clattn_image (image.h). */
CLATTN_API clattn_binding clattn_binding_image(cl_mem image);

CLATTN_END_DECLS

#endif
