/* Attention, its caches and rotary positions in a run: shapes, and what is enqueued. */
#include <string.h>

#include "run.h"

/* ---- shapes ---- */

/* An extent of an array that is attention's (batch, heads, length, size). */
static int64_t extent_of(const attention_view *view, const run_array *array, size_t dimension)
{
    if (!view->split)
        return dimension + view->rank < 4 ? 1 : array->dim[view->axis[dimension]];
    const int64_t extent[4] = {array->dim[0], (int64_t)view->heads, array->dim[1],
                               array->dim[2] / (int64_t)view->split};
    return extent[dimension];
}

static OrtStatus *check_view(const OrtApi *ort, const attention_view *view, const run_array *array)
{
    if (array->rank == view->rank && (!view->split || array->dim[2] % (int64_t)view->split == 0))
        return NULL;
    return ort_failure(ort, ORT_INVALID_ARGUMENT,
                       "clattn: an array has %zu dimensions, expected %zu, and its last is no multiple of %zu heads",
                       array->rank, view->rank, view->split);
}

/* How many keys a cache has before those of now, for an item of the batch. */
static int64_t past_of(run_array *const input[], size_t item)
{
    if (!input[LENGTHS])
        return input[PAST_KEY]->dim[2];
    const int64_t now = input[KEY]->dim[1];
    const int32_t *total = input[TOTAL]->host, *last = input[LENGTHS]->host;
    return now == *total ? 0 : last[item] + 1 - now;
}

/* The first item behind `item` that has another number of keys before. */
static size_t next_past(run_array *const input[], size_t item, size_t batch)
{
    size_t next = item + 1;
    while (next < batch && past_of(input, next) == past_of(input, item))
        next++;
    return next;
}

/* Whether GroupQueryAttention's lengths, which are each item's last key, go with its arrays. */
static OrtStatus *check_lengths(const OrtApi *ort, const step *s, run_array *const input[])
{
    const run_array *query = input[QUERY], *lengths = input[LENGTHS];
    const int64_t now = query->dim[1], before = input[PAST_KEY] ? input[PAST_KEY]->dim[2] : 0;
    for (size_t i = KEY; i <= VALUE; i++)
        if (input[i]->dim[0] != query->dim[0] || input[i]->dim[1] != now)
            return wrong_shape(ort, "there are not as many keys and values as queries");
    if ((int64_t)lengths->elements != query->dim[0] || input[TOTAL]->elements != 1)
        return wrong_shape(ort, "there is not one length for each item, and one in all");
    const int32_t total = *(const int32_t *)input[TOTAL]->host, *last = lengths->host;
    if (total < now || total > before + now)
        return wrong_shape(ort, "the length in all is not that of the cache and of what is put to it");
    for (size_t i = 0; i < lengths->elements; i++)
        if (last[i] < (now == total ? 0 : now - 1) || last[i] >= total)
            return wrong_shape(ort, "an item's length is not that of its cache and of what is put to it");
    const run_array *cosines = input[COSINES];
    if (cosines && (memcmp(cosines->dim, input[SINES]->dim, 2 * sizeof *cosines->dim) != 0 || cosines->dim[0] < total ||
                    cosines->dim[1] > extent_of(&s->attention.view[QUERY], query, 3) / 2))
        return wrong_shape(ort, "the tables of rotary positions are shorter than the keys, or wider than a head");
    return NULL;
}

/* The keys, or values, of a cache and those of now. */
static OrtStatus *present_shape(const OrtApi *ort, const step *s, size_t part, run_array *const input[],
                                run_array *output)
{
    const size_t now = part == PRESENT_KEY ? KEY : VALUE;
    const run_array *past = input[part == PRESENT_KEY ? PAST_KEY : PAST_VALUE];
    *output = *input[now];
    output->rank = 4;
    for (size_t d = 0; d < 4; d++) {
        output->dim[d] = extent_of(&s->attention.view[now], input[now], d);
        if (past && (past->rank != 4 || past->dim[d] != (d == 2 ? input[PAST_KEY]->dim[2] : output->dim[d])))
            return wrong_shape(ort, "a cache does not have the shape of what is put to it");
    }
    const int64_t before = past ? past->dim[2] : 0;
    output->dim[2] += before;
    if (input[LENGTHS]) { /* a cache may have room */
        const int64_t total = *(const int32_t *)input[TOTAL]->host;
        output->dim[2] = total > before ? total : before;
    }
    return count_elements(ort, output);
}

