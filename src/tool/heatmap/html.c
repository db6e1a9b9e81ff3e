/* The page of a heat map: a template with its style and its program (src/tool/heatmap/), the numbers and labels
 * between them.
 *
 * Labels are whatever a file or a tokenizer holds, so they never stand in markup: they travel as JSON, in ASCII and
 * without '<', inside an element that is not run, and the program shows them as text alone.  Should one slip through
 * all the same, the page's policy runs no script but the one whose digest it names, and loads nothing. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/sha256.h"
#include "base/strbuf.h"
#include "tool/heatmap/heatmap.h"
#include "tool/heatmap/files.h"
#include "io/os_file.h"
#include "tool/cli/json_text.h"
#include "tool/tool.h"

/* Writes bytes as base64. Every call but the last must bring a multiple of 3 bytes, so that the padding comes at the
 * end alone. */
static void append_base64(struct strbuf *out, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4096];
    size_t used = 0;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t three =
            (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
        text[used++] = digits[three >> 18];
        text[used++] = digits[three >> 12 & 63];
        text[used++] = left > 1 ? digits[three >> 6 & 63] : '=';
        text[used++] = left > 2 ? digits[three & 63] : '=';
        if (used == sizeof text || left <= 3) {
            strbuf_append(out, text, used);
            used = 0;
        }
    }
}

static void append_digest(struct strbuf *out, const char *text)
{
    struct sha256 hash;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&hash);
    sha256_update(&hash, text, strlen(text));
    sha256_final(&hash, digest);
    strbuf_append(out, "sha256-", 7);
    append_base64(out, digest, sizeof digest);
}

/* JSON in ASCII, in which '<' stands in strings alone: so nothing in it ends an element or begins a comment. */
static bool append_json(struct strbuf *out, const json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    for (const char *from = text; from != NULL && *from != '\0';) {
        size_t plain = strcspn(from, "<");
        strbuf_append(out, from, plain);
        from += plain;
        if (*from == '<') {
            strbuf_append(out, "\\u003c", 6);
            from++;
        }
    }
    json_release(text);
    return text != NULL && !json_memory_failed();
}

static json_t *axis_json(const heatmap_axis *axis)
{
    json_t *labels = axis->labels != NULL ? json_array() : json_null();
    for (size_t i = 0; axis->labels != NULL && i < axis->count; i++)
        if (json_array_append_new(labels, json_text(axis->labels[i])) != 0) {
            json_decref(labels);
            return NULL;
        }
    return json_pack("{s:o, s:I, s:o, s:f, s:f, s:o}", "name", json_text(axis->name), "count", (json_int_t)axis->count,
                     "labels", labels, "first", axis->first, "step", axis->step, "unit",
                     json_text(axis->unit != NULL ? axis->unit : ""));
}

static json_t *picture_json(const heatmap_picture *p)
{
    if (p == NULL)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "width", (json_int_t)p->width, "height", (json_int_t)p->height,
                     "rows", (json_int_t)p->rows, "columns", (json_int_t)p->columns, "first", (json_int_t)p->first);
}

static json_t *about_json(const heatmap *map)
{
    json_t *parts = json_array();
    for (size_t i = 0; i < map->part_count; i++) {
        const heatmap_part *part = &map->parts[i];
        json_t *each = json_pack("{s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "name", json_text(part->name), "layerName",
                                 json_text(part->layer_name), "layers", (json_int_t)part->layers, "heads",
                                 (json_int_t)part->heads, "query", axis_json(&part->query), "key",
                                 axis_json(&part->key), "picture", picture_json(part->picture));
        if (each == NULL || json_array_append_new(parts, each) != 0) {
            json_decref(parts);
            return NULL;
        }
    }
    return json_pack("{s:o, s:o}", "title", json_text(map->title), "parts", parts);
}

/* 0 ... 65534 for 0 ... largest, to the nearest. */
static unsigned quantised(float value, float largest)
{
    if (isnan(value))
        return 65535;
    if (!(value > 0.0f))
        return 0;
    if (value >= largest)
        return 65534;
    return (unsigned)lrint((double)value / (double)largest * 65534.0);
}

