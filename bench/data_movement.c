/* Times operators that move memory and that `clattn bench` does not know: data_movement [ROUNDS].
 *
 * Each runs in turn with a kernel that copies 64 MiB.  The program is for CPU devices, because it measures the processor
 * time of all threads, which other work on the machine changes less than the time that passes.  It prints a line for each
 * operator: bytes (each read and written once), the shortest and the median time, the rate of the shortest for each core,
 * the same rate of the copy, and their quotient. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <clattn/clattn.h>

#define MOST 1000
#define BUFFERS 6
#define COPIED ((size_t)64 << 20)
#define PIECE 1024 /* vectors of a work-group */

static clattn_context *context;
static size_t rounds = 41;
static cl_kernel copy;
static cl_mem copies[2];

/* An operator on its arrays. */
struct timed_call {
    const char *name;
    double bytes;
    clattn_plan *plan;
    clattn_status (*enqueue)(const struct timed_call *call, cl_event *event);
    union {
        clattn_activation_args activation;
        clattn_rope_args rope;
        clattn_kv_append_args kv_append;
        clattn_merge_args merge;
        clattn_adam_args adam;
        clattn_square_sum_args square_sum;
        clattn_image_args image;
    } args;
    cl_mem buffers[BUFFERS];
    size_t count;
};

static void check(clattn_status status, const char *what)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "data_movement: %s: %s: %s\n", what, clattn_status_string(status), message);
    exit(1);
}

static double now(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Makes a buffer for an array and counts its bytes; the array holds numbers up to 0.5. */
static clattn_binding array(struct timed_call *call, const clattn_layout *layout)
{
    size_t bytes = clattn_dtype_size(layout->dtype);
    for (int32_t i = 0; i < layout->rank; i++)
        bytes *= layout->extent[i];
    char *data = calloc(bytes, 1);
    bool shorts = layout->dtype == CLATTN_DTYPE_BF16;
    for (size_t i = 0, each = shorts ? 2 : 4; data && i < bytes / each; i++) {
        const union {
            float value;
            uint32_t bits;
        } number = {.value = (float)(i % 1000) * 0.001f - 0.5f};
        const uint32_t stored = shorts ? number.bits >> 16 : number.bits;
        if (shorts)
            memcpy(data + i * each, &(uint16_t){(uint16_t)stored}, each);
        else
            memcpy(data + i * each, &stored, each);
    }
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem buffer = data ? clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, bytes, data, NULL) : NULL;
    free(data);
    if (!buffer) {
        fprintf(stderr, "data_movement: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    call->buffers[call->count++] = buffer;
    call->bytes += (double)bytes;
    return clattn_binding_buffer(buffer, 0);
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void make_copy(void)
{
    const char *text =
        "kernel void copy(global const float16 *x, global float16 *y, int piece) {"
        " size_t at = get_global_id(0) * piece; for (int i = 0; i < piece; i++) y[at + i] = x[at + i]; }";
    const cl_int piece = PIECE;
    cl_context opencl = clattn_context_opencl_context(context);
    cl_program program = clCreateProgramWithSource(opencl, 1, &text, NULL, NULL);
    for (int i = 0; i < 2; i++)
        copies[i] = clCreateBuffer(opencl, CL_MEM_READ_WRITE, COPIED, NULL, NULL);
    if (!program || !copies[0] || !copies[1] || clBuildProgram(program, 0, NULL, NULL, NULL, NULL) != CL_SUCCESS ||
        !(copy = clCreateKernel(program, "copy", NULL)) || clSetKernelArg(copy, 0, sizeof(cl_mem), &copies[0]) ||
        clSetKernelArg(copy, 1, sizeof(cl_mem), &copies[1]) || clSetKernelArg(copy, 2, sizeof piece, &piece)) {
        fprintf(stderr, "data_movement: the copying kernel cannot be made\n");
        exit(1);
    }
    clReleaseProgram(program);
}

static double copied(void)
{
    const size_t items = COPIED / 64 / PIECE, one = 1;
    double begun = now();
    if (clEnqueueNDRangeKernel(clattn_context_queue(context), copy, 1, NULL, &items, &one, 0, NULL, NULL) !=
            CL_SUCCESS ||
        clFinish(clattn_context_queue(context)) != CL_SUCCESS)
        exit(1);
    return now() - begun;
}

static void measure(struct timed_call *call, const char *name)
{
    double seconds[MOST], beside[MOST];
    for (size_t i = 0; i < rounds; i++) {
        cl_event event;
        double begun = now();
        check(call->enqueue(call, &event), name);
        clWaitForEvents(1, &event);
        seconds[i] = now() - begun;
        clReleaseEvent(event);
        beside[i] = copied();
    }
    qsort(seconds, rounds, sizeof *seconds, by_size);
    qsort(beside, rounds, sizeof *beside, by_size);
    double rate = call->bytes / seconds[0] * 1e-9, roof = 2.0 * (double)COPIED / beside[0] * 1e-9;
    printf("%-34s %6.1f MB %8.3f ms %8.3f ms  %6.1f GB/s a core, copying %5.1f: %.2f\n", name, call->bytes * 1e-6,
           seconds[0] * 1e3, seconds[rounds / 2] * 1e3, rate, roof, rate / roof);
    fflush(stdout);
    clattn_plan_release(&call->plan);
    for (size_t i = 0; i < call->count; i++)
        clReleaseMemObject(call->buffers[i]);
}

static clattn_status run_activation(const struct timed_call *call, cl_event *event)
{
    return clattn_activation_enqueue(call->plan, NULL, &call->args.activation, 0, NULL, event);
}

static void activation(const char *name, int32_t function, clattn_dtype dtype)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    struct timed_call call = {.enqueue = run_activation};
    desc.function = function;
    desc.x = desc.y = clattn_layout_contiguous(dtype, 2, (size_t[]){4096, 4096});
    check(clattn_activation_plan_create(context, &desc, NULL, &call.plan), name);
    clattn_activation_args_init(&call.args.activation);
    call.args.activation.x = array(&call, &desc.x);
    call.args.activation.y = array(&call, &desc.y);
    measure(&call, name);
}

static clattn_status run_rope(const struct timed_call *call, cl_event *event)
{
    return clattn_rope_enqueue(call->plan, NULL, &call->args.rope, 0, NULL, event);
}

static void rope(const char *name, int32_t pairing, clattn_dtype dtype)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    struct timed_call call = {.enqueue = run_rope};
    desc.pairing = pairing;
    desc.x = desc.y = clattn_layout_bhsd(dtype, 1, 32, 4096, 128);
    check(clattn_rope_plan_create(context, &desc, NULL, &call.plan), name);
    clattn_rope_args_init(&call.args.rope);
    call.args.rope.x = array(&call, &desc.x);
    call.args.rope.y = array(&call, &desc.y);
    measure(&call, name);
}

static clattn_status run_kv_append(const struct timed_call *call, cl_event *event)
{
    return clattn_kv_append_enqueue(call->plan, NULL, &call->args.kv_append, 0, NULL, event);
}

static void kv_append(const char *name, clattn_dtype cache, bool rotate)
{
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    struct timed_call call = {.enqueue = run_kv_append};
    clattn_kv_append_args *args = &call.args.kv_append;
    desc.rotate = rotate;
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 8, 8192, 128);
    desc.key_cache = desc.value_cache = clattn_layout_bhsd(cache, 1, 8, 8192, 128);
    if (cache == CLATTN_DTYPE_I8)
        desc.key_scale = desc.value_scale = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 8, 8192, 1);
    check(clattn_kv_append_plan_create(context, &desc, NULL, &call.plan), name);
    clattn_kv_append_args_init(args);
    args->key = array(&call, &desc.key);
    args->value = array(&call, &desc.value);
    args->key_cache = array(&call, &desc.key_cache);
    args->value_cache = array(&call, &desc.value_cache);
    if (cache == CLATTN_DTYPE_I8) {
        args->key_scale = array(&call, &desc.key_scale);
        args->value_scale = array(&call, &desc.value_scale);
    }
    measure(&call, name);
}

