/* clattn bench startup: the time from the start of a process to its first result, of attention, a matrix product or
 * multi-head attention.
 *
 * Each measurement runs this program in a new process, because a driver keeps state in its process.  The child's
 * environment says where to cache, so that "empty" and "warm" mean the same for the library and for the drivers that
 * are known to have caches of their own; the user's caches are neither read nor changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/bench/bench.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"

typedef struct startup_options {
    const char *solver, *device;
    bool child, json;
    size_t shape[7], matmul[3], mha[4], repeat; /* at most one of matmul and mha; 0: not given */
} startup_options;

#define FIELD(name) offsetof(startup_options, name)
#define DEFAULT_REPEAT 3
#define MOST_REPEATS 100
#define FOLDER_BYTES 64

static const option_row rows[] = {
    {"--shape", OPTION_SIZES, FIELD(shape), "B,HQ,HKV,SQ,SKV,D,DV", .help = "an attention; default 1,8,8,128,128,64,64",
     .count = 7},
    {"--matmul", OPTION_SIZES, FIELD(matmul), "M,N,K", .help = "a projection, as of 'bench matmul', in its place",
     .count = 3},
    {"--mha", OPTION_SIZES, FIELD(mha), "B,S,D_MODEL,H",
     .help = "multi-head attention, as of 'bench mha', in its place", .count = 4},
    OPTION_ROW_SOLVER(startup_options),
    OPTION_ROW_DEVICE(startup_options),
    {"--repeat", OPTION_COUNT, FIELD(repeat), "N", .help = "processes of each kind; default 3, at most 100"},
    OPTION_ROW_JSON(startup_options),
    {"--child", OPTION_FLAG, FIELD(child), .help = NULL},
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "bench startup",
    .summary =
        "Times the first attention of a new process, or the first product or multi-head attention, from creating the\n"
        "context to the result on the host, with empty caches and with warm ones, and both processes from start to "
        "end.",
    .rows = rows,
};

/* The operator that is measured, one of three. */
typedef struct startup_work {
    const char *name;
    int32_t rank;
    const size_t *shape;
    attention_request attention;
    matmul_request matmul;
    mha_request mha;
    double flops, bytes; /* bytes: every input and output once */
} startup_work;

/* Chooses the operator and computes its figures, without arrays. */
static void choose_work(const startup_options *options, startup_work *work)
{
    const size_t *s = options->shape;
    if (options->matmul[0]) {
        s = options->matmul;
        double m = (double)s[0], n = (double)s[1], k = (double)s[2];
        *work = (startup_work){
            .name = "matmul", .rank = 3, .shape = s, .flops = 2.0 * m * n * k, .bytes = 4.0 * (m * k + n * k + m * n)};
    } else if (options->mha[0]) {
        s = options->mha;
        double tokens = (double)s[0] * (double)s[1], d = (double)s[2];
        *work = (startup_work){.name = "mha",
                               .rank = 4,
                               .shape = s,
                               .flops = 8.0 * tokens * d * d + 4.0 * tokens * (double)s[1] * d,
                               .bytes = 4.0 * (2.0 * tokens * d + 4.0 * d * d + 4.0 * d)};
    } else {
        double pairs = (double)s[3] * (double)s[4], heads = (double)s[0] * (double)s[1],
               kv_heads = (double)s[0] * (double)s[2];
        *work = (startup_work){.name = "attention",
                               .rank = 7,
                               .shape = s,
                               .flops = 2.0 * heads * pairs * (double)(s[5] + s[6]),
                               .bytes = 4.0 * (double)(s[5] + s[6]) * (heads * (double)s[3] + kv_heads * (double)s[4])};
    }
}

/* Describes the arrays, each with numbers of its own, and allocates the output. */
static int make_arrays(startup_work *work, host_array *output)
{
    const size_t *s = work->shape;
    int status;
    if (work->rank == 3) {
        TOOL_TRY(random_array(&work->matmul.x, "x", CLATTN_DTYPE_F32, 2, (size_t[]){s[0], s[2]}, 1, 1.0f));
        TOOL_TRY(random_array(&work->matmul.w, "w", CLATTN_DTYPE_F32, 2, (size_t[]){s[1], s[2]}, 2, 1.0f));
        return host_allocate(CLATTN_DTYPE_F32, 2, s, "output", output);
    }
    if (work->rank == 4) {
        TOOL_TRY(bench_mha_arrays("bench startup", s, CLATTN_DTYPE_F32, &work->mha));
        return host_allocate(CLATTN_DTYPE_F32, 3, s, "output", output);
    }
    TOOL_TRY(bench_attention_arrays(s, CLATTN_DTYPE_F32, &work->attention));
    TOOL_TRY(attention_complete(&work->attention));
    return host_allocate(CLATTN_DTYPE_F32, 4, (size_t[]){s[0], s[1], s[3], s[6]}, "output", output);
fail:
    return status;
}

