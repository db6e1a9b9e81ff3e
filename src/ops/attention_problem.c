/* Reading and checking what attention is asked for. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/arrays.h"
#include "ops/attention.h"
#include "program/defines.h"

_Static_assert(sizeof(array4) == 40, "array4 has padding");
_Static_assert(sizeof(attention_args) == 7 * 40 + 8 + 8 * 4, "attention_args has padding");

/* The scales for which a kernel may keep raw scores: positive, and far from over- and underflow. */
#define PLAIN_SCALE_MIN 1e-30f
#define PLAIN_SCALE_MAX 1e30f

void clattn_attention_desc_init(clattn_attention_desc *desc)
{
    if (desc) {
        memset(desc, 0, sizeof *desc);
        desc->size = sizeof *desc;
    }
}

void clattn_attention_args_init(clattn_attention_args *args)
{
    if (args) {
        memset(args, 0, sizeof *args);
        args->size = sizeof *args;
    }
}

static clattn_status fail(const char **reason, clattn_status status, const char *why)
{
    *reason = why;
    return status;
}

static clattn_status check_enums(const clattn_attention_desc *desc, const char **reason)
{
    if (desc->direction != CLATTN_FORWARD)
        return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, "direction: only CLATTN_FORWARD is known");
    if (desc->causal != 0 && desc->causal != 1)
        return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, "causal is neither 0 nor 1");
    if (desc->alignment < CLATTN_ALIGN_TOP_LEFT || desc->alignment > CLATTN_ALIGN_EXPLICIT)
        return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, "unknown alignment");
    if (desc->scale_mode < CLATTN_SCALE_INVERSE_SQRT || desc->scale_mode > CLATTN_SCALE_EXPLICIT)
        return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, "unknown scale_mode");
    if (desc->scale_mode == CLATTN_SCALE_EXPLICIT && !isfinite(desc->scale))
        return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    if (desc->reserved != 0)
        return fail(reason, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    return CLATTN_SUCCESS;
}

static clattn_status check_sizes(struct attention_problem *problem, const char **reason)
{
    const clattn_attention_desc *desc = &problem->desc;
    const size_t *q = desc->query.extent, *k = desc->key.extent, *v = desc->value.extent,
                 *o = desc->output.extent;
    if (desc->query.rank != 4 || desc->key.rank != 4 || desc->value.rank != 4 || desc->output.rank != 4)
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT,
                    "query, key, value and output have 4 dimensions: batch, heads, length, size");
    if (q[0] != k[0] || q[0] != v[0] || q[0] != o[0])
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT, "query, key, value and output differ in batch");
    if (k[1] != v[1] || q[1] != o[1] || (q[1] && (!k[1] || q[1] % k[1])))
        return fail(
            reason, CLATTN_ERROR_INVALID_LAYOUT,
            "heads: key's and value's are equal, query's and output's are equal and a multiple of them");
    if (q[2] != o[2] || k[2] != v[2])
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT,
                    "length: query and output are equal, key and value are equal");
    if (q[3] != k[3] || v[3] != o[3] || !q[3] || !v[3])
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT,
                    "size: query and key are equal, value and output are equal, and none is 0");
    for (int i = 0; i < 4; i++)
        if (q[i] > LENGTH_LIMIT || k[i] > LENGTH_LIMIT || v[i] > LENGTH_LIMIT)
            return fail(reason, CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
    problem->batch = q[0];
    problem->heads = q[1];
    problem->kv_heads = k[1];
    problem->query_length = q[2];
    problem->key_length = k[2];
    problem->d_k = q[3];
    problem->d_v = v[3];
    return CLATTN_SUCCESS;
}

static clattn_status check_mask(struct attention_problem *problem, const char **reason)
{
    const clattn_layout *mask = &problem->desc.mask;
    const size_t whole[3] = {problem->batch, problem->heads, problem->query_length};
    int64_t stride[4];
    problem->has_mask = !layout_is_none(mask);
    if (!problem->has_mask)
        return CLATTN_SUCCESS;
    if (mask->dtype != CLATTN_BOOL && mask->dtype != CLATTN_F32)
        return fail(reason, CLATTN_ERROR_UNSUPPORTED, "the mask is neither bool nor float32");
    if (mask->rank > 4)
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT, "the mask has more than 4 dimensions");
    mask_align(mask, 4, problem->mask_extent, stride);
    for (int i = 0; i < 3; i++)
        if (problem->mask_extent[i] != 1 && problem->mask_extent[i] != whole[i])
            return fail(reason, CLATTN_ERROR_INVALID_LAYOUT,
                        "mask: batch, heads and queries are each 1 or the query's");
    if (problem->mask_extent[3] > problem->key_length && problem->mask_extent[3] != 1)
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT, "the mask covers more keys than there are");
    problem->mask = (array4){0, stride[0], stride[1], stride[2], stride[3]};
    return CLATTN_SUCCESS;
}

