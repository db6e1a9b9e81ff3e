#include "tool/embed_image/encode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/cli/progress.h"

#define BATCH_POSITIONS 2048 /* of a plan: enough to keep a device busy, in a bounded memory */

/* Pictures that are encoded together, and which of all they are. */
typedef struct batch {
    vision_model *model;
    size_t count, *place; /* `place` is a list */
    unsigned char *cut;
    float *values, *rows;
    cl_mem input, output;
} batch;

int vision_prepare(const vision_model *model, const char *path, unsigned char *cut, float *values, char *message,
                   size_t bytes)
{
    picture p;
    clattn_io_error error;
    int status = picture_read(path, &p, message, bytes);
    if (status != TOOL_DONE)
        return status;
    const tool_device *device = model->device;
    const clattn_picture view = picture_view(&p);
    clattn_status fitted = fit_picture(&model->rule, device->context, device->queue, NULL, &view, cut, &error);
    if (fitted == CLATTN_SUCCESS) {
        fit_normalise(&model->rule, cut, values);
    } else {
        snprintf(message, bytes, "%s: %s", path, error.message);
        status = fitted == CLATTN_ERROR_UNSUPPORTED ? TOOL_BAD_INPUT : TOOL_FAILED;
    }
    picture_release(&p);
    return status;
}

const char *vision_solver(const vision_model *model)
{
    return model->plan != NULL ? clattn_plan_solver(model->plan) : "";
}

/* A plan for `count` pictures, or as many as are encoded at once. */
static clattn_status make_plan(vision_model *model, size_t count)
{
    const size_t most = size_max(1, BATCH_POSITIONS / vision_positions(model)), wanted = size_min(count, most);
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    if (model->plan != NULL && model->batch >= wanted)
        return CLATTN_SUCCESS;
    clattn_plan_release(&model->plan);
    model->batch = desc.batch = wanted;
    desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, wanted, 3, model->rule.size[0], model->rule.size[1]);
    desc.pooling = model->pooling;
    desc.pooled_unit = !model->norm_after;
    options.solver = model->solver;
    return clattn_encoder_plan_create(model->transformer, &desc, &options, &model->plan);
}

static size_t numbers_of(const vision_model *model)
{
    return 3 * model->rule.size[0] * model->rule.size[1];
}

static clattn_status make_buffers(batch *b)
{
    const vision_model *model = b->model;
    clattn_status status;
    TRY(device_output(model->device, model->batch * numbers_of(model) * sizeof(float), &b->input));
    TRY(device_output(model->device, model->batch * vision_size(model) * sizeof(float), &b->output));
fail:
    return status;
}

static clattn_status compute(const batch *b)
{
    tool_device *device = b->model->device;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_status status;
    args.input = clattn_binding_buffer(b->input, 0);
    args.pooled = clattn_binding_buffer(b->output, 0);
    args.explicit_lengths = 1;
    args.batch = b->count;
    TRY(device_write(device, b->input, b->count * numbers_of(b->model) * sizeof(float), b->values));
    TRY(clattn_encoder_enqueue(b->model->plan, device->queue, &args, 0, NULL, NULL));
    TRY(device_download(device, b->output, b->count * vision_size(b->model) * sizeof(float), b->rows));
fail:
    return status;
}

/* LayerNorm of a pooled vector, which is then divided by its length. */
static void norm_after(const vision_model *model, float *vector)
{
    const size_t size = model->stack.d_model;
    double mean = 0, variance = 0, square = 0;
    for (size_t i = 0; i < size; i++)
        mean += (double)vector[i] / (double)size;
    for (size_t i = 0; i < size; i++)
        variance += ((double)vector[i] - mean) * ((double)vector[i] - mean) / (double)size;
    for (size_t i = 0; i < size; i++) {
        const double each = ((double)vector[i] - mean) / sqrt(variance + (double)model->stack.epsilon);
        vector[i] = (float)(each * (double)model->norm[i] + (double)model->norm[size + i]);
        square += (double)vector[i] * (double)vector[i];
    }
    for (size_t i = 0; i < size && square > 0; i++)
        vector[i] = (float)((double)vector[i] / sqrt(square));
}

/* Not a number stands for a picture that is left out, and JSON has none. */
static int check_finite(const batch *b, const float *vector, const char *path)
{
    for (size_t i = 0; i < vision_size(b->model); i++)
        if (!isfinite(vector[i]))
            return complain(TOOL_BAD_INPUT, "%s: its vector by %s is not finite, expected weights without NaN%s", path,
                            b->model->weights.text, b->model->dtype == CLATTN_DTYPE_F16 ? " or --dtype bf16" : "");
    return TOOL_DONE;
}

static int encode_batch(batch *b, const char *const *paths, float *vectors)
{
    const size_t size = vision_size(b->model);
    if (b->count == 0)
        return TOOL_DONE;
    int status = device_check(b->model->device, compute(b), NULL);
    for (size_t i = 0; i < b->count && status == TOOL_DONE; i++) {
        float *vector = vectors + b->place[i] * size;
        memcpy(vector, b->rows + i * size, size * sizeof *vector);
        if (b->model->norm_after)
            norm_after(b->model, vector);
        status = check_finite(b, vector, paths[b->place[i]]);
    }
    b->count = 0;
    return status;
}

static int allocate(batch *b)
{
    const vision_model *model = b->model;
    b->place = calloc(model->batch, sizeof *b->place);
    b->cut = malloc(numbers_of(model));
    b->values = malloc(model->batch * numbers_of(model) * sizeof *b->values);
    b->rows = malloc(model->batch * vision_size(model) * sizeof *b->rows);
    if (b->place == NULL || b->cut == NULL || b->values == NULL || b->rows == NULL)
        return complain(TOOL_FAILED, "out of memory for %zu pictures of %zu x %zu pixels", model->batch,
                        model->rule.size[0], model->rule.size[1]);
    return device_check(model->device, make_buffers(b), NULL);
}

static void clear(batch *b)
{
    if (b->input != NULL)
        clReleaseMemObject(b->input);
    if (b->output != NULL)
        clReleaseMemObject(b->output);
    free(b->place);
    free(b->cut);
    free(b->values);
    free(b->rows);
}

/* Counts a picture that cannot be read. */
static void leave_out(const vision_model *model, float *vectors, size_t place, const char *message,
                      vision_left_out *left_out)
{
    vectors[place * vision_size(model)] = NAN;
    if (left_out->count++ == 0)
        snprintf(left_out->first, sizeof left_out->first, "%s", message);
}

int vision_encode(vision_model *model, const char *const *paths, size_t count, size_t required, float *vectors,
                  vision_left_out *left_out)
{
    char message[4608]; /* a path has at most 4096 bytes */
    batch b = {.model = model};
    int status;
    progress_begin("embed-image");
    TOOL_TRY(device_check(model->device, make_plan(model, count), NULL));
    TOOL_TRY(allocate(&b));
    for (size_t i = 0; i < count; i++) {
        status =
            vision_prepare(model, paths[i], b.cut, b.values + b.count * numbers_of(model), message, sizeof message);
        if (status == TOOL_DONE)
            b.place[b.count++] = i;
        else if (status == TOOL_BAD_INPUT && i >= required)
            leave_out(model, vectors, i, message, left_out);
        else
            TOOL_TRY(complain(status, "%s", message));
        if (b.count == model->batch)
            TOOL_TRY(encode_batch(&b, paths, vectors));
        progress_show((double)(i + 1) / (double)count);
    }
    TOOL_TRY(encode_batch(&b, paths, vectors));
fail:
    progress_end();
    clear(&b);
    return status;
}
