/* Every wrong description and every wrong binding is a status, names what is wrong, and leaves outputs alone. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/api.h"

static clattn_context *context;
static struct small_attention problem;
static clattn_plan *plan;

static int start(void **state)
{
    (void)state;
    context = support_context();
    small_attention_prepare(&problem);
    small_attention_buffers(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    support_release(&context);
    return 0;
}

/* The descriptor is refused by supports and by plan_create alike, with one of the statuses in `set`. */
static void refused_attention(const clattn_attention_desc *desc, unsigned set, int line)
{
    clattn_plan *none = (clattn_plan *)(void *)&line; /* must come back as NULL */
    const char *reason = NULL;
    clattn_status status = clattn_attention_supports(context, desc, &reason);
    support_status_in_at(context, status, set, "attention_supports", __FILE__, line);
    if (!reason || strlen(reason) < 4)
        fail_msg("line %d: no reason", line);
    support_status_in_at(context, clattn_attention_plan_create(context, desc, NULL, &none), set,
                         "attention_plan_create", __FILE__, line);
    assert_null(none);
    assert_true(clattn_context_message(context, NULL, 0) > 4);
    support_status_in_at(context, clattn_attention_run(context, NULL, desc, &problem.args, 0, NULL, NULL), set,
                         "attention_run", __FILE__, line);
}

enum {
    INVALID = 1 << CLATTN_ERROR_INVALID_ARGUMENT,
    STRUCT = 1 << CLATTN_ERROR_INVALID_STRUCT,
    LAYOUT = 1 << CLATTN_ERROR_INVALID_LAYOUT,
    TOO_BIG = 1 << CLATTN_ERROR_OVERFLOW,
    UNSUPPORTED = 1 << CLATTN_ERROR_UNSUPPORTED,
};

/* Changes one thing in a copy of a descriptor that works. */
#define ATTENTION_WITH(set, change)                                                                          \
    {                                                                                                        \
        clattn_attention_desc d = problem.desc;                                                              \
        change;                                                                                              \
        refused_attention(&d, (set), __LINE__);                                                              \
    }

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
    assert_status(context, clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_STRUCT);
    args.size = sizeof args + 8;
    assert_status(context, clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_STRUCT);
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
    ATTENTION_WITH(INVALID, d.scale_mode = 2)
    ATTENTION_WITH(INVALID, d.scale_mode = INT32_MIN)
    ATTENTION_WITH(INVALID, d.reserved = 1)
}

