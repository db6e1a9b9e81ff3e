/* Making a graph: arrays, steps, the plans that steps share, and the layout of the arena. */
#include "nn/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/scores.h"
#include "ops/matmul/matmul.h"

#define ALIGNMENT 128 /* bytes, what a workspace is aligned to */

clattn_status graph_begin(struct graph *graph, clattn_context *context)
{
    memset(graph, 0, sizeof *graph);
    graph->context = context;
    graph->arrays = array_grow(NULL, &graph->array_capacity, 0, sizeof *graph->arrays);
    if (!graph->arrays)
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    memset(graph->arrays, 0, sizeof *graph->arrays);
    graph->array_count = 1;
    return CLATTN_SUCCESS;
}

void graph_clear(struct graph *graph)
{
    /* Packing may still run if the graph could not be finished. */
    if (graph->prepacked && !graph->finished && !device_is_foreign(&graph->context->device))
        graph->context->device.cl.clFinish(graph->context->warm_queue);
    for (size_t i = 0; i < graph->plan_count; i++) {
        clattn_plan_release(&graph->plans[i].plan);
        free(graph->plans[i].desc);
    }
    if (graph->constant_count && device_is_foreign(&graph->context->device))
        cl_table_disown(&graph->context->device.cl);
    for (size_t i = 0; i < graph->constant_count; i++)
        graph->context->device.cl.clReleaseMemObject(graph->constants[i]);
    free(graph->constants);
    if (graph->host_bytes)
        staging_release(&graph->host, &graph->context->device, graph->context->warm_queue);
    free(graph->multiples);
    free(graph->plans);
    free(graph->steps);
    free(graph->arrays);
    memset(graph, 0, sizeof *graph);
}

/* ---- arrays and steps ---- */

static int add_array(struct graph *graph, const struct graph_array *array)
{
    struct graph_array *arrays = array_grow(graph->arrays, &graph->array_capacity, graph->array_count, sizeof *arrays);
    if (!arrays) {
        graph->failed = true;
        return 0;
    }
    graph->arrays = arrays;
    arrays[graph->array_count] = *array;
    arrays[graph->array_count].first = SIZE_MAX;
    return (int)graph->array_count++;
}

int graph_arena_array(struct graph *graph, clattn_dtype dtype, size_t elements)
{
    struct graph_array array = {.place = GRAPH_ARENA, .dtype = dtype};
    /* An overflow becomes more bytes than any arena can have, which graph_finish refuses. */
    if (!size_mul(elements, clattn_dtype_size((clattn_dtype)dtype), &array.bytes) || array.bytes > SIZE_MAX / 4)
        array.bytes = SIZE_MAX / 4;
    array.bytes = round_up(array.bytes, ALIGNMENT);
    return add_array(graph, &array);
}

int graph_bound_array(struct graph *graph, clattn_dtype dtype, int slot, int fallback)
{
    return add_array(graph,
                     &(struct graph_array){.place = GRAPH_BOUND, .dtype = dtype, .slot = slot, .fallback = fallback});
}

int graph_fixed_array(struct graph *graph, clattn_binding binding)
{
    return add_array(graph, &(struct graph_array){.place = GRAPH_FIXED, .fixed = binding});
}

