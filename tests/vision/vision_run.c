/* vision_run FOLDER [name=value ...]: a model of pictures by weights of Hugging Face's or timm's names, for compare.py.
 *
 * FOLDER has weights.safetensors, and picture.npy (batch, channels, height, width) float32, or tokens.npy (batch, length)
 * int32 and lengths.npy (batch) int32.  The results are output.npy (batch, positions, d_model) and pooled.npy (batch,
 * columns).
 *
 *   model=N format=N prefix=TEXT   the clattn_vision that the description begins with, the names, and what stands before them
 *   layers=N d_model=N heads=N d_ff=N epsilon=X projection=N input_norm=0|1 layer_scale=0|1 query_key_norm=0|1
 *   patch=N patch_bias=0|1 grid_rows=N grid_columns=N antialias=0|1 class_token=0|1 class_position=0|1 registers=N
 *   gated=1 rotary_base=N sinusoids=1
 *   vocabulary=N positions=N       what replaces the preset's
 *   stages=N,N... window=N         Swin: the layers of each stage; the window's rows and columns
 *   stages=N,N... window=N residual=N channels=N factor=N
 *                                  SwinIR: the layers of each stage, its convolutions, the picture's channels
 *   whole=N window=N neck=N        SAM: the bits of layers without windows; the neck's columns
 *   pooling=N unit=0|1 prepack=0|1 clattn_pooling, pooled_unit, and whether weights are packed in advance
 *   dtype=N                        of activations and weights
 *   nhwc=1                         the picture is laid out by pixels
 *   repeat=N                       prints the least and the median milliseconds of N runs, after two more, the bytes of
 *                                  the workspace and of the weights, and the most KiB that the program had */
#include <time.h>

#include "pytorch/run.h"

/* ---- files and buffers ---- */

/* An array of the folder, which lives until the process ends. */
static clattn_host_tensor array(const char *name, clattn_dtype dtype, int32_t rank)
{
    clattn_npy *npy;
    clattn_io_error error;
    if (clattn_npy_create(path_of(name), &npy, &error) != CLATTN_SUCCESS)
        complain(name, error.message);
    const clattn_host_tensor tensor = clattn_npy_tensor(npy);
    if (tensor.dtype != dtype || tensor.rank != rank)
        complain(name, "has another type or rank");
    return tensor;
}

static float *read_floats(cl_mem memory, size_t count)
{
    float *values = room(count, sizeof *values);
    read_buffer(memory, count * sizeof *values, values);
    return values;
}

/* ---- the model ---- */

/* The preset's restoration with the factor of the options. */
static clattn_restoration restoration_of(const clattn_stack_desc *d)
{
    while (d->next)
        d = d->next;
    clattn_restoration restoration = d->restoration;
    restoration.factor = number("factor", restoration.factor);
    return restoration;
}

/* Sets the stages of a Swin or SwinIR model: "stages" has the layers of each, and all else follows from the first one's sizes. */
static void set_stages(clattn_stack_desc *d)
{
    const clattn_restoration restoration = restoration_of(d);
    size_t count = 0;
    for (const char *at = option("stages", NULL); at && count < CLATTN_VISION_STAGES; at = strchr(at, ',')) {
        clattn_stack_desc *stage = &d[count];
        at += *at == ',';
        if (count && restoration.kind) {
            *stage = *d;
            stage->input = CLATTN_STACK_INPUT_CONTINUED;
            stage->patches = (clattn_patches){0};
            stage->input_norm = 0;
        }
        const size_t doubled = restoration.kind ? 0 : count;
        stage->layers = (size_t)strtoul(at, NULL, 10);
        stage->d_model = d->d_model << doubled;
        stage->heads = d->heads << doubled;
        stage->d_ff = d->d_ff << doubled;
        stage->windows.rows = stage->windows.columns = number("window", 7);
        stage->epsilon = d->epsilon;
        stage->explicit_epsilon = d->explicit_epsilon;
        stage->residual = restoration.kind ? number("residual", 1) : 0;
        stage->restoration = (clattn_restoration){0};
        stage->final_norm = 0;
        stage->next = NULL;
        if (count++)
            d[count - 2].next = stage;
    }
    d[count - 1].final_norm = 1;
    d[count - 1].restoration = restoration;
}

