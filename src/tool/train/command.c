/* clattn train: a model of texts from nothing. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"
#include "tool/cli/report.h"
#include "tool/tool.h"
#include "tool/train/initial.h"
#include "tool/train/options.h"
#include "tool/train/parts.h"

#define HELD_OUT 100 /* of so many pairs one is for validation */

typedef struct training {
    const train_options *options;
    int argc;
    char **argv;
    tool_world world;
    text_model model;
    train_lines lines, checked; /* of training and validation */
    train_items items, checks;
    train_batches batches, check_batches;
    train_checkpoint checkpoint;
    train_history history;
    tool_device device;
    train_engine engine;
    train_rule rule;
    train_run run;
} training;

/* ---- the model's folder ---- */

static bool has_file(const char *folder, const char *name)
{
    model_path path;
    return model_path_in(folder, name, &path) && os_look_at(path.text) == OS_PATH_FILE;
}

/* Makes folder, vocabulary and configuration of a new model. */
static int make_model(const training *t)
{
    const char *folder = t->options->out;
    const char *const files[] = {t->lines.path[1], t->lines.path[0]};
    model_path path;
    vocabulary *made = NULL;
    text_shape shape;
    int status;
    TOOL_TRY(train_options_shape(t->options, &shape));
    if (has_file(folder, TEXT_MODEL_WEIGHTS) || has_file(folder, TEXT_MODEL_CHECKPOINT))
        return complain(TOOL_BAD_INPUT, "%s: has a model already; --resume goes on with it", folder);
    if (!os_make_folder(folder))
        return complain(TOOL_BAD_INPUT, "%s: the folder cannot be made: %s", folder, strerror(errno));
    if (!model_path_in(folder, TEXT_MODEL_VOCABULARY, &path))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    progress_begin("making the vocabulary");
    status = vocabulary_train(files, files[1] == NULL ? 1 : 2, shape.vocabulary, path.text);
    progress_end();
    TOOL_TRY(status);
    TOOL_TRY(vocabulary_open(path.text, &made));
    shape.vocabulary = vocabulary_size(made);
    status = text_shape_write(folder, &shape);
fail:
    vocabulary_close(made);
    return status;
}

/* Refuses options of another shape than that of the model that is gone on with. */
static int match_shape(const train_options *o, const text_shape *shape)
{
    const struct {
        const char *name;
        size_t given, has;
    } numbers[] = {{"--layers", o->layers, shape->decoder_layers},
                   {"--d-model", o->d_model, shape->d_model},
                   {"--heads", o->heads, shape->heads},
                   {"--d-ff", o->d_ff, shape->d_ff},
                   {"--length", o->length, shape->target_length}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].given != 0 && numbers[i].given != numbers[i].has)
            return complain(TOOL_BAD_INPUT, "%s: has %s %zu, found %s %zu", o->out, numbers[i].name, numbers[i].has,
                            numbers[i].name, numbers[i].given);
    return TOOL_DONE;
}

/* Reads the model's files, and the checkpoint. */
static int open_model(training *t)
{
    const train_options *o = t->options;
    int status;
    if (o->resume)
        TOOL_TRY(train_checkpoint_open(o->out, &t->checkpoint, &t->history));
    TOOL_TRY(text_model_open(o->out, &t->model));
    TOOL_TRY(match_shape(o, &t->model.shape));
    const bool text = o->text != NULL;
    if (text != (t->model.shape.kind == TEXT_KIND_TEXT))
        status = complain(TOOL_BAD_INPUT, "%s: is a model of %s, expected %s", o->out, text ? "translations" : "texts",
                          text ? "--source and --target" : "--text");
fail:
    return status;
}

/* ---- data ---- */

static int read_lines(training *t)
{
    const train_options *o = t->options;
    const char *valid = o->text != NULL ? o->valid_text : o->valid_target;
    int status;
    TOOL_TRY(train_lines_read(o->source, o->text != NULL ? o->text : o->target, &t->lines));
    if (valid != NULL)
        status = train_lines_read(o->valid_source, valid, &t->checked);
fail:
    return status;
}

static int cut_lines(training *t)
{
    const bool own = t->checked.side[1].count > 0;
    const size_t kept = own ? HELD_OUT : HELD_OUT - 1;
    const char *path = t->lines.path[1];
    int status;
    TOOL_TRY(train_items_cut(&t->lines, &t->model, 0, kept, HELD_OUT, &t->items));
    TOOL_TRY(own ? train_items_cut(&t->checked, &t->model, 0, 1, 1, &t->checks)
                 : train_items_cut(&t->lines, &t->model, HELD_OUT - 1, HELD_OUT, HELD_OUT, &t->checks));
    if (t->items.count == 0)
        return complain(TOOL_BAD_INPUT, "%s: all pairs have more pieces than the model takes, %zu", path,
                        t->model.shape.target_length);
    train_lines_release(&t->lines);
    train_lines_release(&t->checked);
fail:
    return status;
}

