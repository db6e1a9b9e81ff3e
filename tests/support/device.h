/* The device under test: its contexts, queues and buffers, and what is known of it.
 *
 * The device is the one that CLATTN_DEVICE names, otherwise the best that is visible, software devices included, so that
 * OCL_ICD_VENDORS alone chooses a platform. */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include "support/check.h"

/* ---- the one context of a suite ---- */

/* Made by the first call, released by suite_run. */
clattn_context *device_context(void);

/* Sets clattn_context_params.get_proc of device_context; to be called before the first device_context. */
void device_use_functions(void *(*get_proc)(void *user, const char *name));

/* Does so with clattn_context_params.plan_capacity. */
void device_use_plans(uint32_t capacity);

/* Counts its programs as release_context does, and releases it, if there is one. */
void device_release(void);

/* What device_context has built and loaded so far; nothing if there is none yet. */
clattn_program_statistics device_programs(void);

/* Whether a kernel of device_context() called a function that cl/lib/builtins.h does not declare, and was built twice. */
bool device_lacks_builtins(void);

/* Releases a buffer, except on a simulator whose bookkeeping cannot bear it. */
void device_release_buffer(cl_mem buffer);

/* ---- contexts of single tests ---- */

/* A new context with the default cache, or with `params`, which are not changed.  The test fails with the library's
 * message if there is none. */
clattn_context *new_context(void);
clattn_context *new_context_with(const clattn_context_params *params);

/* Counts the programs that the context has built and loaded, and releases it. */
void release_context(clattn_context **context);

/* What a context has built and loaded so far. */
clattn_program_statistics programs_of(const clattn_context *context);

/* All that were counted. */
clattn_program_statistics released_programs(void);

/* ---- queues, events, buffers ---- */

/* A new queue of the context, which the caller releases; out of order, NULL if the device has no such queues. */
cl_command_queue new_queue(const clattn_context *context, bool out_of_order);

/* A new event that the test completes, and releases. */
cl_event new_user_event(cl_context opencl);

/* A buffer of `bytes` in an OpenCL context, with `data` copied in (NULL: every byte 0xff, so floats are NaN). */
cl_mem new_buffer(cl_context opencl, cl_mem_flags flags, size_t bytes, const void *data);

/* Waits for `queue`, then reads `bytes`. */
void read_buffer(cl_command_queue queue, cl_mem buffer, size_t bytes, void *data);

/* Writes `bytes` from byte `at` on; other queues see them when this returns.  A blocking write does not promise that: it
 * may return as soon as `data` was copied, and Intel's CPU runtime does. */
void write_buffer(cl_command_queue queue, cl_mem buffer, size_t at, size_t bytes, const void *data);

/* ---- what the device is ---- */

/* Whether it is a CPU (PoCL, llvmpipe, Oclgrind's included). */
bool device_is_cpu(void);

/* Whether the platform's name has this part: "rusticl", "Oclgrind". */
bool device_platform_contains(const char *part);

/* Whether the driver is one that attention's solver of that name is refused on (QUIRK_TILES_BREAK). */
bool device_breaks(const char *solver);

/* Skips the test, and says so, if this driver's compiled programs are never saved: asking for them may end the process. */
void needs_saved_programs(void);

/* The solver that multiplies bfloat16 in pairs and is faster than fma here, or NULL.  On PoCL /proc/cpuinfo tells:
 * cpu-amx with AMX, cpu-bf16 on AMD's processors with vdpbf16ps. */
const char *device_pairs_solver(void);

/* Asserts that the plan has that solver if `pays`, otherwise none that multiplies in pairs, and says so. */
void device_check_pairs(const clattn_plan *plan, bool pays);

/* Whether kernels in OpenCL C 1.2 can pass values between the items of a sub-group: on GPUs by NVIDIA's and AMD's own
 * drivers, or by Intel's extensions. */
bool device_shuffles(void);

#endif
