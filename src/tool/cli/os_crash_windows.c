/* Windows has no list of drivers that could be shortened for this process: its loader finds them in the registry and at the
 * display adapters.  So a driver that ends the process is told about, and not passed over. */
#include "base/os/os_windows.h"

#include "tool/cli/crash.h"

static LPTOP_LEVEL_EXCEPTION_FILTER before;

static LONG WINAPI on_exception(EXCEPTION_POINTERS *exception)
{
    static const char message[] =
        "clattn: OpenCL ends the process while its devices are listed: repair or remove the driver "
        "that does\n";
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