/* Refuses to go on with another seed, other batches or other data. */
static int match(const training *t, uint64_t data)
{
    const train_options *o = t->options;
    const train_history *h = &t->history;
    const char *path = t->checkpoint.path.text;
    if (o->seed.given && o->seed.value != h->seed)
        return complain(TOOL_BAD_INPUT, "%s: has seed %llu, found --seed %llu", path, (unsigned long long)h->seed,
                        (unsigned long long)o->seed.value);
    if (h->batch != train_options_tokens(o) || h->parts != t->rule.parts)
        return complain(
            TOOL_BAD_INPUT, "%s: has --batch-tokens %llu --accumulate %llu, found --batch-tokens %zu --accumulate %zu",
            path, (unsigned long long)h->batch, (unsigned long long)h->parts, train_options_tokens(o), t->rule.parts);
    if (h->data != data)
        return complain(TOOL_BAD_INPUT, "%s: was trained or validated with other texts", path);
    return TOOL_DONE;
}

/* Decides how many batches a step has; each row of ranks gets as many. */
static int divide(training *t)
{
    const train_options *o = t->options;
    const size_t rows = world_workers(&t->world);
    if (o->parts == 0)
        t->rule.parts = o->resume ? (size_t)t->history.parts : rows;
    if (t->rule.parts % rows != 0)
        return complain(TOOL_BAD_INPUT, "train: --accumulate is %zu, expected a multiple of %zu, the number of %s",
                        t->rule.parts, rows, t->world.columns > 1 ? "models on all ranks" : "ranks");
    return TOOL_DONE;
}

static int order_data(training *t)
{
    const text_shape *shape = &t->model.shape;
    const uint64_t data = train_items_digest(&t->items, &t->checks);
    const size_t tokens = train_options_tokens(t->options);
    const size_t longest = size_max(shape->source_length, shape->target_length);
    int status;
    TOOL_TRY(divide(t));
    if (t->options->resume)
        TOOL_TRY(match(t, data));
    else
        t->history =
            (train_history){.seed = t->options->seed.value, .data = data, .batch = tokens, .parts = t->rule.parts};
    t->rule.seed = t->history.seed;
    t->engine.elements = size_max(tokens, longest);
    TOOL_TRY(train_batches_make(&t->items, tokens, longest, true, t->rule.seed, &t->batches));
    status = train_batches_make(&t->checks, tokens, longest, false, 0, &t->check_batches);
fail:
    return status;
}

/* ---- the device ---- */

static int open_engine(training *t)
{
    const train_options *o = t->options;
    train_initial initial = {.shape = &t->model.shape, .seed = t->rule.seed};
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    train_engine *e = &t->engine;
    int status;
    e->device = &t->device;
    e->shape = &t->model.shape;
    e->dtype = train_options_dtype(o);
    e->dropout = o->dropout.given ? o->dropout.value : 0.1f;
    e->label_smoothing = o->label_smoothing.given ? o->label_smoothing.value : 0.1f;
    e->recompute = o->recompute;
    source.lookup = o->resume ? clattn_safetensors_lookup : train_initial_lookup;
    source.user = o->resume ? (void *)t->checkpoint.file : &initial;
    TOOL_TRY(train_engine_open(e, &source));
    if (o->resume)
        TOOL_TRY(world_agree(&t->world, train_checkpoint_restore(&t->checkpoint, e)));
    train_checkpoint_close(&t->checkpoint);
fail:
    free(initial.memory);
    return status;
}

/* ---- the report ---- */

static int write_report(training *t)
{
    static const char *const ends[] = {"steps", "minutes", "patience", "signal"};
    const train_run *r = &t->run;
    const train_history *h = &t->history;
    const double loss = (double)h->losses.value[h->losses.count - 1];
    const char *solver = t->engine.plans > 0 ? clattn_plan_solver(t->engine.plan[0].plan) : "";
    /* The last validation may be none of those that the history counts. */
    const bool best_is_last = r->check_loss < (h->best_step > 0 ? h->best : (double)INFINITY);
    tool_report report = report_begin();
    report_device(&report, &t->device, solver);
    report_text(&report, "model", t->options->out);
    report_text(&report, "dtype", clattn_dtype_name(t->engine.dtype));
    report_count(&report, "parameters", train_whole_count(&t->engine));
    report_count(&report, "vocabulary", t->model.shape.vocabulary);
    report_count(&report, "texts", t->items.count);
    report_count(&report, "left_out", t->items.left_out + t->checks.left_out);
    report_text(&report, "ended_by", ends[r->end]);
    report_number(&report, "seconds", os_seconds() - t->rule.started);
    report_count(&report, "device_bytes",
                 clattn_transformer_weight_bytes(t->engine.model) + clattn_trainer_bytes(t->engine.trainer) +
                     t->engine.workspace_bytes);
    report_number(&report, "validation_loss", r->check_loss);
    report_number(&report, "best_validation_loss",
                  best_is_last       ? r->check_loss
                  : h->best_step > 0 ? h->best
                                     : (double)NAN);
    report_count(&report, "best_step", (size_t)(best_is_last ? h->step : h->best_step));
    report_count(&report, "ranks", (size_t)t->world.ranks);
    report_number(&report, "loss", loss);
    report_count(&report, "steps", (size_t)h->step);
    report_number(&report, "tokens_per_s", r->seconds > 0 ? (double)r->tokens / r->seconds : 0);
    return report_finish(&report, t->options->json);
}