static clattn_status run_merge(const struct timed_call *call, cl_event *event)
{
    return clattn_merge_enqueue(call->plan, NULL, &call->args.merge, 0, NULL, event);
}

static void merge(const char *name, size_t parts)
{
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    struct timed_call call = {.enqueue = run_merge};
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (size_t[]){parts, 1, 32, 4096 / parts, 128});
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){parts, 1, 32, 4096 / parts});
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 32, 4096 / parts, 128);
    check(clattn_merge_plan_create(context, &desc, NULL, &call.plan), name);
    clattn_merge_args_init(&call.args.merge);
    call.args.merge.partial = array(&call, &desc.partial);
    call.args.merge.partial_lse = array(&call, &desc.partial_lse);
    call.args.merge.output = array(&call, &desc.output);
    measure(&call, name);
}

static clattn_status run_adam(const struct timed_call *call, cl_event *event)
{
    return clattn_adam_enqueue(call->plan, NULL, &call->args.adam, 0, NULL, event);
}

#define PARAMETERS 16777216

static void adam(const char *name, clattn_dtype dtype)
{
    const size_t count = PARAMETERS;
    clattn_adam_desc desc = CLATTN_ADAM_DESC_INIT;
    clattn_adam_args *args;
    struct timed_call call = {.enqueue = run_adam};
    desc.parameter = desc.first_moment = desc.second_moment = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &count);
    desc.gradient = clattn_layout_contiguous(dtype, 1, &count);
    check(clattn_adam_plan_create(context, &desc, NULL, &call.plan), name);
    args = &call.args.adam;
    clattn_adam_args_init(args);
    args->gradient = array(&call, &desc.gradient);
    args->parameter = array(&call, &desc.parameter);
    args->first_moment = array(&call, &desc.first_moment);
    args->second_moment = array(&call, &desc.second_moment);
    call.bytes += 3.0 * sizeof(float) * PARAMETERS; /* they are read and written */
    args->learning_rate = 1e-3;
    args->step = 1;
    measure(&call, name);
}

