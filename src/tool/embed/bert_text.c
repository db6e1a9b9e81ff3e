#include "tool/embed/bert_text.h"

#include <stdlib.h>

#include <utf8proc.h>

#define REPLACEMENT 0xfffd
typedef struct character_range {
    int32_t first, last;
} character_range;

/* Ranges of characters that came after Unicode 8 and are marks, punctuation or controls today.  PyPI's
 * tokenizers, by which the models were trained, use tables of Unicode 8, in which they are letters. */
static const character_range newer[] = {
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x8e2},     {0x9fd, 0x9fe},     {0xa76, 0xa76},
    {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc3c},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},
    {0x180f, 0x1886},   {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e5d},
    {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},   {0x10d24, 0x10f89},
    {0x11070, 0x11074}, {0x110c2, 0x110cd}, {0x111cf, 0x111cf}, {0x1123e, 0x11241}, {0x1133b, 0x1133b},
    {0x11438, 0x1145e}, {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x1183b}, {0x11938, 0x11fff},
    {0x12ff1, 0x13455}, {0x16e97, 0x16f4f}, {0x16fe2, 0x16fe4}, {0x1cf00, 0x1cf46}, {0x1e000, 0x1e4ef},
    {0x1e944, 0x1e95f},
};

/* Ranges within `newer` that have a combining class all the same: the tables for decomposition are of
 * Unicode 9. */
static const character_range ordered[] = {
    {0x8d4, 0x8e1}, {0x1dfb, 0x1dfb}, {0x11442, 0x11446}, {0x11c3f, 0x11c3f}, {0x1e000, 0x1e02a}, {0x1e944, 0x1e94a},
};

static bool is_among(int32_t c, const character_range *ranges, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && c >= ranges[low].first;
}

static bool is_newer(int32_t c)
{
    return is_among(c, newer, sizeof newer / sizeof newer[0]);
}

typedef enum character_class { CLASS_LETTER, CLASS_CONTROL, CLASS_NONSPACING, CLASS_PUNCTUATION } character_class;

static character_class class_of(int32_t c)
{
    character_class kind = CLASS_LETTER;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: kind = CLASS_CONTROL; break;
    case UTF8PROC_CATEGORY_MN: kind = CLASS_NONSPACING; break;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: kind = CLASS_PUNCTUATION; break;
    default: break;
    }
    /* Three characters have changed their category since Unicode 8. */
    if (c == 0x1734)
        return CLASS_NONSPACING;
    if (c == 0x166d || c == 0x111c9)
        return CLASS_PUNCTUATION;
    return kind != CLASS_LETTER && is_newer(c) ? CLASS_LETTER : kind;
}

/* Unicode's property White_Space, which utf8proc does not have. */
static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_control(int32_t c)
{
    return c != '\t' && c != '\n' && c != '\r' && class_of(c) == CLASS_CONTROL;
}

static bool is_mark(int32_t c)
{
    /* Every ASCII character but letters, digits, space and controls, so also symbols such as '$' and '`'. */
    if (c < 0x80)
        return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
    return class_of(c) == CLASS_PUNCTUATION;
}

