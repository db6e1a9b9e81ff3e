/** @file
 * Contexts: one device as the library sees it, and the list of devices to choose from.
 */
#ifndef CLATTN_CONTEXT_H
#define CLATTN_CONTEXT_H

#include "layout.h"

CLATTN_BEGIN_DECLS

/** One device: its OpenCL context and queue (created here or adopted), its capabilities, compiled programs and plans.
 *
 * - Thread-safety: any thread may call every function at any time; clattn_context_release must be the last use.
 * - Ownership: the caller releases it with clattn_context_release. Plans keep alive what they need of it. */
typedef struct clattn_context clattn_context;

/** Which lines the log callback receives: those of this level and of all above it in this list. */
typedef enum clattn_log_level {
    CLATTN_LOG_LEVEL_NONE = -1,   /**< no lines, whatever the environment's `CLATTN_LOG` says */
    CLATTN_LOG_LEVEL_DEFAULT = 0, /**< what `CLATTN_LOG` says; CLATTN_LOG_LEVEL_WARNING if it is not set */
    CLATTN_LOG_LEVEL_ERROR = 1,   /**< failures, as clattn_context_message tells them */
    CLATTN_LOG_LEVEL_WARNING = 2, /**< trouble that the library got around */
    CLATTN_LOG_LEVEL_INFO = 3,    /**< what happens now and then, such as the choice of a device */
    CLATTN_LOG_LEVEL_DEBUG = 4,   /**< everything */
    CLATTN_LOG_LEVEL_FORCE_32BIT = 0x7fffffff
} clattn_log_level;

/** Receives `line`, one line of the log without a newline, and its `level`.
 *
 * Any thread may make the call. No lock of the library is held, so the callback may call the library. `user` is
 * clattn_context_params.log_user. */
typedef void (*clattn_log_callback)(void *user, clattn_log_level level, const char *line);

/** Finds the OpenCL function called `name`, as dlsym does; returns NULL if there is no such function.
 *
 * `user` is clattn_context_params.get_proc_user. */
typedef void *(*clattn_get_proc)(void *user, const char *name);

/** Whether compiled programs are kept for the next process. On PoCL clattn_save_mode says when. */
typedef enum clattn_cache_mode {
    CLATTN_CACHE_MODE_DEFAULT = 0, /**< on, unless the environment's `CLATTN_CACHE` is "off" */
    CLATTN_CACHE_MODE_OFF = 1,     /**< neither read nor written */
    CLATTN_CACHE_MODE_ON = 2,      /**< on, whatever the environment says */
    CLATTN_CACHE_MODE_FORCE_32BIT = 0x7fffffff
} clattn_cache_mode;

/** Hands an entry, `bytes` bytes at `data`, to the library; clattn_cache_load calls it with the `sink` that it was
 * given. */
typedef void (*clattn_cache_deliver)(void *sink, const void *data, size_t bytes);

/** Loads a compiled program for an application that keeps them itself.
 *
 * If there is an entry for `key`, the callback calls deliver(sink, data, bytes) once; then it returns. `key` is 64
 * hexadecimal digits, NUL-terminated. `user` is clattn_context_params.cache_user.
 *
 * An application gives both callbacks or neither; with them the library touches no file. They are called with no lock
 * of the library held, from threads that make plans, save programs or release the context, perhaps from several at
 * once for different keys. They may call the library, but may not make or run a plan of the same context.
 *
 * The library verifies an entry after loading it. An entry that is stale or damaged by accident is refused, and the
 * program built from source. The check is a digest without a secret, so it does not protect from somebody who can
 * write what the callback delivers: such a person can run any code on the device, and can crash the driver or worse.
 * Keep entries where only those may write whom the application trusts, as the library's own folder belongs to this
 * user alone. */
typedef void (*clattn_cache_load)(void *user, const char *key, clattn_cache_deliver deliver, void *sink);

/** Stores a compiled program of `bytes` bytes under `key`, for clattn_cache_load, or does not.
 *
 * A failure has no effect on the computation. `data` is valid during the call only. `user` is
 * clattn_context_params.cache_user. */
typedef void (*clattn_cache_store)(void *user, const char *key, const void *data, size_t bytes);

