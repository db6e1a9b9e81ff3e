/* libclattn-io: strict readers of .npy files, safetensors files and CTranslate2 models,
 * and a writer of .npy.
 *
 * A second library: it needs jansson and nothing of OpenCL's.  libclattn opens no tensor file: its callers
 * hand it buffers.
 *
 * For the whole header: functions have no global state and may be called from any number of threads at once.
 * They block for as long as the file system does.  Paths are NUL-terminated and go to the operating system as
 * they are.  A function that fails leaves its outputs as "nothing" (a NULL handle, a zeroed tensor), owns
 * nothing, and has written one line to `error`.  Files are untrusted: whatever their bytes, a reader returns
 * a status, and before the sizes in a header have been checked against the file's own size it allocates no
 * more than is said below. */
#ifndef CLATTN_IO_H
#define CLATTN_IO_H

#include <stddef.h>
#include <stdint.h>

#include "tensor.h"

CLATTN_BEGIN_DECLS

/* ---- .npy ---- */

/* One .npy file, read into memory.  Owns its tensor's data, keeps no file open.  Immutable between create and
 * release: any number of threads may read it. */
typedef struct clattn_npy clattn_npy;

/* Reads the file at `path`: a regular file in NumPy's format, version 1.0, 2.0 or 3.0, in C order, with at
 * most CLATTN_MAX_RANK dimensions, whose data ends exactly where the file does.
 *
 *   descr    <f4  <f2  <f8  <u2   |b1   <i4  <i8  |u1 |i1
 *   dtype    F32  F16  F64  BF16  BOOL  I32  I64  U8  I8
 *
 * NumPy has no bfloat16: its 16 bits travel as unsigned integers.  A header over 65,535 bytes is refused.
 * Up to 64 KiB are allocated before the sizes are known to be right.  The data begins at a multiple of
 * 64 bytes.
 *
 * CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: `path` or `npy` is NULL; CLATTN_ERROR_IO: not there, not
 * readable, not a regular file, or shorter by the time it was read; CLATTN_ERROR_FORMAT: not a well-formed
 * .npy file; CLATTN_ERROR_UNSUPPORTED: well formed, but of another version, element type, byte order, order
 * or rank; CLATTN_ERROR_OVERFLOW: the extents' product; CLATTN_ERROR_OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_npy_create(const char *path, clattn_npy **npy, clattn_io_error *error);

/* The file's array, valid until clattn_npy_release.  Never fails; NULL gives a zeroed tensor. */
CLATTN_API clattn_host_tensor clattn_npy_tensor(const clattn_npy *npy);

/* Frees *npy and sets it to NULL; NULL and a pointer to NULL are accepted.  No thread may still use it. */
CLATTN_API void clattn_npy_release(clattn_npy **npy);

/* Writes an array as a .npy file, version 1.0, its data starting at a multiple of 64 bytes.
 * `rank` is 0 … CLATTN_MAX_RANK; `extent` has that many values (NULL is accepted for rank 0); `data` holds
 * the elements in C order (NULL is accepted where there are none).  CLATTN_DTYPE_BF16 is written as unsigned 16-bit
 * integers.
 *
 * The file appears whole or not at all: a temporary file in the same folder is written and then renamed.  A
 * file that was there is replaced and its permissions are kept; a symbolic link to one is followed.  After a
 * failure the old file is untouched and the temporary one is gone.  Nothing is flushed to the disk itself: a
 * crash of the *machine* may lose the new file.  Where `path` is a device or pipe, the bytes are written to
 * it directly.
 *
 * CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: a NULL, or a dtype or rank outside the above;
 * CLATTN_ERROR_OVERFLOW: the extents' product; CLATTN_ERROR_IO: the folder or file can't be written (the
 * message has the system's reason); CLATTN_ERROR_OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_npy_write(const char *path, clattn_dtype dtype, int32_t rank, const size_t *extent,
                                          const void *data, clattn_io_error *error);

/* ---- safetensors ---- */

