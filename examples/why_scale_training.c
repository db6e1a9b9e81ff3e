/* What the division by √d_k does to learning:
 *
 *     why_scale_training [STEPS]
 *
 * First, how much of a gradient comes through the softmax.  Queries and keys have independent components of mean 0 and
 * variance 1, and the values are the identity, so that the derivatives by the output are those by the probabilities.
 * Attention's backward pass gives the derivatives by the scores, as those by an added mask; their norm over the norm of
 * what was given is printed for d_k from 1 to 4,096, with the division and without, of the median query.
 *
 * Second, two trainings of a decoder of one layer and one head of 512 numbers, which begin with the same weights, such
 * that queries and keys are as above.  It learns to find the one marked token of each row and to say which it is.  The
 * losses are means of 25 steps; ln 16 = 2.77 is a guess. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/clattn.h>

enum { HEADS = 16, ROWS = 64, QUERIES = HEADS * ROWS, MOST = 4096 };
enum { BATCH = 16, LENGTH = 16, TOKENS = BATCH * LENGTH, SIZE = 512, KINDS = 16, VOCABULARY = 2 * KINDS };

static clattn_context *context;
static float query[QUERIES * MOST], key[QUERIES * MOST], value[QUERIES * ROWS], given[QUERIES * ROWS],
    mask[QUERIES * ROWS];

static void check(clattn_status status)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
    exit(1);
}

static void check_cl(cl_int code)
{
    if (code == CL_SUCCESS)
        return;
    fprintf(stderr, "OpenCL's error %d\n", (int)code);
    exit(1);
}

static unsigned long long state = 1; /* of random numbers, whose sequence is the same everywhere */

/* A number in (0, 1]. */
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 1) / 9007199254740992.0;
}

/* A normally distributed number (Box and Muller 1958). */
static float normal(void)
{
    const double u = uniform();
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * uniform()));
}

/* A buffer with a copy of `data`, or for results if that is NULL. */
static clattn_binding buffer(size_t bytes, void *data)
{
    cl_int code;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0);
    cl_mem made = clCreateBuffer(clattn_context_opencl_context(context), flags, bytes, data, &code);
    check_cl(code);
    return clattn_binding_buffer(made, 0);
}

static void read_back(clattn_binding from, size_t bytes, void *to)
{
    check_cl(clEnqueueReadBuffer(clattn_context_queue(context), from.buffer, CL_TRUE, 0, bytes, to, 0, NULL, NULL));
}

/* ---- the gradient through the softmax ---- */

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The norm of the derivatives by the scores over that of the derivatives by the probabilities, of the median query. */
static double passed(size_t d_k, int divided)
{
    static float made[QUERIES * ROWS];
    static double share[QUERIES];
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    const size_t rows[3] = {1, HEADS, ROWS};
    desc.query = desc.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, ROWS, d_k);
    desc.value = desc.output = desc.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, ROWS, ROWS);
    desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, rows);
    desc.scoring.explicit_scale = !divided;
    desc.scoring.scale = 1;
    args.query = buffer(QUERIES * d_k * sizeof(float), query);
    args.key = buffer(QUERIES * d_k * sizeof(float), key);
    args.value = buffer(sizeof value, value);
    args.mask = buffer(sizeof mask, mask);
    args.output = buffer(sizeof value, NULL);
    args.outputs.lse = buffer(QUERIES * sizeof(float), NULL);
    check(clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));

    desc.direction = CLATTN_DIRECTION_BACKWARD; /* the same arrays, and the gradients */
    desc.gradients.output = desc.output;
    desc.gradients.mask = desc.mask;
    args.gradients.output = buffer(sizeof given, given);
    args.gradients.mask = buffer(sizeof made, NULL);
    check(clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));
    read_back(args.gradients.mask, sizeof made, made);

    for (size_t i = 0; i < QUERIES; i++) {
        double squares[2] = {0, 0};
        for (size_t j = 0; j < ROWS; j++) {
            squares[0] += (double)made[i * ROWS + j] * (double)made[i * ROWS + j];
            squares[1] += (double)given[i * ROWS + j] * (double)given[i * ROWS + j];
        }
        share[i] = sqrt(squares[0] / squares[1]);
    }
    qsort(share, QUERIES, sizeof *share, ascending);
    const clattn_binding all[] = {
        args.query,         args.key, args.value, args.mask, args.output, args.outputs.lse, args.gradients.output,
        args.gradients.mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        clReleaseMemObject(all[i].buffer);
    return share[QUERIES / 2];
}

/* ---- two trainings ---- */

/* A clattn_tensor_lookup: a matrix is normal with a variance of 1 over its columns, so that products keep variances; tables
 * are small, norms 1 and biases 0. */
static clattn_status first_weights(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    static float values[2 * SIZE * SIZE];
    const int is_wide = strstr(name, "feed_forward.in") != NULL, is_tall = strstr(name, "feed_forward.out") != NULL;
    const int is_table = strstr(name, "tokens") != NULL, is_vector = strstr(name, "norm") || strstr(name, "bias");
    const size_t rows = is_table ? VOCABULARY : is_wide ? 2 * SIZE : SIZE, columns = is_tall ? 2 * SIZE : SIZE;
    (void)user;
    (void)error;
    *tensor = (clattn_host_tensor){.dtype = CLATTN_DTYPE_F32, .rank = is_vector ? 1 : 2, .extent = {rows, columns}};
    const size_t count = is_vector ? rows : rows * columns;
    state = 1;
    for (const char *c = name; *c; c++)
        state = state * 31 + (unsigned char)*c;
    for (size_t i = 0; i < count; i++)
        values[i] = is_vector ? (float)(strstr(name, "bias") == NULL) : normal() / sqrtf((float)columns);
    tensor->bytes = count * sizeof *values;
    tensor->data = values;
    return CLATTN_SUCCESS;
}

