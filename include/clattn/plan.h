/** @file
 * Plans: compiled decisions, and the contract of the calls that every operator has (@ref calls).
 */
#ifndef CLATTN_PLAN_H
#define CLATTN_PLAN_H

#include "context.h"
#include "control.h"

CLATTN_BEGIN_DECLS

/** @page calls The calls of every operator
 *
 * An operator X (attention, softmax, matmul, ...) is described by a `clattn_X_desc`, gets its arrays by a
 * `clattn_X_args`, and has the seven calls below. They are the same for all operators; each operator's header says
 * what is special there and lists its statuses. SUCCESS is always among them.
 *
 *     clattn_X_desc desc = CLATTN_X_DESC_INIT;                                   what to compute
 *     clattn_X_args args = CLATTN_X_ARGS_INIT;                                   where the arrays are this time
 *     clattn_X_supports(context, &desc, &reason);                                can this device do it?
 *     clattn_X_plan_create(context, &desc, &options, &plan);                     compiles
 *     clattn_X_enqueue(plan, queue, &args, count, wait_list, &event);            as often as wanted
 *     clattn_X_prewarm(context, &desc);                                          makes the plan of run, in advance
 *     clattn_X_run(context, queue, &desc, &args, count, wait_list, &event);      plan and enqueue in one call
 *
 * All calls are thread-safe. Descriptions, arguments and options are read during the call only; wherever an array is
 * not wanted, its layout and its binding stay zeroed ("none"). Memory that bindings name belongs to the caller, who
 * keeps it until the enqueued work has completed. clattn_context_message has the message of the calling thread's last
 * failure.
 *
 * @section calls_init clattn_X_desc_init and clattn_X_args_init
 *
 * They set a struct's `size` and zero the rest, as the macros `CLATTN_X_DESC_INIT` and `CLATTN_X_ARGS_INIT` do. They
 * are for languages without macros. NULL is accepted.
 *
 * @section calls_supports clattn_X_supports
 *
 * Tells whether some solver on `context` takes `desc`. The answer comes from capabilities alone, in microseconds:
 * nothing is built, and no message is written. Unless the status is SUCCESS, *reason is a static string that says why
 * not; otherwise it is NULL. `reason` may be NULL.
 *
 * Returns INVALID_ARGUMENT, INVALID_STRUCT, INVALID_LAYOUT, OVERFLOW, UNSUPPORTED or OUT_OF_MEMORY.
 *
 * @section calls_plan clattn_X_plan_create
 *
 * Chooses a solver for `desc`, builds its kernels, runs each once with nothing to do, and compares them with a
 * reference unless clattn_context_params.self_check says otherwise. Blocks: a millisecond if everything is cached,
 * seconds if it has to compile. `options` may be NULL, which means all defaults. The caller releases *plan with
 * clattn_plan_release; if the call fails, *plan is NULL.
 *
 * With clattn_plan_options.background the call does not block, and a job makes the plan (job.h). Mistakes in `desc` are
 * still the call's own statuses; what is found later, such as a solver that refuses, is the job's result.
 *
 * Returns what supports returns, FORKED, OPENCL, BUILD (a kernel did not build; the message has the log), MISCOMPILED
 * (the kernels of the solver that was asked for, or of the last one that takes `desc`, disagree with the reference on
 * this device), IO (a file of clattn_context_params.kernel_dir cannot be read) or INTERNAL.
 *
 * @section calls_enqueue clattn_X_enqueue
 *
 * Enqueues the plan on `queue`, behind the `wait_count` events of `wait_list`. Does not block: it never waits for the
 * device, and never finishes or flushes a queue, except with a control that can be cancelled (control.h).
 *
 * - `plan` is one of the operator's own. Any number of threads may enqueue one plan at once.
 * - `queue` belongs to the context's device and OpenCL context; NULL means clattn_context_queue. It may be in order or
 *   out of order.
 * - `wait_list` is NULL if and only if `wait_count` is 0.
 * - `event` may be NULL. Otherwise *event completes with the work, and the caller releases it.
 * - `args` has a `control`: with one, launches may be short, and the call may be watched and cancelled; it then waits for
 *   the device (control.h).
 *
 * Inputs may overlap each other. An output may overlap nothing, unless the operator says otherwise; overlap within one buffer or
 * one allocation of shared virtual memory is refused, and overlapping sub-buffers are not noticed. If there is
 * nothing to compute (a batch of 0, for example), the call succeeds and the event is that of a marker.
 *
 * If it fails, nothing that writes the caller's outputs has been enqueued, unless the status is OPENCL,
 * OUT_OF_MEMORY or CANCELLED.
 *
 * Returns
 *
 * - INVALID_ARGUMENT: a NULL, a plan of another operator, an array that the description needs and that is not bound,
 *   one that is bound and that the description does not have, or a length above the description's;
 * - INVALID_STRUCT, FORKED;
 * - OVERFLOW: an offset or the number of work-items;
 * - UNSUPPORTED: shared virtual memory on a device without it;
 * - WRONG_CONTEXT: a buffer, queue or event of another OpenCL context;
 * - BUFFER_TOO_SMALL, BUFFER_ACCESS: a buffer that the layout reaches beyond, or that kernels may not read or write;
 * - CANCELLED: by the call's control;
 * - BUSY: the workspace pool is in use (only plans with a workspace);
 * - OUT_OF_MEMORY: among others, if the plan needs more than clattn_context_params.workspace_limit and the caller gave
 *   no workspace;
 * - OPENCL.
 *
 * @section calls_workspace The workspace
 *
 * Some operators' arguments have a `workspace`: at least clattn_plan_workspace_size bytes that kernels may read and
 * write, with an offset in bytes that is a multiple of 128. One workspace serves one enqueue at a time, unless it is only
 * read (clattn_prepack). If it is none,
 * the enqueue leases memory from the context until the work completes.
 *
 * @section calls_prewarm clattn_X_prewarm
 *
 * Makes the plan that `clattn_X_run` will want for `desc`, and keeps it in the context's plan cache, so that the run
 * does not block. Blocks and returns as plan_create does.
 *
 * @section calls_run clattn_X_run
 *
 * Takes the plan for `desc` from the context's plan cache, or makes it and keeps it there, and enqueues it. Blocks the
 * first time that a description is seen, while it compiles, and does not block from then on. The cache holds
 * clattn_context_params.plan_capacity plans; the one that was used longest ago makes room.
 *
 * Returns what plan_create and enqueue return.
 */

