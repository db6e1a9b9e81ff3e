/* The execution provider: what ONNX Runtime opens, asks which nodes it takes, and lets compute them.
 *
 * The interface is that of the plug-in providers of ONNX Runtime 1.23 and later: a factory for each loaded library, and a
 * provider for each session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define NAME "ClattnExecutionProvider"
#define EXPORT __attribute__((visibility("default")))
#define PREFIX "ep.clattnexecutionprovider." /* of the names of options in a session's options */

typedef struct factory {
    OrtEpFactory base; /* first, so that a pointer to it is one to the factory */
    const OrtApi *ort;
    const OrtEpApi *ep;
} factory;

typedef struct provider {
    OrtEp base;
    const OrtApi *ort;
    const OrtEpApi *ep;
    const OrtLogger *logger;
    clattn_context *context;
    struct cl_table cl;
    bool shares; /* the device's memory is the host's */
} provider;

/* The node that replaces a group. */
typedef struct compiled {
    OrtNodeComputeInfo base;
    provider *owner;
    group what;
    run_places places;
} compiled;

static void write_log(const provider *p, OrtLoggingLevel level, const char *text)
{
    OrtStatus *failure = p->ort->Logger_LogMessage(p->logger, level, text, ORT_FILE, __LINE__, NAME);
    if (failure)
        p->ort->ReleaseStatus(failure);
}

/* ---- computing ---- */

static OrtStatus *ORT_API_CALL create_state(OrtNodeComputeInfo *info, OrtNodeComputeContext *context, void **state)
{
    (void)context;
    *state = info;
    return NULL;
}

static OrtStatus *ORT_API_CALL compute(OrtNodeComputeInfo *info, void *state, OrtKernelContext *arrays)
{
    const compiled *c = (const compiled *)(const void *)info;
    (void)state;
    return run_group(c->owner->ort, &c->owner->cl, c->owner->context, c->owner->shares, &c->what, &c->places, arrays);
}

static void ORT_API_CALL release_state(OrtNodeComputeInfo *info, void *state)
{
    (void)info;
    (void)state;
}

/* Which inputs of the replacing node the group's arrays are. */
static OrtStatus *find_places(const provider *p, const OrtNode *fused, const graph *g, compiled *c)
{
    const OrtApi *ort = p->ort;
    OrtStatus *failure = NULL;
    const size_t wanted[RUN_INPUTS] = {c->what.query.value, c->what.key.value, c->what.value.value, c->what.mask};
    size_t count = 0;
    const OrtValueInfo **inputs = NULL;
    ORT_TRY(ort->Node_GetNumInputs(fused, &count));
    inputs = calloc(count + 1, sizeof *inputs);
    if (!inputs)
        return ort_failure(ort, ORT_FAIL, "clattn: no memory for a node");
    ORT_TRY(ort->Node_GetInputs(fused, inputs, count));
    for (size_t i = 0; i < RUN_INPUTS; i++) {
        c->places.input[i] = NO_PLACE;
        for (size_t n = 0; n < count && wanted[i] != NO_PLACE; n++) {
            const char *name = NULL;
            ORT_TRY(ort->GetValueInfoName(inputs[n], &name));
            if (strcmp(name, g->value[wanted[i]].name) == 0)
                c->places.input[i] = n;
        }
        if (wanted[i] != NO_PLACE && c->places.input[i] == NO_PLACE) {
            failure = ort_failure(ort, ORT_EP_FAIL, "clattn: %s is no input of the node that replaces its group",
                                  g->value[wanted[i]].name);
            goto fail;
        }
    }
fail:
    free(inputs);
    return failure;
}

