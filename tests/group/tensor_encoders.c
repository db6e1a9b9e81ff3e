/* Encoders that ranks have together make what one device makes: pictures of all kinds, pictures of pictures, pooled vectors, masks and
 * probabilities of heads, packed weights, shorter items, queues out of order.
 *
 * Holds: group.h, transformer.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/threads.h"
#include "support/device.h"
#include "support/nn/run.h"
#include "support/suite.h"

enum { MOST_RANKS = 4 };

/* What all ranks encode. */
typedef struct job {
    const char *name;
    clattn_stack_desc stages[2];
    clattn_transformer_desc model;
    clattn_encoder_desc desc;
    nn_store store;
    const void *input;
    size_t input_bytes, outputs, pooled, probabilities; /* numbers; probabilities of all heads */
    const float *mask;                                  /* (heads, positions, positions), or NULL */
    const int32_t *lengths;
    size_t length; /* of every item, if it is not the description's */
    int most;      /* ranks */
    double tolerance;
} job;

typedef struct part {
    job *job;
    clattn_group group;
    size_t first, heads; /* the rank's own */
    float *out, *pooled, *probabilities;
    bool out_of_order;
} part;

static float *numbers(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    return values;
}

static clattn_binding bind(size_t bytes, const void *data)
{
    return bytes ? clattn_binding_buffer(nn_buffer(device_context(), bytes, data), 0) : (clattn_binding){0};
}

static void take(cl_command_queue queue, clattn_binding *from, size_t count, float *to)
{
    if (!from->buffer)
        return;
    read_buffer(queue, from->buffer, count * sizeof *to, to);
    clReleaseMemObject(from->buffer);
}

/* Encodes twice with a model that the rank has, or has a part of. */
static void encode(part *p, clattn_transformer *model)
{
    const job *j = p->job;
    clattn_context *context = device_context();
    clattn_encoder_desc desc = j->desc;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan = NULL;
    const size_t all = j->stages[0].heads, positions = desc.length;
    const size_t probabilities = j->probabilities / all * p->heads;
    cl_command_queue queue = new_queue(context, p->out_of_order);
    if (!queue)
        queue = new_queue(context, false);
    if (j->mask)
        desc.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, p->heads, positions, positions);
    assert_status(context, clattn_encoder_plan_create(model, &desc, NULL, &plan), CLATTN_SUCCESS);
    args.input = bind(j->input_bytes, j->input);
    if (j->mask)
        args.mask = bind(p->heads * positions * positions * sizeof(float), j->mask + p->first * positions * positions);
    args.output = bind(j->outputs * sizeof(float), NULL);
    args.pooled = bind(j->pooled * sizeof(float), NULL);
    args.probabilities = bind(probabilities * sizeof(float), NULL);
    args.lengths = j->lengths;
    args.explicit_lengths = j->length != 0;
    args.batch = desc.batch;
    args.length = j->length;
    for (int i = 0; i < 2; i++) {
        cl_event event = NULL;
        assert_status(context, clattn_encoder_enqueue(plan, queue, &args, 0, NULL, &event), CLATTN_SUCCESS);
        assert_cl(clWaitForEvents(1, &event));
        clReleaseEvent(event);
    }
    take(queue, &args.output, j->outputs, p->out);
    take(queue, &args.pooled, j->pooled, p->pooled);
    take(queue, &args.probabilities, probabilities, p->probabilities);
    clReleaseMemObject(args.input.buffer);
    if (args.mask.buffer)
        clReleaseMemObject(args.mask.buffer);
    clReleaseCommandQueue(queue);
    clattn_plan_release(&plan);
}

static int encode_part(void *user)
{
    part *p = user;
    nn_store store = p->job->store; /* is only read */
    const clattn_weight_source source = nn_source(&store);
    clattn_transformer *model = NULL;
    assert_status(device_context(),
                  clattn_group_transformer_create(device_context(), &p->group, &p->job->model, &source, &model),
                  CLATTN_SUCCESS);
    encode(p, model);
    clattn_transformer_release(&model);
    return 0;
}