/* Rule: scale 0 or negative is computed; NaN or infinite scale is refused. */
static void only_finite_scales_are_taken(void **state)
{
    (void)state;
    ATTENTION_WITH(INVALID, (d.scale_mode = CLATTN_SCALE_EXPLICIT, d.scale = (float)NAN))
    ATTENTION_WITH(INVALID, (d.scale_mode = CLATTN_SCALE_EXPLICIT, d.scale = (float)INFINITY))
    ATTENTION_WITH(INVALID, (d.scale_mode = CLATTN_SCALE_EXPLICIT, d.scale = -(float)INFINITY))
    clattn_attention_desc desc = problem.desc;
    desc.scale_mode = CLATTN_SCALE_EXPLICIT;
    desc.scale = 0.0f;
    assert_status(context, clattn_attention_supports(context, &desc, NULL), CLATTN_SUCCESS);
    desc.scale = -1.5f;
    assert_status(context, clattn_attention_supports(context, &desc, NULL), CLATTN_SUCCESS);
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan *none = NULL;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){2, 3});
    softmax.scaled = 1;
    softmax.scale = (float)NAN;
    assert_status(context, clattn_softmax_plan_create(context, &softmax, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    softmax.scale = (float)INFINITY;
    assert_status(context, clattn_softmax_plan_create(context, &softmax, NULL, &none), CLATTN_ERROR_INVALID_ARGUMENT);
    softmax.scaled = 2;
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
    ATTENTION_WITH(wrong | UNSUPPORTED, d.query.dtype = CLATTN_I64)
    ATTENTION_WITH(wrong | UNSUPPORTED, d.key.dtype = CLATTN_F64)
    ATTENTION_WITH(wrong, d.key.extent[0] = 2)             /* batch */
    ATTENTION_WITH(wrong, d.value.extent[0] = 2)
    ATTENTION_WITH(wrong, d.output.extent[0] = 2)
    ATTENTION_WITH(wrong, (d.key.extent[1] = 3, d.value.extent[1] = 3)) /* heads */
    ATTENTION_WITH(wrong, d.key.extent[1] = 1)
    ATTENTION_WITH(wrong, (d.key.extent[1] = 0, d.value.extent[1] = 0))
    ATTENTION_WITH(wrong, d.output.extent[1] = 1)
    ATTENTION_WITH(wrong, d.value.extent[2] = 6)           /* lengths */
    ATTENTION_WITH(wrong, d.output.extent[2] = 6)
    ATTENTION_WITH(wrong, d.key.extent[3] = 7)             /* sizes */
    ATTENTION_WITH(wrong, d.output.extent[3] = 7)
    ATTENTION_WITH(wrong, (d.query.extent[3] = 0, d.key.extent[3] = 0))
    ATTENTION_WITH(wrong, d.output.stride[3] = 0)          /* an output's elements may not share a place */
    ATTENTION_WITH(wrong, d.output.stride[2] = 1)
    ATTENTION_WITH(wrong, d.output.stride[1] = 0)
    clattn_layout mask = clattn_layout_bhsd(CLATTN_F32, 1, 1, 5, 7);
    ATTENTION_WITH(wrong | UNSUPPORTED, (d.mask = mask, d.mask.dtype = CLATTN_I32))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[2] = 4))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[3] = 8))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[1] = 3))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.extent[0] = 2))
    ATTENTION_WITH(wrong, (d.mask = mask, d.mask.rank = 5))
    clattn_layout lse = clattn_layout_contiguous(CLATTN_F32, 3, (const size_t[]){1, 2, 5});
    ATTENTION_WITH(wrong, (d.lse = lse, d.lse.extent[2] = 4))
    ATTENTION_WITH(wrong, (d.lse = lse, d.lse.rank = 2))
    ATTENTION_WITH(wrong | UNSUPPORTED, (d.lse = lse, d.lse.dtype = CLATTN_I32))
    ATTENTION_WITH(wrong, (d.lse = lse, d.lse.stride[2] = 0))
}

/* Rule: sizes are checked for overflow before any OpenCL call. */
static void sizes_that_overflow_are_refused(void **state)
{
    const unsigned wrong = TOO_BIG | LAYOUT | UNSUPPORTED;
    const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62, (size_t)1 << 61, (size_t)1 << 48,
                           (size_t)1 << 33};
    const size_t items = ((size_t)1 << 32) + 1;
    (void)state;
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        size_t n = huge[i];
        ATTENTION_WITH(wrong, (d.query = clattn_layout_bhsd(CLATTN_F32, 1, 2, n, 8),
                               d.output = clattn_layout_bhsd(CLATTN_F32, 1, 2, n, 6)))
        ATTENTION_WITH(wrong, (d.key = clattn_layout_bhsd(CLATTN_F32, 1, 2, n, 8),
                               d.value = clattn_layout_bhsd(CLATTN_F32, 1, 2, n, 6)))
        ATTENTION_WITH(wrong, (d.query = clattn_layout_bhsd(CLATTN_F32, 1, 2, 5, n),
                               d.key = clattn_layout_bhsd(CLATTN_F32, 1, 2, 7, n)))
        ATTENTION_WITH(wrong, (d.query = clattn_layout_bhsd(CLATTN_F32, n, 2, 5, 8),
                               d.key = clattn_layout_bhsd(CLATTN_F32, n, 2, 7, 8),
                               d.value = clattn_layout_bhsd(CLATTN_F32, n, 2, 7, 6),
                               d.output = clattn_layout_bhsd(CLATTN_F32, n, 2, 5, 6)))
    }
    ATTENTION_WITH(TOO_BIG, (d.query = clattn_layout_bhsd(CLATTN_F32, 1, 2, 5, 8),
                             d.key = clattn_layout_bhsd(CLATTN_F32, 1, 2, 7, 8),
                             d.value = clattn_layout_bhsd(CLATTN_F32, 1, 2, 7, 6),
                             d.output = clattn_layout_bhsd(CLATTN_F32, 1, 2, 5, 6),
                             d.query_starts = clattn_layout_contiguous(CLATTN_I32, 1, &items),
                             d.query_starts.stride[0] = 0, d.key_starts = d.query_starts))
    ATTENTION_WITH(wrong, d.query.stride[2] = INT64_MAX)
    ATTENTION_WITH(wrong, d.query.stride[2] = INT64_MIN)
    ATTENTION_WITH(wrong, d.key.stride[1] = INT64_MIN)
    ATTENTION_WITH(wrong, d.output.stride[2] = INT64_MAX / 2)
    ATTENTION_WITH(wrong, (d.value.stride[2] = INT64_MAX / 7, d.value.stride[1] = INT64_MAX / 2))
}

