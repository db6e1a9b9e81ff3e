/* Files of Windows, for one user alone if they are in a private folder.
 *
 * The folder stays open without leave to delete or rename it, so that its path names the same folder as long as it is open.
 * It and its files are refused if they are reparse points (symbolic links, junctions), belong to somebody else, or if their
 * access list lets somebody write who is neither this user nor the system nor an administrator. */
#include "base/os/os_windows.h"

#include <aclapi.h>
#include <bcrypt.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <sddl.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"

/* Rights that change a file, or a folder and what is in it. */
#define WRITE_RIGHTS \
    (FILE_WRITE_DATA | FILE_APPEND_DATA | FILE_WRITE_EA | FILE_WRITE_ATTRIBUTES | FILE_DELETE_CHILD | DELETE | \
     WRITE_DAC | WRITE_OWNER | GENERIC_WRITE | GENERIC_ALL)

/* One of the token's SIDs, in a block that the caller frees; NULL on any trouble. */
static void *token_information(TOKEN_INFORMATION_CLASS what)
{
    HANDLE token;
    DWORD bytes = 0;
    void *information = NULL;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token))
        return NULL;
    GetTokenInformation(token, what, NULL, 0, &bytes);
    if (bytes)
        information = malloc(bytes);
    if (information && !GetTokenInformation(token, what, information, bytes, &bytes)) {
        free(information);
        information = NULL;
    }
    CloseHandle(token);
    return information;
}

static bool may_write(PSID user, PSID who)
{
    return EqualSid(who, user) || IsWellKnownSid(who, WinLocalSystemSid) ||
           IsWellKnownSid(who, WinBuiltinAdministratorsSid) || IsWellKnownSid(who, WinCreatorOwnerSid);
}

/* Whether nobody may write but those who may; an absent list lets everybody. */
static bool list_is_private(const ACL *list, PSID user)
{
    for (DWORD i = 0; list && i < list->AceCount; i++) {
        ACCESS_ALLOWED_ACE *entry;
        if (!GetAce((ACL *)(uintptr_t)list, i, (void **)&entry))
            return false;
        if (entry->Header.AceType == ACCESS_DENIED_ACE_TYPE)
            continue;
        if (entry->Header.AceType != ACCESS_ALLOWED_ACE_TYPE)
            return false;
        if ((entry->Mask & WRITE_RIGHTS) && !may_write(user, &entry->SidStart))
            return false;
    }
    return list != NULL;
}

/* Whether the open file or folder is this user's (an administrator's belong to the group of administrators). */
static bool private_to_us(HANDLE handle)
{
    PSECURITY_DESCRIPTOR descriptor = NULL;
    PSID owner = NULL;
    ACL *list = NULL;
    TOKEN_USER *user = token_information(TokenUser);
    TOKEN_OWNER *default_owner = token_information(TokenOwner);
    bool ours = user && default_owner &&
                GetSecurityInfo(handle, SE_FILE_OBJECT, OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION, &owner,
                                NULL, &list, NULL, &descriptor) == ERROR_SUCCESS &&
                (EqualSid(owner, user->User.Sid) || EqualSid(owner, default_owner->Owner)) &&
                list_is_private(list, user->User.Sid);
    LocalFree(descriptor);
    free(user);
    free(default_owner);
    return ours;
}

/* A descriptor that lets this user, the system and administrators in, for new files and folders; freed by LocalFree. */
static PSECURITY_DESCRIPTOR private_descriptor(void)
{
    PSECURITY_DESCRIPTOR descriptor = NULL;
    TOKEN_USER *user = token_information(TokenUser);
    char *name = NULL, text[512];
    if (user && ConvertSidToStringSidA(user->User.Sid, &name)) {
        snprintf(text, sizeof text, "D:P(A;OICI;FA;;;%s)(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)", name);
        ConvertStringSecurityDescriptorToSecurityDescriptorA(text, SDDL_REVISION_1, &descriptor, NULL);
        LocalFree(name);
    }
    free(user);
    return descriptor;
}

static bool is_plain(HANDLE handle, DWORD folder)
{
    BY_HANDLE_FILE_INFORMATION info;
    return GetFileType(handle) == FILE_TYPE_DISK && GetFileInformationByHandle(handle, &info) &&
           (info.dwFileAttributes & (FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DIRECTORY)) == folder;
}

