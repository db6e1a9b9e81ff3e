/* Declares the weights of a model and the names of their tensors. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/grow.h"
#include "nn/model/load.h"

static struct split all_of(size_t count)
{
    return (struct split){0, count, count};
}

static bool is_part(struct split split)
{
    return split.count != split.whole;
}

/* What a rank has if each thing is `size` others. */
static struct split split_of(struct split things, size_t size)
{
    return (struct split){things.first * size, things.count * size, things.whole * size};
}

static weight_id declare(struct loader *loader, size_t rows, size_t columns, clattn_dtype dtype)
{
    clattn_transformer *model = loader->model;
    struct weight *weights = array_grow(model->weights, &model->weight_capacity, model->weight_count, sizeof *weights);
    if (!weights) {
        loader->failed = true;
        return 0;
    }
    model->weights = weights;
    if (!model->weight_count)
        weights[model->weight_count++] = (struct weight){0};
    weights[model->weight_count] = (struct weight){.rows = rows, .columns = columns, .dtype = dtype};
    return (weight_id)model->weight_count++;
}

static struct part *add_part(struct loader *loader, weight_id weight, size_t first, size_t rows, size_t columns,
                             const char *format, ...) PRINTF_LIKE(6, 7);
static struct part *add_part(struct loader *loader, weight_id weight, size_t first, size_t rows, size_t columns,
                             const char *format, ...)
{
    struct part *parts = array_grow(loader->parts, &loader->part_capacity, loader->part_count, sizeof *parts);
    if (!parts) {
        loader->failed = true;
        return &loader->nowhere;
    }
    loader->parts = parts;
    struct part *part = &parts[loader->part_count++];
    *part = (struct part){.weight = weight,
                          .first = first,
                          .rows = rows,
                          .columns = columns,
                          .kernel = 1,
                          .of_rows = all_of(rows),
                          .of_columns = all_of(columns)};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part->name, sizeof part->name, format, arguments);
    va_end(arguments);
    return part;
}

/* A part of a linear layer. */
struct share {
    const char *name;
    struct split rows;
    bool bias, scaled; /* scaled: the rows are multiplied by the vector `scale` beside the layer */
};

/* Declares the matrix of a product, with scales if it is int8. */
static weight_id declare_matrix(struct loader *loader, size_t rows, size_t columns, bool own)
{
    const clattn_transformer *model = loader->model;
    weight_id id = declare(loader, rows, columns, model->weight_dtype);
    if (id && model->weight_dtype == CLATTN_DTYPE_I8) {
        weight_id scale = declare(loader, rows, 1, CLATTN_DTYPE_F32);
        loader->model->weights[id].scale = scale;
        loader->model->weights[scale].own = own;
    }
    if (id)
        loader->model->weights[id].own = own;
    return id;
}

/* The dtype of vectors, tables and convolutions. */
static clattn_dtype plain_dtype(const clattn_transformer *model)
{
    return model->weight_dtype == CLATTN_DTYPE_I8 ? model->dtype : model->weight_dtype;
}

static struct part *add_vector(struct loader *loader, weight_id id, size_t first, size_t rows, bool there,
                               const char *prefix, const char *name)
{
    struct part *part = add_part(loader, id, first, rows, 1, "%s%s", prefix, name);
    part->vector = true;
    part->zero = !there;
    return part;
}

static void scale_part(struct part *part, const char *prefix)
{
    snprintf(part->scale_name, sizeof part->scale_name, "%sscale", prefix);
}