static OrtStatus *compile_one(provider *p, const OrtGraph *from, const OrtNode *fused, compiled **made)
{
    OrtStatus *failure = NULL;
    graph g = {0};
    const char *reason = NULL, *name = "";
    bool found = false, *taken = NULL;
    compiled *c = calloc(1, sizeof *c);
    *made = c;
    ORT_TRY(graph_read(p->ort, from, &g));
    taken = calloc(g.nodes + 1, sizeof *taken);
    if (!c || !taken) {
        failure = ort_failure(p->ort, ORT_FAIL, "clattn: no memory for a node");
        goto fail;
    }
    for (size_t n = 0; n < g.nodes && !found; n++)
        ORT_TRY(group_match(&g, n, taken, &c->what, &found, &reason));
    if (!found || c->what.nodes != g.nodes) {
        ORT_TRY(p->ort->Node_GetName(fused, &name));
        failure = ort_failure(p->ort, ORT_EP_FAIL, "clattn: the nodes of %s are not those that were claimed", name);
        goto fail;
    }
    ORT_TRY(find_places(p, fused, &g, c));
    c->owner = p;
    c->base = (OrtNodeComputeInfo){ORT_API_VERSION, create_state, compute, release_state};
fail:
    free(taken);
    graph_release(&g);
    return failure;
}

static void ORT_API_CALL release_compiled(OrtEp *ep, OrtNodeComputeInfo **infos, size_t count)
{
    (void)ep;
    for (size_t i = 0; i < count; i++)
        free(infos[i]);
}

static OrtStatus *ORT_API_CALL compile(OrtEp *ep, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                                       OrtNodeComputeInfo **infos, OrtNode **context_nodes)
{
    provider *p = (provider *)(void *)ep;
    (void)context_nodes;
    for (size_t i = 0; i < count; i++) {
        compiled *made = NULL;
        OrtStatus *failure = compile_one(p, graphs[i], fused[i], &made);
        infos[i] = made ? &made->base : NULL;
        if (failure) {
            release_compiled(ep, infos, i + 1);
            return failure;
        }
    }
    return NULL;
}

/* ---- claiming ---- */

static const char *ORT_API_CALL provider_name(const OrtEp *ep)
{
    (void)ep;
    return NAME;
}

static OrtStatus *claim(const provider *p, const graph *g, const group *what, OrtEpGraphSupportInfo *claimed)
{
    const OrtNode *nodes[MOST_NODES];
    OrtNodeFusionOptions options = {.ort_version_supported = ORT_API_VERSION};
    for (size_t i = 0; i < what->nodes; i++)
        nodes[i] = g->node[what->node[i]].handle;
    return p->ep->EpGraphSupportInfo_AddNodesToFuse(claimed, nodes, what->nodes, &options);
}

static OrtStatus *ORT_API_CALL get_capability(OrtEp *ep, const OrtGraph *from, OrtEpGraphSupportInfo *claimed)
{
    provider *p = (provider *)(void *)ep;
    OrtStatus *failure = NULL;
    graph g = {0};
    bool *taken = NULL;
    char line[512];
    size_t groups = 0, nodes = 0;
    ORT_TRY(graph_read(p->ort, from, &g));
    taken = calloc(g.nodes + 1, sizeof *taken);
    if (!taken) {
        failure = ort_failure(p->ort, ORT_FAIL, "clattn: no memory for the graph");
        goto fail;
    }
    for (size_t n = 0; n < g.nodes; n++) {
        group made;
        bool found = false;
        const char *reason = NULL, *name = "";
        ORT_TRY(group_match(&g, n, taken, &made, &found, &reason));
        if (found) {
            ORT_TRY(claim(p, &g, &made, claimed));
            for (size_t i = 0; i < made.nodes; i++)
                taken[made.node[i]] = true;
            groups++;
            nodes += made.nodes;
        } else if (reason) {
            ORT_TRY(p->ort->Node_GetName(g.node[n].handle, &name));
            snprintf(line, sizeof line, "clattn leaves the node %.100s (%.60s): %s", name, g.node[n].op, reason);
            write_log(p, ORT_LOGGING_LEVEL_INFO, line);
        }
    }
    snprintf(line, sizeof line, "clattn takes %zu of %zu nodes, as %zu attentions", nodes, g.nodes, groups);
    write_log(p, ORT_LOGGING_LEVEL_INFO, line);
fail:
    free(taken);
    graph_release(&g);
    return failure;
}

