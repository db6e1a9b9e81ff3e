/* The execution provider: what ONNX Runtime opens, asks which nodes it takes, and lets compute them.
 *
 * The interface is that of the plug-in providers of ONNX Runtime 1.23 and later: a factory for each loaded library, and a
 * provider for each session. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "memory/memory.h"
#include "run.h"

#define EXPORT __attribute__((visibility("default")))
/* Memory has a vendor's number in ONNX Runtime, which tells ours from that of other providers. */
#define MEMORY_VENDOR 0xC1A7

/* There are two: one whose arrays are in the host's memory, and one whose arrays are in OpenCL buffers. */
typedef struct factory {
    OrtEpFactory base; /* first, so that a pointer to it is one to the factory */
    const OrtApi *ort;
    const OrtEpApi *ep;
    const char *name;      /* of the provider */
    const char *prefix;    /* of the names of options in a session's options */
    OrtMemoryInfo *memory; /* NULL: the host's */
} factory;

typedef struct provider {
    OrtEp base;
    const factory *from;
    const OrtEpApi *ep;
    const OrtLogger *logger;
    engine engine;
    bool takes_all; /* chains without attention, too */
} provider;

/* The node that replaces a chain. */
typedef struct compiled {
    OrtNodeComputeInfo base;
    provider *owner;
    chain what;
} compiled;

static OrtStatus *no_memory(const provider *p)
{
    return ort_failure(p->engine.ort, ORT_FAIL, "clattn: no memory for a model");
}

static void write_log(const provider *p, OrtLoggingLevel level, const char *text)
{
    OrtStatus *failure = p->engine.ort->Logger_LogMessage(p->logger, level, text, ORT_FILE, __LINE__, p->from->name);
    if (failure)
        p->engine.ort->ReleaseStatus(failure);
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
    return chain_run(&c->owner->engine, &c->what, arrays);
}

static void ORT_API_CALL release_state(OrtNodeComputeInfo *info, void *state)
{
    (void)info;
    (void)state;
}

/* Which inputs, or outputs, of the replacing node the chain's values are. */
static OrtStatus *find_places(const provider *p, const OrtNode *fused, const graph *g, bool outputs, chain *c)
{
    const OrtApi *ort = p->engine.ort;
    OrtStatus *failure = NULL;
    size_t count = 0;
    const OrtValueInfo **infos = NULL;
    ORT_TRY(outputs ? ort->Node_GetNumOutputs(fused, &count) : ort->Node_GetNumInputs(fused, &count));
    infos = calloc(count + 1, sizeof *infos);
    if (!infos)
        return no_memory(p);
    ORT_TRY(outputs ? ort->Node_GetOutputs(fused, infos, count) : ort->Node_GetInputs(fused, infos, count));
    for (size_t i = 0; i < count; i++) {
        const char *name = NULL;
        if (!infos[i])
            continue;
        ORT_TRY(ort->GetValueInfoName(infos[i], &name));
        const size_t value = graph_find(g, name);
        if (value == NO_PLACE)
            continue;
        if (outputs)
            c->value[value].output = i;
        else
            c->value[value].input = i;
    }
fail:
    free(infos);
    return failure;
}

/* Whether a step only looks at an input on the host: at its shape, or at its whole numbers. */
static bool on_host(const graph *g, const step *s, size_t input)
{
    const bool reshapes = s->kind == STEP_RESHAPE || s->kind == STEP_EXPAND;
    return (reshapes && input == TARGET) || (s->kind == STEP_ATTENTION && input == TOTAL) ||
           (s->output[0] != NO_PLACE && g->value[s->output[0]].numbers);
}