static void describe(clattn_transformer_desc *desc, clattn_stack_desc *d, clattn_name_format *format)
{
    clattn_patches *p = &d->patches;
    CHECK(clattn_vision_preset((clattn_vision)number("model", 0), desc, d, format));
    *format = (clattn_name_format)number("format", (size_t)*format);
    desc->dtype = (clattn_dtype)number("dtype", CLATTN_DTYPE_F32);
    d->layers = number("layers", d->layers);
    d->d_model = number("d_model", d->d_model);
    d->heads = number("heads", d->heads);
    d->d_ff = number("d_ff", d->d_ff);
    d->projection = number("projection", d->projection);
    d->vocabulary = number("vocabulary", d->vocabulary);
    d->position_count = number("positions", d->position_count);
    d->input_norm = (int32_t)number("input_norm", (size_t)d->input_norm);
    d->layer_scale = (int32_t)number("layer_scale", (size_t)d->layer_scale);
    d->query_key_norm = (int32_t)number("query_key_norm", (size_t)d->query_key_norm);
    d->rotary_base = (float)number("rotary_base", (size_t)d->rotary_base);
    if (number("gated", 0)) {
        d->gated = 1;
        d->activation = CLATTN_ACTIVATION_SWISH;
    }
    if (option("epsilon", NULL))
        d->epsilon = strtof(option("epsilon", NULL), NULL);
    if (option("stages", NULL))
        set_stages(d);
    if (option("whole", NULL)) {
        d->windows.rows = d->windows.columns = number("window", 14);
        d->windows.whole = number("whole", 0);
        d->neck = number("neck", d->neck);
    }
    if (d->input != CLATTN_STACK_INPUT_PICTURES)
        return;
    p->channels = number("channels", p->channels);
    const size_t others = d->position_count > p->grid_rows * p->grid_columns;
    p->height = p->width = number("patch", p->height);
    p->grid_rows = number("grid_rows", p->grid_rows);
    p->grid_columns = number("grid_columns", p->grid_columns);
    p->antialias = (int32_t)number("antialias", (size_t)p->antialias);
    p->class_token = (int32_t)number("class_token", (size_t)p->class_token);
    p->registers = number("registers", p->registers);
    if (option("patch_bias", NULL))
        p->without_bias = !number("patch_bias", 1);
    if (number("sinusoids", 0)) {
        d->positions = CLATTN_POSITIONS_SINUSOIDS;
        d->position_count = p->grid_rows = p->grid_columns = 0;
    } else if (d->positions) {
        d->position_count = p->grid_rows * p->grid_columns + number("class_position", others);
    }
}

/* The picture in the order that the option wants, in *layout. */
static cl_mem picture_buffer(const clattn_host_tensor *picture, clattn_layout *layout)
{
    const size_t *extent = picture->extent, channels = extent[1], pixels = extent[2] * extent[3];
    *layout = clattn_layout_nchw(CLATTN_DTYPE_F32, extent[0], channels, extent[2], extent[3]);
    if (!number("nhwc", 0))
        return buffer(picture->bytes, picture->data);
    const float *from = picture->data;
    float *turned = room(extent[0] * channels * pixels, sizeof *turned);
    for (size_t b = 0; b < extent[0]; b++)
        for (size_t c = 0; c < channels; c++)
            for (size_t i = 0; i < pixels; i++)
                turned[(b * pixels + i) * channels + c] = from[(b * channels + c) * pixels + i];
    *layout = clattn_layout_nhwc(CLATTN_DTYPE_F32, extent[0], channels, extent[2], extent[3]);
    cl_mem memory = buffer(picture->bytes, turned);
    free(turned);
    return memory;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double run(clattn_plan *plan, const clattn_encoder_args *args)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK(clattn_encoder_enqueue(plan, NULL, args, 0, NULL, NULL));
    if (clFinish(clattn_context_queue(context)) != CL_SUCCESS)
        complain("clFinish", "failed");
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
}

/* The most memory that this program has had, in KiB. */
static long peak(void)
{
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &found) == 1)
            break;
    if (file)
        fclose(file);
    return found;
}

