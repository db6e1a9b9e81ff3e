/** @file
 * libclattn-io: strict readers of .npy files, safetensors files and CTranslate2 models, and a writer of .npy.
 *
 * It is a second library: it needs nothing of OpenCL. libclattn itself opens no tensor file; its callers hand it
 * buffers.
 *
 * These rules hold for the whole header:
 *
 * - Functions have no global state, and any number of threads may call them at once. They block for as long as the
 *   file system does. Paths are NUL-terminated and go to the operating system as they are.
 * - A function that fails leaves its outputs as "nothing" (a NULL handle, a zeroed tensor), owns nothing, and has
 *   written one line to *error.
 * - Files are untrusted. Whatever their bytes, a reader returns a status. Before it has checked the sizes in a header
 *   against the file's own size, it allocates no more than is said below.
 */
#ifndef CLATTN_IO_H
#define CLATTN_IO_H

#include <stddef.h>
#include <stdint.h>

#include "tensor.h"

CLATTN_BEGIN_DECLS

/** One .npy file, read into memory. Owns its tensor's data, and keeps no file open.
 *
 * Immutable between create and release: any number of threads may read it. */
typedef struct clattn_npy clattn_npy;

/** Reads the .npy file at `path`.
 *
 * It is a regular file in NumPy's format, version 1.0, 2.0 or 3.0, in C order, with at most CLATTN_MAX_RANK
 * dimensions, whose data ends exactly where the file does:
 *
 *     descr    <f4  <f2  <f8  <u2   |b1   <i4  <i8  |u1 |i1
 *     dtype    F32  F16  F64  BF16  BOOL  I32  I64  U8  I8
 *
 * NumPy has no bfloat16: its 16 bits travel as unsigned integers. A header over 65,535 bytes is refused. Up to 64 KiB
 * are allocated before the sizes are known to be right. The data begins at a multiple of 64 bytes.
 *
 * @return
 * - INVALID_ARGUMENT: `path` or `npy` is NULL;
 * - IO: the file is not there, not readable, not a regular file, or became shorter while it was read;
 * - FORMAT: it is not a well-formed .npy file;
 * - UNSUPPORTED: it is well formed, but of another version, element type, byte order, order or rank;
 * - OVERFLOW: the product of the extents;
 * - OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_npy_create(const char *path, clattn_npy **npy, clattn_io_error *error);

/** Returns the file's array, valid until clattn_npy_release. Never fails; NULL gives a zeroed tensor. */
CLATTN_API clattn_host_tensor clattn_npy_tensor(const clattn_npy *npy);

/** Frees the file's array and sets *npy to NULL; accepts NULL and a pointer to NULL. No thread may still use it. */
CLATTN_API void clattn_npy_release(clattn_npy **npy);

/** Writes an array to `path` as a .npy file, version 1.0, with its data starting at a multiple of 64 bytes.
 *
 * `rank` is 0 ... CLATTN_MAX_RANK, and `extent` has that many values; it may be NULL if `rank` is 0. `data` holds the
 * elements of type `dtype` in C order; it may be NULL if there are none. CLATTN_DTYPE_BF16 is written as unsigned
 * 16-bit integers.
 *
 * The file appears whole or not at all: a temporary file in the same folder is written, synced to the disk and then
 * renamed. A file that was there is replaced, and its permissions are kept; a symbolic link to one is followed (neither on Windows). After a
 * failure the old file is untouched and the temporary one is gone. After a crash of the machine either the old file is
 * there or the new one, whole; once the call has returned, the new one, if the file system syncs folders. If `path` is a
 * device or pipe, the bytes are written to it directly.
 *
 * @return
 * - INVALID_ARGUMENT: a NULL, or a dtype or rank outside the above;
 * - OVERFLOW: the product of the extents;
 * - IO: the folder or file cannot be written (the message has the system's reason);
 * - OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_npy_write(const char *path, clattn_dtype dtype, int32_t rank, const size_t *extent,
                                          const void *data, clattn_io_error *error);

/** One safetensors file: its checked table of tensors, and its data, mapped into memory.
 *
 * Owns both; the tensors and names that it gives live until it is released. Immutable between create and release: any
 * number of threads may read it.
 *
 * The data is mapped, not copied. While the handle lives, nobody may shorten the file (touching what is gone is a
 * fatal signal, SIGBUS) or change it in place (the tensors would change with it). Replacing it by renaming another
 * file over it is harmless. */