/* What runs need of the graph, which is gone by then. */
static OrtStatus *make_chain(const provider *p, const OrtNode *fused, const graph *g, partition *found, chain *c)
{
    const OrtApi *ort = p->engine.ort;
    OrtStatus *failure = NULL;
    size_t nodes = 0;
    const char *name = "";
    for (size_t s = 0; s < found->steps; s++)
        nodes += found->step[s].nodes;
    if (nodes != g->nodes) {
        ORT_TRY(ort->Node_GetName(fused, &name));
        return ort_failure(ort, ORT_EP_FAIL, "clattn: the nodes of %s are not those that were claimed", name);
    }
    c->product = calloc(found->steps + 1, sizeof *c->product);
    c->idle = calloc(found->steps + 1, sizeof *c->idle);
    c->turn = calloc(found->steps + 1, sizeof *c->turn);
    c->joint = calloc(found->steps + 1, sizeof *c->joint);
    c->value = calloc(g->values + 1, sizeof *c->value);
    c->name = calloc(found->steps + 1, sizeof *c->name);
    if (!c->product || !c->idle || !c->turn || !c->joint || !c->value || !c->name)
        return no_memory(p);
    c->step = found->step;
    c->steps = found->steps;
    found->step = NULL;
    c->values = g->values;
    for (size_t s = 0; s < c->steps; s++) {
        ORT_TRY(ort->Node_GetName(g->node[c->step[s].node[0]].handle, &name));
        snprintf(c->name[s], sizeof c->name[s], "%s %s", g->node[c->step[s].node[0]].op, name);
    }
    for (size_t v = 0; v < c->values; v++)
        c->value[v] = (chain_value){.input = NO_PLACE, .output = NO_PLACE};
    ORT_TRY(find_places(p, fused, g, false, c));
    ORT_TRY(find_places(p, fused, g, true, c));
    for (size_t s = 0; s < c->steps; s++)
        for (size_t i = 0; i < STEP_INPUTS; i++) {
            const size_t value = c->step[s].input[i];
            if (value == NO_PLACE)
                continue;
            c->value[value].read = true;
            c->value[value].readers += !on_host(g, &c->step[s], i);
            c->value[value].constant = g->value[value].constant;
            if (c->value[value].input == NO_PLACE && g->value[value].producer == NO_PLACE)
                return ort_failure(ort, ORT_EP_FAIL, "clattn: %s is no input of the node that replaces its chain",
                                   g->value[value].name);
        }
    chain_fuse(c, g);
fail:
    return failure;
}

static OrtStatus *compile_one(provider *p, const OrtGraph *from, const OrtNode *fused, compiled **made)
{
    OrtStatus *failure = NULL;
    graph g = {0};
    partition found = {0};
    compiled *c = calloc(1, sizeof *c);
    *made = c;
    if (!c)
        return no_memory(p);
    c->owner = p;
    c->base = (OrtNodeComputeInfo){ORT_API_VERSION, create_state, compute, release_state};
    ORT_TRY(graph_read(p->engine.ort, from, &g));
    numbers_mark(&g, true);
    ORT_TRY(partition_make(&g, true, false, NULL, NULL, &found));
    ORT_TRY(make_chain(p, fused, &g, &found, &c->what));
fail:
    partition_release(&found);
    graph_release(&g);
    return failure;
}

static void ORT_API_CALL release_compiled(OrtEp *ep, OrtNodeComputeInfo **infos, size_t count)
{
    const provider *p = (const provider *)(const void *)ep;
    for (size_t i = 0; i < count; i++) {
        compiled *c = (compiled *)(void *)infos[i];
        if (c)
            chain_release(&p->engine, &c->what);
        free(c);
        infos[i] = NULL;
    }
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
    return ((const provider *)(const void *)ep)->from->name;
}

/* Writes why a node is left. */
typedef struct leaving {
    const provider *p;
    const graph *g;
} leaving;

