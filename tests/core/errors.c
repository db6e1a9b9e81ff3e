/* Every wrong description of an attention problem is refused with a status and a reason, denied solvers are not chosen,
 * and a failed build returns its log. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/core/refusals.h"
#include "support/plan/sources.h"

static void struct_sizes_are_checked(void **state)
{
    const size_t sizes[] = {0, 1, 8, SIZE_MAX};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        ATTENTION_WITH(STRUCT, d.size = sizes[i])
    ATTENTION_WITH(STRUCT, d.size++)
    ATTENTION_WITH(STRUCT, d.size--)
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *none = NULL;
    options.size = 1;
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, &options, &none),
                  CLATTN_ERROR_INVALID_STRUCT);
    clattn_attention_args args = problem.args;
    args.size = 0;
    assert_status(context, clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_STRUCT);
    args.size = sizeof args + 8;
    assert_status(context, clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_STRUCT);
    clattn_device_info info = {.size = 1};
    clattn_program_statistics statistics = {.size = 1};
    assert_status(NULL, clattn_context_device_info(context, &info), CLATTN_ERROR_INVALID_STRUCT);
    assert_status(NULL, clattn_context_program_statistics(context, &statistics), CLATTN_ERROR_INVALID_STRUCT);
}

static void nulls_are_refused(void **state)
{
    clattn_plan *none = NULL;
    clattn_device_info info = {.size = sizeof info};
    (void)state;
    assert_status(NULL, clattn_attention_plan_create(NULL, &problem.desc, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_plan_create(context, NULL, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_plan_create(context, &problem.desc, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_supports(NULL, &problem.desc, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_supports(context, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_enqueue(NULL, NULL, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_enqueue(plan, NULL, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_run(NULL, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_attention_run(context, NULL, NULL, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_context_device_info(NULL, &info), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_context_device_info(context, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_context_program_statistics(context, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_attention_supports(context, &problem.desc, NULL), CLATTN_SUCCESS);
}

static void enums_and_flags_are_checked(void **state)
{
    (void)state;
    ATTENTION_WITH(INVALID | UNSUPPORTED, d.direction = 1)
    ATTENTION_WITH(INVALID, d.direction = -1)
    ATTENTION_WITH(INVALID, d.causal = 2)
    ATTENTION_WITH(INVALID, d.causal = -1)
    ATTENTION_WITH(INVALID, d.alignment = 3)
    ATTENTION_WITH(INVALID, d.alignment = -1)
    ATTENTION_WITH(INVALID, d.alignment = INT32_MAX)
    ATTENTION_WITH(INVALID, d.scoring.explicit_scale = 2)
    ATTENTION_WITH(INVALID, d.scoring.explicit_scale = INT32_MIN)
    ATTENTION_WITH(INVALID, d.cache.reserved = 1)
}

/* A scale may be 0 or negative, but not NaN or infinite. */
static void only_finite_scales_are_taken(void **state)
{
    (void)state;
    ATTENTION_WITH(INVALID, (d.scoring.explicit_scale = 1, d.scoring.scale = (float)NAN))
    ATTENTION_WITH(INVALID, (d.scoring.explicit_scale = 1, d.scoring.scale = (float)INFINITY))
    ATTENTION_WITH(INVALID, (d.scoring.explicit_scale = 1, d.scoring.scale = -(float)INFINITY))
    clattn_attention_desc desc = problem.desc;
    desc.scoring.explicit_scale = 1;
    desc.scoring.scale = 0.0f;
    assert_status(context, clattn_attention_supports(context, &desc, NULL), CLATTN_SUCCESS);
    desc.scoring.scale = -1.5f;
    assert_status(context, clattn_attention_supports(context, &desc, NULL), CLATTN_SUCCESS);
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan *none = NULL;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){2, 3});
    softmax.explicit_scale = 1;
    softmax.scale = (float)NAN;
    assert_status(context, clattn_softmax_plan_create(context, &softmax, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    softmax.scale = (float)INFINITY;
    assert_status(context, clattn_softmax_plan_create(context, &softmax, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    softmax.explicit_scale = 2;
    softmax.scale = 1;
    assert_status(context, clattn_softmax_plan_create(context, &softmax, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
}

static void layouts_that_contradict_are_refused(void **state)
{
    const unsigned wrong = LAYOUT | INVALID;
    (void)state;
    ATTENTION_WITH(wrong, memset(&d.query, 0, sizeof d.query))
    ATTENTION_WITH(wrong, memset(&d.key, 0, sizeof d.key))
    ATTENTION_WITH(wrong, memset(&d.value, 0, sizeof d.value))
    ATTENTION_WITH(wrong, memset(&d.output, 0, sizeof d.output))
    ATTENTION_WITH(wrong, d.query.rank = 3)
    ATTENTION_WITH(wrong, d.query.rank = 0)
    ATTENTION_WITH(wrong, d.query.rank = -1)
    ATTENTION_WITH(wrong, d.query.rank = INT32_MAX)
    ATTENTION_WITH(wrong | UNSUPPORTED, d.query.dtype = 55)
    ATTENTION_WITH(wrong | UNSUPPORTED, d.query.dtype = -1)
    ATTENTION_WITH(wrong | UNSUPPORTED, d.query.dtype = CLATTN_DTYPE_I64)
    ATTENTION_WITH(wrong | UNSUPPORTED, d.key.dtype = CLATTN_DTYPE_F64)
    ATTENTION_WITH(wrong, d.key.extent[0] = 2) /* batch */
    ATTENTION_WITH(wrong, d.value.extent[0] = 2)
    ATTENTION_WITH(wrong, d.output.extent[0] = 2)
    ATTENTION_WITH(wrong, (d.key.extent[1] = 3, d.value.extent[1] = 3)) /* heads */
    ATTENTION_WITH(wrong, d.key.extent[1] = 1)
    ATTENTION_WITH(wrong, (d.key.extent[1] = 0, d.value.extent[1] = 0))
    ATTENTION_WITH(wrong, d.output.extent[1] = 1)
    ATTENTION_WITH(wrong, d.value.extent[2] = 6) /* lengths */
    ATTENTION_WITH(wrong, d.output.extent[2] = 6)
    ATTENTION_WITH(wrong, d.key.extent[3] = 7) /* sizes */
    ATTENTION_WITH(wrong, d.output.extent[3] = 7)
    ATTENTION_WITH(wrong, (d.query.extent[3] = 0, d.key.extent[3] = 0))
    ATTENTION_WITH(wrong, d.output.stride[3] = 0) /* an output's elements may not share a place */
    ATTENTION_WITH(wrong, d.output.stride[2] = 1)
    ATTENTION_WITH(wrong, d.output.stride[1] = 0)
    clattn_layout mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 5, 7);
    ATTENTION_WITH(wrong | UNSUPPORTED, (d.mask = mask, d.mask.dtype = CLATTN_DTYPE_I32))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[2] = 4))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[3] = 8))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[1] = 3))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[0] = 2))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.rank = 5))
    clattn_layout lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){1, 2, 5});
    ATTENTION_WITH(wrong, (d.outputs.lse = lse, d.outputs.lse.extent[2] = 4))
    ATTENTION_WITH(wrong, (d.outputs.lse = lse, d.outputs.lse.rank = 2))
    ATTENTION_WITH(wrong | UNSUPPORTED, (d.outputs.lse = lse, d.outputs.lse.dtype = CLATTN_DTYPE_I32))
    ATTENTION_WITH(wrong, (d.outputs.lse = lse, d.outputs.lse.stride[2] = 0))
}

