#include "tool/embed/bert_text.h"

#include <stdlib.h>

#include <utf8proc.h>

#define REPLACEMENT 0xfffd
#define MOST_DECOMPOSED 16 /* the longest canonical decomposition has four characters */

/* Combining characters that wait for their canonical order: by class, and within a class as they came. */
typedef struct waiting_mark {
    int32_t character;
    int32_t combining_class;
} waiting_mark;

typedef struct text_pass {
    const bert_rules *rules;
    bert_sink sink;
    void *user;
    waiting_mark *waiting;
    size_t count, capacity;
} text_pass;

typedef struct character_range {
    int32_t first, last;
} character_range;

/* Where the characters lie that came after Unicode 8 and are marks, punctuation or controls by now.  The
 * tables behind PyPI's tokenizers, by which the models were trained and are used, are of that version, and
 * have them as letters. */
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

/* Those among them that have a place in the canonical order all the same: for decomposition the tables are of
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
    /* Three that have changed since. */
    if (c == 0x1734)
        return CLASS_NONSPACING;
    if (c == 0x166d || c == 0x111c9)
        return CLASS_PUNCTUATION;
    return kind != CLASS_LETTER && is_newer(c) ? CLASS_LETTER : kind;
}

/* What Unicode calls White_Space; utf8proc has categories only. */
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
    /* All of ASCII that is neither letter, digit, space nor control, symbols such as '$' and '`' too. */
    if (c < 0x80)
        return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
    return class_of(c) == CLASS_PUNCTUATION;
}

/* The ideographs' blocks.  The sixth begins where the tokenizers of PyPI have it, 0x100 after the block does.
 */
static bool is_chinese(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool give(text_pass *pass, int32_t c)
{
    if (pass->rules->lower) {
        /* The one character whose lower case is two; where accents are stripped it has been decomposed. */
        if (c == 0x130)
            return pass->sink(pass->user, 'i', BERT_LETTER) && pass->sink(pass->user, 0x307, BERT_LETTER);
        c = c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c) : utf8proc_tolower(c);
    }
    return pass->sink(pass->user, c, is_space(c) ? BERT_SPACE : is_mark(c) ? BERT_MARK : BERT_LETTER);
}

/* In canonical order: a pass over the run for each class that is in it, of which there are few, so that a
 * hostile run costs no more than its length. */
static bool give_waiting(text_pass *pass)
{
    int32_t done = 0;
    for (size_t left = pass->count; left > 0;) {
        int32_t next = INT32_MAX;
        for (size_t i = 0; i < pass->count; i++)
            if (pass->waiting[i].combining_class > done && pass->waiting[i].combining_class < next)
                next = pass->waiting[i].combining_class;
        for (size_t i = 0; i < pass->count; i++) {
            if (pass->waiting[i].combining_class != next)
                continue;
            left--;
            if (!give(pass, pass->waiting[i].character))
                return false;
        }
        done = next;
    }
    pass->count = 0;
    return true;
}

static bool hold(text_pass *pass, int32_t c, int32_t combining_class)
{
    if (pass->count == pass->capacity) {
        size_t capacity = pass->capacity == 0 ? 16 : 2 * pass->capacity;
        waiting_mark *larger = realloc(pass->waiting, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        pass->waiting = larger;
        pass->capacity = capacity;
    }
    pass->waiting[pass->count++] = (waiting_mark){c, combining_class};
    return true;
}

/* 0: none, the character stays where it is and ends a run of those that have one. */
static int32_t combining_class_of(int32_t c)
{
    int32_t found = utf8proc_get_property(c)->combining_class;
    if (found == 0 || c == 0x1715 || c == 0x16ff0 || c == 0x16ff1) /* these came after Unicode 9, too */
        return 0;
    return is_newer(c) && !is_among(c, ordered, sizeof ordered / sizeof ordered[0]) ? 0 : found;
}

static bool strip(text_pass *pass, int32_t c)
{
    utf8proc_int32_t parts[MOST_DECOMPOSED];
    utf8proc_ssize_t count = 1;
    parts[0] = c;
    if (c >= 0x80) {
        int boundary = 0;
        count = utf8proc_decompose_char(c, parts, MOST_DECOMPOSED, UTF8PROC_DECOMPOSE, &boundary);
        if (count < 1 || count > MOST_DECOMPOSED || (count > 1 && is_newer(c))) {
            parts[0] = c;
            count = 1;
        }
    }
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        bool dropped = class_of(parts[i]) == CLASS_NONSPACING;
        int32_t combining_class = combining_class_of(parts[i]);
        if (combining_class != 0) {
            if (!dropped && !hold(pass, parts[i], combining_class))
                return false;
        } else if (!give_waiting(pass) || (!dropped && !give(pass, parts[i]))) {
            return false;
        }
    }
    return true;
}

static bool take(text_pass *pass, int32_t c)
{
    return pass->rules->strip ? strip(pass, c) : give(pass, c);
}

bool bert_text_pass(const bert_rules *rules, const char *text, size_t bytes, bert_sink sink, void *user)
{
    text_pass pass = {.rules = rules, .sink = sink, .user = user};
    bool going = true;
    for (size_t at = 0; going && at < bytes;) {
        utf8proc_int32_t c = (unsigned char)text[at];
        utf8proc_ssize_t used = 1;
        if (c >= 0x80) {
            /* At most four bytes count, and the library's lengths are signed. */
            size_t left = bytes - at < 4 ? bytes - at : 4;
            used = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)left, &c);
            if (used <= 0) {
                used = 1;
                c = REPLACEMENT;
            }
        }
        at += (size_t)used;
        if (rules->clean) {
            if (c == 0 || c == REPLACEMENT || is_control(c))
                continue;
            if (is_space(c))
                c = ' ';
        }
        bool apart = rules->chinese && is_chinese(c);
        going = (!apart || take(&pass, ' ')) && take(&pass, c) && (!apart || take(&pass, ' '));
    }
    going = going && give_waiting(&pass);
    free(pass.waiting);
    return going;
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
