#include "tool/train/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "io/common.h"
#include "tool/cli/json_text.h"
#include "tool/run/model_config.h"
#include "tool/train/parts.h"
#include "tool/train/tensor_file.h"

#define VERSION 1
#define VERSION_NAME "clattn_checkpoint"
#define STATE_MOST ((size_t)1 << 16) /* bytes of JSON */

enum { KINDS = 3 }; /* a parameter's arrays: its values and two moments */
static const char *const prefixes[KINDS] = {"", "first_moment.", "second_moment."};

/* The numbers of a history that the JSON object has; `best` is the only one that is not whole. */
#define NUMBERS(h) \
    { \
        {"step", &(h)->step}, {"position", &(h)->position}, {"seed", &(h)->seed}, {"data", &(h)->data}, \
            {"batch", &(h)->batch}, {"parts", &(h)->parts}, {"best_step", &(h)->best_step}, \
        { \
            "since_best", &(h)->since_best \
        } \
    }

static clattn_host_tensor tensor_of(const clattn_parameter *p)
{
    clattn_host_tensor tensor = {.dtype = CLATTN_DTYPE_F32, .rank = p->layout.rank, .bytes = sizeof(float)};
    for (int32_t i = 0; i < p->layout.rank; i++) {
        tensor.extent[i] = p->whole[i];
        tensor.bytes *= tensor.extent[i];
    }
    return tensor;
}

static int parameter_at(const train_engine *e, size_t index, clattn_parameter *p)
{
    *p = (clattn_parameter)CLATTN_PARAMETER_INIT;
    return device_check(e->device, clattn_trainer_parameter(e->trainer, index, p), "train");
}

/* ---- writing ---- */

/* What is written; the copies of the device's arrays are owned. */
typedef struct contents {
    train_tensor *tensor;
    size_t count, copies;
} contents;

static void release(contents *c)
{
    for (size_t i = 0; i < c->copies; i++)
        free((void *)(uintptr_t)c->tensor[i].tensor.data);
    free(c->tensor);
}

/* Adds an array for a parameter's numbers to the contents. */
static int add_array(contents *c, const clattn_parameter *p, size_t kind, float **data)
{
    train_tensor *t = &c->tensor[c->copies];
    *t = (train_tensor){prefixes[kind], p->name, tensor_of(p)};
    *data = malloc(t->tensor.bytes + 1);
    if (*data == NULL)
        return complain(TOOL_FAILED, "train: no memory for the parameters");
    t->tensor.data = *data;
    c->count = ++c->copies;
    return TOOL_DONE;
}

/* Copies a parameter's array from the device, and with `moments` its moments, for which all ranks are needed; rank 0 gets them. */
static int read_arrays(const train_engine *e, size_t index, const clattn_parameter *p, bool moments,
                       float *const data[KINDS])
{
    int status = TOOL_DONE;
    if (moments)
        TOOL_TRY(device_check(
            e->device, clattn_trainer_moments_read(e->trainer, e->device->queue, index, 0, data[1], data[2]), "train"));
    if (data[0] == NULL)
        return status;
    const cl_int code =
        clEnqueueReadBuffer(e->device->queue, p->value.buffer, CL_TRUE, (size_t)p->value.offset * sizeof(float),
                            train_part_count(p) * sizeof(float), data[0], 0, NULL, NULL);
    status = device_check(e->device, device_opencl_check(e->device, "clEnqueueReadBuffer", code), "train");
fail:
    return status;
}

/* Does so with a rank's part of a parameter, and gives rank 0 the whole ones. */
static int read_parts(const train_engine *e, size_t index, const clattn_parameter *p, bool moments,
                      float *const data[KINDS])
{
    const size_t count = train_part_count(p), kinds = moments ? KINDS : 1;
    float *own = malloc(kinds * count * sizeof *own);
    int status = TOOL_DONE;
    if (own == NULL)
        return complain(TOOL_FAILED, "train: no memory for the parameters");
    TOOL_TRY(read_arrays(e, index, p, moments,
                         (float *const[KINDS]){own, moments ? own + count : NULL, moments ? own + 2 * count : NULL}));
    for (size_t kind = 0; kind < kinds; kind++)
        TOOL_TRY(train_parts_collect(e, p, own + kind * count, data[kind]));
fail:
    free(own);
    return status;
}

/* Copies all parameters' arrays, and with `moments` their moments, to rank 0.  `more` is room for other tensors. */
static int gather(const train_engine *e, bool moments, size_t more, contents *c)
{
    const size_t parameters = clattn_trainer_parameter_count(e->trainer);
    int status = TOOL_DONE;
    c->tensor = calloc(parameters * KINDS + more, sizeof *c->tensor);
    if (c->tensor == NULL)
        return complain(TOOL_FAILED, "train: no memory for the parameters");
    for (size_t i = 0; i < parameters; i++) {
        clattn_parameter p;
        float *data[KINDS] = {NULL};
        TOOL_TRY(parameter_at(e, i, &p));
        const bool part = train_is_part(&p), first_row = world_worker(e->world) == 0;
        if (!part && e->world->rank % e->world->columns > 0) /* the row's first rank has the same */
            continue;
        for (size_t kind = 0; kind < (moments ? KINDS : 1) && e->world->rank == 0; kind++)
            TOOL_TRY(add_array(c, &p, kind, &data[kind]));
        TOOL_TRY(part && first_row ? read_parts(e, i, &p, moments, data) : read_arrays(e, i, &p, moments, data));
    }
fail:
    return status;
}

