/* The table of problems except attention's, which are in problems_attention.c.  Each operator has a table and a
 * function that makes a plan of a row; a new feature is a row, a new operator a table and a line in problems_visit. */
#include <stddef.h>

#include "problems.h"

typedef enum mask_kind { NO_MASK, BOOL_MASK, FLOAT_MASK } mask_kind;

/* ---- products ---- */

typedef struct matmul_row {
    const char *about;
    bool quick;
    const char *solver;
    size_t m, n, k;
    bool weight; /* B is stored as (n, k), like a layer's weight */
    bool bias;
    clattn_dtype dtype; /* of all arrays; 0: float32 */
    clattn_activation activation;
    bool operand, int8, backward; /* the operand is added, backward multiplied */
} matmul_row;

static const matmul_row matmul_rows[] = {
    {"2048 x 2048 x 512", QUICK, NULL, 2048, 2048, 512, .dtype = CLATTN_DTYPE_F32},
    {"2048 x 2048 x 512, weight and bias", NOT_QUICK, NULL, 2048, 2048, 512, .weight = true, .bias = true},
    {"64 x 768 x 768, weight and bias", NOT_QUICK, NULL, 64, 768, 768, .weight = true, .bias = true},
    {"64 x 64 x 768", NOT_QUICK, NULL, 64, 64, 768, .dtype = CLATTN_DTYPE_F32},
    {"16 x 16 x 64", NOT_QUICK, NULL, 16, 16, 64, .bias = true},
    {"1 x 4096 x 1024, weight", NOT_QUICK, NULL, 1, 4096, 1024, .weight = true},
    {"2048 x 2048 x 512 by generic", NOT_QUICK, "generic", 2048, 2048, 512, .bias = true},
    {"2048 x 2048 x 512 by cpu", NOT_QUICK, "cpu", 2048, 2048, 512, .weight = true, .bias = true},
    {"2048 x 2048 x 512 by cpu-amx", NOT_QUICK, "cpu-amx", 2048, 2048, 512, .weight = true, .bias = true},
    {"2048 x 2048 x 512, bfloat16, by cpu-amx", NOT_QUICK, "cpu-amx", 2048, 2048, 512, .weight = true, .bias = true,
     .dtype = CLATTN_DTYPE_BF16},
    {"1 x 4096 x 1024 by cpu", NOT_QUICK, "cpu", 1, 4096, 1024, .weight = true, .bias = true},
    {"4 x 4096 x 4096 by cpu", NOT_QUICK, "cpu", 4, 4096, 4096, .weight = true},
    {"4096 x 4096 x 4096 by matrix, bfloat16, weight", QUICK, "matrix", 4096, 4096, 4096, .weight = true,
     .dtype = CLATTN_DTYPE_BF16},
    {"4096 x 4096 x 4096 by matrix, bfloat16", NOT_QUICK, "matrix", 4096, 4096, 4096, .bias = true,
     .dtype = CLATTN_DTYPE_BF16},
    {"4096 x 4096 x 4096 by matrix, float16, weight and bias", NOT_QUICK, "matrix", 4096, 4096, 4096, .weight = true,
     .bias = true, .dtype = CLATTN_DTYPE_F16},
    {"512 x 512 x 512 by matrix, float16", NOT_QUICK, "matrix", 512, 512, 512, .bias = true, .dtype = CLATTN_DTYPE_F16},
    {"64 x 768 x 768 by matrix, bfloat16, weight and bias", NOT_QUICK, "matrix", 64, 768, 768, .weight = true,
     .bias = true, .dtype = CLATTN_DTYPE_BF16},
    {"16 x 16 x 64 by matrix, bfloat16", NOT_QUICK, "matrix", 16, 16, 64, .bias = true, .dtype = CLATTN_DTYPE_BF16},
    {"2048 x 2048 x 512, weight, bias, GELU, operand", QUICK, NULL, 2048, 2048, 512, .weight = true, .bias = true,
     .activation = CLATTN_ACTIVATION_GELU, .operand = true},
    {"64 x 768 x 768, int8 weight, Swish", NOT_QUICK, NULL, 64, 768, 768, .weight = true, .bias = true,
     .activation = CLATTN_ACTIVATION_SWISH, .int8 = true},
    {"2048 x 2048 x 512, GELU, operand, int8, by generic", NOT_QUICK, "generic", 2048, 2048, 512, .weight = true,
     .bias = true, .activation = CLATTN_ACTIVATION_GELU, .operand = true, .int8 = true},
    {"2048 x 2048 x 512, GELU, operand, by cpu", NOT_QUICK, "cpu", 2048, 2048, 512, .weight = true, .bias = true,
     .activation = CLATTN_ACTIVATION_GELU, .operand = true},
    {"1 x 4096 x 1024, int8, GELU, by cpu", NOT_QUICK, "cpu", 1, 4096, 1024, .weight = true, .bias = true,
     .activation = CLATTN_ACTIVATION_GELU, .operand = true, .int8 = true},
    {"4096 x 4096 x 4096 by matrix, float16, GELU, operand", NOT_QUICK, "matrix", 4096, 4096, 4096, .weight = true,
     .bias = true, .dtype = CLATTN_DTYPE_F16, .activation = CLATTN_ACTIVATION_GELU, .operand = true},
    {"4096 x 4096 x 4096 by wgmma, bfloat16, weight", QUICK, "wgmma", 4096, 4096, 4096, .weight = true,
     .dtype = CLATTN_DTYPE_BF16},
    {"4096 x 4096 x 4096 by wgmma, bfloat16", NOT_QUICK, "wgmma", 4096, 4096, 4096, .bias = true,
     .dtype = CLATTN_DTYPE_BF16},
    {"4096 x 4096 x 4096 by wgmma, float16, weight and bias", NOT_QUICK, "wgmma", 4096, 4096, 4096, .weight = true,
     .bias = true, .dtype = CLATTN_DTYPE_F16},
    {"4096 x 4096 x 4096 by wgmma, float16, GELU, operand", NOT_QUICK, "wgmma", 4096, 4096, 4096, .weight = true,
     .bias = true, .dtype = CLATTN_DTYPE_F16, .activation = CLATTN_ACTIVATION_GELU, .operand = true},
    {"1024 x 1536 x 512 by wgmma, float16", NOT_QUICK, "wgmma", 1024, 1536, 512, .bias = true,
     .dtype = CLATTN_DTYPE_F16},
    {"64 x 8448 x 768 by wgmma, bfloat16, weight and bias", NOT_QUICK, "wgmma", 64, 8448, 768, .weight = true,
     .bias = true, .dtype = CLATTN_DTYPE_BF16},
    {"64 x 4224 x 64 by wgmma, bfloat16", NOT_QUICK, "wgmma", 64, 4224, 64, .dtype = CLATTN_DTYPE_BF16},
    {"64 x 16 x 64 by wgmma, bfloat16", NOT_QUICK, "wgmma", 64, 16, 64, .bias = true, .dtype = CLATTN_DTYPE_BF16},
    {"8192 x 2048 x 512, bias, backward", NOT_QUICK, NULL, 8192, 2048, 512, .bias = true, .backward = true},
    {"2048 x 2048 x 512, weight, bias, GELU, operand, backward", NOT_QUICK, NULL, 2048, 2048, 512, .weight = true,
     .bias = true, .activation = CLATTN_ACTIVATION_GELU, .operand = true, .backward = true},
    {"2048 x 2048 x 512, weight, bias, Swish, operand, backward", QUICK, NULL, 2048, 2048, 512, .weight = true,
     .bias = true, .activation = CLATTN_ACTIVATION_SWISH, .operand = true, .backward = true},
    {"2048 x 2048 x 512, bfloat16, weight, Swish, operand, backward", NOT_QUICK, NULL, 2048, 2048, 512, .weight = true,
     .dtype = CLATTN_DTYPE_BF16, .activation = CLATTN_ACTIVATION_SWISH, .operand = true, .backward = true},
};

