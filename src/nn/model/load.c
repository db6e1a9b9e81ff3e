/* Loads a model's weights: allocates buffers, checks tensors, converts and uploads rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/model/load.h"

#define ALIGNMENT 128
/* The most that weights take in a buffer which has several.  Ranks that train exchange buffers, and their devices may allow different
 * largest ones. */
#define BUFFER_BYTES ((size_t)1 << 30)
#define FILE_NAME_BYTES 256
#define BLOCK_BYTES ((size_t)1 << 20)  /* of rows that are converted and uploaded at once */
#define HALVES_BYTES ((size_t)1 << 18) /* from which on an upload is worth two cores */

/* ---- places ---- */

static clattn_status give_buffer(clattn_transformer *model, size_t bytes)
{
    cl_int code;
    struct device *device = &model->context->device;
    cl_mem *buffers = realloc(model->buffers, (model->buffer_count + 1) * sizeof(cl_mem));
    if (!buffers)
        return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
    model->buffers = buffers;
    buffers[model->buffer_count] = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!buffers[model->buffer_count])
        return report_opencl(&device->report, "clCreateBuffer", code);
    model->buffer_count++;
    model->bytes += bytes;
    return CLATTN_SUCCESS;
}

/* Places the weights that are the rank's own, or those that all ranks have, in as few buffers as BUFFER_BYTES and the device's largest
 * allocation allow. */
static clattn_status place_some(clattn_transformer *model, bool own)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &model->context->device;
    const size_t limit =
        (size_t)(device->caps.info.max_allocation < SIZE_MAX / 4 ? device->caps.info.max_allocation : SIZE_MAX / 4);
    const size_t room = size_min(limit, BUFFER_BYTES);
    size_t filled = 0;
    for (size_t i = 1; i < model->weight_count; i++) {
        struct weight *weight = &model->weights[i];
        size_t bytes;
        if (weight->own != own)
            continue;
        if (!size_mul(weight->rows, weight->columns, &bytes) ||
            !size_mul(bytes, clattn_dtype_size(weight->dtype), &bytes) || bytes > limit - ALIGNMENT)
            return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY,
                                "a weight of %zu times %zu elements is above the device's largest buffer of %zu bytes",
                                weight->rows, weight->columns, limit);
        bytes = round_up(bytes, ALIGNMENT);
        if (filled && (filled > room || bytes > room - filled)) {
            TRY(give_buffer(model, filled));
            filled = 0;
        }
        weight->buffer = model->buffer_count;
        weight->at = filled;
        filled += bytes;
    }
    if (filled)
        status = give_buffer(model, filled);
fail:
    return status;
}

static clattn_status place(clattn_transformer *model)
{
    clattn_status status;
    TRY(place_some(model, true));
    model->own_buffers = model->buffer_count;
    status = place_some(model, false);
fail:
    return status;
}

/* ---- loading ---- */

/* Writes a tensor's type and shape, "float32 512 x 64". */
static void describe(const clattn_host_tensor *tensor, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "%s ", clattn_dtype_name(tensor->dtype));
    for (int32_t i = 0; i < tensor->rank && i < CLATTN_MAX_RANK && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%zu", i ? " x " : "", tensor->extent[i]);
    if (!tensor->rank)
        snprintf(text, bytes, "%s scalar", clattn_dtype_name(tensor->dtype));
}

/* A tensor that was found, the part's place in it, and a copy of the vector that multiplies its rows, or NULL. */
struct origin {
    clattn_host_tensor tensor;
    float *scale;
    size_t share, shares;
    int32_t transposed;
};

/* The number of distances of two places in a window. */
static size_t distances_of(const clattn_windows *w)
{
    return (2 * w->rows - 1) * (2 * w->columns - 1);
}

/* The number of elements of the part, or of the whole tensor's share that it lies in. */
static size_t elements_of(const struct part *part, bool whole)
{
    const size_t rows = whole ? part->of_rows.whole : part->rows;
    const size_t columns = whole ? part->of_columns.whole : part->columns;
    return rows * (part->windows ? distances_of(part->windows) : columns);
}

static clattn_host_tensor expected_of(const struct part *part, const struct origin *origin)
{
    const size_t rows = part->of_rows.whole * origin->shares, columns = part->of_columns.whole;
    clattn_host_tensor expected = {.dtype = CLATTN_DTYPE_F32, .rank = part->vector ? 1 : part->convolution ? 3 : 2};
    expected.extent[0] = origin->transposed ? columns : rows;
    expected.extent[1] = origin->transposed ? rows : columns / part->kernel;
    expected.extent[2] = part->kernel;
    if (part->windows) {
        expected.extent[0] = distances_of(part->windows);
        expected.extent[1] = rows;
    }
    if (part->window[0]) {
        expected.rank = 4;
        expected.extent[1] = part->columns / part->window[0] / part->window[1];
        expected.extent[2] = part->window[0];
        expected.extent[3] = part->window[1];
    }
    return expected;
}