/* ---- providers ---- */

/* The session's option of that name; the caller frees it.  NULL: it is not set. */
static OrtStatus *read_option(const OrtApi *ort, const OrtSessionOptions *options, const char *name, char **value)
{
    OrtStatus *failure = NULL;
    char key[128];
    int there = 0;
    size_t bytes = 0;
    *value = NULL;
    snprintf(key, sizeof key, PREFIX "%s", name);
    ORT_TRY(ort->HasSessionConfigEntry(options, key, &there));
    if (!there)
        return NULL;
    ORT_TRY(ort->GetSessionConfigEntry(options, key, NULL, &bytes));
    *value = malloc(bytes + 1);
    if (!*value)
        return ort_failure(ort, ORT_FAIL, "clattn: no memory for an option");
    ORT_TRY(ort->GetSessionConfigEntry(options, key, *value, &bytes));
fail:
    return failure;
}

static void context_log(void *user, clattn_log_level level, const char *line)
{
    char text[512];
    snprintf(text, sizeof text, "clattn: %s", line);
    if (level == CLATTN_LOG_LEVEL_WARNING)
        write_log(user, ORT_LOGGING_LEVEL_WARNING, text);
}

static OrtStatus *open_context(provider *p, const OrtSessionOptions *options)
{
    OrtStatus *failure = NULL;
    char *device = NULL, *cache = NULL, text[512];
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_device_info info = {.size = sizeof info};
    ORT_TRY(read_option(p->ort, options, "device", &device));
    ORT_TRY(read_option(p->ort, options, "cache_dir", &cache));
    params.device = device;
    params.cache_dir = cache;
    params.log = context_log;
    params.log_user = p;
    clattn_status status = cl_table_fill(&p->cl, NULL, NULL);
    if (status == CLATTN_SUCCESS)
        status = clattn_context_create(&params, &p->context);
    if (status == CLATTN_SUCCESS)
        status = clattn_context_device_info(p->context, &info);
    if (status != CLATTN_SUCCESS) {
        clattn_context_message(p->context, text, sizeof text);
        failure = ort_failure(p->ort, ORT_EP_FAIL, "clattn: %s", *text ? text : clattn_status_string(status));
        goto fail;
    }
    p->shares = info.unified_memory &&
                (info.device_class == CLATTN_DEVICE_CLASS_CPU || info.device_class == CLATTN_DEVICE_CLASS_POCL ||
                 info.device_class == CLATTN_DEVICE_CLASS_SOFTWARE);
    snprintf(text, sizeof text, "clattn runs on %s (%s)", info.name, info.platform);
    write_log(p, ORT_LOGGING_LEVEL_INFO, text);
fail:
    free(device);
    free(cache);
    return failure;
}

static void ORT_API_CALL release_provider(OrtEpFactory *base, OrtEp *ep)
{
    provider *p = (provider *)(void *)ep;
    (void)base;
    if (!p)
        return;
    clattn_context_release(&p->context);
    free(p);
}

static OrtStatus *ORT_API_CALL create_provider(OrtEpFactory *base, const OrtHardwareDevice *const *devices,
                                               const OrtKeyValuePairs *const *metadata, size_t count,
                                               const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **ep)
{
    const factory *f = (const factory *)(const void *)base;
    (void)devices;
    (void)metadata;
    *ep = NULL;
    if (count != 1)
        return ort_failure(f->ort, ORT_INVALID_ARGUMENT, "clattn: %zu devices were chosen, expected one", count);
    provider *p = calloc(1, sizeof *p);
    if (!p)
        return ort_failure(f->ort, ORT_FAIL, "clattn: no memory for a provider");
    p->base.ort_version_supported = ORT_API_VERSION;
    p->base.GetName = provider_name;
    p->base.GetCapability = get_capability;
    p->base.Compile = compile;
    p->base.ReleaseNodeComputeInfos = release_compiled;
    p->ort = f->ort;
    p->ep = f->ep;
    p->logger = logger;
    OrtStatus *failure = open_context(p, options);
    if (failure)
        release_provider(base, &p->base);
    else
        *ep = &p->base;
    return failure;
}

