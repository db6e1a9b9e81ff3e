/* clattn bench enqueue: the host time of one enqueue of a ready attention plan, compared with bare launches.
 *
 * Both are timed one by one, from the call to its return, in alternating rows of a few, on one queue that is
 * finished between rows, outside the timed part.  The bare launch runs a kernel that does nothing, as often as the
 * plan launches, on the attention's four arrays (drivers look at each buffer of a launch); its arguments are set
 * once.  The difference is therefore the library's own work: checking arguments, setting them for each launch,
 * lending the workspace. */
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "tool/bench/bench.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"

typedef struct enqueue_options {
    const char *solver, *device;
    bool json;
    size_t shape[7], repeat;
} enqueue_options;

#define FIELD(name) offsetof(enqueue_options, name)
#define IN_A_ROW 8 /* enqueues between two calls of clFinish */
#define DEFAULT_REPEAT 200
#define MOST_REPEATS 10000
#define WARM_UP 4
#define QUERIES_A_GROUP 64

static const option_row rows[] = {
    {"--shape", OPTION_SIZES, FIELD(shape), "B,HQ,HKV,SQ,SKV,D,DV", .help = "the sizes; default 1,8,8,64,64,64,64",
     .count = 7},
    OPTION_ROW_SOLVER(enqueue_options),
    OPTION_ROW_DEVICE(enqueue_options),
    {"--repeat", OPTION_COUNT, FIELD(repeat), "N", .help = "rounds of 8 enqueues; default 200, at most 10000"},
    OPTION_ROW_JSON(enqueue_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "bench enqueue",
    .summary = "Times how long the host is in one enqueue of an attention plan, and in bare launches of a kernel that\n"
               "does nothing: as many, in about as many work-groups, on the same queue and arrays.",
    .rows = rows,
};

/* The kernel's arguments are bound, but it reads none of them. */
static const char source[] =
    "__kernel void nothing(__global const float *query, __global const float *key, __global const float *value,\n"
    "                      __global float *output)\n"
    "{\n"
    "    if (get_num_groups(0) == 0)\n"
    "        output[0] = query[0] + key[0] + value[0];\n"
    "}\n";

/* The launches that do nothing; zeroed if not made. */
typedef struct bare_launch {
    cl_program program;
    cl_kernel kernel;
    size_t global[3], local[3];
    size_t count; /* launches that correspond to one enqueue */
} bare_launch;

static void bare_release(bare_launch *bare)
{
    if (bare->kernel != NULL)
        clReleaseKernel(bare->kernel);
    if (bare->program != NULL)
        clReleaseProgram(bare->program);
    *bare = (bare_launch){0};
}

/* Makes the bare launches for the plan of `job`, an attention of `shape`. */
static clattn_status bare_make(const tool_job *job, const size_t shape[7], bare_launch *bare)
{
    tool_device *device = job->device;
    const clattn_attention_args *args = &job->args.attention;
    const cl_mem buffers[] = {args->query.buffer, args->key.buffer, args->value.buffer, args->output.buffer};
    const char *text = source;
    cl_device_id id = clattn_context_opencl_device(device->context);
    cl_int code;
    clattn_status status;
    device->message[0] = '\0';
    bare->program = clCreateProgramWithSource(clattn_context_opencl_context(device->context), 1, &text, NULL, &code);
    TRY(device_opencl_check(device, "clCreateProgramWithSource", code));
    code = clBuildProgram(bare->program, 1, &id, "", NULL, NULL);
    TRY(device_opencl_check(device, "clBuildProgram", code));
    bare->kernel = clCreateKernel(bare->program, "nothing", &code);
    TRY(device_opencl_check(device, "clCreateKernel", code));
    for (cl_uint i = 0; i < 4; i++) {
        code = clSetKernelArg(bare->kernel, i, sizeof(cl_mem), &buffers[i]);
        TRY(device_opencl_check(device, "clSetKernelArg", code));
    }
    const size_t groups[3] = {divide_up(shape[3], QUERIES_A_GROUP), shape[1], shape[0]};
    for (int i = 0; i < 3; i++) {
        bare->global[i] = groups[i];
        bare->local[i] = 1;
    }
    bare->count = clattn_plan_launch_count(job->plan);
fail:
    return status;
}

static clattn_status bare_enqueue(tool_device *device, const bare_launch *bare)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < bare->count && status == CLATTN_SUCCESS; i++) {
        cl_int code =
            clEnqueueNDRangeKernel(device->queue, bare->kernel, 3, NULL, bare->global, bare->local, 0, NULL, NULL);
        status = device_opencl_check(device, "clEnqueueNDRangeKernel", code);
    }
    return status;
}