static void write_left(void *user, size_t node, const char *reason)
{
    const leaving *l = user;
    const char *name = "";
    char line[512];
    OrtStatus *failure = l->p->engine.ort->Node_GetName(l->g->node[node].handle, &name);
    if (failure)
        l->p->engine.ort->ReleaseStatus(failure);
    snprintf(line, sizeof line, "clattn leaves the node %.100s (%.60s): %s", name, l->g->node[node].op, reason);
    write_log(l->p, ORT_LOGGING_LEVEL_INFO, line);
}

/* Claims one chain of a partition; `nodes` has room for all nodes of the graph. */
static OrtStatus *claim(const provider *p, const graph *g, const partition *found, size_t number, const OrtNode **nodes,
                        OrtEpGraphSupportInfo *claimed, size_t *taken)
{
    OrtNodeFusionOptions options = {.ort_version_supported = ORT_API_VERSION};
    size_t count = 0;
    for (size_t s = 0; s < found->steps; s++)
        for (size_t i = 0; found->chain[s] == number && i < found->step[s].nodes; i++)
            nodes[count++] = g->node[found->step[s].node[i]].handle;
    *taken += count;
    return p->ep->EpGraphSupportInfo_AddNodesToFuse(claimed, nodes, count, &options);
}

static OrtStatus *ORT_API_CALL get_capability(OrtEp *ep, const OrtGraph *from, OrtEpGraphSupportInfo *claimed)
{
    provider *p = (provider *)(void *)ep;
    OrtStatus *failure = NULL;
    graph g = {0};
    partition found = {0};
    const OrtNode **nodes = NULL;
    char line[512];
    size_t taken = 0;
    ORT_TRY(graph_read(p->engine.ort, from, &g));
    numbers_mark(&g, false);
    nodes = calloc(g.nodes + 1, sizeof *nodes);
    if (!nodes) {
        failure = no_memory(p);
        goto fail;
    }
    leaving user = {p, &g};
    ORT_TRY(partition_make(&g, p->takes_all, p->engine.shares && !p->takes_all, write_left, &user, &found));
    for (size_t c = 0; c < found.chains; c++)
        ORT_TRY(claim(p, &g, &found, c, nodes, claimed, &taken));
    snprintf(line, sizeof line, "clattn takes %zu of %zu nodes, as %zu chains", taken, g.nodes, found.chains);
    write_log(p, ORT_LOGGING_LEVEL_INFO, line);
fail:
    free(nodes);
    partition_release(&found);
    graph_release(&g);
    return failure;
}

/* ---- providers ---- */

