/* clattn bench ring: attention of sequences that lie in parts on the ranks of a group, beside one attention of the whole. */
#include <math.h>
#include <stdlib.h>

#include "base/convert.h"
#include "base/size.h"
#include "tool/bench/bench.h"
#include "tool/bench/ring.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"

typedef struct ring_options {
    const char *device;
    bool causal, json;
    int32_t dtype, mode;
    size_t shape[7], ranks, repeat;
    option_float link, latency;
} ring_options;

enum { BATCH, HEADS, KV_HEADS, QUERIES, KEYS }; /* indices into the shape */

#define FIELD(name) offsetof(ring_options, name)
#define WARM_UP 2
#define LEAST_ROUNDS 5
#define LEAST_SECONDS 1.0
#define MOST_ROUNDS 10000
#define LEAST_LINK 1e-3F /* GB/s */
#define MOST_LATENCY 1e6F

static const char *const mode_choices[] = {"ring", "zigzag", "gather", "heads", NULL};
static const struct {
    clattn_group_mode mode;
    clattn_group_order order;
} modes[] = {
    {CLATTN_GROUP_MODE_RING, CLATTN_GROUP_ORDER_STRAIGHT},
    {CLATTN_GROUP_MODE_RING, CLATTN_GROUP_ORDER_ZIGZAG},
    {CLATTN_GROUP_MODE_GATHER, CLATTN_GROUP_ORDER_STRAIGHT},
    {CLATTN_GROUP_MODE_HEADS, CLATTN_GROUP_ORDER_STRAIGHT},
};

static const option_row rows[] = {
    {"--shape", OPTION_SIZES, FIELD(shape), "B,HQ,HKV,SQ,SKV,D,DV", .help = "the sizes of the whole", .required = true,
     .count = 7},
    {"--ranks", OPTION_COUNT, FIELD(ranks), "N",
     .help = "how many threads have a part each; default 2; of mpirun, as many as it has started",
     .count = RING_MOST_RANKS},
    {"--mode", OPTION_CHOICE, FIELD(mode), "NAME",
     .help = "ring (default), zigzag (a ring with balanced parts), gather or heads", .choices = mode_choices},
    OPTION_ROW_CAUSAL(ring_options),
    OPTION_ROW_DTYPE(ring_options, "of every array"),
    {"--link", OPTION_FLOAT, FIELD(link), "GB_PER_S", .help = "each rank sends no faster than by such a link"},
    {"--latency", OPTION_FLOAT, FIELD(latency), "MICROSECONDS", .help = "a message arrives so much later"},
    OPTION_ROW_RANKS_DEVICES(ring_options),
    {"--repeat", OPTION_COUNT, FIELD(repeat), "N", .help = "time N rounds", .count = MOST_ROUNDS},
    OPTION_ROW_JSON(ring_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "bench ring",
    .summary =
        "Times attention of sequences that lie in parts on the ranks of a group, beside one attention of the whole.\n"
        "The ranks are threads that share the device, or the processes that mpirun has started. --link and --latency\n"
        "model what is between them, for which processes must be on one machine.",
    .rows = rows,
};

static int check_parts(const ring_options *options)
{
    const size_t *s = options->shape;
    const size_t pieces = options->ranks * (modes[options->mode].order == CLATTN_GROUP_ORDER_ZIGZAG ? 2 : 1);
    const struct {
        const char *name;
        size_t size, parts;
    } sizes[] = {
        {"SQ", s[QUERIES], pieces},
        {"SKV", s[KEYS], pieces},
        {"HKV", s[KV_HEADS], modes[options->mode].mode == CLATTN_GROUP_MODE_RING ? 1 : options->ranks},
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].size % sizes[i].parts != 0)
            return complain(TOOL_BAD_INPUT,
                            "bench ring: %s %zu is not valid for --mode %s with %zu ranks, expected a multiple of %zu",
                            sizes[i].name, sizes[i].size, mode_choices[options->mode], options->ranks, sizes[i].parts);
    return TOOL_DONE;
}

