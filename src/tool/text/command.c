/* clattn translate and clattn generate: texts by a model that `clattn train` has made. */
#include "tool/tool.h"

#ifdef CLATTN_TEXT

#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "tool/cli/options.h"
#include "tool/cli/report.h"
#include "tool/heatmap/options.h"
#include "tool/text/text_map.h"
#include "tool/text/text_run.h"

typedef struct text_options {
    const char *solver, *device;
    size_t beams, tensor_parallel;
    int32_t dtype;
    option_list maps;
    bool json;
    const char *operands[]; /* the model's folder, the texts */
} text_options;

#define FIELD(name) offsetof(text_options, name)

/* What the two commands share. */
#define ROWS(what) \
    {"--beams", \
     OPTION_COUNT, \
     FIELD(beams), \
     "N", \
     .help = "beam search of N texts side by side, up to 32; default 1, the likeliest piece each time", \
     .count = TEXT_BEAMS_MOST}, \
        {"--attention", OPTION_LIST, FIELD(maps), "OUT.html|OUT.png", \
         .help = "draw " what ": a page to look around in, or a picture; may be given for both"}, \
        {"--tensor-parallel", OPTION_COUNT, FIELD(tensor_parallel), "N", \
         .help = "each N ranks of mpirun have the model together, a part of each layer on each device"}, \
        OPTION_ROW_DTYPE(text_options, "of the model's weights and of what its layers store"), \
        OPTION_ROW_SOLVER(text_options), OPTION_ROW_DEVICES(text_options, "texts"), OPTION_ROW_JSON(text_options), \
        OPTION_ROW_END

static const option_row translate_rows[] = {ROWS("what each piece of a translation sees of its TEXT")};
static const option_row generate_rows[] = {ROWS("which pieces of the text see which")};

static const text_command commands[] = {
    [TEXT_KIND_TRANSLATION] = {"translate", "generate", "translations", "source", TEXT_KIND_TRANSLATION},
    [TEXT_KIND_TEXT] = {"generate", "translate", "texts", "prompt", TEXT_KIND_TEXT},
};

static size_t count_operands(const text_options *options)
{
    size_t count = 0;
    while (options->operands[1 + count] != NULL)
        count++;
    return count;
}

/* Writes the heat maps; the texts have been written before, so a failure here does not lose them. */
static int write_maps(text_run *r, const option_list *files)
{
    text_map drawn = {0};
    char title[512];
    int status = TOOL_DONE;
    if (files->count == 0)
        return status;
    TOOL_TRY(text_map_begin(&r->model, r->items, r->count, &drawn));
    if (drawn.count == 0)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: nothing has come of the texts that it could draw", files->item[0]));
    snprintf(title, sizeof title, "%s-attention of %s", r->command->kind == TEXT_KIND_TEXT ? "Self" : "Cross",
             r->model.folder);
    const heatmap map = {title, drawn.count, drawn.parts};
    TOOL_TRY(heatmap_files_accept(files, &map));
    TOOL_TRY(text_map_compute(&r->generator, &drawn));
    TOOL_TRY(heatmap_files_store(files, &map));
fail:
    text_map_release(&drawn);
    return status;
}

static int write_report(text_run *r, const tool_pool *pool)
{
    const text_generator *g = &r->generator;
    tool_report report = report_begin();
    report_device(&report, &pool->member[0].device, text_generator_solver(g));
    pool_report(pool, &report);
    report_text(&report, "model", r->model.folder);
    report_text(&report, "dtype", clattn_dtype_name(g->dtype));
    report_count(&report, "beams", g->beams);
    report_count(&report, "texts", r->before + r->count);
    report_count(&report, "input_tokens", r->read);
    report_count(&report, "tokens", r->made);
    report_number(&report, "seconds", r->seconds);
    report_json(&report, r->command->result, r->result);
    r->result = NULL;
    return report_finish(&report, true);
}

static int check(const text_options *o, text_kind kind, size_t texts)
{
    if (kind == TEXT_KIND_TEXT && texts > 1)
        return complain(TOOL_BAD_INPUT, "generate: unexpected argument '%s', expected one PROMPT", o->operands[2]);
    if (kind == TEXT_KIND_TRANSLATION && texts == 0 && o->maps.count > 0)
        return complain(TOOL_BAD_INPUT, "translate: --attention draws what is given as TEXT, found none");
    if (o->tensor_parallel > 1 && o->maps.count > 0)
        return complain(TOOL_BAD_INPUT,
                        "--attention draws a model that is on one device; --tensor-parallel has it on several");
    return heatmap_files_check(&o->maps, NULL, 0);
}

