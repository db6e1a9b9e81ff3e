#include "base/os/os_windows.h"

#include "tool/cli/os_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

/* Attempts to find a folder's name that is not in use. */
#define NAME_TRIES 100

/* The C runtime keeps the descriptors 0, 1 and 2 for the standard streams, and there is no SIGPIPE.  The streams carry the
 * bytes that the command writes, as on other systems. */
void os_silence_stdout(void)
{
    if (freopen("NUL", "w", stdout) == NULL)
        fclose(stdout);
}

void os_prepare_streams(void)
{
    for (int descriptor = 0; descriptor <= 2; descriptor++)
        _setmode(descriptor, _O_BINARY);
    SetConsoleOutputCP(CP_UTF8);
}

/* Windows itself removes the temporary files of a process that ends (io/os_file_windows.c). */
void os_prepare_signals(void)
{
}

static volatile sig_atomic_t interrupted;

/* Windows takes the handler back when it calls it. */
static void on_interrupt(int signal_number)
{
    interrupted = signal_number;
}

void os_defer_signals(void)
{
    signal(SIGINT, on_interrupt);
}

int os_interrupted(void)
{
    return interrupted;
}

void os_end_by_signal(void)
{
    signal(interrupted, SIG_DFL);
    raise(interrupted);
}

bool os_make_folder(const char *path)
{
    wchar_t *wide = os_wide(path);
    const bool made = wide != NULL && (CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
    free(wide);
    errno = ENOENT;
    return made && os_look_at(path) == OS_PATH_FOLDER;
}

bool os_stderr_is_terminal(void)
{
    HANDLE terminal = GetStdHandle(STD_ERROR_HANDLE);
    DWORD mode;
    return GetConsoleMode(terminal, &mode) && SetConsoleMode(terminal, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

double os_seconds(void)
{
    LARGE_INTEGER now, frequency;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&now);
    return (double)now.QuadPart / (double)frequency.QuadPart;
}

void os_sleep_until(double time)
{
    for (double left = time - os_seconds(); left > 0; left = time - os_seconds())
        Sleep((DWORD)(left < 1e6 ? left * 1e3 : 1e9) + 1);
}

FILE *os_open_for_reading(const char *path)
{
    wchar_t *wide = os_wide(path);
    FILE *file = wide != NULL ? _wfopen(wide, L"rb") : NULL;
    free(wide);
    return file;
}

/* Opens what is at the path, file or folder, for questions only; INVALID_HANDLE_VALUE and Windows' error if nothing is. */
static HANDLE open_to_ask(const wchar_t *path)
{
    return CreateFileW(path, FILE_READ_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                       OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

static os_path_kind kind_of(const wchar_t *path)
{
    BY_HANDLE_FILE_INFORMATION about;
    HANDLE there = open_to_ask(path);
    if (there == INVALID_HANDLE_VALUE)
        return GetLastError() == ERROR_FILE_NOT_FOUND ? OS_PATH_MISSING : OS_PATH_UNREACHABLE;
    os_path_kind kind = OS_PATH_OTHER;
    if (GetFileType(there) == FILE_TYPE_DISK && GetFileInformationByHandle(there, &about))
        kind = about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? OS_PATH_FOLDER : OS_PATH_FILE;
    CloseHandle(there);
    return kind;
}

static bool is_separator(wchar_t c)
{
    return c == L'/' || c == L'\\';
}

/* What follows the last separator of `path`. */
static wchar_t *file_name(wchar_t *path)
{
    wchar_t *name = path + wcslen(path);
    while (name > path && !is_separator(name[-1]) && name[-1] != L':')
        name--;
    return name;
}

os_path_kind os_look_at(const char *path)
{
    wchar_t *wide = os_wide(path);
    if (wide == NULL)
        return OS_PATH_UNREACHABLE;
    os_path_kind kind = kind_of(wide);
    const wchar_t *name = file_name(wide);
    if (kind == OS_PATH_MISSING && name != wide && *name == L'\0')
        kind = OS_PATH_UNREACHABLE;
    free(wide);
    return kind;
}

/* Whether an open disk file, or folder, is the one at the path. */
static bool is_at(HANDLE file, const wchar_t *path)
{
    BY_HANDLE_FILE_INFORMATION a, b;
    HANDLE there = open_to_ask(path);
    if (there == INVALID_HANDLE_VALUE)
        return false;
    const bool same = GetFileType(file) == FILE_TYPE_DISK && GetFileType(there) == FILE_TYPE_DISK &&
                      GetFileInformationByHandle(file, &a) && GetFileInformationByHandle(there, &b) &&
                      a.dwVolumeSerialNumber == b.dwVolumeSerialNumber && a.nFileIndexHigh == b.nFileIndexHigh &&
                      a.nFileIndexLow == b.nFileIndexLow;
    CloseHandle(there);
    return same;
}

/* Whether one existing file, or folder, is at both paths. */
static bool same_place(const wchar_t *first, const wchar_t *second)
{
    HANDLE there = open_to_ask(first);
    if (there == INVALID_HANDLE_VALUE)
        return false;
    const bool same = is_at(there, second);
    CloseHandle(there);
    return same;
}

/* Whether two paths, at neither of which there is anything, have one name in one folder.  Cuts the names off. */
static bool same_new_file(wchar_t *first, wchar_t *second)
{
    wchar_t *first_name = file_name(first), *second_name = file_name(second);
    if (_wcsicmp(first_name, second_name) != 0)
        return false;
    *first_name = *second_name = L'\0';
    return same_place(*first != L'\0' ? first : L".", *second != L'\0' ? second : L".");
}

bool os_same_file(const char *first, const char *second)
{
    if (strcmp(first, second) == 0)
        return true;
    wchar_t *a = os_wide(first), *b = os_wide(second);
    bool same = false;
    if (a != NULL && b != NULL)
        same =
            same_place(a, b) || (kind_of(a) == OS_PATH_MISSING && kind_of(b) == OS_PATH_MISSING && same_new_file(a, b));
    free(a);
    free(b);
    return same;
}

bool os_is_stdout(const char *path)
{
    wchar_t *wide = os_wide(path);
    const bool same = wide != NULL && is_at(GetStdHandle(STD_OUTPUT_HANDLE), wide);
    free(wide);
    return same;
}

/* The folder for temporary files is this user's alone. */
bool os_temporary_folder(char *path, size_t bytes)
{
    wchar_t folder[MAX_PATH + 1], name[MAX_PATH + 32];
    if (GetTempPathW(MAX_PATH + 1, folder) == 0)
        return false;
    for (unsigned i = 0; i < NAME_TRIES; i++) {
        const unsigned tag = (unsigned)GetTickCount64() ^ (unsigned)GetCurrentProcessId() << 12 ^ i;
        swprintf(name, MAX_PATH + 32, L"%lsclattn-%08x", folder, tag);
        if (os_narrow(name, path, bytes) && CreateDirectoryW(name, NULL))
            return true;
        if (GetLastError() != ERROR_ALREADY_EXISTS)
            return false;
    }
    return false;
}

/* The folder's path and the name in it, for the caller to free. */
static wchar_t *joined(const wchar_t *folder, const wchar_t *name)
{
    const size_t capacity = wcslen(folder) + wcslen(name) + 2;
    wchar_t *path = malloc(capacity * sizeof *path);
    if (path != NULL)
        swprintf(path, capacity, L"%ls\\%ls", folder, name);
    return path;
}

/* Calls `each` for every entry of the folder but "." and "..", until it returns false; false: the folder cannot be read. */
static bool walk(const wchar_t *folder, bool (*each)(void *user, const WIN32_FIND_DATAW *entry), void *user)
{
    WIN32_FIND_DATAW entry;
    wchar_t *all = joined(folder, L"*");
    HANDLE search = all != NULL ? FindFirstFileW(all, &entry) : INVALID_HANDLE_VALUE;
    free(all);
    if (search == INVALID_HANDLE_VALUE)
        return false;
    bool more = true;
    do {
        if (wcscmp(entry.cFileName, L".") != 0 && wcscmp(entry.cFileName, L"..") != 0)
            more = each(user, &entry);
    } while (more && FindNextFileW(search, &entry));
    const bool whole = !more || GetLastError() == ERROR_NO_MORE_FILES;
    FindClose(search);
    return whole;
}

static bool remove_tree(const wchar_t *folder);

static bool remove_entry(void *user, const WIN32_FIND_DATAW *entry)
{
    const wchar_t *folder = user;
    const DWORD kind = entry->dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT);
    wchar_t *path = joined(folder, entry->cFileName);
    if (path != NULL && kind == FILE_ATTRIBUTE_DIRECTORY)
        remove_tree(path);
    else if (path != NULL && kind & FILE_ATTRIBUTE_DIRECTORY)
        RemoveDirectoryW(path); /* a link to a folder */
    else if (path != NULL)
        DeleteFileW(path);
    free(path);
    return true;
}

static bool remove_tree(const wchar_t *folder)
{
    walk(folder, remove_entry, (void *)(uintptr_t)folder);
    return RemoveDirectoryW(folder);
}

bool os_remove_folder(const char *path)
{
    wchar_t *wide = os_wide(path);
    const bool removed = wide != NULL && remove_tree(wide);
    free(wide);
    return removed;
}

typedef struct listing {
    bool (*each)(void *user, const char *name, uint64_t bytes, int64_t changed);
    void *user;
} listing;

static bool list_entry(void *user, const WIN32_FIND_DATAW *entry)
{
    const listing *list = user;
    char name[4 * MAX_PATH];
    if (entry->dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DEVICE) ||
        !os_narrow(entry->cFileName, name, sizeof name))
        return true;
    /* Units of 100 ns since 1601. */
    const uint64_t time = (uint64_t)entry->ftLastWriteTime.dwHighDateTime << 32 | entry->ftLastWriteTime.dwLowDateTime;
    return list->each(list->user, name, (uint64_t)entry->nFileSizeHigh << 32 | entry->nFileSizeLow,
                      (int64_t)(time / 10000000) - 11644473600);
}

bool os_list_folder(const char *folder, bool (*each)(void *user, const char *name, uint64_t bytes, int64_t changed),
                    void *user)
{
    listing list = {each, user};
    wchar_t *wide = os_wide(folder);
    const bool whole = wide != NULL && walk(wide, list_entry, &list);
    free(wide);
    return whole;
}

bool os_remove_file(const char *folder, const char *name)
{
    wchar_t *wide_folder = os_wide(folder), *wide_name = os_wide(name);
    wchar_t *path = wide_folder != NULL && wide_name != NULL ? joined(wide_folder, wide_name) : NULL;
    const bool removed = path != NULL && (DeleteFileW(path) || GetLastError() == ERROR_FILE_NOT_FOUND);
    free(path);
    free(wide_folder);
    free(wide_name);
    return removed;
}

/* ---- this program in a new process ---- */

/* Appends an argument to a command line, so that the C runtime of the new process reads it back: backslashes are doubled
 * before a quotation mark, and only there. */
static void append_argument(struct strbuf *line, const char *argument)
{
    size_t backslashes = 0;
    strbuf_append(line, " \"", 2);
    for (const char *c = argument;; c++) {
        if (*c == '"' || *c == '\0')
            for (size_t i = 0; i < backslashes; i++)
                strbuf_append(line, "\\", 1);
        backslashes = *c == '\\' ? backslashes + 1 : 0;
        if (*c == '\0')
            break;
        if (*c == '"')
            strbuf_append(line, "\\", 1);
        strbuf_append(line, c, 1);
    }
    strbuf_append(line, "\"", 1);
}

/* Whether `entry` of an environment and `setting` name the same variable. */
static bool same_name(const wchar_t *entry, const wchar_t *setting)
{
    const size_t length = wcscspn(setting, L"=");
    return _wcsnicmp(entry, setting, length) == 0 && entry[length] == L'=';
}

/* Whether one of the settings names the variable of `entry`. */
static bool is_set_anew(const wchar_t *entry, wchar_t **settings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (same_name(entry, settings[i]))
            return true;
    return false;
}

/* This process's environment, changed by the settings: strings one behind the other, and an empty one.  The caller frees
 * it. */
static wchar_t *changed_environment(wchar_t **settings, size_t count)
{
    wchar_t *strings = GetEnvironmentStringsW(), *environment = NULL;
    size_t length = 1, used = 0;
    if (strings == NULL)
        return NULL;
    for (const wchar_t *entry = strings; *entry != L'\0'; entry += wcslen(entry) + 1)
        length += wcslen(entry) + 1;
    for (size_t i = 0; i < count; i++)
        length += wcslen(settings[i]) + 1;
    environment = malloc((length + 1) * sizeof *environment);
    if (environment != NULL) {
        for (const wchar_t *entry = strings; *entry != L'\0'; entry += wcslen(entry) + 1)
            if (!is_set_anew(entry, settings, count)) {
                wcscpy(environment + used, entry);
                used += wcslen(entry) + 1;
            }
        for (size_t i = 0; i < count; i++)
            if (wcschr(settings[i], L'=') != NULL) {
                wcscpy(environment + used, settings[i]);
                used += wcslen(settings[i]) + 1;
            }
        environment[used] = environment[used + 1] = L'\0'; /* two, if it has no variable at all */
    }
    FreeEnvironmentStringsW(strings);
    return environment;
}

/* changed_environment for settings in UTF-8, which end with NULL. */
static wchar_t *environment_of(const char *const *settings)
{
    size_t count = 0, made = 0;
    while (settings[count] != NULL)
        count++;
    wchar_t **wide = calloc(count + 1, sizeof *wide), *environment = NULL;
    while (wide != NULL && made < count && (wide[made] = os_wide(settings[made])) != NULL)
        made++;
    if (wide != NULL && made == count)
        environment = changed_environment(wide, count);
    for (size_t i = 0; i < made; i++)
        free(wide[i]);
    free(wide);
    return environment;
}

/* Starts this program with its stdout in a pipe, whose other end it stores; returns the process, or NULL. */
static HANDLE start_self(wchar_t *line, wchar_t *environment, bool quiet, HANDLE *output)
{
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    wchar_t program[MAX_PATH];
    const DWORD length = GetModuleFileNameW(NULL, program, MAX_PATH);
    HANDLE ends[2], nothing = INVALID_HANDLE_VALUE;
    PROCESS_INFORMATION made = {0};
    if (length == 0 || length == MAX_PATH || !CreatePipe(&ends[0], &ends[1], &inherited, 0))
        return NULL;
    SetHandleInformation(ends[0], HANDLE_FLAG_INHERIT, 0);
    if (quiet)
        nothing =
            CreateFileW(L"NUL", GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited, OPEN_EXISTING, 0, NULL);
    STARTUPINFOW start = {.cb = sizeof start,
                          .dwFlags = STARTF_USESTDHANDLES,
                          .hStdInput = GetStdHandle(STD_INPUT_HANDLE),
                          .hStdOutput = ends[1],
                          .hStdError = quiet ? nothing : GetStdHandle(STD_ERROR_HANDLE)};
    const bool started =
        CreateProcessW(program, line, NULL, NULL, TRUE, CREATE_UNICODE_ENVIRONMENT, environment, NULL, &start, &made);
    CloseHandle(ends[1]);
    if (nothing != INVALID_HANDLE_VALUE)
        CloseHandle(nothing);
    if (!started) {
        CloseHandle(ends[0]);
        return NULL;
    }
    CloseHandle(made.hThread);
    *output = ends[0];
    return made.hProcess;
}

/* Reads to the end, so that the writer is never blocked, and stores what fits. */
static void read_all(HANDLE pipe, char *output, size_t bytes)
{
    char spare[512];
    size_t used = 0;
    for (;;) {
        const size_t room = bytes - 1 - used;
        DWORD got = 0;
        if (!ReadFile(pipe, room > 0 ? output + used : spare, (DWORD)(room > 0 ? room : sizeof spare), &got, NULL) ||
            got == 0)
            break;
        if (room > 0)
            used += got;
    }
    output[used] = '\0';
}

bool os_run_self(const char *const *arguments, const char *const *settings, bool quiet, char *output, size_t bytes,
                 int *exit_status, double *seconds)
{
    struct strbuf line = {0};
    HANDLE pipe = NULL, process = NULL;
    DWORD code = 0;
    const double before = os_seconds();
    strbuf_append(&line, "clattn", 6);
    for (size_t i = 0; arguments[i] != NULL; i++)
        append_argument(&line, arguments[i]);
    wchar_t *wide = line.failed ? NULL : os_wide(line.text), *environment = environment_of(settings);
    if (wide != NULL && environment != NULL)
        process = start_self(wide, environment, quiet, &pipe);
    strbuf_clear(&line);
    free(wide);
    free(environment);
    if (process == NULL)
        return false;
    read_all(pipe, output, bytes);
    CloseHandle(pipe);
    const bool ended = WaitForSingleObject(process, INFINITE) == WAIT_OBJECT_0 && GetExitCodeProcess(process, &code);
    CloseHandle(process);
    *seconds = os_seconds() - before;
    *exit_status = code < 128 ? (int)code : 128 + SIGSEGV; /* an exception's code has its highest bits set */
    return ended;
}
