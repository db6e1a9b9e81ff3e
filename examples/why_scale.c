/* Why attention divides its scores by √d_k:
 *
 *     why_scale [PLOT.svg]
 *
 * "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) argues: if the components of a query q and a key k
 * are independent, with mean 0 and variance 1, then q · k is a sum of d_k such products and has variance d_k. So if d_k
 * is large, some scores stand far above the others: softmax gives nearly everything to the largest, its derivative
 * vanishes, and little is learned. Divided by √d_k, scores have variance 1 whatever d_k is.
 *
 * This program makes such queries and keys, lets attention compute scores, probabilities and their entropy with and
 * without the division, and measures for d_k from 1 to 1,024:
 *
 *   variance     the variance of all scores
 *   largest      the largest of a query's 64 probabilities: 1 is "saturated"
 *   entropy      their entropy in nats: from ln 64 = 4.16 (all keys alike) down to 0 (a single key)
 *   gradient     the norm of the softmax's derivative by its scores, the 64 x 64 matrix diag(p) - p pᵀ
 *
 * The last three are those of the median query: half of all queries have less. The gradient is largest if a few keys
 * share the probability, so without the division it first grows and then vanishes. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

enum { HEADS = 32, ROWS = 64, QUERIES = HEADS * ROWS, SCORES = QUERIES * ROWS, MOST = 1024, SIZES = 6 };

static float query[QUERIES * MOST], key[QUERIES * MOST], scores[SCORES], entropy[QUERIES];
static clattn_context *context;

struct result {
    double variance, largest, entropy, gradient;
};
struct row {
    int d_k;
    struct result with[2]; /* [0] without the division, [1] with it */
};

static void check(clattn_status status)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
    exit(1);
}

/* Returns a normally distributed number (Box and Muller 1958); the sequence is the same everywhere. */
static float normal(void)
{
    static unsigned long long state = 1;
    double u[2];
    for (int i = 0; i < 2; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        u[i] = ((double)(state >> 11) + 1) / 9007199254740993.0;
    }
    return (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]));
}

static double median(double *value, int count)
{
    /* Shell's sort is short, and fast enough for two thousand numbers. */
    for (int gap = count / 2; gap > 0; gap /= 2)
        for (int i = gap; i < count; i++)
            for (int j = i; j >= gap && value[j - gap] > value[j]; j -= gap) {
                double swap = value[j];
                value[j] = value[j - gap];
                value[j - gap] = swap;
            }
    return (value[count / 2] + value[(count - 1) / 2]) / 2;
}

/* Runs attention on the device, and reads back the entropy and what outputs.scores gets by `mode`. */
static void attend(int d_k, int divided, clattn_scores_mode mode, cl_mem queries, cl_mem keys, cl_mem results)
{
    cl_command_queue queue = clattn_context_queue(context);
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, ROWS, d_k);
    desc.scoring.explicit_scale = 1; /* the default is 1/√d_k */
    desc.scoring.scale = divided ? 1 / sqrtf((float)d_k) : 1;
    desc.outputs.scores = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, ROWS, ROWS);
    desc.outputs.scores_mode = mode;
    desc.outputs.entropy = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){1, HEADS, ROWS});
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = clattn_binding_buffer(queries, 0);
    args.key = args.value = clattn_binding_buffer(keys, 0);
    args.outputs.scores = clattn_binding_buffer(results, 0);
    args.outputs.entropy = clattn_binding_buffer(results, SCORES);
    args.output = clattn_binding_buffer(results, SCORES + QUERIES);
    check(clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));
    clEnqueueReadBuffer(queue, results, CL_TRUE, 0, sizeof scores, scores, 0, NULL, NULL);
    clEnqueueReadBuffer(queue, results, CL_TRUE, sizeof scores, sizeof entropy, entropy, 0, NULL, NULL);
}

static struct result measure(int d_k, int divided, cl_mem queries, cl_mem keys, cl_mem results)
{
    static double largest[QUERIES], gradient[QUERIES], uncertainty[QUERIES];
    struct result found = {0};
    double sum = 0;
    attend(d_k, divided, CLATTN_SCORES_MODE_RAW, queries, keys, results);
    for (int i = 0; i < SCORES; i++) {
        sum += scores[i];
        found.variance += (double)scores[i] * scores[i];
    }
    found.variance = found.variance / SCORES - sum / SCORES * sum / SCORES;

    attend(d_k, divided, CLATTN_SCORES_MODE_PROBABILITIES, queries, keys, results);
    for (int i = 0; i < QUERIES; i++) {
        double squares = 0, cubes = 0; /* |diag(p) - p pᵀ|² = Σ p² - 2 Σ p³ + (Σ p²)² */
        largest[i] = 0;
        for (int j = 0; j < ROWS; j++) {
            double p = scores[i * ROWS + j];
            largest[i] = fmax(largest[i], p);
            squares += p * p;
            cubes += p * p * p;
        }
        gradient[i] = sqrt(fmax(0, squares - 2 * cubes + squares * squares));
        uncertainty[i] = entropy[i];
    }
    found.largest = median(largest, QUERIES);
    found.entropy = median(uncertainty, QUERIES);
    found.gradient = median(gradient, QUERIES);
    return found;
}

