/* The context's members, for plans and operators. */
#ifndef CLATTN_PLAN_CONTEXT_H
#define CLATTN_PLAN_CONTEXT_H

#include <stdatomic.h>

#include "device/device.h"
#include "base/strbuf.h"
#include "plan/plan_cache.h"
#include "plan/wisdom/wisdom.h"
#include "plan/worker.h"
#include "plan/workspace.h"
#include "program/program.h"

struct clattn_context {
    atomic_int references; /* the application's one, and one for each plan */
    struct device device;
    cl_command_queue queue; /* retained */
    struct program_cache programs;
    struct wisdom wisdom;
    struct plan_cache plans; /* emptied when the application releases the context: cached plans hold references */
    struct workspace_pool workspaces;
    struct worker *worker;       /* makes the plans of jobs, and saves programs in the background */
    mtx_t warm_lock;             /* guards the objects below, which the first plan makes */
    cl_command_queue warm_queue; /* the private queue that runs kernels once */
    cl_mem warm_buffer;          /* the buffer for their pointer arguments */
    cl_mem warm_image;           /* the image for their image arguments, made for the first kernel that has any */
    char **denied;               /* solvers that no plan may choose */
    size_t denied_count;
    clattn_clblast_mode clblast;
    clattn_save_mode save_mode;
    bool foreign_opencl; /* the application supplied OpenCL's functions */
};

void context_retain(clattn_context *context);
/* Gives back one reference; the last one destroys. */
void context_drop(clattn_context *context);

/* Returns SUCCESS, INVALID_ARGUMENT for NULL, or FORKED in another process than the one that made the context. */
clattn_status context_check(clattn_context *context);

/* Whether the application denied the solver "operator/solver". */
bool context_denies(const clattn_context *context, const char *operator_name, const char *solver);

/* Makes the private queue and the dummy buffer for running kernels once, unless they exist; call with warm_lock
 * held. */
clattn_status context_warm_objects(clattn_context *context);

/* Makes the dummy image, unless it exists, for kernels that have images; call with warm_lock held. */
clattn_status context_warm_image(clattn_context *context);

#endif
