#include "tool/embed_image/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tool/cli/os_tool.h"
#include "tool/tool.h"

typedef struct listing {
    const char *folder;
    folder_list *list;
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
    folder_list *list = l->list;
    (void)bytes;
    (void)changed;
    if (!is_png(name))
        return true;
    const size_t length = strlen(l->folder), room = length + strlen(name) + 2;
    char **paths = array_grow(list->path, &list->capacity, list->count, sizeof *paths), *path = NULL;
    if (paths != NULL) {
        list->path = paths;
        path = malloc(room);
    }
    l->failed = path == NULL;
    if (l->failed)
        return false;
    snprintf(path, room, "%s%s%s", l->folder, length > 0 && l->folder[length - 1] == '/' ? "" : "/", name);
    list->path[list->count++] = path;
    return true;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int folder_pictures(const char *folder, folder_list *list)
{
    listing l = {.folder = folder, .list = list};
    if (os_look_at(folder) != OS_PATH_FOLDER)
        return complain(TOOL_BAD_INPUT, "%s: is no folder, expected one of PNG files", folder);
    const bool whole = os_list_folder(folder, add, &l);
    if (l.failed)
        return complain(TOOL_FAILED, "%s: out of memory for the names in it", folder);
    if (!whole)
        return complain(TOOL_BAD_INPUT, "%s: cannot be read", folder);
    if (list->count == 0)
        return complain(TOOL_BAD_INPUT, "%s: has no files that end in .png, expected pictures", folder);
    qsort(list->path, list->count, sizeof *list->path, by_name);
    return TOOL_DONE;
}

void folder_release(folder_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->path[i]);
    free(list->path);
    *list = (folder_list){0};
}
