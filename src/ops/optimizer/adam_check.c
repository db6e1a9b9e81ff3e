/* The self-check of Adam: the plan's own kernel on two work-groups' elements, the last vector not full. */
#include <float.h>
#include <math.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/optimizer/optimizer.h"
#include "ref/ref.h"

enum { GRADIENT, SQUARES, PARAMETER, FIRST_MOMENT, SECOND_MOMENT, STORED, ARRAYS };

static const ref_adam_step step = {
    .learning_rate = 0.125, .beta1 = 0.75, .beta2 = 0.875, .epsilon = 0.25, .weight_decay = 0.5, .scale = 2, .step = 3};

/* Second moments are not negative, and the norm is one that clipping leaves alone. */
static void fill(struct check *check)
{
    float *moment = check->arrays[SECOND_MOMENT].host, *squares = check->arrays[SQUARES].host;
    for (size_t i = 0; i < check->arrays[SECOND_MOMENT].elements; i++)
        moment[i] = fabsf(moment[i]);
    if (squares)
        *squares = 1;
}

static clattn_status judge_element(const struct check *check, int64_t i)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct check_array *arrays = check->arrays;
    const int64_t index[4] = {i, 0, 0, 0};
    double value[3], magnitude[3];
    for (int n = 0; n < 3; n++)
        value[n] = (double)((const float *)arrays[PARAMETER + n].before)[i];
    ref_adam(&step, check_read(&arrays[GRADIENT], i), value, magnitude);
    for (int n = 0; n < 3; n++)
        TRY(check_element(check->report, check->kernel, arrays[PARAMETER + n].place.name, index,
                          check_read(&arrays[PARAMETER + n], i), value[n],
                          check_slack(value[n], value[n], magnitude[n], FLT_EPSILON / 16, FLT_EPSILON)));
    if (arrays[STORED].host)
        TRY(check_element(check->report, check->kernel, arrays[STORED].place.name, index,
                          check_read(&arrays[STORED], i), value[0],
                          check_slack(value[0], value[0], magnitude[0], FLT_EPSILON / 16,
                                      storage_epsilon(arrays[STORED].place.layout->dtype))));
fail:
    return status;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < check->arrays[PARAMETER].elements; i++)
        TRY(judge_element(check, (int64_t)i));
fail:
    return status;
}

clattn_status adam_self_check(struct self_check *self)
{
    const struct adam_plan *plan = (const struct adam_plan *)self->plan;
    const size_t count = (size_t)plan->chunk + 67;
    clattn_adam_desc desc = plan->problem.desc;
    struct adam_problem small;
    clattn_adam_args args = CLATTN_ADAM_ARGS_INIT;
    desc.parameter.extent[0] = desc.gradient.extent[0] = desc.first_moment.extent[0] = count;
    desc.second_moment.extent[0] = count;
    desc.parameter.stride[0] = desc.gradient.stride[0] = desc.first_moment.stride[0] = 1;
    desc.second_moment.stride[0] = 1;
    if (plan->problem.has_stored) {
        desc.stored.extent[0] = count;
        desc.stored.stride[0] = 1;
    }
    args.learning_rate = step.learning_rate;
    args.beta1 = step.beta1;
    args.beta2 = step.beta2;
    args.epsilon = step.epsilon;
    args.weight_decay = step.weight_decay;
    args.gradient_scale = step.scale;
    args.clip_norm = plan->problem.has_squares ? 64 : 0;
    args.step = step.step;
    args.explicit_betas = args.explicit_epsilon = 1;
    const struct check_place places[ARRAYS] = {
        [GRADIENT] = {"gradient", &small.desc.gradient, &args.gradient, CHECK_NUMBERS},
        [SQUARES] = {"squares", &small.desc.squares, &args.squares, CHECK_ZEROS},
        [PARAMETER] = {"parameter", &small.desc.parameter, &args.parameter, CHECK_NUMBERS},
        [FIRST_MOMENT] = {"first_moment", &small.desc.first_moment, &args.first_moment, CHECK_NUMBERS},
        [SECOND_MOMENT] = {"second_moment", &small.desc.second_moment, &args.second_moment, CHECK_NUMBERS},
        [STORED] = {"stored", &small.desc.stored, &args.stored, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, PARAMETER, fill, judge, 0};
    self->unchecked = !plan->problem.count;
    return self->unchecked ? CLATTN_SUCCESS : check_run(self->plan, &course, &desc, &small, &args);
}
