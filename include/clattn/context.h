/* Contexts: one device as the library sees it. */
#ifndef CLATTN_CONTEXT_H
#define CLATTN_CONTEXT_H

#include "layout.h"

CLATTN_BEGIN_DECLS

/* One device: its OpenCL context and queue (created here or adopted), its capabilities, compiled programs and
 * plans.
 * Thread-safety: every function may be called from any thread at any time, except that clattn_context_release
 *   must be the last use.
 * Ownership: the caller releases it with clattn_context_release.  Plans keep what they need of it alive. */
typedef struct clattn_context clattn_context;

typedef enum clattn_log_level {
    CLATTN_LOG_LEVEL_NONE = -1,   /* nothing, whatever CLATTN_LOG says */
    CLATTN_LOG_LEVEL_DEFAULT = 0, /* what CLATTN_LOG says, and without it CLATTN_LOG_LEVEL_WARNING */
    CLATTN_LOG_LEVEL_ERROR = 1,
    CLATTN_LOG_LEVEL_WARNING = 2,
    CLATTN_LOG_LEVEL_INFO = 3,
    CLATTN_LOG_LEVEL_DEBUG = 4,
    CLATTN_LOG_LEVEL_FORCE_32BIT = 0x7fffffff
} clattn_log_level;

/* Receives one line, without a newline.  May be called from any thread, with no lock of the library's held:
 * it may ask the library anything. */
typedef void (*clattn_log_callback)(void *user, clattn_log_level level, const char *line);

/* Finds an OpenCL function by its name, as a dlsym does; NULL for "not there". */
typedef void *(*clattn_get_proc)(void *user, const char *name);

typedef enum clattn_cache_mode {
    CLATTN_CACHE_MODE_DEFAULT = 0, /* on, unless the environment's CLATTN_CACHE is "off" */
    CLATTN_CACHE_MODE_OFF = 1,
    CLATTN_CACHE_MODE_ON = 2,
    CLATTN_CACHE_MODE_FORCE_32BIT = 0x7fffffff
} clattn_cache_mode;

/* An application that keeps compiled programs itself gives both callbacks; no file is then touched.
 * `key` is 64 hexadecimal digits, NUL-terminated.  An entry is verified after loading, so what comes back may
 * be stale or damaged by accident: it is then refused and the program built from source.  The check is a
 * digest without a secret, so it is no protection from those who can write what `load` delivers: they can put
 * any code into the device, and a binary that makes the driver crash or worse.  Keep entries where only those
 * may write whom the application trusts, as the library's own folder is this user's alone.
 *
 * Both are called with no lock of the library's held, from threads that make plans, save programs or release the
 * context, perhaps from several at once for different keys.  They may call the library, but not make or run a
 * plan of the same context.
 *
 * load: calls deliver(sink, data, bytes) once if it has the entry, and returns.
 *
 * store: keeps `bytes` bytes under `key`, or does not: a failure has no effect on the computation. */
typedef void (*clattn_cache_deliver)(void *sink, const void *data, size_t bytes);
typedef void (*clattn_cache_load)(void *user, const char *key, clattn_cache_deliver deliver, void *sink);
typedef void (*clattn_cache_store)(void *user, const char *key, const void *data, size_t bytes);

/* Which library multiplies matrices for projections. */
typedef enum clattn_clblast_mode {
    CLATTN_CLBLAST_MODE_DEFAULT = 0, /* the plan chooses: CLBlast on GPUs, the library's own kernels on CPUs; never
                                 * with get_proc, since CLBlast calls the linked loader */
    CLATTN_CLBLAST_MODE_NEVER = 1,
    CLATTN_CLBLAST_MODE_PREFER = 2, /* wherever it can do the job */
    CLATTN_CLBLAST_MODE_FORCE_32BIT = 0x7fffffff
} clattn_clblast_mode;

/* Whether a plan's kernels are compared with a reference, on the device itself and on a small problem, before the first
 * plan with them is handed out; binaries in the cache have passed.  A solver that disagrees is refused with the
 * reason, and the next one asked: drivers do miscompile.  Kernels with a user's snippets cannot be checked. */
typedef enum clattn_self_check {
    CLATTN_SELF_CHECK_ON = 0,
    CLATTN_SELF_CHECK_OFF = 1,
    CLATTN_SELF_CHECK_FORCE_32BIT = 0x7fffffff
} clattn_self_check;

/* How to make a context.  Set it up with CLATTN_CONTEXT_PARAMS_INIT (or clattn_context_params_init); zero is
 * the default of every other field.  Strings and arrays are read during the call only, callbacks and their
 * user pointers for as long as the context or a plan of it lives. */
