/* Training: losses as the reference has them, gradients as its differences do, updates, and what is the same in every bit.
 *
 * Holds: training.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/nn/training_case.h"
#include "support/suite.h"

/* ---- losses and gradients ---- */

/* A buffer has no more weights than the device's largest one may have. */
static void fits(const clattn_parameter *p, size_t count)
{
    clattn_device_info info = {.size = sizeof info};
    size_t bytes;
    assert_status(device_context(), clattn_context_device_info(device_context(), &info), CLATTN_SUCCESS);
    assert_cl(clGetMemObjectInfo(p->value.buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL));
    assert_true(bytes <= info.max_allocation);
    assert_true(((size_t)p->value.offset + count) * sizeof(float) <= bytes);
}

/* The losses are the reference's, and along a direction for each tensor the gradient is the reference's difference. */
static void agrees(const void *test, const char *solver)
{
    training_world w;
    double losses[TRAINING_LABELS], unused[TRAINING_LABELS];
    (void)solver;
    training_open(&w, test);
    training_step(&w, 0, false, 0);
    training_expected(&w, losses);
    for (size_t i = 0; i < TRAINING_LABELS; i++)
        assert_true(fabs((double)w.losses[i] - losses[i]) <= 1e-5 * (1 + losses[i]));
    for (size_t i = 0; i < clattn_trainer_parameter_count(w.trainer); i++) {
        size_t count;
        const clattn_parameter p = training_parameter(&w, i, &count);
        fits(&p, count);
        float *gradient = training_read_ordered(&p, p.gradient), *value = training_read_ordered(&p, p.value),
              *directions = nn_floats(count, 3);
        float *weight = (float *)(uintptr_t)nn_store_get(&w.store, "%s", p.name);
        double along = 0, size = 0;
        assert_memory_equal(value, weight, count * sizeof *weight);
        /* The two points are floats, so that their difference is known exactly. */
        for (size_t n = 0; n < count; n++) {
            const float up = value[n] + directions[n] * 0x1p-14f, down = value[n] - directions[n] * 0x1p-14f;
            along += (double)gradient[n] * ((double)up - (double)down);
            size += fabs((double)gradient[n] * ((double)up - (double)down));
            weight[n] = up;
        }
        double apart = training_expected(&w, unused);
        for (size_t n = 0; n < count; n++)
            weight[n] = value[n] - directions[n] * 0x1p-14f;
        apart = (apart - training_expected(&w, unused)) * 0.125;
        memcpy(weight, value, count * sizeof *weight);
        if (!(fabs(along - apart) <= 1e-3 * size + 1e-9))
            fail_msg("%s: %.9g along a direction, and the losses differ by %.9g, of terms of %.3g", p.name, along,
                     apart, size);
        free(gradient);
        free(value);
        free(directions);
    }
    training_close(&w);
}

/* Layers that are done again give the same bits, with dropout, too; a step repeated does; and other seeds do not. */
static void same_bits(const void *test, const char *solver)
{
    training_world w;
    size_t count;
    (void)solver;
    training_open(&w, test);
    for (int dropout = 0; dropout < 2; dropout++) {
        w.desc.dropout = 0.3f * (float)dropout;
        w.desc.recompute = 0;
        training_step(&w, 0, false, 5);
        float *kept = training_gradients(&w, &count);
        for (int i = 0; i < 2; i++) {
            w.desc.recompute = i;
            training_step(&w, 0, false, 5);
            float *again = training_gradients(&w, &count);
            assert_memory_equal(kept, again, count * sizeof *kept);
            free(again);
        }
        training_step(&w, 0, false, 6);
        float *other = training_gradients(&w, &count);
        assert_true((memcmp(kept, other, count * sizeof *kept) != 0) == (dropout == 1));
        free(other);
        free(kept);
    }
    training_close(&w);
}

