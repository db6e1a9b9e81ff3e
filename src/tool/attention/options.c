#include "tool/attention/options.h"

#include "tool/attention/array_order.h"

#define FIELD(name) offsetof(attention_options, name)
#define FILE_ROW(option, field, value, text) {option, OPTION_TEXT, FIELD(field), value, .help = text}
#define ROW(option, kind, field, value, text) {option, kind, FIELD(field), value, .help = text}
#define CHOICE(option, field, value, text, list) \
    {option, OPTION_CHOICE, FIELD(field), value, .help = text, .choices = list}

static const char *const dtypes[] = {"f32", "f16", "bf16", "f64", NULL};
static const char *const score_kinds[] = {"dot", "additive", NULL};

/* The first three rows are no options of `clattn attention`. */
static const option_row rows[] = {
    ROW("--backward", OPTION_FLAG, backward, NULL, "the gradients by Q, K and V instead of the output"),
    FILE_ROW("--score-mod-grad", score_mod_grad, "FILE.cl",
             "OpenCL C with: float score_mod_grad(float score, ...), the derivative of score_mod"),
    {"--shape", OPTION_SIZES, FIELD(shape), "B,HQ,HKV,SQ,SKV,D,DV", .help = "the sizes, instead of -q, -k and -v",
     .count = 7},
    FILE_ROW("-q", input[INPUT_QUERY], "Q.npy", "queries (batch, heads, S_q, d_k)"),
    FILE_ROW("-k", input[INPUT_KEY], "K.npy", "keys (batch, key heads, S_k, d_k)"),
    FILE_ROW("-v", input[INPUT_VALUE], "V.npy", "values (batch, key heads, S_k, d_v)"),
    FILE_ROW("--qkv", fused, "QKV.npy", "instead of these three: one array with a dimension of 3, see --layout"),
    FILE_ROW("-o", result[RESULT_OUTPUT], "OUT.npy", "result (batch, heads, S_q, d_v)"),
    FILE_ROW("--layout", layout, "ORDER", "of Q, K, V and OUT: bhsd (default), bshd, sbhd, shd, bse, bs3hd, ..."),
    {"--heads", OPTION_SIZES, FIELD(heads), "H,KEY_HEADS", .help = "how many, where the layout has e: heads * size",
     .count = 2},
    FILE_ROW("--mask", input[INPUT_MASK], "M.npy",
             "(batch, heads, S_q, S_k), each may be 1: bool (true = attend) or a float type (added)"),
    FILE_ROW("--bias", input[INPUT_BIAS], "B.npy", "added besides the mask, with the same shapes: a float type"),
    OPTION_ROW_SHORT_MASK(attention_options),
    OPTION_ROW_CAUSAL(attention_options),
    OPTION_ROW_ALIGN(attention_options),
    FILE_ROW("--query-offset", input[INPUT_POSITIONS], "O.npy",
             "(batch) integers: the key position of each item's query 0"),
    {"--window", OPTION_LIMITS, FIELD(window), "LEFT,RIGHT",
     .help = "attend so many keys before and after the query's position; -1 for all", .count = 2},
    ROW("--scale", OPTION_FLOAT, scale, "X", "multiply scores by X; default 1/sqrt(d_k), additive 1"),
    ROW("--softcap", OPTION_FLOAT, softcap, "X", "bend scores to X * tanh(score / X)"),
    CHOICE("--score", score, "KIND", "dot (default) or additive: sum of vector * tanh(q + k)", score_kinds),
    FILE_ROW("--vector", input[INPUT_VECTOR], "V.npy", "float32 (heads or 1, d_k): additive attention's weights"),
    FILE_ROW("--score-mod", score_mod, "FILE.cl", "OpenCL C with: float score_mod(float score, int batch, ...)"),
    FILE_ROW("--mask-mod", mask_mod, "FILE.cl", "OpenCL C with: int mask_mod(int batch, int head, ...)"),
    ROW("--user", OPTION_LIST, user, "N:FILE.npy", "what user.bufferN of these functions points to, N from 0 to 3"),
    ROW("--user-scalar", OPTION_LIST, user_scalar, "N:X", "user.scalarN"),
    FILE_ROW("--alibi", input[INPUT_ALIBI], "S.npy", "float32 (heads): subtract slope * |distance| from the scores"),
    FILE_ROW("--sinks", input[INPUT_SINKS], "S.npy", "float32 (heads): one more logit in each row, without a value"),
    FILE_ROW("--kv-lengths", input[INPUT_KEY_LENGTHS], "L.npy", "(batch) integers: keys of each item"),
    FILE_ROW("--query-lengths", input[INPUT_QUERY_LENGTHS], "L.npy", "(batch) integers: queries of each item"),
    FILE_ROW("--query-starts", input[INPUT_QUERY_STARTS], "C.npy",
             "(batch + 1) integers: packed queries, item by item"),
    FILE_ROW("--key-starts", input[INPUT_KEY_STARTS], "C.npy", "(batch + 1) integers: packed keys, item by item"),
    ROW("--kv-int8", OPTION_FLAG, kv_int8, NULL, "quantise K and V to int8 first"),
    ROW("--kv-int4", OPTION_FLAG, kv_int4, NULL, "quantise K and V to int4 first"),
    ROW("--kv-group", OPTION_COUNT, kv_group, "N", "elements that share a scale; default: a whole head"),
    ROW("--page-size", OPTION_COUNT, page_size, "N", "put K and V into shuffled pages of N keys first"),
    ROW("--ring", OPTION_FLAG, ring, NULL, "K and V are rings: key j in row j mod S_k, --kv-lengths counts all ever"),
    ROW("--dropout", OPTION_FLOAT, dropout, "P", "drop probabilities with probability P"),
    ROW("--seed", OPTION_WHOLE, seed, "N", "dropout's seed; default 0"),
    ROW("--dropout-offset", OPTION_WHOLE, dropout_offset, "N", "which of the seed's masks; default 0"),
    FILE_ROW("--lse", result[RESULT_LSE], "OUT.npy", "write the log-sum-exp (batch, heads, S_q) too"),
    FILE_ROW("--entropy", result[RESULT_ENTROPY], "OUT.npy", "write each query's entropy (batch, heads, S_q) too"),
    FILE_ROW("--scores", result[RESULT_SCORES], "MODE:OUT.npy",
             "write all scores too; MODE is raw, softcap, bias or probabilities"),
    HEATMAP_OPTION_ROWS(attention_options, heat),
    CHOICE("--dtype", dtype, "TYPE", "of the result: f32, f16, bf16 (as uint16, in files too) or f64; default Q's",
           dtypes),
    ROW("--max-launch-ms", OPTION_COUNT, max_launch_ms, "N", "cut the work into launches of about N milliseconds"),
    OPTION_ROW_SOLVER(attention_options),
    {"--device", OPTION_TEXT, FIELD(device), "SPEC",
     .help =
         "gpu, cpu, pocl, an index from 'clattn devices', or PLATFORM:DEVICE substrings; for 'clattn attention' also "
         "several indices, as 0,1, whose devices share the heads, or the items if there are more, each as many as it "
         "is fast"},
    OPTION_ROW_REPEAT(attention_options),
    OPTION_ROW_VERIFY(attention_options),
    OPTION_ROW_JSON(attention_options),
    OPTION_ROW_END,
};

