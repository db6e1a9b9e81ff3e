#include "tool/train/options.h"

#include "base/size.h"

#define FIELD(name) offsetof(train_options, name)

static const char *const presets[] = {"tiny", "base", NULL};
static const char *const schedules[] = {"paper", "cosine", NULL};
static const char *const dtypes[] = {"f32", "bf16", NULL};

/* What depends on the preset unless an option says otherwise. */
static const struct {
    size_t warmup, tokens;
    float factor;
} defaults[] = {{400, 2048, 0.5f}, {4000, 4096, 1.0f}};

static const option_row rows[] = {
    {"--source", OPTION_TEXT, FIELD(source), "FILE", .help = "texts to translate, a line each"},
    {"--target", OPTION_TEXT, FIELD(target), "FILE", .help = "their translations, as many lines"},
    {"--text", OPTION_TEXT, FIELD(text), "FILE",
     .help = "in place of both, texts to learn to write, a line each; lines that are too long are cut"},
    {"--out", OPTION_TEXT, FIELD(out), "MODEL", .help = "the folder that is made", .required = true},
    {"--valid-source", OPTION_TEXT, FIELD(valid_source), "FILE",
     .help =
         "with --valid-target, pairs for validation; default every 100th pair, with which the model is not trained"},
    {"--valid-target", OPTION_TEXT, FIELD(valid_target), "FILE", .help = "their translations"},
    {"--valid-text", OPTION_TEXT, FIELD(valid_text), "FILE", .help = "the same for --text"},
    {"--resume", OPTION_FLAG, FIELD(resume),
     .help = "go on from MODEL's checkpoint; with the same options and files as if there had been no end"},
    {"--steps", OPTION_COUNT, FIELD(steps), "N", .help = "end after step N; default 100000"},
    {"--minutes", OPTION_FLOAT, FIELD(minutes), "M", .help = "end after M minutes, if N is not reached before"},
    {"--validate-every", OPTION_COUNT, FIELD(every), "N",
     .help = "validate and keep a checkpoint each N steps; default 500"},
    {"--patience", OPTION_COUNT, FIELD(patience), "N",
     .help = "end after N validations without a better loss; default 10"},
    {"--seed", OPTION_WHOLE, FIELD(seed), "N",
     .help = "of the first weights, the order of the texts and dropout; default 0, or the checkpoint's"},
    {"--preset", OPTION_CHOICE, FIELD(preset), "NAME",
     .help = "tiny (default: 3 layers, or 4 with --text, of 256 numbers) or base (the paper's: 6 layers of 512)",
     .choices = presets},
    {"--layers", OPTION_COUNT, FIELD(layers), "N", .help = "another number than the preset's, as all that follow",
     .count = 1024},
    {"--d-model", OPTION_COUNT, FIELD(d_model), "N", .help = "numbers of a vector between layers", .count = 65536},
    {"--heads", OPTION_COUNT, FIELD(heads), "N", .help = "heads of attention, a divisor of it", .count = 65536},
    {"--d-ff", OPTION_COUNT, FIELD(d_ff), "N", .help = "numbers inside a feed-forward network", .count = 1 << 20},
    {"--vocabulary", OPTION_COUNT, FIELD(vocabulary), "N", .help = "pieces of words at most", .count = VOCABULARY_MOST},
    {"--length", OPTION_COUNT, FIELD(length), "N", .help = "pieces of a text at most; longer pairs are left out",
     .count = TEXT_MODEL_MOST_TOKENS},
    {"--batch-tokens", OPTION_COUNT, FIELD(batch_tokens), "N",
     .help = "pieces of a batch's longer sides, padding included; default 2048, base 4096", .count = 1 << 24},
    {"--accumulate", OPTION_COUNT, FIELD(parts), "N",
     .help = "add up the gradients of N batches for a step; default 1, or one for each model of mpirun's ranks, or the "
             "checkpoint's",
     .count = TRAIN_MOST_PARTS},
    {"--learning-rate", OPTION_FLOAT, FIELD(learning_rate), "F",
     .help = "F * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) is the rate of a step; default 0.5, base 1"},
    {"--warmup", OPTION_COUNT, FIELD(warmup), "N", .help = "steps until the rate is highest; default 400, base 4000"},
    {"--schedule", OPTION_CHOICE, FIELD(schedule), "NAME",
     .help = "how the rate falls after that: paper (default: as above) or cosine (to 0 at the last step)",
     .choices = schedules},
    {"--dropout", OPTION_FLOAT, FIELD(dropout), "P", .help = "the probability to drop a number; default 0.1"},
    {"--label-smoothing", OPTION_FLOAT, FIELD(label_smoothing), "P", .help = "default 0.1; validation has none"},
    {"--clip", OPTION_FLOAT, FIELD(clip), "N", .help = "the most that the gradients' norm may be; default 1, 0: any"},
    {"--weight-decay", OPTION_FLOAT, FIELD(weight_decay), "N", .help = "AdamW's; default 0"},
    {"--tensor-parallel", OPTION_COUNT, FIELD(tensor_parallel), "N",
     .help = "each N ranks of mpirun have the model together, a part of each layer on each device"},
    {"--recompute", OPTION_FLAG, FIELD(recompute), .help = "compute layers twice, which takes less memory"},
    {"--dtype", OPTION_CHOICE, FIELD(dtype), "TYPE",
     .help = "f32 (default), or bf16 with float32 parameters behind it; the files are float32", .choices = dtypes},
    OPTION_ROW_RANKS_DEVICES(train_options),
    OPTION_ROW_JSON(train_options),
    OPTION_ROW_END,
};