/* A step leaves nothing behind in the gradients of one with shorter items, such as those of its further positions. */
static void lengths(const void *test, const char *solver)
{
    float *all[2];
    size_t count[2];
    (void)solver;
    for (int longer_before = 0; longer_before < 2; longer_before++) {
        training_world w;
        training_open(&w, test);
        if (longer_before)
            training_step(&w, 0, false, 0);
        w.desc.target_length = TRAINING_TARGET - 2;
        if (w.has_encoder)
            w.desc.source_length -= 4;
        for (size_t i = 0; i < TRAINING_BATCH; i++) {
            w.target_lengths[i] = 3;
            w.source_lengths[i] = 2;
        }
        training_step(&w, 0, false, 0);
        all[longer_before] = training_gradients(&w, &count[longer_before]);
        training_close(&w);
    }
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(all[0], all[1], count[0] * sizeof *all[0]);
    free(all[0]);
    free(all[1]);
}

/* An item's losses do not depend on its place in the batch. */
static void places(const void *test, const char *solver)
{
    const size_t frames = TRAINING_FRAMES * TRAINING_FEATURES;
    training_world w;
    float losses[TRAINING_LABELS];
    (void)solver;
    training_open(&w, test);
    training_step(&w, 0, false, 0);
    memcpy(losses, w.losses, sizeof losses);
    const training_world old = w;
    for (size_t i = 0; i < TRAINING_BATCH; i++) {
        const size_t to = (i + 1) % TRAINING_BATCH;
        memcpy(w.source + to * TRAINING_SOURCE, old.source + i * TRAINING_SOURCE, TRAINING_SOURCE * sizeof *w.source);
        memcpy(w.source_segments + to * TRAINING_SOURCE, old.source_segments + i * TRAINING_SOURCE,
               TRAINING_SOURCE * sizeof *w.source_segments);
        memcpy(w.features + to * frames, old.features + i * frames, frames * sizeof *w.features);
        memcpy(w.target_segments + to * TRAINING_TARGET, old.target_segments + i * TRAINING_TARGET,
               TRAINING_TARGET * sizeof *w.target_segments);
        memcpy(w.target + to * TRAINING_TARGET, old.target + i * TRAINING_TARGET, TRAINING_TARGET * sizeof *w.target);
        memcpy(w.labels + to * TRAINING_TARGET, old.labels + i * TRAINING_TARGET, TRAINING_TARGET * sizeof *w.labels);
        w.source_lengths[to] = old.source_lengths[i];
        w.target_lengths[to] = old.target_lengths[i];
    }
    training_step(&w, 0, false, 0);
    for (size_t i = 0; i < TRAINING_BATCH; i++)
        assert_memory_equal(w.losses + (i + 1) % TRAINING_BATCH * TRAINING_TARGET, losses + i * TRAINING_TARGET,
                            TRAINING_TARGET * sizeof *losses);
    training_close(&w);
}

static clattn_update_args update_args(int64_t number)
{
    clattn_update_args args = CLATTN_UPDATE_ARGS_INIT;
    args.learning_rate = 0.01;
    args.weight_decay = 0.1;
    args.clip_norm = 0.5;
    args.step = number;
    return args;
}

/* Parts of a batch have the losses of the whole, whose gradients are the sum of theirs. */
static void parts(const void *test, const char *solver)
{
    training_world w;
    size_t count;
    float whole_losses[TRAINING_LABELS], largest = 0;
    double squares = 0;
    (void)solver;
    training_open(&w, test);
    training_step(&w, 0, false, 0);
    memcpy(whole_losses, w.losses, sizeof whole_losses);
    float *whole = training_gradients(&w, &count);
    w.desc.batch = 1;
    for (size_t i = 0; i < TRAINING_BATCH; i++)
        training_step(&w, i, i > 0, 0);
    for (size_t i = 0; i < TRAINING_LABELS; i++)
        assert_true(fabsf(whole_losses[i] - w.losses[i]) <= 2e-6f * (1 + whole_losses[i]));
    float *sum = training_gradients(&w, &count);
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(whole[i]));
    for (size_t i = 0; i < count; i++)
        assert_true(fabsf(whole[i] - sum[i]) <= 2e-6f * largest);
    for (size_t i = 0; i < count; i++)
        squares += (double)sum[i] * (double)sum[i];
    free(whole);
    free(sum);
    /* Nothing else is in their sum of squares: the update is not dropped, and moves numbers by the rate, as a first one does. */
    const clattn_update_args args = update_args(1);
    size_t own;
    const clattn_parameter p = training_parameter(&w, 1, &own);
    float *before = training_read(p.value, own), *gradient = training_read(p.gradient, own);
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    float *after = training_read(p.value, own), *found = training_read(clattn_trainer_squares(w.trainer), 1);
    assert_true(fabs(*found - squares) <= 1e-5 * squares);
    free(found);
    for (size_t i = 0; i < own; i++)
        if (fabsf(gradient[i]) > 1e-3f * largest)
            assert_true(fabsf(fabsf(after[i] - before[i] * (1 - 0.001f)) - 0.01f) < 1e-4f);
    free(before);
    free(after);
    free(gradient);
    training_close(&w);
}