static void measure(clattn_plan *plan, const clattn_encoder_args *args, const clattn_transformer *model)
{
    const size_t count = number("repeat", 0);
    double *times = room(count, sizeof *times);
    for (size_t i = 0; i < count + 2; i++) {
        const double time = run(plan, args);
        if (i >= 2)
            times[i - 2] = time;
    }
    qsort(times, count, sizeof *times, ascending);
    printf("%.4f %.4f %zu %zu %ld\n", times[0], times[count / 2], clattn_plan_workspace_size(plan),
           clattn_transformer_weight_bytes(model), peak());
    free(times);
}

int main(int argc, char **argv)
{
    clattn_transformer_desc desc;
    clattn_stack_desc stages[CLATTN_VISION_STAGES], stack;
    clattn_name_format format;
    clattn_encoder_desc encoder = CLATTN_ENCODER_DESC_INIT;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan;
    cl_mem input;
    size_t positions;
    begin_run(argc, argv);
    describe(&desc, stages, &format);
    stack = stages[0];
    clattn_transformer *model = load_model(&desc, format, option("prefix", NULL));
    if (stack.input == CLATTN_STACK_INPUT_PICTURES) {
        const clattn_host_tensor picture = array("picture.npy", CLATTN_DTYPE_F32, 4);
        encoder.batch = picture.extent[0];
        input = picture_buffer(&picture, &encoder.picture);
        positions = clattn_stack_positions(&stack, picture.extent[2] / stack.patches.height *
                                                       (picture.extent[3] / stack.patches.width));
        size_t rows = picture.extent[2] / stack.patches.height, columns = picture.extent[3] / stack.patches.width;
        for (; stack.next; stack = *stack.next) {
            if (stack.next->input == CLATTN_STACK_INPUT_CONTINUED)
                continue;
            rows = (rows + 1) / 2;
            columns = (columns + 1) / 2;
            positions = rows * columns;
        }
        if (stack.restoration.kind) {
            const size_t *given = picture.extent, factor = stack.restoration.factor;
            encoder.restored =
                clattn_layout_nchw(CLATTN_DTYPE_F32, given[0], given[1], factor * given[2], factor * given[3]);
            positions = given[1] * factor * given[2] * factor * given[3];
        }
    } else {
        const clattn_host_tensor tokens = array("tokens.npy", CLATTN_DTYPE_I32, 2);
        encoder.batch = tokens.extent[0];
        encoder.length = positions = tokens.extent[1];
        input = buffer(tokens.bytes, tokens.data);
        args.lengths = array("lengths.npy", CLATTN_DTYPE_I32, 1).data;
    }
    encoder.pooling = (clattn_pooling)number("pooling", CLATTN_POOLING_NONE);
    encoder.pooled_unit = (int32_t)number("unit", 0);
    encoder.prepack = (int32_t)number("prepack", 0);
    CHECK(clattn_encoder_plan_create(model, &encoder, NULL, &plan));
    const size_t columns = stack.projection ? stack.projection : stack.d_model;
    const int restored = encoder.restored.rank != 0;
    const size_t vectors[3] = {encoder.batch, positions, stack.neck ? stack.neck : stack.d_model},
                 pooled_extent[2] = {encoder.batch, columns};
    const size_t *extent = restored ? encoder.restored.extent : vectors;
    const size_t count = encoder.batch * positions * (restored ? 1 : vectors[2]);
    const size_t bytes = clattn_dtype_size(restored ? CLATTN_DTYPE_F32 : desc.dtype) * count;
    cl_mem output = buffer(bytes, NULL), pooled = buffer(encoder.batch * columns * sizeof(float), NULL);
    args.input = clattn_binding_buffer(input, 0);
    args.output = clattn_binding_buffer(output, 0);
    if (encoder.pooling)
        args.pooled = clattn_binding_buffer(pooled, 0);
    run(plan, &args);
    if (restored || desc.dtype == CLATTN_DTYPE_F32) {
        float *values = read_floats(output, count);
        write_floats("output.npy", restored ? 4 : 3, extent, values);
        free(values);
    }
    if (encoder.pooling) {
        float *values = read_floats(pooled, encoder.batch * columns);
        write_floats("pooled.npy", 2, pooled_extent, values);
        free(values);
    }
    if (option("repeat", NULL))
        measure(plan, &args, model);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    clReleaseMemObject(input);
    clReleaseMemObject(output);
    clReleaseMemObject(pooled);
    clattn_context_release(&context);
    return 0;
}
