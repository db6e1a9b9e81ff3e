/* One attention layer of a sentence encoder (all-MiniLM-L6-v2) over an English paragraph, from files to words:
 *
 *     minilm FOLDER
 *
 * FOLDER holds weights.safetensors, hidden.npy (what enters the layer), expected.npy (what PyTorch makes of it in
 * float64) and tokens.txt (one word a line). The program prints the device, the solver, the time, the largest error
 * and, for a few words, which words they attend to most. It exits with 1 if the error is above 1e-5. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <clattn/clattn.h>
#include <clattn/io.h>

enum { HEADS = 12, REPEATS = 30, BEST = 3, MAX_TOKENS = 512 };

static const char *const shown_words[] = {"it", "its", "depended", "at", "entered", "their"};

static _Noreturn void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("minilm: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void check(clattn_status status, const clattn_context *context)
{
    char message[1024];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    stop("%s: %s", clattn_status_string(status), message);
}

static void check_cl(cl_int code, const char *what)
{
    if (code != CL_SUCCESS)
        stop("%s failed: %d", what, (int)code);
}

static const char *path_of(const char *folder, const char *name)
{
    static char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        stop("the folder's name is too long");
    return path;
}

static clattn_npy *open_npy(const char *folder, const char *name)
{
    clattn_npy *npy = NULL;
    clattn_io_error error;
    if (clattn_npy_create(path_of(folder, name), &npy, &error) != CLATTN_SUCCESS)
        stop("%s", error.message);
    return npy;
}

static clattn_host_tensor find(const clattn_safetensors *file, const char *name, size_t rows, size_t columns)
{
    clattn_host_tensor tensor;
    clattn_io_error error;
    if (clattn_safetensors_find(file, name, &tensor, &error) != CLATTN_SUCCESS)
        stop("%s", error.message);
    if (tensor.dtype != CLATTN_DTYPE_F32 || tensor.bytes != rows * columns * sizeof(float))
        stop("%s is missing or not %zu x %zu float32 values", name, rows, columns);
    return tensor;
}

static clattn_binding upload(cl_context opencl, clattn_host_tensor tensor)
{
    cl_int code;
    cl_mem buffer = clCreateBuffer(opencl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, tensor.bytes,
                                   (void *)(uintptr_t)tensor.data, &code);
    check_cl(code, "clCreateBuffer");
    return clattn_binding_buffer(buffer, 0);
}

static clattn_binding allocate(cl_context opencl, size_t bytes)
{
    cl_int code;
    cl_mem buffer = clCreateBuffer(opencl, CL_MEM_READ_WRITE, bytes, NULL, &code);
    check_cl(code, "clCreateBuffer");
    return clattn_binding_buffer(buffer, 0);
}

static double now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static size_t read_tokens(const char *folder, char tokens[MAX_TOKENS][64])
{
    size_t count = 0;
    const char *path = path_of(folder, "tokens.txt");
    FILE *file = fopen(path, "r");
    if (!file)
        stop("%s: cannot be opened", path);
    while (count < MAX_TOKENS && fgets(tokens[count], 64, file)) {
        tokens[count][strcspn(tokens[count], "\n")] = '\0';
        count++;
    }
    fclose(file);
    return count;
}

/* Whether the token is a word: neither punctuation nor a mark such as [CLS], which takes most of this layer's
 * attention, as the first token often does. */
static int is_word(const char *token)
{
    return token[0] != '[' && strcspn(token, ".,;:!?") > 0;
}

