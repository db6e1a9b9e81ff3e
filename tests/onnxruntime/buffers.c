/* An application in C whose arrays are in OpenCL buffers: it binds them to a session, and compares results with those of ONNX
 * Runtime alone.
 *
 *     buffers libonnxruntime.so libclattn-onnxruntime.so MODEL.onnx
 *
 * The model has the inputs and outputs of the table below: attention with a cache, and nodes that the CPU provider computes. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <onnxruntime/onnxruntime_c_api.h>

enum {
    INPUTS = 7,
    OUTPUTS = 5,
    ARRAYS = INPUTS + OUTPUTS,
    Q = 0,
    K = 1,
    PAST = 3,
    Y = INPUTS,
    PRESENT,
    Z = PRESENT + 2
};
enum { TOTAL = 40, THREADS = 3 };

typedef struct array {
    const char *name;
    ONNXTensorElementDataType type;
    size_t rank;
    int64_t dim[4];
} array;

static const array arrays[ARRAYS] = {
    {"q", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 3, {2, 1, 64}},
    {"k", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 3, {2, 1, 32}},
    {"v", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 3, {2, 1, 32}},
    {"past_key", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4, {2, 2, 64, 16}},
    {"past_value", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4, {2, 2, 64, 16}},
    {"last", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 1, {2}},
    {"total", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 0, {0}},
    {"y", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 3, {2, 1, 64}}, /* attention's */
    {"present_key", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4, {2, 2, 64, 16}},
    {"present_value", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4, {2, 2, 64, 16}},
    {"z", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 3, {2, 1, 64}}, /* the CPU provider's, of y */
    {"w", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 3, {2, 1, 64}}, /* the same of q */
};

static const OrtApi *ort;
static const OrtMemoryInfo *on_device;
static cl_context context;
static cl_command_queue queue;
static float input[INPUTS][4096], expected[OUTPUTS][4096];

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check(OrtStatus *status)
{
    if (status)
        fail(ort->GetErrorMessage(status));
}

static size_t bytes_of(const array *a)
{
    size_t bytes = 4;
    for (size_t i = 0; i < a->rank; i++)
        bytes *= (size_t)a->dim[i];
    return bytes;
}

static void fill_inputs(void)
{
    for (size_t i = 0; i < INPUTS; i++)
        for (size_t n = 0; n < 4096; n++)
            input[i][n] = sinf((float)(n * (2 * i + 3)));
    for (size_t n = 0; n < 2; n++)
        memcpy(&input[5][n], &(int32_t){TOTAL - 1}, 4);
    memcpy(input[6], &(int32_t){TOTAL}, 4);
}

static OrtValue *make_value(const OrtMemoryInfo *memory, const array *a, void *data)
{
    OrtValue *value = NULL;
    check(ort->CreateTensorWithDataAsOrtValue(memory, data, bytes_of(a), a->dim, a->rank, a->type, &value));
    return value;
}

/* What ONNX Runtime computes alone. */
static void run_plain(OrtSession *session, float (*result)[4096])
{
    const char *names[ARRAYS];
    OrtMemoryInfo *memory;
    OrtValue *value[ARRAYS] = {NULL};
    float *data;
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (size_t i = 0; i < ARRAYS; i++) {
        names[i] = arrays[i].name;
        if (i < INPUTS)
            value[i] = make_value(memory, &arrays[i], input[i]);
    }
    check(ort->Run(session, NULL, names, (const OrtValue *const *)value, INPUTS, &names[INPUTS], OUTPUTS,
                   &value[INPUTS]));
    for (size_t i = 0; i < ARRAYS; i++) {
        if (i >= INPUTS) {
            check(ort->GetTensorMutableData(value[i], (void **)&data));
            memcpy(result[i - INPUTS], data, bytes_of(&arrays[i]));
        }
        ort->ReleaseValue(value[i]);
    }
    ort->ReleaseMemoryInfo(memory);
}

/* ---- buffers ---- */

