/* Attention to a sequence that lies in parts on four ranks: here threads, each of which could have a device of its own. Every rank
 * attends to its own part of keys and values, passes them on and receives the next ones, until it has seen all. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

enum { RANKS = 4, WHOLE = 256, PART = WHOLE / RANKS, HEADS = 2, SIZE = 32, NUMBERS = HEADS * WHOLE * SIZE };

static clattn_context *context;
static cl_mem query, key, value, output; /* (1, heads, whole, size); a rank's part is rows of them */

static void check(clattn_status status)
{
    char message[512];
    clattn_context_message(context, message, sizeof message);
    if (status != CLATTN_SUCCESS) {
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
        exit(1);
    }
}

/* What one rank does. */
static void *attend(void *user)
{
    const clattn_group *group = user;
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_attention_desc part = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    clattn_group_attention *attention;
    cl_event done;
    part.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, PART, SIZE);
    part.query.stride[1] = WHOLE * SIZE; /* from one head's rows to the next one's */
    part.key = part.value = part.output = part.query;
    part.causal = 1; /* in the whole sequence */
    desc.attention = &part;
    args.query = clattn_binding_buffer(query, (int64_t)group->rank * PART * SIZE);
    args.key = clattn_binding_buffer(key, args.query.offset);
    args.value = clattn_binding_buffer(value, args.query.offset);
    args.output = clattn_binding_buffer(output, args.query.offset);
    check(clattn_group_attention_create(context, group, &desc, &attention)); /* all ranks compare what they describe */
    check(clattn_group_attention_run(attention, NULL, &args, 0, NULL, &done));
    clWaitForEvents(1, &done);
    clReleaseEvent(done);
    clattn_group_attention_release(&attention);
    return NULL;
}

int main(void)
{
    static float numbers[3][NUMBERS], expected[NUMBERS], given[NUMBERS];
    clattn_group_local *local;
    clattn_group groups[RANKS];
    pthread_t threads[RANKS];
    float apart = 0;
    for (int i = 0; i < 3 * NUMBERS; i++)
        numbers[i / NUMBERS][i % NUMBERS] = (float)(i * 7919 % 1009) / 505 - 1;
    check(clattn_context_create(NULL, &context));
    cl_context opencl = clattn_context_opencl_context(context);
    query = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof numbers[0], numbers[0], NULL);
    key = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof numbers[1], numbers[1], NULL);
    value = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof numbers[2], numbers[2], NULL);
    output = clCreateBuffer(opencl, CL_MEM_READ_WRITE, sizeof expected, NULL, NULL);

    /* One attention of everything, for comparison. */
    clattn_attention_desc whole = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    whole.query = whole.key = whole.value = whole.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, WHOLE, SIZE);
    whole.causal = 1;
    args.query = clattn_binding_buffer(query, 0);
    args.key = clattn_binding_buffer(key, 0);
    args.value = clattn_binding_buffer(value, 0);
    args.output = clattn_binding_buffer(output, 0);
    check(clattn_attention_run(context, NULL, &whole, &args, 0, NULL, NULL));
    clEnqueueReadBuffer(clattn_context_queue(context), output, CL_TRUE, 0, sizeof expected, expected, 0, NULL, NULL);

    check(clattn_group_local_create(RANKS, 0, &local));
    for (int i = 0; i < RANKS; i++) {
        check(clattn_group_local_rank(local, i, &groups[i]));
        if (pthread_create(&threads[i], NULL, attend, &groups[i]))
            return 1;
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    clattn_group_local_release(&local);
    clEnqueueReadBuffer(clattn_context_queue(context), output, CL_TRUE, 0, sizeof given, given, 0, NULL, NULL);
    for (int i = 0; i < NUMBERS; i++)
        apart = fmaxf(apart, fabsf(given[i] - expected[i]));
    printf("%d ranks of %d tokens differ from one of %d by at most %.1e\n", RANKS, PART, WHOLE, (double)apart);
    clReleaseMemObject(query);
    clReleaseMemObject(key);
    clReleaseMemObject(value);
    clReleaseMemObject(output);
    clattn_context_release(&context);
    return !(apart < 1e-6F);
}
