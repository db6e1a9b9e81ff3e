/* The command's WordPiece tokenizer: its rules one by one, 1,097 strings with the numbers that PyPI's
 * tokenizers gives them (tests/wordpiece/compare.py --write makes both files), what its readers refuse and
 * with which line, and that no file, however broken, does more than give a status.  Needs no device. */
#define _GNU_SOURCE
#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/embed/wordpiece.h"

static const char lines[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n!\n##s\nun\n##aff\n##"
                            "able\na\n##a\ncafe\n\xe6\xbc\xa2\n$\n'\nt\n"
                            "strasse\n\xc3\x9f\n##\xc3\x9f\nstra\n##e\n";

/* What the numbers are called, with spaces between; eight such texts are valid at a time. */
static const char *names(const wordpiece *tokenizer, const wordpiece_ids *ids)
{
    static char text[8][1024];
    static unsigned next;
    char *to = text[next++ % 8];
    size_t used = 0;
    to[0] = '\0';
    for (size_t i = 0; i < ids->count; i++) {
        const char *name = wordpiece_token(tokenizer, ids->id[i]);
        assert_non_null(name);
        used += (size_t)snprintf(to + used, sizeof text[0] - used, "%s%s", i > 0 ? " " : "", name);
        assert_true(used < sizeof text[0]);
    }
    return to;
}

static const char *encoded(const wordpiece *tokenizer, const char *text, size_t bytes, size_t most)
{
    wordpiece_ids ids = {0};
    assert_int_equal(wordpiece_encode(tokenizer, text, bytes, most, &ids), CLATTN_SUCCESS);
    const char *result = names(tokenizer, &ids);
    wordpiece_ids_release(&ids);
    return result;
}

static wordpiece *open_lines(const char *text, size_t bytes)
{
    wordpiece *tokenizer;
    clattn_io_error error = {""};
    if (wordpiece_open_vocab(store("vocab.txt", text, bytes), &tokenizer, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);
    return tokenizer;
}

static void the_rules(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tokens;
    } cases[] = {
        {"", ""},
        {" \t\r\n", ""},
        {"hello world", "hello world"},
        {"HELLO  World!", "hello world !"},
        {"worlds worldss", "world ##s world ##s ##s"},
        {"unaffable", "un ##aff ##able"},
        {"unaffablex hello", "[UNK] hello"},
        {"helloworld", "[UNK]"},
        {"hello!!world", "hello ! ! world"},
        {"a't $a", "a ' t $ a"},
        /* Accents: composed, decomposed, capitals. */
        {"caf\xc3\xa9 CAFE\xcc\x81 C\xcc\xa7\xcc\x81"
         "afe",
         "cafe cafe cafe"},
        /* The sharp s has no decomposition. */
        {"Stra\xc3\x9f"
         "e",
         "stra ##\xc3\x9f ##e"},
        /* A Chinese character is a word wherever it stands. */
        {"a\xe6\xbc\xa2\xe6\xbc\xa2hello", "a \xe6\xbc\xa2 \xe6\xbc\xa2 hello"},
        /* Controls, U+FFFD and zero-width characters go; every kind of space separates. */
        {"he\x01ll\xe2\x80\x8bo\xef\xbf\xbd", "hello"},
        {"hello\xc2\xa0world\xe3\x80\x80hello\xe2\x80\xa8world", "hello world hello world"},
        /* Special tokens stand for themselves where they are written as they are, and only there. */
        {"hello[SEP]world [MASK]", "hello [SEP] world [MASK]"},
        {"a[UNK]a", "a [UNK] a"},
        {"[sep]", "[UNK] [UNK] [UNK]"},
        {"[PAD", "[UNK] [UNK]"},
        /* Bytes that are no UTF-8 are dropped: alone, cut short, too long a form, a surrogate, beyond
           U+10FFFF. */
        {"he\xffllo", "hello"},
        {"hello\xe6\xbc", "hello"},
        {"he\xc0\xafllo", "hello"},
        {"he\xed\xa0\x80llo", "hello"},
        {"he\xf4\x90\x80\x80llo", "hello"},
    };
    char wanted[1024];
    wordpiece *tokenizer = open_lines(lines, strlen(lines));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(wanted, sizeof wanted, "[CLS] %s%s[SEP]", cases[i].tokens, cases[i].tokens[0] != '\0' ? " " : "");
        assert_string_equal(encoded(tokenizer, cases[i].text, strlen(cases[i].text), 1000), wanted);
    }
    assert_string_equal(encoded(tokenizer, "hel\0lo", 6, 1000), "[CLS] hello [SEP]");
    assert_int_equal(wordpiece_size(tokenizer), 24);
    assert_null(wordpiece_token(tokenizer, 24));
    assert_null(wordpiece_token(tokenizer, -1));
    wordpiece_close(&tokenizer);
    assert_null(tokenizer);
    wordpiece_close(&tokenizer);
}

