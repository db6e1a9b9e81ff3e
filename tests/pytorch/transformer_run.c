/* transformer_run FOLDER [name=value ...]: a Transformer of PyTorch's weights, for transformer.py.
 *
 * FOLDER has weights.safetensors, a state dict, and of these .npy files what the model takes:
 *
 *   source, target, memory                        (batch, length, d_model) float32; `memory` for a decoder alone
 *   source_mask, target_mask, memory_mask         (queries, keys) or (batch * heads, queries, keys)
 *   source_padding, target_padding, memory_padding   (batch, keys)
 *   source_lengths, target_lengths, memory_lengths   (batch) int32
 *
 * Masks and paddings are as PyTorch has them: bool, true = do not attend, or float32, added.  The result is output.npy,
 * the last stack's vectors.
 *
 *   format=N        the clattn_name_format
 *   encoder=N decoder=N   layers; 0 (default): there is none
 *   d_model=N heads=N d_ff=N activation=N pre=0|1 bias=0|1 epsilon=X final_norm=0|1    of both stacks
 *   causal=0|1 target_causal=0|1
 *   piece=N         the target is appended N tokens at a time; 0 (default): at once
 *   solver=NAME     attention's */
#include <math.h>

#include "pytorch/run.h"

/* ---- files ---- */

/* An array of the folder, or zeros if the folder has none of that name. */
static clattn_host_tensor array(const char *what, const char *kind)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", what, kind);
    return array_of(name);
}

/* Vectors of (batch, length, d_model) float32. */
static clattn_host_tensor vectors(const char *what)
{
    const clattn_host_tensor t = array(what, "");
    if (t.dtype != CLATTN_DTYPE_F32 || t.rank != 3 || t.extent[2] != number("d_model", 0))
        complain(what, "is not (batch, length, d_model) float32");
    return t;
}

static const int32_t *lengths_of(const char *what, size_t batch)
{
    const clattn_host_tensor t = array(what, "_lengths");
    if (t.data && (t.dtype != CLATTN_DTYPE_I32 || t.rank != 1 || t.extent[0] != batch))
        complain(what, "lengths are not (batch) int32");
    return t.data;
}

/* ---- masks ---- */

/* One mask of an attention: PyTorch has two, of which a key is attended if both let it. */
struct mask {
    clattn_layout layout;
    clattn_binding binding;
};

/* Element i of one of them as a number to add; -inf does not attend. */
static float added(const clattn_host_tensor *t, const uint8_t *attended, size_t i)
{
    float value;
    if (!t->data)
        return 0;
    if (attended)
        return attended[i] ? 0 : -INFINITY;
    memcpy(&value, (const char *)t->data + i * sizeof value, sizeof value);
    return value;
}

/* The negation of a boolean tensor, to be freed; NULL if the tensor is not boolean. */
static uint8_t *turned(const clattn_host_tensor *t)
{
    if (!t->data || t->dtype != CLATTN_DTYPE_BOOL)
        return NULL;
    uint8_t *attended = room(t->bytes, 1);
    clattn_mask_from_pytorch(t->data, attended, t->bytes);
    return attended;
}