/* Sizes are checked for overflow before any OpenCL call. */
static void sizes_that_overflow_are_refused(void **state)
{
    const unsigned wrong = TOO_BIG | LAYOUT | UNSUPPORTED;
    const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62, (size_t)1 << 61, (size_t)1 << 48, (size_t)1 << 33};
    const size_t items = ((size_t)1 << 32) + 1;
    (void)state;
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        size_t n = huge[i];
        ATTENTION_WITH(wrong, (d.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, n, 8),
                               d.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, n, 6)))
        ATTENTION_WITH(wrong, (d.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, n, 8),
                               d.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, n, 6)))
        ATTENTION_WITH(wrong, (d.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 5, n),
                               d.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 7, n)))
        ATTENTION_WITH(wrong, (d.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, n, 2, 5, 8),
                               d.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, n, 2, 7, 8),
                               d.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, n, 2, 7, 6),
                               d.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, n, 2, 5, 6)))
    }
    ATTENTION_WITH(TOO_BIG, (d.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 5, 8),
                             d.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 7, 8),
                             d.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 7, 6),
                             d.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 5, 6),
                             d.lengths.query_starts = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &items),
                             d.lengths.query_starts.stride[0] = 0, d.lengths.key_starts = d.lengths.query_starts))
    ATTENTION_WITH(wrong, d.query.stride[2] = INT64_MAX)
    ATTENTION_WITH(wrong, d.query.stride[2] = INT64_MIN)
    ATTENTION_WITH(wrong, d.key.stride[1] = INT64_MIN)
    ATTENTION_WITH(wrong, d.output.stride[2] = INT64_MAX / 2)
    ATTENTION_WITH(wrong, (d.value.stride[2] = INT64_MAX / 7, d.value.stride[1] = INT64_MAX / 2))
}

