#include "tool/train/corpus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/os_tool.h"
#include "tool/tool.h"

/* ---- lines ---- */

static int read_file(const char *path, bool filled, text_lines *lines)
{
    *lines = (text_lines){.name = path};
    if (os_look_at(path) == OS_PATH_OTHER)
        return complain(TOOL_BAD_INPUT, "%s: is a pipe or a device, expected a file", path);
    lines->file = os_open_for_reading(path);
    if (lines->file == NULL)
        return complain(TOOL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    const int status = text_lines_read(lines, 0, false, filled);
    fclose(lines->file);
    if (status == TOOL_DONE && lines->count == 0)
        return complain(TOOL_BAD_INPUT, "%s: has no text, expected lines", path);
    return status;
}

static int refuse_empty(const text_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->text.text + lines->line[i].begin;
        if (strspn(text, " \t\v\f\r") >= lines->line[i].bytes)
            return complain(TOOL_BAD_INPUT, "%s: line %zu is empty, expected a text for each line of the other file",
                            lines->name, i + 1);
    }
    return TOOL_DONE;
}

int train_lines_read(const char *source, const char *target, train_lines *lines)
{
    int status;
    *lines = (train_lines){.path = {source, target}};
    text_lines *side = lines->side;
    TOOL_TRY(read_file(target, source == NULL, &side[1]));
    if (source == NULL)
        return status;
    TOOL_TRY(read_file(source, false, &side[0]));
    if (side[0].count != side[1].count)
        return complain(TOOL_BAD_INPUT, "%s has %zu lines and %s has %zu, expected as many", source, side[0].count,
                        target, side[1].count);
    for (size_t i = 0; i < 2; i++)
        TOOL_TRY(refuse_empty(&side[i]));
fail:
    return status;
}

void train_lines_release(train_lines *lines)
{
    for (size_t i = 0; i < 2; i++)
        text_lines_release(&lines->side[i]);
}

/* ---- items ---- */

static int add_item(train_items *items, train_item item)
{
    if (items->count == items->capacity) {
        const size_t capacity = 2 * items->capacity + 1024;
        train_item *larger = realloc(items->item, capacity * sizeof *larger);
        if (larger == NULL)
            return complain(TOOL_FAILED, "train: no memory for the texts");
        items->item = larger;
        items->capacity = capacity;
    }
    items->item[items->count++] = item;
    return TOOL_DONE;
}

static int encode(const text_lines *lines, size_t line, const vocabulary *v, vocabulary_ids *ids)
{
    return vocabulary_encode(v, lines->text.text + lines->line[line].begin, lines->line[line].bytes, ids);
}

static int cut_pair(const train_lines *lines, size_t line, const text_model *model, train_items *items)
{
    vocabulary_ids *ids = &items->ids;
    train_item item = {.first = ids->count};
    int status;
    TOOL_TRY(encode(&lines->side[0], line, model->vocabulary, ids));
    TOOL_TRY(vocabulary_append(ids, VOCABULARY_END));
    item.source = ids->count - item.first;
    TOOL_TRY(vocabulary_append(ids, VOCABULARY_BEGIN));
    TOOL_TRY(encode(&lines->side[1], line, model->vocabulary, ids));
    TOOL_TRY(vocabulary_append(ids, VOCABULARY_END));
    item.target = ids->count - item.first - item.source - 1;
    if (item.source <= model->shape.source_length && item.target <= model->shape.target_length)
        return add_item(items, item);
    ids->count = item.first;
    items->left_out++;
fail:
    return status;
}

/* Cuts a line into items of the model's length, each of which begins with VOCABULARY_BEGIN; the last has VOCABULARY_END. */
static int cut_text(const train_lines *lines, size_t line, const text_model *model, vocabulary_ids *pieces,
                    train_items *items)
{
    const size_t most = model->shape.target_length;
    int status;
    pieces->count = 0;
    TOOL_TRY(encode(&lines->side[1], line, model->vocabulary, pieces));
    TOOL_TRY(vocabulary_append(pieces, VOCABULARY_END));
    for (size_t first = 0; first < pieces->count; first += most) {
        const size_t count = size_min(pieces->count - first, most);
        TOOL_TRY(add_item(items, (train_item){.first = items->ids.count, .target = count}));
        TOOL_TRY(vocabulary_append(&items->ids, VOCABULARY_BEGIN));
        for (size_t i = 0; i < count; i++)
            TOOL_TRY(vocabulary_append(&items->ids, pieces->id[first + i]));
    }
fail:
    return status;
}

int train_items_cut(const train_lines *lines, const text_model *model, size_t from, size_t to, size_t of,
                    train_items *items)
{
    vocabulary_ids pieces = {0};
    int status = TOOL_DONE;
    for (size_t i = 0; i < lines->side[1].count && status == TOOL_DONE; i++)
        if (i % of >= from && i % of < to)
            status = model->shape.kind == TEXT_KIND_TRANSLATION ? cut_pair(lines, i, model, items)
                                                                : cut_text(lines, i, model, &pieces, items);
    free(pieces.id);
    return status;
}

void train_items_release(train_items *items)
{
    free(items->ids.id);
    free(items->item);
    *items = (train_items){0};
}

static uint64_t mix(uint64_t digest, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        digest = (digest ^ (value >> 8 * i & 255)) * 0x100000001b3u; /* FNV-1a */
    return digest;
}

static uint64_t digest_items(uint64_t digest, const train_items *items)
{
    for (size_t i = 0; i < items->count; i++)
        digest = mix(mix(digest, items->item[i].source), items->item[i].target);
    for (size_t i = 0; i < items->ids.count; i++)
        digest = mix(digest, (uint64_t)items->ids.id[i]);
    return digest;
}

uint64_t train_items_digest(const train_items *train, const train_items *validate)
{
    return digest_items(digest_items(0xcbf29ce484222325u, train), validate);
}
