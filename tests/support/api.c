#include "api.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static clattn_program_statistics programs; /* of all contexts together */
static char scratch[SUPPORT_PATH];

bool support_tiny(void)
{
    const char *level = getenv("CLATTN_TEST_LEVEL");
    return level && !strcmp(level, "tiny");
}

clattn_context *support_context(void)
{
    return support_context_with(NULL);
}

clattn_context *support_context_with(const clattn_context_params *params)
{
    clattn_context *context = NULL;
    assert_status(NULL, clattn_context_create(params, &context), CLATTN_SUCCESS);
    assert_non_null(context);
    return context;
}

void support_release(clattn_context **context)
{
    clattn_program_statistics statistics = {.size = sizeof statistics};
    if (*context && clattn_context_program_statistics(*context, &statistics) == CLATTN_SUCCESS) {
        programs.built += statistics.built;
        programs.loaded += statistics.loaded;
        programs.refused += statistics.refused;
    }
    clattn_context_release(context);
    assert_null(*context);
}

void support_status_at(const clattn_context *context, clattn_status got, clattn_status expected, const char *what,
                       const char *file, int line)
{
    support_status_in_at(context, got, STATUS_BIT(expected), what, file, line);
}

void support_status_in_at(const clattn_context *context, clattn_status got, unsigned set, const char *what,
                          const char *file, int line)
{
    if ((unsigned)got < 32 && (set & STATUS_BIT(got)))
        return;
    char message[1024] = "";
    clattn_context_message(context, message, sizeof message);
    print_error("%s\n  gave %d (%s), expected one of:", what, (int)got, clattn_status_string(got));
    for (unsigned i = 0; i < 32; i++)
        if (set & (1u << i))
            print_error(" %u (%s)", i, clattn_status_string((clattn_status)i));
    print_error("\n  message: %s\n", message);
    _fail(file, line);
}

void support_message_has_at(const clattn_context *context, const char *part, const char *file, int line)
{
    char message[4096] = "";
    clattn_context_message(context, message, sizeof message);
    if (strstr(message, part))
        return;
    print_error("the message lacks \"%s\": %s\n", part, message);
    _fail(file, line);
}

cl_mem support_buffer(cl_context context, cl_mem_flags flags, size_t bytes, const void *data)
{
    cl_int code = CL_SUCCESS;
    unsigned char *poison = NULL;
    if (!data) {
        poison = malloc(bytes);
        assert_non_null(poison);
        memset(poison, 0xff, bytes);
    }
    cl_mem buffer = clCreateBuffer(context, flags | CL_MEM_COPY_HOST_PTR, bytes,
                                   poison ? (void *)poison : (void *)(uintptr_t)data, &code);
    free(poison);
    assert_int_equal(code, CL_SUCCESS);
    assert_non_null(buffer);
    return buffer;
}

void support_read(cl_command_queue queue, cl_mem buffer, size_t bytes, void *data)
{
    assert_int_equal(clFinish(queue), CL_SUCCESS);
    assert_int_equal(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL), CL_SUCCESS);
}

void support_fill(float *values, size_t count, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)(state >> 8 << 8) * (1.0f / 2147483648.0f);
    }
}

double support_difference(const float *got, const float *expected, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - (double)expected[i]);
        if (!(difference <= worst))
            worst = isnan(difference) ? (double)INFINITY : difference;
    }
    return worst;
}

void support_attention(size_t heads, size_t queries, size_t keys, size_t d_k, size_t d_v, bool causal, const float *q,
                       const float *k, const float *v, float *out)
{
    double *p = malloc((keys ? keys : 1) * sizeof *p);
    assert_non_null(p);
    for (size_t row = 0; row < heads * queries; row++) {
        size_t h = row / queries, i = row % queries;
        size_t attended = causal && i + 1 < keys ? i + 1 : keys;
        double largest = -(double)INFINITY, sum = 0;
        for (size_t j = 0; j < attended; j++) {
            p[j] = 0;
            for (size_t d = 0; d < d_k; d++)
                p[j] += (double)q[row * d_k + d] * (double)k[(h * keys + j) * d_k + d];
            p[j] /= sqrt((double)d_k);
            largest = p[j] > largest ? p[j] : largest;
        }
        for (size_t j = 0; j < attended; j++)
            sum += p[j] = exp(p[j] - largest);
        for (size_t d = 0; d < d_v; d++) {
            double total = 0;
            for (size_t j = 0; j < attended; j++)
                total += p[j] * (double)v[(h * keys + j) * d_v + d];
            out[row * d_v + d] = attended ? (float)(total / sum) : 0.0f;
        }
    }
    free(p);
}

