/* Reads and checks the description and the arguments of a matrix product. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "ops/matmul/matmul.h"
#include "program/defines.h"

_Static_assert(offsetof(matmul_args, operand) == 24 + 3 * 40 + 3 * 8 + 4 * 4, "matmul_args has padding");
_Static_assert(sizeof(matmul_args) == 24 + 3 * 40 + 3 * 8 + 4 * 4 + 40 + 2 * 8 + 6 * 4, "matmul_args has padding");
_Static_assert((int)ACTIVATION_NONE == (int)CLATTN_ACTIVATION_NONE &&
                   (int)ACTIVATION_RELU == (int)CLATTN_ACTIVATION_RELU &&
                   (int)ACTIVATION_GELU == (int)CLATTN_ACTIVATION_GELU &&
                   (int)ACTIVATION_GELU_TANH == (int)CLATTN_ACTIVATION_GELU_TANH &&
                   (int)ACTIVATION_SWISH == (int)CLATTN_ACTIVATION_SWISH &&
                   (int)ACTIVATION_LEAKY_RELU == (int)CLATTN_ACTIVATION_LEAKY_RELU,
               "clattn_activation is numbered otherwise");

array4 matmul_strides(const clattn_layout *layout)
{
    int last = layout->rank - 1;
    array4 array = {0, layout->rank == 3 && layout->extent[0] != 1 ? layout->stride[0] : 0, 0, layout->stride[last - 1],
                    layout->stride[last]};
    return array;
}

size_t matmul_batch(const clattn_layout *layout)
{
    return layout->rank == 3 ? layout->extent[0] : 1;
}

static clattn_status read_options(clattn_matmul_desc *desc, const char **reason)
{
    const clattn_status invalid = CLATTN_ERROR_INVALID_ARGUMENT;
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), invalid, "unknown direction");
    REQUIRE(is_flag(desc->prepack), invalid, "prepack is neither 0 nor 1");
    REQUIRE(!desc->prepack || !desc->direction, invalid, "prepack is for CLATTN_DIRECTION_FORWARD");
    REQUIRE(activation_name(desc->activation), invalid, "unknown activation");
    REQUIRE(desc->explicit_alpha == 0 || desc->explicit_alpha == 1, invalid, "explicit_alpha is neither 0 nor 1");
    if (!desc->explicit_alpha)
        desc->alpha = activation_default_alpha(desc->activation);
    REQUIRE(isfinite(desc->alpha), invalid, "alpha is NaN or infinite");
    REQUIRE(desc->operand_use == CLATTN_MATMUL_OPERAND_USE_ADD ||
                desc->operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY,
            invalid, "unknown operand_use");
    REQUIRE(!desc->operand_use || !layout_is_none(&desc->operand), invalid, "operand_use, and there is no operand");
    return CLATTN_SUCCESS;
}

static clattn_status read_operand(struct matmul_problem *problem, const char **reason)
{
    clattn_status status;
    clattn_layout *operand = &problem->desc.operand;
    const char *const shape = "operand is (m, n), or (batch or 1, m, n)";
    problem->has_operand = !layout_is_none(operand);
    if (!problem->has_operand)
        return CLATTN_SUCCESS;
    TRY(layout_check(operand, LAYOUT_INPUT, LAYOUT_OF("operand"), reason));
    layout_normalise(operand);
    REQUIRE(dtype_is_storage(operand->dtype), CLATTN_ERROR_UNSUPPORTED, "operand is float32, float16 or bfloat16");
    REQUIRE(operand->rank == 2 || operand->rank == 3, CLATTN_ERROR_INVALID_LAYOUT, shape);
    const size_t *extent = operand->extent + operand->rank - 2, batch = matmul_batch(operand);
    REQUIRE(extent[0] == problem->m && extent[1] == problem->n && (batch == problem->batch || batch == 1),
            CLATTN_ERROR_INVALID_LAYOUT, shape);
    problem->operand = matmul_strides(operand);
fail:
    return status;
}

static clattn_status read_scale(struct matmul_problem *problem, const char **reason)
{
    clattn_status status;
    clattn_layout *scale = &problem->desc.b_scale;
    const clattn_status wrong = CLATTN_ERROR_INVALID_LAYOUT;
    problem->has_scale = problem->desc.b.dtype == CLATTN_DTYPE_I8;
    REQUIRE(problem->has_scale || layout_is_none(scale), wrong, "b_scale, and b is not int8");
    if (!problem->has_scale)
        return CLATTN_SUCCESS;
    REQUIRE(!layout_is_none(scale), wrong, "b_scale is missing: b is int8");
    TRY(layout_check(scale, LAYOUT_INPUT, LAYOUT_OF("b_scale"), reason));
    layout_normalise(scale);
    REQUIRE(scale->rank == 1 && scale->extent[0] == problem->n && scale->dtype == CLATTN_DTYPE_F32, wrong,
            "b_scale is (n), float32");
fail:
    return status;
}

/* a, b, c and bias, whose layouts have been checked one by one. */
static clattn_status read_product(struct matmul_problem *problem, const char **reason)
{
    const clattn_matmul_desc *desc = &problem->desc;
    const clattn_status wrong = CLATTN_ERROR_INVALID_LAYOUT;
    problem->has_bias = !layout_is_none(&desc->bias);
    REQUIRE(dtype_is_storage(desc->a.dtype) && dtype_is_storage(desc->c.dtype) &&
                (dtype_is_storage(desc->b.dtype) || desc->b.dtype == CLATTN_DTYPE_I8) &&
                (!problem->has_bias || dtype_is_storage(desc->bias.dtype)),
            CLATTN_ERROR_UNSUPPORTED, "a, b, c and bias are each float32, float16 or bfloat16, b also int8");
    REQUIRE(desc->a.rank >= 2 && desc->a.rank <= 3 && desc->b.rank >= 2 && desc->b.rank <= 3 && desc->c.rank >= 2 &&
                desc->c.rank <= 3,
            wrong, "a, b and c have 2 dimensions, or 3 with a batch");
    const size_t *a = desc->a.extent + desc->a.rank - 2, *b = desc->b.extent + desc->b.rank - 2;
    const size_t *c = desc->c.extent + desc->c.rank - 2, batch = matmul_batch(&desc->c);
    REQUIRE(a[0] == c[0] && a[1] == b[0] && b[1] == c[1], wrong,
            "a is (m, k), b is (k, n) and c is (m, n): the extents disagree");
    REQUIRE(matmul_batch(&desc->a) == batch && (matmul_batch(&desc->b) == batch || matmul_batch(&desc->b) == 1), wrong,
            "batch: a's and c's are equal, b's too or 1");
    REQUIRE(!problem->has_bias || (desc->bias.rank == 1 && desc->bias.extent[0] == c[1]), wrong, "bias is not (n)");
    REQUIRE(batch <= LENGTH_LIMIT && a[0] <= LENGTH_LIMIT && a[1] <= LENGTH_LIMIT && c[1] <= LENGTH_LIMIT,
            CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
    problem->batch = batch;
    problem->m = a[0];
    problem->k = a[1];
    problem->n = c[1];
    problem->a = matmul_strides(&desc->a);
    problem->b = matmul_strides(&desc->b);
    problem->c = matmul_strides(&desc->c);
    REQUIRE(!desc->prepack || !problem->b.batch, CLATTN_ERROR_INVALID_ARGUMENT,
            "prepack is for a b that all items share");
    return CLATTN_SUCCESS;
}

clattn_status matmul_desc_read(const void *given, struct matmul_problem *problem, const char **reason)
{
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_matmul_desc ever had";
    return struct_read(&problem->desc, sizeof problem->desc, offsetof(clattn_matmul_desc, activation), given);
}

clattn_status matmul_arrays_read(struct matmul_problem *problem, enum layout_use c_use,
                                 const struct layout_words *c_words, const char **reason)
{
    clattn_status status;
    clattn_matmul_desc *desc = &problem->desc;
    TRY(read_options(desc, reason));
    const struct layout_rule all[] = {
        {&desc->a, LAYOUT_OF("a"), LAYOUT_INPUT, 0, false},
        {&desc->b, LAYOUT_OF("b"), LAYOUT_INPUT, 0, false},
        {&desc->c, c_words, c_use, 0, false},
        {&desc->bias, LAYOUT_OF("bias"), LAYOUT_INPUT, 0, true},
    };
    TRY(layouts_read(all, COUNT_OF(all), NULL, reason));
    TRY(read_product(problem, reason));
    TRY(read_operand(problem, reason));
    status = read_scale(problem, reason);
fail:
    return status;
}

clattn_status matmul_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct matmul_problem *problem = result;
    clattn_matmul_desc *desc = &problem->desc;
    TRY(matmul_desc_read(given, problem, reason));
    REQUIRE(layout_is_none(&desc->gradients.a) && layout_is_none(&desc->gradients.b) &&
                layout_is_none(&desc->gradients.c) && layout_is_none(&desc->gradients.bias) &&
                layout_is_none(&desc->gradients.operand),
            CLATTN_ERROR_INVALID_ARGUMENT, "gradients are for CLATTN_DIRECTION_BACKWARD");
    memset(&desc->gradients, 0, sizeof desc->gradients);
    status = matmul_arrays_read(problem, LAYOUT_OUTPUT, LAYOUT_OF("c"), reason);
fail:
    return status;
}