static clattn_status check_lse(struct attention_problem *problem, const char **reason)
{
    const clattn_layout *lse = &problem->desc.lse;
    problem->has_lse = !layout_is_none(lse);
    if (!problem->has_lse)
        return CLATTN_SUCCESS;
    if (lse->dtype != CLATTN_F32)
        return fail(reason, CLATTN_ERROR_UNSUPPORTED, "the log-sum-exp is not float32");
    if (lse->rank != 3 || lse->extent[0] != problem->batch || lse->extent[1] != problem->heads ||
        lse->extent[2] != problem->query_length)
        return fail(reason, CLATTN_ERROR_INVALID_LAYOUT, "lse is not (batch, heads, S_q)");
    return CLATTN_SUCCESS;
}

static clattn_status check_layouts(clattn_attention_desc *desc, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    struct {
        clattn_layout *layout;
        enum layout_use use;
        bool optional;
    } all[] = {
        {&desc->query, LAYOUT_INPUT, false}, {&desc->key, LAYOUT_INPUT, false},
        {&desc->value, LAYOUT_INPUT, false}, {&desc->output, LAYOUT_OUTPUT, false},
        {&desc->mask, LAYOUT_INPUT, true},   {&desc->lse, LAYOUT_OUTPUT, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].optional && layout_is_none(all[i].layout)) {
            memset(all[i].layout, 0, sizeof *all[i].layout);
            continue;
        }
        TRY(layout_check(all[i].layout, all[i].use, reason));
        layout_normalise(all[i].layout);
    }
    if (desc->query.dtype != CLATTN_F32 || desc->key.dtype != CLATTN_F32 || desc->value.dtype != CLATTN_F32 ||
        desc->output.dtype != CLATTN_F32)
        return fail(reason, CLATTN_ERROR_UNSUPPORTED,
                    "query, key, value and output are float32 in this version");
fail:
    return status;
}

clattn_status attention_problem_read(const clattn_attention_desc *desc, struct attention_problem *problem,
                                     const char **reason)
{
    clattn_status status;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_attention_desc ever had";
    TRY(struct_read(&problem->desc, sizeof problem->desc, sizeof problem->desc, desc));
    TRY(check_enums(&problem->desc, reason));
    TRY(check_layouts(&problem->desc, reason));
    TRY(check_sizes(problem, reason));
    TRY(check_mask(problem, reason));
    TRY(check_lse(problem, reason));
    problem->scale = problem->desc.scale_mode == CLATTN_SCALE_EXPLICIT
                         ? problem->desc.scale
                         : (float)(1.0 / sqrt((double)problem->d_k));
    /* What does not count must not tell two equal descriptions apart. */
    if (problem->desc.scale_mode != CLATTN_SCALE_EXPLICIT)
        problem->desc.scale = 0;
    if (!problem->desc.causal)
        problem->desc.alignment = CLATTN_ALIGN_TOP_LEFT;
fail:
    return status;
}

void attention_defines(const struct attention_problem *problem, const struct capabilities *caps,
                       struct strbuf *options)
{
    const clattn_attention_desc *desc = &problem->desc;
    define_int(options, "D_K", (long long)problem->d_k);
    define_int(options, "D_V", (long long)problem->d_v);
    define_token(options, "Q_TYPE", storage_token(desc->query.dtype));
    define_token(options, "K_TYPE", storage_token(desc->key.dtype));
    define_token(options, "V_TYPE", storage_token(desc->value.dtype));
    define_token(options, "O_TYPE", storage_token(desc->output.dtype));
    define_int(options, "MASK", problem->has_mask);
    if (problem->has_mask)
        define_token(options, "MASK_TYPE", storage_token(desc->mask.dtype));
    define_int(options, "CAUSAL", desc->causal);
    define_int(options, "LSE", problem->has_lse);
    /* Keeping raw scores relies on a product that is not rounded before the maximum is subtracted. */
    define_int(options, "POSITIVE_SCALE",
               caps->fused && problem->scale >= PLAIN_SCALE_MIN && problem->scale <= PLAIN_SCALE_MAX);
}

/* Query 0's key position, brought into the range in which it makes a difference to lengths below 2^31. */
static int64_t position_of(const struct attention_problem *problem, const clattn_attention_args *args)
{
    int64_t position = 0;
    if (problem->desc.alignment == CLATTN_ALIGN_BOTTOM_RIGHT)
        position = (int64_t)args->key_length - (int64_t)args->query_length;
    else if (problem->desc.alignment == CLATTN_ALIGN_EXPLICIT)
        position = args->position;
    return position < INT32_MIN ? INT32_MIN : position > INT32_MAX ? INT32_MAX : position;
}

