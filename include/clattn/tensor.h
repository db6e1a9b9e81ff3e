/** @file
 * Arrays in host memory, and the callback that delivers a model's tensors by name.
 *
 * libclattn takes a model's weights through this callback; libclattn-io reads them from files. Nothing here needs
 * OpenCL.
 */
#ifndef CLATTN_TENSOR_H
#define CLATTN_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "status.h"

CLATTN_BEGIN_DECLS

/** Why a call failed: one line without a newline that names the file, the value found and what was expected.
 *
 * Functions write it only if they fail, and always terminate it. Control characters appear as '?', and so does
 * everything but ASCII in text that is quoted from a file. A plain value of the caller's, one for each thread; every
 * `error` parameter may be NULL. */
typedef struct clattn_io_error {
    char message[512]; /**< the line */
} clattn_io_error;

/** An array in host memory, in C order without gaps.
 *
 * A plain value that borrows: `data` belongs to whatever gave the tensor and lives as long as that does. A zeroed
 * tensor means "there is no such tensor". A scalar has rank 0 and one element. */
typedef struct clattn_host_tensor {
    clattn_dtype dtype;             /**< the elements' type */
    int32_t rank;                   /**< how many dimensions there are, 0 ... CLATTN_MAX_RANK */
    size_t extent[CLATTN_MAX_RANK]; /**< elements along each dimension */
    size_t bytes;                   /**< the product of the extents times the element's size; at most INT64_MAX */
    const void *data;               /**< little-endian elements, at any address; NULL if `bytes` is 0 */
} clattn_host_tensor;

/** Delivers the tensor called `name`, wherever it is kept, into *tensor.
 *
 * `user` is the caller's own. A missing tensor is no error: the callback returns SUCCESS and zeroes *tensor. If it
 * fails, it returns any other status, zeroes *tensor, and writes a line to *error unless `error` is NULL.
 *
 * The tensor is borrowed: it must stay as it is until the callback is called again, or until the function that was
 * given the callback returns, whichever is first. clattn_safetensors_lookup and clattn_ctranslate2_lookup (io.h) are
 * such callbacks. */
typedef clattn_status (*clattn_tensor_lookup)(void *user, const char *name, clattn_host_tensor *tensor,
                                              clattn_io_error *error);

CLATTN_END_DECLS

#endif