/* The enqueue is refused with a status in `set`, and the output stays as it was. */
static void refused_enqueue(const clattn_attention_args *args, unsigned set, int line)
{
    cl_event event = NULL;
    float before[128], after[128];
    cl_command_queue queue = clattn_context_queue(context);
    support_read(queue, problem.output, problem.count * sizeof(float), before);
    support_status_in_at(context, clattn_attention_enqueue(plan, NULL, args, 0, NULL, &event), set,
                         "attention_enqueue", __FILE__, line);
    assert_null(event);
    assert_true(clattn_context_message(context, NULL, 0) > 4);
    support_read(queue, problem.output, problem.count * sizeof(float), after);
    assert_memory_equal(before, after, problem.count * sizeof(float));
}

#define ARGS_WITH(set, change)                                                                               \
    {                                                                                                        \
        clattn_attention_args a = problem.args;                                                              \
        change;                                                                                              \
        refused_enqueue(&a, (set), __LINE__);                                                                \
    }

static void missing_and_strange_bindings_are_refused(void **state)
{
    (void)state;
    ARGS_WITH(INVALID, a.query.buffer = NULL)
    ARGS_WITH(INVALID, a.key.buffer = NULL)
    ARGS_WITH(INVALID, a.value.buffer = NULL)
    ARGS_WITH(INVALID, a.output.buffer = NULL)
    ARGS_WITH(INVALID, a.query.kind = 2)
    ARGS_WITH(INVALID, a.output.kind = -1)
    ARGS_WITH(INVALID, (a.query.kind = CLATTN_BINDING_SVM, a.query.svm = NULL))
    ARGS_WITH(INVALID, a.mask = a.query) /* the plan has no mask: a forgotten layout, not a mask to ignore */
    ARGS_WITH(INVALID, a.lse = a.output)
    ARGS_WITH(INVALID, a.explicit_lengths = 2)
    ARGS_WITH(INVALID, a.bias = a.query) /* bound, but not described */
    ARGS_WITH(INVALID, a.query.reserved = 1)
    ARGS_WITH(INVALID, a.key.reserved = -1)
    ARGS_WITH(INVALID, a.value.reserved = 1)
    ARGS_WITH(INVALID, a.output.reserved = INT32_MIN)
}