static struct linear linear(struct loader *loader, const char *prefix, const struct share *shares, size_t count,
                            struct split columns)
{
    struct linear linear = {.columns = columns.count};
    bool bias = false, own = is_part(columns);
    char name[WEIGHT_NAME_BYTES];
    for (size_t i = 0; i < count; i++) {
        linear.rows += shares[i].rows.count;
        bias = bias || shares[i].bias;
        own = own || is_part(shares[i].rows);
    }
    linear.weight = declare_matrix(loader, linear.rows, columns.count, own);
    if (bias)
        linear.bias = declare(loader, linear.rows, 1, plain_dtype(loader->model));
    if (linear.bias)
        loader->model->weights[linear.bias].own = own;
    for (size_t i = 0, first = 0; i < count; first += shares[i++].rows.count) {
        const struct share *share = &shares[i];
        struct part *part = add_part(loader, linear.weight, first, share->rows.count, columns.count, "%s%s.weight",
                                     prefix, share->name);
        part->of_rows = share->rows;
        part->of_columns = columns;
        if (share->scaled)
            scale_part(part, prefix);
        snprintf(name, sizeof name, "%s.bias", share->name);
        if (!bias)
            continue;
        part = add_vector(loader, linear.bias, first, share->rows.count, share->bias, prefix, name);
        part->of_rows = share->rows;
        if (share->scaled && share->bias)
            scale_part(part, prefix);
    }
    return linear;
}

/* A norm of rows of `size` numbers. */
static struct norm_weights norm_of(struct loader *loader, const clattn_stack_desc *desc, const char *prefix,
                                   size_t size)
{
    struct norm_weights norm = {.scale = declare(loader, size, 1, plain_dtype(loader->model))};
    add_vector(loader, norm.scale, 0, size, true, prefix, "norm.weight");
    if (desc->norm == CLATTN_NORM_KIND_LAYER && !(desc->without_bias & CLATTN_WITHOUT_NORM_BIAS)) {
        norm.bias = declare(loader, size, 1, plain_dtype(loader->model));
        add_vector(loader, norm.bias, 0, size, true, prefix, "norm.bias");
    }
    return norm;
}

static struct norm_weights norm(struct loader *loader, const clattn_stack_desc *desc, const char *prefix)
{
    return norm_of(loader, desc, prefix, desc->d_model);
}

static weight_id table(struct loader *loader, const char *stack, const char *name, size_t rows, size_t columns)
{
    weight_id id = declare(loader, rows, columns, plain_dtype(loader->model));
    add_part(loader, id, 0, rows, columns, "%s.%s.weight", stack, name);
    return id;
}

/* The vectors for distances in rows and in columns.  What is added to a score is not scaled, but the scores are: the vectors are
 * multiplied by what undoes that. */
static struct linear distances(struct loader *loader, const struct stack *stack, size_t layer, const char *prefix)
{
    const clattn_stack_desc *d = &stack->desc;
    const struct grid grid = {d->patches.grid_rows, d->patches.grid_columns};
    const struct grid window = stack_window(d, layer, grid);
    const size_t down = 2 * window.rows - 1, across = 2 * window.columns - 1, size = d->head_size;
    const float factor = d->explicit_scale ? 1 / d->scale : sqrtf((float)size);
    struct linear distances = {.rows = down + across, .columns = size};
    distances.weight = declare(loader, down + across, size, plain_dtype(loader->model));
    add_part(loader, distances.weight, 0, down, size, "%sposition_rows", prefix)->factor = factor;
    add_part(loader, distances.weight, down, across, size, "%sposition_columns", prefix)->factor = factor;
    return distances;
}