/* Reads the whole of an open file and closes it. */
static bool read_and_close(HANDLE file, size_t limit, char **data, size_t *bytes)
{
    LARGE_INTEGER size;
    char *content = NULL;
    size_t done = 0;
    if (!GetFileSizeEx(file, &size) || (uint64_t)size.QuadPart > limit)
        goto fail;
    const size_t all = (size_t)size.QuadPart;
    content = malloc(all + 1);
    if (!content)
        goto fail;
    while (done < all) {
        DWORD got = 0;
        const size_t left = all - done;
        if (!ReadFile(file, content + done, left < 1 << 30 ? (DWORD)left : 1 << 30, &got, NULL) || got == 0)
            goto fail;
        done += got;
    }
    content[all] = '\0';
    CloseHandle(file);
    *data = content;
    *bytes = all;
    return true;
fail:
    free(content);
    CloseHandle(file);
    return false;
}

bool os_read_file(const char *path, size_t limit, char **data, size_t *bytes)
{
    wchar_t *wide = os_wide(path);
    HANDLE file = INVALID_HANDLE_VALUE;
    if (wide)
        file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    free(wide);
    if (file == INVALID_HANDLE_VALUE)
        return false;
    if (GetFileType(file) != FILE_TYPE_DISK) {
        CloseHandle(file);
        return false;
    }
    return read_and_close(file, limit, data, bytes);
}

/* Makes each folder of the path that is missing; the path is changed on the way and restored. */
static bool make_folders(wchar_t *path, SECURITY_ATTRIBUTES *attributes)
{
    if (CreateDirectoryW(path, attributes) || GetLastError() == ERROR_ALREADY_EXISTS)
        return true;
    wchar_t *end = path + wcslen(path);
    while (end > path && *end != L'\\' && *end != L'/')
        end--;
    if (GetLastError() != ERROR_PATH_NOT_FOUND || end == path)
        return false;
    const wchar_t separator = *end;
    *end = L'\0';
    const bool made = make_folders(path, attributes);
    *end = separator;
    return made && (CreateDirectoryW(path, attributes) || GetLastError() == ERROR_ALREADY_EXISTS);
}

static bool is_absolute(const char *path)
{
    const bool drive = path[0] && path[1] == ':' && (path[2] == '\\' || path[2] == '/');
    return drive || (path[0] == '\\' && path[1] == '\\');
}

