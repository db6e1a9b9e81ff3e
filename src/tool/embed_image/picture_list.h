/* The pictures that a command works on: those of its command line, and those of a folder. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_PICTURE_LIST_H
#define CLATTN_TOOL_EMBED_IMAGE_PICTURE_LIST_H

#include <stddef.h>

/* A zeroed one is empty.  Release with picture_list_release. */
typedef struct picture_list {
    char **path;  /* each an allocation */
    size_t given; /* so many are the command line's */
    size_t count, capacity;
} picture_list;

/* Lists `given`, which ends with NULL, and, unless `folder` is NULL, the regular files in it whose names end in .png, whatever
 * the letters' case, sorted by their bytes.  Subfolders and links are not followed.  A folder without such a file is an error.
 * Returns an exit status. */
int picture_list_make(const char *const *given, const char *folder, picture_list *list);

void picture_list_release(picture_list *list);

#endif
