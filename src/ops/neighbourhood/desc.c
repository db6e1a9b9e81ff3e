/* Reads and checks a description, and the arguments of an enqueue. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "program/defines.h"

_Static_assert(sizeof(map5) == 48, "map5 has padding");
_Static_assert(sizeof(neighbourhood_backward_args) == sizeof(neighbourhood_args) + 4 * 48 + 2 * 8,
               "neighbourhood_backward_args has padding");
_Static_assert(sizeof(neighbourhood_args) == 24 + 6 * 48 + 4 * 8 + 18 * 4, "neighbourhood_args has padding");

/* Positions, and distances times dilations, are ints in the kernels. */
#define SIDE_LIMIT ((size_t)1 << 29)
#define WINDOW_LIMIT 32767

static clattn_status check_options(clattn_neighbourhood_desc *desc, const char **reason)
{
    REQUIRE(enum_within(desc->direction, CLATTN_DIRECTION_BACKWARD), CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown direction");
    REQUIRE(desc->edge == CLATTN_EDGE_SHIFT || desc->edge == CLATTN_EDGE_CLIP, CLATTN_ERROR_INVALID_ARGUMENT,
            "unknown edge");
    REQUIRE(is_flag(desc->explicit_scale), CLATTN_ERROR_INVALID_ARGUMENT, "explicit_scale is neither 0 nor 1");
    REQUIRE(!desc->explicit_scale || isfinite(desc->scale), CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    for (int i = 0; i < 2; i++) {
        if (desc->dilation[i] == 0)
            desc->dilation[i] = 1;
        REQUIRE(desc->window[i] >= 1 && desc->window[i] <= WINDOW_LIMIT && desc->window[i] % 2 == 1,
                CLATTN_ERROR_INVALID_ARGUMENT, "a window is not odd, or not 1 to 32767");
        REQUIRE(desc->dilation[i] >= 1 && desc->dilation[i] <= WINDOW_LIMIT, CLATTN_ERROR_INVALID_ARGUMENT,
                "a dilation is not 1 to 32767");
    }
    return CLATTN_SUCCESS;
}

/* The output, or backward its gradient, which stands in its place among the inputs. */
static clattn_layout *output_of(clattn_neighbourhood_desc *desc)
{
    return desc->direction == CLATTN_DIRECTION_BACKWARD ? &desc->gradients.output : &desc->output;
}

/* Requires that there is nothing which only the other direction has, and backward something to write. */
static clattn_status check_direction(const clattn_neighbourhood_desc *desc, const char **reason)
{
    const clattn_layout *written[] = {&desc->gradients.query, &desc->gradients.key, &desc->gradients.value,
                                      &desc->gradients.bias};
    bool writes = false;
    for (size_t i = 0; i < COUNT_OF(written); i++)
        writes = writes || !layout_is_none(written[i]);
    if (desc->direction == CLATTN_DIRECTION_FORWARD) {
        REQUIRE(!writes && layout_is_none(&desc->gradients.output), CLATTN_ERROR_INVALID_ARGUMENT,
                "gradients are for CLATTN_DIRECTION_BACKWARD");
        return CLATTN_SUCCESS;
    }
    REQUIRE(layout_is_none(&desc->output) && layout_is_none(&desc->lse), CLATTN_ERROR_INVALID_ARGUMENT,
            "output and lse are for CLATTN_DIRECTION_FORWARD");
    REQUIRE(writes, CLATTN_ERROR_INVALID_LAYOUT, "no gradient is to be written");
    REQUIRE(layout_is_none(&desc->gradients.bias) || !layout_is_none(&desc->bias), CLATTN_ERROR_INVALID_LAYOUT,
            "gradients.bias needs a bias");
    return CLATTN_SUCCESS;
}

static clattn_status check_layouts(clattn_neighbourhood_desc *desc, const char **reason)
{
    clattn_status status;
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    const struct layout_rule all[] = {
        {&desc->query, LAYOUT_OF("query"), LAYOUT_INPUT, 5, false},
        {&desc->key, LAYOUT_OF("key"), LAYOUT_INPUT, 5, false},
        {&desc->value, LAYOUT_OF("value"), LAYOUT_INPUT, 5, false},
        {output_of(desc), backward ? LAYOUT_OF("gradients.output") : LAYOUT_OF("output"),
         backward ? LAYOUT_INPUT : LAYOUT_OUTPUT, 5, false},
        {&desc->gradients.query, LAYOUT_OF("gradients.query"), LAYOUT_OUTPUT, 5, true},
        {&desc->gradients.key, LAYOUT_OF("gradients.key"), LAYOUT_OUTPUT, 5, true},
        {&desc->gradients.value, LAYOUT_OF("gradients.value"), LAYOUT_OUTPUT, 5, true},
        {&desc->bias, LAYOUT_OF("bias"), LAYOUT_INPUT, 4, true},
        {&desc->lse, LAYOUT_OF("lse"), LAYOUT_OUTPUT, 4, true},
        {&desc->gradients.bias, LAYOUT_OF("gradients.bias"), LAYOUT_OUTPUT, 4, true},
    };
    TRY(layouts_read(all, COUNT_OF(all),
                     "query, key, value and output have 5 dimensions (batch, heads, height, width, size), "
                     "bias and lse the first 4",
                     reason));
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const clattn_dtype dtype = all[i].layout->dtype;
        const bool fits = all[i].rank == 4 ? dtype == CLATTN_DTYPE_F32 : dtype_is_storage(dtype);
        REQUIRE(fits || (all[i].optional && dtype == CLATTN_DTYPE_NONE), CLATTN_ERROR_UNSUPPORTED,
                "query, key, value and output are float32, float16 or bfloat16, bias and lse float32");
    }
fail:
    return status;
}

static bool has_extents(const clattn_layout *gradient, const clattn_layout *array)
{
    return layout_is_none(gradient) || !memcmp(gradient->extent, array->extent, sizeof array->extent);
}

static clattn_status check_sizes(struct neighbourhood_problem *problem, const char **reason)
{
    clattn_neighbourhood_desc *desc = &problem->desc;
    const size_t *q = desc->query.extent, *k = desc->key.extent, *v = desc->value.extent;
    const size_t *o = output_of(desc)->extent;
    REQUIRE(q[0] == k[0] && !memcmp(k, v, 4 * sizeof *k) && !memcmp(q, o, 4 * sizeof *q), CLATTN_ERROR_INVALID_LAYOUT,
            "query and output, and key and value, agree in batch, heads, height and width, and all in batch");
    REQUIRE(!q[1] || (k[1] && q[1] % k[1] == 0), CLATTN_ERROR_INVALID_LAYOUT, "query's heads are no multiple of key's");
    REQUIRE(q[4] == k[4] && v[4] == o[4] && q[4] && v[4], CLATTN_ERROR_INVALID_LAYOUT,
            "size: query and key are equal, value and output are equal, and none is 0");
    REQUIRE(q[2] <= k[2] && q[3] <= k[3], CLATTN_ERROR_INVALID_LAYOUT,
            "there are more rows or columns of queries than of keys");
    for (int i = 0; i < 5; i++)
        REQUIRE(q[i] <= SIDE_LIMIT && k[i] <= SIDE_LIMIT && v[i] <= SIDE_LIMIT, CLATTN_ERROR_OVERFLOW,
                "an extent is above 2^29");
    REQUIRE(has_extents(&desc->gradients.query, &desc->query) && has_extents(&desc->gradients.key, &desc->key) &&
                has_extents(&desc->gradients.value, &desc->value) && has_extents(&desc->gradients.bias, &desc->bias),
            CLATTN_ERROR_INVALID_LAYOUT, "a gradient has other extents than its array");
    problem->batch = q[0];
    problem->heads = q[1];
    problem->kv_heads = k[1];
    problem->query_height = q[2];
    problem->query_width = q[3];
    problem->height = k[2];
    problem->width = k[3];
    problem->d_k = q[4];
    problem->d_v = v[4];
    return CLATTN_SUCCESS;
}

static clattn_status check_optional(struct neighbourhood_problem *problem, const char **reason)
{
    const clattn_layout *bias = &problem->desc.bias, *lse = &problem->desc.lse;
    const size_t *extent = bias->extent;
    problem->has_bias = !layout_is_none(bias);
    problem->has_lse = !layout_is_none(lse);
    if (problem->has_bias) {
        problem->bias_batch = extent[0];
        problem->bias_heads = extent[1];
    }
    REQUIRE(!problem->has_bias ||
                ((extent[0] == 1 || extent[0] == problem->batch) && (extent[1] == 1 || extent[1] == problem->heads) &&
                 extent[2] == problem->height && extent[3] == problem->width),
            CLATTN_ERROR_INVALID_LAYOUT, "the bias is not (batch or 1, heads or 1, height, width)");
    REQUIRE(!problem->has_lse || !memcmp(lse->extent, problem->desc.query.extent, 4 * sizeof lse->extent[0]),
            CLATTN_ERROR_INVALID_LAYOUT, "lse is not (batch, heads, query height, query width)");
    return CLATTN_SUCCESS;
}

/* The number of keys that a complete window spans in a dimension. */
static size_t needed(const clattn_neighbourhood_desc *desc, int dimension)
{
    return (size_t)desc->window[dimension] * (size_t)desc->dilation[dimension];
}

/* Whether each position of a map of these sizes has a complete window. */
static bool windows_fit(const clattn_neighbourhood_desc *desc, size_t height, size_t width)
{
    return desc->edge == CLATTN_EDGE_CLIP || (needed(desc, 0) <= height && needed(desc, 1) <= width);
}

clattn_status neighbourhood_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct neighbourhood_problem *problem = result;
    clattn_neighbourhood_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_neighbourhood_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(check_options(desc, reason));
    TRY(check_direction(desc, reason));
    TRY(check_layouts(desc, reason));
    TRY(check_sizes(problem, reason));
    TRY(check_optional(problem, reason));
    REQUIRE(!problem->query_height || !problem->query_width || windows_fit(desc, problem->height, problem->width),
            CLATTN_ERROR_INVALID_LAYOUT,
            "with CLATTN_EDGE_SHIFT a window times its dilation is at most the map's height or width");
    problem->scale = desc->explicit_scale ? desc->scale : (float)(1.0 / sqrt((double)problem->d_k));
    /* An unused scale is zeroed, so that equal descriptions are equal bytes. */
    if (!desc->explicit_scale)
        desc->scale = 0;
fail:
    return status;
}

