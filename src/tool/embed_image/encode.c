#include "tool/embed_image/encode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/os_threads.h"
#include "base/size.h"
#include "base/try.h"
#include "tool/cli/progress.h"

#define BATCH_POSITIONS 2048 /* of a plan: enough to keep a device busy, in a bounded memory */

/* Pictures that the devices share. */
typedef struct work {
    vision_model *model;
    const char *const *paths;
    size_t count, required;
    float *vectors;
    struct batch *batches; /* of each device */
    double *sizes;         /* of parts: each is as many pictures as a plan takes, or those that remain */
    mtx_t lock;            /* guards what follows */
    vision_left_out *left_out;
    size_t done;
} work;

/* Pictures that are encoded together, and which of all they are.  A zeroed one has not been made. */
typedef struct batch {
    size_t count, *place; /* `place` is a list */
    unsigned char *cut;
    float *values, *rows;
    cl_mem input, output;
} batch;

int vision_prepare(const vision_model *model, const tool_device *device, const char *path, unsigned char *cut,
                   float *values, char *message, size_t bytes)
{
    picture p;
    clattn_io_error error;
    int status = picture_read(path, &p, message, bytes);
    if (status != TOOL_DONE)
        return status;
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
    for (size_t i = 0; i < POOL_MOST; i++)
        if (model->on[i].plan != NULL)
            return clattn_plan_solver(model->on[i].plan);
    return "";
}

/* Sees that the device has a plan. */
static clattn_status make_plan(const vision_model *model, vision_device *on)
{
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    if (on->batch == model->batch)
        return CLATTN_SUCCESS;
    clattn_plan_release(&on->plan);
    on->batch = desc.batch = model->batch;
    desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, model->batch, 3, model->rule.size[0], model->rule.size[1]);
    desc.pooling = model->pooling;
    desc.pooled_unit = !model->norm_after;
    options.solver = model->solver;
    return clattn_encoder_plan_create(on->transformer, &desc, &options, &on->plan);
}

static size_t numbers_of(const vision_model *model)
{
    return 3 * model->rule.size[0] * model->rule.size[1];
}

static clattn_status make_buffers(const vision_model *model, tool_device *device, batch *b)
{
    clattn_status status;
    TRY(device_output(device, model->batch * numbers_of(model) * sizeof(float), &b->input));
    TRY(device_output(device, model->batch * vision_size(model) * sizeof(float), &b->output));
fail:
    return status;
}