static void warn_of_data(const training *t)
{
    char line[256];
    const size_t left_out = t->items.left_out + t->checks.left_out;
    if (t->checks.count == 0)
        device_log(NULL, CLATTN_LOG_LEVEL_WARNING,
                   t->checks.left_out > 0
                       ? "nothing is left for validation: all its pairs have too many pieces"
                       : "nothing is for validation: every 100th text would be, and there are fewer");
    if (left_out == 0)
        return;
    snprintf(line, sizeof line, "%zu of %zu pairs have more than %zu pieces on a side, and are left out (--length)",
             left_out, left_out + t->items.count + t->checks.count, t->model.shape.target_length);
    device_log(NULL, CLATTN_LOG_LEVEL_WARNING, line);
}

static void release(training *t)
{
    train_engine_close(&t->engine);
    device_close(&t->device);
    train_checkpoint_close(&t->checkpoint);
    train_batches_release(&t->batches);
    train_batches_release(&t->check_batches);
    train_items_release(&t->items);
    train_items_release(&t->checks);
    train_lines_release(&t->lines);
    train_lines_release(&t->checked);
    train_history_release(&t->history);
    text_model_close(&t->model);
}

/* What a rank does before it needs the model's files, which the first one makes. */
static int prepare(training *t)
{
    const train_options *o = t->options;
    char *device = NULL;
    int status;
    TOOL_TRY(train_options_check(o));
    TOOL_TRY(world_divide(&t->world, o->tensor_parallel));
    t->rule = train_options_rule(o);
    t->rule.started = os_seconds();
    if (o->minutes.given)
        t->rule.until = t->rule.started + 60 * (double)o->minutes.value;
    TOOL_TRY(read_lines(t));
    TOOL_TRY(world_device(&t->world, o->device, &device));
    TOOL_TRY(device_open(device, &t->device)); /* before anything is written */
    if (!o->resume && t->world.rank == 0)
        status = make_model(t);
fail:
    free(device);
    return status;
}

static int read_model_and_data(training *t)
{
    int status;
    TOOL_TRY(open_model(t));
    TOOL_TRY(cut_lines(t));
    status = order_data(t);
fail:
    return status;
}

/* Compares all arguments with other ranks', but for the device, and the texts. */
static int compare(training *t)
{
    char texts[32];
    snprintf(texts, sizeof texts, "texts %016llx", (unsigned long long)t->history.data);
    return world_compare_arguments(&t->world, t->argc, t->argv, t->options->device, texts);
}

static int train(training *t)
{
    int status;
    TOOL_TRY(world_agree(&t->world, prepare(t)));
    TOOL_TRY(world_agree(&t->world, read_model_and_data(t)));
    TOOL_TRY(world_agree(&t->world, compare(t)));
    TOOL_TRY(open_engine(t));
    t->run = (train_run){.folder = t->options->out,
                         .rule = &t->rule,
                         .engine = &t->engine,
                         .history = &t->history,
                         .batches = &t->batches,
                         .checks = &t->check_batches};
    warn_of_data(t);
    TOOL_TRY(train_loop(&t->run));
    status = write_report(t);
fail:
    return status;
}

int cmd_train(int argc, char **argv)
{
    train_options options = {0};
    training t = {.options = &options, .argc = argc, .argv = argv};
    int status;
    TOOL_TRY(world_open(&t.world));
    TOOL_TRY(world_agree(&t.world, options_parse(&train_option_table, argc, argv, &options)));
    t.engine.world = &t.world;
    status = train(&t);
fail:;
    const bool interrupted = status == TOOL_DONE && t.run.end == TRAIN_END_SIGNAL;
    release(&t);
    world_close(&t.world, status);
    if (interrupted && fflush(stdout) == 0)
        os_end_by_signal();
    return status;
}