OrtStatus *attention_shape(const OrtApi *ort, const step *s, size_t part, run_array *const input[], run_array *output)
{
    OrtStatus *failure = NULL;
    const run_array *mask = input[MASK];
    const attention_view *view = &s->attention.output;
    int64_t extent[4];
    for (size_t i = QUERY; i <= VALUE; i++)
        ORT_TRY(check_view(ort, &s->attention.view[i], input[i]));
    if (mask && (mask->rank < 1 || mask->rank > 4))
        return wrong_shape(ort, "a mask has not 1 to 4 dimensions");
    if (input[LENGTHS])
        ORT_TRY(check_lengths(ort, s, input));
    if (part != ATTENDED)
        return present_shape(ort, s, part, input, output);
    if (input[LENGTHS]) { /* nothing is broadcast */
        *output = *input[QUERY];
        output->dim[2] = output->dim[2] / (int64_t)s->attention.view[QUERY].split * (int64_t)view->heads;
        return count_elements(ort, output);
    }
    for (size_t d = 0; d < 4; d++)
        extent[d] = extent_of(&s->attention.view[QUERY], input[QUERY], d);
    extent[3] = extent_of(&s->attention.view[VALUE], input[VALUE], 3);
    /* ONNX broadcasts what has one batch, head or row where another array has more. */
    for (size_t d = 0; d < 3; d++) {
        for (size_t i = KEY; i <= VALUE && d < 2; i++)
            if (extent[d] == 1)
                extent[d] = extent_of(&s->attention.view[i], input[i], d);
        if (extent[d] == 1 && mask && d + mask->rank >= 4)
            extent[d] = mask->dim[d + mask->rank - 4];
    }
    output->dtype = input[QUERY]->dtype;
    output->rank = view->rank;
    if (!view->split) {
        for (size_t i = 4 - view->rank; i < 4; i++)
            output->dim[view->axis[i]] = extent[i];
    } else {
        output->dim[0] = extent[0];
        output->dim[1] = extent[2];
        output->dim[2] = extent[1] * extent[3];
    }
    failure = count_elements(ort, output);
fail:
    return failure;
}

OrtStatus *rope_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output)
{
    OrtStatus *failure = NULL;
    const attention_view *view = &s->attention.view[ROPE_X];
    const run_array *x = input[ROPE_X], *positions = input[ROPE_POSITIONS], *cosines = input[COSINES];
    ORT_TRY(check_view(ort, view, x));
    const int64_t batch = extent_of(view, x, 0), length = extent_of(view, x, 2), size = extent_of(view, x, 3);
    const size_t rank = positions ? 2 : 3; /* a row for each position, or for each element */
    if (cosines->rank != rank || input[SINES]->rank != rank ||
        memcmp(cosines->dim, input[SINES]->dim, rank * sizeof *cosines->dim) != 0 ||
        2 * cosines->dim[rank - 1] != (s->rope.size ? s->rope.size : size) ||
        (!positions && (cosines->dim[0] != batch || cosines->dim[1] != length)))
        return wrong_shape(ort, "the tables of rotary positions do not have the shape that the array needs");
    const bool each = positions && positions->rank == 2; /* or one, of the first element */
    if (positions && (each ? positions->dim[0] != batch || positions->dim[1] != length : positions->elements != 1))
        return wrong_shape(ort, "there is neither one position nor one for each element");
    const int64_t *position = positions ? positions->host : NULL;
    for (size_t i = 0; positions && i < positions->elements; i++)
        if (position[i] < 0 || position[i] > cosines->dim[0] - (each ? 1 : length))
            return wrong_shape(ort, "a position is not in the tables");
    *output = *x;
fail:
    return failure;
}