const option_table train_option_table = {
    .command = "train", .summary = "A model that translates, or writes texts, trained from nothing.", .rows = rows};

static int check_files(const train_options *o)
{
    const bool pair = o->source != NULL && o->target != NULL, any = o->source != NULL || o->target != NULL;
    if (o->text != NULL ? any : !pair)
        return complain(TOOL_BAD_INPUT, "train: expected --source and --target, or --text alone");
    const bool valid_pair = o->valid_source != NULL || o->valid_target != NULL;
    if (valid_pair && (o->valid_source == NULL || o->valid_target == NULL))
        return complain(TOOL_BAD_INPUT, "train: --valid-source and --valid-target are given together");
    if (o->text != NULL ? valid_pair : o->valid_text != NULL)
        return complain(TOOL_BAD_INPUT, "train: %s is for %s", o->text != NULL ? "--valid-source" : "--valid-text",
                        o->text != NULL ? "--source" : "--text");
    return TOOL_DONE;
}

/* Refuses a value that is not from `least` to below `limit`, both of which are fine as text. */
static int check_range(const char *name, const option_float *option, float least, float limit, const char *expected)
{
    if (!option->given || (option->value >= least && option->value < limit))
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "train: %s '%g' is not valid, expected %s", name, (double)option->value, expected);
}

int train_options_check(const train_options *o)
{
    const struct {
        const char *name;
        const option_float *option;
        float least, limit;
        const char *expected;
    } ranges[] = {
        {"--minutes", &o->minutes, 1e-6f, 1e6f, "a positive number"},
        {"--learning-rate", &o->learning_rate, 0, 1e6f, "0 or more"},
        {"--dropout", &o->dropout, 0, 1, "0 or more and less than 1"},
        {"--label-smoothing", &o->label_smoothing, 0, 1, "0 or more and less than 1"},
        {"--clip", &o->clip, 0, 1e30f, "0 or more"},
        {"--weight-decay", &o->weight_decay, 0, 1e6f, "0 or more"},
    };
    int status;
    TOOL_TRY(check_files(o));
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        TOOL_TRY(check_range(ranges[i].name, ranges[i].option, ranges[i].least, ranges[i].limit, ranges[i].expected));
    if (o->schedule == TRAIN_SCHEDULE_COSINE && o->steps == 0)
        status =
            complain(TOOL_BAD_INPUT, "train: --schedule cosine needs --steps, because the rate is 0 at the last one");
fail:
    return status;
}

int train_options_shape(const train_options *o, text_shape *shape)
{
    text_shape_preset(presets[o->preset], o->text == NULL ? TEXT_KIND_TRANSLATION : TEXT_KIND_TEXT, shape);
    const bool translation = shape->kind == TEXT_KIND_TRANSLATION;
    const struct {
        size_t *field, value;
    } changes[] = {{&shape->decoder_layers, o->layers},
                   {&shape->encoder_layers, translation ? o->layers : 0},
                   {&shape->d_model, o->d_model},
                   {&shape->heads, o->heads},
                   {&shape->d_ff, o->d_ff},
                   {&shape->vocabulary, o->vocabulary},
                   {&shape->target_length, o->length},
                   {&shape->source_length, translation ? o->length : 0}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (changes[i].value != 0)
            *changes[i].field = changes[i].value;
    if (shape->d_model % shape->heads != 0)
        return complain(TOOL_BAD_INPUT, "train: --d-model is %zu, expected a multiple of --heads, %zu", shape->d_model,
                        shape->heads);
    return TOOL_DONE;
}

static float given_or(const option_float *option, float otherwise)
{
    return option->given ? option->value : otherwise;
}

static size_t size_or(size_t value, size_t otherwise)
{
    return value != 0 ? value : otherwise;
}

train_rule train_options_rule(const train_options *o)
{
    return (train_rule){.steps = size_or(o->steps, 100000),
                        .warmup = size_or(o->warmup, defaults[o->preset].warmup),
                        .every = size_or(o->every, 500),
                        .patience = size_or(o->patience, 10),
                        .parts = size_or(o->parts, 1),
                        .schedule = (train_schedule)o->schedule,
                        .factor = given_or(&o->learning_rate, defaults[o->preset].factor),
                        .clip = given_or(&o->clip, 1),
                        .weight_decay = given_or(&o->weight_decay, 0)};
}

size_t train_options_tokens(const train_options *o)
{
    return size_or(o->batch_tokens, defaults[o->preset].tokens);
}

clattn_dtype train_options_dtype(const train_options *o)
{
    return o->dtype == 1 ? CLATTN_DTYPE_BF16 : CLATTN_DTYPE_F32;
}