static clattn_status run_square_sum(const struct timed_call *call, cl_event *event)
{
    return clattn_square_sum_enqueue(call->plan, NULL, &call->args.square_sum, 0, NULL, event);
}

static void square_sum(const char *name, clattn_dtype dtype)
{
    const size_t count = PARAMETERS, one = 1;
    clattn_square_sum_desc desc = CLATTN_SQUARE_SUM_DESC_INIT;
    struct timed_call call = {.enqueue = run_square_sum};
    desc.x = clattn_layout_contiguous(dtype, 1, &count);
    desc.result = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &one);
    check(clattn_square_sum_plan_create(context, &desc, NULL, &call.plan), name);
    clattn_square_sum_args_init(&call.args.square_sum);
    call.args.square_sum.x = array(&call, &desc.x);
    call.args.square_sum.result = array(&call, &desc.result);
    measure(&call, name);
}

static clattn_status run_image(const struct timed_call *call, cl_event *event)
{
    return clattn_image_enqueue(call->plan, NULL, &call->args.image, 0, NULL, event);
}

static void image(const char *name, int32_t operation)
{
    enum { SIDE = 2048 };
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc about = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
    clattn_image_desc desc = CLATTN_IMAGE_DESC_INIT;
    struct timed_call call = {.enqueue = run_image};
    desc.operation = operation;
    desc.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){SIDE, SIDE, 3});
    if (clattn_image_supports(context, &desc, NULL) != CLATTN_SUCCESS)
        return;
    check(clattn_image_plan_create(context, &desc, NULL, &call.plan), name);
    clattn_image_args_init(&call.args.image);
    call.args.image.array = array(&call, &desc.array);
    cl_mem picture =
        clCreateImage(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, &format, &about, NULL, NULL);
    call.buffers[call.count++] = picture;
    call.bytes += 4.0 * SIDE * SIDE;
    call.args.image.image = clattn_binding_image(picture);
    measure(&call, name);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = strtoul(argv[1], NULL, 10);
    if (argc > 2 || rounds < 1 || rounds > MOST) {
        fprintf(stderr, "usage: data_movement [ROUNDS, 1 to %d]\n", MOST);
        return 2;
    }
    check(clattn_context_create(NULL, &context), "context");
    make_copy();
    activation("ReLU, 4096 x 4096", CLATTN_ACTIVATION_RELU, CLATTN_DTYPE_F32);
    activation("GELU, 4096 x 4096", CLATTN_ACTIVATION_GELU, CLATTN_DTYPE_F32);
    activation("GELU by tanh, 4096 x 4096", CLATTN_ACTIVATION_GELU_TANH, CLATTN_DTYPE_F32);
    activation("Swish, 4096 x 4096", CLATTN_ACTIVATION_SWISH, CLATTN_DTYPE_F32);
    activation("GELU, 4096 x 4096, bfloat16", CLATTN_ACTIVATION_GELU, CLATTN_DTYPE_BF16);
    rope("rope by halves, 32 x 4096, d 128", CLATTN_ROPE_PAIRING_HALVES, CLATTN_DTYPE_F32);
    rope("rope interleaved, 32 x 4096, d 128", CLATTN_ROPE_PAIRING_INTERLEAVED, CLATTN_DTYPE_F32);
    kv_append("appending, 8 x 8192, d 128", CLATTN_DTYPE_F32, false);
    kv_append("appending, rotated", CLATTN_DTYPE_F32, true);
    kv_append("appending to int8", CLATTN_DTYPE_I8, false);
    merge("merging 8 parts, 32 x 512, d 128", 8);
    merge("merging 64 parts, 32 x 64, d 128", 64);
    adam("Adam, 2^24 parameters", CLATTN_DTYPE_F32);
    adam("Adam, 2^24 parameters, gradients bfloat16", CLATTN_DTYPE_BF16);
    square_sum("squares, 2^24", CLATTN_DTYPE_F32);
    square_sum("squares, 2^24, bfloat16", CLATTN_DTYPE_BF16);
    image("image 2048 x 2048 to array", CLATTN_IMAGE_OPERATION_PACK);
    image("array to image 2048 x 2048", CLATTN_IMAGE_OPERATION_UNPACK);
    clReleaseKernel(copy);
    clReleaseMemObject(copies[0]);
    clReleaseMemObject(copies[1]);
    clattn_context_release(&context);
    return 0;
}