static clattn_status matmul_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const matmul_row *row = problem->row;
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    const clattn_dtype dtype = row->dtype ? row->dtype : CLATTN_DTYPE_F32;
    desc.a = clattn_layout_contiguous(dtype, 2, (const size_t[]){row->m, row->k});
    desc.b = clattn_layout_contiguous(dtype, 2, (const size_t[]){row->k, row->n});
    desc.c = clattn_layout_contiguous(dtype, 2, (const size_t[]){row->m, row->n});
    if (row->weight) {
        desc.b.stride[0] = 1;
        desc.b.stride[1] = (int64_t)row->k;
    }
    if (row->bias)
        desc.bias = clattn_layout_contiguous(dtype, 1, (const size_t[]){row->n});
    if (row->operand)
        desc.operand = desc.c;
    if (row->int8) {
        desc.b.dtype = CLATTN_DTYPE_I8;
        desc.b_scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){row->n});
    }
    desc.activation = row->activation;
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.operand_use = row->operand ? CLATTN_MATMUL_OPERAND_USE_MULTIPLY : CLATTN_MATMUL_OPERAND_USE_ADD;
        desc.gradients.a = desc.a;
        desc.gradients.b = desc.b;
        desc.gradients.c = desc.c;
        desc.gradients.bias = desc.bias;
        desc.gradients.operand = desc.operand;
        desc.c = (clattn_layout){0};
    }
    CREATE(matmul, problem, desc, plan);
}

