/* A model's weights: which there are, where they lie on the device, and how they get there. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/convert.h"
#include "nn/model.h"

#define ALIGNMENT 128
#define NAME_BYTES 96
#define FILE_NAME_BYTES 256
#define BLOCK_BYTES ((size_t)1 << 20) /* of converted rows that are written at once */

/* A tensor of the source's, and the rows of a weight that it becomes: (rows, columns).  A vector has one column.  A
 * convolution's (rows, columns / kernel, kernel) is stored (rows, kernel, columns / kernel), so that a window of frames is
 * a row of a matrix. */
struct part {
    char name[NAME_BYTES];
    weight_id weight;
    size_t first, rows, columns, kernel;
    bool vector, convolution;
    bool zero; /* there is no such tensor, but rows of zeros in its place */
};

struct loader {
    clattn_transformer *model;
    const clattn_weight_source *source;
    struct part *parts;
    size_t part_count, part_room;
    struct part nowhere; /* what is declared when host memory is out */
    bool failed;
};

/* ---- declaring ---- */

static weight_id declare(struct loader *loader, size_t rows, size_t columns, int32_t dtype)
{
    clattn_transformer *model = loader->model;
    if (model->weight_count == model->weight_room) {
        size_t room = model->weight_room ? 2 * model->weight_room : 64;
        struct weight *weights = realloc(model->weights, room * sizeof *weights);
        if (!weights) {
            loader->failed = true;
            return 0;
        }
        model->weights = weights;
        model->weight_room = room;
        if (!model->weight_count)
            weights[model->weight_count++] = (struct weight){0};
    }
    model->weights[model->weight_count] = (struct weight){.rows = rows, .columns = columns, .dtype = dtype};
    return (weight_id)model->weight_count++;
}

static struct part *add_part(struct loader *loader, weight_id weight, size_t first, size_t rows, size_t columns,
                             const char *format, ...) PRINTF_LIKE(6, 7);
static struct part *add_part(struct loader *loader, weight_id weight, size_t first, size_t rows, size_t columns,
                             const char *format, ...)
{
    if (loader->part_count == loader->part_room) {
        size_t room = loader->part_room ? 2 * loader->part_room : 128;
        struct part *parts = realloc(loader->parts, room * sizeof *parts);
        if (!parts) {
            loader->failed = true;
            return &loader->nowhere;
        }
        loader->parts = parts;
        loader->part_room = room;
    }
    struct part *part = &loader->parts[loader->part_count++];
    *part = (struct part){.weight = weight, .first = first, .rows = rows, .columns = columns, .kernel = 1};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part->name, sizeof part->name, format, arguments);
    va_end(arguments);
    return part;
}

/* What becomes one linear layer. */
struct share {
    const char *name;
    size_t rows;
    bool bias;
};

/* The dtype of a matrix that is multiplied by, with its scales. */
static weight_id declare_matrix(struct loader *loader, size_t rows, size_t columns)
{
    const clattn_transformer *model = loader->model;
    weight_id id = declare(loader, rows, columns, model->weight_dtype);
    if (id && model->weight_dtype == CLATTN_I8) {
        weight_id scale = declare(loader, rows, 1, CLATTN_F32);
        loader->model->weights[id].scale = scale;
    }
    return id;
}

/* Of vectors, tables and convolutions. */
static int32_t plain_dtype(const clattn_transformer *model)
{
    return model->weight_dtype == CLATTN_I8 ? model->dtype : model->weight_dtype;
}

static void add_vector(struct loader *loader, weight_id id, size_t first, size_t rows, bool there,
                       const char *prefix, const char *name)
{
    struct part *part = add_part(loader, id, first, rows, 1, "%s%s", prefix, name);
    part->vector = true;
    part->zero = !there;
}

static struct linear linear(struct loader *loader, const char *prefix, const struct share *shares, size_t count,
                            size_t columns)
{
    struct linear linear = {.columns = columns};
    bool bias = false;
    char name[NAME_BYTES];
    for (size_t i = 0; i < count; i++) {
        linear.rows += shares[i].rows;
        bias = bias || shares[i].bias;
    }
    linear.weight = declare_matrix(loader, linear.rows, columns);
    if (bias)
        linear.bias = declare(loader, linear.rows, 1, plain_dtype(loader->model));
    for (size_t i = 0, first = 0; i < count; first += shares[i++].rows) {
        add_part(loader, linear.weight, first, shares[i].rows, columns, "%s%s.weight", prefix, shares[i].name);
        snprintf(name, sizeof name, "%s.bias", shares[i].name);
        if (bias)
            add_vector(loader, linear.bias, first, shares[i].rows, shares[i].bias, prefix, name);
    }
    return linear;
}