/* An entry of the session's options; the caller frees it.  NULL: it is not set. */
static OrtStatus *read_option(const OrtApi *ort, const OrtSessionOptions *options, const char *prefix, const char *name,
                              char **value)
{
    OrtStatus *failure = NULL;
    char key[80];
    int there = 0;
    size_t bytes = 0;
    *value = NULL;
    snprintf(key, sizeof key, "%s%s", prefix, name);
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

/* Refuses options of the provider's that there are not: nobody would notice a misspelt one. */
static OrtStatus *check_options(const OrtApi *ort, const OrtSessionOptions *options, const char *prefix)
{
    static const char *const known[] = {"device", "queue", "take", "precision", "cache_dir"};
    OrtStatus *failure = NULL;
    OrtKeyValuePairs *entries = NULL;
    const char *const *keys = NULL, *const *values = NULL;
    size_t count = 0;
    ORT_TRY(ort->GetSessionOptionsConfigEntries(options, &entries));
    ort->GetKeyValuePairs(entries, &keys, &values, &count);
    for (size_t i = 0; i < count && !failure; i++) {
        if (strncmp(keys[i], prefix, strlen(prefix)) != 0)
            continue;
        size_t at = 0;
        while (at < sizeof known / sizeof *known && strcmp(keys[i] + strlen(prefix), known[at]) != 0)
            at++;
        if (at == sizeof known / sizeof *known)
            failure =
                ort_failure(ort, ORT_INVALID_ARGUMENT,
                            "clattn: there is no option '%.60s', only device, queue, take, precision and cache_dir",
                            keys[i] + strlen(prefix));
    }
    ort->ReleaseKeyValuePairs(entries);
fail:
    return failure;
}

static void context_log(void *user, clattn_log_level level, const char *line)
{
    char text[512];
    snprintf(text, sizeof text, "clattn: %s", line);
    if (level <= CLATTN_LOG_LEVEL_WARNING)
        write_log(user, level == CLATTN_LOG_LEVEL_WARNING ? ORT_LOGGING_LEVEL_WARNING : ORT_LOGGING_LEVEL_ERROR, text);
}

/* Puts an application's queue, given as a number, and what it belongs to into the parameters. */
static OrtStatus *adopt_queue(const provider *p, const char *number, const char *device, clattn_context_params *params)
{
    const OrtApi *ort = p->engine.ort;
    cl_command_queue_properties properties = 0;
    char *end = NULL;
    const int base = number[0] == '0' && (number[1] == 'x' || number[1] == 'X') ? 16 : 10;
    errno = 0;
    const unsigned long long address = strtoull(number, &end, base);
    if (number[0] < '0' || number[0] > '9' || !address || *end || errno || address > UINTPTR_MAX ||
        address % sizeof(void *) != 0) /* no sign, no white space */
        return ort_failure(ort, ORT_INVALID_ARGUMENT,
                           "clattn: the option queue is '%.60s', expected the address of a cl_command_queue", number);
    if (device)
        return ort_failure(ort, ORT_INVALID_ARGUMENT,
                           "clattn: there are the options device and queue, but a queue has a device");
    params->queue = (cl_command_queue)(uintptr_t)address;
    const cl_int code[] = {
        p->engine.cl.clGetCommandQueueInfo(params->queue, CL_QUEUE_CONTEXT, sizeof params->opencl_context,
                                           &params->opencl_context, NULL),
        p->engine.cl.clGetCommandQueueInfo(params->queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL)};
    if (code[0] != CL_SUCCESS || code[1] != CL_SUCCESS)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: the option queue is no cl_command_queue");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return ort_failure(ort, ORT_INVALID_ARGUMENT,
                           "clattn: the option queue is out of order, expected a queue in order");
    return NULL;
}

