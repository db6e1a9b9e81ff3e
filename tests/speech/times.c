/* The times of words: the median filter, dynamic time warping, the alignment of tokens with frames, words of tokens,
 * and their times within a segment's.  Needs no device. */
#include "speech/speech.h"

#include <math.h>
#include <string.h>

#include "tool/transcribe/dtw.h"
#include "tool/transcribe/words.h"

static void medians(void **state)
{
    (void)state;
    static const float from[] = {5, 1, 4, 2, 9, 7, 0, 3, 8, 6, 1, 1, 1, 5, 5, 5};
    float to[16];
    median_filter(from, 2, 8, 3, to);
    static const float of_3[] = {1, 4, 2, 4, 7, 7, 3, 0, 6, 6, 1, 1, 1, 5, 5, 5};
    for (int i = 0; i < 16; i++)
        assert_true(to[i] == of_3[i]);
    /* The first one's neighbours are 2 4 1 5 1 4 2; the fourth's are all seven before the last. */
    median_filter(from, 1, 8, 7, to);
    assert_true(to[0] == 2.0f && to[3] == 4.0f);
    median_filter(from, 1, 3, 7, to);
    assert_memory_equal(to, from, 3 * sizeof *to);
}

/* Returns the largest sum of all paths by trying each. */
static double best_way(const float *m, size_t columns, size_t r, size_t c)
{
    double here = (double)m[r * columns + c], best = -INFINITY;
    if (r == 0 && c == 0)
        return here;
    if (r > 0)
        best = fmax(best, best_way(m, columns, r - 1, c));
    if (c > 0)
        best = fmax(best, best_way(m, columns, r, c - 1));
    if (r > 0 && c > 0)
        best = fmax(best, best_way(m, columns, r - 1, c - 1));
    return here + best;
}

static void warping(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        size_t rows = 1 + (size_t)round % 5, columns = 1 + (size_t)round / 5 % 7, first[5];
        float m[35];
        for (size_t i = 0; i < rows * columns; i++) {
            seed = seed * 1664525u + 1013904223u;
            m[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
        }
        assert_true(dtw_rows(m, rows, columns, first));
        /* The path visits each row from its first column to the next row's first, or to the one before that. */
        assert_int_equal(first[0], 0);
        double best = best_way(m, columns, rows - 1, columns - 1), sum = -INFINITY;
        for (unsigned corner = 0; corner < 1u << (rows - 1); corner++) {
            double all = 0.0;
            for (size_t r = 0; r < rows; r++) {
                size_t last = r + 1 < rows ? first[r + 1] - (corner >> r & 1 && first[r + 1] > first[r]) : columns - 1;
                for (size_t c = first[r]; c <= last; c++)
                    all += (double)m[r * columns + c];
            }
            sum = fmax(sum, all);
        }
        assert_close(sum, best, 1e-5);
    }
    /* If all values are equal, the path runs along the columns first. */
    float flat[12] = {0};
    size_t first[3];
    assert_true(dtw_rows(flat, 3, 4, first));
    assert_true(first[0] == 0 && first[1] == 0 && first[2] == 0);
}

/* Each token looks at one place, 20 frames after the one before, in noise. */
static void alignment(void **state)
{
    (void)state;
    enum { HEADS = 2, TOKENS = 8, STRIDE = 150, FRAMES_HERE = 120 };
    static float p[HEADS * TOKENS * STRIDE];
    uint32_t seed = 3;
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        size_t token = i / STRIDE % TOKENS, frame = i % STRIDE;
        seed = seed * 1664525u + 1013904223u;
        bool there = frame >= 20 * token && frame < 20 * token + 20;
        p[i] = (there ? 0.04f : 0.001f) + (float)(seed >> 16) * 1e-8f;
    }
    size_t first[TOKENS];
    assert_true(align_tokens(p, HEADS, TOKENS, STRIDE, FRAMES_HERE, 0, 6, first));
    for (size_t t = 0; t < 6; t++)
        assert_close((double)first[t], 20.0 * (double)t, 2.0);
    assert_true(align_tokens(p, HEADS, TOKENS, STRIDE, FRAMES_HERE, 1, 5, first));
    assert_int_equal(first[0], 0);
    for (size_t t = 1; t < 5; t++)
        assert_close((double)first[t], 20.0 * (double)(t + 1), 2.0);
}