static void make_room(part *p, job *j)
{
    *p = (part){.job = j, .heads = j->stages[0].heads, .out_of_order = true};
    p->out = numbers(j->outputs);
    p->pooled = numbers(j->pooled);
    p->probabilities = numbers(j->probabilities);
}

static void clear(part *p)
{
    free(p->out);
    free(p->pooled);
    free(p->probabilities);
}

/* The numbers that count: of items that are shorter than the description's, those of their positions. */
static bool counts(const job *j, size_t i)
{
    const size_t columns = j->stages[0].d_model, row = i / columns;
    if (!j->length && !j->lengths)
        return true;
    const size_t item = row / j->desc.length, length = j->lengths ? (size_t)j->lengths[item] : j->length;
    return row % j->desc.length < length;
}

static double largest_apart(const float *found, const float *expected, size_t count, const job *j)
{
    double apart = 0;
    for (size_t i = 0; i < count; i++) {
        const double one = fabs((double)found[i] - (double)expected[i]) / fmax(1, fabs((double)expected[i]));
        if (!j || counts(j, i))
            apart = one <= apart ? apart : isnan(one) ? INFINITY : one;
    }
    return apart;
}

/* A rank's probabilities beside those of its heads: (layers and items, heads, queries, keys). */
static double heads_apart(const part *p, const part *whole)
{
    const job *j = p->job;
    const size_t square = j->desc.length * j->desc.length, all = j->stages[0].heads;
    double apart = 0;
    for (size_t i = 0; j->probabilities && i < j->probabilities / square / all; i++)
        apart =
            fmax(apart, largest_apart(p->probabilities + i * p->heads * square,
                                      whole->probabilities + (i * all + p->first) * square, p->heads * square, NULL));
    return apart;
}

static void agrees(job *j)
{
    part whole, parts[MOST_RANKS];
    thrd_t threads[MOST_RANKS];
    clattn_group_local *local;
    clattn_transformer *model;
    const size_t kv_heads = j->stages[0].kv_heads ? j->stages[0].kv_heads : j->stages[0].heads;
    j->model.size = sizeof j->model;
    j->model.encoder = j->stages;
    make_room(&whole, j);
    model = nn_transformer(device_context(), &j->model, &j->store);
    encode(&whole, model);
    clattn_transformer_release(&model);
    for (int ranks = 2; ranks <= j->most; ranks++) {
        assert_int_equal(clattn_group_local_create(ranks, 20000, &local), CLATTN_SUCCESS);
        for (int i = 0; i < ranks; i++) {
            const size_t first = kv_heads * (size_t)i / (size_t)ranks, end = kv_heads * (size_t)(i + 1) / (size_t)ranks;
            make_room(&parts[i], j);
            parts[i].first = first * (j->stages[0].heads / kv_heads);
            parts[i].heads = (end - first) * (j->stages[0].heads / kv_heads);
            assert_int_equal(clattn_group_local_rank(local, i, &parts[i].group), CLATTN_SUCCESS);
            assert_int_equal(thrd_create(&threads[i], encode_part, &parts[i]), thrd_success);
        }
        for (int i = 0; i < ranks; i++)
            thrd_join(threads[i], NULL);
        double out = 0, pooled = 0, probabilities = 0;
        bool same = true;
        for (int i = 0; i < ranks; i++) {
            out = fmax(out, largest_apart(parts[i].out, whole.out, j->outputs, j));
            pooled = fmax(pooled, largest_apart(parts[i].pooled, whole.pooled, j->pooled, NULL));
            probabilities = fmax(probabilities, heads_apart(&parts[i], &whole));
            for (size_t n = 0; n < j->outputs; n++)
                same = same && (!counts(j, n) || !memcmp(&parts[i].out[n], &parts[0].out[n], sizeof(float)));
            same = same && !memcmp(parts[i].pooled, parts[0].pooled, j->pooled * sizeof(float));
        }
        print_message("# %s: %d ranks: %.2g, pooled %.2g, probabilities %.2g, %s bits\n", j->name, ranks, out, pooled,
                      probabilities, same ? "the same" : "OTHER");
        assert_true(out <= j->tolerance && pooled <= j->tolerance && probabilities <= j->tolerance && same);
        for (int i = 0; i < ranks; i++)
            clear(&parts[i]);
        clattn_group_local_release(&local);
    }
    clear(&whole);
    nn_store_clear(&j->store);
}

