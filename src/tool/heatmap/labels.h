/* Files of labels, one a line. */
#ifndef CLATTN_TOOL_HEATMAP_LABELS_H
#define CLATTN_TOOL_HEATMAP_LABELS_H

#include <stddef.h>

#define LABEL_BYTES 256 /* at most, in a line */

/* Zeroed: none.  Release with labels_release. */
typedef struct label_list {
    char *text;         /* owned */
    const char **label; /* owned; into the text */
} label_list;

/* Reads exactly `count` labels, for what `of` names ("queries").  A line's end is LF or CR LF, the last one's may be
 * missing; a line may be empty.  Returns an exit status. */
int labels_load(const char *path, size_t count, const char *of, label_list *result);

void labels_release(label_list *l);

#endif