static struct attention_weights attention(struct loader *loader, const struct stack *stack, bool cross, size_t layer,
                                          const char *prefix)
{
    const clattn_stack_desc *d = &stack->desc;
    const uint32_t without = d->without_bias;
    const bool first = model_rank(loader->model) == 0;
    const struct split heads = split_of(stack->kv_heads, d->heads / d->kv_heads);
    const struct split inner = split_of(heads, d->head_size), inner_kv = split_of(stack->kv_heads, d->head_size);
    const struct share shares[] = {
        {"query", inner, !(without & CLATTN_WITHOUT_QUERY_BIAS), false},
        {"key", inner_kv, !(without & CLATTN_WITHOUT_KEY_BIAS), false},
        {"value", inner_kv, !(without & CLATTN_WITHOUT_VALUE_BIAS), false},
        {"output", all_of(d->d_model), first && !(without & CLATTN_WITHOUT_OUTPUT_BIAS), d->layer_scale == 1}};
    char of_heads[WEIGHT_NAME_BYTES / 2 + 8];
    struct attention_weights weights = {0};
    weights.in = linear(loader, prefix, shares, cross ? 1 : 3, all_of(d->d_model));
    if (cross)
        weights.memory = linear(loader, prefix, shares + 1, 2, all_of(d->d_memory));
    weights.out = linear(loader, prefix, shares + 3, 1, inner);
    weights.norm = norm(loader, d, prefix);
    if (d->windows.position_bias == CLATTN_POSITION_BIAS_DECOMPOSED && !cross)
        weights.distances = distances(loader, stack, layer, prefix);
    if (d->windows.position_bias == CLATTN_POSITION_BIAS_TABLE && !cross) {
        const size_t places = d->windows.rows * d->windows.columns;
        weights.position_bias = declare(loader, d->heads, places * places, CLATTN_DTYPE_F32);
        struct part *part =
            add_part(loader, weights.position_bias, 0, d->heads, places * places, "%sposition_bias", prefix);
        part->windows = &d->windows;
        part->of_rows = heads;
        if (weights.position_bias)
            loader->model->weights[weights.position_bias].own = is_part(heads);
    }
    if (d->query_key_norm && !cross) {
        snprintf(of_heads, sizeof of_heads, "%squery_", prefix);
        weights.query_norm = norm_of(loader, d, of_heads, d->head_size);
        snprintf(of_heads, sizeof of_heads, "%skey_", prefix);
        weights.key_norm = norm_of(loader, d, of_heads, d->head_size);
    }
    return weights;
}

static void declare_layer(struct loader *loader, struct stack *stack, const char *name, size_t index)
{
    const clattn_stack_desc *d = &stack->desc;
    struct layer_weights *layer = &stack->layers[index];
    const bool bias = !(d->without_bias & CLATTN_WITHOUT_FEED_FORWARD_BIAS), first = model_rank(loader->model) == 0;
    const struct share in = {"in", stack->hidden, bias, false}, gate = {"gate", stack->hidden, bias, false},
                       out = {"out", all_of(d->d_model), bias && first, d->layer_scale == 1};
    char prefix[WEIGHT_NAME_BYTES / 2];
    snprintf(prefix, sizeof prefix, "%s.layers.%zu.self.", name, index);
    layer->self = attention(loader, stack, false, index, prefix);
    snprintf(prefix, sizeof prefix, "%s.layers.%zu.cross.", name, index);
    if (d->cross)
        layer->cross = attention(loader, stack, true, index, prefix);
    snprintf(prefix, sizeof prefix, "%s.layers.%zu.feed_forward.", name, index);
    layer->in = linear(loader, prefix, &in, 1, all_of(d->d_model));
    if (d->gated)
        layer->gate = linear(loader, prefix, &gate, 1, all_of(d->d_model));
    layer->out = linear(loader, prefix, &out, 1, stack->hidden);
    layer->norm = norm(loader, d, prefix);
}