static int write_contents(const char *folder, const char *name, const contents *c)
{
    model_path path;
    if (!model_path_in(folder, name, &path))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    return train_tensors_write(path.text, c->tensor, c->count);
}

int train_model_write(const train_engine *e, const char *folder)
{
    contents c = {0};
    if (world_worker(e->world) > 0)
        return TOOL_DONE;
    int status = gather(e, false, 0, &c);
    if (status == TOOL_DONE && e->world->rank == 0)
        status = write_contents(folder, TEXT_MODEL_WEIGHTS, &c);
    release(&c);
    return status;
}

static void add(contents *c, const char *name, clattn_dtype dtype, const void *data, size_t count, size_t element)
{
    const clattn_host_tensor tensor = {
        .dtype = dtype, .rank = 1, .extent = {count}, .bytes = count * element, .data = data};
    c->tensor[c->count++] = (train_tensor){"", name, tensor};
}

int train_checkpoint_write(const train_engine *e, const train_history *history, const char *folder)
{
    train_history h = *history;
    const struct {
        const char *name;
        const uint64_t *value;
    } numbers[] = NUMBERS(&h);
    contents c = {0};
    char *text = NULL;
    json_t *state = json_pack("{s:i, s:f}", VERSION_NAME, VERSION, "best", h.best);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(state, numbers[i].name, json_integer((json_int_t)*numbers[i].value));
    text = json_dumps(state, JSON_COMPACT);
    json_decref(state);
    int status = TOOL_DONE;
    if (text == NULL || json_memory_failed())
        TOOL_TRY(complain(TOOL_FAILED, "train: no memory for the checkpoint"));
    TOOL_TRY(gather(e, true, 3, &c));
    if (e->world->rank > 0)
        goto fail;
    add(&c, "state.losses", CLATTN_DTYPE_F32, h.losses.value, h.losses.count, sizeof(float));
    add(&c, "state.checks", CLATTN_DTYPE_F32, h.checks.value, h.checks.count, sizeof(float));
    add(&c, "state", CLATTN_DTYPE_U8, text, strlen(text), 1); /* the last: floats begin at multiples of 4 */
    status = write_contents(folder, TEXT_MODEL_CHECKPOINT, &c);
fail:
    release(&c);
    json_release(text);
    return status;
}

/* ---- reading ---- */

static clattn_status read_state(const train_checkpoint *c, const json_t *root, train_history *h, clattn_io_error *error)
{
    const char *path = c->path.text;
    const json_t *version = json_object_get(root, VERSION_NAME), *best = json_object_get(root, "best");
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = NUMBERS(h);
    if (!json_is_integer(version))
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "has no version, expected a checkpoint of 'clattn train'");
    if (json_integer_value(version) != VERSION)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "is a checkpoint of version %lld, expected %d",
                       (long long)json_integer_value(version), VERSION);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const json_t *value = json_object_get(root, numbers[i].name);
        if (!json_is_integer(value))
            return io_fail(error, CLATTN_ERROR_FORMAT, path, "its state has no number \"%s\"", numbers[i].name);
        *numbers[i].value = (uint64_t)json_integer_value(value);
    }
    if (!json_is_real(best) || h->step == 0 || h->step > (uint64_t)1 << 40 || h->parts == 0 ||
        h->parts > TRAIN_MOST_PARTS)
        return io_fail(error, CLATTN_ERROR_FORMAT, path, "its state is damaged");
    h->best = json_real_value(best);
    return CLATTN_SUCCESS;
}

static clattn_status read_curve(const train_checkpoint *c, const char *name, train_curve *curve, clattn_io_error *error)
{
    clattn_host_tensor tensor;
    const clattn_status status = clattn_safetensors_find(c->file, name, &tensor, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (tensor.dtype != CLATTN_DTYPE_F32 || tensor.rank != 1)
        return io_fail(error, CLATTN_ERROR_FORMAT, c->path.text, "has no float32 vector '%s'", name);
    for (size_t i = 0; i < tensor.extent[0]; i++) {
        float value;
        memcpy(&value, (const char *)tensor.data + i * sizeof value, sizeof value);
        if (!isfinite(value))
            return io_fail(error, CLATTN_ERROR_FORMAT, c->path.text, "has a loss that is not finite");
        if (!train_curve_add(curve, value))
            return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, c->path.text, "no memory for its losses");
    }
    return status;
}