/* ---- pictures ---- */

#define PICTURES(function) SHAPE(function), PRE, .layers = 2, .input = CLATTN_STACK_INPUT_PICTURES

static void pictures_agree(void **state)
{
    static const struct {
        const char *name;
        clattn_stack_desc stack;
        size_t height, width;
        int most;
        clattn_pooling pooling;
    } cases[] = {
        {"CLIP",
         {PICTURES(SWISH), .explicit_alpha = 1, .alpha = 1.702f, .positions = CLATTN_POSITIONS_TABLE,
          .position_count = 5, .input_norm = 1, .final_norm = 1, .projection = 12,
          .patches = {3, 4, 4, 2, 2, 0, 1, 1, 0, 0, 0}},
         8,
         8,
         3,
         CLATTN_POOLING_FIRST},
        {"norms of heads, LayerScale, registers, rotary",
         {PICTURES(GELU), .final_norm = 1, .gated = 1, .kv_heads = 2, .query_key_norm = 1, .layer_scale = 1,
          .positions = CLATTN_POSITIONS_TABLE, .position_count = 4, .without_bias = CLATTN_WITHOUT_BIAS,
          .rotary = CLATTN_ROTARY_HALVES, .patches = {3, 4, 4, 2, 2, 0, 0, 1, 0, 2, 0}},
         12,
         8,
         2,
         CLATTN_POOLING_PATCHES},
        {"post-norm, RMS, norms of heads",
         {SHAPE(RELU), POST, .layers = 1, .input = CLATTN_STACK_INPUT_PICTURES, .norm = CLATTN_NORM_KIND_RMS,
          .query_key_norm = 1, .patches = {4, 1, 5, 0, 0, 0, 0, 0, 0, 1, 0}},
         3,
         10,
         3,
         CLATTN_POOLING_MEAN},
        {"DINOv3",
         {PICTURES(GELU), .final_norm = 1, .layer_scale = 1, .rotary = CLATTN_ROTARY_HALVES, .rotary_base = 100,
          .rotary_centred = 1, .without_bias = CLATTN_WITHOUT_KEY_BIAS,
          .patches = {.channels = 3, .height = 4, .width = 4, .class_token = 1, .registers = 4}},
         12,
         20,
         3,
         CLATTN_POOLING_PATCHES},
        {"softcap",
         {PICTURES(GELU), .kv_heads = 2, .rotary = CLATTN_ROTARY_INTERLEAVED, .rotary_size = 4, .softcap = 1.5f,
          .patches = {.channels = 1, .height = 3, .width = 2}},
         9,
         10,
         2,
         CLATTN_POOLING_MEAN},
        {"SAM",
         {PICTURES(GELU), .neck = 12, .windows = {2, 2, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 2},
          .positions = CLATTN_POSITIONS_TABLE, .position_count = 24,
          .patches = {.channels = 3, .height = 2, .width = 2, .grid_rows = 6, .grid_columns = 4}},
         12,
         8,
         3,
         CLATTN_POOLING_NONE},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const clattn_stack_desc *d = &cases[i].stack;
        const size_t pixels = 2 * d->patches.channels * cases[i].height * cases[i].width;
        float *picture = nn_floats(pixels, 3);
        job j = {.name = cases[i].name,
                 .stages = {*d},
                 .desc = nn_encoder_desc(2, 0),
                 .store = {.seed = 5},
                 .input = picture,
                 .input_bytes = pixels * sizeof *picture,
                 .most = cases[i].most,
                 .tolerance = 3e-6};
        j.desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, d->patches.channels, cases[i].height, cases[i].width);
        const nn_encoder_run run = {.d = d, .desc = j.desc};
        j.outputs = 2 * nn_encoder_positions(&run) * (d->neck ? d->neck : d->d_model);
        j.desc.pooling = cases[i].pooling;
        j.pooled = cases[i].pooling ? 2 * (d->projection ? d->projection : d->d_model) : 0;
        j.desc.pooled_unit = d->projection != 0;
        nn_store_add_stack(&j.store, "encoder", d);
        agrees(&j);
        free(picture);
    }
}