/** Which way a computation goes. */
typedef enum clattn_direction {
    CLATTN_DIRECTION_FORWARD = 0, /**< from inputs to outputs */

    /** From the gradients of a loss with respect to the outputs to those with respect to the inputs: the description's
     * `gradients`. Operators without such a member refuse it. */
    CLATTN_DIRECTION_BACKWARD = 1,
    CLATTN_DIRECTION_FORCE_32BIT = 0x7fffffff
} clattn_direction;

/** How keys and values are kept. S_k is the extent of `key` that counts keys. */
typedef enum clattn_cache_kind {
    CLATTN_CACHE_KIND_PLAIN = 0, /**< key j lies in row j */

    /** Key j lies in row j mod S_k, and the last S_k keys are held. Lengths count all keys ever appended and may
     * exceed S_k; older keys are not attended. Attention then takes no mask or bias with more than one key, and gives
     * no scores. */
    CLATTN_CACHE_KIND_RING = 1,

    /** `key` is (pages, kv_heads, page_size, d_k), and `value` alike. Key j of item b lies in row j mod page_size of
     * page block_table[b, j / page_size]. */
    CLATTN_CACHE_KIND_PAGED = 2,
    CLATTN_CACHE_KIND_FORCE_32BIT = 0x7fffffff
} clattn_cache_kind;

/** A compiled decision for one description on one context: kernels, geometry, workspace. Immutable.
 *
 * - Thread-safety: any number of threads may enqueue one plan at once.
 * - Ownership: the caller releases it with clattn_plan_release; enqueued work keeps what it needs. */