/* The blocks of ideographs.  The sixth begins 0x100 after its block does, as in PyPI's tokenizers. */
static bool is_chinese(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* The canonical combining class.  A character of class 0 stays in its place, and marks are not moved across it. */
static int32_t combining_class_of(int32_t c)
{
    int32_t found = utf8proc_get_property(c)->combining_class;
    if (found == 0 || c == 0x1715 || c == 0x16ff0 || c == 0x16ff1) /* these also came after Unicode 9 */
        return 0;
    return is_newer(c) && !is_among(c, ordered, sizeof ordered / sizeof ordered[0]) ? 0 : found;
}

static bool hold_mark(bert_reader *r, int32_t c, int32_t combining_class)
{
    if (r->mark_count == r->mark_capacity) {
        size_t capacity = r->mark_capacity == 0 ? 16 : 2 * r->mark_capacity;
        combining_mark *larger = realloc(r->marks, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        r->marks = larger;
        r->mark_capacity = capacity;
    }
    r->marks[r->mark_count++] = (combining_mark){c, combining_class};
    return true;
}

/* The next of the marks in canonical order: by class, and within a class as they came.  There are few classes,
 * so that a pass over the marks for each class is linear even for a hostile text. */
static bool next_mark(bert_reader *r, int32_t *c)
{
    for (;;) {
        while (r->mark_at < r->mark_count) {
            const combining_mark *mark = &r->marks[r->mark_at++];
            if (mark->combining_class == r->mark_class) {
                *c = mark->character;
                return true;
            }
        }
        int32_t next = INT32_MAX;
        for (size_t i = 0; i < r->mark_count; i++)
            if (r->marks[i].combining_class > r->mark_class && r->marks[i].combining_class < next)
                next = r->marks[i].combining_class;
        r->mark_at = 0;
        r->mark_class = next;
        if (next == INT32_MAX)
            break;
    }
    r->mark_count = 0;
    r->mark_class = 0;
    return false;
}

static void decompose(bert_reader *r, int32_t c)
{
    int32_t *to = r->decomposed + r->decomposed_count;
    if (r->rules->strip && c >= 0x80) {
        int boundary = 0;
        utf8proc_ssize_t count = utf8proc_decompose_char(c, to, BERT_MOST_DECOMPOSED, UTF8PROC_DECOMPOSE, &boundary);
        if (count >= 1 && count <= BERT_MOST_DECOMPOSED && !(count > 1 && is_newer(c))) {
            r->decomposed_count += (size_t)count;
            return;
        }
    }
    to[0] = c;
    r->decomposed_count++;
}

/* Reads one character of the text into `decomposed`, or nothing if cleaning drops the character. */
static void read_character(bert_reader *r)
{
    utf8proc_int32_t c = (unsigned char)r->text[r->at];
    utf8proc_ssize_t used = 1;
    if (c >= 0x80) {
        /* At most four bytes count, and the library's lengths are signed. */
        size_t left = r->bytes - r->at < 4 ? r->bytes - r->at : 4;
        used = utf8proc_iterate((const utf8proc_uint8_t *)r->text + r->at, (utf8proc_ssize_t)left, &c);
        if (used <= 0) {
            used = 1;
            c = REPLACEMENT;
        }
    }
    r->at += (size_t)used;
    r->decomposed_at = r->decomposed_count = 0;
    if (r->rules->clean) {
        if (c == 0 || c == REPLACEMENT || is_control(c))
            return;
        if (is_space(c))
            c = ' ';
    }
    bool apart = r->rules->chinese && is_chinese(c);
    if (apart)
        decompose(r, ' ');
    decompose(r, c);
    if (apart)
        decompose(r, ' ');
}

/* The next character before it is put in lower case. */
static bool next_stripped(bert_reader *r, int32_t *c)
{
    for (;;) {
        if (r->ordering) {
            if (next_mark(r, c))
                return true;
            r->ordering = false;
        }
        if (r->decomposed_at == r->decomposed_count) {
            if (r->at < r->bytes)
                read_character(r);
            else if (r->mark_count > 0)
                r->ordering = true;
            else
                return false;
            continue;
        }
        *c = r->decomposed[r->decomposed_at];
        bool dropped = r->rules->strip && class_of(*c) == CLASS_NONSPACING;
        int32_t combining_class = r->rules->strip ? combining_class_of(*c) : 0;
        if (combining_class == 0 && r->mark_count > 0) {
            r->ordering = true;
            continue;
        }
        r->decomposed_at++;
        if (dropped)
            continue;
        if (combining_class == 0)
            return true;
        if (!hold_mark(r, *c, combining_class)) {
            r->failed = true;
            return false;
        }
    }
}

bool bert_next(bert_reader *r, int32_t *character, bert_kind *kind)
{
    int32_t c = r->second;
    r->second = 0;
    if (c == 0) {
        if (r->failed || !next_stripped(r, &c))
            return false;
        if (r->rules->lower && c == 0x130) {
            /* The one character whose lower case is two; stripping accents would have decomposed it. */
            c = 'i';
            r->second = 0x307;
        } else if (r->rules->lower) {
            c = c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c) : utf8proc_tolower(c);
        }
    }
    *character = c;
    *kind = is_space(c) ? BERT_SPACE : is_mark(c) ? BERT_MARK : BERT_LETTER;
    return true;
}

void bert_reader_release(bert_reader *reader)
{
    free(reader->marks);
    reader->marks = NULL;
    reader->mark_count = reader->mark_capacity = 0;
}

bool bert_text_is_utf8(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        utf8proc_int32_t c;
        size_t left = bytes - at < 4 ? bytes - at : 4;
        utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)left, &c);
        if (used <= 0)
            return false;
        at += (size_t)used;
    }
    return true;
}

size_t bert_text_encode(int32_t character, unsigned char to[4])
{
    return (size_t)utf8proc_encode_char(character, to);
}