static struct mask mask_of(const char *what, size_t batch, size_t queries, size_t keys)
{
    struct mask mask = {0};
    const size_t heads = number("heads", 0);
    const clattn_host_tensor whole = array(what, "_mask"), padding = array(what, "_padding");
    if (!whole.data && !padding.data)
        return mask;
    const bool each = whole.rank == 3;
    if (whole.data && (whole.extent[whole.rank - 1] != keys || whole.extent[whole.rank - 2] != queries ||
                       (each && whole.extent[0] != batch * heads)))
        complain(what, "the mask's shape is wrong");
    if (padding.data && (padding.rank != 2 || padding.extent[0] != batch || padding.extent[1] != keys))
        complain(what, "the padding's shape is wrong");
    uint8_t *whole_attended = turned(&whole), *padding_attended = turned(&padding);
    const bool boolean = (!whole.data || whole_attended) && (!padding.data || padding_attended);
    const size_t extent[4] = {each || padding.data ? batch : 1, each ? heads : 1, whole.data ? queries : 1, keys};
    const size_t count = extent[0] * extent[1] * extent[2] * extent[3];
    float *floats = room(count, sizeof *floats);
    uint8_t *bytes = room(count, 1);
    for (size_t i = 0; i < count; i++) {
        const size_t key = i % keys, row = i / keys, query = row % extent[2], item = row / extent[2] / extent[1];
        const size_t plane = each ? row / extent[2] : 0;
        floats[i] = added(&whole, whole_attended, (plane * queries + query) * keys + key) +
                    added(&padding, padding_attended, item * keys + key);
        bytes[i] = floats[i] == 0;
    }
    mask.layout = clattn_layout_contiguous(boolean ? CLATTN_DTYPE_BOOL : CLATTN_DTYPE_F32, 4, extent);
    mask.binding = clattn_binding_buffer(boolean ? buffer(count, bytes) : buffer(count * sizeof *floats, floats), 0);
    free(whole_attended);
    free(padding_attended);
    free(floats);
    free(bytes);
    return mask;
}

/* ---- the model ---- */

static clattn_stack_desc stack_of(const char *layers, const char *causal)
{
    clattn_stack_desc d = CLATTN_STACK_DESC_INIT;
    d.layers = number(layers, 0);
    d.d_model = number("d_model", 0);
    d.heads = number("heads", 0);
    d.d_ff = number("d_ff", 0);
    d.activation = (clattn_activation)number("activation", 0);
    d.norm_place = number("pre", 0) ? CLATTN_NORM_PLACE_PRE : CLATTN_NORM_PLACE_POST;
    d.without_bias = number("bias", 0) ? 0 : CLATTN_WITHOUT_BIAS;
    d.explicit_epsilon = 1;
    d.epsilon = strtof(option("epsilon", "1e-5"), NULL);
    d.final_norm = (int32_t)number("final_norm", 0);
    d.causal = (int32_t)number(causal, 0);
    return d;
}

static clattn_transformer *make_model(void)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_stack_desc encoder = stack_of("encoder", "causal"), decoder = stack_of("decoder", "target_causal");
    decoder.cross = 1;
    desc.encoder = encoder.layers ? &encoder : NULL;
    desc.decoder = decoder.layers ? &decoder : NULL;
    return load_model(&desc, (clattn_name_format)number("format", 0), NULL);
}

static clattn_plan_options solver_options(void)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = option("solver", NULL);
    return options;
}

/* The encoder's output, in a buffer. */
static cl_mem encode(clattn_transformer *model, const clattn_host_tensor *source)
{
    clattn_plan *plan;
    const clattn_plan_options options = solver_options();
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    const size_t batch = source->extent[0], length = source->extent[1];
    const struct mask mask = mask_of("source", batch, length, length);
    cl_mem input = buffer(source->bytes, source->data), output = buffer(source->bytes, NULL);
    desc.batch = batch;
    desc.length = length;
    desc.mask = mask.layout;
    CHECK(clattn_encoder_plan_create(model, &desc, &options, &plan));
    args.input = clattn_binding_buffer(input, 0);
    args.mask = mask.binding;
    args.output = clattn_binding_buffer(output, 0);
    args.lengths = lengths_of("source", batch);
    CHECK(clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL));
    clattn_plan_release(&plan);
    clReleaseMemObject(input);
    if (mask.binding.buffer)
        clReleaseMemObject(mask.binding.buffer);
    return output;
}

/* Rows [from, from + count) of each item, of arrays with `to_length` and `from_length` rows an item. */
static void copy_rows(float *to, size_t to_length, size_t to_row, const float *from, size_t from_length,
                      size_t from_row, size_t batch, size_t count, size_t columns)
{
    for (size_t b = 0; b < batch; b++)
        memcpy(to + (b * to_length + to_row) * columns, from + (b * from_length + from_row) * columns,
               count * columns * sizeof *to);
}