void attention_fill_args(const struct attention_problem *problem, const clattn_attention_args *args,
                         attention_args *kernel_args)
{
    const clattn_attention_desc *desc = &problem->desc;
    memset(kernel_args, 0, sizeof *kernel_args);
    kernel_args->query = array4_of(&desc->query, args->query.offset);
    kernel_args->key = array4_of(&desc->key, args->key.offset);
    kernel_args->value = array4_of(&desc->value, args->value.offset);
    kernel_args->output = array4_of(&desc->output, args->output.offset);
    if (problem->has_mask) {
        kernel_args->mask = problem->mask;
        kernel_args->mask.offset = args->mask.offset;
    }
    if (problem->has_lse)
        kernel_args->lse = array4_of(&desc->lse, args->lse.offset);
    kernel_args->position = position_of(problem, args);
    kernel_args->batch = (int)args->batch;
    kernel_args->heads = (int)problem->heads;
    kernel_args->group = (int)(problem->heads / problem->kv_heads);
    kernel_args->query_length = (int)args->query_length;
    kernel_args->key_length = (int)args->key_length;
    kernel_args->mask_keys = problem->has_mask && problem->mask_extent[3] != 1
                                 ? (int)size_min(problem->mask_extent[3], args->key_length)
                                 : (int)args->key_length;
    kernel_args->scale = problem->scale;
}

static clattn_status read_lengths(struct report *report, const struct attention_problem *problem,
                                  clattn_attention_args *args)
{
    if ((args->explicit_lengths != 0 && args->explicit_lengths != 1) || args->reserved != 0)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "explicit_lengths is neither 0 nor 1, or reserved not 0");
    if (!args->explicit_lengths) {
        args->batch = problem->batch;
        args->query_length = problem->query_length;
        args->key_length = problem->key_length;
    }
    if (args->batch > problem->batch || args->query_length > problem->query_length ||
        args->key_length > problem->key_length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu, query length %zu or key length %zu is above the plan's %zu, %zu, %zu",
                            args->batch, args->query_length, args->key_length, problem->batch,
                            problem->query_length, problem->key_length);
    return CLATTN_SUCCESS;
}

clattn_status attention_args_read(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *given, clattn_attention_args *args)
{
    clattn_status status;
    const clattn_attention_desc *desc = &problem->desc;
    status = struct_read(args, sizeof *args, sizeof *args, given);
    if (status != CLATTN_SUCCESS)
        return report_error(&context->device.report, status,
                            "args is NULL, or its size is none that "
                            "clattn_attention_args ever had");
    TRY(read_lengths(&context->device.report, problem, args));
    if (!problem->has_mask)
        TRY(binding_absent(context, &args->mask, "mask"));
    if (!problem->has_lse)
        TRY(binding_absent(context, &args->lse, "lse"));
    if (!args->batch || !problem->heads || !args->query_length)
        return CLATTN_SUCCESS;
    const size_t q[4] = {args->batch, problem->heads, args->query_length, problem->d_k};
    const size_t k[4] = {args->batch, problem->kv_heads, args->key_length, problem->d_k};
    const size_t v[4] = {args->batch, problem->kv_heads, args->key_length, problem->d_v};
    const size_t o[4] = {args->batch, problem->heads, args->query_length, problem->d_v};
    TRY(binding_check(context, &args->query, &desc->query, q, BINDING_READ, "query"));
    TRY(binding_check(context, &args->key, &desc->key, k, BINDING_READ, "key"));
    TRY(binding_check(context, &args->value, &desc->value, v, BINDING_READ, "value"));
    TRY(binding_check(context, &args->output, &desc->output, o, BINDING_WRITE, "output"));
    if (problem->has_lse)
        TRY(binding_check(context, &args->lse, &desc->lse, o, BINDING_WRITE, "lse"));
    if (problem->has_mask) {
        clattn_layout mask = {
            .dtype = desc->mask.dtype,
            .rank = 4,
            .stride = {problem->mask.batch, problem->mask.head, problem->mask.row, problem->mask.col}};
        const size_t extent[4] = {
            args->batch, problem->heads, args->query_length,
            problem->mask_extent[3] == 1 ? 1 : size_min(problem->mask_extent[3], args->key_length)};
        TRY(binding_check(context, &args->mask, &mask, extent, BINDING_READ, "mask"));
    }
fail:
    return status;
}