/* Evaluation has a step's losses, drops nothing, and leaves the gradients alone. */
static void evaluation(const void *test, const char *solver)
{
    training_world w;
    size_t count;
    float losses[TRAINING_LABELS];
    (void)solver;
    training_open(&w, test);
    training_step(&w, 0, false, 0);
    memcpy(losses, w.losses, sizeof losses);
    float *before = training_gradients(&w, &count);
    w.desc.evaluation = 1;
    w.desc.dropout = 0.5f;
    training_step(&w, 0, false, 9);
    assert_memory_equal(losses, w.losses, sizeof losses);
    float *after = training_gradients(&w, &count);
    assert_memory_equal(before, after, count * sizeof *before);
    free(before);
    free(after);
    training_close(&w);
}

/* The dropped model's gradient is that of its own losses: along the gradient they fall as it says. */
static void dropout(const void *test, const char *solver)
{
    training_world w;
    size_t count;
    float before[TRAINING_LABELS];
    double size = 0, fall = 0;
    (void)solver;
    training_open(&w, test);
    w.desc.dropout = 0.4f;
    training_step(&w, 0, false, 11);
    memcpy(before, w.losses, sizeof before);
    float *all = training_gradients(&w, &count);
    for (size_t i = 0; i < count; i++)
        size += (double)all[i] * (double)all[i];
    free(all);
    const double rate = 0.01 / size;
    for (size_t i = 0; i < clattn_trainer_parameter_count(w.trainer); i++) {
        const clattn_parameter p = training_parameter(&w, i, &count);
        float *gradient = training_read(p.gradient, count), *value = training_read(p.value, count);
        for (size_t n = 0; n < count; n++)
            value[n] -= (float)rate * gradient[n];
        assert_cl(clEnqueueWriteBuffer(clattn_context_queue(device_context()), p.value.buffer, CL_TRUE,
                                       (size_t)p.value.offset * sizeof *value, count * sizeof *value, value, 0, NULL,
                                       NULL));
        free(gradient);
        free(value);
    }
    training_step(&w, 0, false, 11);
    for (size_t i = 0; i < TRAINING_LABELS; i++)
        fall += 0.125 * ((double)before[i] - (double)w.losses[i]);
    print_message("# the losses fall by %.4g, the gradient says %.4g\n", fall, rate * size);
    assert_true(fabs(fall - rate * size) < 0.1 * rate * size);
    training_close(&w);
}

/* ---- updates ---- */

