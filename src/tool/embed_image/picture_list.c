#include "tool/embed_image/picture_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tool/cli/os_tool.h"
#include "tool/tool.h"

/* Appends a path, which is folder/name unless `folder` is NULL; false if memory runs out. */
static bool append(picture_list *list, const char *folder, const char *name)
{
    const size_t length = folder != NULL ? strlen(folder) : 0, room = length + strlen(name) + 2;
    const bool slash = length > 0 && folder[length - 1] != '/';
    char **paths = array_grow(list->path, &list->capacity, list->count, sizeof *paths), *path = NULL;
    if (paths != NULL) {
        list->path = paths;
        path = malloc(room);
    }
    if (path == NULL)
        return false;
    snprintf(path, room, "%s%s%s", folder != NULL ? folder : "", slash ? "/" : "", name);
    list->path[list->count++] = path;
    return true;
}

typedef struct listing {
    const char *folder;
    picture_list *list;
    bool failed;
} listing;

static bool is_png(const char *name)
{
    static const char end[] = ".png";
    const size_t length = strlen(name), count = sizeof end - 1;
    if (length <= count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const char c = name[length - count + i];
        if ((c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c) != end[i])
            return false;
    }
    return true;
}

static bool add(void *user, const char *name, uint64_t bytes, int64_t changed)
{
    listing *l = user;
    (void)bytes;
    (void)changed;
    l->failed = is_png(name) && !append(l->list, l->folder, name);
    return !l->failed;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int out_of_memory(void)
{
    return complain(TOOL_FAILED, "embed-image: out of memory for the names of the pictures");
}

static int add_folder(const char *folder, picture_list *list)
{
    listing l = {.folder = folder, .list = list};
    if (os_look_at(folder) != OS_PATH_FOLDER)
        return complain(TOOL_BAD_INPUT, "%s: is no folder, expected one of PNG files", folder);
    const bool whole = os_list_folder(folder, add, &l);
    if (l.failed)
        return out_of_memory();
    if (!whole)
        return complain(TOOL_BAD_INPUT, "%s: cannot be read", folder);
    if (list->count == list->given)
        return complain(TOOL_BAD_INPUT, "%s: has no files that end in .png, expected pictures", folder);
    qsort(list->path + list->given, list->count - list->given, sizeof *list->path, by_name);
    return TOOL_DONE;
}

int picture_list_make(const char *const *given, const char *folder, picture_list *list)
{
    for (size_t i = 0; given[i] != NULL; i++)
        if (!append(list, NULL, given[i]))
            return out_of_memory();
    list->given = list->count;
    return folder != NULL ? add_folder(folder, list) : TOOL_DONE;
}

void picture_list_release(picture_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->path[i]);
    free(list->path);
    *list = (picture_list){0};
}