static void words_of_more_than_100_characters(void **state)
{
    (void)state;
    char text[512];
    wordpiece_ids ids = {0};
    wordpiece *tokenizer = open_lines(lines, strlen(lines));
    memset(text, 'a', sizeof text);
    assert_int_equal(wordpiece_encode(tokenizer, text, 100, 1000, &ids), CLATTN_SUCCESS);
    assert_true(ids.count == 102 && ids.unknown == 0 && ids.id[1] == 12 && ids.id[100] == 13);
    assert_int_equal(wordpiece_encode(tokenizer, text, 101, 1000, &ids), CLATTN_SUCCESS);
    assert_true(ids.count == 3 && ids.unknown == 1 && ids.id[1] == 1);
    /* Characters that are dropped do not count. */
    for (size_t i = 0; i < 100; i++)
        memcpy(text + 3 * i, "a\xcc\x81", 3);
    assert_int_equal(wordpiece_encode(tokenizer, text, 300, 1000, &ids), CLATTN_SUCCESS);
    assert_int_equal(ids.count, 102);
    wordpiece_ids_release(&ids);
    wordpiece_close(&tokenizer);
}

static void a_limit_keeps_the_last_token(void **state)
{
    (void)state;
    wordpiece_ids ids = {0};
    wordpiece *tokenizer = open_lines(lines, strlen(lines));
    const char *text = "hello world unaffable x";
    assert_string_equal(encoded(tokenizer, text, strlen(text), 2), "[CLS] [SEP]");
    assert_string_equal(encoded(tokenizer, text, strlen(text), 5), "[CLS] hello world un [SEP]");
    assert_string_equal(encoded(tokenizer, text, strlen(text), 7), "[CLS] hello world un ##aff ##able [SEP]");
    assert_int_equal(wordpiece_encode(tokenizer, text, strlen(text), 3, &ids), CLATTN_SUCCESS);
    assert_true(ids.count == 3 && ids.total == 8 && ids.unknown == 1);
    assert_int_equal(wordpiece_encode(tokenizer, text, strlen(text), 8, &ids), CLATTN_SUCCESS);
    assert_true(ids.count == 8 && ids.total == 8);
    wordpiece_ids_release(&ids);
    wordpiece_close(&tokenizer);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void strings_as_pypi_tokenizers_has_them(void **state)
{
    (void)state;
    static char line[65536];
    clattn_io_error error = {""};
    wordpiece_ids ids = {0};
    wordpiece *tokenizer;
    size_t count = 0;
    if (wordpiece_open_vocab(TESTS_WORDPIECE "/vocab.txt", &tokenizer, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);
    FILE *file = fopen(TESTS_WORDPIECE "/cases.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        static char text[4096];
        size_t bytes = 0, at = 0;
        for (; line[at] != ' ' && line[at] != '-'; at += 2)
            text[bytes++] = (char)(digit(line[at]) * 16 + digit(line[at + 1]));
        at += line[at] == '-';
        assert_int_equal(wordpiece_encode(tokenizer, text, bytes, 100000, &ids), CLATTN_SUCCESS);
        char *next = line + at;
        for (size_t i = 0; i < ids.count; i++) {
            if (strtol(next, &next, 10) != ids.id[i])
                fail_msg("case %zu, '%.*s': token %zu is %s", count, (int)bytes, text, i,
                         wordpiece_token(tokenizer, ids.id[i]));
        }
        assert_string_equal(next, "\n");
        count++;
    }
    fclose(file);
    assert_int_equal(count, 1097);
    wordpiece_ids_release(&ids);
    wordpiece_close(&tokenizer);
}

/* ---- tokenizer.json ---- */

#define SPECIAL(id, text, rest) "{\"id\":" #id ",\"special\":true,\"content\":\"" text "\"," rest "}"
#define AS_IS "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
#define ADDED "\"added_tokens\":[" SPECIAL(0, "[CLS]", AS_IS) "," SPECIAL(1, "[SEP]", AS_IS) "],"
#define RULES \
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_" \
    "accents\":null,\"lowercase\":true},"
#define CUTS "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
#define FRAME \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\"," \
    "\"type_id\":0}}," \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}]," \
    "\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[0]},\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[1]}}" \
    "},"