void support_softmax(size_t rows, size_t columns, const float *x, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        double largest = -(double)INFINITY, sum = 0;
        for (size_t c = 0; c < columns; c++)
            largest = (double)x[r * columns + c] > largest ? (double)x[r * columns + c] : largest;
        for (size_t c = 0; c < columns; c++)
            sum += exp((double)x[r * columns + c] - largest);
        for (size_t c = 0; c < columns; c++)
            y[r * columns + c] = (float)(exp((double)x[r * columns + c] - largest) / sum);
    }
}

/* One batch item, two heads, lengths and sizes without a common factor. */
enum { SMALL_HEADS = 2, SMALL_QUERIES = 5, SMALL_KEYS = 7, SMALL_D_K = 8, SMALL_D_V = 6 };

static float small_q[SMALL_HEADS * SMALL_QUERIES * SMALL_D_K], small_k[SMALL_HEADS * SMALL_KEYS * SMALL_D_K],
    small_v[SMALL_HEADS * SMALL_KEYS * SMALL_D_V];

void small_attention_prepare(struct small_attention *problem)
{
    memset(problem, 0, sizeof *problem);
    clattn_attention_desc_init(&problem->desc);
    clattn_attention_args_init(&problem->args);
    problem->desc.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_QUERIES, SMALL_D_K);
    problem->desc.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_KEYS, SMALL_D_K);
    problem->desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_KEYS, SMALL_D_V);
    problem->desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_QUERIES, SMALL_D_V);
    problem->count = SMALL_HEADS * SMALL_QUERIES * SMALL_D_V;
    problem->expected = malloc(problem->count * sizeof(float));
    assert_non_null(problem->expected);
    support_fill(small_q, sizeof small_q / sizeof(float), 1);
    support_fill(small_k, sizeof small_k / sizeof(float), 2);
    support_fill(small_v, sizeof small_v / sizeof(float), 3);
    support_attention(SMALL_HEADS, SMALL_QUERIES, SMALL_KEYS, SMALL_D_K, SMALL_D_V, false, small_q, small_k, small_v,
                      problem->expected);
}

void small_attention_buffers(struct small_attention *problem, cl_context context)
{
    problem->query = support_buffer(context, CL_MEM_READ_ONLY, sizeof small_q, small_q);
    problem->key = support_buffer(context, CL_MEM_READ_ONLY, sizeof small_k, small_k);
    problem->value = support_buffer(context, CL_MEM_READ_ONLY, sizeof small_v, small_v);
    problem->output = support_buffer(context, CL_MEM_READ_WRITE, problem->count * sizeof(float), NULL);
    problem->args.query = clattn_binding_buffer(problem->query, 0);
    problem->args.key = clattn_binding_buffer(problem->key, 0);
    problem->args.value = clattn_binding_buffer(problem->value, 0);
    problem->args.output = clattn_binding_buffer(problem->output, 0);
}

void small_attention_release(struct small_attention *problem)
{
    cl_mem *buffers[] = {&problem->query, &problem->key, &problem->value, &problem->output};
    for (size_t i = 0; i < 4; i++) {
        if (*buffers[i])
            assert_int_equal(clReleaseMemObject(*buffers[i]), CL_SUCCESS);
        *buffers[i] = NULL;
    }
    free(problem->expected);
    problem->expected = NULL;
}

