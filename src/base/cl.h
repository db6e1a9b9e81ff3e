/* Every OpenCL call goes through this table: the library then loads on a machine without OpenCL, can use functions
 * that an application supplies, and tests can make any call fail. */
#ifndef CLATTN_BASE_CL_H
#define CLATTN_BASE_CL_H

#include "base/report.h"
#include "clattn/context.h"

/* REQUIRED(f): a function of OpenCL 1.2; the table cannot be filled without it.  OPTIONAL(f): NULL if the loader
 * lacks it. */
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
    REQUIRED(clEnqueueMapBuffer) \
    REQUIRED(clEnqueueUnmapMemObject) \
    REQUIRED(clRetainMemObject) \
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
    REQUIRED(clFlush) \
    REQUIRED(clWaitForEvents) \
    OPTIONAL(clSetKernelArgSVMPointer) \
    OPTIONAL(clCreateImage) \
    OPTIONAL(clGetImageInfo) \
    OPTIONAL(clEnqueueReadImage) \
    OPTIONAL(clEnqueueCopyImageToBuffer) \
    OPTIONAL(clEnqueueCopyBufferToImage)

struct cl_table {
#define CL_MEMBER(name) __typeof__(name) *name;
    CL_FUNCTIONS(CL_MEMBER, CL_MEMBER)
#undef CL_MEMBER
};

/* Fills the table: from `get_proc` if it is given, otherwise from the linked loader or, in a build with
 * -Dopencl=dlopen, from the loader found at run time.  Returns NO_OPENCL with the thread's message set. */
clattn_status cl_table_fill(struct cl_table *table, clattn_get_proc get_proc, void *user);

/* Makes every release in the table, and every end of a mapping, succeed without a call: in the child of a fork the objects are the
 * parent's, and the driver may hang. */
void cl_table_disown(struct cl_table *table);

#endif