/* The decoder's output for the whole target. */
static float *decode(clattn_transformer *model, cl_mem memory, size_t memory_length, const clattn_host_tensor *target)
{
    clattn_plan *plan;
    clattn_decoder_state *state;
    const clattn_plan_options options = solver_options();
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    const size_t batch = target->extent[0], length = target->extent[1], columns = target->extent[2];
    const size_t piece = number("piece", 0) ? number("piece", 0) : length;
    const struct mask mask = mask_of("target", batch, length, length);
    const struct mask memory_mask = mask_of("memory", batch, length, memory_length);
    const int32_t *lengths = lengths_of("target", batch);
    int32_t *rest = room(batch, sizeof *rest);
    float *output = room(batch * length * columns, sizeof *output), *rows = room(batch * piece * columns, sizeof *rows);
    cl_mem made = buffer(batch * piece * columns * sizeof *rows, NULL);
    desc.items = batch;
    desc.length = piece;
    desc.cache_length = length;
    desc.memory_length = memory_length;
    desc.mask = mask.layout;
    desc.memory_mask = memory_mask.layout;
    CHECK(clattn_decoder_plan_create(model, &desc, &options, &plan));
    CHECK(clattn_decoder_state_create(plan, &state));
    begin.memory = clattn_binding_buffer(memory, 0);
    begin.items = batch;
    begin.memory_length = memory_length;
    begin.memory_lengths = lengths_of("memory", batch);
    CHECK(clattn_decoder_begin(state, NULL, &begin, 0, NULL, NULL));
    for (size_t at = 0; at < length; at += piece) {
        clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
        const size_t count = length - at < piece ? length - at : piece, stride = count == 1 ? 1 : piece;
        memset(rows, 0, batch * piece * columns * sizeof *rows);
        copy_rows(rows, stride, 0, target->data, length, at, batch, count, columns);
        cl_mem input = buffer(batch * piece * columns * sizeof *rows, rows);
        for (size_t b = 0; lengths && b < batch; b++) {
            const int32_t left = lengths[b] - (int32_t)at;
            rest[b] = left<0 ? 0 : left>(int32_t) count ? (int32_t)count : left;
        }
        args.input = clattn_binding_buffer(input, 0);
        args.mask = mask.binding;
        args.memory_mask = memory_mask.binding;
        args.output = clattn_binding_buffer(made, 0);
        args.length = count;
        args.lengths = lengths ? rest : NULL;
        CHECK(clattn_decoder_enqueue(state, NULL, &args, 0, NULL, NULL));
        read_buffer(made, batch * stride * columns * sizeof *rows, rows);
        copy_rows(output, length, at, rows, stride, 0, batch, count, columns);
        clReleaseMemObject(input);
    }
    clattn_decoder_state_release(&state);
    clattn_plan_release(&plan);
    clReleaseMemObject(made);
    if (mask.binding.buffer)
        clReleaseMemObject(mask.binding.buffer);
    if (memory_mask.binding.buffer)
        clReleaseMemObject(memory_mask.binding.buffer);
    free(rows);
    free(rest);
    return output;
}

int main(int argc, char **argv)
{
    begin_run(argc, argv);
    clattn_transformer *model = make_model();
    cl_mem memory;
    size_t memory_length;
    clattn_host_tensor shape;
    float *output;
    if (number("encoder", 0)) {
        shape = vectors("source");
        memory = encode(model, &shape);
    } else {
        shape = vectors("memory");
        memory = buffer(shape.bytes, shape.data);
    }
    memory_length = shape.extent[1];
    if (number("decoder", 0)) {
        const size_t items = shape.extent[0];
        shape = vectors("target");
        if (shape.extent[0] != items)
            complain("target", "its batch is another than the memory's");
        output = decode(model, memory, memory_length, &shape);
    } else {
        output = room(shape.bytes, 1);
        read_buffer(memory, shape.bytes, output);
    }
    write_floats("output.npy", 3, shape.extent, output);
    free(output);
    clReleaseMemObject(memory);
    clattn_transformer_release(&model);
    clattn_context_release(&context);
    return 0;
}
