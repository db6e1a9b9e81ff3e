/* An application in C that uses the provider as darktable uses others: it opens ONNX Runtime and the provider by their paths,
 * and computes a model with it and without.
 *
 *     session libonnxruntime.so libclattn-onnxruntime.so MODEL.onnx
 *
 * The model has the inputs q, k and v, float32, and the output y; each input is (2, 4, 33, 16). */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnxruntime/onnxruntime_c_api.h>

enum { COUNT = 2 * 4 * 33 * 16 };
static const int64_t shape[] = {2, 4, 33, 16};

static const OrtApi *ort;

static void check(OrtStatus *status)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
    exit(1);
}

static OrtSession *open_session(OrtEnv *env, const char *model, bool with_provider)
{
    OrtSessionOptions *options;
    OrtSession *session;
    const OrtEpDevice *const *devices;
    size_t count, i = 0;
    check(ort->CreateSessionOptions(&options));
    if (with_provider) {
        check(ort->GetEpDevices(env, &devices, &count));
        while (i < count && strcmp(ort->EpDevice_EpName(devices[i]), "ClattnExecutionProvider") != 0)
            i++;
        if (i == count) {
            fprintf(stderr, "there is no ClattnExecutionProvider\n");
            exit(1);
        }
        static const char *const key = "device", *const value = "pocl";
        check(ort->SessionOptionsAppendExecutionProvider_V2(options, env, &devices[i], 1, &key, &value, 1));
    }
    check(ort->CreateSession(env, model, options, &session));
    ort->ReleaseSessionOptions(options);
    return session;
}

/* `pinned`: the inputs are in the host's memory that belongs to another provider's device. */
static void run(OrtSession *session, float *const inputs[3], float *output, bool pinned)
{
    static const char *const names[] = {"q", "k", "v"}, *const result = "y";
    OrtMemoryInfo *memory;
    OrtValue *values[3], *made = NULL;
    float *data;
    check(pinned ? ort->CreateMemoryInfo_V2("CudaPinned", OrtMemoryInfoDeviceType_GPU, 0x10DE, 0,
                                            OrtDeviceMemoryType_HOST_ACCESSIBLE, 0, OrtDeviceAllocator, &memory)
                 : ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (size_t i = 0; i < 3; i++)
        check(ort->CreateTensorWithDataAsOrtValue(memory, inputs[i], COUNT * sizeof(float), shape, 4,
                                                  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &values[i]));
    check(ort->Run(session, NULL, names, (const OrtValue *const *)values, 3, &result, 1, &made));
    check(ort->GetTensorMutableData(made, (void **)&data));
    memcpy(output, data, COUNT * sizeof(float));
    for (size_t i = 0; i < 3; i++)
        ort->ReleaseValue(values[i]);
    ort->ReleaseValue(made);
    ort->ReleaseMemoryInfo(memory);
}

int main(int argc, char **argv)
{
    static float input[3][COUNT], ours[COUNT], theirs[COUNT];
    float *const inputs[] = {input[0], input[1], input[2]};
    float most = 0.0f;
    OrtEnv *env;
    void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "usage: session libonnxruntime.so libclattn-onnxruntime.so MODEL.onnx\n");
        return 2;
    }
    const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(library, "OrtGetApiBase");
    ort = base()->GetApi(ORT_API_VERSION);
    for (size_t i = 0; i < 3; i++)
        for (size_t n = 0; n < COUNT; n++)
            input[i][n] = sinf((float)(n * (2 * i + 3)));
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "session", &env));
    check(ort->RegisterExecutionProviderLibrary(env, "clattn", argv[2]));
    for (int again = 0; again < 3; again++) {
        OrtSession *with = open_session(env, argv[3], true), *without = open_session(env, argv[3], false);
        run(with, inputs, ours, again == 2);
        run(without, inputs, theirs, false);
        for (size_t n = 0; n < COUNT; n++)
            most = fmaxf(most, fabsf(ours[n] - theirs[n]));
        ort->ReleaseSession(with);
        ort->ReleaseSession(without);
    }
    check(ort->UnregisterExecutionProviderLibrary(env, "clattn"));
    ort->ReleaseEnv(env);
    printf("the largest difference is %g\n", (double)most);
    return most < 1e-5f ? 0 : 1;
}
