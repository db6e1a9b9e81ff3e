/* Windows has no list of drivers that could be shortened for this process: its loader finds them in the registry and at the
 * display adapters.  So the user is told that a driver ends the process, and it is not passed over. */
#include "base/os/os_windows.h"

#include "tool/cli/crash.h"

static LPTOP_LEVEL_EXCEPTION_FILTER before;

static LONG WINAPI on_exception(EXCEPTION_POINTERS *exception)
{
    static const char message[] =
        "clattn: an OpenCL driver ends the process while devices are listed: repair or remove that driver\n";
    DWORD written;
    (void)exception;
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), message, sizeof message - 1, &written, NULL);
    TerminateProcess(GetCurrentProcess(), TOOL_NO_DEVICE);
    return EXCEPTION_CONTINUE_SEARCH;
}

int crash_start(char **argv, bool *finished)
{
    (void)argv;
    *finished = false;
    return TOOL_DONE;
}

void crash_guard_begin(void)
{
    before = SetUnhandledExceptionFilter(on_exception);
}

void crash_guard_end(void)
{
    SetUnhandledExceptionFilter(before);
}

const char *crash_skipped(size_t index)
{
    (void)index;
    return NULL;
}