typedef struct clattn_context_params {
    size_t size; /* sizeof(clattn_context_params) */

    /* Which device: "gpu", "cpu", "pocl", an index from clattn_devices, or "platform:device" substrings.
     * NULL: the environment's CLATTN_DEVICE, and without it the best-ranked one.  Never falls back from a
     * request that nothing matches. */
    const char *device;

    /* Adopt an application's OpenCL objects: all three are retained, and released with the context.  `queue`
     * may be NULL (one is created); with `cl_context` NULL the other two must be NULL too. */
    cl_context opencl_context;
    cl_device_id opencl_device;
    cl_command_queue queue;

    /* Where OpenCL's functions come from; NULL: the loader that the library was linked with or opens. */
    clattn_get_proc get_proc;
    void *get_proc_user;

    clattn_log_callback log; /* NULL: nothing is reported */
    void *log_user;
    clattn_log_level log_level; /* lines up to this one */

    clattn_cache_mode cache_mode;
    const char *cache_dir; /* NULL: CLATTN_CACHE_DIR, then $XDG_CACHE_HOME/clattn, then ~/.cache/clattn */
    clattn_cache_load cache_load;
    clattn_cache_store cache_store;
    void *cache_user;

    const char *kernel_dir;            /* kernel sources from a folder; NULL: CLATTN_KERNEL_DIR, then the built-in */
    const char *const *denied_solvers; /* solvers that no plan may choose: "operator/solver" or "solver" */
    size_t denied_solver_count;
    clattn_clblast_mode clblast;
    uint32_t plan_capacity; /* plans kept for the one-call forms; 0: 64 */
    size_t workspace_limit; /* bytes that the workspace pool may hold; 0: a quarter of the device's memory,
                             * at most 1 GiB.  A plan that wants more can be made, and enqueued with a
                             * workspace that the caller brings; without, enqueue gives OUT_OF_MEMORY */
    clattn_self_check self_check;
    int32_t reserved; /* 0 */
} clattn_context_params;

#define CLATTN_CONTEXT_PARAMS_INIT CLATTN_INIT(clattn_context_params)

/* What CLATTN_CONTEXT_PARAMS_INIT does, for languages without macros.  NULL is accepted. */
CLATTN_API void clattn_context_params_init(clattn_context_params *params);

/* Makes a context; `params` NULL means all defaults.  Blocks while platforms are enumerated (tens of
 * milliseconds); compiles nothing.  The environment is read here and only here, and not at all in a setuid
 * process.
 * After failure *context is NULL and clattn_context_message(NULL, …) tells why.
 * Returns INVALID_ARGUMENT, INVALID_STRUCT, OUT_OF_MEMORY, NO_OPENCL, NO_DEVICE, WRONG_CONTEXT (the adopted
 * objects do not belong together), IO (a kernel source of kernel_dir cannot be read), INTERNAL (one includes
 * more than 32 files), OPENCL. */
CLATTN_API clattn_status clattn_context_create(const clattn_context_params *params, clattn_context **context);

/* Gives the context back and sets *context to NULL; NULL and a NULL handle are accepted.  Does not wait
 * for enqueued work, which goes on, and what it needs is kept until the last plan or model is released too.  On PoCL it
 * first saves programs, as clattn_context_save_programs does, and so does that last plan's or model's release with what
 * has been made since; that compiles, so it is nothing for a static object's destructor or an exit handler.  In the
 * child of a fork, as every release, it frees host memory alone and makes no OpenCL call. */
CLATTN_API void clattn_context_release(clattn_context **context);

/* The OpenCL objects in use, borrowed: retain what must outlive the context.  NULL for a NULL context. */
CLATTN_API cl_context clattn_context_opencl_context(const clattn_context *context);
CLATTN_API cl_device_id clattn_context_opencl_device(const clattn_context *context);
CLATTN_API cl_command_queue clattn_context_queue(const clattn_context *context);

/* Copies the message of the calling thread's last failure on this context into `buffer` of `bytes` bytes,
 * truncated and always terminated, and returns its full length without the terminator; a thread that has not failed
 * on it gets "".  The context keeps the messages of the 64 threads that failed last.  `context` NULL, or
 * one that was made before a fork: the calling thread's last failure of a function that has no context.
 * `buffer` may be NULL when `bytes` is 0. Build logs come in full, up to 64 KiB. */
CLATTN_API size_t clattn_context_message(const clattn_context *context, char *buffer, size_t bytes);

typedef enum clattn_local_memory {
    CLATTN_LOCAL_MEMORY_NONE = 0,
    CLATTN_LOCAL_MEMORY_DEDICATED = 1, /* fast memory of a compute unit's own */
    CLATTN_LOCAL_MEMORY_EMULATED = 2,  /* ordinary memory */
    CLATTN_LOCAL_MEMORY_FORCE_32BIT = 0x7fffffff
} clattn_local_memory;

typedef enum clattn_device_class {
    CLATTN_DEVICE_CLASS_GPU = 0,
    CLATTN_DEVICE_CLASS_ACCELERATOR = 1,
    CLATTN_DEVICE_CLASS_CPU = 2,      /* a vendor's CPU runtime */
    CLATTN_DEVICE_CLASS_POCL = 3,     /* PoCL's CPU device */
    CLATTN_DEVICE_CLASS_SOFTWARE = 4, /* software rasterisers and simulators: only by name */
    CLATTN_DEVICE_CLASS_FORCE_32BIT = 0x7fffffff
} clattn_device_class;