/* Extents whose product does not fit 64 bits, and one that makes it 0. */
static void empty_softmaxes_of_any_extents_do_nothing(void **state)
{
    static const size_t extents[][4] = {{(size_t)1 << 40, (size_t)1 << 40, 0, 5},
                                        {0, (size_t)1 << 40, (size_t)1 << 40, 5},
                                        {(size_t)1 << 40, (size_t)3 << 40, 1, 0},
                                        {(size_t)1 << 40, 0, 7, (size_t)1 << 40}};
    (void)state;
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
        clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
        desc.x = desc.y = clattn_layout_contiguous(CLATTN_F32, 4, extents[i]);
        assert_status(context, clattn_softmax_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
}

static void buffers_that_are_too_small_are_refused(void **state)
{
    const unsigned small = STATUS_BIT(CLATTN_ERROR_BUFFER_TOO_SMALL);
    cl_context opencl = clattn_context_opencl_context(context);
    (void)state;
    ARGS_WITH(small, a.query.offset = 1)
    ARGS_WITH(small, a.key.offset = 1)
    ARGS_WITH(small, a.value.offset = 1)
    ARGS_WITH(small, a.output.offset = 1)
    ARGS_WITH(small, a.output.offset = -1)
    ARGS_WITH(small, a.query.offset = -1)
    ARGS_WITH(small | TOO_BIG, a.query.offset = INT64_MAX)
    ARGS_WITH(small | TOO_BIG, a.output.offset = INT64_MAX / 4)
    ARGS_WITH(small | TOO_BIG, a.key.offset = INT64_MIN)
    cl_mem shorter = support_buffer(opencl, CL_MEM_READ_WRITE, problem.count * sizeof(float) - 1, NULL);
    ARGS_WITH(small, a.output.buffer = shorter)
    ARGS_WITH(small, a.query.buffer = shorter)
    clReleaseMemObject(shorter);
    assert_message_has(context, "query");
}

static void buffers_that_kernels_may_not_touch_are_refused(void **state)
{
    const unsigned access = STATUS_BIT(CLATTN_ERROR_BUFFER_ACCESS);
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem read_only = support_buffer(opencl, CL_MEM_READ_ONLY, 4096, NULL);
    cl_mem write_only = support_buffer(opencl, CL_MEM_WRITE_ONLY, 4096, NULL);
    (void)state;
    ARGS_WITH(access, a.output.buffer = read_only)
    ARGS_WITH(access, a.query.buffer = write_only)
    ARGS_WITH(access, a.key.buffer = write_only)
    ARGS_WITH(access, a.value.buffer = write_only)
    clReleaseMemObject(read_only);
    clReleaseMemObject(write_only);
}

static void foreign_objects_are_refused(void **state)
{
    const unsigned wrong = STATUS_BIT(CLATTN_ERROR_WRONG_CONTEXT);
    cl_int code;
    cl_device_id device = clattn_context_opencl_device(context);
    (void)state;
    cl_context foreign = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(foreign, device, 0, &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_mem buffer = support_buffer(foreign, CL_MEM_READ_WRITE, 4096, NULL);
    ARGS_WITH(wrong, a.query.buffer = buffer)
    ARGS_WITH(wrong, a.output.buffer = buffer)
    cl_event event = clCreateUserEvent(foreign, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_status(context, clattn_attention_enqueue(plan, queue, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_WRONG_CONTEXT);
    assert_status_in(context, clattn_attention_enqueue(plan, NULL, &problem.args, 1, &event, NULL),
                     wrong | STATUS_BIT(CLATTN_ERROR_OPENCL));
    assert_status_in(context, clattn_attention_enqueue(plan, NULL, &problem.args, 1, NULL, NULL),
                     INVALID | STATUS_BIT(CLATTN_ERROR_OPENCL));
    assert_status_in(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, &event, NULL),
                     INVALID | STATUS_BIT(CLATTN_ERROR_OPENCL));
    clSetUserEventStatus(event, CL_COMPLETE);
    clReleaseEvent(event);
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    clReleaseContext(foreign);
}

static void lengths_beyond_the_plan_are_refused(void **state)
{
    (void)state;
#define LENGTHS(b, q, k) (a.explicit_lengths = 1, a.batch = (b), a.query_length = (q), a.key_length = (k))
    ARGS_WITH(INVALID, LENGTHS(2, 5, 7))
    ARGS_WITH(INVALID, LENGTHS(1, 6, 7))
    ARGS_WITH(INVALID, LENGTHS(1, 5, 8))
    ARGS_WITH(INVALID, LENGTHS(SIZE_MAX, SIZE_MAX, SIZE_MAX))
    /* Zero batch or queries: success, nothing is touched, and the event completes. */
    for (int i = 0; i < 2; i++) {
        clattn_attention_args a = problem.args;
        cl_event event = NULL;
        float after[128];
        LENGTHS(i == 0 ? 0 : 1, i == 1 ? 0 : 5, 7);
        assert_status(context, clattn_attention_enqueue(plan, NULL, &a, 0, NULL, &event), CLATTN_SUCCESS);
        assert_non_null(event);
        assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
        clReleaseEvent(event);
        support_read(clattn_context_queue(context), problem.output, problem.count * sizeof(float), after);
        for (size_t j = 0; j < problem.count; j++)
            assert_true(isnan(after[j]));
    }
    /* No keys: rows that attend nothing are exactly +0. */
    clattn_attention_args a = problem.args;
    LENGTHS(1, 5, 0);
    float after[128];
    assert_status(context, clattn_attention_enqueue(plan, NULL, &a, 0, NULL, NULL), CLATTN_SUCCESS);
    support_read(clattn_context_queue(context), problem.output, problem.count * sizeof(float), after);
    for (size_t j = 0; j < problem.count; j++)
        assert_true(after[j] == 0.0f && !signbit(after[j]));
#undef LENGTHS
}

static void plans_are_not_taken_for_another_operators(void **state)
{
    clattn_softmax_args softmax = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_matmul_args matmul = CLATTN_MATMUL_ARGS_INIT;
    clattn_mha_args mha = CLATTN_MHA_ARGS_INIT;
    (void)state;
    assert_status(context, clattn_softmax_enqueue(plan, NULL, &softmax, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_matmul_enqueue(plan, NULL, &matmul, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_mha_enqueue(plan, NULL, &mha, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
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

/* Denying every solver leaves none; denying the chosen one leaves another, and explain says so. */
static void denied_solvers_are_not_chosen(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    const char *denied[1] = {clattn_plan_solver(plan)};
    char qualified[128];
    (void)state;
    for (int round = 0; round < 2; round++) {
        params.denied_solvers = denied;
        params.denied_solver_count = 1;
        clattn_context *strict = support_context_with(&params);
        clattn_plan *second = NULL;
        assert_status(strict, clattn_attention_plan_create(strict, &problem.desc, NULL, &second), CLATTN_SUCCESS);
        assert_string_not_equal(clattn_plan_solver(second), clattn_plan_solver(plan));
        assert_non_null(strstr(clattn_plan_explain(second), clattn_plan_solver(plan)));
        clattn_plan_release(&second);
        support_release(&strict);
        snprintf(qualified, sizeof qualified, "attention/%s", clattn_plan_solver(plan));
        denied[0] = qualified;
    }
    snprintf(qualified, sizeof qualified, "softmax/%s", clattn_plan_solver(plan)); /* of another operator */
    clattn_context *strict = support_context_with(&params);
    clattn_plan *second = NULL;
    assert_status(strict, clattn_attention_plan_create(strict, &problem.desc, NULL, &second), CLATTN_SUCCESS);
    assert_string_equal(clattn_plan_solver(second), clattn_plan_solver(plan));
    clattn_plan_release(&second);
    support_release(&strict);
}

static void the_other_operators_check_their_descriptions(void **state)
{
    clattn_plan *none = NULL;
    (void)state;
    clattn_layout two = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){4, 6});
#define REFUSED(operator, set)                                                                               \
    assert_status_in(context, clattn_##operator##_plan_create(context, &d, NULL, &none), (set));             \
    assert_null(none);                                                                                       \
    assert_status_in(context, clattn_##operator##_supports(context, &d, NULL), (set))
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    softmax.x = softmax.y = two;
#define SOFTMAX_WITH(set, change) { clattn_softmax_desc d = softmax; change; REFUSED(softmax, set); }
    SOFTMAX_WITH(STRUCT, d.size = 1)
    SOFTMAX_WITH(INVALID, d.direction = -1)
    SOFTMAX_WITH(INVALID, d.reserved = 1)
    SOFTMAX_WITH(LAYOUT | INVALID, d.y.extent[1] = 5)
    SOFTMAX_WITH(LAYOUT | INVALID, d.y.rank = 1)
    SOFTMAX_WITH(LAYOUT | INVALID, d.y.stride[0] = 0)
    SOFTMAX_WITH(LAYOUT | INVALID, memset(&d.x, 0, sizeof d.x))
    SOFTMAX_WITH(LAYOUT | INVALID, (d.mask = two, d.mask.extent[0] = 3))
    SOFTMAX_WITH(LAYOUT | INVALID, (d.mask = two, d.mask.extent[1] = 7))
    SOFTMAX_WITH(TOO_BIG | LAYOUT | UNSUPPORTED,
                 d.x = d.y = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){1, SIZE_MAX / 4}))
    SOFTMAX_WITH(TOO_BIG | LAYOUT | UNSUPPORTED,
                 d.x = d.y = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){1, (size_t)1 << 31}))
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    matmul.a = two;
    matmul.b = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){6, 5});
    matmul.c = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){4, 5});
#define MATMUL_WITH(set, change) { clattn_matmul_desc d = matmul; change; REFUSED(matmul, set); }
    MATMUL_WITH(STRUCT, d.size = 1)
    MATMUL_WITH(INVALID, d.direction = -1)
    MATMUL_WITH(INVALID, d.reserved = 1)
    MATMUL_WITH(LAYOUT | INVALID, d.b.extent[0] = 7)
    MATMUL_WITH(LAYOUT | INVALID, d.c.extent[0] = 3)
    MATMUL_WITH(LAYOUT | INVALID, d.c.extent[1] = 6)
    MATMUL_WITH(LAYOUT | INVALID, d.c.stride[0] = 1)
    MATMUL_WITH(LAYOUT | INVALID, d.a.rank = 1)
    MATMUL_WITH(LAYOUT | INVALID, d.bias = two)
    MATMUL_WITH(LAYOUT | INVALID, d.bias = clattn_layout_contiguous(CLATTN_F32, 1, (const size_t[]){4}))
    MATMUL_WITH(TOO_BIG | LAYOUT | UNSUPPORTED,
                (d.a = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){(size_t)1 << 33, 6}),
                 d.c = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){(size_t)1 << 33, 5})))
    clattn_mha_desc mha = CLATTN_MHA_DESC_INIT;
    mha.batch = 1;
    mha.query_length = 4;
    mha.d_model = 8;
    mha.heads = 2;
    assert_status(context, clattn_mha_supports(context, &mha, NULL), CLATTN_SUCCESS);
