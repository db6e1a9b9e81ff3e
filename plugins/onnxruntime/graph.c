#include "graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

OrtStatus *ort_failure(const OrtApi *ort, OrtErrorCode code, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return ort->CreateStatus(code, text);
}

static OrtStatus *no_memory(const OrtApi *ort)
{
    return ort_failure(ort, ORT_FAIL, "clattn: no memory for the graph");
}

/* FNV-1a. */
static size_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return (size_t)hash;
}

/* The slot of a name, or the free one where it would be. */
static size_t slot_of(const graph *g, const char *name)
{
    size_t at = hash_of(name) % g->slots;
    while (g->slot[at] != NO_PLACE && strcmp(g->value[g->slot[at]].name, name) != 0)
        at = (at + 1) % g->slots;
    return at;
}

size_t graph_find(const graph *g, const char *name)
{
    return g->slots ? g->slot[slot_of(g, name)] : NO_PLACE;
}

/* Reads type, shape and constant of a value. */
static OrtStatus *describe(graph *g, const OrtValueInfo *info, graph_value *v)
{
    const OrtApi *ort = g->ort;
    OrtStatus *failure = NULL;
    const OrtTypeInfo *type = NULL;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    OrtTensorTypeAndShapeInfo *shape = NULL;
    const OrtValue *initializer = NULL;
    bool constant = false;
    v->rank = SIZE_MAX;
    ORT_TRY(ort->ValueInfo_IsGraphOutput(info, &v->leaves));
    ORT_TRY(ort->GetValueInfoTypeInfo(info, &type));
    ORT_TRY(ort->CastTypeInfoToTensorInfo(type, &tensor));
    if (tensor) {
        size_t rank = 0;
        ORT_TRY(ort->GetTensorElementType(tensor, &v->type));
        ORT_TRY(ort->GetDimensionsCount(tensor, &rank));
        if (rank <= MOST_DIMENSIONS) {
            ORT_TRY(ort->GetDimensions(tensor, v->dim, rank));
            v->rank = rank;
        }
    }
    ORT_TRY(ort->ValueInfo_IsConstantInitializer(info, &constant));
    if (constant) {
        ORT_TRY(ort->ValueInfo_GetInitializerValue(info, &initializer));
        if (initializer) {
            ORT_TRY(ort->GetTensorTypeAndShape(initializer, &shape));
            ORT_TRY(ort->GetTensorShapeElementCount(shape, &v->elements));
            ORT_TRY(ort->GetTensorData(initializer, &v->constant));
        }
    }
fail:
    if (shape)
        ort->ReleaseTensorTypeAndShapeInfo(shape);
    return failure;
}

/* The number of a value, which is added if it is new. */
static OrtStatus *number_of(graph *g, const OrtValueInfo *info, size_t *number)
{
    OrtStatus *failure = NULL;
    const char *name = NULL;
    *number = NO_PLACE;
    if (!info)
        return NULL;
    ORT_TRY(g->ort->GetValueInfoName(info, &name));
    if (!*name) /* left out */
        return NULL;
    size_t at = slot_of(g, name);
    if (g->slot[at] == NO_PLACE) {
        if (g->values == g->value_room)
            return no_memory(g->ort);
        graph_value *v = &g->value[g->values];
        *v = (graph_value){.name = name, .producer = NO_PLACE};
        ORT_TRY(describe(g, info, v));
        g->slot[at] = g->values++;
    }
    *number = g->slot[at];
fail:
    return failure;
}

typedef OrtStatus *(ORT_API_CALL *list_values)(const OrtNode *, const OrtValueInfo **, size_t);

/* Numbers `count` values of a node. */
static OrtStatus *read_values(graph *g, const OrtNode *node, list_values list, size_t count, size_t *numbers)
{
    OrtStatus *failure = NULL;
    const OrtValueInfo **infos = calloc(count + 1, sizeof *infos);
    if (!infos)
        return no_memory(g->ort);
    ORT_TRY(list(node, infos, count));
    for (size_t i = 0; i < count; i++)
        ORT_TRY(number_of(g, infos[i], &numbers[i]));
fail:
    free(infos);
    return failure;
}