/* One safetensors file: its checked table of tensors, and its data mapped into memory.  Owns both; tensors
 * and names that it gives live until it is released.  Immutable between create and release: any number of threads
 * may read it.
 *
 * The data is mapped, not copied.  While the handle lives, nobody may shorten the file (touching what is gone is a
 * fatal signal, SIGBUS) or change it in place (the tensors would change with it); replacing it by renaming
 * another over it is harmless. */
typedef struct clattn_safetensors clattn_safetensors;

/* One line of the table.  `tensor` has dtype CLATTN_DTYPE_NONE, rank 0 and zero extents, but the right
 * `bytes` and `data`, where clattn has no such element type or the rank is over CLATTN_MAX_RANK.  A plain
 * value that borrows from the file's handle. */
typedef struct clattn_safetensors_entry {
    const char *name;       /* UTF-8 */
    const char *dtype_name; /* the file's own spelling, as in "F32" or "F8_E4M3" */
    clattn_host_tensor tensor;
} clattn_safetensors_entry;

/* Opens the file at `path` and checks all of its header: a regular file; a JSON object from the header's
 * first byte, after it nothing but spaces; each tensor with exactly dtype, shape and data_offsets; the
 * optional "__metadata__" an object of strings (checked, not kept); no name twice; the tensors' data without
 * overlap or hole from the header's end to the file's; each length the product of the shape and the element's
 * size (not for element types that are unknown here).
 *
 * Limits: 100,000,000 bytes of header; 2,048 bytes of JSON for a name and as many for a description; and the
 * header is read piece by piece so that parsing and the table together stay below 1 MB, which is enough for
 * some 6,000 tensors with names of usual length.
 *
 * CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: `path` or `file` is NULL; CLATTN_ERROR_IO: not there, not
 * readable, not a regular file, can't be mapped, or shorter by the time it was read; CLATTN_ERROR_FORMAT: the
 * contents are not what the above says; CLATTN_ERROR_UNSUPPORTED: a limit is exceeded; CLATTN_ERROR_OVERFLOW:
 * the product of a shape; CLATTN_ERROR_OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_safetensors_create(const char *path, clattn_safetensors **file, clattn_io_error *error);

/* How many tensors the file has; 0 for NULL.  Never fails, does not block. */
CLATTN_API size_t clattn_safetensors_count(const clattn_safetensors *file);

/* Entry number `index` of the table, in the byte order of the names.  Does not block.
 * CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: a NULL, or `index` is not below the count (*entry is
 * zeroed). */
CLATTN_API clattn_status clattn_safetensors_at(const clattn_safetensors *file, size_t index,
                                               clattn_safetensors_entry *entry);

/* The tensor of that name; a zeroed tensor if the file has none.  `data` may stand at any address: the format
 * promises no alignment, so copy it (or hand it to clEnqueueWriteBuffer) rather than dereference it as
 * floats. Does not block. CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: `file`, `name` or `tensor` is NULL;
 * CLATTN_ERROR_UNSUPPORTED: it is there, with an element type or rank that clattn does not have. */
CLATTN_API clattn_status clattn_safetensors_find(const clattn_safetensors *file, const char *name,
                                                 clattn_host_tensor *tensor, clattn_io_error *error);

/* clattn_safetensors_find as a clattn_tensor_lookup: `user` is the clattn_safetensors.  Tensors are valid
 * until the file is released. */
CLATTN_API clattn_status clattn_safetensors_lookup(void *user, const char *name, clattn_host_tensor *tensor,
                                                   clattn_io_error *error);

/* Unmaps and frees *file and sets it to NULL; its tensors, names and messages about them are gone.  NULL and
 * a pointer to NULL are accepted.  No thread may use *file any more. */
CLATTN_API void clattn_safetensors_release(clattn_safetensors **file);

/* ---- CTranslate2's model.bin ---- */