typedef struct clattn_safetensors clattn_safetensors;

/** One line of a safetensors file's table. A plain value that borrows from the file's handle. */
typedef struct clattn_safetensors_entry {
    const char *name;       /**< the tensor's name, UTF-8 */
    const char *dtype_name; /**< the file's own spelling of its type, such as "F32" or "F8_E4M3" */

    /** The tensor. If clattn has no such element type, or the rank is above CLATTN_MAX_RANK, it has dtype
     * CLATTN_DTYPE_NONE, rank 0 and zero extents, but the right `bytes` and `data`. */
    clattn_host_tensor tensor;
} clattn_safetensors_entry;

/** Opens the safetensors file at `path`, and checks all of its header.
 *
 * The checks: a regular file; a JSON object from the header's first byte, and nothing but spaces after it; each tensor
 * with exactly dtype, shape and data_offsets; the optional "__metadata__" an object of strings (checked, not kept); no
 * name twice; the tensors' data without overlap or hole from the header's end to the file's; each length the product
 * of the shape and the element's size (not for element types that are unknown here).
 *
 * The limits: 100,000,000 bytes of header; 2,048 bytes of JSON for a name, and as many for a description. The header
 * is read piece by piece, so that parsing and the table together stay below 1 MB, which is enough for some 6,000
 * tensors with names of usual length.
 *
 * @return
 * - INVALID_ARGUMENT: `path` or `file` is NULL;
 * - IO: the file is not there, not readable, not a regular file, cannot be mapped, or became shorter while it was
 *   read;
 * - FORMAT: the contents fail one of these checks;
 * - UNSUPPORTED: a limit is exceeded;
 * - OVERFLOW: the product of a shape;
 * - OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_safetensors_create(const char *path, clattn_safetensors **file, clattn_io_error *error);

/** Returns how many tensors the file has; 0 for NULL. Never fails, does not block. */
CLATTN_API size_t clattn_safetensors_count(const clattn_safetensors *file);

/** Fills *entry with line `index` of the table, in the byte order of the names. Does not block.
 *
 * @return INVALID_ARGUMENT: a NULL, or `index` is not below the count; *entry is then zeroed. */
CLATTN_API clattn_status clattn_safetensors_at(const clattn_safetensors *file, size_t index,
                                               clattn_safetensors_entry *entry);

/** Finds the tensor called `name`; *tensor is zeroed if the file has none. Does not block.
 *
 * Its `data` may lie at any address, because the format promises no alignment: copy it, or hand it to
 * clEnqueueWriteBuffer, rather than dereference it as floats.
 *
 * @return INVALID_ARGUMENT: `file`, `name` or `tensor` is NULL. UNSUPPORTED: the tensor is there, with an element type
 * or rank that clattn does not have. */
CLATTN_API clattn_status clattn_safetensors_find(const clattn_safetensors *file, const char *name,
                                                 clattn_host_tensor *tensor, clattn_io_error *error);

/** clattn_safetensors_find as a clattn_tensor_lookup: `user` is the clattn_safetensors.
 *
 * Tensors are valid until the file is released.
 *
 * @return what clattn_safetensors_find returns for `name`, `tensor` and `error`. */
CLATTN_API clattn_status clattn_safetensors_lookup(void *user, const char *name, clattn_host_tensor *tensor,
                                                   clattn_io_error *error);

/** Unmaps and frees the file and sets *file to NULL; accepts NULL and a pointer to NULL.
 *
 * Its tensors, its names and messages about them are gone. No thread may still use it. */
CLATTN_API void clattn_safetensors_release(clattn_safetensors **file);

/** One model.bin of CTranslate2: its checked table of variables, and their data, mapped into memory.
 *
 * Owns both; the tensors and names that it gives live until it is released. Immutable between create and release: any
 * number of threads may read it. Nobody may shorten or change the file meanwhile, as with clattn_safetensors. */
