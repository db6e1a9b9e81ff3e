/* Writes the -D options of an attention problem's kernels. */
#include <math.h>

#include "ops/common/arrays.h"
#include "ops/attention/plan.h"
#include "program/defines.h"

/* The scales for which a kernel may keep raw scores: positive, and far from over- and underflow. */
#define PLAIN_SCALE_MIN 1e-30f
#define PLAIN_SCALE_MAX 1e30f

static void define_array(const struct attention_problem *problem, enum attention_array array, const char *name,
                         struct strbuf *options)
{
    if (problem->has[array])
        define_token(options, name, storage_token(attention_layout(&problem->desc, array)->dtype));
}

static void define_user(const clattn_attention_desc *desc, struct strbuf *options)
{
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++) {
        char name[] = "USER0";
        name[4] = (char)('0' + i);
        if (desc->snippets.buffer_dtype[i] != CLATTN_DTYPE_NONE)
            define_token(options, name, element_token(desc->snippets.buffer_dtype[i]));
    }
}

/* Whether the maximum times log2(e), rounded, is as near to itself as an exponent may be off: within 2^5.  float16 inputs of
 * any size are promised to work; others are what they are. */
static bool maximum_fits(const struct attention_problem *problem)
{
    const double largest = 65504, limit = 0x1p29;
    if (problem->desc.query.dtype != CLATTN_DTYPE_F16 || problem->desc.key.dtype != CLATTN_DTYPE_F16)
        return true;
    return 1.5 * fabs(problem->exact_scale) * (double)problem->d_k * largest * largest < limit;
}

void attention_defines(const struct attention_problem *problem, const struct capabilities *caps, struct strbuf *options)
{
    const clattn_attention_desc *desc = &problem->desc;
    const struct {
        const char *name;
        bool set;
    } flags[] = {
        {"DOUBLE", problem->is_double},
        {"ADDITIVE", desc->scoring.kind == CLATTN_SCORE_ADDITIVE},
        {"SOFTCAP", desc->scoring.softcap > 0},
        {"SCORE_MOD", problem->score_mod != NULL},
        {"MASK_MOD", problem->mask_mod != NULL},
        {"SCORE_MOD_GRAD", problem->score_mod_grad != NULL},
        {"BIAS", problem->has[ATTENTION_BIAS]},
        {"ALIBI", problem->has[ATTENTION_ALIBI]},
        {"SINKS", problem->has[ATTENTION_SINKS]},
        {"WINDOW", attention_windowed(desc) || attention_range_by_launch(caps)},
        {"DROPOUT", desc->dropout.probability > 0},
        {"ENTROPY", problem->has[ATTENTION_ENTROPY]},
        {"BOTTOM_RIGHT", desc->alignment == CLATTN_ALIGNMENT_BOTTOM_RIGHT},
        {"RING", desc->cache.kind == CLATTN_CACHE_KIND_RING},
    };
    define_int(options, "D_K", (long long)problem->d_k);
    define_int(options, "D_V", (long long)problem->d_v);
    define_token(options, "Q_TYPE", storage_token(desc->query.dtype));
    define_token(options, "K_TYPE", storage_token(desc->key.dtype));
    define_token(options, "V_TYPE", storage_token(desc->value.dtype));
    define_token(options, "O_TYPE", storage_token(desc->output.dtype));
    define_int(options, "MASK", problem->has[ATTENTION_MASK]);
    define_int(options, "CAUSAL", desc->causal && !attention_range_by_launch(caps));
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].set)
            define_int(options, flags[i].name, 1);
    define_array(problem, ATTENTION_MASK, "MASK_TYPE", options);
    define_array(problem, ATTENTION_BIAS, "BIAS_TYPE", options);
    define_array(problem, ATTENTION_QUERY_LENGTHS, "QUERY_LENGTHS", options);
    define_array(problem, ATTENTION_KEY_LENGTHS, "KEY_LENGTHS", options);
    define_array(problem, ATTENTION_POSITIONS, "POSITIONS", options);
    define_array(problem, ATTENTION_QUERY_STARTS, "QUERY_STARTS", options);
    define_array(problem, ATTENTION_KEY_STARTS, "KEY_STARTS", options);
    define_array(problem, ATTENTION_BLOCK_TABLE, "PAGED", options);
    define_array(problem, ATTENTION_KEY_SCALE, "KEY_SCALE_TYPE", options);
    define_array(problem, ATTENTION_VALUE_SCALE, "VALUE_SCALE_TYPE", options);
    if (problem->has[ATTENTION_BLOCK_TABLE])
        define_int(options, "PAGE_SIZE", (long long)problem->page_size);
    if (problem->has[ATTENTION_KEY_SCALE])
        define_int(options, "KEY_GROUPS", (long long)desc->cache.key_scale.extent[3]);
    if (problem->has[ATTENTION_VALUE_SCALE])
        define_int(options, "VALUE_GROUPS", (long long)desc->cache.value_scale.extent[3]);
    define_user(desc, options);
    /* Keeping raw scores relies on a product that is not rounded before the maximum is subtracted. */
    define_int(options, "POSITIVE_SCALE",
               caps->fused && problem->scale >= PLAIN_SCALE_MIN && problem->scale <= PLAIN_SCALE_MAX &&
                   maximum_fits(problem));
}