/* Whether the tensor's extents end with these, and all before are 1. */
static bool ends_with(const clattn_host_tensor *tensor, int32_t rank, const size_t *extent)
{
    if (tensor->rank < rank || tensor->rank > CLATTN_MAX_RANK)
        return false;
    const int32_t more = tensor->rank - rank;
    bool same = true;
    for (int32_t i = 0; same && i < tensor->rank; i++)
        same = tensor->extent[i] == (i < more ? 1 : extent[i - more]);
    return same;
}

static bool has_shape(const struct part *part, const clattn_host_tensor *tensor, const clattn_host_tensor *want)
{
    if (ends_with(tensor, want->rank, want->extent))
        return true;
    return part->grid &&
           ends_with(tensor, 3, (const size_t[3]){part->grid->grid_rows, part->grid->grid_columns, part->columns});
}

/* Notes that the model reads the tensor of this name. */
static clattn_status note_name(clattn_transformer *model, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    if (clattn_transformer_has_read(model, name)) /* a share of it */
        return CLATTN_SUCCESS;
    char *names = realloc(model->names, model->name_bytes + bytes);
    if (!names)
        return report_error(&model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
    memcpy(names + model->name_bytes, name, bytes);
    model->names = names;
    model->name_bytes += bytes;
    return CLATTN_SUCCESS;
}

static clattn_status find_tensor(struct loader *loader, const struct part *part, struct origin *origin)
{
    struct report *report = &loader->model->context->device.report;
    clattn_io_error error = {""};
    char name[FILE_NAME_BYTES], found[160], expected[160];
    const size_t length = clattn_weight_name(loader->source, part->name, name, sizeof name, &origin->share,
                                             &origin->shares, &origin->transposed);
    if (length >= sizeof name)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: its name is longer than %d bytes", part->name,
                            FILE_NAME_BYTES - 1);
    if (part->vector) /* in a rule with {kind}, ^T is for the matrix */
        origin->transposed = 0;
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
    if (!has_shape(part, tensor, &want))
        return report_error(report, CLATTN_ERROR_FORMAT, "the model's tensor %s (%s) is %s, not %s", name, part->name,
                            found, expected + sizeof "float32");
    if (tensor->dtype != CLATTN_DTYPE_F32 && tensor->dtype != CLATTN_DTYPE_F16 && tensor->dtype != CLATTN_DTYPE_BF16)
        return report_error(report, CLATTN_ERROR_FORMAT,
                            "the model's tensor %s (%s) is %s, where float32, float16 or bfloat16 is expected", name,
                            part->name, found);
    if (!tensor->data || tensor->bytes != elements_of(part, true) * origin->shares * clattn_dtype_size(tensor->dtype))
        return report_error(report, CLATTN_ERROR_FORMAT, "the model's tensor %s (%s) has %zu bytes, not those of %s",
                            name, part->name, tensor->bytes, found);
    return note_name(loader->model, name);
}

/* The row of the tensor that the part begins with. */
static size_t first_row(const struct part *part, const struct origin *origin)
{
    return origin->share * part->of_rows.whole + part->of_rows.first;
}

/* Finds a part's tensor.  The scale comes first and is copied: a tensor is borrowed until the next one is asked for. */
static clattn_status find(struct loader *loader, const struct part *part, struct origin *origin)
{
    clattn_status status = CLATTN_SUCCESS;
    struct part scale = {.rows = part->rows, .columns = 1, .kernel = 1, .vector = true};
    scale.of_rows = part->of_rows;
    scale.of_columns = (struct split){0, 1, 1};
    struct origin own = {.shares = 1};
    *origin = (struct origin){.shares = 1};
    if (part->scale_name[0]) {
        memcpy(scale.name, part->scale_name, sizeof scale.name);
        TRY(find_tensor(loader, &scale, &own));
        origin->scale = malloc(part->rows * sizeof *origin->scale);
        if (!origin->scale)
            return report_error(&loader->model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY,
                                "no memory for a model");
        load_elements(own.tensor.dtype, own.tensor.data, first_row(&scale, &own), part->rows, origin->scale);
    }
    status = find_tensor(loader, part, origin);
    if (status != CLATTN_SUCCESS) {
        free(origin->scale);
        origin->scale = NULL;
    }
fail:
    return status;
}

