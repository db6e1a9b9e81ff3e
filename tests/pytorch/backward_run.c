/* backward_run FOLDER [name=value ...]: attention and its gradients by the library, for backward.py.
 *
 * FOLDER has these .npy files, the last of them if the description has such an array:
 *
 *   query key value d_output    (batch, heads, length, size), bfloat16 as uint16; d_output is the loss's derivative by the output
 *   d_lse                       (batch, heads, length) float32, the same by the log-sum-exp
 *   mask bias vector alibi sinks query_lengths key_lengths positions query_starts key_starts    as attention.h has them
 *
 * Forward gives output.npy and lse.npy, backward from these d_NAME.npy of each option d_NAME=TYPE.  keep.npy says what dropout
 * keeps: (items, heads, queries, keys) bytes.  What the library does not write has all its bits set.
 *
 *   NAME=PLACE          where a given array lies in its file: PLACE is ORDER[+GAP].  Axis n of the file is dimension ORDER[n] of the
 *                       array, and GAP elements precede each row of the last axis.  Without PLACE, the file is the array.
 *   output=TYPE[:PLACE] lse=f32[:PLACE]      of the results of forward; TYPE is f32, f16, bf16 or f64
 *   d_query d_key d_value d_mask d_bias d_vector d_alibi d_sinks=TYPE[:PLACE]    which gradients there are
 *   causal=1 short_mask=1 additive=1 alignment=N position=N left=N right=N longest=N scale=X softcap=X
 *   dropout=X seed=N offset=N score_mod=TEXT score_mod_grad=TEXT
 *   solver=NAME         backward's */
#include <stddef.h>

#include "pytorch/run.h"

/* Where a description and its arguments have an array. */
struct member {
    const char *name;
    size_t layout, binding;
};
#define MEMBER(name, path) {name, offsetof(clattn_attention_desc, path), offsetof(clattn_attention_args, path)}

static const struct member inputs[] = {
    MEMBER("query", query),
    MEMBER("key", key),
    MEMBER("value", value),
    MEMBER("mask", mask),
    MEMBER("bias", bias),
    MEMBER("vector", scoring.vector),
    MEMBER("alibi", scoring.alibi),
    MEMBER("sinks", scoring.sinks),
    MEMBER("query_lengths", lengths.query),
    MEMBER("key_lengths", lengths.key),
    MEMBER("positions", lengths.positions),
    MEMBER("query_starts", lengths.query_starts),
    MEMBER("key_starts", lengths.key_starts),
};
static const struct member gradient_inputs[] = {
    MEMBER("d_output", gradients.output),
    MEMBER("d_lse", gradients.lse),
};
static const struct member gradients[] = {
    MEMBER("d_query", gradients.query), MEMBER("d_key", gradients.key),     MEMBER("d_value", gradients.value),
    MEMBER("d_mask", gradients.mask),   MEMBER("d_bias", gradients.bias),   MEMBER("d_vector", gradients.vector),
    MEMBER("d_alibi", gradients.alibi), MEMBER("d_sinks", gradients.sinks),
};
#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static clattn_attention_desc desc;
static clattn_attention_args args;

static clattn_layout *layout_of(const struct member *m)
{
    return (clattn_layout *)((char *)&desc + m->layout);
}

static clattn_binding *binding_of(const struct member *m)
{
    return (clattn_binding *)((char *)&args + m->binding);
}

/* ---- arrays in their files ---- */

/* The dimension of the array that axis n of the file is. */
static int dimension(const char *place, int n)
{
    return place && *place ? place[n] - '0' : n;
}

static size_t gap_of(const char *place)
{
    const char *plus = place ? strchr(place, '+') : NULL;
    return plus ? (size_t)strtoul(plus + 1, NULL, 10) : 0;
}

/* The array's layout in a file of the contiguous layout `file`. */
static clattn_layout arrange(const clattn_layout *file, const char *place)
{
    clattn_layout array = *file;
    for (int n = 0; n < file->rank; n++) {
        const int to = dimension(place, n);
        if (to < 0 || to >= file->rank)
            complain(place, "names no dimension");
        array.extent[to] = file->extent[n] - (n == file->rank - 1 ? gap_of(place) : 0);
        array.stride[to] = file->stride[n];
    }
    return array;
}

/* Binds the array of a file of the folder, if there is one. */
static void give(const struct member *m)
{
    const char *place = option(m->name, NULL);
    const clattn_host_tensor tensor = array_of(m->name);
    if (!tensor.dtype)
        return;
    const clattn_layout file = clattn_layout_contiguous(tensor.dtype, tensor.rank, tensor.extent);
    *layout_of(m) = arrange(&file, place);
    *binding_of(m) = clattn_binding_buffer(buffer(tensor.bytes, tensor.data), (int64_t)gap_of(place));
}

/* A result and its file. */
struct made {
    const char *name;
    clattn_layout file;
    cl_mem memory;
};

static struct made make(const struct member *m, int32_t rank, const size_t *extent)
{
    const char *text = option(m->name, "f32"), *colon = strchr(text, ':'), *place = colon ? colon + 1 : NULL;
    const clattn_dtype dtype = !strncmp(text, "f16", 3)    ? CLATTN_DTYPE_F16
                               : !strncmp(text, "bf16", 4) ? CLATTN_DTYPE_BF16
                               : !strncmp(text, "f64", 3)  ? CLATTN_DTYPE_F64
                                                           : CLATTN_DTYPE_F32;
    struct made made = {.name = m->name};
    size_t file[CLATTN_MAX_RANK] = {0}, bytes = clattn_dtype_size(dtype);
    for (int n = 0; n < rank; n++) {
        file[n] = extent[dimension(place, n)] + (n == rank - 1 ? gap_of(place) : 0);
        bytes *= file[n];
    }
    made.file = clattn_layout_contiguous(dtype, rank, file);
    void *ones = room(bytes, 1);
    memset(ones, 0xff, bytes);
    made.memory = buffer(bytes, ones);
    free(ones);
    *layout_of(m) = arrange(&made.file, place);
    *binding_of(m) = clattn_binding_buffer(made.memory, (int64_t)gap_of(place));
    return made;
}

