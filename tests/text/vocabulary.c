/* A vocabulary is made of texts and read again, and a model's folder is refused in words if anything in it is wrong.  Needs no
 * device. */
#define _GNU_SOURCE
#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/random.h"
#include "tool/run/device.h"
#include "tool/run/model_file.h"
#include "tool/text/text_model.h"
#include "tool/tool.h"

static char complaint[1024];

int complain(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    return status;
}

int exit_status_of(clattn_status status)
{
    return status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_IO ? TOOL_BAD_INPUT : TOOL_FAILED;
}

static void assert_complaint(int status, int wanted, const char *part)
{
    if (status != wanted || strstr(complaint, part) == NULL)
        fail_msg("status %d, '%s', expected %d and '%s'", status, complaint, wanted, part);
}

static const char lines[] = "The file is there.\nThe file is not there, and the folder is empty.\n\r\n\n"
                            "Die Datei ist da.\r\nDie Datei fehlt, und der Ordner ist leer.\n"
                            "gr\xc3\xbc\xc3\x9f\x65 den Ordner\xe2\x80\xa6\nThe folder is there";

static const char *make(const char *name, const char *text, size_t pieces)
{
    const char *file = store("lines.txt", text, strlen(text)), *path = path_to(name);
    if (vocabulary_train(&file, 1, pieces, path) != TOOL_DONE)
        fail_msg("%s", complaint);
    return path;
}

static vocabulary *open_it(const char *path)
{
    vocabulary *v;
    if (vocabulary_open(path, &v) != TOOL_DONE)
        fail_msg("%s", complaint);
    return v;
}

static char *contents_of(const char *path, size_t *bytes)
{
    clattn_io_error error;
    char *text;
    if (model_file_read(path, SIZE_MAX, &text, bytes, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);
    return text;
}

static void texts_come_back(void **state)
{
    static const char *const texts[] = {"The file is there.", "Die Datei fehlt, und der Ordner ist leer.",
                                        "gr\xc3\xbc\xc3\x9f\x65 den Ordner\xe2\x80\xa6", ""};
    vocabulary *v = open_it(make("vocabulary.model", lines, 80));
    (void)state;
    assert_in_range(vocabulary_size(v), 40, 80);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        vocabulary_ids ids = {0};
        char *text;
        assert_int_equal(vocabulary_append(&ids, VOCABULARY_BEGIN), TOOL_DONE);
        assert_int_equal(vocabulary_encode(v, texts[i], strlen(texts[i]), &ids), TOOL_DONE);
        assert_int_equal(vocabulary_append(&ids, VOCABULARY_END), TOOL_DONE);
        assert_true(strlen(texts[i]) == 0 ? ids.count == 2 : ids.count > 2);
        for (size_t k = 1; k + 1 < ids.count; k++)
            assert_in_range(ids.id[k], VOCABULARY_SPECIALS, vocabulary_size(v) - 1);
        assert_int_equal(vocabulary_decode(v, ids.id, ids.count, &text), TOOL_DONE);
        assert_string_equal(text, texts[i]);
        free(text);
        free(ids.id);
    }
    assert_string_equal(vocabulary_piece(v, VOCABULARY_PAD), "<pad>");
    assert_string_equal(vocabulary_piece(v, VOCABULARY_END), "</s>");
    vocabulary_close(v);
    vocabulary_close(NULL);
}

static void other_characters_are_unknown(void **state)
{
    static const char *const texts[] = {"\xe6\xbc\xa2", "\xff\xfe", "\xc3", "\xed\xa0\x80"};
    vocabulary *v = open_it(make("vocabulary.model", lines, 80));
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        vocabulary_ids ids = {0};
        size_t unknown = 0;
        assert_int_equal(vocabulary_encode(v, texts[i], strlen(texts[i]), &ids), TOOL_DONE);
        for (size_t k = 0; k < ids.count; k++)
            unknown += ids.id[k] == VOCABULARY_UNKNOWN;
        assert_true(unknown > 0);
        free(ids.id);
    }
    vocabulary_close(v);
}