/* The index in the tensor of element (row, column) of the part. */
static size_t index_of(const struct part *part, const struct origin *origin, size_t row, size_t column)
{
    const size_t own = first_row(part, origin) + row, columns = part->of_columns.whole;
    const size_t channels = columns / part->kernel;
    column += part->of_columns.first;
    if (part->windows) {
        const clattn_windows *w = part->windows;
        const size_t places = w->rows * w->columns, query = column / places, key = column % places;
        const size_t down = query / w->columns + w->rows - 1 - key / w->columns;
        const size_t across = query % w->columns + w->columns - 1 - key % w->columns;
        return (down * (2 * w->columns - 1) + across) * part->of_rows.whole + own;
    }
    if (origin->transposed)
        return column * part->of_rows.whole * origin->shares + own;
    if (part->kernel > 1)
        return (own * channels + column % channels) * part->kernel + column / channels;
    return own * columns + column;
}

static void convert_row(const struct part *part, const struct origin *origin, size_t row, float *values)
{
    if (part->zero) {
        memset(values, 0, part->columns * sizeof *values);
        return;
    }
    if (!origin->transposed && part->kernel == 1 && !part->windows)
        load_elements(origin->tensor.dtype, origin->tensor.data, index_of(part, origin, row, 0), part->columns, values);
    else
        for (size_t c = 0; c < part->columns; c++)
            values[c] = load_element(origin->tensor.dtype, origin->tensor.data, index_of(part, origin, row, c));
    const float factor = (origin->scale ? origin->scale[row] : 1) * (part->factor ? part->factor : 1);
    for (size_t c = 0; c < part->columns && factor != 1; c++)
        values[c] *= factor;
}

/* Quantises a row and returns its scale, which is NaN if an element is NaN. */
static float quantise_row(const float *values, size_t columns, int8_t *integers)
{
    float largest = 0;
    bool nan = false;
    for (size_t c = 0; c < columns; c++) {
        largest = fmaxf(largest, fabsf(values[c]));
        nan = nan || isnan(values[c]);
    }
    const float scale = nan ? NAN : largest / 127;
    for (size_t c = 0; c < columns; c++)
        integers[c] = (int8_t)(scale > 0 ? lrintf(fmaxf(-127, fminf(127, values[c] / scale))) : 0);
    return scale;
}

/* Where weights are uploaded: two queues, because PoCL copies a command's bytes on one core. */
struct upload {
    struct device *device;
    cl_command_queue queue, other;
};

static clattn_status begin_upload(struct upload *upload)
{
    cl_int code = CL_SUCCESS;
    struct device *device = upload->device;
    cl_command_queue *const queues[2] = {&upload->queue, &upload->other};
    for (int i = 0; i < 2; i++) {
        *queues[i] = device->cl.clCreateCommandQueue(device->context, device->caps.device, 0, &code);
        if (!*queues[i])
            return report_opencl(&device->report, "clCreateCommandQueue", code);
    }
    return CLATTN_SUCCESS;
}

static clattn_status end_upload(struct upload *upload, clattn_status status)
{
    struct device *device = upload->device;
    if (status == CLATTN_SUCCESS) {
        TRY_CL(&device->report, "clFinish", device->cl.clFinish(upload->queue));
        TRY_CL(&device->report, "clFinish", device->cl.clFinish(upload->other));
    }
fail:
    if (upload->queue)
        device->cl.clReleaseCommandQueue(upload->queue);
    if (upload->other)
        device->cl.clReleaseCommandQueue(upload->other);
    return status;
}

/* Copies `bytes` of `data` into the buffer from `at` on, the second half of many on the other queue. */
static clattn_status copy_bytes(const struct upload *upload, cl_mem buffer, size_t at, size_t bytes, const void *data)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = upload->device;
    const size_t first = bytes < HALVES_BYTES ? bytes : bytes / 2;
    if (first < bytes)
        TRY_CL(&device->report, "clEnqueueWriteBuffer",
               device->cl.clEnqueueWriteBuffer(upload->other, buffer, CL_FALSE, at + first, bytes - first,
                                               (const char *)data + first, 0, NULL, NULL));
    TRY_CL(&device->report, "clEnqueueWriteBuffer",
           device->cl.clEnqueueWriteBuffer(upload->queue, buffer, CL_TRUE, at, first, data, 0, NULL, NULL));
fail:
    if (first < bytes) {
        const cl_int code = device->cl.clFinish(upload->other);
        if (code != CL_SUCCESS && status == CLATTN_SUCCESS)
            status = report_opencl(&device->report, "clFinish", code);
    }
    return status;
}

