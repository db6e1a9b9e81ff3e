/* What models of pictures have: convolutions, resizing, and channels that become pixels. */
#include <math.h>

#include "run.h"

#define MOST_EXTENT ((int64_t)1 << 29) /* of what a convolution's description has */

/* ---- convolution ---- */

/* Reads `sides` numbers for each of the picture's dimensions into those of (rows, columns); an array of rank 3 has no
 * rows.  `otherwise` is the default, and the least that is allowed. */
static OrtStatus *read_sides(const graph *g, size_t node, const char *name, size_t rank, size_t sides,
                             int64_t otherwise, int32_t *made, bool *good)
{
    OrtStatus *failure = NULL;
    int64_t number[MOST_DIMENSIONS];
    size_t count = 0;
    ORT_TRY(graph_integers(g, node, name, number, MOST_DIMENSIONS, &count));
    for (size_t i = 0; i < 2 * sides; i++)
        made[i] = (int32_t)otherwise;
    *good = *good && (count == 0 || count == sides * (rank - 2));
    for (size_t i = 0; i < count && *good; i++) {
        *good = number[i] >= otherwise && number[i] <= MOST_EXTENT;
        made[rank == 4 ? i : 2 * i + 1] = *good ? (int32_t)number[i] : 0;
    }
fail:
    return failure;
}

OrtStatus *match_convolution(const graph *g, size_t node, const bool *taken, step *made, bool *found,
                             const char **reason)
{
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const size_t x = n->input[0], rank = rank_of(g, x);
    bool good = true, explicit = false, valid = false, activated = false;
    int64_t groups = 1;
    *reason = "it is not of two dimensions or one, by a constant kernel, with explicit padding";
    if (!has(n->input, n->inputs, 1) || !is_float(g, x) || (rank != 3 && rank != 4))
        return NULL;
    for (size_t i = 1; i < n->inputs && i < 3; i++) {
        if (n->input[i] == NO_PLACE)
            continue;
        const graph_value *v = &g->value[n->input[i]];
        if (!v->constant || !v->elements || v->type != g->value[x].type || v->rank != (i == 1 ? rank : 1))
            return NULL;
        made->input[i] = n->input[i]; /* CONVOLUTION_WEIGHT, CONVOLUTION_BIAS */
    }
    ORT_TRY(graph_integer(g, node, "group", 1, &groups));
    ORT_TRY(graph_is_text(g, node, "auto_pad", "NOTSET", "NOTSET", &explicit));
    ORT_TRY(graph_is_text(g, node, "auto_pad", "NOTSET", "VALID", &valid));
    ORT_TRY(read_sides(g, node, "strides", rank, 1, 1, made->convolution.stride, &good));
    ORT_TRY(read_sides(g, node, "dilations", rank, 1, 1, made->convolution.dilation, &good));
    if (explicit) /* VALID is without padding */
        ORT_TRY(read_sides(g, node, "pads", rank, 2, 0, made->convolution.padding, &good));
    if (!good || !(explicit || valid) || groups < 1 || groups > MOST_EXTENT)
        return NULL;
    made->kind = STEP_CONVOLUTION;
    made->convolution.groups = (int32_t)groups;
    made->input[CONVOLVED] = x;
    made->output[0] = n->output[0];
    step_add(made, node);
    ORT_TRY(match_activation(g, made->output[0], taken, made, &activated));
    *reason = NULL;
    *found = true;
fail:
    return failure;
}

/* An array (N, C, columns) or (N, C, rows, columns) with four dimensions. */
static void four(const run_array *array, size_t extent[4])
{
    for (size_t i = 0; i < 4; i++)
        extent[i] = array->rank == 4 || i < 2 ? (size_t)array->dim[i] : i == 2 ? 1 : (size_t)array->dim[2];
}

