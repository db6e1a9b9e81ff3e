/* Encoders of pictures whose patches attend within windows, in one stage or several, agree with the reference.
 *
 * Holds: transformer.h, "Which patches of a picture attend to each other", "The stage that follows" and the neck. */
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"
#include "support/nn/run.h"
#include "support/core/one_context.h"

#define PICTURES(function) \
    SHAPE(function), PRE, .layers = 2, .final_norm = 1, .input = CLATTN_STACK_INPUT_PICTURES, \
        .positions = CLATTN_POSITIONS_TABLE

/* Windows in grids that they fill and that they do not, shifted or not, with a table of distances or without; and stages. */
static void windows(void **state)
{
    static const clattn_stack_desc last = {PICTURES(GELU)};
    clattn_stack_desc stages[3];
    static const struct {
        clattn_windows windows;
        size_t stages, batch, rows, columns;
    } cases[] = {
        {{2, 3, 0, CLATTN_POSITION_BIAS_NONE, 0}, 1, 2, 4, 6},  {{2, 2, 1, CLATTN_POSITION_BIAS_NONE, 0}, 1, 1, 6, 4},
        {{3, 2, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 1, 2, 7, 5}, {{4, 4, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 1, 1, 4, 3},
        {{2, 2, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 3, 2, 9, 6}, {{3, 3, 1, CLATTN_POSITION_BIAS_TABLE, 0}, 2, 1, 5, 8},
    };
    (void)state;
    for (size_t i = 0; i < 2 * COUNT_OF(cases); i++) {
        const size_t c = i / 2, count = cases[c].stages;
        nn_store store = {.seed = 5};
        float *picture = nn_floats(cases[c].batch * 3 * cases[c].rows * 2 * cases[c].columns * 2, 3);
        for (size_t stage = 0; stage < count; stage++) {
            stages[stage] = last;
            stages[stage].positions = CLATTN_POSITIONS_NONE;
            stages[stage].norm_place = i % 2 ? CLATTN_NORM_PLACE_POST : CLATTN_NORM_PLACE_PRE;
            stages[stage].windows = cases[c].windows;
            stages[stage].input = stage ? CLATTN_STACK_INPUT_MERGED : CLATTN_STACK_INPUT_PICTURES;
            stages[stage].d_model = 32 + 16 * stage;
            stages[stage].final_norm = stage + 1 == count;
            stages[stage].next = stage + 1 == count ? NULL : &stages[stage + 1];
            if (stage && stage + 1 == count && i % 2)
                stages[stage].windows = (clattn_windows){0}; /* all patches attend to each other */
        }
        stages[0].patches = (clattn_patches){.channels = 3, .height = 2, .width = 2};
        stages[0].input_norm = 1;
        nn_store_add_stack(&store, "encoder", stages);
        nn_encoder_run run = {
            .d = stages, .store = &store, .desc = nn_encoder_desc(cases[c].batch, 0), .input = picture};
        run.desc.picture =
            clattn_layout_nchw(CLATTN_DTYPE_F32, cases[c].batch, 3, 2 * cases[c].rows, 2 * cases[c].columns);
        assert_true(nn_encoder_apart(context, &run) < 1e-5);
        nn_store_clear(&store);
        free(picture);
    }
}

/* A stage that continues another one has windows of its own. */
static void continued(void **state)
{
    clattn_stack_desc stages[3];
    nn_store store = {.seed = 5};
    float *picture = nn_floats((size_t)2 * 3 * 10 * 14, 3);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(stages); i++) {
        stages[i] = (clattn_stack_desc){PICTURES(GELU)};
        stages[i].positions = CLATTN_POSITIONS_NONE;
        stages[i].input = i ? CLATTN_STACK_INPUT_CONTINUED : CLATTN_STACK_INPUT_PICTURES;
        stages[i].next = i + 1 < COUNT_OF(stages) ? &stages[i + 1] : NULL;
        stages[i].final_norm = !stages[i].next;
    }
    stages[0].patches = (clattn_patches){.channels = 3, .height = 2, .width = 2, .border = 1};
    stages[0].windows = (clattn_windows){2, 3, 1, CLATTN_POSITION_BIAS_TABLE, 0};
    stages[1].windows = (clattn_windows){8, 8, 2, CLATTN_POSITION_BIAS_NONE, 0};
    stages[2].rotary = CLATTN_ROTARY_HALVES; /* and rotates its patches by row and column */
    stages[2].rotary_centred = 1;
    nn_store_add_stack(&store, "encoder", stages);
    nn_encoder_run run = {.d = stages, .store = &store, .desc = nn_encoder_desc(2, 0), .input = picture};
    run.desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 2, 3, 10, 14);
    assert_true(nn_encoder_apart(context, &run) < 1e-5);
    nn_store_clear(&store);
    free(picture);
}

/* The encoders of pictures that `restored` makes pictures of. */
struct restored_case {
    clattn_restoration restoration;
    size_t residual, stages, window, channels, batch, rows, columns; /* residual: of the last stage; others have 1 */
    clattn_dtype dtype;
    double allowed;
    bool plain; /* no norm at the start, and no residual in stages before the last */
    bool gaps;  /* between the result's rows, planes and pictures, which stay as they are */
    clattn_dtype weight_dtype;
};

static void describe_restored(const struct restored_case *c, clattn_stack_desc stages[2], nn_store *store)
{
    for (size_t i = 0; i < c->stages; i++) {
        clattn_stack_desc *d = &stages[i];
        *d = (clattn_stack_desc){PICTURES(GELU)};
        d->positions = CLATTN_POSITIONS_NONE;
        if (c->window)
            d->windows = (clattn_windows){c->window, c->window, 2, CLATTN_POSITION_BIAS_TABLE, 0};
        d->residual = i + 1 == c->stages ? c->residual : !c->plain;
        d->input = i ? CLATTN_STACK_INPUT_CONTINUED : CLATTN_STACK_INPUT_PICTURES;
        d->input_norm = !i && !c->plain;
        d->final_norm = i + 1 == c->stages;
        if (d->final_norm)
            d->restoration = c->restoration;
        else
            d->next = &stages[i + 1];
    }
    stages->patches = (clattn_patches){.channels = c->channels, .height = 1, .width = 1, .border = 1};
    nn_store_add_stack(store, "encoder", stages);
    nn_store_add_restoration(store, "encoder", stages, c->channels);
    if (c->stages > 1)
        nn_store_add_restoration(store, "encoder.stages.1", &stages[1], c->channels);
}

/* Pictures of pictures of every kind, in grids that windows fill and that they do not, of any layout and type. */
static void restored(void **state)
{
    static const struct restored_case cases[] = {
        {{CLATTN_RESTORATION_KIND_SHUFFLE, 0, 4, 12}, 1, 2, 3, 3, 2, 7, 5, CLATTN_DTYPE_F32, .allowed = 1e-5},
        {{CLATTN_RESTORATION_KIND_SHUFFLE, 0, 3, 12}, 3, 1, 4, 1, 1, 4, 4, CLATTN_DTYPE_F32, .allowed = 1e-5},
        {{CLATTN_RESTORATION_KIND_SHUFFLE_ONCE, 0, 3, 0}, 1, 1, 3, 2, 2, 4, 8, CLATTN_DTYPE_F32, .allowed = 1e-5},
        {{CLATTN_RESTORATION_KIND_NEAREST, 0, 2, 12}, 1, 2, 3, 3, 1, 1, 9, CLATTN_DTYPE_F32, .allowed = 1e-5},
        {{CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0}, 1, 2, 4, 3, 2, 3, 6, CLATTN_DTYPE_F32, .allowed = 1e-5},
        {{CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0}, 1, 1, 0, 1, 1, 3, 4, CLATTN_DTYPE_F16, .allowed = 0.02},
        {{CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0},
         1,
         2,
         2,
         2,
         1,
         3,
         4,
         CLATTN_DTYPE_F32,
         .allowed = 1e-5,
         .plain = true},
        {{CLATTN_RESTORATION_KIND_NEAREST, 0, 4, 6}, 3, 2, 4, 1, 2, 5, 3, CLATTN_DTYPE_F32, .allowed = 1e-5},
        {{CLATTN_RESTORATION_KIND_SHUFFLE_ONCE, 0, 2, 0},
         1,
         1,
         3,
         2,
         2,
         4,
         5,
         CLATTN_DTYPE_F32,
         .allowed = 1e-5,
         .gaps = true},
        {{CLATTN_RESTORATION_KIND_ADDED, 0, 1, 0},
         1,
         2,
         4,
         3,
         2,
         3,
         6,
         CLATTN_DTYPE_F32,
         .allowed = 1e-5,
         .gaps = true},
        {{CLATTN_RESTORATION_KIND_SHUFFLE, 0, 2, 12},
         1,
         2,
         3,
         3,
         1,
         4,
         5,
         CLATTN_DTYPE_F32,
         1e-5,
         .weight_dtype = CLATTN_DTYPE_I8},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct restored_case *c = &cases[i];
        const size_t factor = c->restoration.factor, window = c->window ? c->window : 1;
        const size_t extent[4] = {c->batch, c->channels, c->rows * factor, c->columns * factor};
        const size_t count = extent[0] * extent[1] * extent[2] * extent[3], most = count * (c->gaps ? 4 : 1);
        clattn_stack_desc stages[2];
        nn_store store = {.seed = 5};
        describe_restored(c, stages, &store);
        float *picture = nn_floats(c->batch * c->channels * c->rows * c->columns, 3), *got = nn_floats(most, 1);
        nn_encoder_run run = {.d = stages, .store = &store, .desc = nn_encoder_desc(c->batch, 0), .input = picture};
        run.desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, c->batch, c->channels, c->rows, c->columns);
        run.desc.restored = i % 2 ? clattn_layout_nhwc(CLATTN_DTYPE_F32, c->batch, c->channels, extent[2], extent[3])
                                  : clattn_layout_nchw(CLATTN_DTYPE_F32, c->batch, c->channels, extent[2], extent[3]);
        for (int d = 0; d < 4 && c->gaps; d++)
            run.desc.restored.stride[d] *= 2;
        run.desc.prepack = i % 2 || c->weight_dtype;
        clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
        desc.encoder = stages;
        desc.dtype = c->dtype;
        desc.weight_dtype = c->weight_dtype;
        clattn_transformer *model = nn_transformer(context, &desc, &store);
        if (c->weight_dtype == CLATTN_DTYPE_I8)
            nn_store_quantise(&store);
        cl_mem out = nn_buffer(context, most * sizeof *got, NULL);
        nn_encode(context, model, &run, out);
        read_buffer(clattn_context_queue(context), out, most * sizeof *got, got);
        const nn_reference reference = {.store = &store,
                                        .name = "encoder",
                                        .desc = stages,
                                        .batch = c->batch,
                                        .grid_rows = (c->rows + window - 1) / window * window,
                                        .grid_columns = (c->columns + window - 1) / window * window};
        double *expected = nn_reference_restored(&reference, c->rows, c->columns, picture);
        float *ordered = nn_floats(count, 1);
        for (size_t e = 0; e < count; e++) { /* of NCHW order */
            const int64_t *stride = run.desc.restored.stride;
            const size_t column = e % extent[3], row = e / extent[3] % extent[2], plane = e / extent[3] / extent[2];
            float *value = &got[(int64_t)(plane / extent[1]) * stride[0] + (int64_t)(plane % extent[1]) * stride[1] +
                                (int64_t)row * stride[2] + (int64_t)column * stride[3]];
            ordered[e] = *value;
            *value = NAN; /* as what lies between has been all the time */
        }
        for (size_t e = 0; e < most; e++)
            assert_true(isnan(got[e]));
        const double apart = nn_difference(ordered, expected, count, 1, count, NULL);
        print_message("# %zu: %.2g\n", i, apart);
        assert_true(apart < c->allowed);
        clReleaseMemObject(out);
        clattn_transformer_release(&model);
        nn_store_clear(&store);
        free(picture);
        free(got);
        free(ordered);
        free(expected);
    }
}

