/* ONNX's node tests (tests/onnx): attributes, tensors as guarded arrays, ONNX's own comparison. */
#ifndef TESTS_ONNX_ONNX_H
#define TESTS_ONNX_ONNX_H

#include "support/job.h"

/* A row of tests/onnx/cases.h. */
struct onnx_case;
const char *node_name(const struct onnx_case *test);
bool node_of(const struct onnx_case *test, const char *op);

/* All of them, in the order of the file: the operators one after another. */
size_t node_count(void);
const struct onnx_case *node_at(size_t index);

/* Whether the case has the attribute; its value, or `missing`. */
bool node_sets(const struct onnx_case *test, const char *attribute);
long node_int(const struct onnx_case *test, const char *attribute, long missing);
double node_float(const struct onnx_case *test, const char *attribute, double missing);
bool node_is(const struct onnx_case *test, const char *attribute, const char *text);

/* Below, `formal` is the name that the operator's schema gives a tensor. */

/* An input, uploaded; or an output of the shape and type that is expected, to be written as a whole.  An array without
 * memory where the case has no such tensor. */
test_array node_input(test_job *job, const struct onnx_case *test, const char *formal);
test_array node_output(test_job *job, const struct onnx_case *test, const char *formal);

/* An output that grows along dimension 2, as keys and values with their past do: it begins with the elements of the input
 * `past`, and only what comes behind them is to be written. */
test_array node_output_after(test_job *job, const struct onnx_case *test, const test_array *past, const char *formal);

/* Asserts that an output that has been downloaded is the expected one: |value − expected| <= atol + rtol |expected|, and
 * the same NaN and Inf, as ONNX's runner compares (numpy.testing.assert_allclose; bfloat16 with an rtol of 2^-6 at least).
 * Nothing to do without memory. */
void node_compare(const test_array *output, const struct onnx_case *test, const char *formal);

#endif
