/* The feed-forward block alone against the reference: all activations, gates, biases, residuals. */
#include <stdlib.h>

#include "support/api.h"
#include "support/nn_run.h"
#include "support/one_context.h"

static void feed_forward(void **state)
{
    enum { ROWS = 9, D = 20, F = 28 };
    (void)state;
    for (int i = 0; i < 8; i++) {
        clattn_feed_forward_desc desc = CLATTN_FEED_FORWARD_DESC_INIT;
        clattn_feed_forward_args args = CLATTN_FEED_FORWARD_ARGS_INIT;
        float x[ROWS * D], w_in[F * D], gate[F * D], w_out[D * F], b_in[F], b_gate[F], b_out[D], y[ROWS * D];
        desc.activation = i % 4;
        desc.gated = i / 4;
        desc.bias_in = desc.bias_out = i % 2;
        desc.residual = i / 2 % 2;
        desc.rows = ROWS;
        desc.d_model = D;
        desc.d_ff = F;
        const struct {
            float *values;
            size_t count;
            clattn_binding *binding;
            bool there;
        } arrays[] = {{x, ROWS * D, &args.x, true},           {w_in, F * D, &args.w_in, true},
                      {gate, F * D, &args.w_gate, i / 4},     {w_out, D * F, &args.w_out, true},
                      {b_in, F, &args.b_in, i % 2},           {b_gate, F, &args.b_gate, i / 4 && i % 2},
                      {b_out, D, &args.b_out, i % 2},         {y, ROWS * D, &args.y, true}};
        cl_mem buffers[8];
        for (uint32_t a = 0; a < 8; a++) {
            support_fill(arrays[a].values, arrays[a].count, 10 + a);
            buffers[a] = nn_buffer(context, arrays[a].count * sizeof(float), arrays[a].values);
            if (arrays[a].there)
                *arrays[a].binding = clattn_binding_buffer(buffers[a], 0);
        }
        assert_status(context, clattn_feed_forward_supports(context, &desc, NULL), CLATTN_SUCCESS);
        assert_status(context, clattn_feed_forward_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        support_read(clattn_context_queue(context), buffers[7], sizeof y, y);
        double *doubles = nn_doubles(x, ROWS * D);
        double *h = nn_reference_linear(doubles, ROWS, D, w_in, F, i % 2 ? b_in : NULL);
        double *g = nn_reference_linear(doubles, ROWS, D, gate, F, i % 2 ? b_gate : NULL);
        for (size_t k = 0; k < ROWS * F; k++)
            h[k] = i / 4 ? h[k] * nn_activate(desc.activation, g[k]) : nn_activate(desc.activation, h[k]);
        double *expected = nn_reference_linear(h, ROWS, F, w_out, D, i % 2 ? b_out : NULL);
        for (size_t k = 0; k < ROWS * D && desc.residual; k++)
            expected[k] += doubles[k];
        assert_true(nn_difference(y, expected, ROWS, D, ROWS, NULL) < 1e-5);
        for (size_t a = 0; a < 8; a++)
            clReleaseMemObject(buffers[a]);
        free(doubles);
        free(h);
        free(g);
        free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(feed_forward, set_up, tear_down),
    };
    return SUPPORT_RUN("feed_forward", tests);
}
