/* clattn bench: times operators on data that is already on the device. */
#include <stdio.h>
#include <string.h>

#include "tool/bench/bench.h"

#define EXPECTED "expected attention, matmul, softmax, layernorm, mha, encoder, startup, enqueue, ring or random"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} benches[] = {
    {"attention", bench_attention, "--shape B,HQ,HKV,SQ,SKV,D,DV and any option of clattn attention"},
    {"matmul", bench_matmul, "--shape M,N,K [--bias]: (M, K) times the transpose of (N, K)"},
    {"softmax", bench_softmax, "--shape R,C"},
    {"layernorm", bench_layernorm, "--shape R,C: with scale and bias"},
    {"mha", bench_mha, "--shape B,S,D_MODEL,H"},
    {"encoder", bench_encoder, "--shape B,S,D_MODEL,HEADS,D_FF [--layers N]: random weights"},
    {"startup", bench_startup, "first attention of a new process, with empty and with warm caches"},
    {"enqueue", bench_enqueue, "what one enqueue of an attention costs the host, beside bare kernel launches"},
    {"ring", bench_ring, "--shape B,HQ,HKV,SQ,SKV,D,DV [--ranks N]: parts on ranks, beside one attention of the whole"},
    {"random", bench_random, "random shapes of the first four, named and not timed"},
};
#define BENCHES (sizeof benches / sizeof benches[0])

static int help(void)
{
    puts("usage: clattn bench OPERATOR [options]\n"
         "Times an operator, from enqueue to completion, on data that is already on the device.\n");
    for (size_t i = 0; i < BENCHES; i++)
        printf("  %-10s  %s\n", benches[i].name, benches[i].help);
    puts("\nSee 'clattn bench OPERATOR --help'.");
    return TOOL_DONE;
}

int cmd_bench(int argc, char **argv)
{
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return help();
    if (argc == 0)
        return complain(TOOL_BAD_INPUT, "bench: missing argument, " EXPECTED);
    for (size_t i = 0; i < BENCHES; i++) {
        if (strcmp(argv[0], benches[i].name) == 0)
            return benches[i].run(argc - 1, argv + 1);
    }
    return complain(TOOL_BAD_INPUT, "bench: unknown operator '%s', " EXPECTED, argv[0]);
}

/* Reports a model's sizes and, if asked for, its plan's parts: as text lines before the report, or as a field of its
 * JSON. */
static void report_model(tool_report *report, const bench_model *model, const clattn_plan *plan, bool json)
{
    report_count(report, "layers", model->layers);
    report_count(report, "parameters", model->parameters);
    report_count(report, "weight_bytes", model->weight_bytes);
    report_count(report, "workspace_bytes", clattn_plan_workspace_size(plan));
    report_count(report, "kernels", clattn_plan_launch_count(plan));
    if (model->explain && json)
        report_lines(report, "parts", clattn_plan_explain(plan));
    else if (model->explain)
        fputs(clattn_plan_explain(plan), stdout);
}

int bench_finish(tool_job *job, const char *operator_name, int32_t shape_rank, const size_t *shape,
                 const bench_work *work, size_t repeat, bool json)
{
    timing times = {0};
    const timing_rule rule = {.repeat = repeat, .minimum = 5, .budget = 1.0, .warm_up = 2};
    int status = job_time(job, &rule, operator_name, &times);
    if (status == TOOL_DONE) {
        tool_report report = report_begin();
        report_text(&report, "operator", operator_name);
        report_shape(&report, "shape", shape_rank, shape);
        report_device(&report, job->device, job_solver(job));
        if (work->attention != NULL)
            report_attention(&report, work->attention);
        else
            report_text(&report, "dtype", clattn_dtype_name(work->dtype));
        if (work->model != NULL)
            report_model(&report, work->model, job->plan, json);
        report_timing(&report, &times);
        report_number(&report, "gflops", work->flops / times.min * 1e-9);
        report_number(&report, "gbytes_per_s", work->bytes / times.min * 1e-9);
        status = report_finish(&report, json);
    }
    job_release(job);
    return status;
}
