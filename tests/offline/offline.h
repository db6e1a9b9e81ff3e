/* Shows what the planner would build on GPUs that the tests do not have: records of the GPUs' capabilities, an OpenCL
 * platform that answers with them and keeps what it is asked to build, and a table of representative problems. */
#ifndef TESTS_OFFLINE_H
#define TESTS_OFFLINE_H

#include <stdbool.h>

#include <clattn/clattn.h>

/* ---- the GPUs (targets.c) ---- */

/* What a driver tells about one device; `name` is the compilers' name for it. */
typedef struct offline_target {
    const char *name;
    const char *platform, *device, *vendor, *driver, *version, *extensions;
    cl_uint compute_units, clock_mhz;
    cl_ulong global_memory, max_allocation, local_memory;
    size_t max_work_group, max_work_item[3];
    cl_uint capability;           /* NVIDIA's compute capability, major number; 0: the driver does not know the query */
    cl_uint capability_minor;     /* its minor number */
    cl_uint warp, wavefront;      /* from the vendor's own query; 0: the driver does not know the query */
    size_t sub_groups[3];         /* Intel's list of sub-group sizes, then 0 */
    cl_uint sub_groups_per_group; /* CL_DEVICE_MAX_NUM_SUB_GROUPS; 0: none, or no such query */
    bool fp64;
} offline_target;

extern const offline_target targets[];
extern const size_t target_count;

/* ---- the platform (platform.c) ---- */

/* A kernel that was created, with its program's source and build options. */
typedef struct built_kernel {
    const char *name, *source, *options;
    const char *binary; /* the binary from which its program was made, or NULL */
    size_t local[3];    /* work-group of its last launch; 0: it was not launched */
} built_kernel;

/* A get_proc for clattn_context_params, whose calls answer as the device that platform_use chose last.  Builds and
 * launches succeed and do nothing; reads from the device deliver zeros. */
void *platform_get_proc(void *user, const char *name);
void platform_use(const offline_target *device);

/* Sets the binary of programs that are built with -DPTX_SPLICE=1; NULL: they have none, like all other programs.  It is
 * platform_ptx, a small piece of PTX that can be spliced, until this function is called. */
void platform_give_binary(const char *text);
extern const char platform_ptx[];

/* Calls visit(user, kernel) for each kernel that has been created and not released, oldest first. */
void platform_visit_kernels(void (*visit)(void *user, const built_kernel *kernel), void *user);

/* ---- the problems (problems.c) ---- */

/* A plan to be made by the solver `solver`, or by the planner's choice if `solver` is NULL. */
typedef struct offline_problem {
    const char *about; /* names it in reports */
    bool quick;        /* one of the few that every run compiles */
    const char *solver;
    clattn_status (*plan)(clattn_context *context, const struct offline_problem *problem, clattn_plan **plan);
    const void *row; /* an entry of the table that `plan` reads */
} offline_problem;

/* Calls visit(user, problem) for each problem. */
void problems_visit(void (*visit)(void *user, const offline_problem *problem), void *user);

#endif