/** Whether CLBlast multiplies matrices. */
typedef enum clattn_clblast_mode {
    /** The plan chooses: CLBlast on GPUs except NVIDIA's, the library's own kernels there and on CPUs. CLBlast calls the
     * linked OpenCL loader and is therefore never chosen if there is a get_proc. */
    CLATTN_CLBLAST_MODE_DEFAULT = 0,
    CLATTN_CLBLAST_MODE_NEVER = 1,  /**< CLBlast is not used */
    CLATTN_CLBLAST_MODE_PREFER = 2, /**< CLBlast is used for every product that it can compute */
    CLATTN_CLBLAST_MODE_FORCE_32BIT = 0x7fffffff
} clattn_clblast_mode;

/** Whether a plan's kernels are compared with a reference before the first plan with them is handed out.
 *
 * The check runs on the device itself, on a small problem, because drivers do miscompile. A solver whose kernels
 * disagree is refused with the reason, and the next solver is asked. Binaries in the cache have passed. Kernels with a
 * user's snippets cannot be checked. */
typedef enum clattn_self_check {
    CLATTN_SELF_CHECK_ON = 0,  /**< kernels are checked */
    CLATTN_SELF_CHECK_OFF = 1, /**< kernels are used as they are */

    /** Every plan's kernels are checked, CLBlast's too, even if their binaries have passed or a simulator runs them. */
    CLATTN_SELF_CHECK_ALWAYS = 2,
    CLATTN_SELF_CHECK_FORCE_32BIT = 0x7fffffff
} clattn_self_check;

/** When programs are saved whose drivers compile once more to give their binaries, as PoCL does.
 *
 * Other drivers' programs are saved while a plan is made, whatever this says. */
typedef enum clattn_save_mode {
    /** RELEASE if the application keeps entries itself (clattn_context_params.cache_store) or the environment's
     * `CLATTN_SAVE` is "release", else EXPLICIT: PoCL has a cache of its own, from which the next process starts, too. */
    CLATTN_SAVE_MODE_DEFAULT = 0,

    /** Only clattn_context_save_programs saves; no release does. */
    CLATTN_SAVE_MODE_EXPLICIT = 1,

    /** The release of the context, and of the last plan, job or model behind it, saves what has not been saved. It takes
     * some tenths of a second for each new program; a start from what was saved takes about 0.02 s less for each than one
     * from PoCL's cache. */
    CLATTN_SAVE_MODE_RELEASE = 2,

    /** The context's own thread (job.h) saves programs when it has no plan to make. The last release waits for the one
     * program that is being saved; what remains is not saved, so call clattn_context_save_programs before if it should
     * be. Saving takes processor time, and kernels on a CPU by PoCL wait for each program. The log and the cache callbacks are
     * then called on that thread, too: do not make the last release while holding a lock that they take. */
    CLATTN_SAVE_MODE_BACKGROUND = 3,
    CLATTN_SAVE_MODE_FORCE_32BIT = 0x7fffffff
} clattn_save_mode;

/** How to make a context.
 *
 * Set it up with CLATTN_CONTEXT_PARAMS_INIT; zero is the default of every field but `size`. Strings and arrays are
 * read during the call only. Callbacks and their user pointers are used for as long as the context or a plan of it
 * lives. */