/* ---- softmax ---- */

typedef struct softmax_row {
    const char *about;
    bool quick;
    const char *solver;
    size_t rows, columns;
    mask_kind mask;
    clattn_dtype type; /* 0: CLATTN_DTYPE_F32 */
    bool backward;
} softmax_row;

static const softmax_row softmax_rows[] = {
    {"rows of 128", NOT_QUICK, NULL, 4096, 128, NO_MASK, 0, false},
    {"rows of 1024", QUICK, NULL, 4096, 1024, NO_MASK, 0, false},
    {"rows of 1024, boolean mask", NOT_QUICK, NULL, 4096, 1024, BOOL_MASK, 0, false},
    {"rows of 1024, float mask", NOT_QUICK, NULL, 4096, 1024, FLOAT_MASK, 0, false},
    {"rows of 8192", NOT_QUICK, NULL, 4096, 8192, NO_MASK, 0, false},
    {"rows of 10^6", NOT_QUICK, NULL, 4, 1000000, NO_MASK, 0, false},
    {"rows of 128 in sub-groups", NOT_QUICK, "sub-group", 4096, 128, NO_MASK, 0, false},
    {"rows of 1024 in sub-groups", QUICK, "sub-group", 4096, 1024, NO_MASK, 0, false},
    {"rows of 1024, float mask, in sub-groups", NOT_QUICK, "sub-group", 4096, 1024, FLOAT_MASK, 0, false},
    {"rows of 8192 in sub-groups", NOT_QUICK, "sub-group", 4096, 8192, NO_MASK, 0, false},
    {"rows of 1024 by generic", NOT_QUICK, "generic", 4096, 1024, FLOAT_MASK, 0, false},
    {"rows of 1024 by cpu", NOT_QUICK, "cpu", 4096, 1024, FLOAT_MASK, 0, false},
    {"rows of 24 by cpu", NOT_QUICK, "cpu", 4096, 24, FLOAT_MASK, 0, false},
    {"rows of 1024, float16", NOT_QUICK, NULL, 4096, 1024, NO_MASK, CLATTN_DTYPE_F16, false},
    {"rows of 1024, bfloat16", NOT_QUICK, NULL, 4096, 1024, NO_MASK, CLATTN_DTYPE_BF16, false},
    {"rows of 1024, backward", QUICK, NULL, 4096, 1024, NO_MASK, 0, true},
    {"rows of 8192, float mask, bfloat16, backward", NOT_QUICK, NULL, 4096, 8192, FLOAT_MASK, CLATTN_DTYPE_BF16, true},
    {"rows of 1024 in sub-groups, backward", NOT_QUICK, "sub-group", 4096, 1024, NO_MASK, 0, true},
    {"rows of 1024 by generic, backward", NOT_QUICK, "generic", 4096, 1024, FLOAT_MASK, 0, true},
    {"rows of 1024 by cpu, backward", NOT_QUICK, "cpu", 4096, 1024, FLOAT_MASK, 0, true},
};

