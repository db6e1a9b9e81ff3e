#include "onnx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static clattn_safetensors *file;

void onnx_open(void)
{
    clattn_io_error error;

    if (clattn_safetensors_open(TESTS_ONNX "/cases.safetensors", &file, &error) != CLATTN_SUCCESS) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
}

void onnx_close(void)
{
    clattn_safetensors_close(&file);
}

clattn_host_tensor onnx_tensor(const struct onnx_case *test, const char *formal)
{
    char name[160];
    clattn_host_tensor tensor;
    int length = snprintf(name, sizeof name, "%s/%s", test->name, formal);

    assert_in_range(length, 1, sizeof name - 1);
    assert_int_equal(clattn_safetensors_find(file, name, &tensor, NULL), CLATTN_SUCCESS);
    return tensor;
}

bool onnx_has(const struct onnx_case *test, const char *formal)
{
    return onnx_tensor(test, formal).dtype != CLATTN_DTYPE_NONE;
}

double onnx_attribute(const struct onnx_case *test, const char *name, double fallback)
{
    size_t length = strlen(name);

    for (const char *at = test->attributes; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (!strncmp(at, name, length) && at[length] == '=') {
            return strtod(at + length + 1, NULL);
        }
    }
    return fallback;
}

/* ---- buffers ---- */

cl_mem onnx_input(const clattn_host_tensor *tensor)
{
    cl_int code;
    size_t bytes = tensor->bytes ? tensor->bytes : 1;
    unsigned char *copy = calloc(1, bytes);

    assert_non_null(copy);
    if (tensor->bytes) {
        memcpy(copy, tensor->data, tensor->bytes);
    }
    cl_mem buffer = clCreateBuffer(clattn_context_opencl_context(device_context()),
                                   CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, copy, &code);
    assert_cl(code);
    free(copy);
    return buffer;
}

cl_mem onnx_output(const clattn_host_tensor *tensor)
{
    clattn_host_tensor poison = *tensor;
    unsigned char *bytes = malloc(tensor->bytes + 1);

    assert_non_null(bytes);
    memset(bytes, 0xff, tensor->bytes + 1);
    poison.data = bytes;
    cl_mem buffer = onnx_input(&poison);
    free(bytes);
    return buffer;
}

/* ---- comparison ---- */

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double sign = bits >> 15 ? -1 : 1;

    if (exponent == 31) {
        return fraction ? (double)NAN : sign * INFINITY;
    }
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double element(const unsigned char *data, int32_t dtype, size_t i)
{
    uint16_t bits;
    uint32_t word;
    float value;
    double wide;

    switch (dtype) {
    case CLATTN_F64: memcpy(&wide, data + 8 * i, 8); return wide;
    case CLATTN_F16: memcpy(&bits, data + 2 * i, 2); return half_value(bits);
    case CLATTN_BF16:
        memcpy(&bits, data + 2 * i, 2);
        word = (uint32_t)bits << 16;
        memcpy(&value, &word, 4);
        return value;
    default: assert_int_equal(dtype, CLATTN_F32); memcpy(&value, data + 4 * i, 4); return value;
    }
}

void onnx_check(const struct onnx_case *test, const char *formal, cl_mem output)
{
    clattn_host_tensor wanted = onnx_tensor(test, formal);
    size_t count = wanted.bytes / clattn_dtype_size((clattn_dtype)wanted.dtype);
    double rtol = wanted.dtype == CLATTN_BF16 && test->rtol < 0x1p-6 ? 0x1p-6 : test->rtol;
    unsigned char *got = malloc(wanted.bytes + 1);
    cl_command_queue queue = clattn_context_queue(device_context());

    assert_non_null(got);
    if (wanted.bytes) {
        assert_cl(clEnqueueReadBuffer(queue, output, CL_TRUE, 0, wanted.bytes, got, 0, NULL, NULL));
    }
    for (size_t i = 0; i < count; i++) {
        double x = element(got, wanted.dtype, i), y = element(wanted.data, wanted.dtype, i);
        bool right = isnan(y) ? isnan(x) : isinf(y) ? x == y : fabs(x - y) <= test->atol + rtol * fabs(y);

        if (!right) {
            print_error("%s: %s[%zu] is %.9g, ONNX has %.9g\n", test->name, formal, i, x, y);
            free(got);
            fail();
        }
    }
    free(got);
}