static void save(const struct made *made)
{
    char name[64];
    clattn_io_error error;
    size_t bytes = clattn_dtype_size(made->file.dtype);
    for (int n = 0; n < made->file.rank; n++)
        bytes *= made->file.extent[n];
    void *data = room(bytes, 1);
    if (bytes)
        read_buffer(made->memory, bytes, data);
    snprintf(name, sizeof name, "%s.npy", made->name);
    if (clattn_npy_write(path_of(name), made->file.dtype, made->file.rank, made->file.extent, data, &error) !=
        CLATTN_SUCCESS)
        complain(name, error.message);
    free(data);
}

/* ---- the description ---- */

static int64_t whole(const char *name)
{
    return strtoll(option(name, "0"), NULL, 10);
}

static void describe(void)
{
    clattn_attention_desc_init(&desc);
    clattn_attention_args_init(&args);
    for (size_t i = 0; i < COUNT_OF(inputs); i++)
        give(&inputs[i]);
    desc.causal = (int32_t)whole("causal");
    desc.alignment = (clattn_alignment)whole("alignment");
    desc.short_mask = (int32_t)whole("short_mask");
    desc.window.explicit_left = option("left", NULL) != NULL;
    desc.window.explicit_right = option("right", NULL) != NULL;
    desc.window.left = whole("left");
    desc.window.right = whole("right");
    desc.scoring.kind = whole("additive") ? CLATTN_SCORE_ADDITIVE : CLATTN_SCORE_DOT;
    desc.scoring.explicit_scale = option("scale", NULL) != NULL;
    desc.scoring.scale = strtof(option("scale", "0"), NULL);
    desc.scoring.softcap = strtof(option("softcap", "0"), NULL);
    desc.lengths.longest_query = number("longest", 0);
    desc.snippets.score_mod = option("score_mod", NULL);
    desc.snippets.score_mod_grad = option("score_mod_grad", NULL);
    desc.dropout.probability = strtof(option("dropout", "0"), NULL);
    args.explicit_lengths = option("position", NULL) != NULL;
    args.dropout.seed = strtoull(option("seed", "0"), NULL, 10);
    args.dropout.offset = (uint32_t)number("offset", 0);
    if (args.explicit_lengths) {
        const bool is_packed = desc.lengths.query_starts.rank;
        args.batch = is_packed ? desc.lengths.query_starts.extent[0] - 1 : desc.query.extent[0];
        args.query_length = desc.lengths.longest_query ? desc.lengths.longest_query : desc.query.extent[2];
        args.key_length = desc.key.extent[2];
        args.position = whole("position");
    }
}

/* keep.npy, of what clattn_dropout_keep says of each probability. */
static void save_kept(void)
{
    clattn_io_error error;
    const bool is_packed = desc.lengths.query_starts.rank;
    const size_t extent[4] = {
        is_packed ? desc.lengths.query_starts.extent[0] - 1 : desc.query.extent[0],
        desc.query.extent[1],
        desc.lengths.longest_query ? desc.lengths.longest_query : desc.query.extent[2],
        desc.key.extent[2],
    };
    uint8_t *kept = room(extent[0] * extent[1] * extent[2] * extent[3], 1), *at = kept;
    for (uint32_t b = 0; b < extent[0]; b++)
        for (uint32_t h = 0; h < extent[1]; h++)
            for (uint32_t i = 0; i < extent[2]; i++)
                for (uint32_t j = 0; j < extent[3]; j++)
                    *at++ = (uint8_t)clattn_dropout_keep(args.dropout.seed, args.dropout.offset,
                                                         desc.dropout.probability, (uint32_t)extent[1], b, h, i, j);
    if (clattn_npy_write(path_of("keep.npy"), CLATTN_DTYPE_U8, 4, extent, kept, &error) != CLATTN_SUCCESS)
        complain("keep.npy", error.message);
    free(kept);
}

/* ---- both directions ---- */

static void run_forward(void)
{
    static const struct member output = MEMBER("output", output), lse = MEMBER("lse", outputs.lse);
    const size_t *q = desc.query.extent, extent[4] = {q[0], q[1], q[2], desc.value.extent[3]};
    const struct made made[] = {make(&output, 4, extent), make(&lse, 3, extent)};
    CHECK(clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));
    for (size_t i = 0; i < COUNT_OF(made); i++)
        save(&made[i]);
}

static void run_backward(void)
{
    clattn_plan *plan;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    struct made made[COUNT_OF(gradients)];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(gradient_inputs); i++)
        give(&gradient_inputs[i]);
    for (size_t i = 0; i < COUNT_OF(gradients); i++)
        for (size_t n = 0; n < COUNT_OF(inputs); n++)
            if (option(gradients[i].name, NULL) && !strcmp(gradients[i].name + 2, inputs[n].name)) {
                const clattn_layout *of = layout_of(&inputs[n]);
                made[count++] = make(&gradients[i], of->rank, of->extent);
            }
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    options.solver = option("solver", NULL);
    CHECK(clattn_attention_plan_create(context, &desc, &options, &plan));
    CHECK(clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++)
        save(&made[i]);
    clattn_plan_release(&plan);
}

int main(int argc, char **argv)
{
    begin_run(argc, argv);
    describe();
    if (desc.dropout.probability > 0)
        save_kept();
    run_forward();
    run_backward();
    clattn_context_release(&context);
    return 0;
}