#define OLD_FRAME "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",1],\"cls\":[\"[CLS]\",0]},"
#define MODEL_OF(vocab) \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"-\",\"max_input_" \
    "chars_per_word\":6," \
    "\"vocab\":{" vocab "}}"
#define MODEL MODEL_OF("\"[CLS]\":0,\"[SEP]\":1,\"?\":2,\"Caf\":5,\"-\\u00e9\":6,\"caf\":7,\"-e\":8")

static wordpiece *open_json(const char *text)
{
    wordpiece *tokenizer;
    clattn_io_error error = {""};
    if (wordpiece_open_json(store("tokenizer.json", text, strlen(text)), &tokenizer, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);
    return tokenizer;
}

static void tokenizer_json_says_the_rules(void **state)
{
    (void)state;
    static const char cased[] = "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false,\"handle_"
                                "chinese_chars\":false,\"strip_accents\":null,"
                                "\"lowercase\":false}," CUTS OLD_FRAME MODEL "}";
    static const char stripped[] = "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
                                   "\"handle_chinese_chars\":true,\"strip_accents\":true,"
                                   "\"lowercase\":false}," CUTS OLD_FRAME MODEL "}";
    static const char lower[] = "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_"
                                "chinese_chars\":true,\"strip_accents\":false,"
                                "\"lowercase\":true}," CUTS OLD_FRAME MODEL "}";
    const char *text = "Caf\xc3\xa9 Cafe\xcc\x81 [SEP] cafeeee";
    wordpiece *tokenizer = open_json("{" ADDED RULES CUTS FRAME MODEL "}");
    assert_string_equal(encoded(tokenizer, text, strlen(text), 100), "[CLS] caf -e caf -e [SEP] ? [SEP]");
    assert_int_equal(wordpiece_size(tokenizer), 9);
    assert_null(wordpiece_token(tokenizer, 3));
    wordpiece_close(&tokenizer);
    tokenizer = open_json(cased);
    assert_string_equal(encoded(tokenizer, text, strlen(text), 100), "[CLS] Caf -\xc3\xa9 ? ? ? ? ? [SEP]");
    assert_string_equal(encoded(tokenizer, "\x01 Caf\xff", 6, 100), "[CLS] ? ? [SEP]");
    wordpiece_close(&tokenizer);
    tokenizer = open_json(stripped);
    assert_string_equal(encoded(tokenizer, text, strlen(text), 11), "[CLS] Caf -e Caf -e ? ? ? ? [SEP]");
    wordpiece_close(&tokenizer);
    tokenizer = open_json(lower);
    assert_string_equal(encoded(tokenizer, text, 10, 100), "[CLS] caf -\xc3\xa9 caf -e [SEP]");
    wordpiece_close(&tokenizer);
}

static void what_the_readers_refuse(void **state)
{
    (void)state;
#define FLAGS "\"clean_text\":true,\"handle_chinese_chars\":true,\"lowercase\":true"
    static const struct {
        const char *text;
        clattn_status status;
        const char *part;
    } in_json[] = {
        {"", CLATTN_ERROR_FORMAT, "is not JSON"},
        {"[]", CLATTN_ERROR_UNSUPPORTED, "its model is not one that clattn has, expected WordPiece"},
        {"{\"model\":{\"type\":\"BPE\"}}", CLATTN_ERROR_UNSUPPORTED, "expected WordPiece"},
        {"{\"model\":1,\"model\":2}", CLATTN_ERROR_FORMAT, "duplicate"},
        {"{" ADDED CUTS FRAME MODEL "}", CLATTN_ERROR_UNSUPPORTED, "its normalizer is not one"},
        {"{" ADDED "\"normalizer\":{\"type\":\"NFC\"}," CUTS FRAME MODEL "}", CLATTN_ERROR_UNSUPPORTED,
         "expected BertNormalizer"},
        {"{" ADDED "\"normalizer\":{\"type\":\"BertNormalizer\",\"strip_accents\":1," FLAGS "}," CUTS FRAME MODEL "}",
         CLATTN_ERROR_UNSUPPORTED, "expected BertNormalizer"},
        {"{" ADDED RULES FRAME MODEL "}", CLATTN_ERROR_UNSUPPORTED, "expected BertPreTokenizer"},
        {"{" ADDED RULES CUTS MODEL "}", CLATTN_ERROR_UNSUPPORTED, "its post_processor is not one"},
        {"{" RULES CUTS
         "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",9],\"cls\":[\"[CLS]\",0]}," MODEL "}",
         CLATTN_ERROR_UNSUPPORTED, "its post_processor is not one"},
        {"{\"added_tokens\":[" SPECIAL(1, "[CLS]", AS_IS) "]," RULES CUTS FRAME MODEL "}", CLATTN_ERROR_FORMAT,
         "added_tokens[0] has another number than the vocabulary, where it has 0"},
        {"{\"added_tokens\":[" SPECIAL(
             0, "[CLS]",
             "\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false") "]," RULES CUTS FRAME MODEL
                                                                                            "}",
         CLATTN_ERROR_UNSUPPORTED, "its added_tokens is not one"},
        {"{" ADDED RULES CUTS FRAME MODEL_OF("\"[CLS]\":0") "}", CLATTN_ERROR_FORMAT,
         "its vocabulary lacks the token '?'"},
        {"{" ADDED RULES CUTS FRAME MODEL_OF("\"?\":2,\"b\":2") "}", CLATTN_ERROR_FORMAT, "expected one token"},
        {"{" ADDED RULES CUTS FRAME MODEL_OF("\"?\":-1") "}", CLATTN_ERROR_FORMAT, "the token '?' has no number"},
        {"{" ADDED RULES CUTS FRAME MODEL_OF("\"?\":1048576") "}", CLATTN_ERROR_FORMAT, "from 0 to 1048575"},
        {"{" ADDED RULES CUTS FRAME MODEL_OF("\"?\":2.0") "}", CLATTN_ERROR_FORMAT, "the token '?' has no number"},
        {"{" ADDED RULES CUTS FRAME MODEL_OF("\"\":2") "}", CLATTN_ERROR_FORMAT, "has 0 bytes"},
    };
    static const struct {
        const char *text;
        size_t bytes;
        clattn_status status;
        const char *part;
    } in_lines[] = {
        {"", 0, CLATTN_ERROR_FORMAT, "its vocabulary lacks the token '[UNK]'"},
        {"[UNK]\n[CLS]\n", 12, CLATTN_ERROR_FORMAT, "its vocabulary lacks the token '[SEP]'"},
        {"[UNK]\n\n[CLS]\n[SEP]", 19, CLATTN_ERROR_FORMAT, "token 1, on line 2, is empty"},
        {"[UNK]\na\0b\n[CLS]\n[SEP]", 21, CLATTN_ERROR_FORMAT, "token 1, on line 2, holds a NUL"},
        {"[UNK]\n[CLS]\n[SEP]\n[CLS]\n", 24, CLATTN_ERROR_FORMAT, "the token '[CLS]' is number 1 and 3, expected once"},
        {"[UNK]\n\xff\n[CLS]\n[SEP]", 19, CLATTN_ERROR_FORMAT, "is not UTF-8"},
    };
    wordpiece *tokenizer;
    clattn_io_error error;
    for (size_t i = 0; i < COUNT_OF(in_json); i++) {
        clattn_status status =
            wordpiece_open_json(store("bad.json", in_json[i].text, strlen(in_json[i].text)), &tokenizer, &error);
        assert_refusal(status, in_json[i].status, &error, in_json[i].part, in_json[i].part);
        assert_null(tokenizer);
    }
    for (size_t i = 0; i < COUNT_OF(in_lines); i++) {
        clattn_status status =
            wordpiece_open_vocab(store("bad.txt", in_lines[i].text, in_lines[i].bytes), &tokenizer, &error);
        assert_refusal(status, in_lines[i].status, &error, in_lines[i].part, in_lines[i].part);
        assert_null(tokenizer);
    }
    assert_refusal(wordpiece_open_vocab(path_to("none"), &tokenizer, &error), CLATTN_ERROR_IO, &error,
                   "cannot be opened", "none");
    assert_refusal(wordpiece_open_json(path_to("."), &tokenizer, &error), CLATTN_ERROR_IO, &error, "is a folder",
                   "folder");
}