static void the_same_texts_make_the_same_file(void **state)
{
    size_t first_bytes, second_bytes;
    (void)state;
    char *first = contents_of(make("first.model", lines, 60), &first_bytes);
    char *second = contents_of(make("second.model", lines, 60), &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
}

static void refusals_of_training(void **state)
{
    (void)state;
    const char *good = store("lines.txt", lines, strlen(lines)), *empty = store("empty.txt", "\n\r\n\n", 4);
    const char *files[] = {good, path_to("missing.txt")};
    assert_complaint(vocabulary_train(files, 2, 80, path_to("new.model")), TOOL_BAD_INPUT,
                     "missing.txt: cannot be opened: No such file");
    assert_complaint(vocabulary_train(&files[1], 1, 80, path_to("new.model")), TOOL_BAD_INPUT, "cannot be opened");
    files[0] = test_folder;
    assert_complaint(vocabulary_train(files, 1, 80, path_to("new.model")), TOOL_BAD_INPUT, "cannot be read: Is a");
    assert_complaint(vocabulary_train(&empty, 1, 80, path_to("new.model")), TOOL_BAD_INPUT, "has no text");
    assert_complaint(vocabulary_train(&good, 1, 20, path_to("new.model")), TOOL_BAD_INPUT,
                     "no vocabulary of 20 pieces can be made of it: Vocabulary size is smaller than");
    assert_int_equal(access(path_to("new.model"), F_OK), -1);
    good = path_to("lines.txt"); /* paths stay valid for a while */
    assert_complaint(vocabulary_train(&good, 1, 60, path_to("none/new.model")), TOOL_FAILED, "none/new.model");
}

/* Opens a file that may be anything, and uses it if it is accepted. */
static void try_file(const char *path, bool *accepted)
{
    vocabulary *v;
    *accepted = vocabulary_open(path, &v) == TOOL_DONE;
    if (!*accepted) {
        assert_null(v);
        return;
    }
    vocabulary_ids ids = {0};
    char *text;
    assert_int_equal(vocabulary_encode(v, lines, strlen(lines), &ids), TOOL_DONE);
    for (size_t i = 0; i < ids.count; i++)
        assert_in_range(ids.id[i], 0, vocabulary_size(v) - 1);
    if (vocabulary_decode(v, ids.id, ids.count, &text) == TOOL_DONE)
        free(text);
    free(ids.id);
    vocabulary_close(v);
}

static void broken_files(void **state)
{
    size_t bytes;
    bool accepted;
    char *file = contents_of(make("vocabulary.model", lines, 60), &bytes);
    random_stream random = random_start(22);
    size_t count = 0;
    (void)state;
    try_file(store("broken.model", file, bytes), &accepted);
    assert_true(accepted);
    for (size_t i = 0; i < bytes; i += 7) { /* a prefix of whole fields is a vocabulary of fewer pieces */
        try_file(store("broken.model", file, i), &accepted);
        count += accepted;
    }
    assert_in_range(count, 0, bytes / 7 / 4);
    for (size_t i = 0; i < bytes; i++) {
        const char was = file[i];
        file[i] = (char)random_int(&random, 0, 255);
        try_file(store("broken.model", file, bytes), &accepted);
        file[i] = was;
    }
    free(file);
}

static void a_table_of_characters_is_refused(void **state)
{
    /* normalizer_spec (3) with precompiled_charsmap (2). */
    static const char table[] = {3 << 3 | 2, 8, 2 << 3 | 2, 6, 4, 0, 0, 0, 1, 1};
    size_t bytes;
    vocabulary *v;
    char *file = contents_of(make("vocabulary.model", lines, 60), &bytes), *longer = malloc(bytes + sizeof table);
    (void)state;
    assert_non_null(longer);
    memcpy(longer, file, bytes);
    memcpy(longer + bytes, table, sizeof table);
    assert_complaint(vocabulary_open(store("table.model", longer, bytes + sizeof table), &v), TOOL_BAD_INPUT,
                     "table.model: is not a vocabulary that clattn has made");
    free(longer);
    free(file);
}

static void shapes_come_back(void **state)
{
    static const char *const presets[] = {"tiny", "base"};
    text_shape shape, again;
    (void)state;
    for (int i = 0; i < 4; i++) {
        clattn_transformer_desc desc;
        clattn_stack_desc encoder, decoder;
        const text_kind kind = i % 2 == 0 ? TEXT_KIND_TRANSLATION : TEXT_KIND_TEXT;
        assert_true(text_shape_preset(presets[i / 2], kind, &shape));
        assert_int_equal(text_shape_write(test_folder, &shape), TOOL_DONE);
        assert_int_equal(text_shape_read(test_folder, &again), TOOL_DONE);
        assert_memory_equal(&shape, &again, sizeof shape);
        text_shape_describe(&shape, &desc, &encoder, &decoder);
        assert_int_equal(desc.encoder != NULL, kind == TEXT_KIND_TRANSLATION);
        assert_int_equal(decoder.final_norm, i / 2 == 0);
    }
    assert_false(text_shape_preset("huge", TEXT_KIND_TEXT, &shape));
}

static void replace(char *text, size_t bytes, const char *was, const char *is)
{
    char *at = strstr(text, was), rest[1024];
    assert_non_null(at);
    snprintf(rest, sizeof rest, "%s", at + strlen(was));
    snprintf(at, bytes - (size_t)(at - text), "%s%s", is, rest);
}

static void broken_configs(void **state)
{
    static const struct {
        const char *was, *is, *part;
    } cases[] = {{"\"clattn_text\": 1", "\"clattn_text\": 2", "clattn_text is 2, expected 1"},
                 {"\"clattn_text\": 1", "\"a\": 1", "clattn_text is nothing"},
                 {"\"translation\"", "\"speech\"", "kind is \"speech\", expected \"translation\" or \"text\""},
                 {"\"pre\"", "7", "norm_place is 7, expected \"post\" or \"pre\""},
                 {"\"d_model\": 256", "\"d_model\": 255", "d_model is 255, expected a multiple of heads, 4"},
                 {"\"d_model\": 256", "\"d_model\": -1", "d_model is -1, expected a whole number from 1 to 65536"},
                 {"\"heads\": 4", "\"heads\": 0", "heads is 0"},
                 {"\"source_length\": 128", "\"source_length\": 1e9", "source_length is 1e+09"},
                 {"\"vocabulary\": 8000", "\"vocabulary\": 65537", "from 1 to 65536"},
                 {"\"encoder_layers\": 3,", "", "encoder_layers is nothing"},
                 {"{", "", "is not JSON"}};
    text_shape shape;
    size_t bytes;
    (void)state;
    text_shape_preset("tiny", TEXT_KIND_TRANSLATION, &shape);
    assert_int_equal(text_shape_write(test_folder, &shape), TOOL_DONE);
    char *good = contents_of(path_to("config.json"), &bytes), bad[1024];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(bad, sizeof bad, "%s", good);
        replace(bad, sizeof bad, cases[i].was, cases[i].is);
        store("config.json", bad, strlen(bad));
        assert_complaint(text_shape_read(test_folder, &shape), TOOL_BAD_INPUT, cases[i].part);
    }
    free(good);
    unlink(path_to("config.json"));
    assert_complaint(text_shape_read(test_folder, &shape), TOOL_BAD_INPUT, "config.json");
}

static void a_vocabulary_of_another_size_is_refused(void **state)
{
    text_model model;
    (void)state;
    vocabulary *v = open_it(make("vocabulary.model", lines, 60));
    const size_t pieces = vocabulary_size(v);
    vocabulary_close(v);
    text_shape_preset("tiny", TEXT_KIND_TEXT, &model.shape);
    assert_int_equal(text_shape_write(test_folder, &model.shape), TOOL_DONE);
    assert_complaint(text_model_open(test_folder, &model), TOOL_BAD_INPUT, "expected config.json's vocabulary, 8000");
    text_model_close(&model);
    model.shape.vocabulary = pieces;
    assert_int_equal(text_shape_write(test_folder, &model.shape), TOOL_DONE);
    assert_int_equal(text_model_open(test_folder, &model), TOOL_DONE);
    text_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(other_characters_are_unknown),
        cmocka_unit_test(the_same_texts_make_the_same_file),
        cmocka_unit_test(refusals_of_training),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(a_table_of_characters_is_refused),
        cmocka_unit_test(shapes_come_back),
        cmocka_unit_test(broken_configs),
        cmocka_unit_test(a_vocabulary_of_another_size_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
