/* clattn embed: texts to vectors by a sentence encoder, and a search by them. */
#include "tool/tool.h"

#ifdef CLATTN_UTF8PROC

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/heatmap/options.h"
#include "tool/embed/sentence_map.h"
#include "tool/cli/options.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/report.h"
#include "tool/text/text_lines.h"
#include "tool/run/timing.h"

#define PORTION 1024 /* texts of standard input or of a file that are in work at once */

typedef struct embed_options {
    const char *search, *solver, *device;
    size_t top, max_tokens, repeat;
    int32_t dtype;
    option_list maps;
    bool json;
    const char *operands[]; /* the model's folder, the texts */
} embed_options;

#define FIELD(name) offsetof(embed_options, name)

static const option_row rows[] = {
    {"--search", OPTION_TEXT, FIELD(search), "FILE",
     .help = "instead of the vector, FILE's lines with their cosine to the text, the nearest first"},
    {"--top", OPTION_COUNT, FIELD(top), "N", .help = "with --search, the first N lines; default all"},
    {"--max-tokens", OPTION_COUNT, FIELD(max_tokens), "N",
     .help = "the first N tokens of a text count, 2 and more; default what the model says"},
    HEATMAP_OPTION_ROW(embed_options, maps, "which tokens of each TEXT attend to which"),
    OPTION_ROW_DTYPE(embed_options, "of the model's weights and of what its layers store"),
    OPTION_ROW_SOLVER(embed_options),
    OPTION_ROW_DEVICES(embed_options, "texts"),
    OPTION_ROW_REPEAT(embed_options),
    OPTION_ROW_JSON(embed_options),
    OPTION_ROW_END,
};

static const option_table table = {.command = "embed",
                                   .summary = "A unit vector a line for each TEXT, or for each line of standard input.",
                                   .operands = "MODEL_DIR [TEXT ...]",
                                   .operand_offset = offsetof(embed_options, operands),
                                   .operand_least = 1,
                                   .rows = rows};

typedef struct embedding {
    const embed_options *options;
    sentence_model model;
    tool_pool pool;
    sentence_counts counts;
    timing times;
    sentence_text *texts; /* of the portion in work */
    float *vectors;
    size_t capacity; /* of both */
    json_t *result;  /* with --json: the vectors, or the lines found */
    sentence_map map;
} embedding;

static bool make_room(embedding *e, size_t count)
{
    if (count <= e->capacity)
        return true;
    free(e->texts);
    free(e->vectors);
    e->texts = malloc(count * sizeof *e->texts);
    e->vectors = malloc(count * e->model.stack.d_model * sizeof *e->vectors);
    e->capacity = e->texts != NULL && e->vectors != NULL ? count : 0;
    return e->capacity != 0;
}

typedef struct portion {
    embedding *embedding;
    size_t count;
} portion;

static int encode_again(void *user)
{
    portion *p = user;
    sentence_counts ignored = {0};
    return sentence_encode(&p->embedding->model, p->embedding->texts, p->count, p->embedding->vectors, &ignored);
}

/* e->texts to e->vectors; timed again if that is wanted. */
static int encode(embedding *e, size_t count)
{
    portion p = {e, count};
    timing_rule rule = {.repeat = e->options->repeat, .warm_up = 1};
    int status = sentence_encode(&e->model, e->texts, count, e->vectors, &e->counts);
    if (status == TOOL_DONE && e->options->repeat > 0 && count > 0)
        status = timing_measure(&rule, "embed", encode_again, &p, &e->times);
    return status;
}

static int out_of_memory(void)
{
    return complain(TOOL_FAILED, "embed: out of memory for the texts");
}

/* One vector: a line, or an array of the report's. */
static int deliver(embedding *e, const float *vector)
{
    const size_t d_model = e->model.stack.d_model;
    if (e->result == NULL) {
        for (size_t i = 0; i < d_model; i++)
            printf(i == 0 ? "%.9g" : " %.9g", (double)vector[i]);
        putchar('\n');
        return TOOL_DONE;
    }
    json_t *numbers = json_array();
    bool added = numbers != NULL;
    for (size_t i = 0; added && i < d_model; i++)
        added = json_array_append_new(numbers, json_real((double)vector[i])) == 0;
    added = json_array_append_new(e->result, numbers) == 0 && added;
    return added ? TOOL_DONE : out_of_memory();
}

static size_t count_texts(const embed_options *options)
{
    size_t count = 0;
    while (options->operands[1 + count] != NULL)
        count++;
    return count;
}

