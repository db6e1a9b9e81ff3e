/* ONNX's node tests (tests/onnx): attributes, tensors as guarded arrays, ONNX's own comparison. */
#ifndef TESTS_ONNX_ONNX_H
#define TESTS_ONNX_ONNX_H

#include "support/job.h"

/* One of ONNX's tests. */
typedef struct onnx_case {
    const char *op, *name;
    int opset;
    const char *attributes; /* NAME=VALUE, separated by blanks */
    double rtol, atol;
} onnx_case;

/* All of them, one operator after another: cases.h, which generate.py writes. */
extern const onnx_case onnx_cases[];
extern const size_t onnx_case_count;

bool node_of(const onnx_case *test, const char *op);

/* Whether the case has the attribute; its value, or `missing`. */
bool node_sets(const onnx_case *test, const char *attribute);
long node_int(const onnx_case *test, const char *attribute, long missing);
double node_float(const onnx_case *test, const char *attribute, double missing);
bool node_is(const onnx_case *test, const char *attribute, const char *text);

/* Below, `formal` is the name that the operator's schema gives a tensor. */

/* An input, uploaded; or an output of the shape and type that is expected, to be written as a whole.  An array without
 * memory where the case has no such tensor. */
test_array node_input(test_job *job, const onnx_case *test, const char *formal);
test_array node_output(test_job *job, const onnx_case *test, const char *formal);

/* An output that grows along dimension 2, as keys and values with their past do: it begins with the elements of the input
 * `past`, and only what comes behind them is to be written. */
test_array node_output_after(test_job *job, const onnx_case *test, const test_array *past, const char *formal);

/* Asserts that an output that has been downloaded is the expected one: |value − expected| <= atol + rtol |expected|, and
 * the same NaN and Inf, as ONNX's runner compares (numpy.testing.assert_allclose; bfloat16 with an rtol of 2^-6 at least).
 * Nothing to do without memory. */
void node_compare(const test_array *output, const onnx_case *test, const char *formal);

#endif
