/* training_run FOLDER [name=value ...]: steps of training a Transformer, for training.py.
 *
 * FOLDER has weights.safetensors, with canonical names, and for each step N of 0, 1 ... these .npy files:
 *
 *   source_N, target_N, labels_N          (batch, length) int32, or source_N (batch, frames, features) float32
 *   source_segments_N, target_segments_N  (batch, length) int32, or none
 *   source_lengths_N, target_lengths_N    (batch) int32, or none
 *   gradient_N                            (batch, length, d_model) float32: that of the output, of an encoder alone
 *
 * The results are losses_N.npy of each step and, of each parameter, NAME.npy: its gradient or, with updates, its value.
 *
 *   steps=N         how many steps there are; 1 (default)
 *   encoder=N decoder=N   layers; 0 (default): there is none
 *   vocabulary=N source_vocabulary=N d_model=N heads=N kv_heads=N d_ff=N activation=N norm=N pre=0|1 without_bias=N
 *   final_norm=0|1 positions=N position_count=N rotary=N reach=N softcap=X scaled=0|1 input_norm=0|1 gated=0|1
 *   head_norms=0|1 segments=N first=N     of both stacks, as far as they take tokens
 *   features=N convolutions=KERNEL:STRIDE:PADDING:ACTIVATION,...    of the encoder; 0 (default): it takes tokens
 *   preset=N        in place of these: the clattn_preset, with so many layers and such vocabularies
 *   output=N output_bias=0|1    the clattn_model_output
 *   bf16=0|1        bfloat16 with float32 parameters
 *   smoothing=X recompute=0|1 dropout=X parts=N     the batch is cut into so many steps, whose gradients are added up
 *   repeat=N        does the step N times more, and prints the milliseconds of each and the kilobytes of memory;
 *                   explain=1 prints the plan
 *   rate=X clip=X decay=X coupled=0|1     each step is followed by an update; rate 0 (default): none is */
#include <time.h>

#include "pytorch/run.h"

static clattn_stack_desc stack_of(const char *layers, const char *vocabulary)
{
    clattn_stack_desc d = CLATTN_STACK_DESC_INIT;
    d.layers = number(layers, 0);
    d.d_model = number("d_model", 0);
    d.heads = number("heads", 0);
    d.kv_heads = number("kv_heads", 0);
    d.d_ff = number("d_ff", 0);
    d.activation = (clattn_activation)number("activation", 0);
    d.norm = (clattn_norm_kind)number("norm", 0);
    d.norm_place = number("pre", 0) ? CLATTN_NORM_PLACE_PRE : CLATTN_NORM_PLACE_POST;
    d.without_bias = (uint32_t)number("without_bias", 0);
    d.final_norm = (int32_t)number("final_norm", 0);
    d.input = CLATTN_STACK_INPUT_TOKENS;
    d.vocabulary = number(vocabulary, 0);
    d.positions = (clattn_positions)number("positions", 0);
    d.position_count = number("position_count", 0);
    d.rotary = (clattn_rotary)number("rotary", 0);
    d.reach = number("reach", 0);
    d.softcap = strtof(option("softcap", "0"), NULL);
    d.scale_embeddings = (int32_t)number("scaled", 0);
    d.input_norm = (int32_t)number("input_norm", 0);
    d.gated = (int32_t)number("gated", 0);
    d.query_key_norm = (int32_t)number("head_norms", 0);
    d.segments = number("segments", 0);
    d.first_position = number("first", 0);
    return d;
}

/* Lets the encoder take features. */
static void read_convolutions(clattn_stack_desc *d)
{
    const char *text = option("convolutions", "");
    d->input = CLATTN_STACK_INPUT_FEATURES;
    d->features = number("features", 0);
    d->vocabulary = d->segments = d->first_position = 0;
    d->scale_embeddings = d->input_norm = 0;
    for (; *text; text += *text == ',') {
        uint32_t value[4] = {0};
        char *end;
        for (size_t i = 0; i < 4; i++, text = end + (*end == ':'))
            value[i] = (uint32_t)strtoul(text, &end, 10);
        d->convolution[d->convolutions++] = (clattn_convolution){
            .kernel = value[0], .stride = value[1], .padding = value[2], .activation = (clattn_activation)value[3]};
    }
}

static void read_preset(clattn_transformer_desc *desc, clattn_stack_desc *encoder, clattn_stack_desc *decoder)
{
    CHECK(clattn_transformer_preset((clattn_preset)number("preset", 0), desc, encoder, decoder));
    encoder->layers = number("encoder", 0);
    decoder->layers = number("decoder", 0);
    decoder->vocabulary = number("vocabulary", 0);
    if (encoder->input == CLATTN_STACK_INPUT_TOKENS)
        encoder->vocabulary = number("source_vocabulary", 0);
}