typedef struct clattn_context_params {
    size_t size; /**< sizeof(clattn_context_params) */

    /** Which device to use. NULL: the environment's `CLATTN_DEVICE`, and if that is not set, the best one that is no
     * software rasteriser or simulator. One of:
     *
     *     "gpu", "cpu", "pocl"    the best device of that kind
     *     "2"                     device 2 of clattn_devices_create's list
     *     "rusticl:llvm"          the best device whose platform's name contains the text before the colon
     *                             and whose own name contains the text behind it
     *
     * Upper and lower case are alike in the last form, and either text may be empty. Any other word without a colon
     * matches nothing: write "rusticl:" for a platform and ":llvmpipe" for a device. A request that nothing matches
     * fails with NO_DEVICE and never falls back to another device. */
    const char *device;

    /** The application's own OpenCL objects, to be adopted: the library retains all three and releases them with the
     * context. `queue` may be NULL, and one is then created; without `opencl_context` all three are NULL.
     *
     * Once the context is released, and work and plans with it, every reference count is back to what it was. (PoCL
     * 3.1 itself keeps references to a queue that commands have used, with or without this library.) */
    cl_context opencl_context;
    cl_device_id opencl_device; /**< a device of the context; NULL: the queue's, or without one the first */
    cl_command_queue queue;     /**< a queue of both, or NULL */

    /** Where OpenCL's functions come from; NULL: the loader that the library was linked with or opens. */
    clattn_get_proc get_proc;
    void *get_proc_user; /**< the first argument of `get_proc` */

    clattn_log_callback log;    /**< receives the log; NULL: nothing is reported */
    void *log_user;             /**< the first argument of `log` */
    clattn_log_level log_level; /**< the last level that is reported */

    clattn_cache_mode cache_mode; /**< whether compiled programs are kept */

    /** The folder of the cache. NULL: `CLATTN_CACHE_DIR`, then $XDG_CACHE_HOME/clattn, then ~/.cache/clattn; on Windows
     * %LOCALAPPDATA%/clattn.
     *
     * The folder's size is not bounded, and no entry is ever removed because it is old: entries that a new driver or a
     * new version of the library has made useless stay. `clattn cache clear` empties it. */
    const char *cache_dir;
    clattn_cache_load cache_load;   /**< loads entries in place of the folder; NULL: the folder */
    clattn_cache_store cache_store; /**< stores them; given if and only if `cache_load` is */
    void *cache_user;               /**< the first argument of both */

    const char *kernel_dir; /**< a folder of kernel sources; NULL: `CLATTN_KERNEL_DIR`, then those built in */
    const char *const *denied_solvers; /**< solvers that no plan may choose, as "operator/solver" or "solver" */
    size_t denied_solver_count;        /**< how many there are */
    clattn_clblast_mode clblast;       /**< whether CLBlast multiplies matrices */
    uint32_t plan_capacity;            /**< how many plans are kept for the one-call forms; 0: 64 */

    /** The bytes that the workspace pool may hold; 0: a quarter of the device's memory, at most 1 GiB.
     *
     * A plan that wants more can be made. Its enqueue needs a workspace from the caller, and fails with OUT_OF_MEMORY
     * without one. */
    size_t workspace_limit;
    clattn_self_check self_check; /**< whether kernels are checked before they are used */
    clattn_save_mode save_mode;   /**< when programs are saved that are not saved while a plan is made */
} clattn_context_params;

/** Initialises a clattn_context_params with defaults. */
#define CLATTN_CONTEXT_PARAMS_INIT CLATTN_INIT(clattn_context_params)

/** Sets *params as CLATTN_CONTEXT_PARAMS_INIT does, for languages without macros. `params` may be NULL. */
CLATTN_API void clattn_context_params_init(clattn_context_params *params);

/** Makes a context; `params` may be NULL and then means all defaults.
 *
 * Blocks while platforms are enumerated (tens of milliseconds); compiles nothing. The environment is read here and
 * only here, and is not read at all in a setuid process.
 *
 * If it fails, *context is NULL, and clattn_context_message tells why if it is given NULL.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OUT_OF_MEMORY, NO_OPENCL, NO_DEVICE, WRONG_CONTEXT (the adopted objects do
 * not belong together), IO (a kernel source of `kernel_dir` cannot be read), INTERNAL (a kernel source includes more
 * than 32 files) or OPENCL. */
CLATTN_API clattn_status clattn_context_create(const clattn_context_params *params, clattn_context **context);

/** Releases the context and sets *context to NULL; accepts NULL and a pointer to NULL.
 *
 * Does not wait for enqueued work: the work goes on, and what it needs is kept until the last plan and model are
 * released, too.
 *
 * Jobs go on, too (job.h): cancel or release those that are not wanted.
 *
 * With CLATTN_SAVE_MODE_RELEASE the release on PoCL first saves programs, as clattn_context_save_programs does, and the
 * release of that last plan or model saves what has been made since. Saving compiles, so do not release from a static
 * object's destructor or an exit handler then. In the child of a fork this and every other release frees host memory only
 * and calls no OpenCL function. */
CLATTN_API void clattn_context_release(clattn_context **context);

/** Returns the OpenCL context in use, borrowed: retain it if it must outlive `context`. NULL for a NULL `context`. */
CLATTN_API cl_context clattn_context_opencl_context(const clattn_context *context);

/** Returns the OpenCL device in use, borrowed: retain it if it must outlive `context`. NULL for a NULL `context`. */
CLATTN_API cl_device_id clattn_context_opencl_device(const clattn_context *context);