/* All bindings, of which the first items and rows are used; if there is nothing to do, only that nothing is bound to an array
 * that the description does not have. */
static clattn_status check_bindings(const struct matmul_plan *plan, const struct matmul_problem *problem,
                                    const clattn_matmul_args *args)
{
    clattn_context *context = plan->base.context;
    const clattn_matmul_desc *desc = &problem->desc;
    const size_t a[3] = {args->batch, args->m, problem->k}, c[3] = {args->batch, args->m, problem->n};
    const size_t b[3] = {matmul_batch(&desc->b) == 1 ? 1 : args->batch, problem->k, problem->n};
    const size_t operand[3] = {matmul_batch(&desc->operand) == 1 ? 1 : args->batch, args->m, problem->n};
    const int operand_rank = problem->has_operand ? desc->operand.rank : 3;
    const struct bound_array arrays[] = {
        {&args->a, &desc->a, a + 3 - desc->a.rank, BINDING_READ, "a", true},
        {&args->b, &desc->b, b + 3 - desc->b.rank, BINDING_READ, "b", true},
        {&args->bias, &desc->bias, &problem->n, BINDING_READ, "bias", problem->has_bias},
        {&args->b_scale, &desc->b_scale, &problem->n, BINDING_READ, "b_scale", problem->has_scale},
        {&args->operand, &desc->operand, operand + 3 - operand_rank, BINDING_READ | BINDING_IN_PLACE, "operand",
         problem->has_operand},
        {&args->c, &desc->c, c + 3 - desc->c.rank, BINDING_WRITE | BINDING_IN_PLACE, "c", true},
        {&args->gradients.a, &desc->gradients.a, a, BINDING_WRITE, "gradients.a", false},
        {&args->gradients.b, &desc->gradients.b, b, BINDING_WRITE, "gradients.b", false},
        {&args->gradients.c, &desc->gradients.c, c, BINDING_READ, "gradients.c", false},
        {&args->gradients.bias, &desc->gradients.bias, c, BINDING_WRITE, "gradients.bias", false},
        {&args->gradients.operand, &desc->gradients.operand, c, BINDING_WRITE, "gradients.operand", false},
    };
    clattn_status status;
    if (args->batch && args->m && problem->n && args->prepack != CLATTN_PREPACK_PACK)
        return bindings_check(context, arrays, COUNT_OF(arrays));
    TRY(bindings_absent(context, arrays, COUNT_OF(arrays)));
    if (args->batch && args->m && problem->n)
        status = bindings_check(context, &arrays[1], 1); /* nothing but b is read */
fail:
    return status;
}