static const option_table tables[] = {
    [ATTENTION_RUN] = {.command = "attention",
                       .summary = "Attention: softmax(scale * Q K^T + mask) V for each batch item and head, "
                                  "from -q, -k and -v to -o.",
                       .rows = rows + 3},
    [ATTENTION_EXPLAIN] =
        {.command = "explain",
         .summary = "Which solver takes an attention, with which kernels, and why the others do not.  Takes the "
                    "options of\n"
                    "'clattn attention' and computes nothing; -o and the other outputs say what would be asked for.",
         .rows = rows},
    [ATTENTION_BENCH] =
        {.command = "bench attention",
         .summary =
             "Times attention on random data.  Counts 2 HQ (D + DV) operations for "
             "each pair of query and key that\n"
             "lengths, causality and window leave, with --backward 2.5 times as many.  Takes the options of 'clattn "
             "attention' with --shape; outputs are\n"
             "computed and not written.",
         .rows = rows},
};

static int missing(const char *command, const char *option)
{
    return complain(TOOL_BAD_INPUT, "%s: %s is missing", command, option);
}

static int conflict(const char *command, const char *option, const char *other)
{
    return complain(TOOL_BAD_INPUT, "%s: %s does not go together with %s", command, option, other);
}

/* Checks the options that say where queries, keys and values come from. */
static int check_sources(const char *command, const attention_options *o)
{
    const char *q = o->input[INPUT_QUERY], *k = o->input[INPUT_KEY], *v = o->input[INPUT_VALUE];
    bool separate = q != NULL || k != NULL || v != NULL, shaped = o->shape[0] != 0;
    if (separate && (o->fused != NULL || shaped))
        return conflict(command, o->fused != NULL ? "--qkv" : "--shape", "-q, -k and -v");
    if (o->mode == ATTENTION_BENCH && !shaped)
        return missing(command, "--shape B,HQ,HKV,SQ,SKV,D,DV");
    if (o->mode == ATTENTION_EXPLAIN && (o->verify || o->repeat > 0))
        return conflict(command, o->verify ? "--verify" : "--repeat", "explain, which computes nothing");
    if (o->mode == ATTENTION_BENCH && o->verify)
        return conflict(command, "--verify", "bench, which writes no result: see clattn attention");
    if (o->fused != NULL && shaped)
        return conflict(command, "--qkv", "--shape");
    if (o->fused == NULL && !shaped && (q == NULL || k == NULL || v == NULL))
        return missing(command, q == NULL ? "-q Q.npy" : k == NULL ? "-k K.npy" : "-v V.npy");
    if (o->mode == ATTENTION_RUN && o->result[RESULT_OUTPUT] == NULL)
        return missing(command, "-o OUT.npy");
    if (o->fused != NULL && o->layout == NULL)
        return missing(command, "--layout of --qkv");
    if (o->layout != NULL && !order_valid(o->layout, o->fused != NULL))
        return complain(TOOL_BAD_INPUT,
                        "%s: --layout '%s' is not valid, expected s and d, with b and h unless there is only "
                        "one of them, or s and e, with b "
                        "unless there is only one, in any order%s",
                        command, o->layout,
                        o->fused != NULL ? ", and a 3, which may be missing beside an e" : "; a 3 is for --qkv");
    bool joined = o->layout != NULL && order_find(o->layout, 'e') >= 0;
    if (joined && o->heads[0] == 0)
        return missing(command, "--heads, which a layout with e needs,");
    if (!joined && o->heads[0] != 0)
        return complain(TOOL_BAD_INPUT, "%s: --heads is for a --layout with e, found %s", command,
                        o->layout != NULL ? o->layout : "bhsd");
    if (joined && o->heads[0] % o->heads[1] != 0)
        return complain(TOOL_BAD_INPUT, "%s: --heads %zu,%zu: expected a divisor of %zu for the key heads", command,
                        o->heads[0], o->heads[1], o->heads[0]);
    return TOOL_DONE;
}