static void limits_of_the_vocabulary(void **state)
{
    (void)state;
    wordpiece *tokenizer;
    clattn_io_error error;
    size_t bytes = 0;
    const size_t room = (16 << 20) + 1;
    char *text = malloc(room);
    assert_non_null(text);
    memset(text, 'a', room);
    assert_refusal(wordpiece_open_vocab(store("large", text, room), &tokenizer, &error), CLATTN_ERROR_UNSUPPORTED,
                   &error, "expected at most 16777216", "16 MiB and a byte");
    assert_refusal(wordpiece_open_vocab(store("long", text, 1025), &tokenizer, &error), CLATTN_ERROR_UNSUPPORTED,
                   &error, "has 1025 bytes, expected at most 1024", "a long token");
    for (size_t i = 0; i <= 1 << 20; i++)
        bytes += (size_t)sprintf(text + bytes, "%zx\n", i);
    assert_refusal(wordpiece_open_vocab(store("many", text, bytes), &tokenizer, &error), CLATTN_ERROR_UNSUPPORTED,
                   &error, "has 1048577 lines, expected at most 1048576", "many tokens");
    /* The most there may be, of which none is slow to find. */
    bytes = (size_t)sprintf(text, "[UNK]\n[CLS]\n[SEP]\n");
    for (size_t i = 3; i < 1 << 20; i++)
        bytes += (size_t)sprintf(text + bytes, "%zx\n", i);
    tokenizer = open_lines(text, bytes);
    assert_string_equal(encoded(tokenizer, "fffff 3 x", 9, 10), "[CLS] fffff 3 [UNK] [SEP]");
    wordpiece_close(&tokenizer);
    free(text);
}

