/* What a command was asked to compute: host arrays and options, without OpenCL.  A job (job.h) runs a request
 * on a device, verify.h checks the result against the reference. */
#ifndef CLATTN_TOOL_RUN_REQUEST_H
#define CLATTN_TOOL_RUN_REQUEST_H

#include <clattn/activation.h>
#include <clattn/mha.h>
#include <clattn/norm.h>

#include "tool/attention/request.h"
#include "tool/run/host.h"
#include "tool/cli/options.h"
#include "tool/run/random.h"

/* Arrays with dtype CLATTN_DTYPE_NONE are absent. */

typedef struct softmax_request {
    host_array x, mask;
    bool short_mask;
    option_float scale;
} softmax_request;

/* y (m, n) = act(x (m, k) wᵀ + bias) with operand, w (n, k) as a projection has it; y is of x's element type. */
typedef struct matmul_request {
    host_array x, w, bias;
    host_array operand, w_scale; /* (m, n); (n), of a w of int8 */
    clattn_activation activation;
    int32_t operand_use;
} matmul_request;

/* LayerNorm over the last dimension of x, with scale and bias of its extent. */
typedef struct norm_request {
    host_array x, scale, bias;
} norm_request;

typedef struct mha_request {
    host_array x, context, mask;
    host_array w_in;          /* packed (3 * inner, d_model), or */
    host_array w_q, w_k, w_v; /* these */
    host_array b_in;          /* (3 * inner) either way */
    host_array w_o, b_o;
    size_t heads, inner; /* inner = heads * head size */
    bool causal, short_mask;
    int32_t align;
    option_float scale;
    int32_t weights; /* clattn_weights_output */
} mha_request;

/* Checks that shapes and element types fit together; the error names the file that does not fit. */
int softmax_check(const softmax_request *request);
int mha_check(const mha_request *request);

size_t mha_key_length(const mha_request *request);

void softmax_release(softmax_request *request);
void matmul_release(matmul_request *request);
void norm_release(norm_request *request);
void mha_release(mha_request *request);

#endif