static clattn_status check_prepack(const struct matmul_plan *plan, const struct matmul_problem *problem,
                                   const clattn_matmul_args *args, struct report *report)
{
    const clattn_status wrong = CLATTN_ERROR_INVALID_ARGUMENT;
    if (args->prepack == CLATTN_PREPACK_NONE)
        return CLATTN_SUCCESS;
    if (args->prepack != CLATTN_PREPACK_PACK && args->prepack != CLATTN_PREPACK_PACKED)
        return report_error(report, wrong, "prepack is %d, expected a clattn_prepack", (int)args->prepack);
    if (problem->b.batch)
        return report_error(report, wrong, "prepack is for a b that all items share");
    if (plan->base.workspace && binding_is_none(&args->workspace))
        return report_error(report, wrong, "prepack needs a workspace of the caller's");
    return CLATTN_SUCCESS;
}

clattn_status matmul_args_read(const struct matmul_plan *plan, const struct matmul_problem *problem,
                               const clattn_matmul_args *given, clattn_matmul_args *args)
{
    clattn_status status;
    struct report *report = &plan->base.context->device.report;
    TRY(args_read(report, "clattn_matmul_args", args, sizeof *args, offsetof(clattn_matmul_args, operand), given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, 0));
    TRY(check_prepack(plan, problem, args, report));
    if (args->prepack == CLATTN_PREPACK_PACK)
        args->explicit_lengths = 0; /* b is packed for calls of any lengths */
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, problem->batch));
    TRY(args_length(report, "m", args->explicit_lengths, &args->m, problem->m));
    status = check_bindings(plan, problem, args);
fail:
    return status;
}