OrtStatus *convolution_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output)
{
    const run_array *x = input[CONVOLVED], *weight = input[CONVOLUTION_WEIGHT], *bias = input[CONVOLUTION_BIAS];
    const int32_t *padding = s->convolution.padding;
    const int64_t groups = s->convolution.groups;
    size_t picture[4], kernel[4];
    if (x->rank != weight->rank || weight->dim[0] % groups || x->dim[1] != weight->dim[1] * groups ||
        (bias && bias->dim[0] != weight->dim[0]))
        return wrong_shape(ort, "a convolution's array, kernel and bias do not go together");
    *output = *x;
    output->dim[1] = weight->dim[0];
    four(x, picture);
    four(weight, kernel);
    for (size_t d = 0; d < 2; d++) {
        const int64_t padded = (int64_t)picture[2 + d] + padding[d] + padding[2 + d];
        const int64_t reach = s->convolution.dilation[d] * ((int64_t)kernel[2 + d] - 1) + 1;
        if (padded < reach)
            return wrong_shape(ort, "a convolution's kernel is larger than its picture");
        if (d + x->rank >= 4)
            output->dim[d + x->rank - 2] = (padded - reach) / s->convolution.stride[d] + 1;
    }
    return count_elements(ort, output);
}

OrtStatus *enqueue_convolution(const engine *e, const step *s, run_array *const input[], const run_array *output)
{
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;
    clattn_conv2d_args args = CLATTN_CONV2D_ARGS_INIT;
    const run_array *bias = input[CONVOLUTION_BIAS];
    size_t extent[4];
    four(input[CONVOLVED], extent);
    desc.x = clattn_layout_contiguous(output->dtype, 4, extent);
    four(input[CONVOLUTION_WEIGHT], extent);
    desc.weight = clattn_layout_contiguous(output->dtype, 4, extent);
    if (bias)
        desc.bias = clattn_layout_contiguous(output->dtype, 1, extent);
    four(output, extent);
    desc.y = clattn_layout_contiguous(output->dtype, 4, extent);
    desc.groups = s->convolution.groups;
    for (size_t i = 0; i < 4; i++) {
        desc.stride[i % 2] = s->convolution.stride[i % 2];
        desc.dilation[i % 2] = s->convolution.dilation[i % 2];
        desc.padding[i] = s->convolution.padding[i];
    }
    desc.activation = s->activation.function;
    if (has_alpha(desc.activation)) {
        desc.explicit_alpha = 1;
        desc.alpha = s->activation.alpha;
    }
    args.weight = binding_of(input[CONVOLUTION_WEIGHT]);
    /* Of an empty picture there is no buffer; any will do. */
    args.x = input[CONVOLVED]->elements ? binding_of(input[CONVOLVED]) : args.weight;
    args.bias = binding_of(bias);
    args.y = binding_of(output);
    return judge(e, clattn_conv2d_run(e->context, e->queue, &desc, &args, 0, NULL, NULL));
}

/* ---- resizing ---- */