/* Makes the arrays' numbers, which are not to be timed. */
static int make_numbers(startup_work *work)
{
    mha_request *mha = &work->mha;
    host_array *const arrays[] = {&work->matmul.x,
                                  &work->matmul.w,
                                  &mha->x,
                                  &mha->w_in,
                                  &mha->b_in,
                                  &mha->w_o,
                                  &mha->b_o,
                                  &work->attention.input[INPUT_QUERY],
                                  &work->attention.input[INPUT_KEY],
                                  &work->attention.input[INPUT_VALUE]};
    int status = TOOL_DONE;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && status == TOOL_DONE; i++)
        status = random_make(arrays[i]);
    return status;
}

static clattn_status make_job(tool_device *device, const startup_work *work, const char *solver, tool_job *job)
{
    return work->rank == 3   ? job_matmul(device, &work->matmul, solver, job)
           : work->rank == 4 ? job_mha(device, &work->mha, solver, job)
                             : job_attention(device, &work->attention, solver, job);
}

/* Runs in the child: the process that is measured. */
static int run_child(const startup_options *options, startup_work *work)
{
    tool_device device = {0};
    tool_job job = {0};
    host_array output = {0};
    int status;
    TOOL_TRY(make_arrays(work, &output));
    TOOL_TRY(make_numbers(work));
    double before = os_seconds();
    TOOL_TRY(device_open(options->device, &device));
    TOOL_TRY(device_check(&device, make_job(&device, work, options->solver, &job), NULL));
    TOOL_TRY(device_check(&device, job_run(&job), NULL));
    TOOL_TRY(device_check(&device, job_read(&job, 0, output.memory), NULL));
    double seconds = os_seconds() - before;
    clattn_program_statistics programs = {.size = sizeof programs};
    clattn_context_program_statistics(device.context, &programs);
    tool_report report = report_begin();
    report_device(&report, &device, job_solver(&job));
    report_number(&report, "seconds", seconds);
    report_count(&report, "programs_built", (size_t)programs.built);
    report_count(&report, "programs_loaded", (size_t)programs.loaded);
    status = report_finish(&report, true);
fail:
    job_release(&job);
    device_close(&device);
    host_release(&output);
    attention_release(&work->attention);
    matmul_release(&work->matmul);
    mha_release(&work->mha);
    return status;
}

/* One child's figures. */
typedef struct child_result {
    double seconds, process_seconds;
    json_t *object; /* what it printed */
} child_result;

/* Lets a child run with its caches in `folder`/own and `folder`/driver. */
static int start_child(const startup_options *options, const startup_work *work, const char *folder,
                       child_result *result)
{
    char sizes[128] = "", own[FOLDER_BYTES + 32], pocl[FOLDER_BYTES + 32], xdg[FOLDER_BYTES + 32];
    char mesa[FOLDER_BYTES + 64], cuda[FOLDER_BYTES + 64], output[4096];
    const char *arguments[12] = {"bench", "startup", "--child",
                                 work->rank == 3   ? "--matmul"
                                 : work->rank == 4 ? "--mha"
                                                   : "--shape",
                                 sizes};
    const char *const settings[] = {own, "CLATTN_CACHE", pocl, xdg, mesa, cuda, NULL};
    size_t count = 5, used = 0;
    int exit_status;
    for (int32_t i = 0; i < work->rank; i++)
        used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%zu", i ? "," : "", work->shape[i]);
    snprintf(own, sizeof own, "CLATTN_CACHE_DIR=%s/own", folder);
    snprintf(pocl, sizeof pocl, "POCL_CACHE_DIR=%s/pocl", folder);
    snprintf(xdg, sizeof xdg, "XDG_CACHE_HOME=%s/xdg", folder);
    snprintf(mesa, sizeof mesa, "MESA_SHADER_CACHE_DIR=%s/mesa", folder);
    snprintf(cuda, sizeof cuda, "CUDA_CACHE_PATH=%s/cuda", folder);
    if (options->solver != NULL) {
        arguments[count++] = "--solver";
        arguments[count++] = options->solver;
    }
    if (options->device != NULL) {
        arguments[count++] = "--device";
        arguments[count++] = options->device;
    }
    if (!os_run_self(arguments, settings, false, output, sizeof output, &exit_status, &result->process_seconds))
        return complain(TOOL_FAILED, "bench startup: this program could not be run anew");
    if (exit_status != TOOL_DONE) {
        /* A child that exits by itself has written the error line to stderr, which this process shares. */
        if (exit_status < 128)
            complain_no_more();
        return complain(exit_status < 128 ? exit_status : TOOL_FAILED,
                        "bench startup: the measured process ended by signal %d", exit_status - 128);
    }
    json_decref(result->object);
    result->object = json_loads(output, 0, NULL);
    const json_t *seconds = json_object_get(result->object, "seconds");
    if (!json_is_real(seconds))
        return complain(TOOL_FAILED, "bench startup: the measured process printed no time");
    result->seconds = json_real_value(seconds);
    return TOOL_DONE;
}

