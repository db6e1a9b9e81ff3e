#include "support/core/user_events.h"

#include <time.h>

#include "support/harness.h"

cl_event make_user_event(const clattn_context *of)
{
    return is_tiny() ? NULL : new_user_event(clattn_context_opencl_context(of));
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