static clattn_status softmax_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const softmax_row *row = problem->row;
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    const size_t extent[2] = {row->rows, row->columns};
    desc.x = desc.y = clattn_layout_contiguous(row->type ? row->type : CLATTN_DTYPE_F32, 2, extent);
    if (row->mask != NO_MASK)
        desc.mask = clattn_layout_contiguous(row->mask == BOOL_MASK ? CLATTN_DTYPE_BOOL : CLATTN_DTYPE_F32, 2, extent);
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.x = desc.gradients.y = desc.y;
        desc.x = (clattn_layout){0};
    }
    CREATE(softmax, problem, desc, plan);
}

/* ---- multi-head attention: the kernels that only it has ---- */

typedef struct mha_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_weights_output weights;
} mha_row;

static const mha_row mha_rows[] = {
    {"12 heads of 64, weights per head", NOT_QUICK, NULL, CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"12 heads of 64, weights averaged", QUICK, NULL, CLATTN_WEIGHTS_OUTPUT_AVERAGE},
};

static clattn_status mha_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const mha_row *row = problem->row;
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    desc.packed_weights = desc.bias_in = desc.bias_out = 1;
    desc.batch = 4;
    desc.query_length = 512;
    desc.d_model = 768;
    desc.heads = 12;
    desc.weights = row->weights;
    CREATE(mha, problem, desc, plan);
}

/* ---- normalisation ---- */

typedef struct norm_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_norm_kind kind;
    size_t rows, columns;
    clattn_dtype dtype;
    bool bias, statistics, residual, backward;
} norm_row;

static const norm_row norm_rows[] = {
    {"LayerNorm of 768", QUICK, NULL, CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true, false, false, false},
    {"LayerNorm of 768, float16, statistics", NOT_QUICK, NULL, CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F16,
     true, true, false, false},
    {"LayerNorm of 64", NOT_QUICK, NULL, CLATTN_NORM_KIND_LAYER, 4096, 64, CLATTN_DTYPE_F32, true, false, false, false},
    {"LayerNorm of 65536", NOT_QUICK, NULL, CLATTN_NORM_KIND_LAYER, 64, 65536, CLATTN_DTYPE_F32, true, true, false,
     false},
    {"RMSNorm of 4096", NOT_QUICK, NULL, CLATTN_NORM_KIND_RMS, 4096, 4096, CLATTN_DTYPE_F32, false, false, false,
     false},
    {"RMSNorm of 4096, bfloat16", QUICK, NULL, CLATTN_NORM_KIND_RMS, 4096, 4096, CLATTN_DTYPE_BF16, false, false, false,
     false},
    {"LayerNorm of 768 in sub-groups", QUICK, "sub-group", CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true,
     false, false, false},
    {"LayerNorm of 65536 in sub-groups", NOT_QUICK, "sub-group", CLATTN_NORM_KIND_LAYER, 64, 65536, CLATTN_DTYPE_F32,
     true, true, false, false},
    {"RMSNorm of 4096, bfloat16, in sub-groups", NOT_QUICK, "sub-group", CLATTN_NORM_KIND_RMS, 4096, 4096,
     CLATTN_DTYPE_BF16, false, false, false, false},
    {"LayerNorm of 768 by generic", NOT_QUICK, "generic", CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true,
     true, false, false},
    {"LayerNorm of 768 by cpu", NOT_QUICK, "cpu", CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true, true,
     false, false},
    {"LayerNorm of 24 by cpu", NOT_QUICK, "cpu", CLATTN_NORM_KIND_LAYER, 4096, 24, CLATTN_DTYPE_F32, true, true, false,
     false},
    {"LayerNorm of 768, residual and sum", QUICK, NULL, CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true,
     false, true, false},
    {"LayerNorm of 65536, residual and sum, float16", NOT_QUICK, NULL, CLATTN_NORM_KIND_LAYER, 64, 65536,
     CLATTN_DTYPE_F16, true, true, true, false},
    {"LayerNorm of 768, residual and sum, by generic", NOT_QUICK, "generic", CLATTN_NORM_KIND_LAYER, 4096, 768,
     CLATTN_DTYPE_F32, true, true, true, false},
    {"LayerNorm of 768, residual and sum, by cpu", NOT_QUICK, "cpu", CLATTN_NORM_KIND_LAYER, 4096, 768,
     CLATTN_DTYPE_F32, true, true, true, false},
    {"LayerNorm of 768, backward", QUICK, NULL, CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true, false, false,
     true},
    {"RMSNorm of 4096, bfloat16, residual, backward", NOT_QUICK, NULL, CLATTN_NORM_KIND_RMS, 4096, 4096,
     CLATTN_DTYPE_BF16, false, false, true, true},
    {"LayerNorm of 768 in sub-groups, backward", NOT_QUICK, "sub-group", CLATTN_NORM_KIND_LAYER, 4096, 768,
     CLATTN_DTYPE_F32, true, false, false, true},
    {"LayerNorm of 768 by generic, backward", NOT_QUICK, "generic", CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32,
     true, false, false, true},
    {"LayerNorm of 768 by cpu, backward", NOT_QUICK, "cpu", CLATTN_NORM_KIND_LAYER, 4096, 768, CLATTN_DTYPE_F32, true,
     false, false, true},
};

