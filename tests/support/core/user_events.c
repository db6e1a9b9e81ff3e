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
    assert_cl(clSetUserEventStatus(user_event, CL_COMPLETE));
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
    assert_cl(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    clFlush(queue);
    for (int i = 0; i < 6000 && status != CL_COMPLETE; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        assert_cl(clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    }
    clReleaseEvent(marker);
    return status == CL_COMPLETE;
}