/** Returns the context's queue, borrowed: retain it if it must outlive `context`. NULL for a NULL `context`.
 *
 * Calls that are given a NULL queue use this one. */
CLATTN_API cl_command_queue clattn_context_queue(const clattn_context *context);

/** Copies the message of the calling thread's last failure on this context, and returns its length.
 *
 * `buffer` has room for `bytes` bytes and gets the message truncated and always terminated; it may be NULL if `bytes`
 * is 0. The result is the full length without the terminator. A thread that has not failed on the context gets "". If
 * there was no memory for the message, the status's own words (clattn_status_string) are copied. The context keeps the
 * messages of the 64 threads that failed last. If `context` is NULL, or was made before a fork, the message is that of
 * the calling thread's last failure of a function without a context. Build logs come in full, up to 64 KiB. */
CLATTN_API size_t clattn_context_message(const clattn_context *context, char *buffer, size_t bytes);

/** What a device's local memory is. */
typedef enum clattn_local_memory {
    CLATTN_LOCAL_MEMORY_NONE = 0,      /**< there is none */
    CLATTN_LOCAL_MEMORY_DEDICATED = 1, /**< fast memory that belongs to a compute unit */
    CLATTN_LOCAL_MEMORY_EMULATED = 2,  /**< ordinary memory */
    CLATTN_LOCAL_MEMORY_FORCE_32BIT = 0x7fffffff
} clattn_local_memory;

/** What kind of device it is; devices are ranked in this order. */
typedef enum clattn_device_class {
    CLATTN_DEVICE_CLASS_GPU = 0,         /**< a GPU */
    CLATTN_DEVICE_CLASS_ACCELERATOR = 1, /**< an accelerator that is no GPU */
    CLATTN_DEVICE_CLASS_CPU = 2,         /**< a CPU by its vendor's runtime */
    CLATTN_DEVICE_CLASS_POCL = 3,        /**< a CPU by PoCL */
    CLATTN_DEVICE_CLASS_SOFTWARE = 4,    /**< a software rasteriser or simulator; chosen by name only */
    CLATTN_DEVICE_CLASS_FORCE_32BIT = 0x7fffffff
} clattn_device_class;

/** One device's capabilities, read once. Strings live as long as the object that they were read from. */
typedef struct clattn_device_info {
    size_t size;                           /**< sizeof(clattn_device_info), set by the caller */
    const char *platform;                  /**< CL_PLATFORM_NAME */
    const char *name;                      /**< CL_DEVICE_NAME */
    const char *vendor;                    /**< CL_DEVICE_VENDOR */
    const char *driver;                    /**< CL_DRIVER_VERSION */
    const char *version;                   /**< CL_DEVICE_VERSION */
    const char *extensions;                /**< CL_DEVICE_EXTENSIONS, separated by single spaces */
    uint64_t type;                         /**< cl_device_type: a set of bits; Oclgrind reports three at once */
    clattn_device_class device_class;      /**< what kind of device it is */
    int32_t opencl_version;                /**< major * 100 + minor * 10, as in CL_TARGET_OPENCL_VERSION */
    uint32_t compute_units;                /**< CL_DEVICE_MAX_COMPUTE_UNITS */
    uint32_t clock_mhz;                    /**< CL_DEVICE_MAX_CLOCK_FREQUENCY */
    uint32_t preferred_float_lanes;        /**< CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT */
    uint32_t native_float_lanes;           /**< CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT */
    uint64_t global_memory;                /**< bytes of global memory */
    uint64_t max_allocation;               /**< bytes of the largest buffer */
    uint64_t local_memory;                 /**< bytes of local memory for a work-group */
    clattn_local_memory local_memory_kind; /**< what that memory is */
    uint32_t max_work_group;               /**< work-items in the largest work-group */
    uint32_t max_work_item[3];             /**< work-items in each of its dimensions */

    /** The size that all sub-groups (warps, wavefronts) of all kernels have. 0 unless there is only one size and the
     * driver tells it, by an extension of Intel, NVIDIA or AMD. */
    uint32_t sub_group;
    int32_t has_fp16;            /**< 1: kernels may compute in float16 */
    int32_t has_fp64;            /**< 1: kernels may compute in float64 */
    int32_t has_sub_groups;      /**< 1: kernels may use sub-groups */
    int32_t unified_memory;      /**< 1: the device and the host share their memory */
    int32_t out_of_order;        /**< 1: the device has out-of-order queues */
    uint32_t base_address_align; /**< bytes to which buffers are aligned */
    uint8_t uuid[16];            /**< cl_khr_device_uuid, or zeros */

    /** 1: compiled programs can be saved. 0: asking this driver for a program's binary may end the process (PoCL 4 to 6),
     * so that nothing is saved; PoCL has a cache of its own. */
    int32_t saves_programs;
} clattn_device_info;