int os_private_folder_open(const char *path, const char **reason)
{
    int folder = -1;
    HANDLE handle = INVALID_HANDLE_VALUE;
    SECURITY_ATTRIBUTES attributes = {sizeof attributes, private_descriptor(), FALSE};
    wchar_t *wide = os_wide(path);
    if (!is_absolute(path)) {
        *reason = "the cache folder's path is not absolute";
    } else if (!wide || !attributes.lpSecurityDescriptor || !make_folders(wide, &attributes)) {
        *reason = "the cache folder could not be made";
    } else {
        /* Without FILE_LIST_DIRECTORY the file system would not heed the sharing that is denied. */
        handle = CreateFileW(wide, FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES | READ_CONTROL,
                             FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING,
                             FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
        if (handle == INVALID_HANDLE_VALUE || !is_plain(handle, FILE_ATTRIBUTE_DIRECTORY))
            *reason = "the cache folder could not be opened, or is a symbolic link";
        else if (!private_to_us(handle))
            *reason = "the cache folder belongs to another user or others may write to it";
        else if ((folder = _open_osfhandle((intptr_t)handle, _O_RDONLY)) < 0)
            *reason = "too many files are open";
    }
    if (folder < 0 && handle != INVALID_HANDLE_VALUE)
        CloseHandle(handle);
    LocalFree(attributes.lpSecurityDescriptor);
    free(wide);
    return folder;
}

void os_private_folder_close(int folder)
{
    if (folder >= 0)
        _close(folder);
}

/* The path of a file in the open folder; the caller frees it. */
static wchar_t *path_in(int folder, const char *name)
{
    HANDLE handle = (HANDLE)_get_osfhandle(folder);
    const size_t capacity = GetFinalPathNameByHandleW(handle, NULL, 0, FILE_NAME_NORMALIZED) + 1 + strlen(name) + 1;
    wchar_t *path = malloc(capacity * sizeof *path);
    if (!path)
        return NULL;
    size_t length = GetFinalPathNameByHandleW(handle, path, (DWORD)capacity, FILE_NAME_NORMALIZED);
    if (length == 0 || length + 1 + strlen(name) >= capacity) {
        free(path);
        return NULL;
    }
    path[length++] = L'\\';
    for (const char *c = name; *c; c++)
        path[length++] = (wchar_t)*c;
    path[length] = L'\0';
    return path;
}

bool os_private_file_read(int folder, const char *name, size_t limit, uint8_t **data, size_t *bytes)
{
    char *content;
    wchar_t *path = path_in(folder, name);
    HANDLE file = INVALID_HANDLE_VALUE;
    SetLastError(ERROR_NOT_ENOUGH_MEMORY);
    if (path)
        file = CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    errno = file == INVALID_HANDLE_VALUE && GetLastError() == ERROR_FILE_NOT_FOUND ? ENOENT : EIO;
    free(path);
    if (file == INVALID_HANDLE_VALUE)
        return false;
    if (!is_plain(file, 0) || !private_to_us(file)) {
        CloseHandle(file);
        errno = ENOENT;
        return false;
    }
    errno = EIO;
    if (!read_and_close(file, limit, &content, bytes))
        return false;
    *data = (uint8_t *)content;
    return true;
}

static bool write_all(HANDLE file, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        DWORD put = 0;
        if (!WriteFile(file, data, bytes < 1 << 30 ? (DWORD)bytes : 1 << 30, &put, NULL) || put == 0)
            return false;
        data += put;
        bytes -= put;
    }
    return true;
}

bool os_private_file_write(int folder, const char *name, const void *data, size_t bytes)
{
    uint64_t random = 0;
    char temporary[40];
    bool written = false;
    if (BCryptGenRandom(NULL, (uint8_t *)&random, sizeof random, BCRYPT_USE_SYSTEM_PREFERRED_RNG) != 0)
        return false;
    snprintf(temporary, sizeof temporary, ".%016llx.tmp", (unsigned long long)random);
    SECURITY_ATTRIBUTES attributes = {sizeof attributes, private_descriptor(), FALSE};
    wchar_t *from = path_in(folder, temporary), *to = path_in(folder, name);
    HANDLE file = INVALID_HANDLE_VALUE;
    if (from && to && attributes.lpSecurityDescriptor)
        file = CreateFileW(from, GENERIC_WRITE, 0, &attributes, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file != INVALID_HANDLE_VALUE) {
        written = write_all(file, data, bytes) && FlushFileBuffers(file);
        written = CloseHandle(file) && written;
        written = written && MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
        if (!written)
            DeleteFileW(from);
    }
    LocalFree(attributes.lpSecurityDescriptor);
    free(from);
    free(to);
    return written;
}

/* MOVEFILE_WRITE_THROUGH has done it. */
void os_private_folder_sync(int folder)
{
    (void)folder;
}

void os_private_folder_sweep(int folder, int64_t seconds)
{
    WIN32_FIND_DATAW found;
    const uint64_t age = (uint64_t)seconds * 1000000000;
    wchar_t *pattern = path_in(folder, ".????????????????.tmp");
    HANDLE search = pattern ? FindFirstFileW(pattern, &found) : INVALID_HANDLE_VALUE;
    free(pattern);
    if (search == INVALID_HANDLE_VALUE)
        return;
    do {
        char name[40];
        const FILETIME written = found.ftLastWriteTime;
        const uint64_t since = ((uint64_t)written.dwHighDateTime << 32 | written.dwLowDateTime) * 100;
        if (!(found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) && os_time() > since + age &&
            os_narrow(found.cFileName, name, sizeof name))
            os_private_file_remove(folder, name);
    } while (FindNextFileW(search, &found));
    FindClose(search);
}

void os_private_file_remove(int folder, const char *name)
{
    wchar_t *path = path_in(folder, name);
    if (path)
        DeleteFileW(path);
    free(path);
}
