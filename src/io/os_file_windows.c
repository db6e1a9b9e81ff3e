#include "base/os/os_windows.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/os_file.h"

/* The C runtime's functions take an int. */
#define CALL_BYTES ((size_t)1 << 30)

/* Attempts to find a temporary name that is not in use. */
#define NAME_TRIES 100

static clattn_status fail_errno(clattn_io_error *error, const char *path, const char *what, int number)
{
    return io_fail(error, CLATTN_ERROR_IO, path, "%s: %s", what, strerror(number));
}

static clattn_status fail_windows(clattn_io_error *error, const char *path, const char *what)
{
    return io_fail(error, CLATTN_ERROR_IO, path, "%s: error %lu of Windows", what, GetLastError());
}

static clattn_status fail_name(clattn_io_error *error, const char *path)
{
    return io_fail(error, CLATTN_ERROR_IO, path, "no memory for its name, or the name is no UTF-8");
}

clattn_status os_file_open(os_file *file, const char *path, clattn_io_error *error)
{
    clattn_status status = CLATTN_ERROR_IO;
    struct _stat64 info;
    wchar_t *wide = os_wide(path);
    if (wide == NULL)
        return fail_name(error, path);
    if (_wstat64(wide, &info) != 0) {
        status = fail_errno(error, path, "cannot be opened for reading", errno);
    } else if ((info.st_mode & _S_IFMT) != _S_IFREG) {
        status = io_fail(error, CLATTN_ERROR_IO, path, "is a %s, expected a regular file",
                         (info.st_mode & _S_IFMT) == _S_IFDIR ? "folder" : "pipe or device");
    } else {
        const int fd = _wopen(wide, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
        const long long size = fd < 0 ? -1 : _filelengthi64(fd);
        if (size < 0)
            status = fail_errno(error, path, "cannot be opened for reading", errno);
        else if ((unsigned long long)size > SIZE_MAX)
            status = io_fail(error, CLATTN_ERROR_OVERFLOW, path, "%lld bytes do not fit the address space", size);
        else
            status = CLATTN_SUCCESS;
        if (status == CLATTN_SUCCESS)
            *file = (os_file){fd, (size_t)size, path};
        else if (fd >= 0)
            _close(fd);
    }
    free(wide);
    return status;
}

clattn_status os_file_read(const os_file *file, size_t offset, void *target, size_t bytes, clattn_io_error *error)
{
    char *to = target;
    if (_lseeki64(file->fd, (long long)offset, SEEK_SET) < 0)
        return fail_errno(error, file->path, "cannot be read", errno);
    while (bytes > 0) {
        const int done = _read(file->fd, to, (unsigned)(bytes < CALL_BYTES ? bytes : CALL_BYTES));
        if (done < 0)
            return fail_errno(error, file->path, "cannot be read", errno);
        if (done == 0)
            return io_fail(error, CLATTN_ERROR_IO, file->path,
                           "ends at byte %zu, expected %zu: it was shortened while being read", offset, file->size);
        to += done;
        offset += (size_t)done;
        bytes -= (size_t)done;
    }
    return CLATTN_SUCCESS;
}

clattn_status os_file_map(const os_file *file, const void **address, clattn_io_error *error)
{
    void *map = NULL;
    HANDLE mapping = CreateFileMappingW((HANDLE)_get_osfhandle(file->fd), NULL, PAGE_READONLY, 0, 0, NULL);
    if (mapping != NULL) {
        map = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, file->size);
        CloseHandle(mapping); /* the view keeps it */
    }
    if (map == NULL)
        return fail_windows(error, file->path, "cannot be mapped");
    *address = map;
    return CLATTN_SUCCESS;
}

void os_file_unmap(const void *address, size_t bytes)
{
    (void)bytes;
    if (address != NULL)
        UnmapViewOfFile(address);
}

void os_file_close(os_file *file)
{
    if (file->fd >= 0)
        _close(file->fd);
    file->fd = -1;
}

void *os_alloc_aligned(size_t bytes)
{
    return _aligned_malloc(bytes, 64);
}

void os_free_aligned(void *memory)
{
    _aligned_free(memory);
}

