/* The table through which every OpenCL call goes, so that the library loads where there is no OpenCL, takes
 * an application's functions, and lets tests make any call fail. */
#ifndef CLATTN_BASE_CL_H
#define CLATTN_BASE_CL_H

#include "base/report.h"
#include "clattn/context.h"

/* REQUIRED(f): OpenCL 1.2; without it there is no table.  OPTIONAL(f): NULL where it is missing. */
#define CL_FUNCTIONS(REQUIRED, OPTIONAL) \
    REQUIRED(clGetPlatformIDs) \
    REQUIRED(clGetPlatformInfo) \
    REQUIRED(clGetDeviceIDs) \
    REQUIRED(clGetDeviceInfo) \
    REQUIRED(clRetainDevice) \
    REQUIRED(clReleaseDevice) \
    REQUIRED(clCreateContext) \
    REQUIRED(clRetainContext) \
    REQUIRED(clReleaseContext) \
    REQUIRED(clGetContextInfo) \
    REQUIRED(clCreateCommandQueue) \
    REQUIRED(clRetainCommandQueue) \
    REQUIRED(clReleaseCommandQueue) \
    REQUIRED(clGetCommandQueueInfo) \
    REQUIRED(clCreateBuffer) \
    REQUIRED(clEnqueueReadBuffer) \
    REQUIRED(clEnqueueWriteBuffer) \
    REQUIRED(clEnqueueFillBuffer) \
    REQUIRED(clEnqueueCopyBuffer) \
    REQUIRED(clEnqueueCopyBufferRect) \
    REQUIRED(clReleaseMemObject) \
    REQUIRED(clGetMemObjectInfo) \
    REQUIRED(clCreateProgramWithSource) \
    REQUIRED(clCreateProgramWithBinary) \
    REQUIRED(clBuildProgram) \
    REQUIRED(clGetProgramInfo) \
    REQUIRED(clGetProgramBuildInfo) \
    REQUIRED(clReleaseProgram) \
    REQUIRED(clCreateKernel) \
    REQUIRED(clReleaseKernel) \
    REQUIRED(clSetKernelArg) \
    REQUIRED(clGetKernelWorkGroupInfo) \
    REQUIRED(clEnqueueNDRangeKernel) \
    REQUIRED(clEnqueueMarkerWithWaitList) \
    REQUIRED(clEnqueueBarrierWithWaitList) \
    REQUIRED(clRetainEvent) \
    REQUIRED(clReleaseEvent) \
    REQUIRED(clGetEventInfo) \
    REQUIRED(clFinish) \
    OPTIONAL(clSetKernelArgSVMPointer) \
    OPTIONAL(clCreateImage) \
    OPTIONAL(clGetImageInfo) \
    OPTIONAL(clEnqueueReadImage)

struct cl_table {
#define CL_MEMBER(name) __typeof__(name) *name;
    CL_FUNCTIONS(CL_MEMBER, CL_MEMBER)
#undef CL_MEMBER
};

/* Fills the table: from `get_proc` if it is given, otherwise from the linked loader or, in a build with
 * -Dopencl=dlopen, from the loader found at run time.  Returns NO_OPENCL with the thread's message set. */
clattn_status cl_table_fill(struct cl_table *table, clattn_get_proc get_proc, void *user);

/* Makes every release in the table succeed without a call: in the child of a fork the objects are the
 * parent's, and the driver may hang. */
void cl_table_disown(struct cl_table *table);

#endif