static void show_attention(const char tokens[MAX_TOKENS][64], size_t count, const float *weights, size_t from)
{
    const float *row = weights + from * count;
    size_t best[BEST];
    for (int place = 0; place < BEST; place++) {
        best[place] = count;
        for (size_t j = 0; j < count; j++) {
            int taken = j == from || !is_word(tokens[j]);
            for (int k = 0; k < place; k++)
                taken |= best[k] == j;
            if (!taken && (best[place] == count || row[j] > row[best[place]]))
                best[place] = j;
        }
    }
    printf("  %-10s attends to ", tokens[from]);
    for (int place = 0; place < BEST && best[place] < count; place++)
        printf("%s%s (%.1f %%)", place ? ", " : "", tokens[best[place]], 100.0 * row[best[place]]);
    printf("\n");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        stop("usage: minilm FOLDER");
    const char *folder = argv[1];
    static char tokens[MAX_TOKENS][64];
    size_t token_count = read_tokens(folder, tokens);
    clattn_npy *hidden_file = open_npy(folder, "hidden.npy"), *expected_file = open_npy(folder, "expected.npy");
    clattn_host_tensor hidden = clattn_npy_tensor(hidden_file), expected = clattn_npy_tensor(expected_file);
    if (hidden.rank != 3 || hidden.dtype != CLATTN_DTYPE_F32 || hidden.extent[0] != 1 ||
        hidden.extent[1] != token_count)
        stop("hidden.npy is not (1, %zu, d_model) float32", token_count);
    const size_t length = hidden.extent[1], d_model = hidden.extent[2];
    if (expected.dtype != CLATTN_DTYPE_F64 || expected.bytes != 2 * hidden.bytes)
        stop("expected.npy is not float64 of hidden.npy's shape");
    clattn_safetensors *file = NULL;
    clattn_io_error error;
    if (clattn_safetensors_create(path_of(folder, "weights.safetensors"), &file, &error) != CLATTN_SUCCESS)
        stop("%s", error.message);

    double start = now();
    clattn_context *context = NULL;
    check(clattn_context_create(NULL, &context), NULL);
    clattn_device_info device = {.size = sizeof device};
    check(clattn_context_device_info(context, &device), context);
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    desc.packed_weights = desc.bias_in = desc.bias_out = 1;
    desc.batch = 1;
    desc.query_length = length;
    desc.d_model = d_model;
    desc.heads = HEADS;
    clattn_plan *layer = NULL, *observed = NULL;
    check(clattn_mha_plan_create(context, &desc, NULL, &layer), context);

    cl_context opencl = clattn_context_opencl_context(context);
    cl_command_queue queue = clattn_context_queue(context);
    clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
    args.x = upload(opencl, hidden);
    args.w_in = upload(opencl, find(file, "in_proj_weight", 3 * d_model, d_model));
    args.b_in = upload(opencl, find(file, "in_proj_bias", 3, d_model));
    args.w_o = upload(opencl, find(file, "out_proj.weight", d_model, d_model));
    args.b_o = upload(opencl, find(file, "out_proj.bias", 1, d_model));
    args.y = allocate(opencl, hidden.bytes);
    float *output = malloc(hidden.bytes), *weights = malloc(length * length * sizeof(float));
    if (!output || !weights)
        stop("no memory");
    check(clattn_mha_enqueue(layer, NULL, &args, 0, NULL, NULL), context);
    check_cl(clEnqueueReadBuffer(queue, args.y.buffer, CL_TRUE, 0, hidden.bytes, output, 0, NULL, NULL),
             "clEnqueueReadBuffer");
    double first = now() - start, times[REPEATS], worst = 0;
    for (size_t i = 0; i < length * d_model; i++) {
        double difference = fabs(output[i] - ((const double *)expected.data)[i]);
        worst = difference <= worst ? worst : difference; /* also if it is NaN */
    }
    for (int i = 0; i < REPEATS; i++) {
        double before = now();
        check(clattn_mha_enqueue(layer, NULL, &args, 0, NULL, NULL), context);
        check_cl(clFinish(queue), "clFinish");
        times[i] = now() - before;
    }
    qsort(times, REPEATS, sizeof times[0], by_value);

    /* The same layer runs once more and also writes its attention weights, averaged over the heads. */
    desc.weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE;
    args.weights = allocate(opencl, length * length * sizeof(float));
    check(clattn_mha_plan_create(context, &desc, NULL, &observed), context);
    check(clattn_mha_enqueue(observed, NULL, &args, 0, NULL, NULL), context);
    check_cl(clEnqueueReadBuffer(queue, args.weights.buffer, CL_TRUE, 0, length * length * sizeof(float), weights, 0,
                                 NULL, NULL),
             "clEnqueueReadBuffer");

    printf("device         %s (%s)\n", device.name, device.platform);
    printf("solver         %s\n", clattn_plan_solver(layer));
    printf("layer          %zu tokens, d_model %zu, %d heads of %zu\n", length, d_model, HEADS, d_model / HEADS);
    printf("time           %.3f ms (median of %d); first result after %.0f ms\n", times[REPEATS / 2] * 1e3, REPEATS,
           first * 1e3);
    printf("maximum error  %.2e against PyTorch in float64\n", worst);
    printf("attention, averaged over the heads:\n");
    for (size_t w = 0; w < sizeof shown_words / sizeof *shown_words; w++)
        for (size_t i = 0; i < token_count; i++)
            if (!strcmp(tokens[i], shown_words[w])) {
                show_attention(tokens, token_count, weights, i);
                break;
            }

    const clattn_binding *bindings[] = {&args.x, &args.w_in, &args.b_in, &args.w_o, &args.b_o, &args.y, &args.weights};
    for (size_t i = 0; i < sizeof bindings / sizeof *bindings; i++)
        clReleaseMemObject(bindings[i]->buffer);
    clattn_plan_release(&observed);
    clattn_plan_release(&layer);
    clattn_context_release(&context);
    clattn_safetensors_release(&file);
    clattn_npy_release(&expected_file);
    clattn_npy_release(&hidden_file);
    free(output);
    free(weights);
    return worst <= 1e-5 ? 0 : 1;
}