static void assert_words(const whisper_words *all, size_t count, const char *const *texts, const size_t *counts)
{
    assert_int_equal(all->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(all->word[i].text, texts[i]);
        assert_int_equal(all->word[i].tokens, counts[i]);
    }
}

static void grouping(void **state)
{
    (void)state;
    whisper_tokens t = load_tokens();
    whisper_words all;
    /* " hello" " world" "," ' "' " café" "." " the" "s" */
    assert_true(whisper_words_split(&t, (int32_t[]){0, 1, 2, 4, 5, 6, 7, 3, 8, 9}, 10, &all));
    assert_words(&all, 7, (const char *[]){" hello", " world", ",", " \"", " caf\xc3\xa9", ".", " thes"},
                 (size_t[]){1, 2, 1, 1, 2, 1, 2});
    size_t first[] = {0, 10, 20, 50, 60, 65, 70, 80, 200, 210, 220};
    double p[] = {0.5, 0.25, 0.75, 1, 1, 0.5, 0.7, 1, 1, 1};
    whisper_words_time(&all, first, p);
    assert_close(all.word[1].start, 0.2, 1e-9);
    assert_close(all.word[1].end, 1.0, 1e-9);
    assert_close(all.word[1].probability, 0.5, 1e-9);
    double median;
    assert_true(whisper_words_polish(&all, &median));
    /* 0.2 0.8 0.2 0.1 0.3 2.4 0.4: the stop of 2.4 s is cut to twice the median. */
    assert_close(median, 0.3, 1e-9);
    assert_words(&all, 7, (const char *[]){" hello", " world,", "", "", " \" caf\xc3\xa9.", "", " thes"},
                 (size_t[]){1, 3, 0, 0, 4, 0, 2});
    assert_close(all.word[5].end, 1.6 + 0.6, 1e-9);
    whisper_words_release(&all);
    assert_true(whisper_words_split(&t, (int32_t[]){6}, 1, &all));
    assert_words(&all, 1, (const char *[]){" caf\xef\xbf\xbd"}, (size_t[]){1});
    whisper_words_release(&all);
    assert_true(whisper_words_split(&t, NULL, 0, &all));
    assert_int_equal(all.count, 0);
    whisper_words_release(&all);
    whisper_tokens_release(&t);
}

static void placing(void **state)
{
    (void)state;
    /* The first word reaches back over a pause of five seconds; the segment's end agrees with the last
     * word's. */
    whisper_word w[] = {{NULL, 1, 0.0, 5.0, 1.0}, {NULL, 1, 5.0, 5.3, 1.0}};
    double start = 10.0, end = 15.3, last = 8.0;
    whisper_words_place(w, 2, 10.0, 0.3, &start, &end, &last);
    assert_close(w[0].start, 14.4, 1e-9);
    assert_close(start, 14.4, 1e-9);
    assert_close(w[1].end, 15.3, 1e-9);
    assert_close(last, 15.3, 1e-9);
    /* A last word that runs on is held back by the segment. */
    whisper_word v[] = {{NULL, 1, 1.0, 1.2, 1.0}, {NULL, 1, 1.2, 4.0, 1.0}};
    start = 1.0, end = 2.0, last = 0.9;
    whisper_words_place(v, 2, 0.0, 0.2, &start, &end, &last);
    assert_close(v[1].end, 2.0, 1e-9);
    assert_close(last, 2.0, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians),  cmocka_unit_test(warping), cmocka_unit_test(alignment),
        cmocka_unit_test(grouping), cmocka_unit_test(placing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
