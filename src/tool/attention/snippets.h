/* The user's score and mask functions, run for the reference: it has no OpenCL compiler, so the device
 * computes them, a row at a time and in a kernel that has nothing else in it.  What --verify then compares is
 * all but these functions.
 *
 * A row's scores are known only while the reference computes it, so each row is computed twice: the first
 * time its scores are collected and come back as they are, then the device turns all of them into what the
 * function says, and the second time that is what comes back. */
#ifndef CLATTN_TOOL_ATTENTION_SNIPPETS_H
#define CLATTN_TOOL_ATTENTION_SNIPPETS_H

#include "tool/run/job.h"
#include "ref/attention.h"

/* Zeroed: none.  Release with snippets_close. */
typedef struct snippets {
    tool_device *device;
    const attention_request *request;
    cl_program program;
    cl_kernel kernel;
    cl_mem scores, kept;
    float *score;
    cl_int *keep;
    size_t capacity; /* keys of a row */
    bool collecting;
    clattn_status status; /* of the first failure */
} snippets;

/* Builds the kernel; the job has the user's buffers.  Nothing to do for a request without functions. */
clattn_status snippets_open(snippets *s, const attention_request *request, const tool_job *job);
void snippets_close(snippets *s);

static inline bool snippets_present(const snippets *s)
{
    return s->kernel != NULL;
}

/* Makes the reference call the functions. */
void snippets_attach(snippets *s, ref_attention_problem *reference);

/* Begins a row: which keys mask_mod keeps, and scores are collected from here on. */
void snippets_collect(snippets *s, const ref_attention_item *item, int64_t batch, int64_t head, int64_t query);

/* Applies score_mod to what was collected, and gives it out from here on. */
void snippets_apply(snippets *s, const ref_attention_item *item, int64_t batch, int64_t head, int64_t query);

#endif