/* Draws one of four diagrams: a member of struct result against log d_k, without the division (red) and with it
 * (blue). */
static void draw(FILE *file, int place, const char *title, size_t member, double top, int logarithmic,
                 const struct row *rows)
{
    const double left = 60 + 380 * (place % 2), bottom = 250 + 270 * (place / 2), width = 300, height = 190;
    const char *const colour[] = {"#c2410c", "#1d4ed8"}, *const dash[] = {"6 4", "none"};
    fprintf(file, "<text x='%g' y='%g' font-weight='bold'>%s</text>\n", left, bottom - height - 12, title);
    fprintf(file, "<path d='M%g %gV%gH%g' stroke='#555' fill='none'/>\n", left, bottom - height, bottom, left + width);
    fprintf(file, "<text x='%g' y='%g' text-anchor='end'>%g</text>\n", left - 6, bottom - height + 5, top);
    fprintf(file, "<text x='%g' y='%g' text-anchor='end'>%d</text>\n", left - 6, bottom + 4, logarithmic);
    for (int i = 0; i < SIZES; i++)
        fprintf(file, "<text x='%g' y='%g' text-anchor='middle'>%d</text>\n", left + width * i / (SIZES - 1),
                bottom + 18, rows[i].d_k);
    for (int divided = 0; divided < 2; divided++) {
        fprintf(file, "<polyline fill='none' stroke-width='2.5' stroke='%s' stroke-dasharray='%s' points='",
                colour[divided], dash[divided]);
        for (int i = 0; i < SIZES; i++) {
            double value = *(const double *)((const char *)&rows[i].with[divided] + member);
            double part = logarithmic ? log(fmax(value, 1)) / log(top) : value / top;
            fprintf(file, "%.2f,%.2f ", left + width * i / (SIZES - 1), bottom - height * fmin(part, 1));
        }
        fprintf(file, "'/>\n");
    }
}

/* Draws all diagrams and closes the file; returns whether that went well. */
static int plot(FILE *file, const struct row *rows)
{
    fprintf(file,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 760 560' font-family='sans-serif' font-size='13'>\n"
            "<title>Softmax with and without dividing scores by the square root of d_k</title>\n"
            "<rect width='760' height='560' fill='white'/>\n"
            "<text x='60' y='24'>Against d_k: <tspan fill='#c2410c'>q · k (dashed)</tspan> and "
            "<tspan fill='#1d4ed8'>q · k / √d_k</tspan></text>\n");
    draw(file, 0, "variance of the scores", offsetof(struct result, variance), MOST, 1, rows);
    draw(file, 1, "largest probability", offsetof(struct result, largest), 1, 0, rows);
    draw(file, 2, "entropy in nats", offsetof(struct result, entropy), 5, 0, rows);
    draw(file, 3, "norm of the softmax's gradient", offsetof(struct result, gradient), 0.5, 0, rows);
    fputs("</svg>\n", file);
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    static struct row rows[SIZES];
    FILE *file = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (argc > 1 && file == NULL) {
        perror(argv[1]);
        return 1;
    }
    for (int i = 0; i < QUERIES * MOST; i++) {
        query[i] = normal();
        key[i] = normal();
    }
    check(clattn_context_create(NULL, &context));
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem queries = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof query, query, NULL);
    cl_mem keys = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof key, key, NULL);
    cl_mem results = clCreateBuffer(opencl, 0, sizeof scores + sizeof entropy + sizeof query, NULL, NULL);

    printf("          variance           largest          entropy         gradient\n");
    printf(" d_k    q·k   /√d_k      q·k   /√d_k     q·k   /√d_k      q·k   /√d_k\n");
    for (int i = 0; i < SIZES; i++) {
        struct result *with = rows[i].with;
        rows[i].d_k = 1 << 2 * i;
        for (int divided = 0; divided < 2; divided++)
            with[divided] = measure(rows[i].d_k, divided, queries, keys, results);
        printf("%4d %7.1f %6.2f %9.4f %7.4f %8.4f %6.4f %9.4f %7.4f\n", rows[i].d_k, with[0].variance, with[1].variance,
               with[0].largest, with[1].largest, with[0].entropy, with[1].entropy, with[0].gradient, with[1].gradient);
    }
    clReleaseMemObject(queries);
    clReleaseMemObject(keys);
    clReleaseMemObject(results);
    clattn_context_release(&context);
    if (file != NULL && !plot(file, rows)) {
        perror(argv[1]);
        return 1;
    }
    /* The argument holds if the variance is d_k without the division and 1 with it, and softmax is saturated without
     * it. */
    const struct result *without = &rows[SIZES - 1].with[0], *with = &rows[SIZES - 1].with[1];
    return !(fabs(without->variance / MOST - 1) < 0.1 && fabs(with->variance - 1) < 0.1 && without->gradient < 0.01 &&
             with->gradient > 0.1);
}
