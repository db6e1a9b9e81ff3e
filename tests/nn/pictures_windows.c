/* Encoders of pictures whose patches attend within windows, in one stage or several, agree with the reference.
 *
 * Holds: transformer.h, "Which patches of a picture attend to each other", "The stage that follows" and the neck. */
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
        cmocka_unit_test_setup_teardown(decomposed, open_context, close_context),
    };
    return RUN_TESTS("pictures_windows", tests, argc, argv);
}