static clattn_transformer *make_model(void)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_stack_desc encoder = stack_of("encoder", "source_vocabulary"), decoder = stack_of("decoder", "vocabulary");
    decoder.causal = 1;
    decoder.cross = encoder.layers != 0;
    if (number("features", 0))
        read_convolutions(&encoder);
    desc.encoder = encoder.layers ? &encoder : NULL;
    desc.decoder = decoder.layers ? &decoder : NULL;
    desc.output = (clattn_model_output)number("output", 0);
    desc.output_bias = (int32_t)number("output_bias", 0);
    if (option("preset", NULL))
        read_preset(&desc, &encoder, &decoder);
    desc.dtype = number("bf16", 0) ? CLATTN_DTYPE_BF16 : CLATTN_DTYPE_F32;
    return load_model(&desc, CLATTN_NAME_FORMAT_CANONICAL, NULL);
}

static clattn_host_tensor array_of_step(const char *name, size_t step)
{
    char numbered[64];
    snprintf(numbered, sizeof numbered, "%s_%zu", name, step);
    return array_of(numbered);
}

/* Items `first` ... of an array of int32, or of floats in the model's type, in a buffer. */
static clattn_binding rows_of(const clattn_host_tensor *t, size_t first, size_t rows)
{
    const size_t columns = t->extent[1] * (t->rank == 3 ? t->extent[2] : 1);
    if (!t->data)
        return (clattn_binding){0};
    const uint32_t *given = (const uint32_t *)t->data + first * columns;
    if (t->rank != 3 || !number("bf16", 0))
        return clattn_binding_buffer(buffer(rows * columns * sizeof *given, given), 0);
    uint16_t *halves = room(rows * columns, sizeof *halves);
    for (size_t i = 0; i < rows * columns; i++)
        halves[i] = (uint16_t)(given[i] >> 16); /* the script has rounded them */
    const clattn_binding made = clattn_binding_buffer(buffer(rows * columns * sizeof *halves, halves), 0);
    free(halves);
    return made;
}

static const int32_t *lengths_of(const clattn_host_tensor *t, size_t first)
{
    return t->data ? (const int32_t *)t->data + first : NULL;
}

/* Forward to output_N.npy, and back from the gradient that the folder has. */
static void run_phases(clattn_trainer *trainer, size_t step)
{
    const clattn_host_tensor source = array_of_step("source", step), gradient = array_of_step("gradient", step);
    const clattn_host_tensor lengths = array_of_step("source_lengths", step);
    const clattn_host_tensor segments = array_of_step("source_segments", step);
    clattn_training_desc desc = CLATTN_TRAINING_DESC_INIT;
    clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
    clattn_plan *plan;
    float *output = room(gradient.bytes, 1);
    char name[64];
    desc.batch = source.extent[0];
    desc.source_length = source.extent[1];
    desc.recompute = (int32_t)number("recompute", 0);
    CHECK(clattn_training_plan_create(trainer, &desc, NULL, &plan));
    args.source = rows_of(&source, 0, desc.batch);
    args.source_segments = number("features", 0) ? (clattn_binding){0} : rows_of(&segments, 0, desc.batch);
    args.source_lengths = lengths_of(&lengths, 0);
    args.output = clattn_binding_buffer(buffer(gradient.bytes, NULL), 0);
    args.workspace = clattn_binding_buffer(buffer(clattn_plan_workspace_size(plan), NULL), 0);
    args.phase = CLATTN_TRAINING_PHASE_FORWARD;
    CHECK(clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL));
    read_buffer(args.output.buffer, gradient.bytes, output);
    args.output = (clattn_binding){0};
    args.output_gradient = clattn_binding_buffer(buffer(gradient.bytes, gradient.data), 0);
    args.phase = CLATTN_TRAINING_PHASE_BACKWARD;
    CHECK(clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL));
    snprintf(name, sizeof name, "output_%zu.npy", step);
    write_floats(name, 3, gradient.extent, output);
    clattn_plan_release(&plan);
    free(output);
}

static double milliseconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void update(clattn_trainer *trainer, size_t step)
{
    clattn_update_args args = CLATTN_UPDATE_ARGS_INIT;
    args.learning_rate = strtod(option("rate", "0"), NULL);
    args.clip_norm = strtod(option("clip", "0"), NULL);
    args.weight_decay = strtod(option("decay", "0"), NULL);
    args.coupled = (int32_t)number("coupled", 0);
    args.step = (int64_t)step + 1;
    if (args.learning_rate > 0)
        CHECK(clattn_trainer_update(trainer, NULL, &args, 0, NULL, NULL));
}

/* Prints how long a step with its update takes, each time that it is repeated, and then the most kilobytes that the process has
 * had. */
static void measure(clattn_trainer *trainer, clattn_plan *plan, const clattn_training_args *args)
{
    for (size_t i = 0; i < number("repeat", 0); i++) {
        const double began = milliseconds();
        CHECK(clattn_training_enqueue(plan, NULL, args, 0, NULL, NULL));
        update(trainer, i + 1);
        clFinish(clattn_context_queue(context));
        printf("%.3f\n", milliseconds() - began);
    }
    /* getrusage would count what the process had before it became this program. */
    FILE *status = number("repeat", 0) ? fopen("/proc/self/status", "r") : NULL;
    char line[128];
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6))
            printf("%ld\n", strtol(line + 6, NULL, 10));
    if (status)
        fclose(status);
}