size_t neighbourhood_keys(const struct neighbourhood_problem *problem, int dimension)
{
    size_t side = dimension == 0 ? problem->height : problem->width;
    return size_min((size_t)problem->desc.window[dimension],
                    divide_up(side, (size_t)problem->desc.dilation[dimension]));
}

void neighbourhood_defines(const struct neighbourhood_problem *problem, struct strbuf *options)
{
    const clattn_neighbourhood_desc *desc = &problem->desc;
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    define_int(options, "D_K", (long long)problem->d_k);
    define_int(options, "D_V", (long long)problem->d_v);
    define_token(options, "Q_TYPE", storage_token(desc->query.dtype));
    define_token(options, "K_TYPE", storage_token(desc->key.dtype));
    define_token(options, "V_TYPE", storage_token(desc->value.dtype));
    define_token(options, "O_TYPE", storage_token(backward ? desc->gradients.output.dtype : desc->output.dtype));
    define_int(options, "BIAS", problem->has_bias);
    define_int(options, "LSE", problem->has_lse);
}

bool neighbourhood_has_queries(const struct neighbourhood_problem *problem, const clattn_neighbourhood_args *args)
{
    return args->batch && problem->heads && args->query_height && args->query_width;
}

static clattn_status read_sizes(struct report *report, const struct neighbourhood_problem *problem,
                                clattn_neighbourhood_args *args)
{
    clattn_status status = args_check(report, "explicit_sizes", args->explicit_sizes, args->reserved);
    if (status != CLATTN_SUCCESS)
        return status;
    if (!args->explicit_sizes) {
        args->batch = problem->batch;
        args->query_height = problem->query_height;
        args->query_width = problem->query_width;
        args->key_height = problem->height;
        args->key_width = problem->width;
    }
    if (args->batch > problem->batch || args->query_height > problem->query_height ||
        args->query_width > problem->query_width || args->key_height > problem->height ||
        args->key_width > problem->width)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu, %zu x %zu queries or %zu x %zu keys are above the plan's %zu, %zu x "
                            "%zu, %zu x %zu",
                            args->batch, args->query_height, args->query_width, args->key_height, args->key_width,
                            problem->batch, problem->query_height, problem->query_width, problem->height,
                            problem->width);
    if (!neighbourhood_has_queries(problem, args))
        return CLATTN_SUCCESS;
    if (args->query_y > args->key_height || args->query_height > args->key_height - args->query_y ||
        args->query_x > args->key_width || args->query_width > args->key_width - args->query_x)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "%zu x %zu queries from (%zu, %zu) are not all within %zu x %zu keys", args->query_height,
                            args->query_width, args->query_y, args->query_x, args->key_height, args->key_width);
    if (!windows_fit(&problem->desc, args->key_height, args->key_width))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "%zu x %zu keys are fewer than a window times its dilation, %zu x %zu, which "
                            "CLATTN_EDGE_SHIFT needs of a tile too",
                            args->key_height, args->key_width, needed(&problem->desc, 0), needed(&problem->desc, 1));
    return CLATTN_SUCCESS;
}

