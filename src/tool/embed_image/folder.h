/* The pictures of a folder. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_FOLDER_H
#define CLATTN_TOOL_EMBED_IMAGE_FOLDER_H

#include <stddef.h>

/* A zeroed one is empty.  Release with folder_release. */
typedef struct folder_list {
    char **path; /* each an allocation */
    size_t count, capacity;
} folder_list;

/* Lists the regular files in `folder` whose names end in .png, whatever the letters' case, sorted by their bytes.
 * Subfolders and links are not followed.  A folder without such a file is an error.  Returns an exit status. */
int folder_pictures(const char *folder, folder_list *list);

void folder_release(folder_list *list);

#endif
