/* An ONNX Runtime that is older than the headers, as a provider is to refuse it: a table without the version that it asks for.
 *
 *     older LIBRARY libclattn-onnxruntime.so MODEL
 *
 * The other arguments are those of session.c, and not used. */
#include <dlfcn.h>
#include <stdio.h>

#include <onnxruntime/onnxruntime_c_api.h>

static char status; /* its address stands for a status */

static OrtStatus *ORT_API_CALL create_status(OrtErrorCode code, const char *message) NO_EXCEPTION
{
    printf("status %d: %s\n", (int)code, message);
    return (OrtStatus *)(void *)&status;
}

static const OrtApi old = {.CreateStatus = create_status};

static const OrtApi *ORT_API_CALL get_api(uint32_t version) NO_EXCEPTION
{
    return version < ORT_API_VERSION ? &old : NULL;
}

int main(int argc, char **argv)
{
    const OrtApiBase base = {.GetApi = get_api};
    OrtEpFactory *factories[2] = {NULL, NULL};
    size_t count = 0;
    void *provider = argc == 4 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!provider) {
        fprintf(stderr, "usage: older LIBRARY libclattn-onnxruntime.so MODEL\n");
        return 2;
    }
    OrtStatus *(*create)(const char *, const OrtApiBase *, const OrtLogger *, OrtEpFactory **, size_t, size_t *) =
        (OrtStatus * (*)(const char *, const OrtApiBase *, const OrtLogger *, OrtEpFactory **, size_t, size_t *))
            dlsym(provider, "CreateEpFactories");
    OrtStatus *made = create("clattn", &base, NULL, factories, 2, &count);
    dlclose(provider);
    return made == (OrtStatus *)(void *)&status && count == 0 ? 0 : 1;
}