/* SAM's kind: a decomposed bias in windows and in whole layers, of any scale and type, and a neck. */
static void decomposed(void **state)
{
    static const struct {
        clattn_windows windows;
        size_t batch, rows, columns, neck;
        float scale;
        clattn_dtype dtype;
        double allowed;
    } cases[] = {
        {{2, 2, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 2}, 2, 5, 3, 12, 0, CLATTN_DTYPE_F32, 1e-5},
        {{3, 1, 1, CLATTN_POSITION_BIAS_DECOMPOSED, 0}, 1, 5, 6, 0, 0, CLATTN_DTYPE_F32, 1e-5},
        {{1, 3, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 3}, 1, 3, 5, 12, 0.5f, CLATTN_DTYPE_F32, 1e-5},
        {{2, 2, 0, CLATTN_POSITION_BIAS_DECOMPOSED, 1}, 2, 4, 4, 8, 0, CLATTN_DTYPE_F16, 0.02},
        {{2, 2, 0, CLATTN_POSITION_BIAS_NONE, 2}, 1, 4, 6, 8, 0, CLATTN_DTYPE_F32, 1e-5},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const size_t places = cases[i].rows * cases[i].columns;
        clattn_stack_desc d = {PICTURES(GELU),
                               .position_count = places,
                               .windows = cases[i].windows,
                               .neck = cases[i].neck,
                               .explicit_scale = cases[i].scale != 0,
                               .scale = cases[i].scale};
        nn_store store = {.seed = 5};
        float *picture = nn_floats(cases[i].batch * 2 * cases[i].rows * 3 * cases[i].columns * 2, 3);
        d.final_norm = !cases[i].neck;
        d.patches = (clattn_patches){.channels = 2, .height = 3, .width = 2};
        d.patches.grid_rows = cases[i].rows;
        d.patches.grid_columns = cases[i].columns;
        nn_store_add_stack(&store, "encoder", &d);
        nn_encoder_run run = {.d = &d, .store = &store, .desc = nn_encoder_desc(cases[i].batch, 0), .input = picture};
        run.model.dtype = cases[i].dtype;
        run.desc.picture =
            clattn_layout_nchw(CLATTN_DTYPE_F32, cases[i].batch, 2, 3 * cases[i].rows, 2 * cases[i].columns);
        assert_true(nn_encoder_apart(context, &run) < cases[i].allowed);
        free(picture);
        nn_store_clear(&store);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(windows, open_context, close_context),
        cmocka_unit_test_setup_teardown(continued, open_context, close_context),
        cmocka_unit_test_setup_teardown(restored, open_context, close_context),
        cmocka_unit_test_setup_teardown(decomposed, open_context, close_context),
    };
    return RUN_TESTS("pictures_windows", tests, argc, argv);
}
