/* clattn bench random: lists random shapes, for timing and for tests.  Needs no device. */
#include <inttypes.h>
#include <stdio.h>

#include "tool/bench/bench.h"
#include "tool/bench/random_shape.h"

#define DEFAULT_COUNT 40
#define MOST_COUNT 100000

typedef struct random_options {
    option_whole seed, least, most;
    size_t count;
    bool json;
} random_options;

#define FIELD(name) offsetof(random_options, name)

static const option_row rows[] = {
    {"--seed", OPTION_WHOLE, FIELD(seed), "N", .help = "which sequence; default 0"},
    {"--count", OPTION_COUNT, FIELD(count), "N", .help = "how many, 40 by default", .count = MOST_COUNT},
    {"--least", OPTION_WHOLE, FIELD(least), "N", .help = "operations of each at least, 2^25 by default"},
    {"--most", OPTION_WHOLE, FIELD(most), "N",
     .help = "and at most, 2^33 by default; 2^16 to 2^40, 64 times the least"},
    OPTION_ROW_JSON(random_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "bench random",
    .summary =
        "Names random shapes of attention, matmul, softmax and layernorm in turn, as arguments of clattn bench, and "
        "times "
        "nothing.\nThe same seed gives the same shapes everywhere.  An array's element counts as 16 operations for the "
        "least, 256 for the most.",
    .rows = rows,
};

static json_t *shape_object(const random_shape *shape)
{
    tool_report object = report_begin();
    report_text(&object, "operator", random_operator_names[shape->of]);
    report_shape(&object, "shape", (int32_t)shape->rank, shape->size);
    report_bool(&object, "causal", shape->causal);
    return object.object;
}

/* Returns the whole list, or NULL: no memory. */
static json_t *shape_list(const random_options *options, const random_limits *limits)
{
    json_t *shapes = json_array();
    for (uint64_t i = 0; shapes != NULL && i < options->count; i++) {
        const random_shape shape = random_shape_draw(options->seed.value, i, limits);
        if (json_array_append_new(shapes, shape_object(&shape)) != 0) {
            json_decref(shapes);
            shapes = NULL;
        }
    }
    return shapes;
}

static int print_list(const random_options *options, const random_limits *limits)
{
    char seed[24]; /* a text: JSON's readers, and its writer here, have fewer than 64 bits for a number */
    snprintf(seed, sizeof seed, "%" PRIu64, options->seed.value);
    tool_report report = report_begin();
    report_text(&report, "seed", seed);
    report_count(&report, "least", (size_t)limits->least);
    report_count(&report, "most", (size_t)limits->most);
    report_json(&report, "shapes", shape_list(options, limits));
    return report_finish(&report, true);
}

static void print_shape(const random_shape *shape)
{
    printf("%s --shape ", random_operator_names[shape->of]);
    for (size_t i = 0; i < shape->rank; i++)
        printf("%s%zu", i > 0 ? "," : "", shape->size[i]);
    puts(shape->causal ? " --causal" : "");
}

int bench_random(int argc, char **argv)
{
    random_options options = {
        .least.value = (uint64_t)1 << 25, .most.value = (uint64_t)1 << 33, .count = DEFAULT_COUNT};
    int status = options_parse(&table, argc, argv, &options);
    if (status != TOOL_DONE)
        return status;
    const random_limits limits = {options.least.value, options.most.value};
    if (limits.most < RANDOM_LEAST_MOST || limits.most > RANDOM_MOST_MOST)
        return complain(TOOL_BAD_INPUT,
                        "bench random: --most %" PRIu64 " is not valid, expected %" PRIu64 " to %" PRIu64, limits.most,
                        RANDOM_LEAST_MOST, RANDOM_MOST_MOST);
    if (limits.least > limits.most / RANDOM_SPAN)
        return complain(TOOL_BAD_INPUT,
                        "bench random: --least %" PRIu64 " is not valid, expected at most a %dth of --most %" PRIu64,
                        limits.least, RANDOM_SPAN, limits.most);
    if (options.json)
        return print_list(&options, &limits);
    for (uint64_t i = 0; i < options.count; i++) {
        const random_shape shape = random_shape_draw(options.seed.value, i, &limits);
        print_shape(&shape);
    }
    return TOOL_DONE;
}
