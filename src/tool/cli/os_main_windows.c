/* The program's arguments as UTF-8, which main would get in the code page of the system. */
#include "base/os/os_windows.h"

#include <stdio.h>

#include "tool/tool.h"

int main(int argc, char **argv);
int wmain(int argc, wchar_t **wide);

int wmain(int argc, wchar_t **wide)
{
    char **argv = calloc((size_t)argc + 1, sizeof *argv);
    for (int i = 0; argv != NULL && i < argc; i++) {
        const size_t bytes = 3 * wcslen(wide[i]) + 1;
        argv[i] = malloc(bytes);
        if (argv[i] == NULL || !os_narrow(wide[i], argv[i], bytes))
            return complain(TOOL_FAILED, "the arguments cannot be read");
    }
    return argv != NULL ? main(argc, argv) : complain(TOOL_FAILED, "out of memory");
}