static struct norm_weights norm(struct loader *loader, const clattn_stack_desc *desc, const char *prefix)
{
    struct norm_weights norm = {.there = true};
    norm.scale = declare(loader, desc->d_model, 1, plain_dtype(loader->model));
    add_vector(loader, norm.scale, 0, desc->d_model, true, prefix, "norm.weight");
    if (desc->norm == CLATTN_NORM_LAYER && !(desc->without_bias & CLATTN_WITHOUT_NORM_BIAS)) {
        norm.bias = declare(loader, desc->d_model, 1, plain_dtype(loader->model));
        add_vector(loader, norm.bias, 0, desc->d_model, true, prefix, "norm.bias");
    }
    return norm;
}

static weight_id table(struct loader *loader, const char *stack, const char *name, size_t rows, size_t columns)
{
    weight_id id = declare(loader, rows, columns, plain_dtype(loader->model));
    add_part(loader, id, 0, rows, columns, "%s.%s.weight", stack, name);
    return id;
}

static struct attention_weights attention(struct loader *loader, const struct stack *stack, bool cross,
                                          const char *prefix)
{
    const clattn_stack_desc *d = &stack->desc;
    const uint32_t without = d->without_bias;
    const struct share shares[] = {{"query", stack->inner, !(without & CLATTN_WITHOUT_QUERY_BIAS)},
                                   {"key", stack->inner_kv, !(without & CLATTN_WITHOUT_KEY_BIAS)},
                                   {"value", stack->inner_kv, !(without & CLATTN_WITHOUT_VALUE_BIAS)},
                                   {"output", d->d_model, !(without & CLATTN_WITHOUT_OUTPUT_BIAS)}};
    struct attention_weights weights = {0};
    weights.in = linear(loader, prefix, shares, cross ? 1 : 3, d->d_model);
    if (cross)
        weights.memory = linear(loader, prefix, shares + 1, 2, d->d_memory);
    weights.out = linear(loader, prefix, shares + 3, 1, stack->inner);
    weights.norm = norm(loader, d, prefix);
    return weights;
}

static void declare_layer(struct loader *loader, struct stack *stack, const char *name, size_t index)
{
    const clattn_stack_desc *d = &stack->desc;
    struct layer_weights *layer = &stack->layers[index];
    const bool bias = !(d->without_bias & CLATTN_WITHOUT_FEED_FORWARD_BIAS);
    const struct share in = {"in", d->d_ff, bias}, gate = {"gate", d->d_ff, bias}, out = {"out", d->d_model, bias};
    char prefix[NAME_BYTES / 2];
    snprintf(prefix, sizeof prefix, "%s.layers.%zu.self.", name, index);
    layer->self = attention(loader, stack, false, prefix);
    snprintf(prefix, sizeof prefix, "%s.layers.%zu.cross.", name, index);
    if (d->cross)
        layer->cross = attention(loader, stack, true, prefix);
    snprintf(prefix, sizeof prefix, "%s.layers.%zu.feed_forward.", name, index);
    layer->in = linear(loader, prefix, &in, 1, d->d_model);
    if (d->gated)
        layer->gate = linear(loader, prefix, &gate, 1, d->d_model);
    layer->out = linear(loader, prefix, &out, 1, d->d_ff);
    layer->norm = norm(loader, d, prefix);
}

static void declare_convolutions(struct loader *loader, struct stack *stack, const char *name)
{
    const clattn_stack_desc *d = &stack->desc;
    for (size_t i = 0; i < d->convolutions; i++) {
        struct linear *c = &stack->convolution[i];
        const size_t kernel = d->convolution[i].kernel, channels = i ? d->d_model : d->features;
        char bias[NAME_BYTES / 2];
        c->rows = d->d_model;
        c->columns = kernel * channels;
        c->weight = declare(loader, c->rows, c->columns, plain_dtype(loader->model));
        struct part *part = add_part(loader, c->weight, 0, c->rows, c->columns, "%s.convolutions.%zu.weight", name, i);
        part->kernel = kernel;
        part->convolution = true;
        c->bias = declare(loader, c->rows, 1, plain_dtype(loader->model));
        snprintf(bias, sizeof bias, ".convolutions.%zu.bias", i);
        add_vector(loader, c->bias, 0, c->rows, true, name, bias);
    }
}