static clattn_status norm_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const norm_row *row = problem->row;
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    desc.kind = row->kind;
    desc.x = desc.y = clattn_layout_contiguous(row->dtype, 2, (const size_t[]){row->rows, row->columns});
    desc.scale = clattn_layout_contiguous(row->dtype, 1, (const size_t[]){row->columns});
    if (row->bias)
        desc.bias = desc.scale;
    if (row->statistics)
        desc.mean = desc.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){row->rows, 1});
    if (row->residual)
        desc.residual = desc.sum = desc.x;
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.x = desc.gradients.y = desc.x;
        desc.gradients.sum = desc.sum;
        desc.gradients.scale = desc.scale;
        desc.gradients.bias = desc.bias;
        desc.y = desc.bias = desc.sum = (clattn_layout){0};
    }
    CREATE(norm, problem, desc, plan);
}

/* ---- activations ---- */

typedef struct activation_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_activation function;
    clattn_dtype dtype;
    bool backward;
} activation_row;

static const activation_row activation_rows[] = {
    {"ReLU", NOT_QUICK, NULL, CLATTN_ACTIVATION_RELU, CLATTN_DTYPE_F32, false},
    {"GELU", QUICK, NULL, CLATTN_ACTIVATION_GELU, CLATTN_DTYPE_F32, false},
    {"GELU by tanh, float16", NOT_QUICK, NULL, CLATTN_ACTIVATION_GELU_TANH, CLATTN_DTYPE_F16, false},
    {"Swish, bfloat16", NOT_QUICK, NULL, CLATTN_ACTIVATION_SWISH, CLATTN_DTYPE_BF16, false},
    {"LeakyReLU", NOT_QUICK, NULL, CLATTN_ACTIVATION_LEAKY_RELU, CLATTN_DTYPE_F32, false},
    {"GELU by cpu", NOT_QUICK, "cpu", CLATTN_ACTIVATION_GELU, CLATTN_DTYPE_F32, false},
    {"gradient of GELU", NOT_QUICK, NULL, CLATTN_ACTIVATION_GELU, CLATTN_DTYPE_F32, true},
    {"gradient of Swish by cpu, bfloat16", NOT_QUICK, "cpu", CLATTN_ACTIVATION_SWISH, CLATTN_DTYPE_BF16, true},
};

static clattn_status activation_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const activation_row *row = problem->row;
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    desc.function = row->function;
    desc.x = clattn_layout_contiguous(row->dtype, 2, (const size_t[]){4096, 3072});
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.x = desc.gradients.y = desc.x;
    } else {
        desc.y = desc.x;
    }
    CREATE(activation, problem, desc, plan);
}

/* ---- dropout ---- */

typedef struct dropout_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_dtype dtype;
    bool residual, backward;
} dropout_row;

static const dropout_row dropout_rows[] = {
    {"behind a residual", QUICK, NULL, CLATTN_DTYPE_F32, true, false},
    {"float16", NOT_QUICK, NULL, CLATTN_DTYPE_F16, false, false},
    {"by cpu, bfloat16", NOT_QUICK, "cpu", CLATTN_DTYPE_BF16, true, false},
    {"gradient", NOT_QUICK, NULL, CLATTN_DTYPE_F32, false, true},
};

