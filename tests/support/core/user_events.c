#include "support/core/user_events.h"

#include <time.h>

#include "support/harness.h"

cl_command_queue make_queue_of(const clattn_context *of, bool out_of_order)
{
    cl_int code;
    const cl_command_queue_properties properties = out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
    cl_command_queue queue =
        clCreateCommandQueue(clattn_context_opencl_context(of), clattn_context_opencl_device(of), properties, &code);
    if (!out_of_order)
        assert_int_equal(code, CL_SUCCESS);
    return code == CL_SUCCESS ? queue : NULL;
}

cl_event make_user_event(const clattn_context *of)
{
    cl_int code;
    if (is_tiny())
        return NULL;
    cl_event user_event = clCreateUserEvent(clattn_context_opencl_context(of), &code);
    assert_int_equal(code, CL_SUCCESS);
    return user_event;
}

void complete_user_event(cl_event user_event)
{
    if (!user_event)
        return;
    assert_int_equal(clSetUserEventStatus(user_event, CL_COMPLETE), CL_SUCCESS);
    clReleaseEvent(user_event);
}

bool event_waits(cl_event event)
{
    for (int i = 0; i < 10; i++) {
        cl_int status = CL_COMPLETE;
        if (!event ||
            clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) != CL_SUCCESS ||
            status <= CL_COMPLETE)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return true;
}

bool queue_is_empty(cl_command_queue queue)
{
    cl_event marker = NULL;
    cl_int status = CL_QUEUED;
    assert_int_equal(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker), CL_SUCCESS);
    clFlush(queue);
    for (int i = 0; i < 100 && status != CL_COMPLETE; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        assert_int_equal(clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL),
                         CL_SUCCESS);
    }
    clReleaseEvent(marker);
    return status == CL_COMPLETE;
}