static OrtStatus *read_node(graph *g, const OrtNode *handle, size_t place)
{
    const OrtApi *ort = g->ort;
    OrtStatus *failure = NULL;
    graph_node *n = &g->node[place];
    n->handle = handle;
    ORT_TRY(ort->Node_GetOperatorType(handle, &n->op));
    ORT_TRY(ort->Node_GetDomain(handle, &n->domain));
    ORT_TRY(ort->Node_GetSinceVersion(handle, &n->version));
    n->input = calloc(n->reads + 1, sizeof *n->input);
    n->output = calloc(n->outputs + 1, sizeof *n->output);
    if (!n->input || !n->output)
        return no_memory(ort);
    ORT_TRY(read_values(g, handle, ort->Node_GetInputs, n->inputs, n->input));
    ORT_TRY(read_values(g, handle, ort->Node_GetOutputs, n->outputs, n->output));
    ORT_TRY(read_values(g, handle, ort->Node_GetImplicitInputs, n->reads - n->inputs, n->input + n->inputs));
    for (size_t i = n->inputs; i < n->reads; i++)
        if (n->input[i] != NO_PLACE)
            g->value[n->input[i]].leaves = true;
    for (size_t i = 0; i < n->inputs; i++)
        if (n->input[i] != NO_PLACE)
            g->value[n->input[i]].consumers++;
    for (size_t i = 0; i < n->outputs; i++)
        if (n->output[i] != NO_PLACE)
            g->value[n->output[i]].producer = place;
fail:
    return failure;
}

OrtStatus *graph_read(const OrtApi *ort, const OrtGraph *from, graph *g)
{
    OrtStatus *failure = NULL;
    const OrtNode **handles = NULL;
    *g = (graph){.ort = ort};
    ORT_TRY(ort->Graph_GetNumNodes(from, &g->nodes));
    handles = calloc(g->nodes + 1, sizeof *handles);
    g->node = calloc(g->nodes + 1, sizeof *g->node);
    if (!handles || !g->node) {
        failure = no_memory(ort);
        goto fail;
    }
    ORT_TRY(ort->Graph_GetNodes(from, handles, g->nodes));
    for (size_t i = 0; i < g->nodes; i++) {
        size_t implicit = 0;
        ORT_TRY(ort->Node_GetNumInputs(handles[i], &g->node[i].inputs));
        ORT_TRY(ort->Node_GetNumOutputs(handles[i], &g->node[i].outputs));
        ORT_TRY(ort->Node_GetNumImplicitInputs(handles[i], &implicit));
        g->node[i].reads = g->node[i].inputs + implicit;
        g->value_room += g->node[i].reads + g->node[i].outputs;
    }
    g->slots = 2 * g->value_room + 1;
    g->value = calloc(g->value_room + 1, sizeof *g->value);
    g->slot = malloc(g->slots * sizeof *g->slot);
    if (!g->value || !g->slot) {
        failure = no_memory(ort);
        goto fail;
    }
    memset(g->slot, 0xff, g->slots * sizeof *g->slot); /* NO_PLACE */
    for (size_t i = 0; i < g->nodes; i++)
        ORT_TRY(read_node(g, handles[i], i));
fail:
    free(handles);
    if (failure)
        graph_release(g);
    return failure;
}

void graph_release(graph *g)
{
    for (size_t i = 0; g->node && i < g->nodes; i++) {
        free(g->node[i].input);
        free(g->node[i].output);
    }
    free(g->node);
    free(g->value);
    free(g->slot);
    *g = (graph){0};
}

bool graph_is(const graph *g, size_t node, const char *domain, const char *op)
{
    if (node == NO_PLACE || strcmp(g->node[node].op, op) != 0)
        return false;
    const char *own = g->node[node].domain;
    return strcmp(own, domain) == 0 || (!*domain && strcmp(own, "ai.onnx") == 0);
}

/* The attribute, or NULL if it is not set. */
static OrtStatus *attribute_of(const graph *g, size_t node, const char *name, const OrtOpAttr **attribute)
{
    *attribute = NULL;
    OrtStatus *failure = g->ort->Node_GetAttributeByName(g->node[node].handle, name, attribute);
    if (failure && g->ort->GetErrorCode(failure) == ORT_NOT_FOUND) { /* this version of the operator has none */
        g->ort->ReleaseStatus(failure);
        return NULL;
    }
    return failure;
}