/* ---- layouts ---- */

static clattn_layout row_major(const run_array *a)
{
    size_t extent[MOST_DIMENSIONS];
    for (size_t d = 0; d < a->rank; d++)
        extent[d] = (size_t)a->dim[d];
    return clattn_layout_contiguous(a->dtype, (int32_t)a->rank, extent);
}

static void set(clattn_layout *layout, size_t dimension, int64_t extent, int64_t stride)
{
    layout->extent[dimension] = (size_t)extent;
    layout->stride[dimension] = stride;
}

/* Lays an array out as (batch, heads, length, size). */
static clattn_layout arrange(const attention_view *view, const run_array *a)
{
    clattn_layout layout = {.dtype = a->dtype, .rank = 4};
    int64_t stride[MOST_DIMENSIONS];
    strides_of(a, stride);
    if (view->split) {
        const int64_t size = a->dim[2] / (int64_t)view->split;
        set(&layout, 0, a->dim[0], stride[0]);
        set(&layout, 1, (int64_t)view->heads, size);
        set(&layout, 2, a->dim[1], stride[1]);
        set(&layout, 3, size, 1);
        return layout;
    }
    set(&layout, 0, 1, 0);
    for (size_t i = 4 - view->rank; i < 4; i++)
        set(&layout, i, a->dim[view->axis[i]], stride[view->axis[i]]);
    return layout;
}

/* The array from the first of its heads that are meant. */
static run_array from_first(const attention_view *view, const run_array *a)
{
    return view->first ? shifted(a, (int64_t)view->first * (a->dim[2] / (int64_t)view->split)) : *a;
}

/* ONNX broadcasts arrays that have one batch, head or row where another has more. */
static void widen(clattn_layout *layout, size_t dimension, size_t extent)
{
    if (layout->extent[dimension] == 1 && extent > 1)
        set(layout, dimension, (int64_t)extent, 0);
}

/* ---- rotary positions ---- */

/* Enqueues a rotation by the step's tables; `desc` and `args` have x, y and the positions. */
static OrtStatus *rotate(const engine *e, const step *s, run_array *const input[], clattn_rope_desc *desc,
                         clattn_rope_args *args)
{
    desc->pairing = s->rope.interleaved ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc->cos = row_major(input[COSINES]);
    desc->sin = row_major(input[SINES]);
    desc->rotary_size = 2 * desc->cos.extent[desc->cos.rank - 1];
    args->cos = binding_of(input[COSINES]);
    args->sin = binding_of(input[SINES]);
    return judge(e, clattn_rope_run(e->context, e->queue, desc, args, 0, NULL, NULL));
}

OrtStatus *enqueue_rope(const engine *e, const step *s, run_array *const input[], const run_array *output)
{
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
    const run_array *positions = input[ROPE_POSITIONS];
    desc.x = arrange(&s->attention.view[ROPE_X], input[ROPE_X]);
    desc.y = arrange(&s->attention.view[ROPE_X], output);
    args.x = binding_of(input[ROPE_X]);
    args.y = binding_of(output);
    if (positions && positions->rank == 2) {
        desc.positions = row_major(positions);
        args.positions = binding_of(positions);
    } else if (positions)
        args.position = *(const int64_t *)positions->host;
    return rotate(e, s, input, &desc, &args);
}

/* Makes *query what it is when rotated, in a buffer of its own, as the output lies. */
static OrtStatus *rotate_query(const engine *e, const step *s, run_array *const input[], const run_array *output,
                               run_array *query, cl_mem *buffer)
{
    OrtStatus *failure = NULL;
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
    const size_t batch = input[LENGTHS]->elements;
    run_array made = *output;
    ORT_TRY(engine_buffer(e, NULL, array_bytes(output), true, buffer));
    made.buffer = *buffer;
    made.offset = 0;
    desc.x = arrange(&s->attention.view[QUERY], query);
    desc.y = arrange(&s->attention.output, &made);
    args.x = binding_of(query);
    args.y = binding_of(&made);
    args.position = past_of(input, 0);
    if (next_past(input, 0, batch) < batch) {
        desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        args.offsets = binding_of(input[LENGTHS]);
        args.position = 1 - query->dim[1];
    }
    ORT_TRY(rotate(e, s, input, &desc, &args));
    *query = made;
fail:
    return failure;
}