enum { EMPTY, WARM }; /* the first index of times */

typedef struct startup_times {
    double seconds[2][MOST_REPEATS], process[2][MOST_REPEATS];
} startup_times;

/* Measures a pair of processes in a new folder: the first finds the folder empty and leaves it warm. */
static int measure_pair(const startup_options *options, const startup_work *work, size_t i, startup_times *times,
                        child_result *result)
{
    char folder[FOLDER_BYTES];
    if (!os_temporary_folder(folder, sizeof folder))
        return complain(TOOL_FAILED, "bench startup: no folder for the caches could be made in " OS_TEMPORARY);
    int status = TOOL_DONE;
    for (int cache = EMPTY; cache <= WARM && status == TOOL_DONE; cache++) {
        status = start_child(options, work, folder, result);
        times->seconds[cache][i] = result->seconds;
        times->process[cache][i] = result->process_seconds;
    }
    os_remove_folder(folder);
    return status;
}

static int print_times(const startup_options *options, const startup_work *work, startup_times *times, size_t count,
                       const json_t *child)
{
    timing empty = timing_reduce(times->seconds[EMPTY], count), warm = timing_reduce(times->seconds[WARM], count);
    timing empty_process = timing_reduce(times->process[EMPTY], count);
    timing warm_process = timing_reduce(times->process[WARM], count);
    static const char *const names[] = {"device", "platform", "solver"};
    tool_report report = report_begin();
    report_text(&report, "operator", "startup");
    report_text(&report, "of", work->name);
    report_shape(&report, "shape", work->rank, work->shape);
    for (size_t i = 0; i < 3; i++) {
        const char *text = json_string_value(json_object_get(child, names[i]));
        report_text(&report, names[i], text != NULL ? text : "");
    }
    report_number(&report, "empty_seconds_min", empty.min);
    report_number(&report, "empty_seconds_median", empty.median);
    report_number(&report, "empty_process_seconds_median", empty_process.median);
    report_number(&report, "warm_seconds_min", warm.min);
    report_number(&report, "warm_seconds_median", warm.median);
    report_number(&report, "warm_process_seconds_median", warm_process.median);
    /* The fields that every bench reports are those of the warm start. */
    report_timing(&report, &warm);
    report_number(&report, "gflops", work->flops / warm.min * 1e-9);
    report_number(&report, "gbytes_per_s", work->bytes / warm.min * 1e-9);
    return report_finish(&report, options->json);
}

int bench_startup(int argc, char **argv)
{
    startup_options options = {.shape = {1, 8, 8, 128, 128, 64, 64}, .repeat = DEFAULT_REPEAT};
    startup_work work;
    startup_times times;
    child_result result = {0};
    int status = options_parse(&table, argc, argv, &options);
    if (status != TOOL_DONE)
        return status;
    if (options.repeat > MOST_REPEATS)
        return complain(TOOL_BAD_INPUT, "bench startup: --repeat %zu is not valid, expected at most %d", options.repeat,
                        MOST_REPEATS);
    if (options.matmul[0] && options.mha[0])
        return complain(TOOL_BAD_INPUT, "bench startup: --matmul and --mha exclude each other");
    choose_work(&options, &work);
    if (options.child)
        return run_child(&options, &work);

    progress_begin("startup");
    for (size_t i = 0; i < options.repeat && status == TOOL_DONE; i++) {
        status = measure_pair(&options, &work, i, &times, &result);
        progress_show((double)(i + 1) / (double)options.repeat);
    }
    progress_end();
    if (status == TOOL_DONE)
        status = print_times(&options, &work, &times, options.repeat, result.object);
    json_decref(result.object);
    return status;
}