#define MHA_WITH(set, change) { clattn_mha_desc d = mha; change; REFUSED(mha, set); }
    MHA_WITH(STRUCT, d.size = 1)
    MHA_WITH(INVALID | LAYOUT, d.direction = -1)
    MHA_WITH(INVALID | LAYOUT, d.reserved = 1)
    MHA_WITH(INVALID | LAYOUT, d.cross = 2)
    MHA_WITH(INVALID | LAYOUT, d.packed_weights = -1)
    MHA_WITH(INVALID | LAYOUT, d.weights = 3)
    MHA_WITH(INVALID | LAYOUT, d.alignment = 9)
    MHA_WITH(INVALID | LAYOUT | UNSUPPORTED, d.dtype = 55)
    MHA_WITH(INVALID | LAYOUT, d.heads = 0)
    MHA_WITH(INVALID | LAYOUT, d.d_model = 0)
    MHA_WITH(INVALID | LAYOUT, d.heads = 3)                            /* 8 / 3 is no head size */
    MHA_WITH(INVALID | LAYOUT, (d.heads = 4, d.kv_heads = 3))
    MHA_WITH(INVALID | LAYOUT, (d.packed_weights = 1, d.kv_heads = 1)) /* packed weights have as many K/V heads */
    MHA_WITH(INVALID | LAYOUT, (d.scale_mode = CLATTN_SCALE_EXPLICIT, d.scale = (float)NAN))
    MHA_WITH(INVALID | LAYOUT | TOO_BIG | UNSUPPORTED, d.query_length = SIZE_MAX)
    MHA_WITH(INVALID | LAYOUT | TOO_BIG | UNSUPPORTED, d.d_model = d.heads = SIZE_MAX / 2)
    MHA_WITH(INVALID | LAYOUT, d.mask = clattn_layout_bhsd(CLATTN_F32, 1, 1, 3, 4))
}