typedef struct clattn_plan clattn_plan;

/** A plan that is made in the background (job.h). */
typedef struct clattn_job clattn_job;

/** Learns that `job` is complete: clattn_job_result tells how it went. `user` is
 * clattn_plan_options.background.user.
 *
 * Each job makes this call once, also if it failed, was cancelled or has been released; it is the last use of `user`.
 * `job` is valid during the call, in which the application may release it. The call comes on the context's own thread
 * (job.h) with no lock of the library held, and may call the library, but the next job does not begin before it
 * returns. A program with an event loop posts an event and returns. */
typedef void (*clattn_job_callback)(void *user, clattn_job *job);

/** Choices about a plan that do not change what it computes.
 *
 * Set it up with CLATTN_PLAN_OPTIONS_INIT. NULL in its place means all defaults. */
typedef struct clattn_plan_options {
    size_t size; /**< sizeof(clattn_plan_options) */

    /** The solver to use: the plan fails with UNSUPPORTED if it refuses the problem, with MISCOMPILED if its kernels
     * disagree with the reference. NULL: the best one that takes the problem.
     *
     * The solver "cpu-amx" uses a processor's AMX, for which it asks Linux for permission (arch_prctl). The permission
     * is for the whole process and for good, and makes signal frames larger. */
    const char *solver;

    /** Parameters of `solver`, for example "rows=6 depth=512", named as clattn_plan_parameter_info and clattn_plan_explain name
     * them.
     *
     * The cost model chooses those that are not named, so "" means its choice alone. The plan fails with UNSUPPORTED
     * if the solver does not take them. NULL: what wisdom has for the problem (tuning.h), otherwise the cost model's
     * choice. On PoCL the programs of a plan with `tuning` are not kept in the cache. */
    const char *tuning;

    /** Whether the plan is made in the background (job.h). */
    struct {
        /** NULL (default): plan_create makes the plan before it returns. Otherwise it checks what it was given, copies
         * it, and returns; *job then makes the plan, and the application releases it with clattn_job_release. *plan is
         * NULL, and `plan` itself may be NULL. If the call fails, *job is NULL. */
        clattn_job **job;
        clattn_job_callback callback; /**< learns that the job is complete; NULL (default): nobody */
        void *user;                   /**< the first argument of `callback` */
    } background;
} clattn_plan_options;

/** Initialises a clattn_plan_options with defaults. */
#define CLATTN_PLAN_OPTIONS_INIT CLATTN_INIT(clattn_plan_options)

/** Sets *options as CLATTN_PLAN_OPTIONS_INIT does, for languages without macros. `options` may be NULL. */
CLATTN_API void clattn_plan_options_init(clattn_plan_options *options);

/** Releases the plan and sets *plan to NULL; accepts NULL and a pointer to NULL. Does not wait for enqueued work. */
CLATTN_API void clattn_plan_release(clattn_plan **plan);

/** Returns the bytes of workspace that an enqueue of `plan` takes; 0 for none (@ref calls_workspace). */
CLATTN_API size_t clattn_plan_workspace_size(const clattn_plan *plan);

/** Returns the chosen solver's name, for instance "cpu". If a plan is made of several, their names are joined by "+".
 *
 * The string belongs to the plan; NULL for a NULL `plan`. */
CLATTN_API const char *clattn_plan_solver(const clattn_plan *plan);

/** Returns several lines of text about the plan, which belong to it; "" for a NULL `plan`.
 *
 * They tell the device, the chosen solver and why it was chosen, its kernels, geometry, launches and workspace, for
 * each other solver the reason why it was not chosen, and the compiler's warnings about the caller's own functions. */
CLATTN_API const char *clattn_plan_explain(const clattn_plan *plan);

/** Returns how many kernels one enqueue of `plan` launches at the most; 0 for NULL. */
CLATTN_API size_t clattn_plan_launch_count(const clattn_plan *plan);

CLATTN_END_DECLS

#endif
