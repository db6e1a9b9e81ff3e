/** @file
 * Layouts say how an array is walked; bindings say where its data is.
 */
#ifndef CLATTN_LAYOUT_H
#define CLATTN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifndef CL_TARGET_OPENCL_VERSION
/** The OpenCL version that CL/cl.h declares: 1.2 unless the application defines another one.
 *
 * An application that uses clSVMAlloc and clattn_binding_svm defines 200 or more, in the compiler's options or before
 * it includes the first of these headers. */
#define CL_TARGET_OPENCL_VERSION 120
#endif
#ifdef __APPLE__
#include <OpenCL/opencl.h>
#else
#include <CL/cl.h>
#endif

#include "dtype.h"
#include "status.h"

CLATTN_BEGIN_DECLS

/** How an array is walked: its type, its extents and a stride for each dimension.
 *
 * Element (i0, i1, ...) lies at binding.offset + i0 * stride[0] + i1 * stride[1] + ..., counted in elements. Strides
 * may be negative. A stride of 0 broadcasts an input; two elements of an output may not share a place. A zeroed layout
 * means "no such array". A layout is a plain value: copy it freely. */
typedef struct clattn_layout {
    clattn_dtype dtype;              /**< the elements' type */
    int32_t rank;                    /**< how many dimensions there are, 1 ... CLATTN_MAX_RANK */
    size_t extent[CLATTN_MAX_RANK];  /**< elements along each dimension, `rank` of them */
    int64_t stride[CLATTN_MAX_RANK]; /**< elements from one index to the next along each dimension */
} clattn_layout;

/** Returns the row-major (C order) layout of the given extents: the last dimension is contiguous.
 *
 * `dtype` is the type of its elements, and `extent` has `rank` values. A `rank` outside 1 ... CLATTN_MAX_RANK or a
 * NULL `extent` gives a zeroed layout. Strides that overflow are reported by whatever is given the layout.
 * Thread-safe. */
CLATTN_API clattn_layout clattn_layout_contiguous(clattn_dtype dtype, int32_t rank, const size_t *extent);

/** Returns the layout (`batch`, `heads`, `length`, `size`), contiguous in that order: what ONNX calls 4D attention
 * inputs.
 *
 * `dtype` is the type of its elements. Thread-safe. */
CLATTN_API clattn_layout clattn_layout_bhsd(clattn_dtype dtype, size_t batch, size_t heads, size_t length, size_t size);

/** Returns the layout (`batch`, `heads`, `length`, `size`) of memory in the order (batch, length, heads, size).
 *
 * A projection to (batch, length, heads * size) leaves its result in that order. `dtype` is the type of its elements.
 * Thread-safe. */
CLATTN_API clattn_layout clattn_layout_bshd(clattn_dtype dtype, size_t batch, size_t heads, size_t length, size_t size);

/** Returns the layout (`batch`, `channels`, `height`, `width`) of pictures, planes of channels one after the other: NCHW.
 *
 * `dtype` is the type of its elements. Thread-safe. */
CLATTN_API clattn_layout clattn_layout_nchw(clattn_dtype dtype, size_t batch, size_t channels, size_t height,
                                            size_t width);

/** Returns the layout (`batch`, `channels`, `height`, `width`) of pictures whose channels are neighbours: NHWC, which
 * PyTorch calls channels_last.
 *
 * The extents have the same order as those of clattn_layout_nchw. `dtype` is the type of its elements. Thread-safe. */
CLATTN_API clattn_layout clattn_layout_nhwc(clattn_dtype dtype, size_t batch, size_t channels, size_t height,
                                            size_t width);

/** What kind of memory a binding names. */
typedef enum clattn_binding_kind {
    CLATTN_BINDING_KIND_BUFFER = 0, /**< a buffer; a zeroed binding is a NULL buffer and means "none" */
    CLATTN_BINDING_KIND_SVM = 1,    /**< a coarse-grained shared-virtual-memory pointer (OpenCL 2.0 and later) */
    CLATTN_BINDING_KIND_IMAGE = 2,  /**< an image2d_t, whose cl_mem is `buffer`; only image.h takes it */
    CLATTN_BINDING_KIND_FORCE_32BIT = 0x7fffffff
} clattn_binding_kind;

/** Where an array's data is.
 *
 * A plain value that borrows the memory: the caller keeps the memory alive until the work that uses it has
 * completed. */
typedef struct clattn_binding {
    clattn_binding_kind kind; /**< which of the members below counts */
    int32_t reserved;         /* 0 */
    cl_mem buffer;            /**< the buffer or image */
    /** The first byte of an allocation of shared virtual memory. The library cannot check the allocation's size. */
    void *svm;
    int64_t offset; /**< where element (0, 0, ...) lies, in elements from the start of the memory */
} clattn_binding;

/** Returns a binding to `buffer` whose first element lies `offset` elements in. Thread-safe. */
CLATTN_API clattn_binding clattn_binding_buffer(cl_mem buffer, int64_t offset);

/** Returns a binding to shared virtual memory whose first element lies `offset` elements behind `pointer`.
 * Thread-safe.
 *
 * `pointer` is what clSVMAlloc returned, which OpenCL's headers declare if CL_TARGET_OPENCL_VERSION is 200 or more.
 * CLBlast, which multiplies float32 on GPUs, takes none: exclude it by clattn_context_params.clblast. */
CLATTN_API clattn_binding clattn_binding_svm(void *pointer, int64_t offset);

/** Returns a binding to `image`, an image2d_t, for the operator of image.h. Thread-safe. */
CLATTN_API clattn_binding clattn_binding_image(cl_mem image);

CLATTN_END_DECLS

#endif
