/* clattn bench startup: how long a new process takes to its first attention result.
 *
 * Each measurement is this program run anew, for a driver keeps state in its process.  The child is told by
 * an environment of its own where to cache, so that "empty" and "warm" mean the same for the library and for
 * the drivers that are known to keep a cache themselves; the user's caches are neither read nor changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "os_tool.h"
#include "progress.h"

typedef struct startup_options {
    const char *solver, *device;
    bool child, json;
    size_t shape[7], repeat;
} startup_options;

#define FIELD(name) offsetof(startup_options, name)
#define DEFAULT_REPEAT 3
#define MOST_REPEATS 100
#define FOLDER_BYTES 64

static const option_row rows[] = {
    {"--shape", OPTION_SIZES, FIELD(shape), "B,HQ,HKV,SQ,SKV,D,DV", "the sizes; default 1,8,8,128,128,64,64",
     false, 7, NULL},
    OPTION_ROW_SOLVER(startup_options),
    OPTION_ROW_DEVICE(startup_options),
    {"--repeat", OPTION_COUNT, FIELD(repeat), "N", "processes of each kind; default 3, at most 100", false, 0,
     NULL},
    OPTION_ROW_JSON(startup_options),
    {"--child", OPTION_FLAG, FIELD(child), NULL, NULL, false, 0, NULL},
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "bench startup",
    .summary =
        "Times the first attention of a new process, from creating the context to the result on the host,\n"
        "with empty caches and with warm ones, and both processes from start to end.",
    .rows = rows,
};

/* The measured process. */
static int run_child(const startup_options *options)
{
    attention_problem problem = {0};
    tool_device device = {0};
    tool_job job = {0};
    host_array output = {0};
    const size_t *s = options->shape;
    int status = bench_attention_arrays(s, 1, 1.0f, &problem);
    if (status == TOOL_DONE)
        status = attention_complete(&problem);
    if (status == TOOL_DONE)
        status = host_allocate(CLATTN_F32, 4, (size_t[]){s[0], s[1], s[3], s[6]}, "output", &output);
    if (status != TOOL_DONE)
        goto done;

    double before = os_seconds();
    status = device_open(options->device, &device);
    if (status != TOOL_DONE)
        goto done;
    clattn_status run = job_attention(&device, &problem, options->solver, &job);
    if (run == CLATTN_SUCCESS)
        run = job_run(&job);
    if (run == CLATTN_SUCCESS)
        run = job_read(&job, 0, output.memory);
    double seconds = os_seconds() - before;
    if (run != CLATTN_SUCCESS) {
        status = device_failed(&device, run, NULL);
        goto done;
    }
    clattn_program_statistics programs = {.size = sizeof programs};
    tool_report report;
    clattn_context_program_statistics(device.context, &programs);
    report_begin(&report);
    report_device(&report, &device, job_solver(&job));
    report_number(&report, "seconds", seconds);
    report_count(&report, "programs_built", (size_t)programs.built);
    report_count(&report, "programs_loaded", (size_t)programs.loaded);
    status = report_finish(&report, true);
done:
    job_release(&job);
    device_close(&device);
    host_release(&output);
    attention_release(&problem);
    return status;
}

/* One child's figures. */
typedef struct child_result {
    double seconds, process_seconds;
    json_t *object; /* what it printed */
} child_result;

