/* ONNX's node tests (tests/onnx): cases, their tensors, and the comparison that ONNX's own runner makes. */
#ifndef TESTS_ONNX_H
#define TESTS_ONNX_H

#include "clattn/io.h"
#include "harness.h"
#include "../onnx/cases.h"

/* The file of tensors; once before and once after all tests. */
void onnx_open(void);
void onnx_close(void);

/* What the case has at that place of the operator's schema; zeroed where it has nothing. */
clattn_host_tensor onnx_tensor(const struct onnx_case *test, const char *formal);
bool onnx_has(const struct onnx_case *test, const char *formal);

/* A number among the attributes. */
double onnx_attribute(const struct onnx_case *test, const char *name, double fallback);

/* Buffers of the device under test; the caller releases them with device_release_buffer.  An input's holds the tensor,
 * an output's has room for it and NaNs in it. */
cl_mem onnx_input(const clattn_host_tensor *tensor);
cl_mem onnx_output(const clattn_host_tensor *tensor);

/* Reads the output back and asserts that it is what the case wants, within its tolerances (bfloat16: within 2^-6 at
 * least, as ONNX's runner has it). */
void onnx_check(const struct onnx_case *test, const char *formal, cl_mem output);

#endif