static void declare_stack(struct loader *loader, struct stack *stack, const char *name)
{
    const clattn_stack_desc *d = &stack->desc;
    char prefix[NAME_BYTES / 2];
    stack->layers = calloc(d->layers, sizeof *stack->layers);
    if (!stack->layers) {
        loader->failed = true;
        return;
    }
    if (d->input == CLATTN_INPUT_TOKENS)
        stack->tokens = table(loader, name, "tokens", d->vocabulary, d->d_model);
    if (d->positions == CLATTN_POSITIONS_TABLE)
        stack->positions = table(loader, name, "positions", d->position_count, d->d_model);
    if (d->segments)
        stack->segments = table(loader, name, "segments", d->segments, d->d_model);
    snprintf(prefix, sizeof prefix, "%s.input_", name);
    if (d->input_norm)
        stack->input_norm = norm(loader, d, prefix);
    declare_convolutions(loader, stack, name);
    for (size_t i = 0; i < d->layers && !loader->failed; i++)
        declare_layer(loader, stack, name, i);
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (d->final_norm)
        stack->final_norm = norm(loader, d, prefix);
}

static void declare_output(struct loader *loader)
{
    clattn_transformer *model = loader->model;
    struct linear *logits = &model->logits;
    logits->rows = model->output_size;
    logits->columns = model->decoder.desc.d_model;
    if (model->output == CLATTN_OUTPUT_TIED)
        logits->weight = model->decoder.tokens;
    if (model->output != CLATTN_OUTPUT_OWN)
        return;
    logits->weight = declare_matrix(loader, logits->rows, logits->columns);
    add_part(loader, logits->weight, 0, logits->rows, logits->columns, "output.weight");
    if (!model->output_bias)
        return;
    logits->bias = declare(loader, logits->rows, 1, plain_dtype(model));
    add_vector(loader, logits->bias, 0, logits->rows, true, "output.", "bias");
}

/* ---- places ---- */

static clattn_status give_buffer(clattn_transformer *model, size_t bytes)
{
    cl_int code;
    struct device *device = &model->context->device;
    cl_mem *buffers = realloc(model->buffers, (model->buffer_count + 1) * sizeof(cl_mem));
    if (!buffers)
        return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
    model->buffers = buffers;
    buffers[model->buffer_count] =
        device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!buffers[model->buffer_count])
        return report_opencl(&device->report, "clCreateBuffer", code);
    model->buffer_count++;
    model->bytes += bytes;
    return CLATTN_SUCCESS;
}

/* As few buffers as the device's largest allocation makes possible. */
static clattn_status place(clattn_transformer *model)
{
    clattn_status status;
    struct device *device = &model->context->device;
    const size_t limit = (size_t)(device->caps.info.max_allocation < SIZE_MAX / 4 ? device->caps.info.max_allocation
                                                                                  : SIZE_MAX / 4);
    size_t filled = 0, buffer = 0;
    for (size_t i = 1; i < model->weight_count; i++) {
        struct weight *weight = &model->weights[i];
        size_t bytes;
        if (!size_mul(weight->rows, weight->columns, &bytes) ||
            !size_mul(bytes, clattn_dtype_size((clattn_dtype)weight->dtype), &bytes) || bytes > limit - ALIGNMENT)
            return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY,
                                "a weight of %zu times %zu elements is above the device's largest buffer of %zu bytes",
                                weight->rows, weight->columns, limit);
        bytes = round_up(bytes, ALIGNMENT);
        if (filled > limit - bytes) {
            TRY(give_buffer(model, filled));
            filled = 0;
            buffer++;
        }
        weight->buffer = buffer;
        weight->at = filled;
        filled += bytes;
    }
    status = give_buffer(model, size_max(filled, ALIGNMENT));
fail:
    return status;
}

/* ---- loading ---- */

/* "512 x 64" for a tensor's shape. */
static void describe(const clattn_host_tensor *tensor, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "%s ", clattn_dtype_name((clattn_dtype)tensor->dtype));
    for (int32_t i = 0; i < tensor->rank && i < CLATTN_MAX_RANK && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%zu", i ? " x " : "", tensor->extent[i]);
    if (!tensor->rank)
        snprintf(text, bytes, "%s scalar", clattn_dtype_name((clattn_dtype)tensor->dtype));
}