/* Times a row of enqueues, of the job or bare ones. */
static clattn_status time_row(const tool_job *job, const bare_launch *bare, bool is_bare, double seconds[IN_A_ROW])
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < IN_A_ROW && status == CLATTN_SUCCESS; i++) {
        double before = os_seconds();
        status = is_bare ? bare_enqueue(job->device, bare) : job->enqueue(job, NULL);
        seconds[i] = os_seconds() - before;
    }
    cl_int code = clFinish(job->device->queue);
    return status == CLATTN_SUCCESS ? device_opencl_check(job->device, "clFinish", code) : status;
}

/* Times both in turns; each is first in every other round.  The times of the first rounds are overwritten. */
static clattn_status time_both(const tool_job *job, const bare_launch *bare, size_t repeat, double *ours, double *bares)
{
    clattn_status status = CLATTN_SUCCESS;
    progress_begin("enqueue");
    for (size_t round = 0; round < repeat + WARM_UP && status == CLATTN_SUCCESS; round++) {
        size_t at = round < WARM_UP ? 0 : (round - WARM_UP) * IN_A_ROW;
        bool bare_first = round % 2 == 1;
        status = time_row(job, bare, bare_first, (bare_first ? bares : ours) + at);
        if (status == CLATTN_SUCCESS)
            status = time_row(job, bare, !bare_first, (bare_first ? ours : bares) + at);
        progress_show((double)(round + 1) / (double)(repeat + WARM_UP));
    }
    progress_end();
    return status;
}

static int print_times(const enqueue_options *options, const tool_job *job, const bare_launch *bare, double *ours,
                       double *bares)
{
    const size_t count = options->repeat * IN_A_ROW;
    const timing library = timing_reduce(ours, count), launches = timing_reduce(bares, count);
    tool_report report = report_begin();
    report_text(&report, "operator", "enqueue");
    report_shape(&report, "shape", 7, options->shape);
    report_device(&report, job->device, job_solver(job));
    report_text(&report, "dtype", "float32");
    report_count(&report, "kernel_launches", bare->count);
    report_shape(&report, "bare_work_groups", 3, bare->global);
    report_number(&report, "enqueue_microseconds", library.median * 1e6);
    report_number(&report, "bare_microseconds", launches.median * 1e6);
    report_number(&report, "difference_microseconds", (library.median - launches.median) * 1e6);
    report_timing(&report, &library);
    return report_finish(&report, options->json);
}

static int measure(const enqueue_options *options, const tool_job *job, const bare_launch *bare)
{
    double *ours = calloc(2 * options->repeat * IN_A_ROW, sizeof *ours);
    if (ours == NULL)
        return complain(TOOL_FAILED, "bench enqueue: out of memory for the times of %zu rounds", options->repeat);
    double *bares = ours + options->repeat * IN_A_ROW;
    clattn_status timed = time_both(job, bare, options->repeat, ours, bares);
    int status =
        timed == CLATTN_SUCCESS ? print_times(options, job, bare, ours, bares) : device_check(job->device, timed, NULL);
    free(ours);
    return status;
}

int bench_enqueue(int argc, char **argv)
{
    enqueue_options options = {.shape = {1, 8, 8, 64, 64, 64, 64}, .repeat = DEFAULT_REPEAT};
    attention_request request = {0};
    tool_device device = {0};
    tool_job job = {0};
    bare_launch bare = {0};
    int status = options_parse(&table, argc, argv, &options);
    if (status != TOOL_DONE)
        return status;
    if (options.repeat > MOST_REPEATS)
        return complain(TOOL_BAD_INPUT, "bench enqueue: --repeat %zu is not valid, expected at most %d", options.repeat,
                        MOST_REPEATS);

    TOOL_TRY(bench_attention_arrays(options.shape, CLATTN_DTYPE_F32, &request));
    TOOL_TRY(attention_complete(&request));
    TOOL_TRY(device_open(options.device, &device));
    TOOL_TRY(device_check(&device, job_attention(&device, &request, options.solver, &job), NULL));
    TOOL_TRY(device_check(&device, bare_make(&job, options.shape, &bare), NULL));
    TOOL_TRY(measure(&options, &job, &bare));
fail:
    bare_release(&bare);
    job_release(&job);
    device_close(&device);
    attention_release(&request);
    return status;
}