/* One device's capabilities, read once.  Strings live as long as the object that they were read from. */
typedef struct clattn_device_info {
    size_t size;          /* sizeof(clattn_device_info), set by the caller */
    const char *platform; /* CL_PLATFORM_NAME */
    const char *name;     /* CL_DEVICE_NAME */
    const char *vendor;
    const char *driver;               /* CL_DRIVER_VERSION */
    const char *version;              /* CL_DEVICE_VERSION */
    const char *extensions;           /* separated by single spaces */
    uint64_t type;                    /* cl_device_type: a set of bits; Oclgrind reports three at once */
    clattn_device_class device_class; /* its rank group */
    int32_t opencl_version;           /* major * 100 + minor * 10, as in CL_TARGET_OPENCL_VERSION */
    uint32_t compute_units;
    uint32_t clock_mhz;
    uint32_t preferred_float_lanes, native_float_lanes;
    uint64_t global_memory;  /* bytes */
    uint64_t max_allocation; /* bytes */
    uint64_t local_memory;   /* bytes */
    clattn_local_memory local_memory_kind;
    uint32_t max_work_group; /* items */
    uint32_t max_work_item[3];
    uint32_t sub_group; /* the size that every kernel's sub-groups (warps, wavefronts) have, where the driver
                         * tells (extensions of Intel, NVIDIA, AMD) and there is but one; otherwise 0 */
    int32_t has_fp16, has_fp64, has_sub_groups, unified_memory, out_of_order;
    uint32_t base_address_align; /* bytes */
    uint8_t uuid[16];            /* cl_khr_device_uuid, or zeros */
} clattn_device_info;

/* This context's device.  `info->size` must be set.  Returns INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_context_device_info(const clattn_context *context, clattn_device_info *info);

/* All devices of all platforms, ranked as clattn_context_create would choose among them, and why any platform
 * or device was passed over.
 * Thread-safety: immutable, any thread may read it.
 * Ownership: the caller releases it; the strings in it go with it. */
typedef struct clattn_devices clattn_devices;

/* Enumerates; blocks.  Only the fields get_proc, get_proc_user of `params` (may be NULL) count.  One broken
 * platform hides no other.  Returns INVALID_ARGUMENT, INVALID_STRUCT, OUT_OF_MEMORY or NO_OPENCL. */
CLATTN_API clattn_status clattn_devices_create(const clattn_context_params *params, clattn_devices **devices);

/* Releases and nulls; NULL and a NULL handle are accepted. */
CLATTN_API void clattn_devices_release(clattn_devices **devices);

/* How many usable devices there are; the index of the first is 0. */
CLATTN_API size_t clattn_devices_count(const clattn_devices *devices);

/* Device `index` in rank order.  Returns INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_devices_info(const clattn_devices *devices, size_t index, clattn_device_info *info);

/* How many platforms or devices were passed over, and for one of them a line that names it and the reason;
 * NULL for an index outside. */
CLATTN_API size_t clattn_devices_skipped_count(const clattn_devices *devices);
CLATTN_API const char *clattn_devices_skipped(const clattn_devices *devices, size_t index);

/* Compiled programs of this context: built from source in this process, loaded from the cache, and cache
 * entries refused (missing ones not counted). */
typedef struct clattn_program_statistics {
    size_t size; /* sizeof(clattn_program_statistics), set by the caller */
    uint64_t built, loaded, refused;
} clattn_program_statistics;

/* Returns INVALID_ARGUMENT, INVALID_STRUCT or FORKED. */
CLATTN_API clattn_status clattn_context_program_statistics(const clattn_context *context,
                                                           clattn_program_statistics *statistics);

/* Saves programs to the cache that are not there yet.  Most drivers' binaries are saved while a plan is made, and this does
 * nothing.  PoCL's are left to this call and to the context's release: it compiles every kernel once more for them,
 * which takes longer than the plan did, and the first result need not wait for that.  A process that ends without either
 * has PoCL's own cache next time.  Blocks meanwhile, and PoCL runs no kernels then; a program that another thread is
 * saving is left to it.  What cannot be saved is logged, and not tried again.  On PoCL programs are not saved that only
 * plans with clattn_plan_options' `tuning` have used, and of more than 1,024 that no plan holds the oldest are dropped.
 * Returns INVALID_ARGUMENT or FORKED. */
CLATTN_API clattn_status clattn_context_save_programs(clattn_context *context);

/* The folder of the on-disk cache, or NULL with the reason in *reason (a static string; may be NULL) when the
 * cache is off: by request, because callbacks replace it, or because the folder is missing or unsafe. */
CLATTN_API const char *clattn_context_cache_dir(const clattn_context *context, const char **reason);

CLATTN_END_DECLS

#endif