static clattn_status read_history(const train_checkpoint *c, train_history *h, clattn_io_error *error)
{
    clattn_status status;
    clattn_host_tensor tensor;
    json_error_t problem;
    json_t *root = NULL;
    bool no_memory;
    TRY(clattn_safetensors_find(c->file, "state", &tensor, error));
    if (tensor.dtype != CLATTN_DTYPE_U8 || tensor.rank != 1 || tensor.bytes > STATE_MOST)
        TRY(io_fail(error, CLATTN_ERROR_FORMAT, c->path.text, "has no state, expected a checkpoint of 'clattn train'"));
    root = model_json(tensor.data, tensor.bytes, JSON_REJECT_DUPLICATES, &problem, &no_memory);
    if (no_memory)
        TRY(io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, c->path.text, "no memory for its state"));
    TRY(read_state(c, root, h, error));
    TRY(read_curve(c, "state.losses", &h->losses, error));
    TRY(read_curve(c, "state.checks", &h->checks, error));
    if (h->losses.count != h->step || h->checks.count % 2 != 0)
        TRY(io_fail(error, CLATTN_ERROR_FORMAT, c->path.text, "has %zu losses of %llu steps", h->losses.count,
                    (unsigned long long)h->step));
    if (h->position != h->step * h->parts)
        status = io_fail(error, CLATTN_ERROR_FORMAT, c->path.text, "has taken %llu batches in %llu steps of %llu",
                         (unsigned long long)h->position, (unsigned long long)h->step, (unsigned long long)h->parts);
fail:
    json_decref(root);
    return status;
}

int train_checkpoint_open(const char *folder, train_checkpoint *c, train_history *h)
{
    clattn_io_error error;
    if (!model_path_in(folder, TEXT_MODEL_CHECKPOINT, &c->path))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    clattn_status status = clattn_safetensors_create(c->path.text, &c->file, &error);
    if (status == CLATTN_SUCCESS)
        status = read_history(c, h, &error);
    return status == CLATTN_SUCCESS ? TOOL_DONE : model_file_fail(status, &error);
}

/* Finds one of a parameter's arrays in the file. */
static int find(const train_checkpoint *c, const clattn_parameter *p, size_t kind, clattn_host_tensor *found)
{
    char name[512];
    clattn_io_error error;
    const clattn_host_tensor wanted = tensor_of(p);
    snprintf(name, sizeof name, "%s%s", prefixes[kind], p->name);
    const clattn_status status = clattn_safetensors_find(c->file, name, found, &error);
    if (status != CLATTN_SUCCESS)
        return model_file_fail(status, &error);
    if (found->dtype != wanted.dtype || found->rank != wanted.rank || found->bytes != wanted.bytes ||
        found->extent[0] != wanted.extent[0])
        return complain(TOOL_BAD_INPUT, "%s: has no float32 '%s' of the shape that '%s' has in this model",
                        c->path.text, name, p->name);
    return TOOL_DONE;
}

/* Copies a parameter's numbers and moments to the device. */
static int write_arrays(const train_engine *e, size_t index, const clattn_parameter *p, const float *const data[KINDS])
{
    int status;
    const cl_int code =
        clEnqueueWriteBuffer(e->device->queue, p->value.buffer, CL_TRUE, (size_t)p->value.offset * sizeof(float),
                             train_part_count(p) * sizeof(float), data[0], 0, NULL, NULL);
    TOOL_TRY(device_check(e->device, device_opencl_check(e->device, "clEnqueueWriteBuffer", code), "train"));
    status = device_check(e->device,
                          clattn_trainer_moments_write(e->trainer, e->device->queue, index, data[1], data[2]), "train");
fail:
    return status;
}

static int restore(const train_checkpoint *c, const train_engine *e, size_t index)
{
    clattn_parameter p;
    clattn_host_tensor found[KINDS];
    const float *data[KINDS];
    float *own = NULL;
    int status;
    TOOL_TRY(parameter_at(e, index, &p));
    const size_t count = train_part_count(&p);
    own = malloc(KINDS * count * sizeof *own);
    if (own == NULL)
        return complain(TOOL_FAILED, "train: no memory for the parameters");
    for (size_t kind = 0; kind < KINDS; kind++) {
        TOOL_TRY(find(c, &p, kind, &found[kind]));
        data[kind] = train_is_part(&p) ? own + kind * count : found[kind].data;
        if (train_is_part(&p))
            train_part_cut(&p, found[kind].data, own + kind * count);
    }
    status = write_arrays(e, index, &p, data);
fail:
    free(own);
    return status;
}

int train_checkpoint_restore(const train_checkpoint *c, const train_engine *e)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < clattn_trainer_parameter_count(e->trainer); i++)
        TOOL_TRY(restore(c, e, i));
fail:
    return status;
}

void train_checkpoint_close(train_checkpoint *c)
{
    clattn_safetensors_release(&c->file);
}