static OrtStatus *open_context(provider *p, const OrtSessionOptions *options)
{
    OrtStatus *failure = NULL;
    char *device = NULL, *queue = NULL, *cache = NULL, *take = NULL, *precision = NULL, *spins = NULL, *shared = NULL,
         text[512];
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_device_info info = {.size = sizeof info};
    ORT_TRY(check_options(p->engine.ort, options, p->from->prefix));
    ORT_TRY(read_option(p->engine.ort, options, p->from->prefix, "device", &device));
    ORT_TRY(read_option(p->engine.ort, options, p->from->prefix, "queue", &queue));
    ORT_TRY(read_option(p->engine.ort, options, p->from->prefix, "cache_dir", &cache));
    ORT_TRY(read_option(p->engine.ort, options, p->from->prefix, "take", &take));
    ORT_TRY(read_option(p->engine.ort, options, p->from->prefix, "precision", &precision));
    ORT_TRY(read_option(p->engine.ort, options, "", "session.intra_op.allow_spinning", &spins));
    ORT_TRY(read_option(p->engine.ort, options, "", "session.use_env_allocators", &shared));
    if (p->from->memory && shared && strcmp(shared, "1") == 0) {
        failure =
            ort_failure(p->engine.ort, ORT_INVALID_ARGUMENT,
                        "clattn: session.use_env_allocators is 1, but the allocator that sessions share has no buffers "
                        "to give");
        goto fail;
    }
    if (take && strcmp(take, "attention") != 0 && strcmp(take, "all") != 0) {
        failure = ort_failure(p->engine.ort, ORT_INVALID_ARGUMENT,
                              "clattn: the option take is '%.60s', expected attention or all", take);
        goto fail;
    }
    if (precision && strcmp(precision, "float16") == 0)
        p->engine.stored = CLATTN_DTYPE_F16;
    else if (precision && strcmp(precision, "bfloat16") == 0)
        p->engine.stored = CLATTN_DTYPE_BF16;
    else if (precision && strcmp(precision, "model") != 0) {
        failure =
            ort_failure(p->engine.ort, ORT_INVALID_ARGUMENT,
                        "clattn: the option precision is '%.60s', expected model, float16 or bfloat16", precision);
        goto fail;
    }
    p->takes_all = take && strcmp(take, "all") == 0;
    params.device = device;
    params.cache_dir = cache;
    if (cache) /* PoCL has a cache of its own, but a folder that is named gets the kernels, too */
        params.save_mode = CLATTN_SAVE_MODE_RELEASE;
    params.log = context_log;
    params.log_user = p;
    clattn_status status = cl_table_fill(&p->engine.cl, NULL, NULL);
    if (status == CLATTN_SUCCESS && queue)
        ORT_TRY(adopt_queue(p, queue, device, &params));
    if (status == CLATTN_SUCCESS)
        status = clattn_context_create(&params, &p->engine.context);
    if (status == CLATTN_SUCCESS)
        status = clattn_context_device_info(p->engine.context, &info);
    if (status != CLATTN_SUCCESS) {
        clattn_context_message(p->engine.context, text, sizeof text);
        failure = ort_failure(p->engine.ort, ORT_EP_FAIL, "clattn: %s", *text ? text : clattn_status_string(status));
        goto fail;
    }
    p->engine.queue = clattn_context_queue(p->engine.context);
    p->engine.shares = info.unified_memory &&
                       (info.device_class == CLATTN_DEVICE_CLASS_CPU || info.device_class == CLATTN_DEVICE_CLASS_POCL ||
                        info.device_class == CLATTN_DEVICE_CLASS_SOFTWARE);
    if (p->engine.shares && (!spins || strcmp(spins, "1") == 0))
        p->engine.spinning = info.compute_units;
    snprintf(text, sizeof text, "clattn runs on %s (%s)", info.name, info.platform);
    write_log(p, ORT_LOGGING_LEVEL_INFO, text);
fail:
    free(device);
    free(queue);
    free(cache);
    free(take);
    free(precision);
    free(spins);
    free(shared);
    return failure;
}

static OrtStatus *ORT_API_CALL session_allocator(OrtEp *ep, const OrtMemoryInfo *info, OrtAllocator **allocator)
{
    const provider *p = (const provider *)(const void *)ep;
    (void)info;
    return memory_allocator(p->engine.ort, p->from->memory, &p->engine.cl,
                            clattn_context_opencl_context(p->engine.context), p->engine.queue, allocator);
}

static void ORT_API_CALL release_provider(OrtEpFactory *base, OrtEp *ep)
{
    provider *p = (provider *)(void *)ep;
    (void)base;
    if (!p)
        return;
    if (p->engine.arena)
        p->engine.cl.clReleaseMemObject(p->engine.arena);
    for (size_t i = 0; i < sizeof p->engine.elementwise / sizeof p->engine.elementwise[0]; i++)
        if (p->engine.elementwise[i])
            p->engine.cl.clReleaseKernel(p->engine.elementwise[i]);
    clattn_context_release(&p->engine.context);
    mtx_destroy(&p->engine.lock);
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
    if (!p || mtx_init(&p->engine.lock, mtx_plain) != thrd_success) {
        free(p);
        return ort_failure(f->ort, ORT_FAIL, "clattn: no memory for a provider");
    }
    p->base.ort_version_supported = ORT_API_VERSION;
    p->base.GetName = provider_name;
    p->base.GetCapability = get_capability;
    p->base.Compile = compile;
    p->base.ReleaseNodeComputeInfos = release_compiled;
    p->base.CreateAllocator = f->memory ? session_allocator : NULL;
    p->from = f;
    p->engine.ort = f->ort;
    p->engine.memory = f->memory ? f->ep->MemoryInfo_GetMemoryDevice(f->memory) : NULL;
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
    return ((const factory *)(const void *)base)->name;
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

/* The processor stands for every OpenCL device: the option `device` chooses among these. */
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
            failure = f->memory ? f->ep->EpDevice_AddAllocatorInfo(made[*made_count], f->memory) : NULL;
            if (failure) {
                f->ep->ReleaseEpDevice(made[*made_count]);
                return failure;
            }
            ++*made_count;
        }
    return NULL;
}

