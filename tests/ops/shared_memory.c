/* An application shares memory with OpenGL, with Vulkan or with another process (a GL object, a DMA-BUF): it may be touched only
 * between the application's acquire and release commands.  Here an event stands for the acquire, and what is enqueued is
 * looked at: the operators' commands (embedding's have not been) that touch the caller's memory wait for that event, and the
 * event that the enqueue gives waits for them; a later enqueue of the same plan with other memory touches none of it.
 *
 * Holds: docs/applications.md, "memory that is shared with graphics". */
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"
#include "support/core/record.h"
#include "support/ops/each.h"
#include "support/ops/image_case.h"
#include "support/ops/matmul_case.h"
#include "support/ops/mha_case.h"

static const attention_case attentions[] = {
    {"every array", ALL, LITTLE, .mask = MASK_BOOL, .causal = true, .alibi = 1, .sinks = true, .entropy = true,
     .list = {.keys = LIST(7, 9)}},
    {"pages of int8", ALL, .dim = {2, 2, 1, 5, 16, 8, 8}, .pages = 10, .page_size = 4, .cache = CLATTN_CACHE_KIND_PAGED,
     .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8}, .key_groups = 1, .value_groups = 1},
    {"scores, by a kernel of their own", ALL, LITTLE, .scores = SCORES_OF(PROBABILITIES)},
    {"parts of keys, merged", BIG, .dim = {1, 2, 1, 1, 4099, 8, 8}},
};
static const matmul_case products[] = {
    {"packed, with bias and addend", ALL, .m = 37, .n = 29, .k = 23, .bias = true, .operand = OPERAND_ADD},
    {"few rows", ALL, .m = 2, .n = 29, .k = 23},
};
static const mha_case mhas[] = {
    {"self-attention", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true, .bias_in = true},
};
static const image_case images[] = {
    {"packed", ALL, .operation = CLATTN_IMAGE_OPERATION_PACK, .type = CL_UNORM_INT8, .channels = 3, .image = {5, 3},
     .region = {5, 3}},
    {"unpacked", ALL, .operation = CLATTN_IMAGE_OPERATION_UNPACK, .type = CL_UNORM_INT8, .channels = 3, .image = {5, 3},
     .region = {5, 3}},
};

/* A buffer of the same size, with the same content. */
static cl_mem copy_of(cl_mem buffer)
{
    size_t bytes;
    cl_int code;
    cl_event copied;
    cl_command_queue queue = clattn_context_queue(device_context());
    assert_cl(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL));
    cl_mem copy = clCreateBuffer(clattn_context_opencl_context(device_context()), 0, bytes, NULL, &code);
    assert_cl(code);
    assert_cl(clEnqueueCopyBuffer(queue, buffer, copy, 0, 0, bytes, 0, NULL, &copied));
    assert_cl(clWaitForEvents(1, &copied));
    assert_cl(clReleaseEvent(copied));
    return copy;
}

/* Binds `to` wherever the arguments have `from`. */
static void rebind(test_job *job, cl_mem from, cl_mem to)
{
    unsigned char *bytes = (unsigned char *)&job->args;
    for (size_t at = 0; at + sizeof from <= sizeof job->args; at += sizeof from)
        if (!memcmp(bytes + at, &from, sizeof from))
            memcpy(bytes + at, &to, sizeof to);
}

static void wait_for(cl_event event)
{
    assert_cl(clWaitForEvents(1, &event));
    assert_cl(clReleaseEvent(event));
}

static void run_shared(test_job *job, cl_command_queue queue)
{
    cl_mem shared[COUNT_OF(job->memory) + 1], copies[COUNT_OF(job->memory)];
    size_t count = 0;
    cl_event acquired = new_user_event(clattn_context_opencl_context(device_context())), done = NULL;
    for (size_t i = 0; i < job->memory_count; i++)
        shared[count++] = job->memory[i]->buffer;
    if (job->calls == &image_operator)
        shared[count++] = job->args.image.image.buffer;
    job_poison(job);
    record_begin(shared, count, acquired);
    clattn_status status = job_enqueue(job, queue, 1, &acquired, &done);
    const recorded inside = record_end(done);
    assert_cl(clSetUserEventStatus(acquired, CL_COMPLETE));
    assert_status(device_context(), status, CLATTN_SUCCESS);
    wait_for(done);
    assert_true(inside.touching > 0);
    assert_int_equal(inside.early, 0);
    assert_int_equal(inside.late, 0);
    /* The memory is the graphics' own again. */
    if (job->calls != &image_operator) {
        for (size_t i = 0; i < count; i++)
            rebind(job, shared[i], copies[i] = copy_of(shared[i]));
        record_begin(shared, count, acquired);
        assert_status(device_context(), job_enqueue(job, queue, 0, NULL, &done), CLATTN_SUCCESS);
        const recorded outside = record_end(done);
        wait_for(done);
        assert_int_equal(outside.touching, 0);
        for (size_t i = 0; i < count; i++) {
            rebind(job, copies[i], shared[i]);
            assert_cl(clReleaseMemObject(copies[i]));
        }
    }
    record_begin(NULL, 0, NULL);
    assert_cl(clReleaseEvent(acquired));
}

static void before_run(test_job *job)
{
    cl_command_queue queue = new_queue(device_context(), true);
    run_shared(job, NULL);
    if (queue) {
        run_shared(job, queue);
        assert_cl(clReleaseCommandQueue(queue));
    }
    job_poison(job);
}

int main(int argc, char **argv)
{
    job_before = (job_hooks){NULL, before_run};
    device_use_functions(record_get_proc);
    attention_add(attentions, COUNT_OF(attentions));
    matmul_add(products, COUNT_OF(products));
    mha_add(mhas, COUNT_OF(mhas));
    each_operator_add();
    for (size_t i = 0; i < COUNT_OF(images); i++)
        for (size_t s = 0; s < IMAGE_SOLVERS; s++)
            suite_add_case(image_check, &images[i], image_solvers[s], "image %s: %s", image_solvers[s], images[i].rule);
    return suite_run("shared_memory", argc, argv);
}
