/* What stands in for the driver's objects in CLBlast's hands, and the calls that it makes with them; clblast_objects.h says
 * why. Only with the lock of clblast_library.h held.
 *
 * Kernels, events and memory: a kernel is stood in for, because CLBlast asks it about the device; events and memory
 * are the driver's. */
#ifndef CLATTN_OPS_MATMUL_CLBLAST_SHOWN_H
#define CLATTN_OPS_MATMUL_CLBLAST_SHOWN_H

#include <CL/cl_icd.h>

#include "ops/matmul/clblast/objects.h"

/* Where the loader finds what CLBlast calls. */
extern const cl_icd_dispatch shown_calls;

/* Each begins with `dispatch`, where the loader looks. */
struct shown_device {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
};

struct shown_context {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
};

struct shown_program {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
    unsigned references;
    cl_program program; /* the driver's; NULL: not built */
    size_t bytes;
    char text[]; /* the source, `bytes` of it and a zero */
};

struct shown_kernel {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
    unsigned references;
    cl_kernel kernel;
};

struct clblast_objects {
    struct clblast_objects *next;
    struct cl_table cl; /* a copy: CLBlast may keep a program for longer than a context lives */
    cl_context context; /* retained, as is the device */
    cl_device_id device;
    bool usable;
    struct shown_device shown_device;
    struct shown_context shown_context;
};

#define OBJECTS(type, handle) (((struct type *)(void *)(handle))->objects)

/* What a query of `bytes` bytes gives, as OpenCL's queries do. */
cl_int shown_answer(const void *value, size_t bytes, size_t room, void *into, size_t *needed);

/* Programs and kernels. */
cl_program CL_API_CALL shown_program_of_source(cl_context id, cl_uint count, const char **parts, const size_t *lengths,
                                               cl_int *code);
cl_program CL_API_CALL shown_program_of_binary(cl_context id, cl_uint count, const cl_device_id *devices,
                                               const size_t *lengths, const unsigned char **binaries, cl_int *statuses,
                                               cl_int *code);
cl_int CL_API_CALL shown_program_build(cl_program id, cl_uint count, const cl_device_id *devices, const char *options,
                                       void(CL_CALLBACK *notify)(cl_program, void *), void *user);
cl_int CL_API_CALL shown_program_build_info(cl_program id, cl_device_id device, cl_program_build_info name, size_t room,
                                            void *value, size_t *bytes);
cl_int CL_API_CALL shown_program_info(cl_program id, cl_program_info name, size_t room, void *value, size_t *bytes);
cl_int CL_API_CALL shown_program_retain(cl_program id);
cl_int CL_API_CALL shown_program_release(cl_program id);
cl_kernel CL_API_CALL shown_kernel_create(cl_program id, const char *name, cl_int *code);
cl_int CL_API_CALL shown_kernel_retain(cl_kernel id);
cl_int CL_API_CALL shown_kernel_release(cl_kernel id);
cl_int CL_API_CALL shown_kernel_set_argument(cl_kernel id, cl_uint i, size_t bytes, const void *value);
cl_int CL_API_CALL shown_kernel_group_info(cl_kernel id, cl_device_id device, cl_kernel_work_group_info name,
                                           size_t room, void *value, size_t *bytes);

#endif