void matmul_fill_args(const struct matmul_problem *problem, const clattn_matmul_args *args, matmul_args *kernel_args)
{
    memset(kernel_args, 0, sizeof *kernel_args);
    kernel_args->a = problem->a;
    kernel_args->b = problem->b;
    kernel_args->c = problem->c;
    kernel_args->a.offset = args->a.offset;
    kernel_args->b.offset = args->b.offset;
    kernel_args->c.offset = args->c.offset;
    if (problem->has_bias) {
        kernel_args->bias_offset = args->bias.offset;
        kernel_args->bias_col = problem->desc.bias.stride[0];
    }
    if (problem->has_operand) {
        kernel_args->operand = problem->operand;
        kernel_args->operand.offset = args->operand.offset;
    }
    if (problem->has_scale) {
        kernel_args->scale_offset = args->b_scale.offset;
        kernel_args->scale_col = problem->desc.b_scale.stride[0];
    }
    kernel_args->alpha = problem->desc.alpha;
    kernel_args->has_bias = problem->has_bias;
    kernel_args->has_operand = problem->has_operand;
    kernel_args->activation = (int)problem->desc.activation;
    size_t batch = args->batch, m = args->m;
    /* Items that share b and lie one behind the other are one taller item; unless they share a as well (its strides are 0, the
     * rows' too), which is packed once for all, into a workspace that is only large enough for one item's. */
    if (batch > 1 && problem->b.batch == 0 && problem->a.batch != 0 &&
        problem->a.batch == (int64_t)m * problem->a.row && problem->c.batch == (int64_t)m * problem->c.row &&
        (!problem->has_operand || problem->operand.batch == (int64_t)m * problem->operand.row) &&
        batch * m <= LENGTH_LIMIT) {
        m *= batch;
        batch = 1;
    }
    kernel_args->batch = (int)batch;
    kernel_args->m = (int)m;
    kernel_args->n = (int)problem->n;
    kernel_args->k = (int)problem->k;
}

cl_uint matmul_pointers(const struct matmul_plan *plan)
{
    const struct matmul_problem *problem = &plan->problem;
    return 3u + problem->has_scale + (plan->optional ? 2u : (cl_uint)problem->has_bias + problem->has_operand);
}

void matmul_bind(const struct matmul_plan *plan, const struct matmul_problem *problem, const clattn_matmul_args *args,
                 const clattn_binding **bindings)
{
    size_t count = 2;
    if (problem->has_bias || plan->optional)
        bindings[count++] = problem->has_bias ? &args->bias : NULL;
    if (problem->has_scale)
        bindings[count++] = &args->b_scale;
    if (problem->has_operand || plan->optional)
        bindings[count++] = problem->has_operand ? &args->operand : NULL;
    bindings[count] = &args->c;
}

size_t matmul_args_bytes(const struct matmul_plan *plan)
{
    return plan->optional || matmul_has_epilogue(&plan->problem) ? sizeof(matmul_args) : MATMUL_PLAIN_ARGS;
}

static bool is_multiplied(const struct matmul_problem *problem)
{
    return problem->has_operand && problem->desc.operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
}

/* A product without an epilogue defines nothing, so that all such products have the same program. */
static void epilogue_defines(const struct matmul_problem *problem, bool optional, struct strbuf *options)
{
    const clattn_matmul_desc *desc = &problem->desc;
    if (!optional && !matmul_has_epilogue(problem))
        return;
    define_int(options, "MATMUL_EPILOGUE", 1);
    define_int(options, "B_SCALED", problem->has_scale);
    if (desc->activation && !optional) {
        define_int(options, "ACTIVATED", 1);
        define_token(options, "ACTIVATION", activation_name(desc->activation));
    }
    define_int(options, "OPERAND", is_multiplied(problem) ? 2 : optional || problem->has_operand);
    if (optional || problem->has_operand)
        define_token(options, "OPERAND_TYPE",
                     storage_token(problem->has_operand ? desc->operand.dtype : desc->c.dtype));
}

void matmul_defines(struct matmul_plan *plan, bool optional, struct strbuf *options)
{
    const struct matmul_problem *problem = &plan->problem;
    const clattn_matmul_desc *desc = &problem->desc;
    plan->optional = optional;
    define_token(options, "A_TYPE", storage_token(desc->a.dtype));
    define_token(options, "B_TYPE", storage_token(desc->b.dtype));
    define_token(options, "C_TYPE", storage_token(desc->c.dtype));
    if (optional)
        define_int(options, "OPTIONAL", 1);
    define_int(options, "BIAS", optional || problem->has_bias);
    if (optional || problem->has_bias) /* an absent array has the type that a model's arrays have */
        define_token(options, "BIAS_TYPE", storage_token(problem->has_bias ? desc->bias.dtype : desc->c.dtype));
    epilogue_defines(problem, optional, options);
}