/* A layout that was forgotten, or is wrong in itself, is named: by `supports` and by the message. */
static void wrong_layouts_are_named(void **state)
{
    clattn_plan *none = NULL;
    const clattn_layout two = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){4, 6}), empty = {0};
    const clattn_layout four = clattn_layout_bhsd(CLATTN_F32, 1, 1, 1, 8);
    const clattn_layout five = clattn_layout_contiguous(CLATTN_F32, 5, (const size_t[]){1, 1, 2, 2, 4});
    (void)state;
#define NAMED(operator, set, begins)                                                                         \
    {                                                                                                        \
        const char *reason = NULL;                                                                           \
        REFUSED(operator, set);                                                                              \
        clattn_##operator##_supports(context, &d, &reason);                                                  \
        assert_non_null(reason);                                                                             \
        if (strncmp(reason, begins, strlen(begins)) != 0)                                                    \
            fail_msg("\"%s\" does not begin with \"%s\"", reason, begins);                                   \
        assert_int_not_equal(clattn_##operator##_plan_create(context, &d, NULL, &none), CLATTN_SUCCESS);     \
        assert_message_has(context, begins);                                                                 \
    }
#define WITHOUT(operator, desc, field)                                                                       \
    {                                                                                                        \
        clattn_##operator##_desc d = desc;                                                                   \
        d.field = empty;                                                                                     \
        NAMED(operator, LAYOUT, #field ": the layout is missing")                                            \
    }
#define BROKEN(field, change, set, words)                                                                    \
    {                                                                                                        \
        clattn_attention_desc d = problem.desc;                                                              \
        d.field = d.query;                                                                                   \
        d.field.change;                                                                                      \
        NAMED(attention, set, #field ": the " words)                                                         \
    }
    WITHOUT(attention, problem.desc, query)
    WITHOUT(attention, problem.desc, key)
    WITHOUT(attention, problem.desc, value)
    WITHOUT(attention, problem.desc, output)
    BROKEN(key, dtype = 99, LAYOUT, "layout has an unknown dtype")
    BROKEN(mask, rank = 9, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(bias, extent[2] = SIZE_MAX / 4, TOO_BIG, "layout's extents overflow")
    BROKEN(alibi, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(sinks, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(vector, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(query_lengths, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(key_lengths, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(positions, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(query_starts, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(key_starts, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(block_table, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(key_scale, stride[2] = INT64_MAX, TOO_BIG, "layout reaches beyond 63-bit addresses")
    BROKEN(value_scale, rank = 0, LAYOUT, "layout's rank is not 1 to 5")
    BROKEN(lse, stride[2] = 0, LAYOUT, "output layout's elements overlap")
    BROKEN(entropy, stride[2] = 0, LAYOUT, "output layout's elements overlap")
    BROKEN(scores, stride[2] = 0, LAYOUT, "output layout's elements overlap")
    const clattn_softmax_desc softmax = {.size = sizeof softmax, .x = two, .y = two};
    WITHOUT(softmax, softmax, x)
    WITHOUT(softmax, softmax, y)
    const clattn_matmul_desc matmul = {.size = sizeof matmul, .a = two, .b = two, .c = two};
    WITHOUT(matmul, matmul, a)
    WITHOUT(matmul, matmul, b)
    WITHOUT(matmul, matmul, c)
    const clattn_norm_desc norm = {.size = sizeof norm, .x = two, .y = two};
    WITHOUT(norm, norm, x)
    WITHOUT(norm, norm, y)
    const clattn_activation_desc activation = {.size = sizeof activation, .x = two, .y = two};
    WITHOUT(activation, activation, x)
    WITHOUT(activation, activation, y)
    const clattn_rope_desc rope = {.size = sizeof rope, .x = four, .y = four};
    WITHOUT(rope, rope, x)
    WITHOUT(rope, rope, y)
    const clattn_kv_append_desc append = {
        .size = sizeof append, .key = four, .value = four, .key_cache = four, .value_cache = four};
    WITHOUT(kv_append, append, key)
    WITHOUT(kv_append, append, value)
    WITHOUT(kv_append, append, key_cache)
    WITHOUT(kv_append, append, value_cache)
    const clattn_merge_desc merge = {.size = sizeof merge, .partial = five, .partial_lse = four, .output = four};
    WITHOUT(merge, merge, partial)
    WITHOUT(merge, merge, partial_lse)
    WITHOUT(merge, merge, output)
    clattn_neighbourhood_desc window = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    window.query = window.key = window.value = window.output = five;
    window.window[0] = window.window[1] = 1;
    WITHOUT(neighbourhood, window, query)
    WITHOUT(neighbourhood, window, key)
    WITHOUT(neighbourhood, window, value)
    WITHOUT(neighbourhood, window, output)
}

/* Of several fields with one rule the message names the one that broke it. */
static void the_field_is_named(void **state)
{
    const clattn_layout one = clattn_layout_contiguous(CLATTN_I32, 1, (const size_t[]){1});
    const clattn_layout many = clattn_layout_contiguous(CLATTN_I32, 1, (const size_t[]){7});
    const clattn_layout mask = clattn_layout_bhsd(CLATTN_F32, 1, 1, 5, 999);
    const char *const snippet = "int mask_mod(int b, int h, int i, int j, user_data u) { return 1; }";
    char text[32];
    clattn_plan *none = NULL;
    (void)state;
#define FIELD(change, set, begins)                                                                           \
    {                                                                                                        \
        clattn_attention_desc d = problem.desc;                                                              \
        change;                                                                                              \
        NAMED(attention, set, begins)                                                                        \
    }
    FIELD(d.query_lengths = many, LAYOUT, "query_lengths is (batch)")
    FIELD(d.key_lengths = many, LAYOUT, "key_lengths is (batch)")
    FIELD((d.positions = many, d.alignment = CLATTN_ALIGN_EXPLICIT), LAYOUT, "positions is (batch)")
    FIELD((d.query_lengths = one, d.query_lengths.dtype = CLATTN_F32), LAYOUT, "query_lengths is (batch)")
    FIELD(d.key_starts = many, LAYOUT, "key_starts is (batch + 1)")
    FIELD(d.mask = mask, LAYOUT, "mask covers more keys")
    FIELD(d.bias = mask, LAYOUT, "bias covers more keys")
    FIELD(d.lse = mask, LAYOUT, "lse is (batch, heads, S_q)")
    FIELD(d.entropy = mask, LAYOUT, "entropy is (batch, heads, S_q)")
    FIELD(d.score_mod = "", INVALID, "score_mod is empty")
    FIELD(d.mask_mod = "", INVALID, "mask_mod is empty")
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++) {
        snprintf(text, sizeof text, "user_dtype[%d] is", i);
        FIELD((d.mask_mod = snippet, d.user_dtype[i] = CLATTN_F64), INVALID, text)
        snprintf(text, sizeof text, "user[%d]: bound", i);
        ARGS_WITH(INVALID, a.user[i] = a.query)
        assert_message_has(context, text);
        assert_message_has(context, "no user_dtype");
    }
    ARGS_WITH(INVALID, a.cancel = a.query)
    assert_message_has(context, "cancel: bound");
    assert_message_has(context, "`cancellable`");
    clattn_attention_desc with_user = problem.desc;
    with_user.mask_mod = snippet;
    with_user.user_dtype[2] = CLATTN_F32;
    assert_status(context, clattn_attention_run(context, NULL, &with_user, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "user[2]: no buffer is bound");
    const clattn_kv_append_desc append = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_desc d = append;
    d.direction = 1;
    NAMED(kv_append, INVALID, "direction")
    d = append;
    d.cache = 3;
    NAMED(kv_append, INVALID, "unknown cache")
    d = append;
    d.rotate = 2;
    NAMED(kv_append, INVALID, "rotate is neither 0 nor 1")
    d = append;
    d.reserved = 1;
    NAMED(kv_append, INVALID, "reserved is not 0")
}

/* The message holds OpenCL's own code: a buffer handle cannot be faked safely, but a build can fail. */
static void build_logs_come_back(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    char folder[SUPPORT_PATH], command[3 * SUPPORT_PATH];
    clattn_plan *none = NULL;
    (void)state;
    support_folder(folder);
    snprintf(command, sizeof command,
             "cp -r '%s/.' '%s' && for f in '%s'/*.cl; do echo '#error a_broken_line' >> \"$f\"; done",
             KERNEL_DIR, folder, folder);
    assert_int_equal(system(command), 0);
    params.kernel_dir = folder;
    clattn_context *broken = support_context_with(&params);
    for (int round = 0; round < 2; round++) { /* remembered, not retried in a loop */
        assert_status(broken, clattn_attention_plan_create(broken, &problem.desc, NULL, &none), CLATTN_ERROR_BUILD);
        assert_null(none);
        assert_message_has(broken, "a_broken_line");
    }
    support_release(&broken);
    snprintf(command, sizeof command, "cp -r '%s/.' '%s'", KERNEL_DIR, folder);
    assert_int_equal(system(command), 0);
    clattn_context *whole = support_context_with(&params); /* a kernel folder that is complete just works */
    clattn_plan *works = NULL;
    assert_status(whole, clattn_attention_plan_create(whole, &problem.desc, NULL, &works), CLATTN_SUCCESS);
    clattn_plan_release(&works);
    support_release(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(struct_sizes_are_checked, start, stop),
        cmocka_unit_test_setup_teardown(nulls_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(enums_and_flags_are_checked, start, stop),
        cmocka_unit_test_setup_teardown(only_finite_scales_are_taken, start, stop),
        cmocka_unit_test_setup_teardown(layouts_that_contradict_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(sizes_that_overflow_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(missing_and_strange_bindings_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(empty_softmaxes_of_any_extents_do_nothing, start, stop),
        cmocka_unit_test_setup_teardown(buffers_that_are_too_small_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(buffers_that_kernels_may_not_touch_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(foreign_objects_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(lengths_beyond_the_plan_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(plans_are_not_taken_for_another_operators, start, stop),
        cmocka_unit_test_setup_teardown(unknown_solvers_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(denied_solvers_are_not_chosen, start, stop),
        cmocka_unit_test_setup_teardown(the_other_operators_check_their_descriptions, start, stop),
        cmocka_unit_test_setup_teardown(wrong_layouts_are_named, start, stop),
        cmocka_unit_test_setup_teardown(the_field_is_named, start, stop),
        cmocka_unit_test_setup_teardown(build_logs_come_back, start, stop),
    };
    return SUPPORT_RUN("errors", tests);
}