/* A found tensor and how the part's rows lie in it. */
struct origin {
    clattn_host_tensor tensor;
    size_t share, shares;
    int32_t transposed;
};

static clattn_host_tensor expected_of(const struct part *part, const struct origin *origin)
{
    const size_t rows = part->rows * origin->shares;
    clattn_host_tensor expected = {.dtype = CLATTN_F32, .rank = part->vector ? 1 : part->convolution ? 3 : 2};
    expected.extent[0] = origin->transposed ? part->columns : rows;
    expected.extent[1] = origin->transposed ? rows : part->columns / part->kernel;
    expected.extent[2] = part->kernel;
    return expected;
}

static clattn_status find(struct loader *loader, const struct part *part, struct origin *origin)
{
    struct report *report = &loader->model->context->device.report;
    clattn_io_error error = {""};
    char name[FILE_NAME_BYTES], found[160], expected[160];
    const size_t length = clattn_weight_name(loader->source, part->name, name, sizeof name, &origin->share,
                                             &origin->shares, &origin->transposed);
    if (length >= sizeof name)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: its name is longer than %d bytes", part->name,
                            FILE_NAME_BYTES - 1);
    const clattn_host_tensor want = expected_of(part, origin);
    clattn_host_tensor *tensor = &origin->tensor;
    describe(&want, expected, sizeof expected);
    memset(tensor, 0, sizeof *tensor);
    clattn_status status = length ? loader->source->lookup(loader->source->user, name, tensor, &error) : CLATTN_SUCCESS;
    if (status != CLATTN_SUCCESS)
        return report_error(report, status, "%s: %s", name, error.message[0] ? error.message : "not readable");
    if (!tensor->dtype)
        return report_error(report, CLATTN_ERROR_FORMAT, "the model has no tensor %s (%s), which should be %s", name,
                            part->name, expected + sizeof "float32");
    describe(tensor, found, sizeof found);
    bool same = tensor->rank == want.rank;
    for (int32_t i = 0; same && i < want.rank; i++)
        same = tensor->extent[i] == want.extent[i];
    if (!same)
        return report_error(report, CLATTN_ERROR_FORMAT, "the model's tensor %s (%s) is %s, not %s", name, part->name,
                            found, expected + sizeof "float32");
    if (tensor->dtype != CLATTN_F32 && tensor->dtype != CLATTN_F16 && tensor->dtype != CLATTN_BF16)
        return report_error(report, CLATTN_ERROR_FORMAT,
                            "the model's tensor %s (%s) is %s, where float32, float16 or bfloat16 is expected", name,
                            part->name, found);
    if (!tensor->data || tensor->bytes != part->rows * origin->shares * part->columns *
                                              clattn_dtype_size((clattn_dtype)tensor->dtype))
        return report_error(report, CLATTN_ERROR_FORMAT, "the model's tensor %s (%s) has %zu bytes, not those of %s", name,
                            part->name, tensor->bytes, found);
    return CLATTN_SUCCESS;
}

/* Where element (row, column) of the part's destination is in the tensor. */
static size_t index_of(const struct part *part, const struct origin *origin, size_t row, size_t column)
{
    const size_t own = origin->share * part->rows + row, channels = part->columns / part->kernel;
    if (origin->transposed)
        return column * part->rows * origin->shares + own;
    if (part->kernel > 1)
        return (own * channels + column % channels) * part->kernel + column / channels;
    return own * part->columns + column;
}

static void convert_row(const struct part *part, const struct origin *origin, size_t row, float *values)
{
    if (part->zero) {
        memset(values, 0, part->columns * sizeof *values);
        return;
    }
    for (size_t c = 0; c < part->columns; c++)
        values[c] = load_element(origin->tensor.dtype, origin->tensor.data, index_of(part, origin, row, c));
}

/* The row as integers; returns its scale. */
static float quantise_row(const float *values, size_t columns, int8_t *integers)
{
    float largest = 0;
    for (size_t c = 0; c < columns; c++)
        largest = fmaxf(largest, fabsf(values[c]));
    const float scale = largest / 127;
    for (size_t c = 0; c < columns; c++)
        integers[c] = (int8_t)(scale > 0 ? lrintf(fmaxf(-127, fminf(127, values[c] / scale))) : 0);
    return scale;
}

