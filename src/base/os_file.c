#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"

/* Reads the whole of an open regular file and closes it. */
static bool read_and_close(int file, size_t limit, char **data, size_t *bytes)
{
    struct stat info;
    char *content = NULL;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0 || (uintmax_t)info.st_size > limit)
        goto fail;
    size_t size = (size_t)info.st_size, done = 0;
    content = malloc(size + 1);
    if (!content)
        goto fail;
    while (done < size) {
        ssize_t got = read(file, content + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            goto fail;
        done += (size_t)got;
    }
    content[size] = '\0';
    close(file);
    *data = content;
    *bytes = size;
    return true;
fail:;
    int number = errno;
    free(content);
    close(file);
    errno = number;
    return false;
}

bool os_read_file(const char *path, size_t limit, char **data, size_t *bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return file >= 0 && read_and_close(file, limit, data, bytes);
}

/* mkdir -p, with mode 0700 for each folder that is missing. */
static bool make_folders(const char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return true;
    const char *slash = strrchr(path, '/');
    if (errno != ENOENT || !slash || slash == path)
        return false;
    char *parent = strndup(path, (size_t)(slash - path));
    bool made = parent && make_folders(parent) && (mkdir(path, 0700) == 0 || errno == EEXIST);
    free(parent);
    return made;
}

static bool private_to_us(const struct stat *info)
{
    return info->st_uid == geteuid() && !(info->st_mode & (S_IWGRP | S_IWOTH));
}

int os_private_folder_open(const char *path, const char **reason)
{
    struct stat info;
    if (path[0] != '/') {
        *reason = "the cache folder's path is not absolute";
        return -1;
    }
    if (!make_folders(path)) {
        *reason = "the cache folder could not be made";
        return -1;
    }
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) {
        *reason = "the cache folder could not be opened, or is a symbolic link";
        return -1;
    }
    if (fstat(folder, &info) != 0 || !private_to_us(&info)) {
        *reason = "the cache folder belongs to another user or others may write to it";
        close(folder);
        return -1;
    }
    return folder;
}

void os_private_folder_close(int folder)
{
    if (folder >= 0)
        close(folder);
}

bool os_private_file_read(int folder, const char *name, size_t limit, uint8_t **data, size_t *bytes)
{
    struct stat info;
    char *content;
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        /* A link, and a socket. */
        if (errno == ELOOP || errno == ENXIO)
            errno = ENOENT;
        return false;
    }
    if (fstat(file, &info) != 0) {
        int number = errno;
        close(file);
        errno = number;
        return false;
    }
    const bool usable = S_ISREG(info.st_mode) && private_to_us(&info);
    if (!usable || (uintmax_t)info.st_size > limit) {
        close(file);
        errno = usable ? EFBIG : ENOENT;
        return false;
    }
    errno = EIO;
    if (!read_and_close(file, limit, &content, bytes))
        return false;
    *data = (uint8_t *)content;
    return true;
}

/* A temporary file's name: a point, 16 hexadecimal digits and this. */
#define TEMPORARY ".tmp"

static bool is_temporary(const char *name)
{
    return name[0] == '.' && strspn(name + 1, "0123456789abcdef") == 16 && strcmp(name + 17, TEMPORARY) == 0;
}

void os_private_folder_sweep(int folder, int64_t seconds)
{
    struct stat info;
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = again >= 0 ? fdopendir(again) : NULL;
    if (!stream) {
        if (again >= 0)
            close(again);
        return;
    }
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream))
        if (is_temporary(entry->d_name) && fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            (int64_t)time(NULL) - (int64_t)info.st_mtime > seconds)
            unlinkat(folder, entry->d_name, 0);
    closedir(stream);
}

void os_private_folder_sync(int folder)
{
    fsync(folder);
}

static bool write_all(int file, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        ssize_t put = write(file, data, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        data += put;
        bytes -= (size_t)put;
    }
    return true;
}

bool os_private_file_write(int folder, const char *name, const void *data, size_t bytes)
{
    uint64_t random;
    char temporary[40];
    if (getentropy(&random, sizeof random) != 0)
        return false;
    snprintf(temporary, sizeof temporary, ".%016llx" TEMPORARY, (unsigned long long)random);
    int file = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    bool written = write_all(file, data, bytes) && fsync(file) == 0;
    written = close(file) == 0 && written;
    written = written && renameat(folder, temporary, folder, name) == 0;
    if (!written)
        unlinkat(folder, temporary, 0);
    return written;
}

void os_private_file_remove(int folder, const char *name)
{
    unlinkat(folder, name, 0);
}