static cl_mem make_buffer(cl_context in, cl_mem_flags flags, size_t bytes, void *data)
{
    cl_int code;
    const cl_mem buffer = clCreateBuffer(in, flags | (data ? CL_MEM_COPY_HOST_PTR : 0), bytes, data, &code);
    if (code != CL_SUCCESS)
        fail("clCreateBuffer failed");
    return buffer;
}

static cl_context open_device(cl_command_queue *opened, cl_command_queue_properties properties)
{
    cl_platform_id platform[16];
    cl_uint count = 0;
    cl_device_id device = NULL;
    char name[256] = "";
    clGetPlatformIDs(16, platform, &count);
    while (count-- && !strstr(name, "Portable")) {
        clGetPlatformInfo(platform[count], CL_PLATFORM_NAME, sizeof name, name, NULL);
        clGetDeviceIDs(platform[count], CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    }
    cl_context made = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    *opened = made ? clCreateCommandQueue(made, device, properties, NULL) : NULL;
    if (!*opened)
        fail("there is no PoCL");
    return made;
}

/* Bound arrays, each in a buffer; the cache is written where it is read. */
typedef struct bound {
    OrtIoBinding *binding;
    cl_mem buffer[ARRAYS];
} bound;

static OrtStatus *bind(bound *b, size_t i, cl_mem buffer)
{
    OrtValue *value = make_value(on_device, &arrays[i], buffer);
    OrtStatus *status = i < INPUTS ? ort->BindInput(b->binding, arrays[i].name, value)
                                   : ort->BindOutput(b->binding, arrays[i].name, value);
    ort->ReleaseValue(value);
    return status;
}

static void bind_all(OrtSession *session, bound *b)
{
    check(ort->CreateIoBinding(session, &b->binding));
    for (size_t i = 0; i < ARRAYS; i++) {
        if (i == PRESENT || i == PRESENT + 1) {
            b->buffer[i] = b->buffer[i - PRESENT + PAST];
            clRetainMemObject(b->buffer[i]);
        } else /* arrays that only clattn reads may not come to the host */
            b->buffer[i] = make_buffer(context, i >= K && i <= PAST + 1 ? CL_MEM_HOST_NO_ACCESS : 0,
                                       bytes_of(&arrays[i]), i < INPUTS ? input[i] : NULL);
        check(bind(b, i, b->buffer[i]));
    }
}

static void release(bound *b)
{
    ort->ReleaseIoBinding(b->binding);
    for (size_t i = 0; i < ARRAYS; i++)
        clReleaseMemObject(b->buffer[i]);
}

static float compare(const bound *b, size_t i, const float *right)
{
    static _Thread_local float read[4096];
    float most = 0.0f;
    const size_t bytes = bytes_of(&arrays[i]);
    const cl_mem readable = make_buffer(context, 0, bytes, NULL);
    if (clEnqueueCopyBuffer(queue, b->buffer[i], readable, 0, 0, bytes, 0, NULL, NULL) != CL_SUCCESS ||
        clEnqueueReadBuffer(queue, readable, CL_TRUE, 0, bytes, read, 0, NULL, NULL) != CL_SUCCESS)
        fail("reading a buffer failed");
    clReleaseMemObject(readable);
    for (size_t n = 0; n < bytes / 4; n++)
        if ((i != PRESENT && i != PRESENT + 1) || n / 16 % 64 < TOTAL) /* what is behind is left as it was */
            most = fmaxf(most, fabsf(read[n] - right[n]));
    return most;
}

/* ---- tests ---- */

static void *run_bound(void *session)
{
    bound b;
    bind_all(session, &b);
    for (int again = 0; again < 4; again++) {
        check(ort->RunWithBinding(session, NULL, b.binding));
        for (size_t i = INPUTS; i < ARRAYS; i++)
            if (!(compare(&b, i, expected[i - INPUTS]) < 1e-4f)) {
                fprintf(stderr, "%s is off by %g\n", arrays[i].name, (double)compare(&b, i, expected[i - INPUTS]));
                exit(1);
            }
    }
    release(&b);
    return NULL;
}

/* An output whose memory ONNX Runtime asks for is an input of the next run. */
static void run_twice(OrtSession *session, OrtSession *plain)
{
    static float twice[OUTPUTS][4096];
    OrtAllocator *allocator;
    OrtValue **results;
    size_t count;
    bound b;
    bind_all(session, &b);
    check(ort->BindOutputToDevice(b.binding, "y", on_device));
    check(ort->RunWithBinding(session, NULL, b.binding));
    check(ort->GetAllocatorWithDefaultOptions(&allocator));
    check(ort->GetBoundOutputValues(b.binding, allocator, &results, &count));
    check(ort->BindInput(b.binding, "q", results[0]));
    check(bind(&b, Y, b.buffer[Y]));
    check(ort->RunWithBinding(session, NULL, b.binding));
    memcpy(input[Q], expected[0], bytes_of(&arrays[Q]));
    run_plain(plain, twice);
    if (!(compare(&b, Y, twice[0]) < 1e-4f && compare(&b, Z, twice[Z - INPUTS]) < 1e-4f))
        fail("a second run's results are wrong");
    fill_inputs();
    for (size_t i = 0; i < count; i++)
        ort->ReleaseValue(results[i]);
    check(ort->AllocatorFree(allocator, results));
    release(&b);
}

/* Whether a call is refused with that text. */
static void refuse(OrtStatus *status, const char *text)
{
    if (!status || !strstr(ort->GetErrorMessage(status), text)) {
        fprintf(stderr, "expected '%s', not '%s'\n", text, status ? ort->GetErrorMessage(status) : "");
        exit(1);
    }
    ort->ReleaseStatus(status);
}

static void run_wrong(OrtSession *session)
{
    cl_command_queue other_queue;
    const cl_context other = open_device(&other_queue, 0);
    const size_t bytes = bytes_of(&arrays[Y]);
    const cl_mem small = make_buffer(context, 0, bytes - 4, NULL), foreign = make_buffer(other, 0, bytes, NULL);
    const cl_mem short_key = make_buffer(context, 0, bytes_of(&arrays[K]) - 4, NULL);
    bound b;
    bind_all(session, &b);
    check(bind(&b, Y, small));
    refuse(ort->RunWithBinding(session, NULL, b.binding), "an array has 512 bytes, but its cl_mem only 508");
    check(bind(&b, Y, foreign));
    refuse(ort->RunWithBinding(session, NULL, b.binding), "is no cl_mem of a session's context");
    check(bind(&b, Y, (cl_mem)((char *)b.buffer[Y] + 1)));
    refuse(ort->RunWithBinding(session, NULL, b.binding), "is no cl_mem of a session's context");
    check(bind(&b, Y, b.buffer[Y]));
    check(bind(&b, K, short_key));
    refuse(ort->RunWithBinding(session, NULL, b.binding), "an array has 256 bytes, but its cl_mem only 252");
    refuse(bind(&b, Q, small), "an array has 512 bytes, but its cl_mem only 508"); /* copied for the CPU provider */
    release(&b);
    clReleaseMemObject(small);
    clReleaseMemObject(short_key);
    clReleaseMemObject(foreign);
    clReleaseCommandQueue(other_queue);
    clReleaseContext(other);
}

static void *bind_from_host(void *binding)
{
    OrtMemoryInfo *memory;
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    OrtValue *value = make_value(memory, &arrays[K], input[K]);
    check(ort->BindInput(binding, arrays[K].name, value));
    ort->ReleaseValue(value);
    ort->ReleaseMemoryInfo(memory);
    return NULL;
}

/* While a copy of one session waits for its queue, a session of another context runs. */
static void run_beside(OrtSession *session, OrtSession *other)
{
    static float result[OUTPUTS][4096];
    OrtIoBinding *binding;
    pthread_t thread;
    const cl_event event = clCreateUserEvent(context, NULL);
    if (!event || clEnqueueBarrierWithWaitList(queue, 1, &event, NULL) != CL_SUCCESS)
        fail("a queue cannot be made to wait");
    check(ort->CreateIoBinding(session, &binding));
    alarm(60); /* instead of waiting for ever */
    pthread_create(&thread, NULL, bind_from_host, binding);
    usleep(200000);
    run_plain(other, result);
    clSetUserEventStatus(event, CL_COMPLETE);
    pthread_join(thread, NULL);
    alarm(0);
    for (size_t n = 0; n < bytes_of(&arrays[Y]) / 4; n++)
        if (!(fabsf(result[0][n] - expected[0][n]) < 1e-4f))
            fail("a session of another context computes something else");
    ort->ReleaseIoBinding(binding);
    clReleaseEvent(event);
}

/* ---- sessions ---- */

static OrtStatus *open_session(OrtEnv *env, const char *model, const char *key, const char *value, OrtSession **session)
{
    OrtSessionOptions *options;
    const OrtEpDevice *const *devices;
    size_t count, i = 0;
    OrtStatus *status = NULL;
    check(ort->CreateSessionOptions(&options));
    check(ort->SetSessionLogSeverityLevel(options, 4));
    if (key) {
        check(ort->GetEpDevices(env, &devices, &count));
        while (i < count && strcmp(ort->EpDevice_EpName(devices[i]), "ClattnOpenCLExecutionProvider") != 0)
            i++;
        if (i == count)
            fail("there is no ClattnOpenCLExecutionProvider");
        on_device = ort->EpDevice_MemoryInfo(devices[i], OrtDeviceMemoryType_DEFAULT);
        status = ort->SessionOptionsAppendExecutionProvider_V2(options, env, &devices[i], 1, &key, &value, 1);
    }
    if (!status)
        status = ort->CreateSession(env, model, options, session);
    ort->ReleaseSessionOptions(options);
    return status;
}

static void refuse_queues(OrtEnv *env, const char *model)
{
    cl_command_queue unordered;
    const cl_context of = open_device(&unordered, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    OrtSession *session;
    char number[32];
    snprintf(number, sizeof number, "%p", (void *)unordered);
    refuse(open_session(env, model, "queue", number, &session), "out of order");
    const char *const wrong[] = {"mine", "-8", "+8", " 8", "010", "0x", "", "99999999999999999999", "8 "};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refuse(open_session(env, model, "queue", wrong[i], &session), "expected the address of a cl_command_queue");
    clReleaseCommandQueue(unordered);
    clReleaseContext(of);
}

int main(int argc, char **argv)
{
    OrtEnv *env;
    OrtSession *session, *other, *plain;
    pthread_t thread[THREADS];
    char number[32];
    void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        fail("usage: buffers libonnxruntime.so libclattn-onnxruntime.so MODEL.onnx");
    ort = ((const OrtApiBase *(*)(void))dlsym(library, "OrtGetApiBase"))()->GetApi(ORT_API_VERSION);
    context = open_device(&queue, 0);
    snprintf(number, sizeof number, "%p", (void *)queue);
    fill_inputs();
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "buffers", &env));
    check(ort->RegisterExecutionProviderLibrary(env, "clattn", argv[2]));
    check(open_session(env, argv[3], "queue", number, &session));
    check(open_session(env, argv[3], "device", "pocl", &other));
    check(open_session(env, argv[3], NULL, NULL, &plain));
    run_plain(plain, expected);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, run_bound, session);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    run_twice(session, plain);
    run_wrong(session);
    run_bound(session);
    run_beside(session, other);
    refuse_queues(env, argv[3]);
    ort->ReleaseSession(session);
    ort->ReleaseSession(other);
    ort->ReleaseSession(plain);
    check(ort->UnregisterExecutionProviderLibrary(env, "clattn"));
    ort->ReleaseEnv(env);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    printf("results in buffers are right\n");
    return 0;
}
