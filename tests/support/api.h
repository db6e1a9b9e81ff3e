/* What the API tests share: a context on the device under test, buffers, a small independent reference, and the
 * counts that run.sh adds up.  cmocka first, then this. */
#ifndef TESTS_API_H
#define TESTS_API_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clattn/clattn.h"

/* CLATTN_TEST_LEVEL is "tiny": a simulator runs the kernels a thousand times slower, so loops stay short. */
bool support_tiny(void);

/* A context on the device under test: the one that CLATTN_DEVICE names, otherwise the library's choice; with the
 * default cache.  Fails the test with the library's message if there is none. */
clattn_context *support_context(void);

/* The same from params; `params` is not modified. */
clattn_context *support_context_with(const clattn_context_params *params);

/* Counts the context's programs, built or loaded, and releases it. */
void support_release(clattn_context **context);

/* Runs the group and prints, after cmocka's own lines, how many programs its contexts had. */
int support_run(const char *name, const struct CMUnitTest *tests, size_t count);
#define SUPPORT_RUN(name, tests) support_run((name), (tests), sizeof(tests) / sizeof((tests)[0]))

/* Fails the test unless `got` is `expected`; shows both and the message of `context` (NULL: the thread's). */
void support_status_at(const clattn_context *context, clattn_status got, clattn_status expected, const char *what,
                       const char *file, int line);
#define assert_status(context, call, expected) \
    support_status_at((context), (call), (expected), #call, __FILE__, __LINE__)

/* The same, but any status is right that `set` has; `set` is a bit set of 1 << status. */
void support_status_in_at(const clattn_context *context, clattn_status got, unsigned set, const char *what,
                          const char *file, int line);
#define STATUS_BIT(status) (1u << (unsigned)(status))
#define assert_status_in(context, call, set) support_status_in_at((context), (call), (set), #call, __FILE__, __LINE__)

/* Fails unless the message of `context` (NULL: the thread's) holds `part`. */
void support_message_has_at(const clattn_context *context, const char *part, const char *file, int line);
#define assert_message_has(context, part) support_message_has_at((context), (part), __FILE__, __LINE__)

/* A buffer of `bytes` in an OpenCL context, with `data` copied in (NULL: every byte 0xff, so floats are NaN). */
cl_mem support_buffer(cl_context context, cl_mem_flags flags, size_t bytes, const void *data);

/* Waits for `queue`, then reads `bytes`. */
void support_read(cl_command_queue queue, cl_mem buffer, size_t bytes, void *data);

/* Reproducible values in [-1, 1). */
void support_fill(float *values, size_t count, uint32_t seed);

/* Largest absolute difference; NaN counts as infinite. */
double support_difference(const float *got, const float *expected, size_t count);

/* Attention on contiguous (batch*heads, length, size) arrays in double precision, scale 1/sqrt(d_k). */
void support_attention(size_t heads, size_t queries, size_t keys, size_t d_k, size_t d_v, bool causal, const float *q,
                       const float *k, const float *v, float *out);

/* Softmax of contiguous rows in double precision. */
void support_softmax(size_t rows, size_t columns, const float *x, float *y);

/* A small attention problem that is ready to run: descriptor, arguments, buffers in the context's OpenCL
 * context and the expected output. */
struct small_attention {
    clattn_attention_desc desc;
    clattn_attention_args args;
    cl_mem query, key, value, output;
    float *expected;
    size_t count; /* elements of the output */
};

/* Host part: descriptor and expected values; then the buffers in `context` (and the args).  release frees both. */
void small_attention_prepare(struct small_attention *problem);
void small_attention_buffers(struct small_attention *problem, cl_context context);
void small_attention_release(struct small_attention *problem);

/* Waits for the queue and fails the test unless the output is right.  Poisons the output again. */
void small_attention_check(struct small_attention *problem, cl_command_queue queue);

/* Reference counts of an application's objects, when all that was enqueued has completed and the buffers that
 * it used have been released. */
struct reference_counts {
    cl_uint context, queue;
};
struct reference_counts support_references(cl_context context, cl_command_queue queue);

/* Fails unless they are `expected` within two seconds: an event's callback may return a reference late. */
void support_references_are_at(cl_context context, cl_command_queue queue, struct reference_counts expected,
                               const char *file, int line);
#define assert_references(context, queue, expected) \
    support_references_are_at((context), (queue), (expected), __FILE__, __LINE__)

/* Makes a new empty folder, mode 0700, in the current directory and puts its absolute name into `path`.
 * support_run removes it at the end. */
#define SUPPORT_PATH 1024
void support_folder(char path[SUPPORT_PATH]);

#endif