/* Reads what becomes of each extent: two factors, or two sizes, of constants that leave the first two dimensions as they are. */
static bool read_sizes(const graph *g, const graph_node *n, const int64_t *axes, size_t count, step *made)
{
    const graph_value *x = &g->value[n->input[0]];
    int64_t size[MOST_DIMENSIONS];
    size_t sizes = 0;
    const bool all = count == 0;
    const size_t wanted = all ? 4 : 2, skipped = wanted - 2;
    if (!all && (count != 2 || (axes[0] != 2 && axes[0] != -2) || (axes[1] != 3 && axes[1] != -1)))
        return false;
    if (has(n->input, n->inputs, 2) && g->value[n->input[2]].elements == wanted) {
        const graph_value *scales = &g->value[n->input[2]];
        if (scales->type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
            return false;
        const float *factor = scales->constant;
        made->resize.has_scale = true;
        for (size_t i = 0; i < 2; i++) {
            made->resize.scale[i] = factor[skipped + i];
            if (!(factor[skipped + i] >= 0x1p-20f && factor[skipped + i] <= 0x1p20f) || (all && factor[i] != 1))
                return false;
        }
        return true;
    }
    if (!has(n->input, n->inputs, 3) || !graph_numbers(g, n->input[3], size, MOST_DIMENSIONS, &sizes) ||
        sizes != wanted)
        return false;
    for (size_t i = 0; i < 2; i++) {
        made->resize.size[i] = size[skipped + i];
        if (size[skipped + i] < 1 || size[skipped + i] > MOST_EXTENT / 2 ||
            (all && (x->dim[i] < 0 || size[i] != x->dim[i])))
            return false;
    }
    return true;
}

/* What must be known of a change of size for the provider to compute it alike. */
typedef enum size_rule {
    ANY_SIZE,
    SEVERAL_PIXELS, /* the result has more than one along each axis, unless the picture has just one */
    POWERS_OF_TWO,  /* to 1, 2, 4, 8 ... times the size: positions are then exact, however they are computed */
} size_rule;

static bool obeys(const graph *g, size_t x, const step *made, size_rule what)
{
    for (size_t i = 0; i < 2 && what != ANY_SIZE; i++) {
        const bool scaled = made->resize.has_scale;
        const int64_t extent = g->value[x].dim[2 + i], size = made->resize.size[i];
        const double factor = scaled ? (double)made->resize.scale[i] : extent > 0 ? (double)size / (double)extent : 0;
        int exponent;
        if (what == SEVERAL_PIXELS ? factor < 1 && (scaled || size < 2) : factor < 1 || frexp(factor, &exponent) != 0.5)
            return false;
    }
    return true;
}

OrtStatus *match_resize(const graph *g, size_t node, step *made, bool *found, const char **reason)
{
    static const struct {
        const char *mode, *positions, *rounding; /* ONNX's; NULL: whichever */
        clattn_resize_mode as;
        size_rule what;
    } known[] = {
        {"linear", "half_pixel", NULL, CLATTN_RESIZE_MODE_BILINEAR, ANY_SIZE},
        {"linear", "pytorch_half_pixel", NULL, CLATTN_RESIZE_MODE_BILINEAR, SEVERAL_PIXELS},
        {"linear", "align_corners", NULL, CLATTN_RESIZE_MODE_BILINEAR, ANY_SIZE},
        {"cubic", "half_pixel", NULL, CLATTN_RESIZE_MODE_BICUBIC, ANY_SIZE},
        {"cubic", "pytorch_half_pixel", NULL, CLATTN_RESIZE_MODE_BICUBIC, SEVERAL_PIXELS},
        {"cubic", "align_corners", NULL, CLATTN_RESIZE_MODE_BICUBIC, ANY_SIZE},
        {"nearest", "asymmetric", "floor", CLATTN_RESIZE_MODE_NEAREST, POWERS_OF_TWO},
        {"nearest", "half_pixel", "round_prefer_floor", CLATTN_RESIZE_MODE_NEAREST_EXACT, POWERS_OF_TWO},
        {"nearest", "half_pixel", "round_prefer_ceil", CLATTN_RESIZE_MODE_NEAREST_EXACT, POWERS_OF_TWO},
    };
    OrtStatus *failure = NULL;
    const graph_node *n = &g->node[node];
    const size_t x = n->input[0];
    int64_t axes[MOST_DIMENSIONS], antialias = 0, outside = 0;
    size_t count = 0;
    bool stretches = false;
    *reason = "it is no constant change of rows and columns, or of a kind that the provider does not compute";
    if (!is_float(g, x) || rank_of(g, x) != 4 || n->version < 11)
        return NULL;
    ORT_TRY(graph_integer(g, node, "antialias", 0, &antialias));
    ORT_TRY(graph_integer(g, node, "exclude_outside", 0, &outside));
    ORT_TRY(graph_integers(g, node, "axes", axes, MOST_DIMENSIONS, &count));
    ORT_TRY(graph_float(g, node, "cubic_coeff_a", -0.75f, &made->resize.cubic_a));
    ORT_TRY(graph_is_text(g, node, "keep_aspect_ratio_policy", "stretch", "stretch", &stretches));
    if (antialias || outside || !stretches || !(fabsf(made->resize.cubic_a) <= 4) ||
        !read_sizes(g, n, axes, count, made))
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0] && !*found; i++) {
        bool mode, positions, rounding = true;
        ORT_TRY(graph_is_text(g, node, "mode", "nearest", known[i].mode, &mode));
        ORT_TRY(graph_is_text(g, node, "coordinate_transformation_mode", "half_pixel", known[i].positions, &positions));
        if (known[i].rounding)
            ORT_TRY(graph_is_text(g, node, "nearest_mode", "round_prefer_floor", known[i].rounding, &rounding));
        *found = mode && positions && rounding && obeys(g, x, made, known[i].what);
        made->resize.mode = known[i].as;
    }
    if (!*found)
        return NULL;
    ORT_TRY(graph_is_text(g, node, "coordinate_transformation_mode", "half_pixel", "align_corners",
                          &made->resize.align_corners));
    *reason = NULL;
    made->kind = STEP_RESIZE;
    made->input[0] = x;
    made->output[0] = n->output[0];
    step_add(made, node);