/* One model.bin: its checked table of variables, and their data mapped into memory.  Owns both; tensors and
 * names that it gives live until it is released.  Immutable between create and release: any number of threads may
 * read it.  What is said of the file under clattn_safetensors is true here, too. */
typedef struct clattn_ctranslate2 clattn_ctranslate2;

/* One line of the table; an alias is a line of its own.  `tensor` has dtype CLATTN_DTYPE_NONE, rank 0 and zero
 * extents, but the right `bytes` and `data`, where clattn has no such element type (int16).  A plain value that
 * borrows from the file's handle. */
typedef struct clattn_ctranslate2_entry {
    const char *name;
    const char *dtype_name; /* "float32", "int8", "int16", "int32", "float16" or "bfloat16" */
    clattn_host_tensor tensor;
} clattn_ctranslate2_entry;

/* Opens the file at `path` and checks all of its table: a regular file of binary version 4 to 6; each length the
 * product of the shape and the element's size; no name twice; each alias of a variable that is there; nothing
 * after the last alias.  At most 100,000 variables and as many aliases, of some 90 bytes each in the table, whose
 * number is held against the file's size before.
 *
 * CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: `path` or `file` is NULL; CLATTN_ERROR_IO: not there, not
 * readable, not a regular file, or can't be mapped; CLATTN_ERROR_FORMAT: the contents are not what the above
 * says; CLATTN_ERROR_UNSUPPORTED: another version, an element type that is not known, or a rank over
 * CLATTN_MAX_RANK or another limit; CLATTN_ERROR_OVERFLOW: the product of a shape; CLATTN_ERROR_OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_ctranslate2_create(const char *path, clattn_ctranslate2 **file, clattn_io_error *error);

/* What kind of model it is, as "WhisperSpec", and the revision of that; "" and 0 for NULL.  Never fail. */
CLATTN_API const char *clattn_ctranslate2_spec(const clattn_ctranslate2 *file);
CLATTN_API uint32_t clattn_ctranslate2_revision(const clattn_ctranslate2 *file);

/* How many variables and aliases the file has; 0 for NULL.  Never fails, does not block. */
CLATTN_API size_t clattn_ctranslate2_count(const clattn_ctranslate2 *file);

/* Entry number `index` of the table, in the byte order of the names.  Does not block.
 * CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: a NULL, or `index` is not below the count (*entry is
 * zeroed). */
CLATTN_API clattn_status clattn_ctranslate2_at(const clattn_ctranslate2 *file, size_t index,
                                               clattn_ctranslate2_entry *entry);

/* The variable or alias of that name; a zeroed tensor if the file has none.  `data` may stand at any address.
 * Does not block.  CLATTN_SUCCESS; CLATTN_ERROR_INVALID_ARGUMENT: a NULL; CLATTN_ERROR_UNSUPPORTED: it is
 * there, of int16. */
CLATTN_API clattn_status clattn_ctranslate2_find(const clattn_ctranslate2 *file, const char *name,
                                                 clattn_host_tensor *tensor, clattn_io_error *error);

/* clattn_ctranslate2_find as a clattn_tensor_lookup: `user` is the clattn_ctranslate2. */
CLATTN_API clattn_status clattn_ctranslate2_lookup(void *user, const char *name, clattn_host_tensor *tensor,
                                                   clattn_io_error *error);

/* An attribute of the model: a variable of rank 0 and int8, int16 or int32.  0, and *value 0, if there is
 * none of that name and kind, or for a NULL. */
CLATTN_API int clattn_ctranslate2_integer(const clattn_ctranslate2 *file, const char *name, int32_t *value);

/* Unmaps and frees *file and sets it to NULL; its tensors and names are gone.  NULL and a pointer to NULL are
 * accepted.  No thread may use *file any more. */
CLATTN_API void clattn_ctranslate2_release(clattn_ctranslate2 **file);

CLATTN_END_DECLS

#endif
