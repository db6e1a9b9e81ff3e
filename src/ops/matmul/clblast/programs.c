/* CLBlast's programs, whose "binary" is their source, and its kernels. */
#include <stdlib.h>
#include <string.h>

#include "ops/matmul/clblast/shown.h"

static cl_program create_program(struct clblast_objects *objects, cl_uint count, const char *const *parts,
                                 const size_t *lengths, cl_int *code)
{
    size_t bytes = 0;
    cl_int ignored;
    struct shown_program *program;
    for (cl_uint i = 0; i < count; i++)
        bytes += lengths && lengths[i] ? lengths[i] : strlen(parts[i]);
    program = calloc(1, sizeof *program + bytes + 1);
    *(code ? code : &ignored) = program ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    if (!program)
        return NULL;
    program->dispatch = &shown_calls;
    program->objects = objects;
    program->references = 1;
    for (cl_uint i = 0; i < count; i++) {
        size_t length = lengths && lengths[i] ? lengths[i] : strlen(parts[i]);
        memcpy(program->text + program->bytes, parts[i], length);
        program->bytes += length;
    }
    return (cl_program)(void *)program;
}

cl_program CL_API_CALL shown_program_of_source(cl_context id, cl_uint count, const char **parts, const size_t *lengths,
                                               cl_int *code)
{
    return create_program(OBJECTS(shown_context, id), count, parts, lengths, code);
}

/* CLBlast has the "binary" from get_program_info: it is the source. */
cl_program CL_API_CALL shown_program_of_binary(cl_context id, cl_uint count, const cl_device_id *devices,
                                               const size_t *lengths, const unsigned char **binaries, cl_int *statuses,
                                               cl_int *code)
{
    const char *text = (const char *)binaries[0];
    (void)devices;
    if (statuses)
        statuses[0] = CL_SUCCESS;
    return create_program(OBJECTS(shown_context, id), count ? 1 : 0, &text, lengths, code);
}

cl_int CL_API_CALL shown_program_build(cl_program id, cl_uint count, const cl_device_id *devices, const char *options,
                                       void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    struct shown_program *shown = (void *)id;
    const struct clblast_objects *objects = shown->objects;
    const char *text = shown->text;
    cl_int code;
    (void)count;
    (void)devices;
    (void)user;
    if (notify || shown->program)
        return CL_INVALID_OPERATION;
    shown->program = objects->cl.clCreateProgramWithSource(objects->context, 1, &text, &shown->bytes, &code);
    if (!shown->program)
        return code;
    return objects->cl.clBuildProgram(shown->program, 1, &objects->device, options, NULL, NULL);
}

cl_int CL_API_CALL shown_program_build_info(cl_program id, cl_device_id device, cl_program_build_info name, size_t room,
                                            void *value, size_t *bytes)
{
    const struct shown_program *shown = (const void *)id;
    const struct clblast_objects *objects = shown->objects;
    (void)device;
    if (!shown->program)
        return CL_INVALID_PROGRAM;
    return objects->cl.clGetProgramBuildInfo(shown->program, objects->device, name, room, value, bytes);
}

cl_int CL_API_CALL shown_program_info(cl_program id, cl_program_info name, size_t room, void *value, size_t *bytes)
{
    const struct shown_program *shown = (const void *)id;
    if (name == CL_PROGRAM_BINARY_SIZES)
        return shown_answer(&shown->bytes, sizeof shown->bytes, room, value, bytes);
    if (name == CL_PROGRAM_BINARIES) {
        if (bytes)
            *bytes = sizeof(unsigned char *);
        if (value && room < sizeof(unsigned char *))
            return CL_INVALID_VALUE;
        if (value && *(unsigned char **)value)
            memcpy(*(unsigned char **)value, shown->text, shown->bytes);
        return CL_SUCCESS;
    }
    return shown->program ? shown->objects->cl.clGetProgramInfo(shown->program, name, room, value, bytes)
                          : CL_INVALID_PROGRAM;
}

cl_int CL_API_CALL shown_program_retain(cl_program id)
{
    ((struct shown_program *)(void *)id)->references++;
    return CL_SUCCESS;
}

cl_int CL_API_CALL shown_program_release(cl_program id)
{
    struct shown_program *shown = (void *)id;
    if (--shown->references)
        return CL_SUCCESS;
    if (shown->program)
        shown->objects->cl.clReleaseProgram(shown->program);
    free(shown);
    return CL_SUCCESS;
}

cl_kernel CL_API_CALL shown_kernel_create(cl_program id, const char *name, cl_int *code)
{
    const struct shown_program *program = (const void *)id;
    struct shown_kernel *shown = calloc(1, sizeof *shown);
    cl_int failure = CL_OUT_OF_HOST_MEMORY;
    if (shown) {
        failure = CL_INVALID_PROGRAM_EXECUTABLE;
        if (program->program)
            shown->kernel = program->objects->cl.clCreateKernel(program->program, name, &failure);
    }
    if (code)
        *code = failure;
    if (!shown || !shown->kernel) {
        free(shown);
        return NULL;
    }
    shown->dispatch = &shown_calls;
    shown->objects = program->objects;
    shown->references = 1;
    return (cl_kernel)(void *)shown;
}

cl_int CL_API_CALL shown_kernel_retain(cl_kernel id)
{
    ((struct shown_kernel *)(void *)id)->references++;
    return CL_SUCCESS;
}

cl_int CL_API_CALL shown_kernel_release(cl_kernel id)
{
    struct shown_kernel *shown = (void *)id;
    if (--shown->references)
        return CL_SUCCESS;
    shown->objects->cl.clReleaseKernel(shown->kernel);
    free(shown);
    return CL_SUCCESS;
}

cl_int CL_API_CALL shown_kernel_set_argument(cl_kernel id, cl_uint i, size_t bytes, const void *value)
{
    const struct shown_kernel *shown = (const void *)id;
    return shown->objects->cl.clSetKernelArg(shown->kernel, i, bytes, value);
}

cl_int CL_API_CALL shown_kernel_group_info(cl_kernel id, cl_device_id device, cl_kernel_work_group_info name,
                                           size_t room, void *value, size_t *bytes)
{
    const struct shown_kernel *shown = (const void *)id;
    const struct clblast_objects *objects = shown->objects;
    (void)device;
    return objects->cl.clGetKernelWorkGroupInfo(shown->kernel, objects->device, name, room, value, bytes);
}
