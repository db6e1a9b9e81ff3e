/* The reader of safetensors files in libclattn-io takes valid files, refuses others with the right status, and does no
 * more than that for any broken file.  Needs no device. */
#define _GNU_SOURCE
#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static image safetensors_image(const char *header, size_t data_bytes)
{
    image made = {{0}, 0};
    add_number(&made, strlen(header), 8);
    add(&made, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        add_number(&made, i, 1);
    return made;
}

static const char good_header[] =
    "{\"__metadata__\": {\"format\": \"pt\", \"note\": \"\\u00e9\\\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"},"
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\n"
    "\"a.b\":{\"shape\":[3],\"data_offsets\":[24,30],\"dtype\":\"BF16\"},"
    "\"empty\":{\"dtype\":\"I64\",\"shape\":[2,0],\"data_offsets\":[30,30]},"
    "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[30,31]},"
    "\"odd\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[31,35]},"
    "\"new\":{\"dtype\":\"X7\",\"shape\":[9],\"data_offsets\":[35,38]},"
    "\"six\":{\"dtype\":\"I8\",\"shape\":[1,1,1,1,1,2],\"data_offsets\":[38,40]}}  ";
#define GOOD_DATA 40

static void safetensors_names_with_escapes(void **state)
{
    (void)state;
    static const struct {
        const char *written, *name;
    } cases[] = {
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
        {"\\u0061\\u00E9\\u20ac", "a\xc3\xa9\xe2\x82\xac"},
        {"\\ud83d\\ude00\\uD800\\uDC00\\udbff\\udfff", "\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\xed\x9f\xbf\xee\x80\x80\x7f", "\xed\x9f\xbf\xee\x80\x80\x7f"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char header[256];
        snprintf(header, sizeof header,
                 "{\"%s\":{ \"\\u0064type\" : \"U\\u0038\",\n\"shape\":[ 8 ],\"data_offsets\":[0 , 8]\t} }",
                 cases[i].written);
        image bytes = safetensors_image(header, 8);
        clattn_safetensors *file;
        clattn_io_error error = {""};
        clattn_host_tensor tensor;
        if (clattn_safetensors_create(store("escapes", bytes.bytes, bytes.size), &file, &error) != CLATTN_SUCCESS)
            fail_msg("%s", error.message);
        assert_int_equal(clattn_safetensors_find(file, cases[i].name, &tensor, &error), CLATTN_SUCCESS);
        assert_int_equal(tensor.bytes, 8);
        clattn_safetensors_release(&file);
    }
}

static void safetensors_lookup_and_listing(void **state)
{
    (void)state;
    static const char *const names[] = {"a.b", "empty", "new", "odd", "scalar", "six", "w"};
    static const size_t lengths[] = {6, 0, 3, 4, 1, 2, 24};
    image image_ = safetensors_image(good_header, GOOD_DATA);
    const unsigned char *data = image_.bytes + image_.size - GOOD_DATA;
    clattn_safetensors *file;
    clattn_safetensors_entry entry;
    clattn_host_tensor tensor;
    clattn_io_error error = {""};
    if (clattn_safetensors_create(store("good", image_.bytes, image_.size), &file, &error) != CLATTN_SUCCESS)
        fail_msg("%s", error.message);

    assert_int_equal(clattn_safetensors_count(file), COUNT_OF(names));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(clattn_safetensors_at(file, i, &entry), CLATTN_SUCCESS);
        assert_string_equal(entry.name, names[i]);
        assert_int_equal(entry.tensor.bytes, lengths[i]);
    }
    assert_int_equal(clattn_safetensors_at(file, COUNT_OF(names), &entry), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(entry.name);
    assert_int_equal(clattn_safetensors_at(file, 2, &entry), CLATTN_SUCCESS);
    assert_string_equal(entry.dtype_name, "X7");
    assert_int_equal(entry.tensor.dtype, CLATTN_DTYPE_NONE);
    assert_memory_equal(entry.tensor.data, data + 35, 3);

    assert_int_equal(clattn_safetensors_find(file, "w", &tensor, &error), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_F32 && tensor.rank == 2);
    assert_true(tensor.extent[0] == 2 && tensor.extent[1] == 3 && tensor.extent[2] == 0);
    assert_memory_equal(tensor.data, data, 24);
    clattn_tensor_lookup lookup = clattn_safetensors_lookup;
    assert_int_equal(lookup(file, "a.b", &tensor, NULL), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_BF16 && tensor.rank == 1 && tensor.extent[0] == 3);
    assert_memory_equal(tensor.data, data + 24, 6);
    assert_int_equal(lookup(file, "scalar", &tensor, &error), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_U8 && tensor.rank == 0 && tensor.bytes == 1);
    assert_int_equal(lookup(file, "empty", &tensor, &error), CLATTN_SUCCESS);
    assert_true(tensor.dtype == CLATTN_DTYPE_I64 && tensor.rank == 2 && tensor.data == NULL);

    static const char *const absent[] = {"", "W", "ww", "a", "zz", "__metadata__"};
    for (size_t i = 0; i < COUNT_OF(absent); i++) {
        tensor.dtype = 99;
        assert_int_equal(lookup(file, absent[i], &tensor, &error), CLATTN_SUCCESS);
        assert_true(tensor.dtype == CLATTN_DTYPE_NONE && tensor.data == NULL);
    }
    assert_refusal(lookup(file, "odd", &tensor, &error), CLATTN_ERROR_UNSUPPORTED, &error, "F8_E4M3", "odd");
    assert_refusal(lookup(file, "six", &tensor, &error), CLATTN_ERROR_UNSUPPORTED, &error, "rank 6", "six");
    assert_int_equal(tensor.dtype, CLATTN_DTYPE_NONE);
    assert_refusal(lookup(NULL, "w", &tensor, &error), CLATTN_ERROR_INVALID_ARGUMENT, &error, "NULL", "NULL");
    assert_refusal(lookup(file, NULL, &tensor, &error), CLATTN_ERROR_INVALID_ARGUMENT, &error, "NULL", "NULL");
    assert_refusal(lookup(file, "w", NULL, &error), CLATTN_ERROR_INVALID_ARGUMENT, &error, "NULL", "NULL");
    clattn_safetensors_release(&file);
    assert_null(file);
    clattn_safetensors_release(&file);
    clattn_safetensors_release(NULL);
    assert_int_equal(clattn_safetensors_count(NULL), 0);
}

static void safetensors_smallest_files(void **state)
{
    (void)state;
    static const char *const headers[] = {"{}", "{ }   ", "{\"__metadata__\":{}}", "{\n\"__metadata__\" : { } }"};
    for (size_t i = 0; i < COUNT_OF(headers); i++) {
        image bytes = safetensors_image(headers[i], 0);
        clattn_safetensors *file;
        clattn_host_tensor tensor;
        clattn_io_error error = {""};
        if (clattn_safetensors_create(store("small", bytes.bytes, bytes.size), &file, &error) != CLATTN_SUCCESS)
            fail_msg("%s", error.message);
        assert_int_equal(clattn_safetensors_count(file), 0);
        assert_int_equal(clattn_safetensors_find(file, "w", &tensor, &error), CLATTN_SUCCESS);
        clattn_safetensors_release(&file);
    }
}

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void safetensors_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        clattn_status status;
        const char *part;
    } cases[] = {
        {"", CLATTN_ERROR_FORMAT, "'{'"},
        {" {}", CLATTN_ERROR_FORMAT, "'{'"},
        {"[]", CLATTN_ERROR_FORMAT, "'{'"},
        {"{", CLATTN_ERROR_FORMAT, "name"},
        {"{}x", CLATTN_ERROR_FORMAT, "spaces"},
        {"{}\n", CLATTN_ERROR_FORMAT, "spaces"},
        {"{" TENSOR("a", "F32", "[2]", "[0,8]") ",}", CLATTN_ERROR_FORMAT, "name"},
        {"{," TENSOR("a", "F32", "[2]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "name"},
        {"{" TENSOR("a", "F32", "[2]", "[0,8]"), CLATTN_ERROR_FORMAT, "'}'"},
        {"{" TENSOR("a", "F32", "[2]", "[0,4]") "}", CLATTN_ERROR_FORMAT, "'a' has 4 bytes, expected 8"},
        {"{" TENSOR("a", "F32", "[3]", "[0,12]") "}", CLATTN_ERROR_FORMAT, "within 8 bytes"},
        {"{" TENSOR("a", "F32", "[1]", "[0,4]") "}", CLATTN_ERROR_FORMAT, "8 bytes of data, expected 4"},
        {"{" TENSOR("a", "F32", "[1]", "[4,8]") "}", CLATTN_ERROR_FORMAT, "hole"},
        {"{" TENSOR("a", "U8", "[3]", "[0,3]") "," TENSOR("b", "U8", "[4]", "[4,8]") "}", CLATTN_ERROR_FORMAT,
         "'b' begins at 4, expected 3"},
        {"{" TENSOR("a", "U8", "[5]", "[0,5]") "," TENSOR("b", "U8", "[4]", "[4,8]") "}", CLATTN_ERROR_FORMAT,
         "overlap"},
        {"{" TENSOR("a", "U8", "[8]", "[0,8]") "," TENSOR("b", "U8", "[8]", "[0,8]") "}", CLATTN_ERROR_FORMAT,
         "overlap"},
        {"{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("a", "U8", "[4]", "[4,8]") "}", CLATTN_ERROR_FORMAT,
         "more than once"},
        {"{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("\\u0061", "U8", "[4]", "[4,8]") "}", CLATTN_ERROR_FORMAT,
         "more than once"},
        {"{" TENSOR("a", "U8", "[8]", "[0,8]") "," TENSOR("b", "U8", "[0]", "[4,4]") "}", CLATTN_ERROR_FORMAT,
         "overlap"},
        {"{" TENSOR("a", "U8", "[8]", "[8,0]") "}", CLATTN_ERROR_FORMAT, "8 and 0"},
        {"{" TENSOR("a", "U8", "[8]", "[-8,0]") "}", CLATTN_ERROR_FORMAT, "two sizes"},
        {"{" TENSOR("a", "U8", "[8]", "[0,8,9]") "}", CLATTN_ERROR_FORMAT, "two sizes"},
        {"{" TENSOR("a", "U8", "[8]", "[8]") "}", CLATTN_ERROR_FORMAT, "two sizes"},
        {"{" TENSOR("a", "U8", "[8]", "[0,8.0]") "}", CLATTN_ERROR_FORMAT, "two sizes"},
        {"{" TENSOR("a", "U8", "[8]", "\"0,8\"") "}", CLATTN_ERROR_FORMAT, "two sizes"},
        {"{" TENSOR("a", "U8", "[-8]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "8", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "[true]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "[99999999999999999999]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "[4294967296,4294967296]", "[0,8]") "}", CLATTN_ERROR_OVERFLOW, "'a'"},
        {"{" TENSOR("a", "U8", "[0,4294967296,4294967296]", "[0,0]") "}", CLATTN_ERROR_OVERFLOW, "'a'"},
        {"{" TENSOR("a", "F64", "[1152921504606846976]", "[0,8]") "}", CLATTN_ERROR_OVERFLOW, "'a'"},
        {"{" TENSOR("a", "F64 is my type", "[8]", "[0,9]") "}", CLATTN_ERROR_FORMAT, "within 8"},
        {"{" TENSOR("a", "a type name too long", "[8]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8],\"x\":1}}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", CLATTN_ERROR_FORMAT,
         "exactly"},
        {"{\"a\":{\"dtype\":8,\"shape\":[8],\"data_offsets\":[0,8]}}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":[]}", CLATTN_ERROR_FORMAT, "description"},
        {"{\"a\":{]}", CLATTN_ERROR_FORMAT, "at byte 14, expected a name"},
        {"{\"a\":{\"dtype\":[[1]]}}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\\u0000\":{}}", CLATTN_ERROR_FORMAT, "name"},
        {"{\"a\nb\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\xff\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\\ud800\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\\ud800\\u0061\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\\udc00\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\\x\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\\u12g4\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\\ud800\\n\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\xc0\x80\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"\xf4\x90\x80\x80\":{}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"a\":{}}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{\"a\":{\"dtype\":\"U8\",}}", CLATTN_ERROR_FORMAT, "expected a name"},
        {"{\"a\":{\"dtype\":\"U8\" \"shape\":[8]}}", CLATTN_ERROR_FORMAT, "','"},
        {"{\"a\":{\"dtype\":\"U\\u0000\"}}", CLATTN_ERROR_FORMAT, "exactly"},
        {"{" TENSOR("a", "U8", "[08]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "[8,]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "[8 8]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{" TENSOR("a", "U8", "[18446744073709551616]", "[0,8]") "}", CLATTN_ERROR_FORMAT, "shape of 'a'"},
        {"{a:{}}", CLATTN_ERROR_FORMAT, "name"},
        {"{\"a\" {}}", CLATTN_ERROR_FORMAT, "':'"},
        {"{\"a\":}", CLATTN_ERROR_FORMAT, "description"},
        {"{\"__metadata__\":{\"a\":1}}", CLATTN_ERROR_FORMAT, "'\"'"},
        {"{\"__metadata__\":{\"a\":{}}}", CLATTN_ERROR_FORMAT, "'\"'"},
        {"{\"__metadata__\":{\"a\"}}", CLATTN_ERROR_FORMAT, "':'"},
        {"{\"__metadata__\":{\"a\":\"b\",}}", CLATTN_ERROR_FORMAT, "'\"'"},
        {"{\"__metadata__\":[]}", CLATTN_ERROR_FORMAT, "'{'"},
        {"{\"__metadata__\":{\"a\":\"\\x\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a\":\"\\u12g4\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a\":\"\xc0\x80\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a\":\"\xed\xa0\x80\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a\":\"\xf4\x90\x80\x80\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a\":\"\xe2\x82\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a\":\"\t\"}}", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{\"a", CLATTN_ERROR_FORMAT, "well-formed"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", CLATTN_ERROR_FORMAT, "only once"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        image bytes = safetensors_image(cases[i].header, 8);
        if (strstr(cases[i].part, "'\"'") != NULL || cases[i].header[0] == '\0')
            bytes.size -= 8;
        clattn_safetensors *file = (clattn_safetensors *)&bytes;
        clattn_io_error error = {""};
        clattn_status status = clattn_safetensors_create(store("refused", bytes.bytes, bytes.size), &file, &error);
        assert_refusal(status, cases[i].status, &error, cases[i].part, cases[i].header);
        assert_non_null(strstr(error.message, "refused: "));
        assert_null(file);
    }
}

static void check_safetensors(const char *path, size_t file_size, bool *accepted)
{
    clattn_safetensors *file;
    clattn_safetensors_entry entry;
    clattn_io_error error = {""};
    *accepted = clattn_safetensors_create(path, &file, &error) == CLATTN_SUCCESS;
    if (!*accepted) {
        assert_null(file);
        assert_one_line(&error);
        return;
    }
    size_t total = 0;
    unsigned sum = 0;
    for (size_t i = 0; clattn_safetensors_at(file, i, &entry) == CLATTN_SUCCESS; i++) {
        clattn_host_tensor tensor;
        total += entry.tensor.bytes;
        for (size_t k = 0; k < entry.tensor.bytes; k++)
            sum += ((const unsigned char *)entry.tensor.data)[k];
        clattn_status status = clattn_safetensors_find(file, entry.name, &tensor, NULL);
        assert_true(status == CLATTN_SUCCESS ? memcmp(&tensor, &entry.tensor, sizeof tensor) == 0
                                             : entry.tensor.dtype == CLATTN_DTYPE_NONE);
    }
    assert_true(total < file_size && sum <= 255 * total);
    clattn_safetensors_release(&file);
}

static void safetensors_truncated_at_every_byte(void **state)
{
    (void)state;
    image file = safetensors_image(good_header, GOOD_DATA);
    check_truncation(&file, check_safetensors);
}

static void safetensors_every_corruption_of_a_byte(void **state)
{
    (void)state;
    image file = safetensors_image(good_header, GOOD_DATA);
    check_corruption(&file, file.size - GOOD_DATA, check_safetensors);
}

static void safetensors_hostile_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, 7, 1000, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        image bytes = {{0}, 0};
        clattn_safetensors *file;
        clattn_io_error error = {""};
        add_number(&bytes, lengths[i], 8);
        add(&bytes, "{}", 2);
        clattn_status status = clattn_safetensors_create(store("length", bytes.bytes, bytes.size), &file, &error);
        assert_refusal(status, CLATTN_ERROR_FORMAT, &error, "the file has 10", "length");
    }
    clattn_safetensors *file;
    clattn_io_error error = {""};
    const char *path = path_to("none");
    assert_refusal(clattn_safetensors_create(test_folder, &file, &error), CLATTN_ERROR_IO, &error, "folder", "folder");
    assert_refusal(clattn_safetensors_create(path, &file, &error), CLATTN_ERROR_IO, &error, "No such", "none");
    assert_int_equal(clattn_safetensors_create(NULL, &file, &error), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_safetensors_create(path, NULL, &error), CLATTN_ERROR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_names_with_escapes),      cmocka_unit_test(safetensors_lookup_and_listing),
        cmocka_unit_test(safetensors_smallest_files),          cmocka_unit_test(safetensors_refusals),
        cmocka_unit_test(safetensors_truncated_at_every_byte), cmocka_unit_test(safetensors_every_corruption_of_a_byte),
        cmocka_unit_test(safetensors_hostile_lengths),
    };
    return cmocka_run_group_tests_name("safetensors", tests, make_folder, remove_folder);
}