static clattn_status dropout_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const dropout_row *row = problem->row;
    const clattn_layout array = clattn_layout_contiguous(row->dtype, 2, (const size_t[]){4096, 3072});
    clattn_dropout_desc desc = CLATTN_DROPOUT_DESC_INIT;
    desc.probability = 0.1f;
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.x = desc.gradients.y = array;
    } else {
        desc.x = desc.y = array;
        if (row->residual)
            desc.residual = array;
    }
    CREATE(dropout, problem, desc, plan);
}

/* ---- embeddings ---- */

typedef struct embedding_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_positions positions;
    clattn_dtype dtype;
    bool segments, backward;
} embedding_row;

static const embedding_row embedding_rows[] = {
    {"rows, sinusoids", QUICK, NULL, CLATTN_POSITIONS_SINUSOIDS, CLATTN_DTYPE_F32, false, false},
    {"rows, positions and segments, float16", NOT_QUICK, NULL, CLATTN_POSITIONS_TABLE, CLATTN_DTYPE_F16, true, false},
    {"gradient", QUICK, NULL, CLATTN_POSITIONS_NONE, CLATTN_DTYPE_F32, false, true},
};

static clattn_status embedding_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const embedding_row *row = problem->row;
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;
    desc.positions = row->positions;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[]){8, 512});
    desc.direction = row->backward ? CLATTN_DIRECTION_BACKWARD : CLATTN_DIRECTION_FORWARD;
    *(row->backward ? &desc.gradients.table : &desc.table) =
        clattn_layout_contiguous(row->dtype, 2, (const size_t[]){30000, 768});
    *(row->backward ? &desc.gradients.y : &desc.y) =
        clattn_layout_contiguous(row->dtype, 3, (const size_t[]){8, 512, 768});
    if (row->positions == CLATTN_POSITIONS_TABLE)
        desc.position_table = clattn_layout_contiguous(row->dtype, 2, (const size_t[]){512, 768});
    if (row->segments) {
        desc.segments = desc.ids;
        desc.segment_table = clattn_layout_contiguous(row->dtype, 2, (const size_t[]){2, 768});
    }
    CREATE(embedding, problem, desc, plan);
}

/* ---- the optimizer ---- */

typedef struct adam_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_dtype dtype; /* of the gradient, and of a copy unless it is float32 */
    bool squares;
} adam_row;

static const adam_row adam_rows[] = {
    {"a step", QUICK, NULL, CLATTN_DTYPE_F32, false},
    {"a step, float16, clipped", NOT_QUICK, NULL, CLATTN_DTYPE_F16, true},
    {"a step, bfloat16, clipped", QUICK, NULL, CLATTN_DTYPE_BF16, true},
};

static clattn_status adam_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const adam_row *row = problem->row;
    clattn_adam_desc desc = CLATTN_ADAM_DESC_INIT;
    const size_t count = 1000000;
    desc.parameter = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &count);
    desc.first_moment = desc.second_moment = desc.parameter;
    desc.gradient = clattn_layout_contiguous(row->dtype, 1, &count);
    if (row->dtype != CLATTN_DTYPE_F32)
        desc.stored = desc.gradient;
    if (row->squares)
        desc.squares = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){1});
    CREATE(adam, problem, desc, plan);
}

typedef struct square_sum_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_dtype dtype;
} square_sum_row;

static const square_sum_row square_sum_rows[] = {
    {"squares", QUICK, NULL, CLATTN_DTYPE_F32},
    {"squares, float16", NOT_QUICK, NULL, CLATTN_DTYPE_F16},
    {"squares, bfloat16", NOT_QUICK, NULL, CLATTN_DTYPE_BF16},
};

static clattn_status square_sum_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const square_sum_row *row = problem->row;
    clattn_square_sum_desc desc = CLATTN_SQUARE_SUM_DESC_INIT;
    desc.x = clattn_layout_contiguous(row->dtype, 1, (const size_t[]){1000000});
    desc.result = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){1});
    CREATE(square_sum, problem, desc, plan);
}

/* ---- cross-entropies ---- */

typedef struct cross_entropy_row {
    const char *about;
    bool quick;
    const char *solver;
    size_t classes;
    clattn_dtype dtype;
    float smoothing;
} cross_entropy_row;