static void declare_convolutions(struct loader *loader, struct stack *stack, const char *name)
{
    const clattn_stack_desc *d = &stack->desc;
    for (size_t i = 0; i < d->convolutions; i++) {
        struct linear *c = &stack->convolution[i];
        const size_t kernel = d->convolution[i].kernel, channels = i ? d->d_model : d->features;
        char bias[WEIGHT_NAME_BYTES / 2];
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

static void declare_patches(struct loader *loader, struct stack *stack, const char *prefix)
{
    const clattn_stack_desc *d = &stack->desc;
    const clattn_patches *p = &d->patches;
    struct linear *patches = &stack->patches;
    if (d->input != CLATTN_STACK_INPUT_PICTURES)
        return;
    patches->rows = d->d_model;
    const size_t height = p->height + 2 * p->border, width = p->width + 2 * p->border;
    patches->columns = p->channels * height * width;
    patches->weight = declare(loader, patches->rows, patches->columns, plain_dtype(loader->model));
    struct part *part =
        add_part(loader, patches->weight, 0, patches->rows, patches->columns, "%spatches.weight", prefix);
    part->window[0] = height;
    part->window[1] = width;
    if (!p->without_bias) {
        patches->bias = declare(loader, patches->rows, 1, plain_dtype(loader->model));
        add_vector(loader, patches->bias, 0, patches->rows, true, prefix, "patches.bias");
    }
    if (p->class_token) {
        stack->class_token = declare(loader, d->d_model, 1, plain_dtype(loader->model));
        add_vector(loader, stack->class_token, 0, d->d_model, true, prefix, "class.weight");
    }
    if (p->registers) {
        stack->registers = declare(loader, p->registers, d->d_model, plain_dtype(loader->model));
        add_part(loader, stack->registers, 0, p->registers, d->d_model, "%sregisters.weight", prefix);
    }
}

/* A convolution of `taps` x `taps`. */
static struct linear convolution(struct loader *loader, size_t out, size_t in, size_t taps, bool bias,
                                 const char *prefix, const char *name)
{
    struct linear linear = {.rows = out, .columns = in * taps * taps};
    linear.weight = declare(loader, out, linear.columns, plain_dtype(loader->model));
    struct part *part = add_part(loader, linear.weight, 0, out, linear.columns, "%s%s.weight", prefix, name);
    part->window[0] = part->window[1] = taps;
    if (!bias)
        return linear;
    linear.bias = declare(loader, out, 1, plain_dtype(loader->model));
    add_part(loader, linear.bias, 0, out, 1, "%s%s.bias", prefix, name)->vector = true;
    return linear;
}

/* One convolution of a stage's vectors, or three, of which the middle one is narrow. */
static void declare_residual(struct loader *loader, const clattn_stack_desc *d, const char *prefix, const char *name,
                             struct linear weights[3])
{
    const size_t n = d->d_model, narrow = n / 4;
    char inner[WEIGHT_NAME_BYTES / 2];
    if (d->residual == 1)
        weights[0] = convolution(loader, n, n, 3, true, prefix, name);
    for (size_t i = 0; i < d->residual && d->residual == 3; i++) {
        snprintf(inner, sizeof inner, "%s.%zu", name, i);
        weights[i] = convolution(loader, i == 2 ? n : narrow, i ? narrow : n, i == 1 ? 1 : 3, true, prefix, inner);
    }
}

static void declare_restoration(struct loader *loader, struct stack *stack)
{
    static const char prefix[] = "encoder.restoration.";
    const clattn_stack_desc *d = &stack->desc;
    const clattn_restoration *r = &d->restoration;
    const size_t channels = loader->model->encoder.desc.patches.channels, n = r->features,
                 once = r->factor == 3 ? 3 : 2;
    struct restoration_weights *w = &stack->restoration;
    char name[32];
    if (!r->kind)
        return;
    declare_residual(loader, d, prefix, "body", w->body);
    if (r->kind == CLATTN_RESTORATION_KIND_ADDED)
        w->last = convolution(loader, channels, d->d_model, 3, true, prefix, "last");
    if (r->kind == CLATTN_RESTORATION_KIND_SHUFFLE_ONCE)
        w->last = convolution(loader, channels * r->factor * r->factor, d->d_model, 3, true, prefix, "shuffle.0");
    if (!n)
        return;
    const bool shuffle = r->kind == CLATTN_RESTORATION_KIND_SHUFFLE;
    w->before = convolution(loader, n, d->d_model, 3, true, prefix, "before");
    for (size_t i = 0, left = r->factor; left > 1; i++, left /= once) {
        snprintf(name, sizeof name, "%s.%zu", shuffle ? "shuffle" : "nearest", i);
        w->enlarge[i] = convolution(loader, shuffle ? n * once * once : n, n, 3, true, prefix, name);
    }
    if (!shuffle)
        w->detail = convolution(loader, n, n, 3, true, prefix, "detail");
    w->last = convolution(loader, channels, n, 3, true, prefix, "last");
}

static void declare_neck(struct loader *loader, struct stack *stack, const char *prefix)
{
    const clattn_stack_desc *d = &stack->desc;
    const size_t n = d->neck;
    char of_norm[WEIGHT_NAME_BYTES / 2 + 16];
    if (!n)
        return;
    stack->neck_in = convolution(loader, n, d->d_model, 1, false, prefix, "neck.in");
    snprintf(of_norm, sizeof of_norm, "%sneck.in_", prefix);
    stack->neck_in_norm = norm_of(loader, d, of_norm, n);
    stack->neck_out = convolution(loader, n, n, 3, false, prefix, "neck.out");
    snprintf(of_norm, sizeof of_norm, "%sneck.out_", prefix);
    stack->neck_out_norm = norm_of(loader, d, of_norm, n);
}

static void declare_tokens(struct loader *loader, struct stack *stack, const char *name)
{
    const size_t rows = stack->vocabulary.count, columns = stack->desc.d_model;
    stack->tokens = declare(loader, rows, columns, plain_dtype(loader->model));
    if (stack->tokens)
        loader->model->weights[stack->tokens].own = is_part(stack->vocabulary);
    add_part(loader, stack->tokens, 0, rows, columns, "%s.tokens.weight", name)->of_rows = stack->vocabulary;
}

static void declare_stack(struct loader *loader, struct stack *stack, const char *name)
{
    const clattn_stack_desc *d = &stack->desc;
    char prefix[WEIGHT_NAME_BYTES / 2], of_merge[WEIGHT_NAME_BYTES / 2 + 8];
    stack->layers = calloc(d->layers, sizeof *stack->layers);
    if (!stack->layers) {
        loader->failed = true;
        return;
    }
    if (d->input == CLATTN_STACK_INPUT_TOKENS)
        declare_tokens(loader, stack, name);
    if (d->positions == CLATTN_POSITIONS_TABLE) {
        stack->positions = declare(loader, d->position_count, d->d_model, plain_dtype(loader->model));
        struct part *part =
            add_part(loader, stack->positions, 0, d->position_count, d->d_model, "%s.positions.weight", name);
        if (d->position_count == d->patches.grid_rows * d->patches.grid_columns)
            part->grid = &d->patches;
    }
    if (d->segments)
        stack->segments = table(loader, name, "segments", d->segments, d->d_model);
    snprintf(prefix, sizeof prefix, "%s.input_", name);
    if (d->input_norm)
        stack->input_norm = norm(loader, d, prefix);
    declare_convolutions(loader, stack, name);
    snprintf(prefix, sizeof prefix, "%s.", name);
    declare_patches(loader, stack, prefix);
    for (size_t i = 0; i < d->layers && !loader->failed; i++)
        declare_layer(loader, stack, name, i);
    if (d->final_norm)
        stack->final_norm = norm(loader, d, prefix);
    declare_neck(loader, stack, prefix);
    declare_residual(loader, d, prefix, "residual", stack->residual);
    declare_restoration(loader, stack);
    if (stack->next && stack->next->desc.input == CLATTN_STACK_INPUT_MERGED) {
        snprintf(of_merge, sizeof of_merge, "%smerge.", prefix);
        stack->merge_norm = norm_of(loader, d, of_merge, 4 * d->d_model);
        stack->merge = linear(loader, prefix, &(struct share){"merge", all_of(stack->next->desc.d_model), false, false},
                              1, all_of(4 * d->d_model));
    }
    if (d->projection) {
        stack->projection = (struct linear){.rows = d->projection, .columns = d->d_model};
        stack->projection.weight = table(loader, name, "projection", d->projection, d->d_model);
    }
}

static void declare_output(struct loader *loader)
{
    clattn_transformer *model = loader->model;
    const struct share rows = {"", model->output_rows, model->output_bias, false};
    if (model->output == CLATTN_MODEL_OUTPUT_TIED)
        model->logits = (struct linear){
            .weight = model->decoder.tokens, .rows = model->output_rows.count, .columns = model->decoder.desc.d_model};
    if (model->output == CLATTN_MODEL_OUTPUT_OWN)
        model->logits = linear(loader, "output", &rows, 1, all_of(model->decoder.desc.d_model));
}

void loader_declare(struct loader *loader)
{
    struct stack *stage = loader->model->encoder.next;
    char name[32];
    if (loader->model->has_encoder)
        declare_stack(loader, &loader->model->encoder, "encoder");
    for (size_t i = 1; stage; i++, stage = stage->next) {
        snprintf(name, sizeof name, "encoder.stages.%zu", i);
        declare_stack(loader, stage, name);
    }
    if (loader->model->has_decoder)
        declare_stack(loader, &loader->model->decoder, "decoder");
    declare_output(loader);
}
