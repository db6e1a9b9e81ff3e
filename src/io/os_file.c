#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* realpath */
#define _FILE_OFFSET_BITS 64
#include "io/os_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Some systems refuse to read or write more than 2 GiB in one call. */
#define CALL_BYTES ((size_t)1 << 30)

/* Attempts to find a temporary name that is not in use. */
#define NAME_TRIES 100

/* A signal handler finds the names of at most this many files at a time, and no longer names. */
#define NOTES 8
#define NAME_BYTES 4096

/* The temporary files that exist.  They are static, because a signal handler reads them at any moment. */
static struct note {
    atomic_int state;
    char name[NAME_BYTES];
} notes[NOTES];
enum { NOTE_FREE, NOTE_TAKEN, NOTE_VALID };

static clattn_status fail_errno(clattn_io_error *error, const char *path, const char *what, int number)
{
    char reason[128];
    if (strerror_r(number, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", number);
    return io_fail(error, CLATTN_ERROR_IO, path, "%s: %s", what, reason);
}

clattn_status os_file_open(os_file *file, const char *path, clattn_io_error *error)
{
    clattn_status status = CLATTN_ERROR_IO;
    struct stat info;
    /* O_NONBLOCK: opening a pipe must not wait for its writer; regular files ignore it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(error, path, "cannot be opened for reading", errno);
    if (fstat(fd, &info) != 0) {
        status = fail_errno(error, path, "its size is unknown", errno);
    } else if (!S_ISREG(info.st_mode)) {
        status = io_fail(error, CLATTN_ERROR_IO, path, "is a %s, expected a regular file",
                         S_ISDIR(info.st_mode) ? "folder" : "pipe or device");
    } else if ((uint64_t)info.st_size > SIZE_MAX) {
        status = io_fail(error, CLATTN_ERROR_OVERFLOW, path, "has %lld bytes, more than can be addressed",
                         (long long)info.st_size);
    } else {
        *file = (os_file){fd, (size_t)info.st_size, path};
        return CLATTN_SUCCESS;
    }
    close(fd);
    return status;
}

clattn_status os_file_read(const os_file *file, size_t offset, void *target, size_t bytes, clattn_io_error *error)
{
    char *to = target;
    while (bytes > 0) {
        ssize_t done = pread(file->fd, to, bytes < CALL_BYTES ? bytes : CALL_BYTES, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
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
    void *map = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (map == MAP_FAILED)
        return fail_errno(error, file->path, "cannot be mapped", errno);
    *address = map;
    return CLATTN_SUCCESS;
}

void os_file_unmap(const void *address, size_t bytes)
{
    if (address != NULL)
        munmap((void *)(uintptr_t)address, bytes);
}

void os_file_close(os_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

void *os_alloc_aligned(size_t bytes)
{
    void *memory = NULL;
    return posix_memalign(&memory, 64, bytes) == 0 ? memory : NULL;
}

void os_free_aligned(void *memory)
{
    free(memory);
}

/* Writes the parts; returns 0 or an errno. */
static int write_parts(int fd, const os_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *from = parts[i].data;
        size_t left = parts[i].bytes;
        while (left > 0) {
            ssize_t done = write(fd, from, left < CALL_BYTES ? left : CALL_BYTES);
            if (done < 0 && errno != EINTR)
                return errno;
            if (done > 0) {
                from += done;
                left -= (size_t)done;
            }
        }
    }
    return 0;
}

/* Notes the name of a file that is about to be created, so that a signal at any moment removes the file; NULL: no room. */
static struct note *note_name(const char *name)
{
    const size_t bytes = strlen(name) + 1;
    for (size_t i = 0; i < NOTES && bytes <= NAME_BYTES; i++) {
        int state = NOTE_FREE;
        if (atomic_compare_exchange_strong(&notes[i].state, &state, NOTE_TAKEN)) {
            memcpy(notes[i].name, name, bytes);
            notes[i].state = NOTE_VALID;
            return &notes[i];
        }
    }
    return NULL;
}

static void drop_note(struct note *note)
{
    if (note != NULL)
        note->state = NOTE_FREE;
}

void os_file_remove_temporaries(void)
{
    for (size_t i = 0; i < NOTES; i++)
        if (notes[i].state == NOTE_VALID)
            unlink(notes[i].name);
}

/* Creates a new file beside `target`, writes its name (`capacity` bytes, longer than target's by 32 or more) to `name`
 * and notes it.  Returns a descriptor, or -1 and errno.  The name need not be secret, because O_EXCL makes sure that the
 * file is ours; time and process id only make clashes rare. */
static int create_neighbour(const char *target, char *name, size_t capacity, struct note **note)
{
    for (unsigned i = 0; i < NAME_TRIES; i++) {
        struct timespec now = {0, 0};
        clock_gettime(CLOCK_REALTIME, &now);
        unsigned long tag = (unsigned long)now.tv_nsec ^ (unsigned long)getpid() << 12 ^ i;
        snprintf(name, capacity, "%s.%08lx.tmp", target, tag & 0xffffffffUL);
        *note = note_name(name);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
        if (fd >= 0)
            return fd;
        drop_note(*note);
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* Waits until the file's contents are on the disk; returns 0 or an errno.  Some file systems have no such call. */
static int sync_contents(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

/* Waits until the folder that contains `target` has its new name on the disk, too.  Failures do not count: the file has
 * been replaced, and whichever of the two the disk has after a failure of power is whole. */
static void sync_folder(char *target)
{
    char *slash = strrchr(target, '/');
    if (slash != NULL)
        slash[slash == target] = '\0';
    int folder = open(slash != NULL ? target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    fsync(folder);
    close(folder);
}

/* Writes directly to a path that is no regular file: renaming over /dev/null would replace it. */
static clattn_status write_direct(const char *path, const os_part *parts, size_t count, clattn_io_error *error)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail_errno(error, path, "cannot be opened for writing", errno);
    int number = write_parts(fd, parts, count);
    if (close(fd) != 0 && number == 0)
        number = errno;
    return number == 0 ? CLATTN_SUCCESS : fail_errno(error, path, "cannot be written", number);
}

clattn_status os_file_replace(const char *path, const os_part *parts, size_t count, clattn_io_error *error)
{
    struct stat old;
    bool exists = stat(path, &old) == 0;
    if (!exists && errno != ENOENT)
        return fail_errno(error, path, "cannot be written", errno);
    if (exists && !S_ISREG(old.st_mode))
        return write_direct(path, parts, count, error);

    clattn_status status = CLATTN_SUCCESS;
    char *resolved = exists ? realpath(path, NULL) : NULL; /* so that a link stays a link */
    if (exists && resolved == NULL)
        return errno == ENOMEM ? io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its name")
                               : fail_errno(error, path, "cannot be written", errno);
    const char *target = resolved != NULL ? resolved : path;
    size_t capacity = strlen(target) + 32;
    char *name = malloc(capacity);
    if (name == NULL) {
        status = io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its name");
        goto done;
    }
    struct note *note = NULL;
    int fd = create_neighbour(target, name, capacity, &note);
    if (fd < 0) {
        status = fail_errno(error, path, "a new file beside it cannot be created", errno);
        goto done;
    }
    /* The mode is set before the contents are written, so that a private file is never readable by others. */
    int number = exists && fchmod(fd, old.st_mode & 0777) != 0 ? errno : 0;
    if (number == 0)
        number = write_parts(fd, parts, count);
    if (number == 0)
        number = sync_contents(fd);
    if (close(fd) != 0 && number == 0)
        number = errno;
    if (number == 0 && rename(name, target) != 0)
        number = errno;
    if (number != 0) {
        unlink(name);
        status = fail_errno(error, path, "cannot be written", number);
    }
    drop_note(note);
    if (number == 0) {
        strcpy(name, target);
        sync_folder(name);
    }
done:
    free(name);
    free(resolved);
    return status;
}