/* One step, in parts. */
static void run_step(clattn_trainer *trainer, size_t step)
{
    const clattn_host_tensor source = array_of_step("source", step), target = array_of_step("target", step),
                             labels = array_of_step("labels", step);
    const clattn_host_tensor source_lengths = array_of_step("source_lengths", step),
                             target_lengths = array_of_step("target_lengths", step),
                             source_segments = array_of_step("source_segments", step),
                             target_segments = array_of_step("target_segments", step);
    const bool has_segments = number("features", 0) == 0 && source.data;
    const size_t batch = target.extent[0], length = target.extent[1], parts = number("parts", 1);
    size_t counted = 0;
    char name[64];
    for (size_t i = 0; i < batch * length; i++)
        counted += ((const int32_t *)labels.data)[i] != -100;
    float *losses = room(batch * length, sizeof *losses);
    for (size_t part = 0, first = 0; part < parts; part++) {
        const size_t rows = (batch - first) / (parts - part);
        clattn_training_desc desc = CLATTN_TRAINING_DESC_INIT;
        clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
        clattn_plan *plan;
        desc.batch = rows;
        desc.source_length = source.data ? source.extent[1] : 0;
        desc.target_length = length;
        desc.label_smoothing = strtof(option("smoothing", "0"), NULL);
        desc.recompute = (int32_t)number("recompute", 0);
        desc.dropout = strtof(option("dropout", "0"), NULL);
        CHECK(clattn_training_plan_create(trainer, &desc, NULL, &plan));
        args.source = rows_of(&source, first, rows);
        args.target = rows_of(&target, first, rows);
        args.source_segments = has_segments ? rows_of(&source_segments, first, rows) : (clattn_binding){0};
        args.target_segments = rows_of(&target_segments, first, rows);
        args.labels = rows_of(&labels, first, rows);
        args.losses = clattn_binding_buffer(buffer(rows * length * sizeof(float), NULL), 0);
        args.source_lengths = lengths_of(&source_lengths, first);
        args.target_lengths = lengths_of(&target_lengths, first);
        args.explicit_scale = 1;
        args.scale = 1 / (float)counted;
        args.accumulate = part > 0;
        if (number("explain", 0))
            fprintf(stderr, "%s", clattn_plan_explain(plan));
        CHECK(clattn_training_enqueue(plan, NULL, &args, 0, NULL, NULL));
        measure(trainer, plan, &args);
        read_buffer(args.losses.buffer, rows * length * sizeof(float), losses + first * length);
        clattn_plan_release(&plan);
        first += rows;
    }
    snprintf(name, sizeof name, "losses_%zu.npy", step);
    write_floats(name, 2, target.extent, losses);
    free(losses);
}

/* Writes each parameter, or its gradient, to NAME.npy. */
static void write_parameters(const clattn_trainer *trainer, bool gradients)
{
    for (size_t i = 0; i < clattn_trainer_parameter_count(trainer); i++) {
        clattn_parameter p = CLATTN_PARAMETER_INIT;
        char name[160];
        CHECK(clattn_trainer_parameter(trainer, i, &p));
        const clattn_binding at = gradients ? p.gradient : p.value;
        size_t count = 1;
        for (int axis = 0; axis < p.layout.rank; axis++)
            count *= p.layout.extent[axis];
        float *values = room(count, sizeof *values), *ordered = room(count, sizeof *values);
        if (clEnqueueReadBuffer(clattn_context_queue(context), at.buffer, CL_TRUE, (size_t)at.offset * sizeof(float),
                                count * sizeof(float), values, 0, NULL, NULL) != CL_SUCCESS)
            complain("clEnqueueReadBuffer", "failed");
        for (size_t e = 0; e < count; e++) {
            int64_t place = 0;
            size_t rest = e;
            for (int axis = p.layout.rank; axis-- > 0; rest /= p.layout.extent[axis])
                place += (int64_t)(rest % p.layout.extent[axis]) * p.layout.stride[axis];
            ordered[e] = values[place];
        }
        snprintf(name, sizeof name, "%s.npy", p.name);
        write_floats(name, p.layout.rank, p.layout.extent, ordered);
        free(values);
        free(ordered);
    }
}

int main(int argc, char **argv)
{
    begin_run(argc, argv);
    clattn_transformer *model = make_model();
    clattn_trainer *trainer;
    CHECK(clattn_trainer_create(model, &trainer));
    for (size_t step = 0; step < number("steps", 1); step++) {
        if (number("decoder", 0))
            run_step(trainer, step);
        else
            run_phases(trainer, step);
        update(trainer, step);
    }
    write_parameters(trainer, !(strtof(option("rate", "0"), NULL) > 0));
    clattn_trainer_release(&trainer);
    clattn_transformer_release(&model);
    clattn_context_release(&context);
    return 0;
}