/* One matrix: 16 bits a cell, the lower byte first, row by row. */
static void append_matrix(struct strbuf *out, const heatmap_part *part, size_t layer, size_t head)
{
    uint8_t bytes[3072];
    size_t used = 0;
    float largest = heatmap_largest(part, layer, head);
    for (size_t i = 0; i < part->query.count; i++) {
        const float *row = heatmap_row(part, layer, head, i);
        for (size_t j = 0; j < part->key.count; j++) {
            unsigned cell = quantised(row[j], largest);
            bytes[used++] = (uint8_t)(cell & 255);
            bytes[used++] = (uint8_t)(cell >> 8);
            if (used == sizeof bytes) {
                append_base64(out, bytes, used);
                used = 0;
            }
        }
    }
    append_base64(out, bytes, used);
}

static bool append_data(struct strbuf *out, const heatmap *map)
{
    json_t *about = about_json(map);
    strbuf_printf(out, "<script type=\"application/json\" id=\"about\">");
    bool whole = append_json(out, about);
    strbuf_printf(out, "</script>\n");
    json_decref(about);
    for (size_t p = 0; p < map->part_count; p++)
        for (size_t layer = 0; layer < map->parts[p].layers; layer++)
            for (size_t head = 0; head < map->parts[p].heads; head++) {
                strbuf_printf(out, "<script type=\"text/plain\" id=\"cells-%zu-%zu-%zu\" data-largest=\"%.9g\">", p,
                              layer, head, (double)heatmap_largest(&map->parts[p], layer, head));
                append_matrix(out, &map->parts[p], layer, head);
                strbuf_printf(out, "</script>\n");
            }
    for (size_t p = 0; p < map->part_count; p++) {
        const heatmap_picture *picture = map->parts[p].picture;
        if (picture == NULL)
            continue;
        strbuf_printf(out, "<script type=\"text/plain\" id=\"picture-%zu\">", p);
        append_base64(out, picture->pixels, picture->width * picture->height * 3);
        strbuf_printf(out, "</script>\n");
    }
    return whole;
}

/* Writes the template, with each {{name}} replaced. */
static bool append_page(struct strbuf *out, const heatmap *map)
{
    bool whole = true;
    for (const char *from = heatmap_page_html; *from != '\0';) {
        const char *mark = strstr(from, "{{"), *end = mark != NULL ? strstr(mark, "}}") : NULL;
        strbuf_append(out, from, end != NULL ? (size_t)(mark - from) : strlen(from));
        if (end == NULL)
            break;
        size_t length = (size_t)(end - mark) - 2;
        if (length == 5 && memcmp(mark + 2, "style", length) == 0)
            strbuf_append(out, heatmap_style_css, strlen(heatmap_style_css));
        else if (length == 6 && memcmp(mark + 2, "script", length) == 0)
            strbuf_append(out, heatmap_script_js, strlen(heatmap_script_js));
        else if (length == 12 && memcmp(mark + 2, "style-digest", length) == 0)
            append_digest(out, heatmap_style_css);
        else if (length == 13 && memcmp(mark + 2, "script-digest", length) == 0)
            append_digest(out, heatmap_script_js);
        else
            whole = append_data(out, map) && whole;
        from = end + 2;
    }
    return whole;
}

int heatmap_store_html(const heatmap *map, const char *path)
{
    struct strbuf out = {0};
    clattn_io_error error;
    int status = TOOL_DONE;
    bool whole = append_page(&out, map);
    os_part part = {out.text, out.length};
    if (!whole || out.failed)
        status = complain(TOOL_FAILED, "%s: no memory for the page", path);
    else if (os_file_replace(path, &part, 1, &error) != CLATTN_SUCCESS)
        status = complain(TOOL_FAILED, "%s", error.message);
    strbuf_clear(&out);
    return status;
}