static void unknown_solvers_are_refused(void **state)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *none = NULL;
    (void)state;
    options.solver = "nonsense";
    assert_status_in(context, clattn_attention_plan_create(context, &problem.desc, &options, &none),
                     INVALID | UNSUPPORTED);
    assert_null(none);
    assert_message_has(context, "nonsense");
}

/* Denying every solver leaves no plan; denying the chosen one leaves another, and explain says so. */
static void denied_solvers_are_not_chosen(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    const char *denied[1] = {clattn_plan_solver(plan)};
    char qualified[128];
    (void)state;
    for (int round = 0; round < 2; round++) {
        params.denied_solvers = denied;
        params.denied_solver_count = 1;
        clattn_context *strict = new_context_with(&params);
        clattn_plan *second = NULL;
        assert_status(strict, clattn_attention_plan_create(strict, &problem.desc, NULL, &second), CLATTN_SUCCESS);
        assert_string_not_equal(clattn_plan_solver(second), clattn_plan_solver(plan));
        assert_non_null(strstr(clattn_plan_explain(second), clattn_plan_solver(plan)));
        clattn_plan_release(&second);
        release_context(&strict);
        snprintf(qualified, sizeof qualified, "attention/%s", clattn_plan_solver(plan));
        denied[0] = qualified;
    }
    snprintf(qualified, sizeof qualified, "softmax/%s", clattn_plan_solver(plan)); /* a solver of another operator */
    clattn_context *strict = new_context_with(&params);
    clattn_plan *second = NULL;
    assert_status(strict, clattn_attention_plan_create(strict, &problem.desc, NULL, &second), CLATTN_SUCCESS);
    assert_string_equal(clattn_plan_solver(second), clattn_plan_solver(plan));
    clattn_plan_release(&second);
    release_context(&strict);
}

/* The message contains OpenCL's own code.  Buffer handles cannot be faked safely, so a build is made to fail. */
static void build_logs_come_back(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    char folder[FOLDER_SIZE], path[2 * FOLDER_SIZE];
    clattn_plan *none = NULL;
    size_t bytes;
    (void)state;
    sources_copy(folder);
    snprintf(path, sizeof path, "%s/attention/core.h", folder); /* all kernels of attention include it */
    char *text = read_file(path, &bytes);
    write_file(path, "#error a_broken_line\n", 21, 0600);
    params.kernel_dir = folder;
    clattn_context *broken = new_context_with(&params);
    for (int round = 0; round < 2; round++) { /* the failure is remembered and the build not retried */
        assert_status(broken, clattn_attention_plan_create(broken, &problem.desc, NULL, &none), CLATTN_ERROR_BUILD);
        assert_null(none);
        assert_message_has(broken, "a_broken_line");
    }
    release_context(&broken);
    write_file(path, text, bytes, 0600);
    free(text);
    clattn_context *whole = new_context_with(&params); /* a complete kernel folder works */
    clattn_plan *works = NULL;
    assert_status(whole, clattn_attention_plan_create(whole, &problem.desc, NULL, &works), CLATTN_SUCCESS);
    clattn_plan_release(&works);
    release_context(&whole);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(struct_sizes_are_checked, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(nulls_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(enums_and_flags_are_checked, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(only_finite_scales_are_taken, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(layouts_that_contradict_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(sizes_that_overflow_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(unknown_solvers_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(denied_solvers_are_not_chosen, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(build_logs_come_back, refusals_start, refusals_stop),
    };
    return RUN_TESTS("errors", tests, argc, argv);
}