/* Opens the model and cuts the texts of the command line; generate without one has an empty prompt. */
static int begin(const text_options *o, text_run *r)
{
    static const char *const nothing[] = {""};
    const size_t texts = count_operands(o);
    int status;
    TOOL_TRY(text_model_open(o->operands[0], &r->model));
    if (r->model.shape.kind != r->command->kind)
        return complain(TOOL_BAD_INPUT, "%s: is a model for 'clattn %s'", r->model.folder, r->command->other);
    if (r->world.rank > 0)
        return status;
    if (texts > 0)
        status = text_run_take(r, o->operands + 1, texts);
    else if (r->command->kind == TEXT_KIND_TEXT)
        status = text_run_take(r, nothing, 1);
fail:
    return status;
}

/* What a rank does before its texts; the first one has those of the command line. */
static int prepare(const text_options *options, text_run *r, tool_pool *pool)
{
    char *spec = NULL;
    int status;
    TOOL_TRY(check(options, r->command->kind, count_operands(options)));
    TOOL_TRY(world_divide(&r->world, options->tensor_parallel));
    TOOL_TRY(begin(options, r));
    TOOL_TRY(world_device(&r->world, options->device, &spec));
    TOOL_TRY(pool_open(r->command->name, spec, pool));
    r->generator = (text_generator){.model = &r->model,
                                    .solver = options->solver,
                                    .dtype = option_dtypes[options->dtype],
                                    .beams = size_max(options->beams, 1),
                                    .pool = pool,
                                    .world = &r->world};
    if (options->json && (r->result = json_array()) == NULL)
        status = complain(TOOL_FAILED, "%s: no memory for the texts", r->command->name);
fail:
    free(spec);
    return status;
}

static int run(const option_table *table, int argc, char **argv, text_kind kind)
{
    text_run r = {.command = &commands[kind]};
    tool_pool pool = {0};
    void *fields = NULL;
    int status;
    TOOL_TRY(world_open(&r.world));
    TOOL_TRY(world_agree(&r.world, options_make(*table, sizeof(text_options), argc, argv, &fields)));
    const text_options *options = fields;
    TOOL_TRY(world_agree(&r.world, prepare(options, &r, &pool)));
    status = world_compare_arguments(&r.world, argc, argv, options->device, r.command->name);
    TOOL_TRY(text_generator_open(&r.generator, status));
    if (r.world.rank > 0) {
        status = text_ranks_serve(&r.world, &r.generator);
        goto fail;
    }
    TOOL_TRY(r.count == 0 ? text_run_lines(&r) : text_run_portion(&r));
    TOOL_TRY(text_ranks_end(&r.world));
    TOOL_TRY(options->json ? write_report(&r, &pool) : TOOL_DONE);
    TOOL_TRY(write_maps(&r, &options->maps));
fail:
    json_decref(r.result);
    text_run_release(&r);
    text_generator_close(&r.generator);
    pool_close(&pool);
    text_model_close(&r.model);
    free(fields);
    world_close(&r.world, status);
    return status;
}

int cmd_translate(int argc, char **argv)
{
    const option_table table = {.command = "translate",
                                .summary = "A line for each TEXT, or for each line of standard input, in the other "
                                           "language of a model.",
                                .operands = "MODEL_DIR [TEXT ...]",
                                .operand_offset = FIELD(operands),
                                .operand_least = 1,
                                .rows = translate_rows};
    return run(&table, argc, argv, TEXT_KIND_TRANSLATION);
}

int cmd_generate(int argc, char **argv)
{
    const option_table table = {.command = "generate",
                                .summary = "PROMPT, or nothing, and how a model goes on with it.",
                                .operands = "MODEL_DIR [PROMPT]",
                                .operand_offset = FIELD(operands),
                                .operand_least = 1,
                                .rows = generate_rows};
    return run(&table, argc, argv, TEXT_KIND_TEXT);
}

#else

static int missing(const char *command)
{
    return complain(TOOL_BAD_INPUT,
                    "%s: this clattn was built without sentencepiece (-Dsentencepiece=enabled; Debian's package "
                    "libsentencepiece-dev)",
                    command);
}

int cmd_train(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return missing("train");
}

int cmd_translate(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return missing("translate");
}

int cmd_generate(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return missing("generate");
}

#endif