static OrtStatus *read_number(const graph *g, size_t node, const char *name, OrtOpAttrType type, void *number,
                              size_t bytes)
{
    OrtStatus *failure = NULL;
    const OrtOpAttr *attribute = NULL;
    size_t used = 0;
    ORT_TRY(attribute_of(g, node, name, &attribute));
    if (attribute)
        ORT_TRY(g->ort->ReadOpAttr(attribute, type, number, bytes, &used));
fail:
    return failure;
}

OrtStatus *graph_integer(const graph *g, size_t node, const char *name, int64_t otherwise, int64_t *number)
{
    *number = otherwise;
    return read_number(g, node, name, ORT_OP_ATTR_INT, number, sizeof *number);
}

OrtStatus *graph_float(const graph *g, size_t node, const char *name, float otherwise, float *number)
{
    *number = otherwise;
    return read_number(g, node, name, ORT_OP_ATTR_FLOAT, number, sizeof *number);
}

OrtStatus *graph_text(const graph *g, size_t node, const char *name, char *text, size_t room)
{
    OrtStatus *failure = NULL;
    const OrtOpAttr *attribute = NULL;
    size_t bytes = 0;
    text[0] = '\0';
    ORT_TRY(attribute_of(g, node, name, &attribute));
    if (!attribute)
        return NULL;
    failure = g->ort->ReadOpAttr(attribute, ORT_OP_ATTR_STRING, text, room - 1, &bytes);
    if (failure && bytes > room - 1) { /* longer */
        g->ort->ReleaseStatus(failure);
        failure = NULL;
        bytes = 0;
    }
    text[bytes] = '\0';
fail:
    return failure;
}

OrtStatus *graph_is_text(const graph *g, size_t node, const char *name, const char *otherwise, const char *text,
                         bool *is)
{
    OrtStatus *failure = NULL;
    const OrtOpAttr *attribute = NULL;
    char found[32];
    *is = strcmp(otherwise, text) == 0;
    ORT_TRY(attribute_of(g, node, name, &attribute));
    if (!attribute)
        return NULL;
    ORT_TRY(graph_text(g, node, name, found, sizeof found));
    *is = strcmp(found, text) == 0;
fail:
    return failure;
}

OrtStatus *graph_integers(const graph *g, size_t node, const char *name, int64_t *numbers, size_t room, size_t *count)
{
    OrtStatus *failure = NULL;
    const OrtOpAttr *attribute = NULL;
    size_t bytes = 0;
    *count = 0;
    ORT_TRY(attribute_of(g, node, name, &attribute));
    if (!attribute)
        return NULL;
    failure = g->ort->ReadOpAttr(attribute, ORT_OP_ATTR_INTS, numbers, room * sizeof *numbers, &bytes);
    if (failure && bytes > room * sizeof *numbers) {
        g->ort->ReleaseStatus(failure);
        return NULL;
    }
    *count = failure ? 0 : bytes / sizeof *numbers;
fail:
    return failure;
}

bool graph_numbers(const graph *g, size_t value, int64_t *numbers, size_t room, size_t *count)
{
    const graph_value *v = value == NO_PLACE ? NULL : &g->value[value];
    if (!v || !v->constant || v->type != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 || v->elements > room)
        return false;
    memcpy(numbers, v->constant, v->elements * sizeof *numbers);
    *count = v->elements;
    return true;
}

size_t graph_reader(const graph *g, size_t value, size_t after, size_t *input)
{
    size_t n = after != NO_PLACE ? after + 1 : g->value[value].producer == NO_PLACE ? 0 : g->value[value].producer + 1;
    for (; n < g->nodes; n++)
        for (size_t i = 0; i < g->node[n].inputs; i++)
            if (g->node[n].input[i] == value) {
                *input = i;
                return n;
            }
    return NO_PLACE;
}

/* A float16 as float32. */
static float of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff, bits;
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool graph_scalar(const graph *g, size_t value, float *number)
{
    if (value == NO_PLACE || !g->value[value].constant || g->value[value].elements != 1 || g->value[value].rank > 1)
        return false;
    const graph_value *v = &g->value[value];
    uint16_t half;
    switch (v->type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: memcpy(number, v->constant, sizeof *number); return true;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
        memcpy(&half, v->constant, sizeof half);
        *number = of_half(half);
        return true;
    default: return false;
    }
}