static void restorations_agree(void **state)
{
    static const struct {
        clattn_restoration restoration;
        size_t residual, stages;
        clattn_dtype weights;
    } cases[] = {
        {{CLATTN_RESTORATION_KIND_SHUFFLE, 0, 2, 12}, 1, 2, CLATTN_DTYPE_F32},
        {{CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0}, 3, 2, CLATTN_DTYPE_F32},
        {{CLATTN_RESTORATION_KIND_SHUFFLE_ONCE, 0, 3, 0}, 1, 1, CLATTN_DTYPE_F32},
        {{CLATTN_RESTORATION_KIND_NEAREST, 0, 4, 6}, 3, 2, CLATTN_DTYPE_I8},
    };
    enum { ITEMS = 2, ROWS = 7, COLUMNS = 5, CHANNELS = 3 };
    float *picture = nn_floats(ITEMS * CHANNELS * ROWS * COLUMNS, 3);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const size_t factor = cases[i].restoration.factor, count = cases[i].stages;
        job j = {.name = "a picture of a picture",
                 .desc = nn_encoder_desc(ITEMS, 0),
                 .store = {.seed = 5},
                 .model = {.weight_dtype = cases[i].weights},
                 .input = picture,
                 .input_bytes = ITEMS * CHANNELS * ROWS * COLUMNS * sizeof *picture,
                 .outputs = ITEMS * CHANNELS * ROWS * COLUMNS * factor * factor,
                 .most = 3,
                 .tolerance = cases[i].weights == CLATTN_DTYPE_I8 ? 3e-2 : 5e-6};
        for (size_t k = 0; k < count; k++) {
            clattn_stack_desc *d = &j.stages[k];
            *d = (clattn_stack_desc){PICTURES(GELU), .windows = {3, 3, 2, CLATTN_POSITION_BIAS_TABLE, 0}};
            d->residual = k + 1 == count ? cases[i].residual : 1;
            d->input = k ? CLATTN_STACK_INPUT_CONTINUED : CLATTN_STACK_INPUT_PICTURES;
            d->input_norm = !k;
            d->final_norm = k + 1 == count;
            if (d->final_norm)
                d->restoration = cases[i].restoration;
            else
                d->next = &j.stages[k + 1];
        }
        j.stages[0].patches = (clattn_patches){.channels = CHANNELS, .height = 1, .width = 1, .border = 1};
        nn_store_add_stack(&j.store, "encoder", j.stages);
        nn_store_add_restoration(&j.store, "encoder", j.stages, CHANNELS);
        if (count > 1)
            nn_store_add_restoration(&j.store, "encoder.stages.1", &j.stages[1], CHANNELS);
        j.desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, ITEMS, CHANNELS, ROWS, COLUMNS);
        j.desc.restored = clattn_layout_nhwc(CLATTN_DTYPE_F32, ITEMS, CHANNELS, ROWS * factor, COLUMNS * factor);
        agrees(&j);
    }
    free(picture);
}