/* Makes room for one more buffer that the graph owns. */
static clattn_status grow_constants(struct graph *graph)
{
    cl_mem *constants =
        array_grow(graph->constants, &graph->constant_capacity, graph->constant_count, sizeof *constants);
    if (!constants)
        return report_error(&graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    graph->constants = constants;
    return CLATTN_SUCCESS;
}

/* A new array in a buffer that the graph owns: a copy of `bytes` of the host or, if `data` is NULL, memory to write to. */
static clattn_status add_constant(struct graph *graph, size_t bytes, const void *data, int *array)
{
    cl_int code;
    clattn_status status;
    const cl_mem_flags flags = data ? CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR : CL_MEM_READ_WRITE;
    struct device *device = &graph->context->device;
    TRY(grow_constants(graph));
    cl_mem buffer = device->cl.clCreateBuffer(device->context, flags, bytes, (void *)(uintptr_t)data, &code);
    if (!buffer)
        return report_opencl(&device->report, "clCreateBuffer", code);
    graph->constants[graph->constant_count++] = buffer;
    *array = graph_fixed_array(graph, clattn_binding_buffer(buffer, 0));
fail:
    return status;
}

/* A new array in a buffer of another graph, which this one then owns, too. */
static clattn_status share_constant(struct graph *graph, const clattn_binding *shared, int *array)
{
    clattn_status status;
    struct device *device = &graph->context->device;
    TRY(grow_constants(graph));
    TRY_CL(&device->report, "clRetainMemObject", device->cl.clRetainMemObject(shared->buffer));
    graph->constants[graph->constant_count++] = shared->buffer;
    *array = graph_fixed_array(graph, *shared);
fail:
    return status;
}

clattn_status graph_constant_array(struct graph *graph, clattn_dtype dtype, size_t count, const void *data, int *array)
{
    return add_constant(graph, count * clattn_dtype_size(dtype), data, array);
}

enum graph_number graph_number(struct graph *graph, size_t factor, enum graph_number of)
{
    for (size_t i = 0; i < graph->multiple_count; i++)
        if (graph->multiples[i].factor == factor && graph->multiples[i].of == of)
            return (enum graph_number)(GRAPH_NUMBERS + i);
    struct graph_multiple *multiples =
        array_grow(graph->multiples, &graph->multiple_capacity, graph->multiple_count, sizeof *multiples);
    if (!multiples) {
        graph->failed = true;
        return NUMBER_ONE;
    }
    graph->multiples = multiples;
    multiples[graph->multiple_count] = (struct graph_multiple){factor, of};
    return (enum graph_number)(GRAPH_NUMBERS + graph->multiple_count++);
}

bool graph_is_constant(const struct graph *graph, enum graph_number number)
{
    return number == NUMBER_ONE ||
           (number >= GRAPH_NUMBERS && graph->multiples[number - GRAPH_NUMBERS].of == NUMBER_ONE);
}

size_t graph_constant(const struct graph *graph, enum graph_number number)
{
    return number == NUMBER_ONE ? 1 : graph->multiples[number - GRAPH_NUMBERS].factor;
}

static void note_life(struct graph *graph, int index, size_t step)
{
    struct graph_array *array = &graph->arrays[index];
    array->first = size_min(array->first, step);
    array->last = size_max(array->last, step);
    if (array->fallback)
        note_life(graph, array->fallback, step);
}

void graph_add(struct graph *graph, const struct graph_step *step)
{
    struct graph_step *steps = array_grow(graph->steps, &graph->step_capacity, graph->step_count, sizeof *steps);
    if (!steps) {
        graph->failed = true;
        return;
    }
    graph->steps = steps;
    steps[graph->step_count++] = *step;
}

/* ---- plans ---- */

/* The size of a description, which is its first member. */
static size_t desc_bytes(const void *desc)
{
    return *(const size_t *)desc;
}

static clattn_plan *find_plan(const struct graph *graph, enum graph_op op, const void *desc)
{
    for (size_t i = 0; i < graph->plan_count; i++)
        if (graph->plans[i].op == op && !memcmp(graph->plans[i].desc, desc, desc_bytes(desc)))
            return graph->plans[i].plan;
    return NULL;
}

const void *graph_desc(const struct graph *graph, const clattn_plan *plan)
{
    size_t i = 0;
    while (graph->plans[i].plan != plan)
        i++;
    return graph->plans[i].desc;
}

/* Adds a plan, which the graph then owns. */
static clattn_status add_plan(struct graph *graph, enum graph_op op, const void *desc, clattn_plan *plan)
{
    struct graph_plan *plans = array_grow(graph->plans, &graph->plan_capacity, graph->plan_count, sizeof *plans);
    void *copy = malloc(desc_bytes(desc));
    if (plans)
        graph->plans = plans;
    if (!plans || !copy) {
        free(copy);
        clattn_plan_release(&plan);
        return report_error(&graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    }
    memcpy(copy, desc, desc_bytes(desc));
    plans[graph->plan_count++] = (struct graph_plan){.op = op, .desc = copy, .plan = plan};
    return CLATTN_SUCCESS;
}

static clattn_status create_plan(clattn_context *context, enum graph_op op, const void *desc,
                                 const clattn_plan_options *options, clattn_plan **plan)
{
    const struct graph_weights_desc *weights = desc;
    switch (op) {
    case GRAPH_MATMUL: return clattn_matmul_plan_create(context, desc, options, plan);
    case GRAPH_ATTENTION: return clattn_attention_plan_create(context, desc, options, plan);
    case GRAPH_WEIGHTS:
        return attention_weights_plan_create(context, &weights->attention, &weights->layout, weights->average, plan);
    case GRAPH_NORM: return clattn_norm_plan_create(context, desc, options, plan);
    case GRAPH_EMBEDDING: return clattn_embedding_plan_create(context, desc, options, plan);
    case GRAPH_ROPE: return clattn_rope_plan_create(context, desc, options, plan);
    case GRAPH_APPEND: return clattn_kv_append_plan_create(context, desc, options, plan);
    case GRAPH_CONV2D: return clattn_conv2d_plan_create(context, desc, options, plan);
    case GRAPH_RESIZE: return clattn_resize_plan_create(context, desc, options, plan);
    case GRAPH_CONVERT: return clattn_activation_plan_create(context, desc, options, plan);
    case GRAPH_DROPOUT: return clattn_dropout_plan_create(context, desc, options, plan);
    case GRAPH_LOSS: return clattn_cross_entropy_plan_create(context, desc, options, plan);
    default: return report_error(&context->device.report, CLATTN_ERROR_INTERNAL, "a graph has no such operator");
    }
}

/* What an earlier graph has packed of the same b as this step would, or NULL. */
static const clattn_binding *find_packed(const struct graph *graph, const struct graph_step *step)
{
    const struct graph_operand *b = &step->operand[MATMUL_B];
    const clattn_binding *fixed = &graph->arrays[b->array].fixed;
    for (size_t i = 0; i < graph->earlier_count; i++)
        for (size_t j = 0; j < graph->earlier[i].step_count; j++) {
            const struct graph *other = &graph->earlier[i];
            const struct graph_step *s = &other->steps[j];
            if (!s->prepacked || !matmul_packs_alike(s->plan, step->plan))
                continue;
            const clattn_binding *its = &other->arrays[s->operand[MATMUL_B].array].fixed;
            if (its->buffer == fixed->buffer && its->offset + s->operand[MATMUL_B].offset == fixed->offset + b->offset)
                return &other->arrays[s->workspace].fixed;
        }
    return NULL;
}

/* Gives a product a workspace of its own and packs b into it, or one that has it already. */
static clattn_status prepack(struct graph *graph, struct graph_step *step)
{
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    const struct graph_operand *b = &step->operand[MATMUL_B];
    const clattn_binding *packed = find_packed(graph, step);
    clattn_status status;
    if (packed)
        TRY(share_constant(graph, packed, &step->workspace));
    else
        TRY(add_constant(graph, step->plan->workspace, NULL, &step->workspace));
    if (graph->failed)
        return report_error(&graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    step->prepacked = true;
    graph->launches--; /* of packing */
    if (packed)
        return CLATTN_SUCCESS;
    graph->prepacked += step->plan->workspace;
    args.prepack = CLATTN_PREPACK_PACK;
    args.b = graph->arrays[b->array].fixed;
    args.b.offset += b->offset;
    args.workspace = graph->arrays[step->workspace].fixed;
    status = clattn_matmul_enqueue(step->plan, graph->context->warm_queue, &args, 0, NULL, NULL);
fail:
    return status;
}

clattn_status graph_add_operator(struct graph *graph, const struct graph_step *given, const void *desc,
                                 const clattn_plan_options *options)
{
    clattn_status status = CLATTN_SUCCESS;
    struct graph_step step = *given;
    const struct graph_array *b = &graph->arrays[step.operand[MATMUL_B].array];
    const bool prepacks = graph->prepack && step.op == GRAPH_MATMUL && b->place == GRAPH_FIXED;
    clattn_matmul_desc packed;
    if (prepacks) {
        packed = *(const clattn_matmul_desc *)desc;
        packed.prepack = 1;
        desc = &packed;
    }
    step.plan = find_plan(graph, step.op, desc);
    if (!step.plan) {
        TRY(create_plan(graph->context, step.op, desc, options, &step.plan));
        TRY(add_plan(graph, step.op, desc, step.plan));
    }
    graph->launches += step.plan->launches;
    if (prepacks && matmul_packs_b(step.plan))
        TRY(prepack(graph, &step));
    else if (step.plan->workspace)
        step.workspace = graph_arena_array(graph, CLATTN_DTYPE_U8, step.plan->workspace);
    graph_add(graph, &step);
fail:
    return status;
}

/* ---- the arena ---- */

static bool live_together(const struct graph_array *a, const struct graph_array *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Places `array` as low as possible without overlap of the `count` placed arrays that live at the same time. */
static bool place(struct graph_array *array, struct graph_array *const *placed, size_t count)
{
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            const struct graph_array *other = placed[i];
            if (live_together(array, other) && at < other->at + other->bytes && other->at < at + array->bytes) {
                at = other->at + other->bytes;
                moved = true;
            }
        }
        if (at > SIZE_MAX / 4)
            return false;
    }
    array->at = at;
    return true;
}

static int larger_first(const void *left, const void *right)
{
    const struct graph_array *a = *(struct graph_array *const *)left, *b = *(struct graph_array *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : a > b;
}

/* Places the arrays largest first, each in the lowest gap.  That is not optimal, but layers repeat, and the arrays of
 * all layers fit where those of the first fit. */
static clattn_status lay_out(struct graph *graph, struct graph_array **order)
{
    size_t count = 0;
    for (size_t i = 0; i < graph->array_count; i++) {
        struct graph_array *array = &graph->arrays[i];
        if (array->place == GRAPH_ARENA && array->first <= array->last)
            order[count++] = array;
    }
    qsort(order, count, sizeof *order, larger_first);
    for (size_t i = 0; i < count; i++) {
        if (!place(order[i], order, i))
            return report_error(&graph->context->device.report, CLATTN_ERROR_OVERFLOW, "the workspace overflows");
        graph->arena = size_max(graph->arena, order[i]->at + order[i]->bytes);
        graph->unshared = graph->unshared > SIZE_MAX / 2 ? SIZE_MAX : graph->unshared + order[i]->bytes;
    }
    return CLATTN_SUCCESS;
}

clattn_status graph_finish(struct graph *graph)
{
    for (size_t i = 0; i < graph->step_count && !graph->failed; i++) {
        for (size_t j = 0; j < GRAPH_OPERANDS; j++)
            if (graph->steps[i].operand[j].array)
                note_life(graph, graph->steps[i].operand[j].array, i);
        if (graph->steps[i].workspace)
            note_life(graph, graph->steps[i].workspace, i);
    }
    struct graph_array **order = graph->failed ? NULL : malloc(graph->array_count * sizeof *order);
    if (!order)
        return report_error(&graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    clattn_status status = lay_out(graph, order);
    free(order);
    struct device *device = &graph->context->device;
    if (status == CLATTN_SUCCESS && graph->prepacked)
        TRY_CL(&device->report, "clFinish", device->cl.clFinish(graph->context->warm_queue));
    if (status == CLATTN_SUCCESS && graph->host_bytes &&
        !staging_make(&graph->host, device, graph->context->warm_queue, graph->host_bytes))
        status = report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for what ranks exchange");
    graph->finished = status == CLATTN_SUCCESS;
fail:
    return status;
}

void graph_explain(const struct graph *graph, struct strbuf *text)
{
    for (size_t i = 0; i < graph->plan_count; i++) {
        size_t uses = 0;
        for (size_t j = 0; j < graph->step_count; j++)
            uses += graph->steps[j].plan == graph->plans[i].plan;
        strbuf_printf(text, "%zu times: %s", uses, clattn_plan_explain(graph->plans[i].plan));
    }
    strbuf_printf(text, "%zu kernels, activations of %zu bytes at the peak (%zu without sharing)\n", graph->launches,
                  graph->arena, graph->unshared);
    if (graph->prepacked)
        strbuf_printf(text, "weights packed in advance: %zu bytes\n", graph->prepacked);
}
