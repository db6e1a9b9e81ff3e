/* The reader of .npy files in libclattn-io takes valid files, refuses others with the right status, and does no more
 * than that for any broken file.  Needs no device. */
#define _GNU_SOURCE
#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static image npy_image(int version, const char *dictionary, size_t data_bytes)
{
    image made = {{0}, 0};
    unsigned char byte = (unsigned char)version;
    add(&made, "\x93NUMPY", 6);
    add(&made, &byte, 1);
    add(&made, "", 1);
    add_number(&made, strlen(dictionary), version == 1 ? 2 : 4);
    add(&made, dictionary, strlen(dictionary));
    for (size_t i = 0; i < data_bytes; i++)
        add_number(&made, i, 1);
    return made;
}

#define DICT(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }\n"

static void npy_round_trip_of_every_type_and_rank(void **state)
{
    (void)state;
    static const struct {
        clattn_dtype dtype;
        size_t size;
    } types[] = {{CLATTN_DTYPE_F32, 4}, {CLATTN_DTYPE_F16, 2},  {CLATTN_DTYPE_BF16, 2},
                 {CLATTN_DTYPE_F64, 8}, {CLATTN_DTYPE_BOOL, 1}, {CLATTN_DTYPE_I32, 4},
                 {CLATTN_DTYPE_I64, 8}, {CLATTN_DTYPE_U8, 1},   {CLATTN_DTYPE_I8, 1}};
    static const size_t extents[][CLATTN_MAX_RANK] = {
        {3, 2, 1, 4, 5}, {1, 1, 1, 1, 1}, {2, 0, 3, 1, 1}, {0, 7, 1, 1, 1}};
    unsigned char data[960];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + 1);

    for (size_t t = 0; t < COUNT_OF(types); t++)
        for (size_t e = 0; e < COUNT_OF(extents); e++)
            for (int rank = 0; rank <= CLATTN_MAX_RANK; rank++) {
                clattn_io_error error;
                clattn_npy *npy = NULL;
                size_t bytes = types[t].size;
                for (int i = 0; i < rank; i++)
                    bytes *= extents[e][i];
                const char *path = path_to("round.npy");
                assert_int_equal(clattn_npy_write(path, types[t].dtype, rank, extents[e], data, &error),
                                 CLATTN_SUCCESS);
                assert_int_equal(clattn_npy_create(path, &npy, &error), CLATTN_SUCCESS);
                clattn_host_tensor tensor = clattn_npy_tensor(npy);
                assert_int_equal(tensor.dtype, types[t].dtype);
                assert_int_equal(tensor.rank, rank);
                assert_memory_equal(tensor.extent, extents[e], (size_t)rank * sizeof(size_t));
                assert_int_equal(tensor.bytes, bytes);
                assert_true((tensor.data == NULL) == (bytes == 0));
                assert_int_equal((uintptr_t)tensor.data % 64, 0);
                if (bytes > 0)
                    assert_memory_equal(tensor.data, data, bytes);
                clattn_npy_release(&npy);
                assert_null(npy);
            }
}