clattn_status neighbourhood_args_read(clattn_context *context, const struct neighbourhood_problem *problem,
                                      const clattn_neighbourhood_args *given, clattn_neighbourhood_args *args)
{
    clattn_status status;
    const clattn_neighbourhood_desc *desc = &problem->desc;
    const bool backward = desc->direction == CLATTN_DIRECTION_BACKWARD;
    TRY(args_read(&context->device.report, "clattn_neighbourhood_args", args, sizeof *args, sizeof *args, given));
    TRY(read_sizes(&context->device.report, problem, args));
    const size_t q[5] = {args->batch, problem->heads, args->query_height, args->query_width, problem->d_k};
    const size_t k[5] = {args->batch, problem->kv_heads, args->key_height, args->key_width, problem->d_k};
    const size_t v[5] = {args->batch, problem->kv_heads, args->key_height, args->key_width, problem->d_v};
    const size_t o[5] = {args->batch, problem->heads, args->query_height, args->query_width, problem->d_v};
    const size_t bias[4] = {size_min(problem->bias_batch, args->batch), problem->bias_heads, args->key_height,
                            args->key_width};
    const struct bound_array arrays[] = {
        {&args->query, &desc->query, q, BINDING_READ, "query", true},
        {&args->key, &desc->key, k, BINDING_READ, "key", true},
        {&args->value, &desc->value, v, BINDING_READ, "value", true},
        {&args->output, &desc->output, o, BINDING_WRITE, "output", !backward},
        {&args->bias, &desc->bias, bias, BINDING_READ, "bias", problem->has_bias},
        {&args->lse, &desc->lse, o, BINDING_WRITE, "lse", problem->has_lse},
        {&args->gradients.output, &desc->gradients.output, o, BINDING_READ, "gradients.output", backward},
        {&args->gradients.query, &desc->gradients.query, q, BINDING_WRITE, "gradients.query",
         !layout_is_none(&desc->gradients.query)},
        {&args->gradients.key, &desc->gradients.key, k, BINDING_WRITE, "gradients.key",
         !layout_is_none(&desc->gradients.key)},
        {&args->gradients.value, &desc->gradients.value, v, BINDING_WRITE, "gradients.value",
         !layout_is_none(&desc->gradients.value)},
        {&args->gradients.bias, &desc->gradients.bias, bias, BINDING_WRITE, "gradients.bias",
         !layout_is_none(&desc->gradients.bias)},
    };
    const bool idle = !args->batch || (!backward && !neighbourhood_has_queries(problem, args));
    status =
        idle ? bindings_absent(context, arrays, COUNT_OF(arrays)) : bindings_check(context, arrays, COUNT_OF(arrays));
fail:
    return status;
}

