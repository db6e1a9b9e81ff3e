#include "tool/text/text_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/json_text.h"
#include "tool/cli/os_tool.h"
#include "tool/text/text_lines.h"
#include "tool/tool.h"

#define PORTION 1024 /* lines of standard input that a row of ranks has in work at once */

static int no_memory(const text_run *r)
{
    return complain(TOOL_FAILED, "%s: no memory for the texts", r->command->name);
}

void text_run_release(text_run *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->items[i].input.id);
        free(r->items[i].output.id);
    }
    free(r->items);
    free(r->texts);
    r->items = NULL;
    r->texts = NULL;
    r->count = 0;
}

/* Begins a portion, whose texts the caller then sets. */
static int begin_portion(text_run *r, size_t count)
{
    text_run_release(r);
    r->texts = calloc(size_max(count, 1), sizeof *r->texts);
    r->items = calloc(size_max(count, 1), sizeof *r->items);
    if (r->texts == NULL || r->items == NULL)
        return no_memory(r);
    r->count = count;
    return TOOL_DONE;
}

/* Cuts text `index` of the portion into pieces, and refuses one that is longer than the model takes.  A source without
 * anything in it stays without pieces. */
static int cut_text(text_run *r, size_t index)
{
    const text_shape *shape = &r->model.shape;
    const bool translation = shape->kind == TEXT_KIND_TRANSLATION;
    const size_t most = translation ? shape->source_length : shape->target_length;
    vocabulary_ids *ids = &r->items[index].input;
    int status = TOOL_DONE;
    if (!translation)
        TOOL_TRY(vocabulary_append(ids, VOCABULARY_BEGIN));
    TOOL_TRY(vocabulary_encode(r->model.vocabulary, r->texts[index].text, r->texts[index].bytes, ids));
    if (translation && ids->count > 0)
        TOOL_TRY(vocabulary_append(ids, VOCABULARY_END));
    if (ids->count > most)
        return complain(TOOL_BAD_INPUT, "%s: text %zu has %zu tokens, expected at most %zu, the longest %s of %s",
                        r->command->name, r->before + index + 1, ids->count, most, r->command->input, r->model.folder);
    r->read += ids->count;
fail:
    return status;
}

static int cut_texts(text_run *r)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < r->count && status == TOOL_DONE; i++)
        status = cut_text(r, i);
    return status;
}

/* The output as text, in *text, which the caller frees; of a prompt, both together. */
static int text_of(const text_run *r, const text_item *item, char **text)
{
    vocabulary_ids ids = {0};
    int status = TOOL_DONE;
    *text = NULL;
    for (size_t i = 0; r->command->kind == TEXT_KIND_TEXT && i < item->input.count; i++)
        TOOL_TRY(vocabulary_append(&ids, item->input.id[i]));
    for (size_t i = 0; i < item->output.count; i++)
        TOOL_TRY(vocabulary_append(&ids, item->output.id[i]));
    TOOL_TRY(vocabulary_decode(r->model.vocabulary, ids.id, ids.count, text));
fail:
    free(ids.id);
    return status;
}

/* Prints one text as one line: a piece of a vocabulary may be anything. */
static void print_line(const char *text)
{
    for (; *text != '\0'; text++)
        putchar((unsigned char)*text < ' ' || *text == 127 ? ' ' : *text);
    putchar('\n');
}

static int deliver(text_run *r, size_t index)
{
    const text_item *item = &r->items[index];
    char *text;
    int status = text_of(r, item, &text);
    if (status != TOOL_DONE)
        return status;
    r->made += item->output.count;
    if (r->result == NULL) {
        print_line(text);
    } else {
        json_t *object =
            json_pack("{s:o, s:o, s:I, s:f}", r->command->input, json_text(r->texts[index].text), "text",
                      json_text(text), "tokens", (json_int_t)item->output.count, "score", (double)item->score);
        if (json_array_append_new(r->result, object) != 0)
            status = no_memory(r);
    }
    free(text);
    return status;
}

int text_run_portion(text_run *r)
{
    const double started = os_seconds();
    int status;
    TOOL_TRY(text_ranks_run(&r->world, &r->generator, r->items, r->count));
    r->seconds += os_seconds() - started;
    for (size_t i = 0; i < r->count; i++)
        TOOL_TRY(deliver(r, i));
fail:
    return status;
}

int text_run_take(text_run *r, const char *const *texts, size_t count)
{
    int status;
    TOOL_TRY(begin_portion(r, count));
    for (size_t i = 0; i < count; i++)
        r->texts[i] = (text_input){texts[i], strlen(texts[i])};
    TOOL_TRY(cut_texts(r));
fail:
    return status;
}

int text_run_lines(text_run *r)
{
    text_lines lines = {.file = stdin, .name = "standard input"};
    int status;
    do {
        TOOL_TRY(text_lines_read(&lines, PORTION * world_workers(&r->world), false, false));
        TOOL_TRY(begin_portion(r, lines.count));
        for (size_t i = 0; i < lines.count; i++)
            r->texts[i] = (text_input){lines.text.text + lines.line[i].begin, lines.line[i].bytes};
        TOOL_TRY(cut_texts(r));
        TOOL_TRY(text_run_portion(r));
        r->before += lines.count;
    } while (lines.count > 0);
fail:
    text_run_release(r); /* it borrows the lines */
    text_lines_release(&lines);
    return status;
}