static int read_link(const ring_options *options, ring_link *link)
{
    const option_float *speed = &options->link, *latency = &options->latency;
    *link = (ring_link){.modelled = speed->given || latency->given};
    if (speed->given && speed->value < LEAST_LINK)
        return complain(TOOL_BAD_INPUT, "bench ring: --link %g is not valid, expected %g GB/s or more",
                        (double)speed->value, (double)LEAST_LINK);
    if (latency->given && (latency->value < 0 || latency->value > MOST_LATENCY))
        return complain(TOOL_BAD_INPUT, "bench ring: --latency %g is not valid, expected 0 to %.0f microseconds",
                        (double)latency->value, (double)MOST_LATENCY);
    if (speed->given)
        link->seconds_per_byte = 1e-9 / (double)speed->value;
    if (latency->given)
        link->latency = (double)latency->value * 1e-6;
    return TOOL_DONE;
}

/* The largest rank's (query, key) pairs by the mean rank's. */
static double balance(const ring *r, const ring_options *options)
{
    const size_t keys = options->shape[KEYS], own = options->shape[QUERIES] / r->ranks;
    double most = 0.0, sum = 0.0;
    if (!options->causal || modes[options->mode].mode == CLATTN_GROUP_MODE_HEADS)
        return 1.0; /* all ranks have as many heads, of all pairs */
    for (size_t rank = 0; rank < r->ranks; rank++) {
        double pairs = 0.0;
        for (size_t row = 0; row < own; row++)
            pairs += (double)size_min(ring_row(r, rank, own, row) + 1, keys);
        most = fmax(most, pairs);
        sum += pairs;
    }
    return most * (double)r->ranks / sum;
}

/* ---- results ---- */

/* How far results in [-1, 1] may be apart that were summed in another order, and rounded to the type on the way. */
static double tolerance(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F32 ? 1e-5 : dtype == CLATTN_DTYPE_F16 ? 0x1p-8 : 0x1p-5;
}

/* The largest difference of a rank's output from its rows of the whole one; infinite if either is NaN. */
static double difference(const ring *r, size_t rank, const host_array *part, const host_array *whole)
{
    const clattn_dtype dtype = part->tensor.dtype;
    const size_t *e = part->tensor.extent;
    double most = 0.0;
    for (size_t i = 0; i < e[0] * e[1]; i++)
        for (size_t row = 0; row < e[2]; row++) {
            const size_t from = (i * whole->tensor.extent[2] + ring_row(r, rank, e[2], row)) * e[3];
            for (size_t n = 0; n < e[3]; n++) {
                const float a = load_element(dtype, part->memory, (i * e[2] + row) * e[3] + n);
                const float b = load_element(dtype, whole->memory, from + n);
                const double apart = fabs((double)a - (double)b);
                most = isnan(apart) ? HUGE_VAL : fmax(most, apart);
            }
        }
    return most;
}

/* Makes a number the largest of all processes. */
static int largest(tool_world *world, double *number)
{
    double all[RING_MOST_RANKS];
    const int status = world_gather(world, &(double){*number}, all, sizeof all[0]);
    for (int32_t i = 0; i < world->ranks && status == TOOL_DONE; i++)
        *number = fmax(*number, all[i]);
    return status;
}

/* Compares all ranks' outputs with the whole one, which `job` has computed. */
static int compare(ring *r, const tool_job *job, double *most)
{
    const clattn_layout *layout = &job->desc.attention.output;
    const size_t *e = layout->extent;
    const double bound = tolerance(layout->dtype);
    host_array whole = {0}, part = {0};
    int status;
    *most = 0.0;
    TOOL_TRY(host_allocate(layout->dtype, 4, e, "the output", &whole));
    TOOL_TRY(
        host_allocate(layout->dtype, 4, (const size_t[]){e[0], e[1], e[2] / r->ranks, e[3]}, "a rank's output", &part));
    TOOL_TRY(device_check(job->device, job_read(job, 0, whole.memory), NULL));
    for (size_t i = r->first; i < r->end; i++) {
        TOOL_TRY(ring_read(r, i, &part));
        const double own = difference(r, i, &part, &whole);
        if (own > bound) {
            status = complain(
                TOOL_FAILED, "bench ring: rank %zu: a result differs by %g from that of the whole, expected at most %g",
                i, own, bound);
            goto fail;
        }
        *most = fmax(*most, own);
    }
    status = largest(r->world, most);
fail:
    host_release(&part);
    host_release(&whole);
    return status;
}