/* ---- attention ---- */

/* Puts keys, or values, behind those of a cache; what is behind both is 0. */
static OrtStatus *enqueue_present(const engine *e, const step *s, size_t part, run_array *const input[],
                                  const run_array *output)
{
    OrtStatus *failure = NULL;
    const size_t now = part == PRESENT_KEY ? KEY : VALUE, batch = (size_t)output->dim[0];
    const run_array *past = input[part == PRESENT_KEY ? PAST_KEY : PAST_VALUE];
    const run_array added = from_first(&s->attention.view[now], input[now]);
    const clattn_layout layout = arrange(&s->attention.view[now], &added);
    const int64_t length = (int64_t)layout.extent[2];
    int64_t from[MOST_DIMENSIONS], to[MOST_DIMENSIONS];
    /* An application may have both in one place. */
    const bool in_place = past && past->elements == output->elements &&
                          ((e->shares && past->host && past->host == output->host) ||
                           (past->buffer == output->buffer && past->offset == output->offset));
    bool room = false;
    strides_of(output, to);
    for (size_t b = 0; b < batch; b++)
        room = room || past_of(input, b) + length < output->dim[2];
    if (room && !in_place)
        ORT_TRY(fill_zero(e, output));
    for (size_t b = 0, next; b < batch; b = next) {
        next = next_past(input, b, batch);
        const int64_t before = past_of(input, b);
        int64_t extent[4] = {(int64_t)(next - b), output->dim[1], before, output->dim[3]};
        if (before && !in_place) {
            strides_of(past, from);
            const run_array x = shifted(past, (int64_t)b * from[0]), y = shifted(output, (int64_t)b * to[0]);
            ORT_TRY(copy(e, 4, extent, from, to, &x, &y));
        }
        if (!length)
            continue;
        const run_array x = shifted(&added, (int64_t)b * layout.stride[0]);
        const run_array y = shifted(output, (int64_t)b * to[0] + before * to[2]);
        extent[2] = length;
        if (part == PRESENT_KEY && input[COSINES]) {
            clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
            clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
            desc.x = desc.y = layout;
            desc.x.extent[0] = desc.y.extent[0] = next - b;
            memcpy(desc.y.stride, to, 4 * sizeof *to);
            args.x = binding_of(&x);
            args.y = binding_of(&y);
            args.position = before;
            ORT_TRY(rotate(e, s, input, &desc, &args));
        } else
            ORT_TRY(copy(e, 4, extent, layout.stride, to, &x, &y));
    }
fail:
    return failure;
}

/* The parts of a description that only GroupQueryAttention has. */
static void describe_grouped(const step *s, run_array *const input[], clattn_attention_desc *desc,
                             clattn_attention_args *args)
{
    const size_t batch = input[LENGTHS]->elements;
    desc->alignment = CLATTN_ALIGNMENT_EXPLICIT;
    args->position = past_of(input, 0);
    if (next_past(input, 0, batch) < batch) {
        desc->lengths.positions = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        args->lengths.positions = binding_of(input[LENGTHS]);
        args->position = 1 - input[QUERY]->dim[1];
    }
    desc->window.explicit_left = s->attention.window > 0;
    desc->window.left = s->attention.window > 0 ? s->attention.window - 1 : 0;
}