/* The texts of the command line from `first` on, into e->texts. */
static bool take_operands(embedding *e, size_t first, size_t count)
{
    if (!make_room(e, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *text = e->options->operands[1 + first + i];
        e->texts[i] = (sentence_text){text, strlen(text)};
    }
    return true;
}

/* Lines `first` … of those read, into e->texts. */
static bool take_lines(embedding *e, const text_lines *lines, size_t first, size_t count)
{
    if (!make_room(e, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        const text_line *line = &lines->line[first + i];
        e->texts[i] = (sentence_text){lines->text.text + line->begin, line->bytes};
    }
    return true;
}

/* The vectors of e->texts. */
static int embed_texts(embedding *e, size_t count)
{
    int status;
    TOOL_TRY(encode(e, count));
    for (size_t i = 0; i < count; i++)
        TOOL_TRY(deliver(e, e->vectors + i * e->model.stack.d_model));
fail:
    return status;
}

static int embed_operands(embedding *e)
{
    const size_t count = count_texts(e->options);
    int status = TOOL_DONE;
    for (size_t first = 0; first < count; first += PORTION) {
        size_t some = size_min(count - first, PORTION);
        TOOL_TRY(take_operands(e, first, some) ? embed_texts(e, some) : out_of_memory());
    }
fail:
    return status;
}

static int embed_lines(embedding *e)
{
    text_lines lines = {.file = stdin, .name = "standard input"};
    int status = TOOL_DONE;
    do {
        TOOL_TRY(text_lines_read(&lines, PORTION, false, false));
        TOOL_TRY(take_lines(e, &lines, 0, lines.count) ? embed_texts(e, lines.count) : out_of_memory());
    } while (lines.count > 0);
fail:
    text_lines_release(&lines);
    return status;
}

/* ---- --attention ---- */

static heatmap map_of(const embedding *e, char *title, size_t bytes)
{
    snprintf(title, bytes, "Self-attention of %s", e->model.folder);
    return (heatmap){title, e->map.count, e->map.parts};
}

/* Before a device is looked for. */
static int begin_maps(embedding *e)
{
    const size_t count = count_texts(e->options);
    char title[512];
    if (e->options->maps.count == 0)
        return TOOL_DONE;
    if (!take_operands(e, 0, count))
        return out_of_memory();
    int status = sentence_tokenizer(&e->model);
    if (status == TOOL_DONE)
        status = sentence_map_begin(&e->model, e->texts, count, &e->map);
    if (status != TOOL_DONE)
        return status;
    const heatmap map = map_of(e, title, sizeof title);
    return heatmap_files_accept(&e->options->maps, &map);
}

static int write_maps(embedding *e)
{
    char title[512];
    if (e->map.count == 0)
        return TOOL_DONE;
    int status = sentence_map_compute(&e->model, &e->map);
    const heatmap map = map_of(e, title, sizeof title);
    return status == TOOL_DONE ? heatmap_files_store(&e->options->maps, &map) : status;
}

/* ---- --search ---- */

typedef struct match {
    double score;
    size_t line; /* which of those read */
} match;

static int nearer_first(const void *left, const void *right)
{
    const match *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->line > b->line ? 1 : -1;
}

static int deliver_match(embedding *e, const text_lines *lines, const match *found)
{
    const text_line *line = &lines->line[found->line];
    const char *text = lines->text.text + line->begin;
    if (e->result == NULL) {
        printf("%.6f\t", found->score);
        fwrite(text, 1, line->bytes, stdout);
        putchar('\n');
        return TOOL_DONE;
    }
    json_t *object =
        json_pack("{s:f, s:I, s:o}", "score", found->score, "line", (json_int_t)line->number, "text", json_text(text));
    return json_array_append_new(e->result, object) == 0 ? TOOL_DONE : out_of_memory();
}

/* The cosines of the lines that were read with the query, whose vector is of length 1 as theirs are. */
static int score_lines(embedding *e, const text_lines *lines, const float *query, match *matches)
{
    const size_t d_model = e->model.stack.d_model;
    int status = TOOL_DONE;
    for (size_t first = 0; first < lines->count; first += PORTION) {
        size_t some = size_min(lines->count - first, PORTION);
        TOOL_TRY(take_lines(e, lines, first, some) ? encode(e, some) : out_of_memory());
        for (size_t i = 0; i < some; i++) {
            double score = 0.0;
            for (size_t k = 0; k < d_model; k++)
                score += (double)query[k] * (double)e->vectors[i * d_model + k];
            matches[first + i] = (match){score, first + i};
        }
    }
fail:
    return status;
}

static int search(embedding *e, text_lines *lines)
{
    const size_t d_model = e->model.stack.d_model;
    float *query = malloc(d_model * sizeof *query);
    match *matches = malloc((lines->count + 1) * sizeof *matches);
    size_t top = e->options->top == 0 ? lines->count : size_min(e->options->top, lines->count);
    int status = TOOL_DONE;
    if (query == NULL || matches == NULL || !take_operands(e, 0, 1))
        TOOL_TRY(out_of_memory());
    TOOL_TRY(sentence_encode(&e->model, e->texts, 1, e->vectors, &e->counts));
    memcpy(query, e->vectors, d_model * sizeof *query);
    TOOL_TRY(score_lines(e, lines, query, matches));
    qsort(matches, lines->count, sizeof *matches, nearer_first);
    for (size_t i = 0; i < top; i++)
        TOOL_TRY(deliver_match(e, lines, &matches[i]));
fail:
    free(query);
    free(matches);
    return status;
}

/* ---- the command ---- */

static int read_file(const char *path, text_lines *lines)
{
    *lines = (text_lines){.file = os_open_for_reading(path), .name = path};
    if (lines->file == NULL)
        return complain(TOOL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int status = text_lines_read(lines, 0, false, true);
    fclose(lines->file);
    return status;
}

static void warn_of_cuts(const embedding *e)
{
    char line[256];
    const sentence_counts *counts = &e->counts;
    if (counts->cut == 0)
        return;
    snprintf(line, sizeof line,
             "%zu of %zu texts have more than %zu tokens (text %zu has %zu): only their beginnings count", counts->cut,
             counts->texts, e->model.most_tokens, counts->first_cut + 1, counts->first_cut_tokens);
    device_log(NULL, CLATTN_LOG_LEVEL_WARNING, line);
}

static int write_report(embedding *e)
{
    json_t *result = e->result;
    e->result = NULL;
    if (!e->options->json)
        return TOOL_DONE;
    tool_report report = report_begin();
    report_device(&report, &e->pool.member[0].device, sentence_solver(&e->model));
    pool_report(&e->pool, &report);
    report_text(&report, "model", e->model.folder);
    report_text(&report, "dtype", clattn_dtype_name(e->model.dtype));
    report_count(&report, "size", e->model.stack.d_model);
    report_count(&report, "texts", e->counts.texts);
    report_count(&report, "tokens", e->counts.tokens);
    report_count(&report, "unknown_words", e->counts.unknown);
    report_count(&report, "cut_texts", e->counts.cut);
    if (e->times.runs > 0)
        report_timing(&report, &e->times);
    report_json(&report, e->options->search != NULL ? "lines" : "embeddings", result);
    return report_finish(&report, true);
}

static int check(const embed_options *options)
{
    if (options->search != NULL && (options->operands[1] == NULL || options->operands[2] != NULL))
        return complain(TOOL_BAD_INPUT, "embed: --search takes one TEXT, found %s",
                        options->operands[1] == NULL ? "none" : "more");
    if (options->search == NULL && options->top != 0)
        return complain(TOOL_BAD_INPUT, "embed: --top is for --search");
    if (options->max_tokens == 1)
        return complain(TOOL_BAD_INPUT, "embed: --max-tokens '1' is not valid, expected 2 or more");
    if (options->maps.count > 0 && (options->search != NULL || options->operands[1] == NULL))
        return complain(TOOL_BAD_INPUT, "embed: --attention draws what is given as TEXT, found %s",
                        options->search != NULL ? "--search" : "none");
    return heatmap_files_check(&options->maps, NULL, 0);
}

static int run(const void *fields)
{
    const embed_options *options = fields;
    embedding e = {.options = options};
    text_lines lines = {0};
    int status;
    TOOL_TRY(check(options));
    TOOL_TRY(sentence_open(options->operands[0], options->max_tokens, &e.model));
    TOOL_TRY(begin_maps(&e));
    if (options->search != NULL)
        TOOL_TRY(read_file(options->search, &lines));
    TOOL_TRY(pool_open("embed", options->device, &e.pool));
    e.model.solver = options->solver;
    e.model.dtype = option_dtypes[options->dtype];
    TOOL_TRY(sentence_load(&e.model, &e.pool));
    if (options->json && (e.result = json_array()) == NULL)
        TOOL_TRY(out_of_memory());
    TOOL_TRY(options->search != NULL        ? search(&e, &lines)
             : options->operands[1] != NULL ? embed_operands(&e)
                                            : embed_lines(&e));
    TOOL_TRY(write_maps(&e));
    TOOL_TRY(write_report(&e));
    warn_of_cuts(&e);
fail:
    json_decref(e.result);
    free(e.texts);
    free(e.vectors);
    text_lines_release(&lines);
    sentence_map_release(&e.map);
    sentence_close(&e.model);
    pool_close(&e.pool);
    return status;
}

int cmd_embed(int argc, char **argv)
{
    return options_run(table, sizeof(embed_options), argc, argv, run);
}

#else

int cmd_embed(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return complain(TOOL_BAD_INPUT, "embed: this clattn was built without utf8proc (-Dutf8proc=enabled)");
}

#endif