/* ---- times ---- */

/* Runs the whole attention, as an application would that has no group. */
static clattn_status enqueue_whole(const tool_job *job, cl_event *event)
{
    return clattn_attention_run(job->device->context, job->device->queue, &job->desc.attention, &job->args.attention, 0,
                                NULL, event);
}

/* The first process runs it, and the others sleep for about as long, so that it has the machine: looking for messages takes a core. */
static int run_whole(ring *r, const tool_job *job)
{
    const double begin = os_seconds();
    int status = TOOL_DONE;
    if (r->world->rank == 0) {
        status = device_check(job->device, job_run(job), NULL);
        r->whole = os_seconds() - begin;
    } else {
        os_sleep_until(begin + r->whole);
        r->whole = 0.0;
    }
    return status == TOOL_DONE ? largest(r->world, &r->whole) : status;
}

/* The part, up to 1, of all rounds that has been done. */
static double fulfilled(const ring_options *options, size_t rounds, double spent)
{
    if (options->repeat != 0 || rounds >= MOST_ROUNDS)
        return options->repeat != 0 ? (double)rounds / (double)options->repeat : 1.0;
    return fmin((double)rounds / LEAST_ROUNDS, spent / LEAST_SECONDS);
}

/* Times both in turns; each is first in every other round.  `ours` and `wholes` have room for all rounds; the first ones do not
 * count. */
static int measure(const ring_options *options, ring *r, const tool_job *job, double *ours, double *wholes,
                   size_t *count)
{
    int status = TOOL_DONE;
    size_t warm = 0;
    double spent = 0.0;
    *count = 0;
    progress_begin("ring");
    while (fulfilled(options, *count, spent) < 1.0) {
        double *const our = &ours[*count], *const whole = &wholes[*count];
        const bool whole_first = *count % 2 == 1;
        if (whole_first)
            TOOL_TRY(run_whole(r, job));
        TOOL_TRY(ring_run(r, our));
        if (!whole_first)
            TOOL_TRY(run_whole(r, job));
        *whole = r->whole;
        if (warm < WARM_UP) {
            warm++;
            ring_forget(r);
            continue;
        }
        spent += *our + *whole;
        ++*count;
        progress_show(fulfilled(options, *count, spent));
    }
fail:
    progress_end();
    return status;
}

static int print_report(const ring_options *options, const ring *r, const tool_job *job, const timing *ours,
                        const timing *whole, const ring_count *counts, double most)
{
    size_t sent[RING_MOST_RANKS];
    double waited = 0.0, busy = 0.0;
    for (size_t i = 0; i < r->ranks; i++) {
        sent[i] = counts[i].sent;
        waited += counts[i].waited;
        busy += counts[i].busy;
    }
    tool_report report = report_begin();
    report_text(&report, "operator", "ring");
    report_shape(&report, "shape", 7, options->shape);
    report_device(&report, job->device, job_solver(job));
    report_text(&report, "dtype", clattn_dtype_name(option_dtypes[options->dtype]));
    report_text(&report, "mode", mode_choices[options->mode]);
    report_bool(&report, "causal", options->causal);
    report_count(&report, "ranks", r->ranks);
    if (options->link.given)
        report_number(&report, "link_gbytes_per_s", (double)options->link.value);
    if (options->latency.given)
        report_number(&report, "link_microseconds", (double)options->latency.value);
    report_timing(&report, ours);
    report_number(&report, "whole_seconds_median", whole->median);
    report_shape(&report, "sent_bytes", (int32_t)r->ranks, sent);
    report_number(&report, "waiting_share", busy > 0.0 ? waited / busy : 0.0);
    report_number(&report, "balance", balance(r, options));
    report_number(&report, "max_difference", most);
    return report_finish(&report, options->json);
}