/* Vectors of size 0 have scores of 0, as vectors of one 0 have, whatever the scale. */
static OrtStatus *score_zero(const engine *e, clattn_attention_desc *desc, clattn_attention_args *args, cl_mem *buffer)
{
    OrtStatus *failure = NULL;
    clattn_layout *layouts[] = {&desc->query, &desc->key};
    run_array zero = {.dtype = desc->query.dtype, .elements = 1};
    ORT_TRY(engine_buffer(e, NULL, array_bytes(&zero), true, buffer));
    zero.buffer = *buffer;
    ORT_TRY(fill_zero(e, &zero));
    for (size_t i = 0; i < 2; i++) {
        memset(layouts[i]->stride, 0, sizeof layouts[i]->stride);
        set(layouts[i], 3, 1, 1);
    }
    args->query = args->key = binding_of(&zero);
    desc->scoring.explicit_scale = 1;
    desc->scoring.scale = 1.0f;
fail:
    return failure;
}

OrtStatus *enqueue_attention(const engine *e, const step *s, size_t part, run_array *const given[],
                             const run_array *const outputs[])
{
    static const attention_view as_it_is = {.rank = 4, .axis = {0, 1, 2, 3}};
    OrtStatus *failure = NULL;
    const run_array *input[STEP_INPUTS], *output = outputs[ATTENDED];
    attention_view view[3];
    run_array query = from_first(&s->attention.view[QUERY], given[QUERY]);
    cl_mem made = NULL;
    if (part != ATTENDED)
        return enqueue_present(e, s, part, given, outputs[part]);
    for (size_t i = 0; i < STEP_INPUTS; i++)
        input[i] = given[i];
    memcpy(view, s->attention.view, sizeof view);
    for (size_t i = KEY; i <= VALUE && outputs[PRESENT_KEY]; i++) {
        input[i] = outputs[i == KEY ? PRESENT_KEY : PRESENT_VALUE];
        view[i] = as_it_is;
    }
    if (input[VALUE]->elements == 0) /* nothing to attend */
        return fill_zero(e, output);
    if (input[COSINES]) {
        ORT_TRY(rotate_query(e, s, given, output, &query, &made));
        view[QUERY] = s->attention.output;
    }
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    desc.query = arrange(&view[QUERY], &query);
    desc.key = arrange(&view[KEY], input[KEY]);
    desc.value = arrange(&view[VALUE], input[VALUE]);
    desc.output = arrange(&s->attention.output, output);
    if (input[MASK])
        desc.mask = row_major(input[MASK]);
    widen(&desc.query, 0, desc.output.extent[0]);
    widen(&desc.key, 0, desc.output.extent[0]);
    widen(&desc.value, 0, desc.output.extent[0]);
    widen(&desc.query, 1, desc.output.extent[1]);
    widen(&desc.key, 1, desc.value.extent[1]);
    widen(&desc.value, 1, desc.key.extent[1]);
    widen(&desc.query, 2, desc.output.extent[2]);
    widen(&desc.key, 2, desc.value.extent[2]);
    desc.causal = s->attention.causal;
    desc.short_mask = s->attention.short_mask;
    desc.scoring.explicit_scale = s->attention.has_scale;
    desc.scoring.scale = s->attention.scale;
    desc.scoring.softcap = s->attention.softcap;
    args.query = binding_of(&query);
    args.key = binding_of(input[KEY]);
    args.value = binding_of(input[VALUE]);
    args.mask = binding_of(input[MASK]);
    args.output = binding_of(output);
    if (desc.query.extent[3] == 0 && desc.key.extent[3] == 0)
        ORT_TRY(score_zero(e, &desc, &args, &made));
    if (input[LENGTHS])
        describe_grouped(s, given, &desc, &args);
    else if (given[PAST_KEY]) { /* queries come behind what the cache had */
        desc.alignment = CLATTN_ALIGNMENT_EXPLICIT;
        args.position = given[PAST_KEY]->dim[2];
    }
    ORT_TRY(judge(e, clattn_attention_run(e->context, e->queue, &desc, &args, 0, NULL, NULL)));
fail:
    if (made)
        e->cl.clReleaseMemObject(made); /* OpenCL keeps it until it has been read */
    return failure;
}
