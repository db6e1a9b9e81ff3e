#include "base/os/os_windows.h"

#include "base/os.h"

long os_process_id(void)
{
    return (long)GetCurrentProcessId();
}

/* There are no signals that come to a thread. */
void os_thread_block_signals(void)
{
}

uint64_t os_time(void)
{
    FILETIME now; /* in units of 100 ns */
    GetSystemTimeAsFileTime(&now);
    return ((uint64_t)now.dwHighDateTime << 32 | now.dwLowDateTime) * 100;
}

const char *os_environment(const char *name)
{
    static _Thread_local char value[4096];
    wchar_t wide[sizeof value];
    wchar_t *wide_name = os_wide(name);
    const DWORD length = wide_name ? GetEnvironmentVariableW(wide_name, wide, sizeof value) : 0;
    free(wide_name);
    return length > 0 && length < sizeof value && os_narrow(wide, value, sizeof value) ? value : NULL;
}

bool os_user_cache(struct strbuf *path, const char **reason)
{
    const char *folder = os_environment("LOCALAPPDATA");
    if (folder)
        strbuf_printf(path, "%s", folder);
    else
        *reason = "LOCALAPPDATA is not set";
    return folder != NULL;
}

/* The library is looked for beside the program and in the system's folder, not in the current one. */
void *os_library_open(const char *name)
{
    HMODULE pinned = NULL, library = LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    if (library)
        GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_PIN, name, &pinned);
    return library;
}

void *os_library_symbol(void *library, const char *name)
{
    return (void *)(uintptr_t)GetProcAddress(library, name);
}