static void npy_written_bytes_are_numpys(void **state)
{
    (void)state;
    static const char dictionary[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    const size_t extent[] = {2, 3};
    const float data[6] = {0.0f, 1.0f, -2.0f, 3.5f, 4.0f, 5.0f};
    unsigned char found[128 + sizeof data + 1], wanted[128];
    memset(wanted, ' ', sizeof wanted);
    memcpy(wanted, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(wanted + 10, dictionary, sizeof dictionary - 1);
    wanted[127] = '\n';

    const char *path = path_to("exact.npy");
    assert_int_equal(clattn_npy_write(path, CLATTN_DTYPE_F32, 2, extent, data, NULL), CLATTN_SUCCESS);
    FILE *file = fopen(path, "rb");
    assert_int_equal(fread(found, 1, sizeof found, file), sizeof found - 1);
    fclose(file);
    assert_memory_equal(found, wanted, sizeof wanted);
    assert_memory_equal(found + 128, data, sizeof data);
}

static void npy_accepted_spellings(void **state)
{
    (void)state;
    static const char *const dictionaries[] = {
        DICT("<f4", "False", "(2, 3)"),
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n",
        "{\"shape\":(2,3,),\"fortran_order\":False,\"descr\":\"<f4\"}        \n",
        "{ 'fortran_order' : False , 'descr' : '<f4' , 'shape' : ( 2 , 3 ) , } \n",
    };
    for (size_t i = 0; i < COUNT_OF(dictionaries); i++)
        for (int version = 1; version <= 3; version++) {
            image file = npy_image(version, dictionaries[i], 24);
            clattn_npy *npy;
            clattn_io_error error = {""};
            if (clattn_npy_create(store("spelling.npy", file.bytes, file.size), &npy, &error) != CLATTN_SUCCESS)
                fail_msg("%s", error.message);
            clattn_host_tensor tensor = clattn_npy_tensor(npy);
            assert_int_equal(tensor.rank, 2);
            assert_int_equal(tensor.extent[0], 2);
            assert_int_equal(tensor.extent[1], 3);
            assert_memory_equal(tensor.data, file.bytes + file.size - 24, 24);
            clattn_npy_release(&npy);
        }
}

static void npy_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary;
        clattn_status status;
        const char *part;
    } cases[] = {
        {DICT(">f4", "False", "(2, 3)"), CLATTN_ERROR_UNSUPPORTED, "'>f4' is big-endian"},
        {DICT("=f4", "False", "(2, 3)"), CLATTN_ERROR_UNSUPPORTED, "'=f4'"},
        {DICT("|O", "False", "(2, 3)"), CLATTN_ERROR_UNSUPPORTED, "'|O'"},
        {DICT("<c8", "False", "(3,)"), CLATTN_ERROR_UNSUPPORTED, "'<c8'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }\n", CLATTN_ERROR_UNSUPPORTED, "record"},
        {DICT("<f4", "True", "(2, 3)"), CLATTN_ERROR_UNSUPPORTED, "Fortran"},
        {DICT("<f4", "False", "(1, 1, 1, 1, 2, 3)"), CLATTN_ERROR_UNSUPPORTED, "rank 6"},
        {DICT("<f4", "false", "(2, 3)"), CLATTN_ERROR_FORMAT, "True or False"},
        {DICT("<f4", "False", "(6)"), CLATTN_ERROR_FORMAT, "comma"},
        {DICT("<f4", "False", "(2 3)"), CLATTN_ERROR_FORMAT, "comma"},
        {DICT("<f4", "False", "(,)"), CLATTN_ERROR_FORMAT, "extent"},
        {DICT("<f4", "False", "(2, 3,,)"), CLATTN_ERROR_FORMAT, "extent"},
        {DICT("<f4", "False", "(-2, -3)"), CLATTN_ERROR_FORMAT, "extent"},
        {DICT("<f4", "False", "(02, 3)"), CLATTN_ERROR_FORMAT, "extent"},
        {DICT("<f4", "False", "(2L, 3L)"), CLATTN_ERROR_FORMAT, "comma"},
        {DICT("<f4", "False", "[2, 3]"), CLATTN_ERROR_FORMAT, "shape"},
        {DICT("<f4", "False", "(2, 3"), CLATTN_ERROR_FORMAT, "extent"},
        {DICT("<f4", "False", "(2, 4)"), CLATTN_ERROR_FORMAT, "24 bytes of data, expected 32"},
        {DICT("<f4", "False", "(0, 4)"), CLATTN_ERROR_FORMAT, "24 bytes of data, expected 0"},
        {DICT("<f4", "False", "()"), CLATTN_ERROR_FORMAT, "24 bytes of data, expected 4"},
        {DICT("<f4", "False", "(4294967296, 4294967296)"), CLATTN_ERROR_OVERFLOW, "product"},
        {DICT("<f4", "False", "(0, 4294967296, 4294967296)"), CLATTN_ERROR_OVERFLOW, "product"},
        {DICT("<f4", "False", "(2305843009213693952,)"), CLATTN_ERROR_OVERFLOW, "product"},
        {DICT("<f4", "False", "(18446744073709551616,)"), CLATTN_ERROR_OVERFLOW, "18446744073709551616"},
        {DICT("<f4", "False", "(18446744073709551615,)"), CLATTN_ERROR_OVERFLOW, "product"},
        {"{'descr': '<f4', 'shape': (2, 3), }\n", CLATTN_ERROR_FORMAT, "'fortran_order' is missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", CLATTN_ERROR_FORMAT,
         "'descr'"},
        {"{'x': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", CLATTN_ERROR_FORMAT, "'x'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", CLATTN_ERROR_FORMAT, "newline"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x\n", CLATTN_ERROR_FORMAT, "newline"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n\n", CLATTN_ERROR_FORMAT, "newline"},
        {" {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", CLATTN_ERROR_FORMAT, "dictionary"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3), }\n", CLATTN_ERROR_FORMAT, "comma"},
        {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 3), }\n", CLATTN_ERROR_FORMAT, "type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), \x1b[31m}\n", CLATTN_ERROR_FORMAT, "?[31m"},
        {"{", CLATTN_ERROR_FORMAT, "newline"},
        {"\n", CLATTN_ERROR_FORMAT, "dictionary"},
        {"{\n", CLATTN_ERROR_FORMAT, "key"},
        {"", CLATTN_ERROR_FORMAT, "newline"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        image file = npy_image(1, cases[i].dictionary, 24);
        clattn_npy *npy = (clattn_npy *)&file;
        clattn_io_error error = {""};
        clattn_status status = clattn_npy_create(store("refused.npy", file.bytes, file.size), &npy, &error);
        assert_refusal(status, cases[i].status, &error, cases[i].part, cases[i].dictionary);
        assert_non_null(strstr(error.message, "refused.npy: "));
        assert_null(npy);
    }
}

