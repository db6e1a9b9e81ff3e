/* ONNX's node tests. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/io.h>

#include "onnx/onnx.h"
#include "onnx/cases.h"

const size_t onnx_case_count = COUNT_OF(onnx_cases);

bool node_of(const onnx_case *test, const char *op)
{
    return strcmp(test->op, op) == 0;
}

/* The text behind NAME=, up to the next blank; NULL if there is no such attribute. */
static const char *find(const onnx_case *test, const char *attribute)
{
    size_t length = strlen(attribute);

    for (const char *at = test->attributes; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strncmp(at, attribute, length) == 0 && at[length] == '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

bool node_sets(const onnx_case *test, const char *attribute)
{
    return find(test, attribute) != NULL;
}

long node_int(const onnx_case *test, const char *attribute, long missing)
{
    const char *text = find(test, attribute);
    return text ? strtol(text, NULL, 10) : missing;
}

double node_float(const onnx_case *test, const char *attribute, double missing)
{
    const char *text = find(test, attribute);
    return text ? strtod(text, NULL) : missing;
}

bool node_is(const onnx_case *test, const char *attribute, const char *text)
{
    const char *value = find(test, attribute);
    return value && strncmp(value, text, strlen(text)) == 0 && strchr(" ", value[strlen(text)]);
}

/* The file stays open until the process ends. */
static clattn_host_tensor tensor(const onnx_case *test, const char *formal)
{
    static clattn_safetensors *file;
    clattn_io_error error = {""};
    clattn_host_tensor found;
    char name[256];

    if (!file && clattn_safetensors_create(TESTS_ONNX "/cases.safetensors", &file, &error) != CLATTN_SUCCESS) {
        fail_msg("%s", error.message);
    }
    snprintf(name, sizeof name, "%s/%s", test->name, formal);
    if (clattn_safetensors_find(file, name, &found, &error) != CLATTN_SUCCESS) {
        fail_msg("%s", error.message);
    }
    return found;
}

typedef struct tensor_reader {
    clattn_host_tensor tensor;
    size_t next;
} tensor_reader;

/* Elements in C order, which is how array_fill and arrays made dense walk. */
static double next_element(tensor_reader *reader)
{
    clattn_dtype dtype = reader->tensor.dtype;
    return storage_get(dtype, (const unsigned char *)reader->tensor.data + clattn_dtype_size(dtype) * reader->next++);
}

static double fill(void *context, const size_t *index)
{
    (void)index;
    return next_element(context);
}

test_array node_input(test_job *job, const onnx_case *test, const char *formal)
{
    tensor_reader reader = {tensor(test, formal), 0};
    test_array made = {0};

    if (reader.tensor.dtype != CLATTN_DTYPE_NONE) {
        made = job_array(job, ROLE_INPUT, reader.tensor.dtype, reader.tensor.rank, reader.tensor.extent, FORM_PLAIN);
        array_fill(&made, fill, &reader);
        array_upload(&made);
    }
    return made;
}

test_array node_output(test_job *job, const onnx_case *test, const char *formal)
{
    clattn_host_tensor expected = tensor(test, formal);
    test_array made = {0};

    if (expected.dtype != CLATTN_DTYPE_NONE) {
        made = job_array(job, ROLE_READABLE_OUTPUT, expected.dtype, expected.rank, expected.extent, FORM_PLAIN);
        array_own(&made, expected.extent);
    }
    return made;
}

test_array node_output_after(test_job *job, const onnx_case *test, const test_array *past, const char *formal)
{
    test_array made = node_output(job, test, formal);
    size_t index[CLATTN_MAX_RANK] = {0};

    assert_true(made.memory && past->memory);
    array_own(&made, (const size_t[CLATTN_MAX_RANK]){0});
    do {
        if (index[2] < past->layout.extent[2]) {
            array_set(&made, index, array_get(past, index));
        } else {
            array_own_element(&made, index);
        }
    } while (array_next(made.layout.rank, made.layout.extent, index));
    array_upload(&made);
    return made;
}

void node_compare(const test_array *output, const onnx_case *test, const char *formal)
{
    tensor_reader reader = {tensor(test, formal), 0};
    test_array whole = *output; /* the layout that the memory was made with */
    double rtol = reader.tensor.dtype == CLATTN_DTYPE_BF16 ? fmax(test->rtol, 0x1p-6) : test->rtol;

    if (!output->memory) {
        return;
    }
    whole.layout = clattn_layout_contiguous(reader.tensor.dtype, reader.tensor.rank, reader.tensor.extent);
    double *given = array_dense(&whole, reader.tensor.rank, reader.tensor.extent);
    for (size_t i = 0; i < array_count(reader.tensor.rank, reader.tensor.extent); i++) {
        double expected = next_element(&reader), value = given[i];
        bool same = isfinite(expected) ? fabs(value - expected) <= test->atol + rtol * fabs(expected)
                    : isnan(expected)  ? isnan(value)
                                       : value == expected;
        if (!same) {
            fail_msg("%s: element %zu of %s is %.9g, expected %.9g", test->name, i, formal, value, expected);
        }
    }
    free(given);
}