/* ---- the factory ---- */

static const char *ORT_API_CALL factory_name(const OrtEpFactory *base)
{
    (void)base;
    return NAME;
}

static const char *ORT_API_CALL factory_vendor(const OrtEpFactory *base)
{
    (void)base;
    return "clattn";
}

static uint32_t ORT_API_CALL factory_vendor_id(const OrtEpFactory *base)
{
    (void)base;
    return 0;
}

static const char *ORT_API_CALL factory_version(const OrtEpFactory *base)
{
    (void)base;
    return CLATTN_VERSION_STRING;
}

/* The processor stands for every OpenCL device: the option `device` chooses among these, and arrays are in the host's memory. */
static OrtStatus *ORT_API_CALL get_devices(OrtEpFactory *base, const OrtHardwareDevice *const *devices, size_t count,
                                           OrtEpDevice **made, size_t most, size_t *made_count)
{
    const factory *f = (const factory *)(const void *)base;
    *made_count = 0;
    for (size_t i = 0; i < count && *made_count < most; i++)
        if (f->ort->HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_CPU) {
            OrtStatus *failure = f->ep->CreateEpDevice(base, devices[i], NULL, NULL, &made[*made_count]);
            if (failure)
                return failure;
            ++*made_count;
        }
    return NULL;
}

static OrtStatus *ORT_API_CALL no_allocator(OrtEpFactory *base, const OrtMemoryInfo *info,
                                            const OrtKeyValuePairs *options, OrtAllocator **allocator)
{
    (void)base;
    (void)info;
    (void)options;
    *allocator = NULL; /* the host's */
    return NULL;
}

static void ORT_API_CALL release_allocator(OrtEpFactory *base, OrtAllocator *allocator)
{
    (void)base;
    (void)allocator;
}

static OrtStatus *ORT_API_CALL no_transfer(OrtEpFactory *base, OrtDataTransferImpl **transfer)
{
    (void)base;
    *transfer = NULL;
    return NULL;
}

static bool ORT_API_CALL has_streams(const OrtEpFactory *base)
{
    (void)base;
    return false;
}

OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **factories, size_t most, size_t *count);
OrtStatus *ReleaseEpFactory(OrtEpFactory *base);

EXPORT OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                                    OrtEpFactory **factories, size_t most, size_t *count)
{
    const OrtApi *ort = base->GetApi(ORT_API_VERSION);
    (void)name;
    (void)logger;
    if (!ort)
        return base->GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, "clattn: ONNX Runtime is older than 1.23");
    if (most < 1)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: there is no room for a factory");
    factory *f = calloc(1, sizeof *f);
    if (!f)
        return ort_failure(ort, ORT_FAIL, "clattn: no memory for a factory");
    f->base.ort_version_supported = ORT_API_VERSION;
    f->base.GetName = factory_name;
    f->base.GetVendor = factory_vendor;
    f->base.GetVendorId = factory_vendor_id;
    f->base.GetVersion = factory_version;
    f->base.GetSupportedDevices = get_devices;
    f->base.CreateEp = create_provider;
    f->base.ReleaseEp = release_provider;
    f->base.CreateAllocator = no_allocator;
    f->base.ReleaseAllocator = release_allocator;
    f->base.CreateDataTransfer = no_transfer;
    f->base.IsStreamAware = has_streams;
    f->ort = ort;
    f->ep = ort->GetEpApi();
    factories[0] = &f->base;
    *count = 1;
    return NULL;
}

EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *base)
{
    free(base);
    return NULL;
}