static int measure_and_report(const ring_options *options, ring *r, const tool_job *job)
{
    const size_t room = options->repeat != 0 ? options->repeat : MOST_ROUNDS;
    double most, *ours = calloc(2 * room, sizeof *ours);
    ring_count counts[RING_MOST_RANKS];
    size_t count;
    int status;
    if (ours == NULL)
        return complain(TOOL_FAILED, "bench ring: out of memory for the times of %zu rounds", room);
    TOOL_TRY(measure(options, r, job, ours, ours + room, &count));
    if (r->world->rank > 0) /* which has not run it */
        TOOL_TRY(device_check(job->device, job_run(job), NULL));
    TOOL_TRY(compare(r, job, &most));
    TOOL_TRY(ring_counts(r, counts));
    const timing group = timing_reduce(ours, count), whole = timing_reduce(ours + room, count);
    status = print_report(options, r, job, &group, &whole, counts, most);
fail:
    free(ours);
    return status;
}

/* How many ranks there are: those of mpirun, if it has started any. */
static int count_ranks(ring_options *options, const tool_world *world)
{
    if (world_group(world) == NULL) {
        options->ranks = options->ranks != 0 ? options->ranks : 2;
        return TOOL_DONE;
    }
    if (options->ranks != 0)
        return complain(TOOL_BAD_INPUT, "bench ring: --ranks is for threads, found ranks of mpirun");
    if (world->ranks > RING_MOST_RANKS)
        return complain(TOOL_BAD_INPUT, "bench ring: mpirun has started %d ranks, expected at most %d",
                        (int)world->ranks, RING_MOST_RANKS);
    options->ranks = (size_t)world->ranks;
    return TOOL_DONE;
}

/* What a rank of mpirun does before it needs the others. */
static int prepare(ring_options *options, ring *r, attention_request *request, tool_job *job, ring_link *link)
{
    char *device = NULL;
    int status;
    TOOL_TRY(count_ranks(options, r->world));
    TOOL_TRY(check_parts(options));
    TOOL_TRY(read_link(options, link));
    TOOL_TRY(bench_attention_arrays(options->shape, option_dtypes[options->dtype], request));
    request->desc.causal = options->causal;
    TOOL_TRY(attention_complete(request));
    TOOL_TRY(world_device(r->world, options->device, &device));
    TOOL_TRY(device_open(device, r->device));
    for (int i = INPUT_QUERY; i <= INPUT_VALUE; i++)
        TOOL_TRY(random_make(&request->input[i]));
    TOOL_TRY(device_check(r->device, job_attention(r->device, request, NULL, job), NULL));
    job->enqueue = enqueue_whole;
    r->ranks = options->ranks;
fail:
    free(device);
    return status;
}

int bench_ring(int argc, char **argv)
{
    ring_options options = {0};
    attention_request request = {0};
    tool_device device = {0};
    tool_world world = {0};
    tool_job job = {0};
    ring r = {.device = &device, .world = &world};
    ring_link link;
    int status;
    TOOL_TRY(world_open(&world));
    TOOL_TRY(world_agree(&world, options_parse(&table, argc, argv, &options)));
    TOOL_TRY(world_agree(&world, prepare(&options, &r, &request, &job, &link)));
    TOOL_TRY(world_agree(&world, world_compare_arguments(&world, argc, argv, options.device, "")));
    TOOL_TRY(world_agree(&world, ring_open(&r, &request, modes[options.mode].mode, modes[options.mode].order, &link)));
    TOOL_TRY(world_agree(&world, ring_make(&r)));
    TOOL_TRY(measure_and_report(&options, &r, &job));
fail:
    ring_close(&r);
    job_release(&job);
    device_close(&device);
    attention_release(&request);
    world_close(&world, status);
    return status;
}
