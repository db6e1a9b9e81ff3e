/* An application on a machine that has no OpenCL platform, or (in a build with -Dopencl=dlopen) no OpenCL at all: it
 * starts, and gets a status and a message.  Succeeds if the library says NO_OPENCL. */
#include <stdio.h>

#include "clattn/clattn.h"

int main(void)
{
    clattn_context *context = NULL;
    clattn_devices *devices = NULL;
    char message[512];
    clattn_status status = clattn_context_create(NULL, &context);
    clattn_status listing = clattn_devices_create(NULL, &devices);
    clattn_context_message(NULL, message, sizeof message);
    printf("%s; %s: %s\n", clattn_status_string(status), clattn_status_string(listing), message);
    clattn_context_release(&context);
    clattn_devices_release(&devices);
    return status != CLATTN_ERROR_NO_OPENCL || listing != CLATTN_ERROR_NO_OPENCL;
}