void small_attention_check(struct small_attention *problem, cl_command_queue queue)
{
    float got[SMALL_HEADS * SMALL_QUERIES * SMALL_D_V], poison[SMALL_HEADS * SMALL_QUERIES * SMALL_D_V];
    support_read(queue, problem->output, sizeof got, got);
    double difference = support_difference(got, problem->expected, problem->count);
    if (!(difference <= 2e-6))
        fail_msg("attention is off by %g", difference);
    memset(poison, 0xff, sizeof poison);
    assert_int_equal(clEnqueueWriteBuffer(queue, problem->output, CL_TRUE, 0, sizeof poison, poison, 0, NULL, NULL),
                     CL_SUCCESS);
}

/* PoCL keeps the latest command of a queue, and of each buffer, with a reference to the queue, and drops finished ones
 * a moment after clFinish.  So counts compare only after the same commands, these of a kernel of our own, without
 * other buffers, and after waiting. */
static void settle(cl_context context, cl_command_queue queue)
{
    const char *source = "kernel void settle(global int *x) { x[get_global_id(0)] = 1; }";
    const size_t global = 1;
    cl_int code;
    cl_device_id device;
    assert_int_equal(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL), CL_SUCCESS);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "settle", &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_mem buffer = support_buffer(context, CL_MEM_READ_WRITE, sizeof(cl_int), NULL);
    assert_int_equal(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), CL_SUCCESS);
        assert_int_equal(clFinish(queue), CL_SUCCESS);
    }
    assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS);
    assert_int_equal(clReleaseKernel(kernel), CL_SUCCESS);
    assert_int_equal(clReleaseProgram(program), CL_SUCCESS);
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static struct reference_counts read_references(cl_context context, cl_command_queue queue)
{
    struct reference_counts counts = {0, 0};
    assert_int_equal(
        clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof counts.context, &counts.context, NULL),
        CL_SUCCESS);
    assert_int_equal(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof counts.queue, &counts.queue, NULL),
                     CL_SUCCESS);
    return counts;
}

struct reference_counts support_references(cl_context context, cl_command_queue queue)
{
    settle(context, queue);
    struct reference_counts counts = {0, 0}, before;
    int same = 0;
    for (int tries = 0; tries < 200 && same < 5; tries++) {
        before = counts;
        counts = read_references(context, queue);
        same = counts.context == before.context && counts.queue == before.queue ? same + 1 : 0;
        pause_a_moment();
    }
    return counts;
}

void support_references_are_at(cl_context context, cl_command_queue queue, struct reference_counts expected,
                               const char *file, int line)
{
    struct reference_counts counts = {0, 0};
    settle(context, queue);
    for (int tries = 0; tries < 200; tries++) {
        counts = read_references(context, queue);
        if (counts.context == expected.context && counts.queue == expected.queue)
            return;
        pause_a_moment();
    }
    print_error("reference counts: context %u (expected %u), queue %u (expected %u)\n", counts.context,
                expected.context, counts.queue, expected.queue);
    _fail(file, line);
}

void support_folder(char path[SUPPORT_PATH])
{
    static unsigned number;
    if (!scratch[0]) {
        char here[SUPPORT_PATH - 64];
        assert_non_null(getcwd(here, sizeof here));
        snprintf(scratch, sizeof scratch, "%s/scratch-%ld", here, (long)getpid());
        assert_int_equal(mkdir(scratch, 0700), 0);
    }
    snprintf(path, SUPPORT_PATH, "%.*s/%u", SUPPORT_PATH - 32, scratch, number++);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static void remove_tree(const char *path)
{
    struct stat about;
    if (lstat(path, &about) != 0)
        return;
    if (S_ISDIR(about.st_mode)) {
        chmod(path, 0700);
        DIR *folder = opendir(path);
        for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
            char inner[4096];
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
                snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner)
                remove_tree(inner);
        }
        if (folder)
            closedir(folder);
    }
    remove(path);
}

int support_run(const char *name, const struct CMUnitTest *tests, size_t count)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that lines of stdout and stderr stay in order in a log */
    int failures = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    if (scratch[0])
        remove_tree(scratch);
    printf("%s: programs built %llu, loaded %llu, refused %llu\n", name, (unsigned long long)programs.built,
           (unsigned long long)programs.loaded, (unsigned long long)programs.refused);
    return failures;
}
