/* libFuzzer target for command lines.
 *
 * The first byte chooses a table of options: attention's, explain's, bench attention's, or one of this file with an option of
 * each kind.  The rest are arguments, a line each.  Whatever they are: an exit status of bad input, or values within the limits
 * that options.h gives, and arrays' orders that make layouts. */
#define _GNU_SOURCE
#include "fuzz_complain.h"
#include "fuzz_file.h"

#include <math.h>
#include <string.h>

#include "tool/attention/array_order.h"
#include "tool/attention/options.h"

#define MOST_ARGUMENTS 64
#define MOST_COUNT 2147483647

/* Heat maps' own check would need all that draws them. */
int heatmap_options_check(const char *command, const heatmap_options *options)
{
    (void)command;
    REQUIRE(options->files.count <= OPTION_LIST_LIMIT);
    return TOOL_DONE;
}

typedef struct every_kind {
    const char *operand[2], *text;
    bool flag;
    option_float real;
    size_t count, few, sizes[3];
    option_whole whole;
    option_limits limits;
    option_list list;
    int32_t choice;
} every_kind;

#define FIELD(name) offsetof(every_kind, name)
static const char *const choices[] = {"one", "two", "three", NULL};
static const option_row rows[] = {
    {"--flag", OPTION_FLAG, FIELD(flag), .help = "a flag"},
    {"-t", OPTION_TEXT, FIELD(text), "TEXT", .help = "a text", .required = true},
    {"--float", OPTION_FLOAT, FIELD(real), "X", .help = "a number"},
    {"--count", OPTION_COUNT, FIELD(count), "N", .help = "a count"},
    {"--few", OPTION_COUNT, FIELD(few), "N", .help = "at most 9", .count = 9},
    {"--sizes", OPTION_SIZES, FIELD(sizes), "A,B,C", .help = "three sizes", .count = 3},
    {"--whole", OPTION_WHOLE, FIELD(whole), "N", .help = "a whole number"},
    {"--limits", OPTION_LIMITS, FIELD(limits), "A,B", .help = "two limits", .count = 2},
    {"--list", OPTION_LIST, FIELD(list), "TEXT", .help = "texts"},
    {"--choice", OPTION_CHOICE, FIELD(choice), "NAME", .help = "a choice", .choices = choices},
    OPTION_ROW_END,
};
static const option_table table = {.command = "every",
                                   .summary = "Has options of every kind.",
                                   .operands = "ONE TWO",
                                   .operand_offset = FIELD(operand),
                                   .operand_least = 1,
                                   .operand_count = 2,
                                   .rows = rows};

static bool is_count(size_t value)
{
    return value <= MOST_COUNT;
}

static void parse_every_kind(int argc, char **argv)
{
    every_kind all = {.choice = -1};
    int status = options_parse(&table, argc, argv, &all);
    REQUIRE(status == TOOL_DONE || status == TOOL_BAD_INPUT || status == TOOL_HELPED);
    if (status != TOOL_DONE)
        return;
    REQUIRE(is_count(all.count) && all.few <= 9 && is_count(all.sizes[0]) && is_count(all.sizes[2]));
    REQUIRE(all.list.count <= OPTION_LIST_LIMIT && all.choice >= -1 && all.choice <= 2 && isfinite(all.real.value));
    for (int i = 0; i < 2; i++)
        REQUIRE(all.limits.value[i] >= -1 && all.limits.value[i] <= MOST_COUNT);
    REQUIRE(all.operand[0] != NULL && all.text != NULL && all.text[0] != '\0');
}

/* Makes the layouts of arrays in the order that --layout says. */
static void use_order(const attention_options *o)
{
    const size_t *s = o->shape;
    host_array array = {.name = "array", .tensor = {.dtype = CLATTN_DTYPE_F32}};
    const order_part part = {s[1], 0, s[1], 1};
    clattn_layout view;
    int64_t offset;
    if (o->layout == NULL || s[0] == 0)
        return;
    const bool has_heads = order_find(o->layout, 'h') >= 0 || order_find(o->layout, 'e') >= 0;
    array.tensor.rank = order_extents(o->layout, s[0], s[1], s[3], s[5], array.tensor.extent);
    REQUIRE(array.tensor.rank > 0 && array.tensor.rank <= CLATTN_MAX_RANK);
    if (order_view(&array, o->layout, &part, &view, &offset) == TOOL_DONE)
        REQUIRE(view.rank == 4 && view.extent[1] == (has_heads ? s[1] : 1));
}

static void parse_attention(attention_mode mode, int argc, char **argv)
{
    attention_options o;
    int status = attention_options_parse(mode, argc, argv, &o);
    REQUIRE(status == TOOL_DONE || status == TOOL_BAD_INPUT || status == TOOL_HELPED);
    if (status != TOOL_DONE)
        return;
    for (int i = 0; i < 7; i++)
        REQUIRE(is_count(o.shape[i]));
    REQUIRE(o.dtype >= -1 && o.dtype < 4 && o.align >= -1 && o.align < 2 && is_count(o.repeat) &&
            is_count(o.page_size));
    REQUIRE(mode != ATTENTION_RUN || (o.shape[0] == 0 && o.result[RESULT_OUTPUT] != NULL));
    REQUIRE(o.dropout.value >= 0.0f && o.dropout.value < 1.0f);
    use_order(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool quiet;
    char *argv[MOST_ARGUMENTS + 1], *text, *line;
    int argc = 0;
    if (!quiet)
        quiet = freopen("/dev/null", "w", stdout) != NULL; /* --help */
    if (size == 0)
        return 0;
    text = strndup((const char *)data + 1, size - 1);
    REQUIRE(text != NULL);
    for (char *rest = text; (line = strsep(&rest, "\n")) != NULL && argc < MOST_ARGUMENTS;)
        argv[argc++] = line;
    argv[argc] = NULL;
    if (data[0] % 4 == 3)
        parse_every_kind(argc, argv);
    else
        parse_attention((attention_mode)(data[0] % 4), argc, argv);
    free(text);
    return 0;
}