static const cross_entropy_row cross_entropy_rows[] = {
    {"a vocabulary", QUICK, NULL, 50257, CLATTN_DTYPE_F32, 0},
    {"a vocabulary, bfloat16, smoothed", NOT_QUICK, NULL, 32000, CLATTN_DTYPE_BF16, 0.1f},
    {"a vocabulary in sub-groups", NOT_QUICK, "sub-group", 50257, CLATTN_DTYPE_F32, 0.1f},
    {"1000 classes, float16", NOT_QUICK, NULL, 1000, CLATTN_DTYPE_F16, 0.1f},
    {"1000 classes by generic", NOT_QUICK, "generic", 1000, CLATTN_DTYPE_F32, 0.1f},
    {"1000 classes by cpu", NOT_QUICK, "cpu", 1000, CLATTN_DTYPE_F32, 0.1f},
    {"10 classes by cpu", NOT_QUICK, "cpu", 10, CLATTN_DTYPE_F32, 0.1f},
};

static clattn_status cross_entropy_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const cross_entropy_row *row = problem->row;
    clattn_cross_entropy_desc desc = CLATTN_CROSS_ENTROPY_DESC_INIT;
    const size_t extent[2] = {4096, row->classes};
    desc.smoothing = row->smoothing;
    desc.x = desc.gradients.x = clattn_layout_contiguous(row->dtype, 2, extent);
    desc.labels = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, extent);
    desc.row_weights = desc.loss = desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent);
    CREATE(cross_entropy, problem, desc, plan);
}

/* ---- images ---- */

typedef struct image_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_image_operation operation;
    int32_t patch;
    size_t channels;
    clattn_dtype dtype;
    bool norm;
} image_row;

static const image_row image_rows[] = {
    {"pack, 3 channels", NOT_QUICK, NULL, CLATTN_IMAGE_OPERATION_PACK, 0, 3, CLATTN_DTYPE_F32, false},
    {"pack, 3 channels, patches of 7, norm", QUICK, NULL, CLATTN_IMAGE_OPERATION_PACK, 7, 3, CLATTN_DTYPE_F16, true},
    {"unpack, 3 channels", NOT_QUICK, NULL, CLATTN_IMAGE_OPERATION_UNPACK, 0, 3, CLATTN_DTYPE_F32, false},
    {"pack, 3 channels by cpu", NOT_QUICK, "cpu", CLATTN_IMAGE_OPERATION_PACK, 0, 3, CLATTN_DTYPE_F32, false},
    {"pack, 4 channels, patches of 7, norm, by cpu", NOT_QUICK, "cpu", CLATTN_IMAGE_OPERATION_PACK, 7, 4,
     CLATTN_DTYPE_F16, true},
    {"unpack, 3 channels by cpu", NOT_QUICK, "cpu", CLATTN_IMAGE_OPERATION_UNPACK, 0, 3, CLATTN_DTYPE_F32, false},
};

static clattn_status image_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const image_row *row = problem->row;
    clattn_image_desc desc = CLATTN_IMAGE_DESC_INIT;
    const size_t patch = row->patch ? (size_t)row->patch : 1;
    const size_t extent[3] = {1080, 1920, row->channels * patch * patch};
    desc.operation = row->operation;
    desc.patch = row->patch;
    desc.array = clattn_layout_contiguous(row->dtype, 3, extent);
    if (row->norm)
        desc.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
    CREATE(image, problem, desc, plan);
}

/* ---- convolutions ---- */

typedef struct conv2d_row {
    const char *about;
    bool quick;
    const char *solver;
    size_t channels, outputs;
    int32_t groups;
    clattn_dtype dtype;
    bool last, more; /* channels are neighbours in memory; there are a bias, GELU and an operand */
} conv2d_row;

static const conv2d_row conv2d_rows[] = {
    {"64 to 64", QUICK, NULL, 64, 64, 1, CLATTN_DTYPE_F32, false, false},
    {"64 to 64, NHWC, float16, bias, GELU, operand", NOT_QUICK, NULL, 64, 64, 1, CLATTN_DTYPE_F16, true, true},
    {"64 to 64 by cpu", NOT_QUICK, "cpu", 64, 64, 1, CLATTN_DTYPE_F32, false, true},
    {"depthwise by cpu", NOT_QUICK, "cpu", 96, 96, 96, CLATTN_DTYPE_F32, true, true},
};

