#include "tool/attention/snippets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* What precedes the user's text: the library's user_data (attention/user.h), and one work-item a key.  No macro of it is
 * left. */
static const char before[] =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "typedef struct user_data {\n"
    "    const global USER0 *buffer0; const global USER1 *buffer1;\n"
    "    const global USER2 *buffer2; const global USER3 *buffer3;\n"
    "    float scalar0, scalar1, scalar2, scalar3; long position; int query_length, key_length;\n"
    "} user_data;\n"
    "#ifdef SCORE_MOD\nstatic float score_mod(float, int, int, int, int, user_data);\n"
    "#else\n#define score_mod(s, b, h, i, j, u) (s)\n#endif\n"
    "#ifdef MASK_MOD\nstatic int mask_mod(int, int, int, int, user_data);\n"
    "#else\n#define mask_mod(b, h, i, j, u) 1\n#endif\n"
    "kernel void apply(const global USER0 *u0, const global USER1 *u1, const global USER2 *u2,\n"
    "                  const global USER3 *u3, global float *score, global int *keep, int batch, int head,\n"
    "                  int query, float4 scalars, long position, int query_length, int key_length)\n"
    "{\n"
    "    const int key = (int)get_global_id(0);\n"
    "    const user_data user = {u0, u1, u2, u3, scalars.x, scalars.y, scalars.z, scalars.w,\n"
    "                            position, query_length, key_length};\n"
    "    score[key] = score_mod(score[key], batch, head, query, key, user);\n"
    "    keep[key] = mask_mod(batch, head, query, key, user);\n"
    "}\n"
    "#undef score_mod\n#undef mask_mod\n#undef SCORE_MOD\n#undef MASK_MOD\n"
    "#undef USER0\n#undef USER1\n#undef USER2\n#undef USER3\n";

/* The kernel's arguments; the user's buffers are the first. */
enum { SCORES = CLATTN_USER_BUFFERS, KEPT, PLACE, SCALARS = PLACE + 3, POSITION, LENGTHS };

static const char *type_name(clattn_dtype dtype)
{
    switch (dtype) {
    case CLATTN_DTYPE_F32: return "float";
    case CLATTN_DTYPE_F16: return "half";
    case CLATTN_DTYPE_BF16: return "ushort";
    case CLATTN_DTYPE_I8: return "char";
    case CLATTN_DTYPE_I32: return "int";
    case CLATTN_DTYPE_I64: return "long";
    default: return "uchar"; /* bool and uint8, or no buffer */
    }
}

static clattn_status failed(snippets *s, const char *call, cl_int code)
{
    if (code == CL_SUCCESS || s->status != CLATTN_SUCCESS)
        return s->status;
    snprintf(s->device->message, sizeof s->device->message, "%s of the user's functions failed with OpenCL error %d",
             call, (int)code);
    return s->status = CLATTN_ERROR_OPENCL;
}

static clattn_status build(snippets *s)
{
    const attention_request *request = s->request;
    cl_context context = clattn_context_opencl_context(s->device->context);
    const char *text[] = {before, request->score_mod ? request->score_mod : "", "\n\n",
                          request->mask_mod ? request->mask_mod : ""};
    char options[256];
    cl_int code;
    int used = snprintf(options, sizeof options, "-cl-std=CL1.2 -w%s%s", request->score_mod ? " -DSCORE_MOD" : "",
                        request->mask_mod ? " -DMASK_MOD" : "");
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++)
        used += snprintf(options + used, sizeof options - (size_t)used, " -DUSER%d=%s", i,
                         type_name(request->desc.snippets.buffer_dtype[i]));
    s->program = clCreateProgramWithSource(context, 4, text, NULL, &code);
    if (failed(s, "clCreateProgramWithSource", code) == CLATTN_SUCCESS)
        failed(s, "clBuildProgram", clBuildProgram(s->program, 0, NULL, options, NULL, NULL));
    if (s->status == CLATTN_SUCCESS) {
        s->kernel = clCreateKernel(s->program, "apply", &code);
        failed(s, "clCreateKernel", code);
    }
    return s->status;
}

static void set_argument(snippets *s, cl_uint index, size_t bytes, const void *value)
{
    failed(s, "clSetKernelArg", clSetKernelArg(s->kernel, index, bytes, value));
}