static clattn_status write(clattn_transformer *model, cl_command_queue queue, const struct weight *weight, size_t row,
                           size_t rows, const void *data)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &model->context->device;
    const size_t bytes = weight->columns * clattn_dtype_size((clattn_dtype)weight->dtype);
    TRY_CL(&device->report, "clEnqueueWriteBuffer",
           device->cl.clEnqueueWriteBuffer(queue, model->buffers[weight->buffer], CL_TRUE, weight->at + row * bytes,
                                           rows * bytes, data, 0, NULL, NULL));
fail:
    return status;
}

/* Rows that are converted and written at once. */
struct block {
    float *values; /* one row */
    void *rows;
    float *scales;
    size_t room; /* rows */
};

static clattn_status copy_part(struct loader *loader, cl_command_queue queue, const struct part *part,
                               const struct origin *origin, struct block *block)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct weight *weight = &loader->model->weights[part->weight];
    const size_t element = clattn_dtype_size((clattn_dtype)weight->dtype);
    if (!part->zero && origin->tensor.dtype == weight->dtype && !origin->transposed && part->kernel == 1) {
        const char *data = origin->tensor.data;
        return write(loader->model, queue, weight, part->first, part->rows,
                     data + origin->share * part->rows * part->columns * element);
    }
    for (size_t row = 0; row < part->rows; row += block->room) {
        const size_t rows = size_min(block->room, part->rows - row);
        for (size_t i = 0; i < rows; i++) {
            convert_row(part, origin, row + i, block->values);
            if (weight->dtype == CLATTN_I8)
                block->scales[i] =
                    quantise_row(block->values, part->columns, (int8_t *)block->rows + i * part->columns);
            else
                for (size_t c = 0; c < part->columns; c++)
                    store_element(weight->dtype, block->rows, i * part->columns + c, block->values[c]);
        }
        TRY(write(loader->model, queue, weight, part->first + row, rows, block->rows));
        if (weight->scale)
            TRY(write(loader->model, queue, &loader->model->weights[weight->scale], part->first + row, rows,
                      block->scales));
    }
fail:
    return status;
}

static clattn_status load_part(struct loader *loader, cl_command_queue queue, const struct part *part)
{
    clattn_status status;
    struct origin origin = {.shares = 1};
    struct block block = {.room = size_min(part->rows, BLOCK_BYTES / sizeof(float) / part->columns + 1)};
    if (!part->zero) {
        status = find(loader, part, &origin);
        if (status != CLATTN_SUCCESS)
            return status;
        loader->model->parameters += part->rows * part->columns;
    }
    block.values = malloc(part->columns * sizeof(float));
    block.rows = malloc(block.room * part->columns * sizeof(float));
    block.scales = malloc(block.room * sizeof(float));
    if (block.values && block.rows && block.scales)
        status = copy_part(loader, queue, part, &origin, &block);
    else
        status = report_error(&loader->model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY,
                              "no memory for a model");
    free(block.values);
    free(block.rows);
    free(block.scales);
    return status;
}

/* By a queue of our own: the application's would make the call wait for all that it is busy with. */
static clattn_status load_parts(struct loader *loader)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &loader->model->context->device;
    cl_int code;
    cl_command_queue queue = device->cl.clCreateCommandQueue(device->context, device->caps.device, 0, &code);
    if (!queue)
        return report_opencl(&device->report, "clCreateCommandQueue", code);
    for (size_t i = 0; i < loader->part_count; i++)
        TRY(load_part(loader, queue, &loader->parts[i]));
fail:
    device->cl.clReleaseCommandQueue(queue);
    return status;
}

clattn_status model_load(clattn_transformer *model, const clattn_weight_source *source)
{
    clattn_status status;
    struct loader loader = {.model = model, .source = source};
    if (model->has_encoder)
        declare_stack(&loader, &model->encoder, "encoder");
    if (model->has_decoder)
        declare_stack(&loader, &model->decoder, "decoder");
    declare_output(&loader);
    status = loader.failed ? report_error(&model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY,
                                          "no memory for a model")
                           : place(model);
    if (status == CLATTN_SUCCESS)
        status = load_parts(&loader);
    free(loader.parts);
    return status;
}