static clattn_status conv2d_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const conv2d_row *row = problem->row;
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;
    const size_t weight[4] = {row->outputs, row->channels / (size_t)row->groups, 3, 3};
    const size_t x[4] = {1, row->channels, 258, 258}, y[4] = {1, row->outputs, 256, 256};
    desc.groups = row->groups;
    desc.x = clattn_layout_contiguous(row->dtype, 4, x);
    desc.weight = clattn_layout_contiguous(row->dtype, 4, weight);
    desc.y = clattn_layout_contiguous(row->dtype, 4, y);
    if (row->last) {
        desc.y.stride[1] = 1;
        desc.y.stride[3] = (int64_t)row->outputs;
        desc.y.stride[2] = (int64_t)(256 * row->outputs);
    }
    if (row->more) {
        desc.bias = clattn_layout_contiguous(row->dtype, 1, &row->outputs);
        desc.operand = clattn_layout_contiguous(row->dtype, 4, y);
        desc.activation = CLATTN_ACTIVATION_GELU;
    }
    CREATE(conv2d, problem, desc, plan);
}

/* ---- pooling ---- */

typedef struct pool_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_dtype dtype;
    bool backward;
} pool_row;

static const pool_row pool_rows[] = {
    {"max of 2 x 2, 64 channels", QUICK, NULL, CLATTN_DTYPE_F32, false},
    {"max of 2 x 2, 64 channels, bfloat16", NOT_QUICK, NULL, CLATTN_DTYPE_BF16, false},
    {"max of 2 x 2, 64 channels, by cpu", NOT_QUICK, "cpu", CLATTN_DTYPE_F32, false},
    {"gradient of max of 2 x 2, 64 channels", NOT_QUICK, NULL, CLATTN_DTYPE_F32, true},
    {"gradient of max of 2 x 2, 64 channels, by cpu", NOT_QUICK, "cpu", CLATTN_DTYPE_F32, true},
};

static clattn_status pool_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const pool_row *row = problem->row;
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
    desc.window[0] = desc.window[1] = 2;
    desc.x = clattn_layout_contiguous(row->dtype, 4, (const size_t[]){1, 64, 256, 256});
    desc.y = clattn_layout_contiguous(row->dtype, 4, (const size_t[]){1, 64, 128, 128});
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.x = desc.x;
        desc.gradients.y = desc.y;
        desc.y = (clattn_layout){0};
    }
    CREATE(pool, problem, desc, plan);
}

/* ---- resizing ---- */

typedef struct resize_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_dtype dtype;
} resize_row;

static const resize_row resize_rows[] = {
    {"bicubic, 3 channels, 540 x 960 to 1080 x 1920", QUICK, NULL, CLATTN_DTYPE_F32},
    {"bicubic, 3 channels, 540 x 960 to 1080 x 1920, float16", NOT_QUICK, NULL, CLATTN_DTYPE_F16},
    {"bicubic, 3 channels, 540 x 960 to 1080 x 1920, by cpu", NOT_QUICK, "cpu", CLATTN_DTYPE_F32},
};

static clattn_status resize_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const resize_row *row = problem->row;
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    desc.mode = CLATTN_RESIZE_MODE_BICUBIC;
    desc.x = clattn_layout_contiguous(row->dtype, 4, (const size_t[]){1, 3, 540, 960});
    desc.y = clattn_layout_contiguous(row->dtype, 4, (const size_t[]){1, 3, 1080, 1920});
    CREATE(resize, problem, desc, plan);
}

/* ---- all ---- */

void problems_visit(void (*visit)(void *user, const offline_problem *problem), void *user)
{
    attention_problems_visit(visit, user);
    VISIT_ROWS(matmul)
    VISIT_ROWS(softmax)
    VISIT_ROWS(mha)
    VISIT_ROWS(image)
    VISIT_ROWS(conv2d)
    VISIT_ROWS(norm)
    VISIT_ROWS(activation)
    VISIT_ROWS(cross_entropy)
    VISIT_ROWS(dropout)
    VISIT_ROWS(embedding)
    VISIT_ROWS(adam)
    VISIT_ROWS(square_sum)
    VISIT_ROWS(pool)
    VISIT_ROWS(resize)
}
