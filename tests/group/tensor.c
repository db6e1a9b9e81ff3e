/* Models that ranks have together: what they compute is what one device computes with the whole model.
 *
 * Holds: group.h, transformer.h, training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/group/grid.h"
#include "support/group/split.h"
#include "support/suite.h"

/* ---- training ---- */

/* How a training goes, beside its model and the grid. */
typedef struct training_way {
    float dropout;
    int32_t recompute;
    double tolerance, of_losses;
} training_way;

static void trains_as_one(const training_case *test, int rows, int columns, training_way way)
{
    grid_team g;
    training_world one;
    double apart = 0, of_losses = 0;
    training_open(&one, test);
    one.desc.batch = rows > 1 ? 1 : TRAINING_BATCH;
    one.desc.dropout = way.dropout;
    grid_open(&g, test, rows, columns, way.dropout, way.recompute);
    for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
        const clattn_update_args args = team_update_args(number);
        for (int i = 0; i < rows; i++)
            training_step(&one, (size_t)i, i > 0, (uint64_t)number);
        assert_status(device_context(), clattn_trainer_update(one.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        grid_step(&g, number);
        for (int i = 0; i < rows; i++) {
            const size_t count = one.desc.batch * TRAINING_TARGET;
            const float *losses = g.t.rank[i * columns].w.losses, *expected = one.losses + (size_t)i * TRAINING_TARGET;
            for (size_t n = 0; n < count; n++)
                of_losses = fmax(of_losses, fabs((double)losses[n] - (double)expected[n]));
        }
    }
    size_t parts = 0, shared = 0;
    for (int i = 0; i < g.t.ranks; i++)
        for (size_t p = 0; p < clattn_trainer_parameter_count(g.t.rank[i].w.trainer); p++) {
            size_t count;
            double mean;
            const clattn_parameter part = training_parameter(&g.t.rank[i].w, p, &count),
                                   whole = split_find(&one, part.name);
            const bool cut = memcmp(part.whole, part.layout.extent, (size_t)part.layout.rank * sizeof *part.whole);
            apart = fmax(apart, split_apart(&part, &whole, &mean));
            parts += cut;
            shared += !cut;
        }
    print_message("# %s: %d x %d ranks: parameters %.2g, losses %.2g from one device's\n", test->name, rows, columns,
                  apart, of_losses);
    assert_true(apart <= way.tolerance && of_losses <= way.of_losses);
    assert_true((parts > 0) == (columns > 1) && shared > 0);
    grid_close(&g);
    training_close(&one);
}

static const double tolerance = 3e-6; /* a number moves by at most 0.01 in an update, and the numbers are below 1 */

static void parts_train_as_one(void **state)
{
    (void)state;
    for (int i = 0; i < TRAINING_CASES; i++)
        for (int ranks = 1; ranks <= (training_cases[i].decoder.kv_heads ? 2 : i == 0 ? TEAM_MOST_RANKS : 3); ranks++)
            trains_as_one(
                &training_cases[i], 1, ranks,
                (training_way){
                    .dropout = i % 2 ? 0.25f : 0, .recompute = i == 2, .tolerance = tolerance, .of_losses = 1e-5});
}

/* The updates of a trainer alone, of one item each. */
static void update_alone(training_world *w)
{
    for (int64_t number = 1; number <= TEAM_UPDATES; number++) {
        const clattn_update_args args = team_update_args(number);
        training_step(w, 0, false, (uint64_t)number);
        assert_status(device_context(), clattn_trainer_update(w->trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
}

/* The mean distance of all numbers of a model's parts from those of the whole one. */
static double mean_apart(const training_world *w, const training_world *whole)
{
    double sum = 0;
    size_t all_counts = 0;
    for (size_t i = 0; i < clattn_trainer_parameter_count(w->trainer); i++) {
        size_t count;
        const clattn_parameter part = training_parameter(w, i, &count), p = split_find(whole, part.name);
        double mean;
        split_apart(&part, &p, &mean);
        sum += mean * (double)count;
        all_counts += count;
    }
    return sum / (double)all_counts;
}

/* What is rounded to bfloat16 in two parts is about as far from float32's as what is rounded once. */
static void narrow_parts_train_as_one(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        training_case narrow = training_cases[i];
        training_world wide, one;
        grid_team g;
        narrow.dtype = CLATTN_DTYPE_BF16;
        training_open(&wide, &training_cases[i]);
        training_open(&one, &narrow);
        update_alone(&wide);
        update_alone(&one);
        grid_open(&g, &narrow, 1, 2, 0, 0);
        for (int64_t number = 1; number <= TEAM_UPDATES; number++)
            grid_step(&g, number);
        const double alone = mean_apart(&one, &wide);
        for (int k = 0; k < 2; k++) {
            const double parts = mean_apart(&g.t.rank[k].w, &wide);
            print_message("# %s: %.2g from float32's, and one device %.2g\n", narrow.name, parts, alone);
            assert_true(parts <= 1.5 * alone);
        }
        grid_close(&g);
        training_close(&wide);
        training_close(&one);
    }
}

static void grids_train_as_one(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        trains_as_one(&training_cases[i], 2, 2, (training_way){.tolerance = tolerance, .of_losses = 1e-5});
    trains_as_one(&training_cases[0], 3, 1, (training_way){.tolerance = tolerance, .of_losses = 1e-5});
}

/* ---- models without logits ---- */

/* A rank that goes forward, and back with the gradient that the test gives to all. */
static int go(void *user)
{
    grid_rank *k = user;
    cl_command_queue queue = k->rank->queue;
    clattn_training_args forward = k->args, back = k->args;
    forward.phase = CLATTN_TRAINING_PHASE_FORWARD;
    forward.output_gradient = back.output = (clattn_binding){0};
    back.phase = CLATTN_TRAINING_PHASE_BACKWARD;
    k->status = clattn_training_enqueue(k->plan, queue, &forward, 0, NULL, NULL);
    if (k->status == CLATTN_SUCCESS)
        k->status = clattn_training_enqueue(k->plan, queue, &back, 0, NULL, NULL);
    clattn_context_message(device_context(), k->rank->message, sizeof k->rank->message);
    clFinish(queue);
    return 0;
}

static void bind_output(grid_rank *k, const training_world *w, size_t workspace)
{
    const size_t count = TRAINING_LABELS * w->test->decoder.d_model;
    float *gradient = nn_floats(count, 8);
    k->args = training_bind(w, 0);
    clReleaseMemObject(k->args.labels.buffer);
    clReleaseMemObject(k->args.losses.buffer);
    k->args.labels = k->args.losses = (clattn_binding){0};
    k->args.output = clattn_binding_buffer(nn_buffer(device_context(), count * sizeof(float), NULL), 0);
    k->args.output_gradient = clattn_binding_buffer(nn_buffer(device_context(), count * sizeof(float), gradient), 0);
    k->args.workspace = clattn_binding_buffer(nn_buffer(device_context(), workspace, NULL), 0);
    free(gradient);
}

static void unbind_output(grid_rank *k)
{
    clReleaseMemObject(k->args.output.buffer);
    clReleaseMemObject(k->args.output_gradient.buffer);
    clReleaseMemObject(k->args.workspace.buffer);
    training_unbind(&k->args);
}

static void models_without_logits_train_as_one(void **state)
{
    training_case test = training_cases[0];
    grid_team g;
    training_world one;
    double apart = 0;
    (void)state;
    test.output = CLATTN_MODEL_OUTPUT_NONE;
    training_open(&one, &test);
    team_rank alone = {.w = one, .queue = NULL};
    grid_rank whole = {.rank = &alone};
    const clattn_update_args args = team_update_args(1);
    assert_status(device_context(), clattn_training_plan_create(one.trainer, &one.desc, NULL, &whole.plan),
                  CLATTN_SUCCESS);
    bind_output(&whole, &one, clattn_plan_workspace_size(whole.plan));
    alone.queue = clattn_context_queue(device_context());
    grid_do(&whole, 1, go);
    assert_status(device_context(), clattn_trainer_update(one.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    grid_open(&g, &test, 1, 3, 0, 0);
    for (int i = 0; i < 3; i++) {
        bind_output(&g.rank[i], &g.t.rank[i].w, clattn_plan_workspace_size(g.rank[i].plan));
        g.t.rank[i].update = args;
    }
    grid_do(g.rank, 3, go);
    grid_do(g.rank, 3, grid_move);
    for (int i = 0; i < 3; i++) {
        for (size_t p = 0; p < clattn_trainer_parameter_count(g.t.rank[i].w.trainer); p++) {
            size_t count;
            double mean;
            const clattn_parameter part = training_parameter(&g.t.rank[i].w, p, &count),
                                   all_of = split_find(&one, part.name);
            apart = fmax(apart, split_apart(&part, &all_of, &mean));
        }
        unbind_output(&g.rank[i]);
    }
    unbind_output(&whole);
    clattn_plan_release(&whole.plan);
    assert_true(apart <= tolerance);
    grid_close(&g);
    training_close(&one);
}

int main(int argc, char **argv)
{
    suite_add(parts_train_as_one, "group tensor: ranks that have a model together train it as one device does");
    suite_add(narrow_parts_train_as_one, "group tensor: so do those of bfloat16 models");
    suite_add(models_without_logits_train_as_one, "group tensor: so do those of models without logits");
    suite_add(grids_train_as_one, "group tensor: so do the rows of a grid, and its columns share out the items");
    return suite_run("group_tensor", argc, argv);
}
