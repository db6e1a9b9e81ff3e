/* The WordPiece tokenizer takes the longest pieces, as a search by each length does, and at most linear time for texts
 * whatever the vocabulary holds.  Needs no device. */
#define _GNU_SOURCE
#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/random.h"
#include "tool/embed/wordpiece.h"

enum { TOKENS = 40, WORDS = 2000, WORD = 16 };

/* A vocabulary of random tokens of few letters, so that many begin with another one. */
static struct vocabulary {
    char token[TOKENS + 3][WORD];
    size_t count;
} vocabulary;

static int number_of(const char *token)
{
    for (size_t i = 0; i < vocabulary.count; i++)
        if (strcmp(vocabulary.token[i], token) == 0)
            return (int)i;
    return -1;
}

/* A word of letters of one and of two bytes. */
static size_t draw_word(random_stream *random, int most, char *word)
{
    static const char *const letters[] = {"a", "b", "\xc3\x9f"};
    word[0] = '\0';
    for (int i = random_int(random, 1, most); i > 0; i--)
        strcat(word, letters[random_int(random, 0, 2)]);
    return strlen(word);
}

static void draw_vocabulary(random_stream *random, char *text)
{
    vocabulary.count = 0;
    text[0] = '\0';
    for (int i = 0; i < TOKENS + 3; i++) {
        static const char *const special[] = {"[UNK]", "[CLS]", "[SEP]"};
        char token[WORD + 2] = "##", *begin = random_int(random, 0, 2) == 0 ? token + 2 : token;
        draw_word(random, 4, token + 2);
        strcpy(vocabulary.token[vocabulary.count], i < 3 ? special[i] : begin);
        if (number_of(vocabulary.token[vocabulary.count]) == (int)vocabulary.count ||
            number_of(vocabulary.token[vocabulary.count]) < 0) {
            strcat(strcat(text, vocabulary.token[vocabulary.count]), "\n");
            vocabulary.count++;
        }
    }
}

/* Cuts the word by trying each length, the longest first; returns the number of pieces, 1 for [UNK]. */
static size_t cut(const char *word, int *pieces)
{
    size_t count = 0;
    for (size_t at = 0, bytes = strlen(word), length; at < bytes; at += length) {
        int found = -1;
        for (length = bytes - at; length > 0; length--) {
            char piece[2 * WORD];
            snprintf(piece, sizeof piece, "%s%.*s", at > 0 ? "##" : "", (int)length, word + at);
            if ((found = number_of(piece)) >= 0)
                break;
        }
        if (found < 0) {
            pieces[0] = 0;
            return 1;
        }
        pieces[count++] = found;
    }
    return count;
}

static wordpiece *open_vocabulary(const char *text)
{
    wordpiece *tokenizer;
    clattn_io_error error = {""};
    if (wordpiece_open_vocab(store("vocab.txt", text, strlen(text)), &tokenizer, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);
    return tokenizer;
}

static void pieces_are_the_longest(void **state)
{
    static char text[(TOKENS + 3) * WORD];
    random_stream random = random_start(3);
    wordpiece_ids ids = {0};
    size_t known = 0;
    (void)state;
    for (int round = 0; round < 20; round++) {
        draw_vocabulary(&random, text);
        wordpiece *tokenizer = open_vocabulary(text);
        for (int i = 0; i < WORDS / 20; i++) {
            char word[WORD];
            int pieces[WORD] = {0};
            size_t bytes = draw_word(&random, 7, word), count = cut(word, pieces);
            assert_int_equal(wordpiece_encode(tokenizer, word, bytes, 100, &ids), CLATTN_SUCCESS);
            assert_int_equal(ids.count, count + 2);
            for (size_t j = 0; j < count; j++)
                if (ids.id[j + 1] != pieces[j])
                    fail_msg("piece %zu of %s is %d, expected %d", j, word, (int)ids.id[j + 1], pieces[j]);
            known += pieces[0] != 0;
        }
        wordpiece_close(&tokenizer);
    }
    assert_true(known > WORDS / 10 && known < WORDS);
    wordpiece_ids_release(&ids);
}

/* Writes a tokenizer.json with words of up to 1,000 characters, whose tokens and special tokens share beginnings. */
static const char *hostile_json(void)
{
    struct {
        char *text;
        size_t bytes;
    } out;
    FILE *file = open_memstream(&out.text, &out.bytes);
    char as[1001];
    assert_non_null(file);
    memset(as, 'a', sizeof as);
    fputs("{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
          "\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
          "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",1],\"cls\":[\"[CLS]\",0]},"
          "\"added_tokens\":[",
          file);
    for (int i = 0; i < 500; i++)
        fprintf(file,
                "%s{\"id\":%d,\"content\":\"%.*sX\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                "\"normalized\":false}",
                i > 0 ? "," : "", 5 + 2 * i, 999 - i, as);
    fputs("],\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\","
          "\"max_input_chars_per_word\":1000,\"vocab\":{\"[CLS]\":0,\"[SEP]\":1,\"?\":2,\"a\":3,\"##a\":4",
          file);
    for (int i = 0; i < 500; i++)
        fprintf(file, ",\"%.*sX\":%d,\"##%.*sb\":%d", 999 - i, as, 5 + 2 * i, 999 - i, as, 6 + 2 * i);
    fputs("}}}", file);
    fclose(file);
    const char *path = store("tokenizer.json", out.text, out.bytes);
    free(out.text);
    return path;
}

static void a_hostile_vocabulary_costs_linear_time(void **state)
{
    enum { LENGTH = 1000, COUNT = 50 };
    wordpiece *tokenizer;
    clattn_io_error error = {""};
    wordpiece_ids ids = {0};
    char *text = malloc(COUNT * (LENGTH + 1));
    (void)state;
    assert_non_null(text);
    memset(text, 'a', COUNT * (LENGTH + 1));
    for (int i = 0; i < COUNT; i++)
        text[i * (LENGTH + 1) + LENGTH] = ' ';
    if (wordpiece_open_json(hostile_json(), &tokenizer, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);
    const clock_t before = clock();
    assert_int_equal(wordpiece_encode(tokenizer, text, COUNT * (LENGTH + 1), 100, &ids), CLATTN_SUCCESS);
    const double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    assert_int_equal(ids.total, COUNT * LENGTH + 2);
    /* A search by each length takes 3 seconds, this one a few hundredths. */
    if (seconds > 1.0)
        fail_msg("%d bytes took %.2f s of the processor", COUNT * (LENGTH + 1), seconds);
    wordpiece_ids_release(&ids);
    wordpiece_close(&tokenizer);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_longest),
        cmocka_unit_test(a_hostile_vocabulary_costs_linear_time),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