static clattn_transformer *new_model(int divided)
{
    clattn_stack_desc stack = CLATTN_STACK_DESC_INIT;
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_transformer *model;
    stack.layers = stack.heads = stack.causal = stack.final_norm = stack.scale_embeddings = 1;
    stack.d_model = SIZE;
    stack.d_ff = 2 * SIZE;
    stack.activation = CLATTN_ACTIVATION_RELU;
    stack.norm_place = CLATTN_NORM_PLACE_PRE;
    stack.input = CLATTN_STACK_INPUT_TOKENS;
    stack.vocabulary = VOCABULARY;
    stack.explicit_scale = !divided;
    stack.scale = 1;
    desc.decoder = &stack;
    desc.output = CLATTN_MODEL_OUTPUT_TIED;
    source.lookup = first_weights;
    check(clattn_transformer_create(context, &desc, &source, &model));
    return model;
}

/* Rows of tokens of random kinds, one of which is marked; the last place says of which kind that is. */
static void draw_batch(int32_t *target, int32_t *labels)
{
    for (int i = 0; i < BATCH; i++) {
        const int marked = (int)(uniform() * 0.999 * (LENGTH - 1));
        for (int j = 0; j < LENGTH; j++) {
            target[i * LENGTH + j] = (int32_t)(uniform() * 0.999 * KINDS) + (j == marked ? KINDS : 0);
            labels[i * LENGTH + j] = -100;
        }
        labels[i * LENGTH + LENGTH - 1] = target[i * LENGTH + marked] - KINDS;
    }
}

/* Trains a model and writes each step's mean loss to `losses`. */
static void train(int divided, int steps, double *losses)
{
    int32_t target[TOKENS], labels[TOKENS];
    float each[TOKENS];
    clattn_transformer *model = new_model(divided);
    clattn_trainer *trainer;
    clattn_plan *plan;
    clattn_training_desc desc = CLATTN_TRAINING_DESC_INIT;
    clattn_training_args args = CLATTN_TRAINING_ARGS_INIT;
    cl_command_queue queue = clattn_context_queue(context);
    desc.batch = BATCH;
    desc.target_length = LENGTH;
    check(clattn_trainer_create(model, &trainer));
    check(clattn_training_plan_create(trainer, &desc, NULL, &plan));
    args.target = buffer(sizeof target, NULL);
    args.labels = buffer(sizeof labels, NULL);
    args.losses = buffer(sizeof each, NULL);
    args.explicit_scale = 1;
    args.scale = 1.0f / BATCH;
    state = 1; /* both see the same batches */
    for (int step = 1; step <= steps; step++) {
        clattn_update_args update = CLATTN_UPDATE_ARGS_INIT;
        update.learning_rate = 1e-3;
        update.step = step;
        draw_batch(target, labels);
        check_cl(clEnqueueWriteBuffer(queue, args.target.buffer, CL_TRUE, 0, sizeof target, target, 0, NULL, NULL));
        check_cl(clEnqueueWriteBuffer(queue, args.labels.buffer, CL_TRUE, 0, sizeof labels, labels, 0, NULL, NULL));
        check(clattn_training_enqueue(plan, queue, &args, 0, NULL, NULL));
        check(clattn_trainer_update(trainer, queue, &update, 0, NULL, NULL));
        read_back(args.losses, sizeof each, each);
        losses[step - 1] = 0;
        for (int i = 0; i < TOKENS; i++)
            losses[step - 1] += (double)each[i] / BATCH;
    }
    clReleaseMemObject(args.target.buffer);
    clReleaseMemObject(args.labels.buffer);
    clReleaseMemObject(args.losses.buffer);
    clattn_plan_release(&plan);
    clattn_trainer_release(&trainer);
    clattn_transformer_release(&model);
}

static double mean(const double *losses, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += losses[i];
    return sum / count;
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 200, mean_of = 25;
    if (argc > 2 || steps < mean_of)
        return fprintf(stderr, "usage: why_scale_training [STEPS], at least %d\n", mean_of), 2;
    double *losses[2] = {calloc((size_t)steps, sizeof(double)), calloc((size_t)steps, sizeof(double))};
    check(clattn_context_create(NULL, &context));
    if (!losses[0] || !losses[1])
        return 1;
    for (size_t i = 0; i < sizeof query / sizeof *query; i++) {
        query[i] = normal();
        key[i] = normal();
    }
    for (size_t i = 0; i < QUERIES * ROWS; i++) {
        given[i] = normal();
        value[i] = i % ROWS == i / ROWS % ROWS;
    }
    printf("the share of a gradient that comes through the softmax\n   d_k    without       with\n");
    for (size_t d_k = 1; d_k <= MOST; d_k *= 4)
        printf("%6zu %10.2e %10.2e\n", d_k, passed(d_k, 0), passed(d_k, 1));
    train(0, steps, losses[0]);
    train(1, steps, losses[1]);
    printf("the loss of a decoder with d_k = %d\n  step    without       with\n", SIZE);
    for (int step = mean_of; step <= steps; step += mean_of)
        printf("%6d %10.3f %10.3f\n", step, mean(losses[0] + step - mean_of, mean_of),
               mean(losses[1] + step - mean_of, mean_of));
    free(losses[0]);
    free(losses[1]);
    clattn_context_release(&context);
    return 0;
}