map5 neighbourhood_map(const clattn_layout *layout, int64_t offset)
{
    map5 map = {offset, layout->stride[0], layout->stride[1], layout->stride[2], layout->stride[3], layout->stride[4]};
    return map;
}

void neighbourhood_fill_args(const struct neighbourhood_problem *problem, const clattn_neighbourhood_args *args,
                             neighbourhood_args *kernel_args)
{
    const clattn_neighbourhood_desc *desc = &problem->desc;
    memset(kernel_args, 0, sizeof *kernel_args);
    kernel_args->query = neighbourhood_map(&desc->query, args->query.offset);
    kernel_args->key = neighbourhood_map(&desc->key, args->key.offset);
    kernel_args->value = neighbourhood_map(&desc->value, args->value.offset);
    kernel_args->output = desc->direction == CLATTN_DIRECTION_BACKWARD
                              ? neighbourhood_map(&desc->gradients.output, args->gradients.output.offset)
                              : neighbourhood_map(&desc->output, args->output.offset);
    kernel_args->lse = neighbourhood_map(&desc->lse, args->lse.offset);
    kernel_args->bias = neighbourhood_map(&desc->bias, args->bias.offset);
    if (problem->bias_batch == 1)
        kernel_args->bias.batch = 0;
    if (problem->bias_heads == 1)
        kernel_args->bias.head = 0;
    kernel_args->batch = (int)args->batch;
    kernel_args->heads = (int)problem->heads;
    kernel_args->group = problem->heads ? (int)(problem->heads / problem->kv_heads) : 0;
    kernel_args->query_height = (int)args->query_height;
    kernel_args->query_width = (int)args->query_width;
    kernel_args->height = (int)args->key_height;
    kernel_args->width = (int)args->key_width;
    kernel_args->query_y = (int)args->query_y;
    kernel_args->query_x = (int)args->query_x;
    kernel_args->window_y = desc->window[0];
    kernel_args->window_x = desc->window[1];
    kernel_args->dilation_y = desc->dilation[0];
    kernel_args->dilation_x = desc->dilation[1];
    kernel_args->clip = desc->edge == CLATTN_EDGE_CLIP;
    kernel_args->bias_batch = (int)size_min(problem->bias_batch, args->batch);
    kernel_args->bias_heads = (int)problem->bias_heads;
    kernel_args->scale = problem->scale;
}
