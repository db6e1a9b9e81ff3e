/* The reader of CTranslate2 models in libclattn-io takes valid files, refuses others with the right status, and does no
 * more than that for any broken file.  Needs no device. */
#include "io/files.h"

#include <stdio.h>
#include <string.h>

static void add_text(image *to, const char *text)
{
    add_number(to, strlen(text) + 1, 2);
    add(to, text, strlen(text) + 1);
}

/* Adds a variable with `rank` extents, whose bytes count up from `first`. */
static void add_variable(image *to, const char *name, int rank, const unsigned *extent, unsigned type, unsigned bytes,
                         unsigned first)
{
    add_text(to, name);
    add_number(to, (unsigned)rank, 1);
    for (int i = 0; i < rank; i++)
        add_number(to, extent[i], 4);
    add_number(to, type, 1);
    add_number(to, bytes, 4);
    for (unsigned i = 0; i < bytes; i++)
        add_number(to, first + i, 1);
}

static image begin(unsigned version, unsigned variables)
{
    image made = {{0}, 0};
    add_number(&made, version, 4);
    add_text(&made, "TestSpec");
    add_number(&made, 3, 4);
    add_number(&made, variables, 4);
    return made;
}

/* Makes a model with one variable of each type, scalars, an empty variable and an alias. */
static image good(void)
{
    image made = begin(6, 8);
    add_variable(&made, "z/weight", 2, (unsigned[]){2, 3}, 4, 12, 10);
    add_variable(&made, "b", 1, (unsigned[]){2}, 0, 8, 0);
    add_variable(&made, "heads", 0, NULL, 2, 2, 0xff);
    add_variable(&made, "flag", 0, NULL, 1, 1, 0xfe);
    add_variable(&made, "count", 0, NULL, 3, 4, 1);
    add_variable(&made, "bf", 1, (unsigned[]){3}, 5, 6, 7);
    add_variable(&made, "empty", 2, (unsigned[]){4, 0}, 0, 0, 0);
    add_variable(&made, "bytes", 1, (unsigned[]){5}, 1, 5, 100);
    add_number(&made, 1, 4);
    add_text(&made, "a/weight");
    add_text(&made, "z/weight");
    return made;
}

