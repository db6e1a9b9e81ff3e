/* Two ways to compare a query with a key:
 *
 *   dot-product   q · k / √d_k          (Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1)
 *   additive      w · tanh(q + k)       (Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to
 *                                        Align and Translate"; a network with one hidden layer, d_k units wide)
 *
 * Both take 2 d_k additions and multiplications for each pair. Additive attention also takes d_k hyperbolic tangents,
 * which are what costs, and no matrix product can compute it. This program runs both on the same queries, keys and
 * values, tells how long each took and how evenly it attends (its entropy: ln n if all n keys count alike, 0 if only
 * one counts), and compares the results with the definition, written out in plain C.
 *
 * One thing does not show here: w and the matrices that make q and k are learned. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <clattn/clattn.h>

enum { HEADS = 8, SIZE = 64, MOST = 512, RUNS = 5, CHECKED = 8 /* queries of the last head are compared */ };

static float q[HEADS * MOST * SIZE], k[HEADS * MOST * SIZE], v[HEADS * MOST * SIZE], w[SIZE];
static float output[HEADS * MOST * SIZE], entropy[HEADS * MOST];
static clattn_context *context;

static void check(clattn_status status)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
    exit(1);
}

/* The definition of attention: one query over n keys and values. */
static void define(int additive, const float *query, const float *keys, const float *values, int n, double result[SIZE])
{
    static double p[MOST];
    double sum = 0;
    for (int j = 0; j < n; j++) {
        double score = 0;
        for (int d = 0; d < SIZE; d++)
            score += additive ? w[d] * tanh((double)query[d] + keys[j * SIZE + d])
                              : (double)query[d] * keys[j * SIZE + d] / sqrt(SIZE);
        sum += p[j] = exp(score);
    }
    for (int d = 0; d < SIZE; d++) {
        result[d] = 0;
        for (int j = 0; j < n; j++)
            result[d] += p[j] / sum * values[j * SIZE + d];
    }
}

/* Returns the largest difference between the definition and some of the device's results. */
static double largest_error(int additive, int n)
{
    double worst = 0, result[SIZE];
    size_t head = (size_t)(HEADS - 1) * n * SIZE;
    for (int i = 0; i < CHECKED; i++) {
        define(additive, q + head + i * SIZE, k + head, v + head, n, result);
        for (int d = 0; d < SIZE; d++) {
            double error = fabs(output[head + i * SIZE + d] - result[d]);
            worst = error <= worst ? worst : error; /* also if it is NaN */
        }
    }
    return worst;
}

static double now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static cl_mem buffer_of(size_t bytes, float *data)
{
    return clCreateBuffer(clattn_context_opencl_context(context), data ? CL_MEM_COPY_HOST_PTR : 0, bytes, data, NULL);
}

struct outcome {
    double milliseconds, entropy, error; /* the shortest time, the mean entropy of all queries, the largest error */
};

static struct outcome attend(int additive, int n)
{
    struct outcome found = {.milliseconds = INFINITY};
    size_t bytes = (size_t)HEADS * n * SIZE * sizeof(float), rows = (size_t)HEADS * n;
    cl_command_queue queue = clattn_context_queue(context);

    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, n, SIZE);
    desc.outputs.entropy = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){1, HEADS, n});
    if (additive) {
        desc.scoring.kind = CLATTN_SCORE_ADDITIVE;
        desc.scoring.vector = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){1, SIZE});
    }
    clattn_plan *plan = NULL;
    check(clattn_attention_plan_create(context, &desc, NULL, &plan)); /* compiles before the clock starts */

    cl_mem buffers[] = {buffer_of(bytes, q),    buffer_of(bytes, k),    buffer_of(bytes, v),
                        buffer_of(sizeof w, w), buffer_of(bytes, NULL), buffer_of(rows * sizeof(float), NULL)};
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = clattn_binding_buffer(buffers[0], 0);
    args.key = clattn_binding_buffer(buffers[1], 0);
    args.value = clattn_binding_buffer(buffers[2], 0);
    args.scoring.vector = clattn_binding_buffer(additive ? buffers[3] : NULL, 0);
    args.output = clattn_binding_buffer(buffers[4], 0);
    args.outputs.entropy = clattn_binding_buffer(buffers[5], 0);
    for (int i = 0; i < RUNS; i++) {
        clFinish(queue);
        double start = now();
        check(clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL));
        clFinish(queue);
        found.milliseconds = fmin(found.milliseconds, (now() - start) * 1e3);
    }
    clEnqueueReadBuffer(queue, buffers[4], CL_TRUE, 0, bytes, output, 0, NULL, NULL);
    clEnqueueReadBuffer(queue, buffers[5], CL_TRUE, 0, rows * sizeof(float), entropy, 0, NULL, NULL);
    for (size_t i = 0; i < rows; i++)
        found.entropy += entropy[i] / (double)rows;
    found.error = largest_error(additive, n);
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        clReleaseMemObject(buffers[i]);
    clattn_plan_release(&plan);
    return found;
}

/* Returns a number that looks random, with mean 0 and variance 1; the sequence is the same everywhere. */
static float next(void)
{
    static unsigned state = 1;
    float sum = 0;
    for (int i = 0; i < 12; i++) { /* the sum of twelve uniform numbers, each of variance 1/12 */
        state = state * 1664525u + 1013904223u;
        sum += (float)(state >> 8) / 16777216.0f;
    }
    return sum - 6.0f;
}

int main(void)
{
    for (int i = 0; i < HEADS * MOST * SIZE; i++) {
        q[i] = next();
        k[i] = next();
        v[i] = next();
    }
    for (int i = 0; i < SIZE; i++)
        w[i] = next() / sqrtf(SIZE);
    check(clattn_context_create(NULL, &context));
    printf("%d heads, d_k = d_v = %d, as many queries as keys\n\n", HEADS, SIZE);
    printf("                   time in ms             entropy, at most        largest error\n");
    printf("  keys     dot  additive   ratio     dot  additive    ln n      dot  additive\n");
    int right = 1;
    for (int n = 64; n <= MOST; n *= 2) {
        struct outcome dot = attend(0, n), additive = attend(1, n);
        printf("%6d %7.2f %9.2f %7.1f %7.3f %9.3f %7.3f %8.0e %9.0e\n", n, dot.milliseconds, additive.milliseconds,
               additive.milliseconds / dot.milliseconds, dot.entropy, additive.entropy, log(n), dot.error,
               additive.error);
        right = right && dot.error < 1e-5 && additive.error < 1e-5;
    }
    clattn_context_release(&context);
    puts(right ? "\nBoth agree with their definitions." : "\nA result is WRONG.");
    return !right;
}