/* Two updates are AdamW's, of gradients that are clipped together. */
static void updates(const void *test, const char *solver)
{
    training_world w;
    size_t count;
    double *first[2] = {NULL, NULL};
    (void)solver;
    training_open(&w, test);
    for (int number = 1; number <= 2; number++) {
        double squares = 0;
        training_step(&w, 0, false, 0);
        float *all = training_gradients(&w, &count);
        for (size_t i = 0; i < count; i++)
            squares += (double)all[i] * (double)all[i];
        const double clip = fmin(1, 0.5 / (sqrt(squares) + 1e-6));
        const clattn_update_args args = update_args(number);
        size_t at = 0;
        float *old[128];
        const size_t parameters = clattn_trainer_parameter_count(w.trainer);
        assert_true(parameters <= COUNT_OF(old));
        for (size_t i = 0; i < parameters; i++) {
            size_t own;
            const clattn_parameter p = training_parameter(&w, i, &own);
            old[i] = training_read(p.value, own);
        }
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        for (int m = 0; m < 2 && number == 1; m++)
            first[m] = nn_zeros(count);
        for (size_t i = 0; i < parameters; i++) {
            size_t own;
            const clattn_parameter p = training_parameter(&w, i, &own);
            float *value = training_read(p.value, own);
            for (size_t n = 0; n < own; n++, at++) {
                const double g = clip * (double)all[at];
                first[0][at] = 0.9 * first[0][at] + 0.1 * g;
                first[1][at] = 0.999 * first[1][at] + 0.001 * g * g;
                const double mean = first[0][at] / (1 - pow(0.9, number));
                const double deviation = sqrt(first[1][at] / (1 - pow(0.999, number))) + 1e-8;
                const double moved = (double)old[i][n] * (1 - 0.01 * 0.1) - 0.01 * mean / deviation;
                assert_true(fabs((double)value[n] - moved) <= 2e-6 * (fabs((double)old[i][n]) + 0.01) ||
                            fabs(g) < 1e-6); /* epsilon counts there, and rounding */
            }
            free(value);
            free(old[i]);
        }
        free(all);
    }
    free(first[0]);
    free(first[1]);
    training_close(&w);
}

/* A gradient that is not finite changes nothing. */
static void broken_step(const void *test, const char *solver)
{
    training_world w;
    size_t count, own;
    const clattn_update_args args = update_args(1);
    const float broken = NAN;
    (void)solver;
    training_open(&w, test);
    training_step(&w, 0, false, 0);
    clattn_parameter p = training_parameter(&w, 3, &own);
    assert_cl(clEnqueueWriteBuffer(clattn_context_queue(device_context()), p.gradient.buffer, CL_TRUE,
                                   (size_t)p.gradient.offset * sizeof(float), sizeof broken, &broken, 0, NULL, NULL));
    assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    float *squares = training_read(clattn_trainer_squares(w.trainer), 1);
    assert_true(isnan(*squares));
    free(squares);
    for (size_t i = 0; i < clattn_trainer_parameter_count(w.trainer); i++) {
        p = training_parameter(&w, i, &count);
        float *value = training_read_ordered(&p, p.value), *moment = training_read(p.first_moment, count);
        assert_memory_equal(value, nn_store_get(&w.store, "%s", p.name), count * sizeof *value);
        for (size_t n = 0; n < count; n++)
            assert_true(moment[n] == 0);
        free(value);
        free(moment);
    }
    training_close(&w);
}

/* Thirty steps learn the batch by heart. */
static void learns(const void *test, const char *solver)
{
    training_world w;
    double before = 0, after = 0;
    (void)solver;
    training_open(&w, test);
    for (int number = 1; number <= 30; number++) {
        clattn_update_args args = update_args(number);
        args.weight_decay = 0;
        training_step(&w, 0, false, 0);
        for (size_t i = 0; i < TRAINING_LABELS && number == 1; i++)
            before += (double)w.losses[i];
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
    training_step(&w, 0, false, 0);
    for (size_t i = 0; i < TRAINING_LABELS; i++)
        after += (double)w.losses[i];
    print_message("# the losses' sum: %.3f, then %.3f\n", before, after);
    assert_true(after < 0.5 * before);
    training_close(&w);
}

int main(int argc, char **argv)
{
    static const struct {
        case_check check;
        const char *name;
        bool everywhere; /* in simulators, too */
    } checks[] = {{agrees, "losses and gradients", true},
                  {updates, "updates", true},
                  {same_bits, "the same bits", false},
                  {lengths, "shorter items", false},
                  {places, "an item's place", false},
                  {parts, "parts of a batch", false},
                  {evaluation, "evaluation", false},
                  {dropout, "dropout", false},
                  {broken_step, "a gradient that is NaN", false},
                  {learns, "thirty steps", false}};
    for (size_t n = 0; n < COUNT_OF(checks); n++)
        for (size_t i = 0; i < TRAINING_CASES && (checks[n].everywhere || !is_tiny()); i++)
            suite_add_case(checks[n].check, &training_cases[i], "", "%s: %s", checks[n].name, training_cases[i].name);
    return suite_run("training", argc, argv);
}
