/* The self-check of cl/matmul/backward.cl: the plan's own kernel on some rows of two items. */
#include <float.h>
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/matmul/backward/backward.h"
#include "ref/ref.h"

#define ITEMS 2
#define ROWS 3
#define COLUMNS 67
#define ELEMENTS (ROWS * COLUMNS)

enum { C_GRADIENT, OPERAND, SUMS, OPERAND_GRADIENT, ARRAYS };

static clattn_status judge_element(const struct check *check, int which, int64_t item, int64_t i, double value,
                                   double exact, double magnitude)
{
    const struct check_place *place = &check->arrays[which].place;
    return check_element(check->report, check->kernel, place->name,
                         (const int64_t[4]){0, item, i / COLUMNS, i % COLUMNS}, value, exact,
                         check_slack(exact, exact, magnitude, FLT_EPSILON, storage_epsilon(place->layout->dtype)));
}

/* Judges element i of all items: the gradient of each sum, and that of the operand. */
static clattn_status judge_place(const struct check *check, int64_t i)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct matmul_backward_problem *problem = check->problem;
    const clattn_matmul_desc *desc = matmul_backward_desc(problem);
    const struct check_array *arrays = check->arrays;
    const double alpha = (double)desc->alpha;
    const int64_t spread = desc->gradients.c.stride[2]; /* of all but the sums */
    double all = 0, all_magnitude = 0;
    for (int64_t item = 0; item < ITEMS; item++) {
        const int64_t at = item * ELEMENTS + i;
        const int64_t shared_at = (problem->operand_shared ? i : at) * spread;
        const double g = check_read(&arrays[C_GRADIENT], at * spread);
        const double s = problem->reads_sums ? (double)((float *)arrays[SUMS].before)[at] : 0;
        const double part = problem->multiplies ? g * ref_activate(desc->activation, alpha, s) : g;
        double magnitude, exact = g * ref_activation_slope(desc->activation, alpha, s, &magnitude);
        magnitude *= fabs(g);
        if (problem->multiplies && problem->writes_sums) {
            const double operand = check_read(&arrays[OPERAND], shared_at);
            exact *= operand;
            magnitude *= fabs(operand);
        }
        if (problem->writes_sums)
            TRY(judge_element(check, SUMS, item, i, check_read(&arrays[SUMS], at), exact, magnitude));
        all = problem->operand_shared ? all + part : part;
        all_magnitude = problem->operand_shared ? all_magnitude + fabs(part) : fabs(part);
        if (arrays[OPERAND_GRADIENT].host && (!problem->operand_shared || item == ITEMS - 1))
            TRY(judge_element(check, OPERAND_GRADIENT, item, i, check_read(&arrays[OPERAND_GRADIENT], shared_at), all,
                              all_magnitude));
    }
fail:
    return status;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    for (int64_t i = 0; i < ELEMENTS; i++)
        TRY(judge_place(check, i));
fail:
    return status;
}

/* A small array in place of one of the plan's; its columns lie apart unless those of all arrays are neighbours. */
static clattn_layout small_array(const clattn_layout *full, size_t items, size_t columns, int64_t spread)
{
    clattn_layout layout = clattn_layout_contiguous(full->dtype, 3, (const size_t[3]){items, ROWS, columns});
    for (int i = 0; i < 3; i++)
        layout.stride[i] *= spread;
    return layout_is_none(full) ? (clattn_layout){0} : layout;
}

/* The small problem has the same -D options. */
clattn_status matmul_elements_self_check(struct self_check *self)
{
    const struct matmul_elements_plan *plan = (const struct matmul_elements_plan *)self->plan;
    const struct matmul_backward_problem *full = &plan->problem;
    const clattn_matmul_desc *of = matmul_backward_desc(full);
    const size_t items = full->operand_shared ? 1 : ITEMS;
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    struct matmul_backward_problem small;
    struct matmul_elements_args args = {.batch = ITEMS, .m = ROWS};
    matmul_backward_args walk;
    matmul_elements_walk(full, full->forward.batch, full->forward.m, plan->chunk, &walk);
    self->unchecked = !walk.pieces;
    if (self->unchecked)
        return CLATTN_SUCCESS;
    const int64_t spread = matmul_elements_unit(full, &walk) ? 1 : 2;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){ITEMS, ROWS, 1});
    desc.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){1, COLUMNS});
    desc.activation = of->activation;
    desc.explicit_alpha = 1;
    desc.alpha = copysignf(1.25f, of->alpha); /* the plan's own may make all results alike */
    desc.operand = small_array(&of->operand, items, COLUMNS, spread);
    desc.operand_use = of->operand_use;
    desc.gradients.c = small_array(&of->gradients.c, ITEMS, COLUMNS, spread);
    desc.gradients.operand = small_array(&of->gradients.operand, items, COLUMNS, spread);
    if (full->writes_sums)
        desc.gradients.a = desc.a;
    const clattn_layout none = {0},
                        sums = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[1]){ITEMS * ELEMENTS});
    const struct check_place places[ARRAYS] = {
        [C_GRADIENT] = {"gradients.c", &desc.gradients.c, &args.c_gradient, CHECK_NUMBERS},
        [OPERAND] = {"operand", &desc.operand, &args.operand, CHECK_NUMBERS},
        [SUMS] = {"the sums' gradient", full->reads_sums || full->writes_sums ? &sums : &none, &args.sums,
                  CHECK_NUMBERS},
        [OPERAND_GRADIENT] = {"gradients.operand", &desc.gradients.operand, &args.operand_gradient, CHECK_ZEROS},
    };
    const struct check_course course = {places, ARRAYS, SUMS, NULL, judge, 0};
    return check_run(self->plan, &course, &desc, &small, &args);
}
