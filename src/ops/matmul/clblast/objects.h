/* What CLBlast is given in place of the driver's device, context and queue, so that what it compiles is in our hands.
 *
 * An OpenCL loader (cl_khr_icd) finds the function to call through a table that each object begins with.  The objects
 * here begin with a table of ours: CLBlast's calls come to it through the loader that both are linked with, and go on
 * to the driver.  Nothing else is changed: no symbol is interposed, and the application's own objects, and its own
 * calls of CLBlast, never meet the table.
 *
 * Why: when CLBlast has compiled a program it asks for the program's binary, to compile faster for another context of
 * the process.  PoCL (3.1) then compiles each of the program's kernels, eleven for SGEMM, for work-groups of any size:
 * 3.6 of the 4.7 s of a first product, for machine code that no launch uses.  Here it gets the source in place of the
 * binary, and what it builds "from the binary" is built from that source.
 *
 * CLBlast gets the driver's own objects on all other platforms, where there is no loader, and where it has failed with
 * these. */
#ifndef CLATTN_OPS_MATMUL_CLBLAST_OBJECTS_H
#define CLATTN_OPS_MATMUL_CLBLAST_OBJECTS_H

#include "plan/context.h"

struct clblast_objects;

/* A queue in CLBlast's hands, for one call. */
struct clblast_queue {
    const void *dispatch;
    struct clblast_objects *objects;
    cl_command_queue queue;
};

/* The objects of the context's device, made at the first call; NULL where CLBlast has to take the driver's.  These
 * four: only with the lock of clblast_library.h held. */
struct clblast_objects *clblast_objects_of(clattn_context *context);

/* Has clblast_objects_of return NULL from now on; false if it did already.  A CLBlast of another version may ask for
 * what is refused here. */
bool clblast_objects_give_up(clattn_context *context);

/* What stands in for `queue` while `storage` lives; `queue` itself if `objects` is NULL. */
cl_command_queue clblast_objects_queue(struct clblast_objects *objects, cl_command_queue queue,
                                       struct clblast_queue *storage);

/* Destroys the objects of all devices: when CLBlast's caches, which hold programs of them, are empty. */
void clblast_objects_clear(void);

#endif