static void lookup_and_listing(void **state)
{
    (void)state;
    static const char *const names[] = {"a/weight", "b", "bf", "bytes", "count", "empty", "flag", "heads", "z/weight"};
    image file_ = good();
    clattn_ctranslate2 *file;
    clattn_ctranslate2_entry entry;
    clattn_host_tensor tensor, other;
    clattn_io_error error = {""};
    int32_t value;
    if (clattn_ctranslate2_create(store("good", file_.bytes, file_.size), &file, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);

    assert_string_equal(clattn_ctranslate2_spec(file), "TestSpec");
    assert_int_equal(clattn_ctranslate2_revision(file), 3);
    assert_int_equal(clattn_ctranslate2_count(file), COUNT_OF(names));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(clattn_ctranslate2_at(file, i, &entry), CLATTN_SUCCESS);
        assert_string_equal(entry.name, names[i]);
    }
    assert_int_equal(clattn_ctranslate2_at(file, COUNT_OF(names), &entry), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(entry.name);

    /* An alias gives its variable. */
    assert_int_equal(clattn_ctranslate2_find(file, "a/weight", &tensor, &error), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_F16 && tensor.rank == 2 && tensor.extent[0] == 2 && tensor.extent[1] == 3);
    assert_int_equal(tensor.bytes, 12);
    for (int i = 0; i < 12; i++)
        assert_int_equal(((const unsigned char *)tensor.data)[i], 10 + i);
    clattn_tensor_lookup lookup = clattn_ctranslate2_lookup;
    assert_int_equal(lookup(file, "z/weight", &other, NULL), CLATTN_SUCCESS);
    assert_ptr_equal(tensor.data, other.data);

    assert_int_equal(clattn_ctranslate2_find(file, "bf", &tensor, &error), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_BF16 && tensor.rank == 1 && tensor.extent[0] == 3);
    assert_int_equal(clattn_ctranslate2_find(file, "empty", &tensor, &error), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_F32 && tensor.bytes == 0 && tensor.data == NULL && tensor.extent[0] == 4);
    assert_int_equal(clattn_ctranslate2_find(file, "none", &tensor, &error), CLATTN_SUCCESS);
    assert_int_equal(tensor.dtype, CLATTN_DTYPE_NONE);
    assert_refusal(clattn_ctranslate2_find(file, "heads", &tensor, &error), CLATTN_ERROR_UNSUPPORTED, &error, "int16",
                   "int16");
    assert_int_equal(clattn_ctranslate2_at(file, 7, &entry), CLATTN_SUCCESS);
    assert_string_equal(entry.dtype_name, "int16");
    assert_true(entry.tensor.dtype == CLATTN_DTYPE_NONE && entry.tensor.bytes == 2);

    assert_true(clattn_ctranslate2_integer(file, "heads", &value) && value == 0x00ff);
    assert_true(clattn_ctranslate2_integer(file, "flag", &value) && value == -2);
    assert_true(clattn_ctranslate2_integer(file, "count", &value) && value == 0x04030201);
    assert_false(clattn_ctranslate2_integer(file, "b", &value));
    assert_false(clattn_ctranslate2_integer(file, "none", &value));
    assert_int_equal(value, 0);
    assert_false(clattn_ctranslate2_integer(NULL, "b", &value));
    assert_false(clattn_ctranslate2_integer(file, NULL, &value));
    assert_false(clattn_ctranslate2_integer(file, "flag", NULL));
    clattn_ctranslate2_release(&file);
    assert_null(file);
    clattn_ctranslate2_release(&file);
    clattn_ctranslate2_release(NULL);
    assert_string_equal(clattn_ctranslate2_spec(NULL), "");
    assert_int_equal(clattn_ctranslate2_revision(NULL) + clattn_ctranslate2_count(NULL), 0);
}

static void refuse(const image *file_, clattn_status wanted, const char *part, const char *what)
{
    clattn_ctranslate2 *file;
    clattn_io_error error = {""};
    clattn_status got = clattn_ctranslate2_create(store("bad", file_->bytes, file_->size), &file, &error);
    assert_null(file);
    assert_refusal(got, wanted, &error, part, what);
}

/* Fails the test unless a model is refused whose only variable has this header. */
static void refuse_variable(const char *name, int rank, const unsigned *extent, unsigned type, unsigned bytes,
                            clattn_status wanted, const char *part)
{
    image made = begin(6, 1);
    add_variable(&made, name, rank, extent, type, bytes, 0);
    add_number(&made, 0, 4);
    refuse(&made, wanted, part, part);
}

static void refusals(void **state)
{
    (void)state;
    image made;
    for (unsigned version = 4; version <= 6; version++) {
        clattn_ctranslate2 *file;
        made = begin(version, 0);
        add_number(&made, 0, 4);
        assert_int_equal(clattn_ctranslate2_create(store("empty", made.bytes, made.size), &file, NULL), CLATTN_SUCCESS);
        assert_int_equal(clattn_ctranslate2_count(file), 0);
        clattn_ctranslate2_release(&file);
    }
    made = begin(3, 0);
    refuse(&made, CLATTN_ERROR_UNSUPPORTED, "version 3, expected 4 to 6", "an old version");
    made = begin(7, 0);
    refuse(&made, CLATTN_ERROR_UNSUPPORTED, "version 7, expected 4 to 6", "a new version");
    made = begin(0x504b0304, 0);
    refuse(&made, CLATTN_ERROR_FORMAT, "not a CTranslate2 model", "another file");
    made = begin(6, 100001);
    refuse(&made, CLATTN_ERROR_UNSUPPORTED, "100001 variables", "very many");
    made = begin(6, 5);
    refuse(&made, CLATTN_ERROR_FORMAT, "5 variables do not fit", "more than there is room for");
    made = begin(6, 2);
    add_variable(&made, "twice", 0, NULL, 1, 1, 0);
    add_variable(&made, "twice", 0, NULL, 1, 1, 0);
    add_number(&made, 0, 4);
    refuse(&made, CLATTN_ERROR_FORMAT, "'twice' is there twice", "a name twice");
    made = good();
    add_number(&made, 0, 1);
    refuse(&made, CLATTN_ERROR_FORMAT, "1 bytes after its end", "more than its end");
    made = begin(6, 1);
    add_variable(&made, "x", 0, NULL, 1, 1, 0);
    add_number(&made, 1, 4);
    add_text(&made, "alias");
    add_text(&made, "y");
    refuse(&made, CLATTN_ERROR_FORMAT, "'y', which is not there", "an alias of nothing");
    made.size -= 2; /* "" */
    refuse(&made, CLATTN_ERROR_FORMAT, "cut short", "an alias cut short");
    made = begin(6, 1);
    add_variable(&made, "x", 0, NULL, 1, 1, 0);
    add_number(&made, 2, 4);
    add_text(&made, "one");
    add_text(&made, "x");
    add_text(&made, "two");
    add_text(&made, "one");
    refuse(&made, CLATTN_ERROR_FORMAT, "'one', which is not there", "an alias of an alias");

    refuse_variable("", 0, NULL, 1, 1, CLATTN_ERROR_FORMAT, "is empty");
    refuse_variable("w", 1, (unsigned[]){2}, 6, 4, CLATTN_ERROR_UNSUPPORTED, "element type 6");
    refuse_variable("w", 1, (unsigned[]){2}, 0, 4, CLATTN_ERROR_FORMAT, "has 4 bytes, expected 8");
    refuse_variable("w", 9, (unsigned[9]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, 1, CLATTN_ERROR_UNSUPPORTED, "rank 9");
    refuse_variable("w", 3, (unsigned[]){0xffffffff, 0xffffffff, 4}, 0, 4, CLATTN_ERROR_OVERFLOW, "more elements");

    clattn_ctranslate2 *file;
    clattn_io_error error = {""};
    assert_refusal(clattn_ctranslate2_create(path_to("none"), &file, &error), CLATTN_ERROR_IO, &error, "opened",
                   "no file");
    assert_refusal(clattn_ctranslate2_create(test_folder, &file, &error), CLATTN_ERROR_IO, &error, "folder",
                   "a folder");
    assert_refusal(clattn_ctranslate2_create(store("nil", "", 0), &file, &error), CLATTN_ERROR_FORMAT, &error,
                   "0 bytes", "nil");
    assert_int_equal(clattn_ctranslate2_create(NULL, &file, &error), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_ctranslate2_create("x", NULL, &error), CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_host_tensor tensor;
    assert_int_equal(clattn_ctranslate2_find(NULL, "x", &tensor, &error), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_ctranslate2_at(NULL, 0, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
}

/* Fails the test unless the file gives either a status and a message of one line, or variables that lie within the
 * file. */
static void check(const char *path, size_t size, bool *accepted)
{
    clattn_ctranslate2 *file;
    clattn_ctranslate2_entry entry;
    clattn_io_error error;
    clattn_status status = clattn_ctranslate2_create(path, &file, &error);
    *accepted = status == CLATTN_SUCCESS;
    if (status != CLATTN_SUCCESS) {
        assert_null(file);
        assert_true(status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED ||
                    status == CLATTN_ERROR_OVERFLOW);
        assert_one_line(&error);
        return;
    }
    const char *before = "";
    static volatile unsigned char sink;
    for (size_t i = 0; i < clattn_ctranslate2_count(file); i++) {
        assert_int_equal(clattn_ctranslate2_at(file, i, &entry), CLATTN_SUCCESS);
        assert_true(strcmp(before, entry.name) < 0);
        before = entry.name;
        assert_true(entry.tensor.bytes < size);
        for (size_t b = 0; b < entry.tensor.bytes; b++)
            sink = ((const unsigned char *)entry.tensor.data)[b];
    }
    (void)sink;
    clattn_ctranslate2_release(&file);
}

static void truncated(void **state)
{
    (void)state;
    image file_ = good();
    check_truncation(&file_, check);
}

static void corrupted(void **state)
{
    (void)state;
    image file_ = good();
    check_corruption(&file_, file_.size, check);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_and_listing),
        cmocka_unit_test(refusals),
        cmocka_unit_test(truncated),
        cmocka_unit_test(corrupted),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