static void json_check(const char *path, size_t file_size, bool *accepted)
{
    wordpiece *tokenizer;
    clattn_io_error error = {""};
    (void)file_size;
    clattn_status status = wordpiece_open_json(path, &tokenizer, &error);
    *accepted = status == CLATTN_SUCCESS;
    assert_true(*accepted == (tokenizer != NULL));
    if (*accepted)
        encoded(tokenizer, "Caf\xc3\xa9 [SEP]", 11, 100);
    else
        assert_one_line(&error);
    wordpiece_close(&tokenizer);
}

static void broken_json_is_a_status(void **state)
{
    (void)state;
    static const char text[] = "{" ADDED RULES CUTS FRAME MODEL "}";
    image made = {{0}, 0};
    add(&made, text, strlen(text));
    check_corruption(&made, made.size, json_check);
    for (size_t length = 0; length < made.size; length++) {
        bool accepted;
        json_check(store("short.json", made.bytes, length), length, &accepted);
        assert_false(accepted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rules),
        cmocka_unit_test(words_of_more_than_100_characters),
        cmocka_unit_test(a_limit_keeps_the_last_token),
        cmocka_unit_test(strings_as_pypi_tokenizers_has_them),
        cmocka_unit_test(tokenizer_json_says_the_rules),
        cmocka_unit_test(what_the_readers_refuse),
        cmocka_unit_test(limits_of_the_vocabulary),
        cmocka_unit_test(broken_json_is_a_status),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