static void npy_hostile_prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        clattn_status status;
        const char *part;
    } cases[] = {
        {"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14, CLATTN_ERROR_FORMAT, "4294967295 bytes"},
        {"\x93NUMPY\x01\x00\xff\xff{}", 12, CLATTN_ERROR_FORMAT, "65535 bytes"},
        {"\x93NUMPY\x02\x00\x00\x00", 10, CLATTN_ERROR_FORMAT, "ends at byte 10"},
        {"\x93NUMPY\x04\x00\x00\x00\x00\x00", 12, CLATTN_ERROR_UNSUPPORTED, "version 4.0"},
        {"\x93NUMPY\x01\x01\x00\x00\x00\x00", 12, CLATTN_ERROR_UNSUPPORTED, "version 1.1"},
        {"\x94NUMPY\x01\x00\x00\x00\x00\x00", 12, CLATTN_ERROR_FORMAT, "not a npy file"},
        {"", 0, CLATTN_ERROR_FORMAT, "not a npy file (0 bytes)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_npy *npy;
        clattn_io_error error = {""};
        clattn_status status = clattn_npy_create(store("prefix.npy", cases[i].bytes, cases[i].size), &npy, &error);
        assert_refusal(status, cases[i].status, &error, cases[i].part, cases[i].part);
    }
    /* The file has its whole header, which is larger than the reader takes. */
    size_t length = 70000, size = 12 + length;
    char *large = calloc(1, size);
    clattn_npy *npy;
    clattn_io_error error = {""};
    memcpy(large, "\x93NUMPY\x02\x00\x70\x11\x01\x00", 12);
    memset(large + 12, ' ', length);
    large[size - 1] = '\n';
    clattn_status status = clattn_npy_create(store("prefix.npy", large, size), &npy, &error);
    assert_refusal(status, CLATTN_ERROR_UNSUPPORTED, &error, "70000 bytes", "large header");
    free(large);
}

/* Fails the test unless the file gives only a failure with a message, or an array that fills the rest of the file
 * exactly. */
static void check_npy(const char *path, size_t file_size, bool *accepted)
{
    clattn_npy *npy;
    clattn_io_error error = {""};
    *accepted = clattn_npy_create(path, &npy, &error) == CLATTN_SUCCESS;
    if (!*accepted) {
        assert_null(npy);
        assert_one_line(&error);
        return;
    }
    clattn_host_tensor tensor = clattn_npy_tensor(npy);
    size_t count = 1;
    unsigned sum = 0;
    assert_true(tensor.rank >= 0 && tensor.rank <= CLATTN_MAX_RANK && tensor.bytes < file_size);
    for (int i = 0; i < tensor.rank; i++)
        count *= tensor.extent[i];
    assert_true(count == 0 ? tensor.bytes == 0 : tensor.bytes % count == 0);
    for (size_t i = 0; i < tensor.bytes; i++)
        sum += ((const unsigned char *)tensor.data)[i];
    assert_true(sum <= 255 * tensor.bytes);
    clattn_npy_release(&npy);
}

static void npy_truncated_at_every_byte(void **state)
{
    (void)state;
    image file = npy_image(1, DICT("<f4", "False", "(2, 3)"), 24);
    check_truncation(&file, check_npy);
    file = npy_image(2, DICT("<i8", "False", "(3,)"), 24);
    check_truncation(&file, check_npy);
}

static void npy_every_corruption_of_a_byte(void **state)
{
    (void)state;
    image file = npy_image(1, DICT("<f4", "False", "(2, 3)"), 24);
    check_corruption(&file, file.size - 24, check_npy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_round_trip_of_every_type_and_rank),
        cmocka_unit_test(npy_written_bytes_are_numpys),
        cmocka_unit_test(npy_accepted_spellings),
        cmocka_unit_test(npy_refusals),
        cmocka_unit_test(npy_hostile_prefixes),
        cmocka_unit_test(npy_truncated_at_every_byte),
        cmocka_unit_test(npy_every_corruption_of_a_byte),
    };
    return cmocka_run_group_tests_name("npy", tests, make_folder, remove_folder);
}