/* Writes the parts; false with Windows' error. */
static bool write_parts(HANDLE file, const os_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *from = parts[i].data;
        size_t left = parts[i].bytes;
        while (left > 0) {
            DWORD done = 0;
            if (!WriteFile(file, from, (DWORD)(left < CALL_BYTES ? left : CALL_BYTES), &done, NULL))
                return false;
            if (done == 0) { /* a device that takes nothing */
                SetLastError(ERROR_WRITE_FAULT);
                return false;
            }
            from += done;
            left -= done;
        }
    }
    return true;
}

/* Whether an open file goes when it is closed. */
static bool set_removal(HANDLE file, bool removed)
{
    FILE_DISPOSITION_INFO what = {removed};
    return SetFileInformationByHandle(file, FileDispositionInfo, &what, sizeof what);
}

/* Creates a new file beside `target` and writes its name (`capacity` characters, longer than target's by 32 or more) to
 * `name`.  *removed tells whether Windows, until set_removal(file, false), removes the file when it is closed, also by the end
 * of a process that is killed; some file systems do not.  The name need not be secret, because CREATE_NEW makes sure that the
 * file is ours; time and process number only make clashes rare. */
static HANDLE create_neighbour(const wchar_t *target, wchar_t *name, size_t capacity, bool *removed)
{
    for (unsigned i = 0; i < NAME_TRIES; i++) {
        const unsigned tag = (unsigned)GetTickCount64() ^ (unsigned)GetCurrentProcessId() << 12 ^ i;
        swprintf(name, capacity, L"%ls.%08x.tmp", target, tag);
        HANDLE file = CreateFileW(name, GENERIC_WRITE | DELETE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
        if (file != INVALID_HANDLE_VALUE) {
            *removed = set_removal(file, true);
            return file;
        }
        if (GetLastError() != ERROR_FILE_EXISTS)
            break;
    }
    return INVALID_HANDLE_VALUE;
}

/* Writes directly to a path that is no regular file, such as NUL. */
static clattn_status write_direct(const char *path, const wchar_t *wide, const os_part *parts, size_t count,
                                  clattn_io_error *error)
{
    HANDLE file = CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return fail_windows(error, path, "cannot be opened for writing");
    const bool written = write_parts(file, parts, count);
    const clattn_status status = written ? CLATTN_SUCCESS : fail_windows(error, path, "cannot be written");
    CloseHandle(file);
    return status;
}

static clattn_status write_beside(const char *path, const wchar_t *wide, const os_part *parts, size_t count,
                                  clattn_io_error *error)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t capacity = wcslen(wide) + 32;
    wchar_t *name = malloc(capacity * sizeof *name);
    if (name == NULL)
        return fail_name(error, path);
    bool removed = false;
    HANDLE file = create_neighbour(wide, name, capacity, &removed);
    if (file == INVALID_HANDLE_VALUE) {
        status = fail_windows(error, path, "a new file beside it cannot be created");
    } else {
        const bool whole =
            write_parts(file, parts, count) && FlushFileBuffers(file) && (!removed || set_removal(file, false));
        if (!whole)
            status = fail_windows(error, path, "cannot be written");
        CloseHandle(file);
        if (whole && !MoveFileExW(name, wide, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
            status = fail_windows(error, path, "cannot be written");
        if (status != CLATTN_SUCCESS)
            DeleteFileW(name);
    }
    free(name);
    return status;
}

/* Whether there is something at the path that is no disk file, such as NUL, or a folder. */
static bool is_special(const wchar_t *path)
{
    HANDLE there = CreateFileW(path, FILE_READ_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                               OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    BY_HANDLE_FILE_INFORMATION info;
    if (there == INVALID_HANDLE_VALUE)
        return false;
    const bool file = GetFileType(there) == FILE_TYPE_DISK && GetFileInformationByHandle(there, &info) &&
                      !(info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY);
    CloseHandle(there);
    return !file;
}

clattn_status os_file_replace(const char *path, const os_part *parts, size_t count, clattn_io_error *error)
{
    wchar_t *wide = os_wide(path);
    if (wide == NULL)
        return fail_name(error, path);
    const clattn_status status = is_special(wide) ? write_direct(path, wide, parts, count, error)
                                                  : write_beside(path, wide, parts, count, error);
    free(wide);
    return status;
}