typedef struct clattn_ctranslate2 clattn_ctranslate2;

/** One line of a model's table; an alias is a line of its own. A plain value that borrows from the file's handle. */
typedef struct clattn_ctranslate2_entry {
    const char *name;       /**< the variable's or alias's name */
    const char *dtype_name; /**< its type: "float32", "int8", "int16", "int32", "float16" or "bfloat16" */

    /** The tensor. If clattn has no such element type (int16), it has dtype CLATTN_DTYPE_NONE, rank 0 and zero
     * extents, but the right `bytes` and `data`. */
    clattn_host_tensor tensor;
} clattn_ctranslate2_entry;

/** Opens the model.bin at `path`, and checks all of its table.
 *
 * The checks: a regular file of binary version 4 to 6; each length the product of the shape and the element's size; no
 * name twice; each alias of a variable that is there; nothing after the last alias. At most 100,000 variables and as
 * many aliases, of some 90 bytes each in the table; their number is held against the file's size before the table is
 * allocated.
 *
 * @return
 * - INVALID_ARGUMENT: `path` or `file` is NULL;
 * - IO: the file is not there, not readable, not a regular file, or cannot be mapped;
 * - FORMAT: the contents fail one of these checks;
 * - UNSUPPORTED: another version, an unknown element type, a rank above CLATTN_MAX_RANK, or another limit;
 * - OVERFLOW: the product of a shape;
 * - OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_ctranslate2_create(const char *path, clattn_ctranslate2 **file, clattn_io_error *error);

/** Returns what kind of model the file is, as "WhisperSpec"; "" for NULL. Never fails. */
CLATTN_API const char *clattn_ctranslate2_spec(const clattn_ctranslate2 *file);

/** Returns the revision of that kind; 0 for NULL. Never fails. */
CLATTN_API uint32_t clattn_ctranslate2_revision(const clattn_ctranslate2 *file);

/** Returns how many variables and aliases the file has; 0 for NULL. Never fails, does not block. */
CLATTN_API size_t clattn_ctranslate2_count(const clattn_ctranslate2 *file);

/** Fills *entry with line `index` of the table, in the byte order of the names. Does not block.
 *
 * @return INVALID_ARGUMENT: a NULL, or `index` is not below the count; *entry is then zeroed. */
CLATTN_API clattn_status clattn_ctranslate2_at(const clattn_ctranslate2 *file, size_t index,
                                               clattn_ctranslate2_entry *entry);

/** Finds the variable or alias called `name`; *tensor is zeroed if the file has none. Does not block.
 *
 * Its `data` may lie at any address.
 *
 * @return INVALID_ARGUMENT: `file`, `name` or `tensor` is NULL. UNSUPPORTED: it is there, with type int16. */
CLATTN_API clattn_status clattn_ctranslate2_find(const clattn_ctranslate2 *file, const char *name,
                                                 clattn_host_tensor *tensor, clattn_io_error *error);

/** clattn_ctranslate2_find as a clattn_tensor_lookup: `user` is the clattn_ctranslate2.
 *
 * @return what clattn_ctranslate2_find returns for `name`, `tensor` and `error`. */
CLATTN_API clattn_status clattn_ctranslate2_lookup(void *user, const char *name, clattn_host_tensor *tensor,
                                                   clattn_io_error *error);

/** Returns whether the model has an attribute called `name`, and copies it to *value.
 *
 * An attribute is a variable of rank 0 and type int8, int16 or int32. If there is none of that name and kind, or an
 * argument is NULL, the result is 0 and *value becomes 0. */
CLATTN_API int clattn_ctranslate2_integer(const clattn_ctranslate2 *file, const char *name, int32_t *value);

/** Unmaps and frees the file and sets *file to NULL; accepts NULL and a pointer to NULL.
 *
 * Its tensors and names are gone. No thread may still use it. */
CLATTN_API void clattn_ctranslate2_release(clattn_ctranslate2 **file);

CLATTN_END_DECLS

#endif