static clattn_status write(clattn_transformer *model, const struct upload *upload, const struct weight *weight,
                           size_t row, size_t rows, const void *data)
{
    const size_t bytes = weight->columns * clattn_dtype_size(weight->dtype);
    return copy_bytes(upload, model->buffers[weight->buffer], weight->at + row * bytes, rows * bytes, data);
}

/* The memory for rows that are converted and uploaded at once. */
struct block {
    float *values; /* one row */
    void *rows;
    float *scales;
    size_t capacity; /* rows */
};

static clattn_status copy_part(struct loader *loader, const struct upload *upload, const struct part *part,
                               const struct origin *origin, struct block *block)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct weight *weight = &loader->model->weights[part->weight];
    const size_t element = clattn_dtype_size(weight->dtype);
    float *const floats = weight->dtype == CLATTN_DTYPE_F32 ? block->rows : NULL;
    if (!part->zero && origin->tensor.dtype == weight->dtype && !origin->transposed && part->kernel == 1 &&
        !origin->scale && !part->windows && !part->factor && part->columns == part->of_columns.whole) {
        const char *data = origin->tensor.data;
        return write(loader->model, upload, weight, part->first, part->rows,
                     data + first_row(part, origin) * part->columns * element);
    }
    for (size_t row = 0; row < part->rows; row += block->capacity) {
        const size_t rows = size_min(block->capacity, part->rows - row);
        for (size_t i = 0; i < rows; i++) {
            convert_row(part, origin, row + i, floats ? floats + i * part->columns : block->values);
            if (weight->dtype == CLATTN_DTYPE_I8)
                block->scales[i] =
                    quantise_row(block->values, part->columns, (int8_t *)block->rows + i * part->columns);
            else if (!floats)
                for (size_t c = 0; c < part->columns; c++)
                    store_element(weight->dtype, block->rows, i * part->columns + c, block->values[c]);
        }
        TRY(write(loader->model, upload, weight, part->first + row, rows, block->rows));
        if (weight->scale)
            TRY(write(loader->model, upload, &loader->model->weights[weight->scale], part->first + row, rows,
                      block->scales));
    }
fail:
    return status;
}

static clattn_status load_part(struct loader *loader, const struct upload *upload, const struct part *part)
{
    clattn_status status;
    struct origin origin = {.shares = 1};
    struct block block = {.capacity = size_min(part->rows, BLOCK_BYTES / sizeof(float) / part->columns + 1)};
    if (!part->zero) {
        status = find(loader, part, &origin);
        if (status != CLATTN_SUCCESS)
            return status;
        loader->model->parameters += elements_of(part, false) + (origin.scale && !part->vector ? part->rows : 0);
    }
    block.values = malloc(part->columns * sizeof(float));
    block.rows = malloc(block.capacity * part->columns * sizeof(float));
    block.scales = malloc(block.capacity * sizeof(float));
    if (block.values && block.rows && block.scales)
        status = copy_part(loader, upload, part, &origin, &block);
    else
        status =
            report_error(&loader->model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
    free(block.values);
    free(block.rows);
    free(block.scales);
    free(origin.scale);
    return status;
}

/* Checks that every tensor exists and has its shape, before device memory is allocated: the sizes come from a
 * description that may have nothing to do with the tensors. */
static clattn_status check_parts(struct loader *loader)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < loader->part_count; i++) {
        struct origin origin = {0};
        if (!loader->parts[i].zero)
            TRY(find(loader, &loader->parts[i], &origin));
        free(origin.scale);
    }
fail:
    return status;
}

/* Uploads by queues of its own: on the application's queue the call would wait for the application's work.  A blocking
 * write says that `data` was copied, not that the buffer has it (Intel's CPU runtime writes it later), and the kernels
 * that read the weights are on other queues. */
static clattn_status load_parts(struct loader *loader)
{
    clattn_status status;
    struct upload upload = {.device = &loader->model->context->device};
    TRY(begin_upload(&upload));
    for (size_t i = 0; i < loader->part_count; i++)
        TRY(load_part(loader, &upload, &loader->parts[i]));
fail:
    return end_upload(&upload, status);
}

clattn_status model_load(clattn_transformer *model, const clattn_weight_source *source)
{
    clattn_status status;
    struct loader loader = {.model = model, .source = source};
    loader_declare(&loader);
    status = loader.failed
                 ? report_error(&model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model")
                 : check_parts(&loader);
    if (status == CLATTN_SUCCESS)
        status = place(model);
    if (status == CLATTN_SUCCESS)
        status = load_parts(&loader);
    model->parts = loader.parts;
    model->part_count = loader.part_count;
    return status;
}