clattn_status snippets_open(snippets *s, const attention_request *request, const tool_job *job)
{
    *s = (snippets){.device = job->device, .request = request};
    if (request->score_mod == NULL && request->mask_mod == NULL)
        return CLATTN_SUCCESS;
    s->capacity = size_max(1, request->args.key_length);
    s->score = calloc(s->capacity, sizeof *s->score);
    s->keep = calloc(s->capacity, sizeof *s->keep);
    if (s->score == NULL || s->keep == NULL)
        return s->status = CLATTN_ERROR_OUT_OF_MEMORY;
    s->status = device_output(s->device, s->capacity * sizeof *s->score, &s->scores);
    if (s->status == CLATTN_SUCCESS)
        s->status = device_output(s->device, s->capacity * sizeof *s->keep, &s->kept);
    if (s->status != CLATTN_SUCCESS || build(s) != CLATTN_SUCCESS)
        return s->status;
    cl_float4 scalars;
    memcpy(&scalars, request->args.snippets.scalar, sizeof scalars);
    for (cl_uint i = 0; i < CLATTN_USER_BUFFERS; i++)
        set_argument(s, i, sizeof(cl_mem), &job->args.attention.snippets.buffer[i].buffer);
    set_argument(s, SCORES, sizeof s->scores, &s->scores);
    set_argument(s, KEPT, sizeof s->kept, &s->kept);
    set_argument(s, SCALARS, sizeof scalars, &scalars);
    return s->status;
}

void snippets_close(snippets *s)
{
    if (s->kernel != NULL)
        clReleaseKernel(s->kernel);
    if (s->program != NULL)
        clReleaseProgram(s->program);
    if (s->scores != NULL)
        clReleaseMemObject(s->scores);
    if (s->kept != NULL)
        clReleaseMemObject(s->kept);
    free(s->score);
    free(s->keep);
    *s = (snippets){0};
}

/* Both functions over all keys of a row. */
static void launch(snippets *s, const ref_attention_item *item, int64_t batch, int64_t head, int64_t query)
{
    cl_command_queue queue = s->device->queue;
    const size_t keys = (size_t)item->keys, bytes = keys * sizeof(float);
    const cl_int place[] = {(cl_int)batch, (cl_int)head, (cl_int)query};
    const cl_int lengths[] = {(cl_int)item->queries, (cl_int)item->keys};
    const cl_long position = item->position;
    if (keys == 0 || s->status != CLATTN_SUCCESS)
        return;
    for (cl_uint i = 0; i < 3; i++)
        set_argument(s, PLACE + i, sizeof place[i], &place[i]);
    set_argument(s, POSITION, sizeof position, &position);
    for (cl_uint i = 0; i < 2; i++)
        set_argument(s, LENGTHS + i, sizeof lengths[i], &lengths[i]);
    failed(s, "clEnqueueWriteBuffer",
           clEnqueueWriteBuffer(queue, s->scores, CL_TRUE, 0, bytes, s->score, 0, NULL, NULL));
    failed(s, "clEnqueueNDRangeKernel", clEnqueueNDRangeKernel(queue, s->kernel, 1, NULL, &keys, NULL, 0, NULL, NULL));
    failed(s, "clEnqueueReadBuffer", clEnqueueReadBuffer(queue, s->scores, CL_TRUE, 0, bytes, s->score, 0, NULL, NULL));
    failed(s, "clEnqueueReadBuffer", clEnqueueReadBuffer(queue, s->kept, CL_TRUE, 0, bytes, s->keep, 0, NULL, NULL));
}

static double score_of(void *user, double score, int64_t batch, int64_t head, int64_t query, int64_t key)
{
    snippets *s = user;
    (void)batch, (void)head, (void)query;
    if (!s->collecting)
        return (double)s->score[key];
    s->score[key] = (float)score;
    return score;
}

static bool keeps(void *user, int64_t batch, int64_t head, int64_t query, int64_t key)
{
    const snippets *s = user;
    (void)batch, (void)head, (void)query;
    return s->keep[key] != 0;
}

void snippets_attach(snippets *s, ref_attention_problem *reference)
{
    reference->user = s;
    reference->score_mod = s->request->score_mod != NULL ? score_of : NULL;
    reference->mask_mod = s->request->mask_mod != NULL ? keeps : NULL;
}

void snippets_collect(snippets *s, const ref_attention_item *item, int64_t batch, int64_t head, int64_t query)
{
    memset(s->score, 0, s->capacity * sizeof *s->score);
    if (s->request->mask_mod != NULL)
        launch(s, item, batch, head, query);
    s->collecting = true;
}

void snippets_apply(snippets *s, const ref_attention_item *item, int64_t batch, int64_t head, int64_t query)
{
    if (s->request->score_mod != NULL)
        launch(s, item, batch, head, query);
    s->collecting = false;
}