/* ---- vectors ---- */

static void vectors_agree(void **state)
{
    enum { ITEMS = 3, LENGTH = 7, COLUMNS = 32, HEADS = 4 };
    static const int32_t lengths[ITEMS] = {LENGTH, 2, 5};
    static const struct {
        const char *name;
        clattn_stack_desc stack;
        int most;
        clattn_pooling pooling;
        uint64_t probabilities;
        bool mask, prepack, lengths;
        size_t length;
        clattn_dtype weights;
    } cases[] = {
        {.name = "masks of heads, probabilities",
         .stack = {SHAPE(RELU), POST, .layers = 2},
         .most = 4,
         .probabilities = 3,
         .mask = true},
        {.name = "masks of grouped heads, probabilities of the last layer",
         .stack = {SHAPE(GELU), PRE, .layers = 2, .kv_heads = 2, .final_norm = 1},
         .most = 2,
         .probabilities = 2,
         .mask = true},
        {.name = "packed weights",
         .stack = {SHAPE(RELU), POST, .layers = 2, .layer_scale = 1},
         .most = 3,
         .prepack = true},
        {.name = "packed int8 weights with biases, lengths, the mean",
         .stack = {SHAPE(RELU), PRE, .layers = 2, .layer_scale = 1, .gated = 1},
         .most = 4,
         .prepack = true,
         .lengths = true,
         .pooling = CLATTN_POOLING_MEAN,
         .weights = CLATTN_DTYPE_I8},
        {.name = "shorter items, the last vector",
         .stack = {SHAPE(RELU), PRE, .layers = 2, .rotary = CLATTN_ROTARY_HALVES, .causal = 1},
         .most = 3,
         .length = 4,
         .pooling = CLATTN_POOLING_LAST},
        {.name = "no output biases",
         .stack = {SHAPE(RELU), PRE, .layers = 2, .without_bias = CLATTN_WITHOUT_OUTPUT_BIAS | CLATTN_WITHOUT_KEY_BIAS},
         .most = 3},
    };
    float *x = nn_floats(ITEMS * LENGTH * COLUMNS, 3), *mask = nn_floats(HEADS * LENGTH * LENGTH, 4);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        job j = {.name = cases[i].name,
                 .stages = {cases[i].stack},
                 .desc = nn_encoder_desc(ITEMS, LENGTH),
                 .store = {.seed = 5},
                 .model = {.weight_dtype = cases[i].weights},
                 .input = x,
                 .input_bytes = ITEMS * LENGTH * COLUMNS * sizeof *x,
                 .outputs = ITEMS * LENGTH * COLUMNS,
                 .pooled = cases[i].pooling ? ITEMS * COLUMNS : 0,
                 .probabilities = ITEMS * HEADS * LENGTH * LENGTH *
                                  (size_t)((cases[i].probabilities & 1) + (cases[i].probabilities >> 1)),
                 .mask = cases[i].mask ? mask : NULL,
                 .lengths = cases[i].lengths ? lengths : NULL,
                 .length = cases[i].length,
                 .most = cases[i].most,
                 .tolerance = cases[i].weights == CLATTN_DTYPE_I8 ? 3e-2 : 3e-6};
        j.desc.pooling = cases[i].pooling;
        j.desc.probabilities = cases[i].probabilities;
        j.desc.prepack = cases[i].prepack;
        nn_store_add_stack(&j.store, "encoder", j.stages);
        agrees(&j);
    }
    free(x);
    free(mask);
}

int main(int argc, char **argv)
{
    suite_add(vectors_agree,
              "group tensor: encoders' masks, probabilities, packed weights and lengths are one device's");
    suite_add(pictures_agree, "group tensor: so are encoders of pictures of all kinds, and pooled vectors");
    suite_add(restorations_agree, "group tensor: so are pictures of pictures");
    return suite_run("group_tensor_encoders", argc, argv);
}