/* The environment's allocator is the host's, or one without a queue: it belongs to no session. */
static OrtStatus *ORT_API_CALL shared_allocator(OrtEpFactory *base, const OrtMemoryInfo *info,
                                                const OrtKeyValuePairs *options, OrtAllocator **allocator)
{
    const factory *f = (const factory *)(const void *)base;
    (void)info;
    (void)options;
    *allocator = NULL;
    return f->memory ? memory_allocator(f->ort, f->memory, NULL, NULL, NULL, allocator) : NULL;
}

static void ORT_API_CALL release_allocator(OrtEpFactory *base, OrtAllocator *allocator)
{
    (void)base;
    memory_release_allocator(allocator);
}

static OrtStatus *ORT_API_CALL create_transfer(OrtEpFactory *base, OrtDataTransferImpl **transfer)
{
    const factory *f = (const factory *)(const void *)base;
    *transfer = NULL;
    return f->memory ? memory_transfer(f->ort, f->memory, transfer) : NULL;
}

static bool ORT_API_CALL has_streams(const OrtEpFactory *base)
{
    (void)base;
    return false;
}

OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **factories, size_t most, size_t *count);
OrtStatus *ReleaseEpFactory(OrtEpFactory *base);

static OrtStatus *create_factory(const OrtApi *ort, bool device, OrtEpFactory **made)
{
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
    f->base.CreateAllocator = shared_allocator;
    f->base.ReleaseAllocator = release_allocator;
    f->base.CreateDataTransfer = create_transfer;
    f->base.IsStreamAware = has_streams;
    f->ort = ort;
    f->ep = ort->GetEpApi();
    f->name = device ? "ClattnOpenCLExecutionProvider" : "ClattnExecutionProvider";
    f->prefix = device ? "ep.clattnopenclexecutionprovider." : "ep.clattnexecutionprovider.";
    *made = &f->base;
    return device ? ort->CreateMemoryInfo_V2("clattn", OrtMemoryInfoDeviceType_GPU, MEMORY_VENDOR, 0,
                                             OrtDeviceMemoryType_DEFAULT, 0, OrtDeviceAllocator, &f->memory)
                  : NULL;
}

EXPORT OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                                    OrtEpFactory **factories, size_t most, size_t *count)
{
    const OrtApi *ort = base->GetApi(ORT_API_VERSION);
    OrtStatus *failure = NULL;
    (void)name;
    (void)logger;
    if (!ort)
        return base->GetApi(1)->CreateStatus(
            ORT_NOT_IMPLEMENTED, "clattn: ONNX Runtime is older than the headers that the provider was built with");
    if (most < 2)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: there is no room for two factories");
    factories[0] = factories[1] = NULL;
    ORT_TRY(create_factory(ort, false, &factories[0]));
    ORT_TRY(create_factory(ort, true, &factories[1]));
    *count = 2;
    return NULL;
fail:
    ReleaseEpFactory(factories[0]);
    ReleaseEpFactory(factories[1]);
    return failure;
}

EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *base)
{
    factory *f = (factory *)(void *)base;
    if (f && f->memory)
        f->ort->ReleaseMemoryInfo(f->memory);
    free(f);
    return NULL;
}