fail:
    return failure;
}

OrtStatus *resize_shape(const OrtApi *ort, const step *s, const run_array *x, run_array *output)
{
    *output = *x;
    for (size_t i = 0; i < 2; i++)
        output->dim[2 + i] =
            s->resize.has_scale ? (int64_t)(s->resize.scale[i] * (float)x->dim[2 + i]) : s->resize.size[i];
    return count_elements(ort, output);
}

OrtStatus *enqueue_resize(const engine *e, const step *s, const run_array *x, const run_array *y)
{
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
    size_t extent[4];
    four(x, extent);
    desc.x = clattn_layout_contiguous(x->dtype, 4, extent);
    four(y, extent);
    desc.y = clattn_layout_contiguous(y->dtype, 4, extent);
    desc.mode = s->resize.mode;
    desc.align_corners = s->resize.align_corners;
    desc.explicit_scale = s->resize.has_scale && !s->resize.align_corners;
    desc.scale[0] = (double)s->resize.scale[0];
    desc.scale[1] = (double)s->resize.scale[1];
    desc.explicit_cubic_a = 1;
    desc.cubic_a = s->resize.cubic_a;
    args.x = binding_of(x);
    args.y = binding_of(y);
    return judge(e, clattn_resize_run(e->context, e->queue, &desc, &args, 0, NULL, NULL));
}

/* ---- channels that become pixels ---- */

OrtStatus *match_depth_to_space(const graph *g, size_t node, step *made, bool *found)
{
    OrtStatus *failure = NULL;
    const size_t x = g->node[node].input[0];
    int64_t block = 0;
    ORT_TRY(graph_integer(g, node, "blocksize", 0, &block));
    ORT_TRY(graph_is_text(g, node, "mode", "DCR", "CRD", &made->depth.crd));
    made->kind = STEP_DEPTH_TO_SPACE;
    made->depth.block = block;
    *found = rank_of(g, x) == 4 && block >= 1 && block <= 1 << 12;
fail:
    return failure;
}

OrtStatus *depth_to_space_shape(const OrtApi *ort, const step *s, const run_array *x, run_array *output)
{
    const int64_t block = s->depth.block;
    *output = *x;
    if (x->dim[1] % (block * block))
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: %lld channels are no multiple of %lld x %lld",
                           (long long)x->dim[1], (long long)block, (long long)block);
    output->dim[1] = x->dim[1] / (block * block);
    output->dim[2] = x->dim[2] * block;
    output->dim[3] = x->dim[3] * block;
    return count_elements(ort, output);
}

OrtStatus *enqueue_depth_to_space(const engine *e, const step *s, const run_array *x, const run_array *y)
{
    /* Both as (batch, channels, rows, rows of a block, columns, columns of a block). */
    const int64_t block = s->depth.block, rows = x->dim[2], columns = x->dim[3], channels = y->dim[1];
    const int64_t plane = rows * columns, first = s->depth.crd;
    const int64_t extent[6] = {x->dim[0], channels, rows, block, columns, block};
    const int64_t from[6] = {x->dim[1] * plane,
                             plane * (first ? block * block : 1),
                             columns,
                             plane * block * (first ? 1 : channels),
                             1,
                             plane * (first ? 1 : channels)};
    int64_t to[6] = {0};
    to[5] = 1;
    for (size_t i = 5; i-- > 0;)
        to[i] = to[i + 1] * extent[i + 1];
    return copy(e, 6, extent, from, to, x, y);
}
