#include "tool/transcribe/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "tool/transcribe/utf8.h"

#define POSITION_SECONDS 0.02
#define MEDIAN_MOST 0.7

/* Punctuation that joins the word behind it, that joins the word before it, and that ends a sentence. */
static const char before_words[] = "\"'\xe2\x80\x9c\xc2\xbf([{-";
static const char behind_words[] =
    "\"'.\xe3\x80\x82,\xef\xbc\x8c!\xef\xbc\x81?\xef\xbc\x9f:\xef\xbc\x9a\xe2\x80\x9d)]}\xe3\x80\x81";
static const char sentence_ends[] = ".\xe3\x80\x82!\xef\xbc\x81?\xef\xbc\x9f";
static const char punctuation[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/* Whether the text, with `stripped` without the white space around it, is a piece of `marks`; true for an empty text. */
static bool is_piece(const char *text, bool stripped, const char *marks)
{
    char piece[64];
    size_t length = strlen(text);
    if (stripped)
        text = utf8_strip(text, &length);
    if (length >= sizeof piece)
        return false;
    memcpy(piece, text, length);
    piece[length] = '\0';
    return strstr(marks, piece) != NULL;
}

static char *joined(const char *first, const char *second)
{
    struct strbuf text = {0};
    strbuf_printf(&text, "%s%s", first, second);
    return strbuf_take(&text);
}

/* How many characters the text's first `bytes` bytes have: every byte but a continuation begins one. */
static size_t characters(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static bool is_replacement_at(const char *text, size_t place)
{
    for (; *text != '\0'; text++)
        if (characters(text, 1) == 1 && place-- == 0)
            return strncmp(text, UTF8_REPLACEMENT_TEXT, strlen(UTF8_REPLACEMENT_TEXT)) == 0;
    return false;
}

/* Tokens [from, from + n) whose text ends with a character: the first of a new word, or more of the last one.
 */
static bool add_piece(whisper_words *words, char *text, size_t n)
{
    whisper_word *last = words->count > 0 ? &words->word[words->count - 1] : NULL;
    if (last == NULL || text[0] == ' ' || is_piece(text, true, punctuation)) {
        words->word[words->count++] = (whisper_word){.text = text, .tokens = n};
        return true;
    }
    char *whole = joined(last->text, text);
    free(text);
    if (whole == NULL)
        return false;
    free(last->text);
    last->text = whole;
    last->tokens += n;
    return true;
}

bool whisper_words_split(const whisper_tokens *tokens, const int32_t *ids, size_t count, whisper_words *words)
{
    *words = (whisper_words){calloc(count + 1, sizeof *words->word), 0};
    char *all = whisper_text(tokens, ids, count);
    bool good = words->word != NULL && all != NULL;
    size_t from = 0, place = 0; /* the first token of this piece, and its place in `all`, in characters */
    for (size_t i = 0; i < count && good; i++) {
        char *text = whisper_text(tokens, ids + from, i + 1 - from);
        const char *broken = text != NULL ? strstr(text, UTF8_REPLACEMENT_TEXT) : NULL;
        good = text != NULL;
        /* A U+FFFD that is there in the whole text as well is none that more tokens would mend. */
        if (good && (broken == NULL || is_replacement_at(all, place + characters(text, (size_t)(broken - text))))) {
            place += characters(text, strlen(text));
            good = add_piece(words, text, i + 1 - from);
            from = i + 1;
        } else {
            free(text);
        }
    }
    free(all);
    if (!good)
        whisper_words_release(words);
    return good;
}

void whisper_words_time(whisper_words *words, const size_t *first, const double *probabilities)
{
    size_t at = 0;
    for (size_t i = 0; i < words->count; i++) {
        whisper_word *w = &words->word[i];
        double sum = 0.0;
        for (size_t t = 0; t < w->tokens; t++)
            sum += probabilities[at + t];
        w->start = (double)first[at] * POSITION_SECONDS;
        at += w->tokens;
        w->end = (double)first[at] * POSITION_SECONDS;
        w->probability = w->tokens > 0 ? sum / (double)w->tokens : 0.0;
    }
}

static int by_size(const void *first, const void *second)
{
    double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

/* The median of the durations other than 0, at most 0.7; 0 if there is none. */
static bool median_duration(const whisper_words *words, double *median)
{
    size_t count = 0;
    double *durations = malloc((words->count + 1) * sizeof *durations);
    *median = 0.0;
    if (durations == NULL)
        return false;
    for (size_t i = 0; i < words->count; i++)
        if (words->word[i].end != words->word[i].start)
            durations[count++] = words->word[i].end - words->word[i].start;
    qsort(durations, count, sizeof *durations, by_size);
    if (count > 0)
        *median = (durations[(count - 1) / 2] + durations[count / 2]) / 2.0;
    if (*median > MEDIAN_MOST)
        *median = MEDIAN_MOST;
    free(durations);
    return true;
}

/* Joins the text of `from` to that of `to`, before or after it, and empties `from`. */
static bool move_text(whisper_word *from, whisper_word *to, bool before)
{
    char *text = before ? joined(from->text, to->text) : joined(to->text, from->text);
    if (text == NULL)
        return false;
    free(to->text);
    to->text = text;
    to->tokens += from->tokens;
    from->text[0] = '\0';
    from->tokens = 0;
    return true;
}

static bool join_punctuation(whisper_words *words)
{
    whisper_word *word = words->word;
    bool good = true;
    size_t to = words->count;
    for (size_t i = words->count; i-- > 0 && good;) {
        if (to < words->count && word[i].text[0] == ' ' && is_piece(word[i].text, true, before_words))
            good = move_text(&word[i], &word[to], true);
        else
            to = i;
    }
    to = 0;
    for (size_t i = 1; i < words->count && good; i++) {
        size_t length = strlen(word[to].text);
        bool open = length > 0 && word[to].text[length - 1] == ' ';
        if (!open && is_piece(word[i].text, false, behind_words))
            good = move_text(&word[i], &word[to], false);
        else
            to = i;
    }
    return good;
}

bool whisper_words_polish(whisper_words *words, double *median)
{
    if (!median_duration(words, median))
        return false;
    double most = 2.0 * *median;
    for (size_t i = 1; i < words->count && *median > 0.0; i++) {
        whisper_word *w = &words->word[i];
        if (w->end - w->start <= most)
            continue;
        if (is_piece(w->text, false, sentence_ends))
            w->end = w->start + most;
        else if (is_piece(w[-1].text, false, sentence_ends))
            w->start = w->end - most;
    }
    return join_punctuation(words);
}

static double hundredths(double seconds)
{
    return rint(seconds * 100.0) / 100.0;
}

void whisper_words_place(whisper_word *word, size_t count, double offset, double median, double *start, double *end,
                         double *last)
{
    double most = 2.0 * median;
    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        word[i].start = hundredths(offset + word[i].start);
        word[i].end = hundredths(offset + word[i].end);
    }
    whisper_word *first = &word[0], *final = &word[count - 1];
    if (first->end - *last > 4.0 * median &&
        (first->end - first->start > most || (count > 1 && word[1].end - first->start > 2.0 * most))) {
        if (count > 1 && word[1].end - word[1].start > most)
            first->end = word[1].start = fmax(word[1].end / 2.0, word[1].end - most);
        first->start = fmax(0.0, first->end - most);
    }
    if (*start < first->end && *start - 0.5 > first->start)
        first->start = fmax(0.0, fmin(first->end - median, *start));
    else
        *start = first->start;
    if (*end > final->start && *end + 0.5 < final->end)
        final->end = fmax(final->start + median, *end);
    else
        *end = final->end;
    *last = *end;
}

void whisper_words_release(whisper_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->word[i].text);
    free(words->word);
    *words = (whisper_words){0};
}