static clattn_status compute(const vision_model *model, const vision_device *on, const batch *b)
{
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_status status;
    args.input = clattn_binding_buffer(b->input, 0);
    args.pooled = clattn_binding_buffer(b->output, 0);
    args.explicit_lengths = 1;
    args.batch = b->count;
    TRY(device_write(on->device, b->input, b->count * numbers_of(model) * sizeof(float), b->values));
    TRY(clattn_encoder_enqueue(on->plan, on->device->queue, &args, 0, NULL, NULL));
    TRY(device_download(on->device, b->output, b->count * vision_size(model) * sizeof(float), b->rows));
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
static int check_finite(const vision_model *model, const float *vector, const char *path)
{
    for (size_t i = 0; i < vision_size(model); i++)
        if (!isfinite(vector[i]))
            return complain(TOOL_BAD_INPUT, "%s: its vector by %s is not finite, expected weights without NaN%s", path,
                            model->weights.text, model->dtype == CLATTN_DTYPE_F16 ? " or --dtype bf16" : "");
    return TOOL_DONE;
}

static int encode_batch(const work *w, const vision_device *on, const batch *b)
{
    const vision_model *model = w->model;
    const size_t size = vision_size(model);
    if (b->count == 0)
        return TOOL_DONE;
    int status = device_check(on->device, compute(model, on, b), NULL);
    for (size_t i = 0; i < b->count && status == TOOL_DONE; i++) {
        float *vector = w->vectors + b->place[i] * size;
        memcpy(vector, b->rows + i * size, size * sizeof *vector);
        if (model->norm_after)
            norm_after(model, vector);
        status = check_finite(model, vector, w->paths[b->place[i]]);
    }
    return status;
}

static int allocate(const vision_model *model, tool_device *device, batch *b)
{
    b->place = calloc(model->batch, sizeof *b->place);
    b->cut = malloc(numbers_of(model));
    b->values = malloc(model->batch * numbers_of(model) * sizeof *b->values);
    b->rows = malloc(model->batch * vision_size(model) * sizeof *b->rows);
    if (b->place == NULL || b->cut == NULL || b->values == NULL || b->rows == NULL)
        return complain(TOOL_FAILED, "out of memory for %zu pictures of %zu x %zu pixels", model->batch,
                        model->rule.size[0], model->rule.size[1]);
    return device_check(device, make_buffers(model, device, b), NULL);
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
static void leave_out(work *w, size_t place, const char *message)
{
    vision_left_out *left_out = w->left_out;
    w->vectors[place * vision_size(w->model)] = NAN;
    mtx_lock(&w->lock);
    if (left_out->count++ == 0 || place < left_out->place) {
        left_out->place = place;
        snprintf(left_out->first, sizeof left_out->first, "%s", message);
    }
    mtx_unlock(&w->lock);
}

static int prepare(void *user, size_t device, size_t part)
{
    const work *w = user;
    vision_device *on = &w->model->on[device];
    batch *b = &w->batches[device];
    (void)part;
    const int status = device_check(on->device, make_plan(w->model, on), NULL);
    return status == TOOL_DONE && b->place == NULL ? allocate(w->model, on->device, b) : status;
}

static int run(void *user, size_t device, size_t part)
{
    char message[4608]; /* a path has at most 4096 bytes */
    work *w = user;
    const vision_device *on = &w->model->on[device];
    batch *b = &w->batches[device];
    const size_t first = part * w->model->batch, end = size_min(first + w->model->batch, w->count);
    b->count = 0;
    for (size_t i = first; i < end; i++) {
        float *values = b->values + b->count * numbers_of(w->model);
        const int status = vision_prepare(w->model, on->device, w->paths[i], b->cut, values, message, sizeof message);
        if (status == TOOL_DONE)
            b->place[b->count++] = i;
        else if (status == TOOL_BAD_INPUT && i >= w->required)
            leave_out(w, i, message);
        else
            return complain(status, "%s", message);
        mtx_lock(&w->lock);
        progress_show((double)++w->done / (double)w->count);
        mtx_unlock(&w->lock);
    }
    return encode_batch(w, on, b);
}

int vision_encode(vision_model *model, const char *const *paths, size_t count, size_t required, float *vectors,
                  vision_left_out *left_out)
{
    const size_t most = size_max(1, BATCH_POSITIONS / vision_positions(model));
    batch batches[POOL_MOST] = {{0}};
    work w = {.model = model,
              .paths = paths,
              .count = count,
              .required = required,
              .vectors = vectors,
              .batches = batches,
              .left_out = left_out};
    pool_work parts = {.prepare = prepare, .run = run, .user = &w};
    if (mtx_init(&w.lock, mtx_plain) != thrd_success)
        return complain(TOOL_FAILED, "out of memory for the pictures");
    int status = TOOL_DONE;
    progress_begin("embed-image");
    model->batch = size_max(model->batch, size_min(count, most));
    w.sizes = malloc(count * sizeof *w.sizes);
    if (w.sizes == NULL)
        TOOL_TRY(complain(TOOL_FAILED, "out of memory for %zu pictures", count));
    for (size_t first = 0; first < count; first += model->batch)
        w.sizes[parts.parts++] = (double)size_min(count - first, model->batch);
    parts.size = w.sizes;
    status = pool_run(model->pool, &parts);
fail:
    progress_end();
    for (size_t i = 0; i < POOL_MOST; i++)
        clear(&batches[i]);
    free(w.sizes);
    mtx_destroy(&w.lock);
    return status;
}
