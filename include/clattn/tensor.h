/* Arrays in host memory, and the callback by which whoever needs tensors asks for them by name.  Shared by libclattn, which
 * takes a model's weights so, and libclattn-io, which reads them from files; needs nothing of OpenCL's. */
#ifndef CLATTN_TENSOR_H
#define CLATTN_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "status.h"

CLATTN_BEGIN_DECLS

/* Why a call failed: one line without a newline that names the file, the value found and what was expected.
 * Written only on failure, always terminated; control characters, and in what is quoted from a file all but
 * ASCII, appear as '?'.  A plain value of the caller's, one per thread; every `error` parameter may be NULL. */
typedef struct clattn_io_error {
    char message[512];
} clattn_io_error;

/* An array in host memory, in C order without gaps.  A plain value that borrows: `data` belongs to whatever
 * gave the tensor and lives as long as that does.  A zeroed tensor (dtype CLATTN_DTYPE_NONE, data NULL) means
 * "there is no such tensor".  A scalar has rank 0 and one element. */
typedef struct clattn_host_tensor {
    clattn_dtype dtype;
    int32_t rank; /* 0 … CLATTN_MAX_RANK */
    size_t extent[CLATTN_MAX_RANK];
    size_t bytes;     /* the product of the extents times the element's size; at most INT64_MAX */
    const void *data; /* little-endian elements, at any address; NULL when `bytes` is 0 */
} clattn_host_tensor;

/* How something that loads a model asks for its tensors by name, wherever they are kept.  `user` is the caller's
 * own.  Fills *tensor; an absent tensor is no error: CLATTN_SUCCESS and a zeroed *tensor.  On failure any status, a
 * zeroed *tensor, and a line in *error if `error` is not NULL.
 *
 * The tensor is borrowed: it must stay as it is until the callback is called again, or the function that was given the
 * callback returns, whichever is first.  clattn_safetensors_lookup (io.h) is one. */
typedef clattn_status (*clattn_tensor_lookup)(void *user, const char *name, clattn_host_tensor *tensor,
                                              clattn_io_error *error);

CLATTN_END_DECLS

#endif