/** Fills *info with the capabilities of the device of `context`.
 *
 * `info->size` must be set; as much is filled as that size has room for.
 *
 * @return INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_context_device_info(const clattn_context *context, clattn_device_info *info);

/** All devices of all platforms, ranked as clattn_context_create would choose among them, and why others were skipped.
 *
 * - Thread-safety: immutable; any thread may read it.
 * - Ownership: the caller releases it with clattn_devices_release; the strings in it go with it. */
typedef struct clattn_devices clattn_devices;

/** Lists all devices. Blocks while platforms are enumerated; one broken platform hides no other.
 *
 * Only `get_proc` and `get_proc_user` of `params` count; `params` may be NULL. If it fails, *devices is NULL.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OUT_OF_MEMORY or NO_OPENCL. */
CLATTN_API clattn_status clattn_devices_create(const clattn_context_params *params, clattn_devices **devices);

/** Releases the list and sets *devices to NULL; accepts NULL and a pointer to NULL. */
CLATTN_API void clattn_devices_release(clattn_devices **devices);

/** Returns how many usable devices `devices` has; 0 for NULL. The first has index 0. */
CLATTN_API size_t clattn_devices_count(const clattn_devices *devices);

/** Fills *info with the capabilities of device `index` of `devices`, in rank order, as clattn_context_device_info
 * does.
 *
 * @return INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_devices_info(const clattn_devices *devices, size_t index, clattn_device_info *info);

/** Returns how many platforms and devices `devices` has skipped; 0 for NULL. */
CLATTN_API size_t clattn_devices_skipped_count(const clattn_devices *devices);

/** Returns a line that names the skipped platform or device `index` of `devices` and says why; NULL if there is
 * none. */
CLATTN_API const char *clattn_devices_skipped(const clattn_devices *devices, size_t index);

/** How this context came by its compiled programs. */
typedef struct clattn_program_statistics {
    size_t size;      /**< sizeof(clattn_program_statistics), set by the caller */
    uint64_t built;   /**< programs built from source in this process */
    uint64_t loaded;  /**< programs loaded from the cache */
    uint64_t refused; /**< cache entries that were there and were refused */
} clattn_program_statistics;

/** Fills *statistics with the counts of `context`; `statistics->size` must be set, and limits what is filled.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT or FORKED. */
CLATTN_API clattn_status clattn_context_program_statistics(const clattn_context *context,
                                                           clattn_program_statistics *statistics);

/** Saves the programs of `context` that the cache does not hold yet.
 *
 * Most drivers' binaries are saved while a plan is made, and this call then does nothing. PoCL's are left to this call
 * and to what clattn_context_params.save_mode says: PoCL compiles every kernel once more for them, which takes longer
 * than the plan did, and the first result need not wait for that. A process that ends without either has PoCL's own
 * cache next time, and starts from it.
 *
 * Blocks meanwhile, and PoCL runs no kernels then. A program that another thread is saving is left to that thread. A
 * program that cannot be saved is logged and not tried again. Two kinds of programs are not saved on PoCL: those that
 * only plans with clattn_plan_options.tuning have used, and the oldest beyond 1,024 that no plan holds. PoCL 4 to 6 is
 * never asked for a binary, which may end the process there: nothing is saved, and PoCL's own cache serves.
 *
 * @return INVALID_ARGUMENT or FORKED. */
CLATTN_API clattn_status clattn_context_save_programs(clattn_context *context);

/** Returns the folder of the on-disk cache of `context`, or NULL if the cache is off.
 *
 * It is off by request, because callbacks replace it, or because the folder is missing or unsafe; *reason, a static
 * string, then says why. `reason` may be NULL. */
CLATTN_API const char *clattn_context_cache_dir(const clattn_context *context, const char **reason);

CLATTN_END_DECLS

#endif