/* Lets a child run with its caches in `folder`/own and `folder`/driver. */
static int start_child(const startup_options *options, const char *folder, child_result *result)
{
    char shape[128], own[FOLDER_BYTES + 32], pocl[FOLDER_BYTES + 32], xdg[FOLDER_BYTES + 32];
    char mesa[FOLDER_BYTES + 64], cuda[FOLDER_BYTES + 64], output[4096];
    const char *arguments[12] = {"bench", "startup", "--child", "--shape", shape};
    const char *const settings[] = {own, "CLATTN_CACHE", pocl, xdg, mesa, cuda, NULL};
    const size_t *s = options->shape;
    size_t count = 5;
    int exit_status;
    snprintf(shape, sizeof shape, "%zu,%zu,%zu,%zu,%zu,%zu,%zu", s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
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
    if (!os_run_self(arguments, settings, false, output, sizeof output, &exit_status,
                     &result->process_seconds))
        return complain(TOOL_FAILED, "bench startup: this program could not be run anew");
    if (exit_status != TOOL_DONE) {
        /* A child that exits by itself has told why on stderr, which is the error line of this process, too.
         */
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

typedef struct startup_times {
    double empty[MOST_REPEATS], warm[MOST_REPEATS];
    double empty_process[MOST_REPEATS], warm_process[MOST_REPEATS];
} startup_times;

/* A pair of processes in a new folder: the first finds it empty and leaves it warm. */
static int measure_pair(const startup_options *options, size_t i, startup_times *times, child_result *result)
{
    char folder[FOLDER_BYTES];
    if (!os_temporary_folder(folder, sizeof folder))
        return complain(TOOL_FAILED, "bench startup: no folder for the caches could be made in " OS_TEMPORARY);
    int status = start_child(options, folder, result);
    if (status == TOOL_DONE) {
        times->empty[i] = result->seconds;
        times->empty_process[i] = result->process_seconds;
        status = start_child(options, folder, result);
    }
    if (status == TOOL_DONE) {
        times->warm[i] = result->seconds;
        times->warm_process[i] = result->process_seconds;
    }
    os_remove_folder(folder);
    return status;
}

static int print_times(const startup_options *options, startup_times *times, size_t count,
                       const json_t *child)
{
    timing empty = timing_reduce(times->empty, count), warm = timing_reduce(times->warm, count);
    timing empty_process = timing_reduce(times->empty_process, count);
    timing warm_process = timing_reduce(times->warm_process, count);
    const size_t *s = options->shape;
    double pairs = attention_pairs(s[3], s[4], false, CLATTN_ALIGN_TOP_LEFT);
    double heads = (double)s[0] * (double)s[1], kv_heads = (double)s[0] * (double)s[2];
    double flops = 2.0 * heads * pairs * (double)(s[5] + s[6]);
    double bytes = 4.0 * (double)(s[5] + s[6]) * (heads * (double)s[3] + kv_heads * (double)s[4]);
    static const char *const names[] = {"device", "platform", "solver"};
    tool_report report;
    report_begin(&report);
    report_text(&report, "operator", "startup");
    report_shape(&report, "shape", 7, s);
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
    /* The fields that every bench has: those of the warm start. */
    report_timing(&report, &warm);
    report_number(&report, "gflops", flops / warm.min * 1e-9);
    report_number(&report, "gbytes_per_s", bytes / warm.min * 1e-9);
    return report_finish(&report, options->json);
}

int bench_startup(int argc, char **argv)
{
    startup_options options = {.shape = {1, 8, 8, 128, 128, 64, 64}, .repeat = DEFAULT_REPEAT};
    startup_times times;
    child_result result = {0};
    option_outcome outcome = options_parse(&table, argc, argv, &options);
    if (outcome != OPTIONS_RUN)
        return outcome == OPTIONS_DONE ? TOOL_DONE : TOOL_BAD_INPUT;
    if (options.repeat > MOST_REPEATS)
        return complain(TOOL_BAD_INPUT, "bench startup: --repeat %zu is not valid, expected at most %d",
                        options.repeat, MOST_REPEATS);
    if (options.child)
        return run_child(&options);

    int status = TOOL_DONE;
    progress_begin("startup");
    for (size_t i = 0; i < options.repeat && status == TOOL_DONE; i++) {
        status = measure_pair(&options, i, &times, &result);
        progress_show((double)(i + 1) / (double)options.repeat);
    }
    progress_end();
    if (status == TOOL_DONE)
        status = print_times(&options, &times, options.repeat, result.object);
    json_decref(result.object);
    return status;
}