static int check_numbers(const char *command, const attention_options *o)
{
    if (o->softcap.given && !(o->softcap.value > 0))
        return complain(TOOL_BAD_INPUT, "%s: --softcap %g is not valid, expected a positive number", command,
                        (double)o->softcap.value);
    if (o->dropout.given && !(o->dropout.value >= 0 && o->dropout.value < 1))
        return complain(TOOL_BAD_INPUT, "%s: --dropout %g is not valid, expected at least 0 and below 1", command,
                        (double)o->dropout.value);
    if (o->dropout_offset.value > UINT32_MAX)
        return complain(TOOL_BAD_INPUT, "%s: --dropout-offset %llu is not valid, expected 0 to 4294967295", command,
                        (unsigned long long)o->dropout_offset.value);
    return TOOL_DONE;
}

static int check_company(const char *command, const attention_options *o)
{
    const char *key_starts = o->input[INPUT_KEY_STARTS], *vector = o->input[INPUT_VECTOR];
    bool packed = o->input[INPUT_QUERY_STARTS] != NULL || key_starts != NULL;
    const struct {
        bool wrong;
        const char *option, *other;
    } conflicts[] = {
        {o->input[INPUT_POSITIONS] != NULL && o->align >= 0, "--query-offset", "--align"},
        {o->kv_int8 && o->kv_int4, "--kv-int8", "--kv-int4"},
        {(o->kv_int8 || o->kv_int4) && o->dtype == 3, "--dtype f64", "--kv-int8 and --kv-int4"},
        {o->ring && o->page_size > 0, "--ring", "--page-size"},
        {o->ring && key_starts != NULL, "--ring", "--key-starts"},
        {o->page_size > 0 && key_starts != NULL, "--page-size", "--key-starts"},
        {o->result[RESULT_SCORES] != NULL && packed, "--scores", "--query-starts and --key-starts"},
        {o->result[RESULT_SCORES] != NULL && o->ring, "--scores", "--ring"},
        {o->heat.files.count > 0 && packed, "--attention", "--query-starts and --key-starts"},
        {o->heat.files.count > 0 && o->ring, "--attention", "--ring"},
    };
    for (size_t i = 0; i < sizeof conflicts / sizeof conflicts[0]; i++)
        if (conflicts[i].wrong)
            return conflict(command, conflicts[i].option, conflicts[i].other);
    if (vector != NULL && o->score == CLATTN_SCORE_DOT)
        return complain(TOOL_BAD_INPUT, "%s: --vector is for --score additive", command);
    if (vector == NULL && o->score == CLATTN_SCORE_ADDITIVE)
        return missing(command, "--vector V.npy, which --score additive needs,");
    if ((o->seed.given || o->dropout_offset.given) && !o->dropout.given)
        return complain(TOOL_BAD_INPUT, "%s: %s is for --dropout", command,
                        o->seed.given ? "--seed" : "--dropout-offset");
    if (o->align >= 0 && !o->causal && !o->window.given && o->input[INPUT_ALIBI] == NULL && o->score_mod == NULL &&
        o->mask_mod == NULL)
        return complain(TOOL_BAD_INPUT, "%s: --align is for --causal, --window, --alibi, --score-mod and --mask-mod",
                        command);
    if (o->score_mod_grad != NULL && (!o->backward || o->score_mod == NULL))
        return complain(TOOL_BAD_INPUT, "%s: --score-mod-grad is for --backward with --score-mod", command);
    if (o->kv_group > 0 && !o->kv_int8 && !o->kv_int4)
        return complain(TOOL_BAD_INPUT, "%s: --kv-group is for --kv-int8 and --kv-int4", command);
    if ((o->user.count > 0 || o->user_scalar.count > 0) && o->score_mod == NULL && o->mask_mod == NULL)
        return complain(TOOL_BAD_INPUT, "%s: --user and --user-scalar are for --score-mod and --mask-mod", command);
    return TOOL_DONE;
}

int attention_options_parse(attention_mode mode, int argc, char **argv, attention_options *options)
{
    const option_table *table = &tables[mode];
    *options = (attention_options){.mode = mode, .align = -1, .dtype = -1};
    int status;
    TOOL_TRY(options_parse(table, argc, argv, options));
    TOOL_TRY(check_sources(table->command, options));
    TOOL_TRY(check_numbers(table->command, options));
    TOOL_TRY(check_company(table->command, options));
    TOOL_TRY(heatmap_options_check(table->command, &options->heat));
fail:
    return status;
}
