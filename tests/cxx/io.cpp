// The file readers: what they give, and what they throw.
#define CLATTN_HPP_ENABLE_EXCEPTIONS
#include <clattn/io.hpp>

#include <cstdio>
#include <cstring>

#include "check.hpp"
#include "throws.hpp"

namespace
{

void arrays_are_written_and_read()
{
    const char *path = "cxx_io.npy";
    const float values[6] = {1, 2, 3, 4, 5, 6};
    clattn::npy file;
    CHECK(throws(CLATTN_ERROR_IO, [&](clattn_io_error *told) { file.create("cxx_io_missing.npy", told); }));
    CHECK(throws(CLATTN_ERROR_INVALID_ARGUMENT,
                 [&](clattn_io_error *told) { clattn::npy_write(path, CLATTN_DTYPE_NONE, {2, 3}, values, told); }));
    clattn::npy_write(path, CLATTN_DTYPE_F32, {2, 3}, values);
    file.create(path);
    clattn::npy moved = std::move(file);
    clattn_host_tensor tensor = moved.tensor();
    CHECK(!file && tensor.rank == 2 && tensor.extent[0] == 2 && tensor.extent[1] == 3);
    CHECK(tensor.bytes == sizeof values && !std::memcmp(tensor.data, values, sizeof values));
    CHECK(file.tensor().dtype == CLATTN_DTYPE_NONE);
    CHECK(std::remove(path) == 0);
}

void tensors_are_found()
{
    clattn::safetensors file;
    CHECK(throws(CLATTN_ERROR_FORMAT, [&](clattn_io_error *told) { file.create(TESTS_CXX "/io.cpp", told); }));
    CHECK(!file && file.count() == 0);
    file.create(TESTS_MINILM "/weights.safetensors");
    CHECK(file.count() > 0);
    clattn_safetensors_entry entry;
    clattn_host_tensor tensor;
    file.at(0, entry);
    file.find(entry.name, tensor);
    CHECK(tensor.data == entry.tensor.data && tensor.bytes == entry.tensor.bytes);
    file.find("no tensor of this name", tensor);
    CHECK(tensor.dtype == CLATTN_DTYPE_NONE);
    clattn_status status = CLATTN_SUCCESS;
    try {
        file.at(file.count(), entry);
    } catch (const clattn::error &error) {
        status = error.status();
    }
    CHECK(status == CLATTN_ERROR_INVALID_ARGUMENT);
}

void models_of_ctranslate2_are_refused_if_they_are_none()
{
    clattn::ctranslate2 file;
    int32_t value = 1;
    clattn_host_tensor tensor;
    CHECK(throws(CLATTN_ERROR_IO, [&](clattn_io_error *told) { file.create("cxx_io_missing.bin", told); }));
    CHECK(!file && file.count() == 0 && file.revision() == 0 && !std::strcmp(file.spec(), ""));
    CHECK(!file.integer("num_heads", value) && value == 0);
    CHECK(throws(CLATTN_ERROR_INVALID_ARGUMENT, [&](clattn_io_error *told) { file.find("x", tensor, told); }));
}

} // namespace

std::vector<test> io_tests()
{
    return {{"arrays_are_written_and_read", arrays_are_written_and_read},
            {"tensors_are_found", tensors_are_found},
            {"models_of_ctranslate2_are_refused_if_they_are_none", models_of_ctranslate2_are_refused_if_they_are_none}};
}
