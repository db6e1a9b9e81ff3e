/* What the engine's parts share: contexts, and shelves of what waits for the next call. */
#ifndef CLATTN_GEGL_ENGINE_SHARED_H
#define CLATTN_GEGL_ENGINE_SHARED_H

#include <clattn/clattn.h>

#include "engine.h"

#define ENGINE_IDLE 2           /* items of a shelf */
#define ENGINE_MAX_LAUNCH_MS 50 /* so that a GPU can draw the screen meanwhile */

/* The most recent is last; NULL: a free place. */
typedef struct engine_shelf {
    void *item[ENGINE_IDLE];
} engine_shelf;

/* The context on GEGL's OpenCL, or the process's own, also if GEGL has changed its context since. */
clattn_status engine_context(const engine_opencl *opencl, clattn_context **found);

/* Takes an item that fits off the shelf; NULL if there is none. */
void *engine_take(engine_shelf *shelf, bool (*fits)(const void *item, const void *wanted), const void *wanted);

/* Puts an item on the shelf.  Returns the one that has waited longest if there is no place for it, which the caller closes,
 * or NULL. */
void *engine_keep(engine_shelf *shelf, void *item);

#endif
