#include "support/group/draw.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "support/suite.h"

/* Pairs of queries and keys times d_k + d_v, at the most. */
#define WORK 3000000

static const clattn_dtype stored[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};

/* ---- families ---- */

/* The arrays of lengths and positions that a description has. */
enum { QUERY_LIST = 1, KEY_LIST = 2, POSITION_LIST = 4, START_LISTS = 8 };

typedef struct family {
    bool backward, grouped;
    unsigned lists;
    size_t number, count; /* which of how many it is */
    uint64_t salt;        /* of what is drawn for it and those beside it */
    unsigned dealt;       /* features so far */
    random_stream stream; /* its own */
} family;

static family family_of(size_t index)
{
    const size_t block = index / DRAWS_OF_FAMILIES, within = index % DRAWS_OF_FAMILIES;
    family f = {.backward = within % 3 == 2, .salt = 0x6471 + 8 * block};
    f.count = f.backward ? BACKWARD_FAMILIES : FORWARD_FAMILIES;
    f.number = (f.backward ? within / 3 : within / 3 * 2 + within % 3) % f.count;
    f.salt += f.backward;
    f.stream = random_start(f.salt * 4096 + 2048 + f.number);
    return f;
}

/* Deals one of `options` to each family, as often as the others: cards in a drawn order. */
static size_t deal(family *f, size_t options)
{
    size_t card[FORWARD_FAMILIES];
    random_stream stream = random_start(f->salt * 4096 + f->dealt++);
    for (size_t i = 0; i < f->count; i++) {
        const size_t at = (size_t)random_int(&stream, 0, (int)i);
        card[i] = card[at];
        card[at] = i;
    }
    return card[f->number] * options / f->count;
}

static clattn_dtype draw_stored(random_stream *r)
{
    return stored[random_int(r, 0, 2)];
}

static void draw_types(attention_case *t, family *f)
{
    const size_t which = deal(f, 7);
    clattn_dtype type[4];
    for (int i = 0; i < 4; i++)
        type[i] = which < 3 ? CLATTN_DTYPE_F32 : which < 5 ? stored[which - 2] : draw_stored(&f->stream);
    t->type.query = type[0];
    t->type.key = type[1];
    t->type.value = type[2];
    t->type.output = type[3];
    t->type.mask = draw_stored(&f->stream);
    t->type.bias = draw_stored(&f->stream);
}

/* Lengths and positions, and packed sequences, which have no masks and no biases. */
static void draw_lists_of(attention_case *t, family *f)
{
    const size_t which = deal(f, 3);
    if (which == 1)
        f->lists = (unsigned)random_int(&f->stream, 1, 7);
    if (which == 2) {
        f->lists = START_LISTS + (unsigned)random_int(&f->stream, 0, 7);
        t->mask = t->bias = MASK_NONE;
    }
    t->type.integers = deal(f, 2) ? CLATTN_DTYPE_I64 : CLATTN_DTYPE_I32;
}

/* Each subset of the gradients of query, key and value, with all or some of those of what else there is. */
static unsigned draw_gradients(const attention_case *t, family *f)
{
    const bool there[] = {true, true, true, t->mask && t->mask != MASK_BOOL, t->bias, t->additive, t->alibi, t->sinks};
    const unsigned others = deal(f, 2) ? 0x1f : (unsigned)random_int(&f->stream, 0, 0x1f);
    unsigned gradients = (1 + (unsigned)deal(f, 7)) | others << 3;
    for (size_t i = 0; i < COUNT_OF(there); i++)
        if (!there[i])
            gradients &= ~(1U << i);
    return gradients;
}

static void draw_family(group_draw *d, family *f)
{
    static const size_t sizes[7][2] = {{8, 5}, {16, 7}, {5, 12}, {12, 3}, {7, 16}, {24, 9}, {3, 20}};
    static const mask_kind masks[4] = {MASK_NONE, MASK_BOOL, MASK_FLOAT, MASK_NONE};
    attention_case *t = &d->test;
    const size_t size = deal(f, 7);
    t->dim.d_k = sizes[size][0];
    t->dim.d_v = sizes[size][1];
    draw_types(t, f);
    t->mask = masks[deal(f, 4)];
    t->bias = deal(f, 3) ? MASK_NONE : MASK_FINITE;
    t->causal = deal(f, 2);
    t->windowed = deal(f, 2);
    t->alibi = !deal(f, 3);
    t->sinks = !deal(f, 3);
    t->softcap = deal(f, 4) ? 0 : 1;
    t->additive = !deal(f, f->backward ? 6 : 7);
    t->scale = (float)deal(f, 3) - 1;
    t->scaled = t->scale != 0;
    t->dropout = deal(f, 4) ? 0 : random_float(&f->stream, 0.05F, 0.6F);
    f->grouped = deal(f, 2);
    draw_lists_of(t, f);
    d->backward = f->backward;
    if (!d->backward)
        return;
    d->gradients = draw_gradients(t, f);
    t->type.scores = deal(f, 2) ? draw_stored(&f->stream) : CLATTN_DTYPE_NONE;
    t->entropy = deal(f, 2);
}

/* ---- a description ---- */

static size_t pick(random_stream *r, const size_t *from, size_t count)
{
    return from[random_int(r, 0, (int)count - 1)];
}
#define PICK(r, ...) pick(r, (const size_t[]){__VA_ARGS__}, sizeof(const size_t[]){__VA_ARGS__} / sizeof(size_t))

static bool one_in(random_stream *r, int n)
{
    return random_int(r, 1, n) == 1;
}

static void draw_way(group_draw *d, const family *f, random_stream *r)
{
    group_way *way = &d->way;
    const bool no_ring = d->test.dropout > 0 && f->lists & START_LISTS;
    way->ranks = (int)PICK(r, 1, 1, 2, 2, 2, 3, 3, 4, 4, 8);
    way->mode = (clattn_group_mode)(no_ring ? PICK(r, 1, 2) : PICK(r, 0, 0, 1, 2));
    way->order = (clattn_group_order)random_int(r, 0, 1);
    way->forms = random_bits(r) | 1;
}

/* Lengths are the rank's here.  Few queries have kernels of their own, for each number. */
static void draw_extents(group_draw *d, const family *f, random_stream *r)
{
    attention_case *t = &d->test;
    const size_t ranks = (size_t)d->way.ranks, pieces = d->way.order == CLATTN_GROUP_ORDER_ZIGZAG ? 2 : 1;
    const bool divided = d->way.mode != CLATTN_GROUP_MODE_RING, by_four = !divided && t->dropout > 0;
    size_t work;
    do {
        t->dim.batch = (size_t)random_int(r, 1, GROUP_MOST_ITEMS);
        t->dim.kv_heads = divided ? ranks * (size_t)random_int(r, 1, ranks < 4 ? 2 : 1) : (size_t)random_int(r, 1, 3);
        t->dim.heads = t->dim.kv_heads * (size_t)(f->grouped ? random_int(r, 2, 3) : 1);
        t->dim.queries = pieces * (one_in(r, 25) ? PICK(r, 1, 2, 3) : PICK(r, 9, 10, 11, 13, 14, 16, 17, 19, 23));
        t->dim.keys = pieces * (by_four ? PICK(r, 4, 8, 12, 16, 24) : PICK(r, 1, 2, 3, 5, 7, 8, 11, 13, 16, 19, 24));
        work = t->dim.batch * t->dim.heads * t->dim.queries * t->dim.keys * ranks * ranks * (t->dim.d_k + t->dim.d_v);
    } while (work > WORK);
    t->dim.queries *= ranks;
    t->dim.keys *= ranks;
}

/* Dimensions of a mask or bias, of which any may be 1. */
static int draw_mask_extents(const group_draw *d, random_stream *r, size_t extent[4])
{
    const attention_case *t = &d->test;
    const size_t whole[4] = {t->dim.batch, t->dim.heads, t->dim.queries, t->dim.keys};
    const int rank = random_int(r, 1, 4);
    for (int i = 0; i < rank; i++) {
        const int n = i + 4 - rank;
        const bool one = (n == 2 && d->way.mode == CLATTN_GROUP_MODE_HEADS) || one_in(r, n == 3 ? 6 : 3);
        extent[i] = one ? 1 : whole[n];
    }
    return rank;
}

static void draw_masks(group_draw *d, random_stream *r)
{
    attention_case *t = &d->test;
    if (t->mask == MASK_BOOL)
        t->mask = one_in(r, 12) ? MASK_FALSE : MASK_BOOL;
    else if (t->mask)
        t->mask = one_in(r, 12) ? MASK_INF : one_in(r, 3) ? MASK_FINITE : MASK_FLOAT;
    if (t->mask)
        t->mask_rank = draw_mask_extents(d, r, t->mask_extent);
    if (t->bias) {
        t->bias = one_in(r, 4) ? MASK_FLOAT : MASK_FINITE;
        t->bias_rank = draw_mask_extents(d, r, t->bias_extent);
    }
}

static void draw_positions(group_draw *d, const family *f, random_stream *r)
{
    attention_case *t = &d->test;
    const int queries = (int)t->dim.queries, keys = (int)t->dim.keys, far = queries + keys;
    t->alignment = f->lists & POSITION_LIST ? CLATTN_ALIGNMENT_EXPLICIT : (clattn_alignment)random_int(r, 0, 2);
    t->position = random_int(r, -queries, keys);
    if (one_in(r, 6))
        t->position = random_int(r, -far, far);
    else if (one_in(r, 8) && !t->alibi)
        t->position = one_in(r, 2) ? (int64_t)1 << 40 : -((int64_t)1 << 40);
    if (!t->windowed)
        return;
    t->left = one_in(r, 4) ? -1 : one_in(r, 6) ? (int64_t)1 << 40 : random_int(r, 0, one_in(r, 2) ? 3 : keys);
    t->right = one_in(r, 3) && t->left >= 0 ? -1 : random_int(r, 0, one_in(r, 2) ? 3 : keys);
}

/* One number for each item, some of them beyond what there is. */
static const int64_t *draw_list(group_draw *d, int n, random_stream *r, int least, int most)
{
    const int beyond = one_in(r, 4) ? 3 : 0;
    for (size_t i = 0; i < d->test.dim.batch; i++)
        d->lists[n][i] = random_int(r, least - beyond, most + beyond);
    return d->lists[n];
}

/* Where items start.  Unless all rows are owned, some lie before the first item and behind the last one. */
static const int64_t *draw_starts(group_draw *d, int n, random_stream *r, int rows, bool owned)
{
    const size_t items = d->test.dim.batch;
    int64_t *starts = d->lists[n];
    starts[0] = owned ? 0 : random_int(r, 0, rows / 3);
    for (size_t i = 1; i < items; i++)
        starts[i] = random_int(r, (int)starts[i - 1], rows);
    starts[items] = owned ? rows : random_int(r, (int)starts[items - 1], rows);
    return starts;
}

static void draw_lists(group_draw *d, const family *f, random_stream *r)
{
    attention_case *t = &d->test;
    const int queries = (int)t->dim.queries, keys = (int)t->dim.keys;
    const bool owned = d->backward || !one_in(r, 3); /* nothing is promised of the results of other rows */
    if (f->lists & QUERY_LIST)
        t->list.queries = draw_list(d, 0, r, 0, queries);
    if (f->lists & KEY_LIST)
        t->list.keys = draw_list(d, 1, r, 0, keys);
    if (f->lists & POSITION_LIST)
        t->list.positions = draw_list(d, 2, r, -queries, keys);
    if (f->lists & START_LISTS) {
        t->list.query_starts = draw_starts(d, 3, r, queries, true);
        t->list.key_starts = draw_starts(d, 4, r, keys, owned);
    }
}

/* Numbers that are arguments of kernels, and what the arrays hold. */
static void draw_numbers(group_draw *d, random_stream *r)
{
    attention_case *t = &d->test;
    t->scale *= one_in(r, 10) && t->scale < 0 ? 0 : random_float(r, 0.05F, 1.2F);
    t->softcap *= random_float(r, 0.5F, 20);
    t->alibi *= random_int(r, 1, 2);
    t->shared_alibi = t->alibi == 2 && one_in(r, 2);
    t->shared_vector = t->additive && one_in(r, 3);
    t->fill = one_in(r, 12) ? FILL_ZERO_QUERY : FILL_UNIT;
    t->no_lse = !d->backward && one_in(r, 3);
    t->seed = random_bits(r);
    t->dropout_offset = (uint32_t)random_int(r, 0, 5);
}

/* Inputs that are the same along a dimension, by a stride of 0. */
static array_form draw_shared(random_stream *r)
{
    static const array_form forms[] = {FORM_SHARED_FIRST, FORM_SHARED_SECOND, FORM_SHARED_ROWS};
    return one_in(r, 12) ? forms[random_int(r, 0, 2)] : FORM_PLAIN;
}

/* Values that are no numbers.  No row may have scores of -inf alone. */
static void draw_injection(group_draw *d, random_stream *r)
{
    attention_case *t = &d->test;
    static const injection all[] = {INJECT_MASKED, INJECT_KEY_NAN, INJECT_KEY_INF, INJECT_QUERY_NAN, INJECT_SINK_NAN};
    const bool attends_all = !t->causal && !t->windowed && !t->mask && !t->bias && !t->list.keys && !t->list.key_starts;
    if (!one_in(r, 5))
        return;
    t->inject = all[random_int(r, 0, 4)];
    if ((t->inject == INJECT_SINK_NAN && !t->sinks) ||
        (t->inject == INJECT_KEY_INF && (!attends_all || t->dim.keys == 1 || t->form.key == FORM_SHARED_ROWS)))
        t->inject = INJECT_MASKED;
}

/* ---- to be read ---- */

static void add(group_draw *d, const char *format, ...) PRINTF_LIKE(2, 3);
static void add(group_draw *d, const char *format, ...)
{
    const size_t used = strlen(d->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(d->text + used, sizeof d->text - used, format, arguments);
    va_end(arguments);
}

static const char *name_of(clattn_dtype type)
{
    return clattn_dtype_name(type ? type : CLATTN_DTYPE_F32);
}

static void add_mask(group_draw *d, const char *name, mask_kind kind, clattn_dtype type, int rank, const size_t *extent)
{
    static const char *const kinds[] = {[MASK_BOOL] = "bool",
                                        [MASK_FLOAT] = "-inf in",
                                        [MASK_FINITE] = "finite",
                                        [MASK_FALSE] = "all false",
                                        [MASK_INF] = "all -inf in"};
    if (!kind)
        return;
    add(d, ", %s %s", name, kinds[kind]);
    if (kind != MASK_BOOL && kind != MASK_FALSE)
        add(d, " %s", name_of(type));
    for (int i = 0; i < rank; i++)
        add(d, "%c%zu", i ? 'x' : ' ', extent[i]);
}

static void add_list(group_draw *d, const char *name, const int64_t *list, size_t count)
{
    for (size_t i = 0; list && i < count; i++)
        add(d, "%s%lld", i ? "," : name, (long long)list[i]);
}

static void describe(group_draw *d)
{
    static const char *const modes[] = {"ring", "gather", "heads"}, *const orders[] = {"straight", "zigzag"};
    static const char *const alignments[] = {"top left", "bottom right", "at"};
    static const char *const injections[] = {[INJECT_MASKED] = "NaN where masked",
                                             [INJECT_KEY_NAN] = "NaN in a key",
                                             [INJECT_KEY_INF] = "inf in a key",
                                             [INJECT_QUERY_NAN] = "NaN in a query",
                                             [INJECT_SINK_NAN] = "NaN in a sink"};
    static const char *const gradients[JOB_OUTPUTS] = {"q", "k", "v", "mask", "bias", "vector", "slopes", "sinks"};
    const attention_case *t = &d->test;
    const size_t ranks = (size_t)d->way.ranks;
    d->text[0] = '\0';
    add(d, "%s%d %s %s, %zux%zu/%zu %zux%zu d %zu,%zu", d->backward ? "backward, " : "", d->way.ranks,
        modes[d->way.mode], orders[d->way.order], t->dim.batch, t->dim.heads, t->dim.kv_heads, t->dim.queries / ranks,
        t->dim.keys / ranks, t->dim.d_k, t->dim.d_v);
    add(d, " %s %s %s %s, %s", name_of(t->type.query), name_of(t->type.key), name_of(t->type.value),
        name_of(t->type.output), alignments[t->alignment]);
    if (t->alignment == CLATTN_ALIGNMENT_EXPLICIT)
        add(d, " %lld", (long long)t->position);
    add(d, "%s", t->causal ? ", causal" : "");
    if (t->windowed)
        add(d, ", window %lld %lld", (long long)t->left, (long long)t->right);
    add_mask(d, "mask", t->mask, t->type.mask, t->mask_rank, t->mask_extent);
    add_mask(d, "bias", t->bias, t->type.bias, t->bias_rank, t->bias_extent);
    if (t->alibi)
        add(d, ", ALiBi of rank %d%s", t->alibi, t->shared_alibi ? ", of all items" : "");
    if (t->softcap > 0)
        add(d, ", softcap %g", (double)t->softcap);
    if (t->scaled)
        add(d, ", scale %g", (double)t->scale);
    add(d, "%s%s%s%s", t->sinks ? ", sinks" : "", t->additive ? ", additive" : "",
        t->shared_vector ? ", a vector of all heads" : "", t->no_lse ? ", no lse" : "");
    if (d->backward)
        add(d, ", gradients");
    for (int i = 0; i < JOB_OUTPUTS; i++)
        if (d->gradients >> i & 1)
            add(d, " %s", gradients[i]);
    if (d->backward)
        add(d, " of %s%s", t->type.scores ? name_of(t->type.scores) : "their types", t->entropy ? ", by lse" : "");
    add_list(d, ", query lengths ", t->list.queries, t->dim.batch);
    add_list(d, ", key lengths ", t->list.keys, t->dim.batch);
    add_list(d, ", positions ", t->list.positions, t->dim.batch);
    add_list(d, ", query starts ", t->list.query_starts, t->dim.batch + 1);
    add_list(d, ", key starts ", t->list.key_starts, t->dim.batch + 1);
    if (t->dropout > 0)
        add(d, ", dropout %g", (double)t->dropout);
    if (t->form.query || t->form.key || t->form.value)
        add(d, ", stride 0 in %s%s%s", t->form.query ? "q" : "", t->form.key ? "k" : "", t->form.value ? "v" : "");
    if (t->fill)
        add(d, ", queries of 0");
    if (t->inject)
        add(d, ", %s", injections[t->inject]);
}

void group_draw_make(group_draw *d, size_t index)
{
    family f = family_of(index);
    random_stream r = random_start(((uint64_t)0x6472 << 32) + index);
    memset(d, 0, sizeof *d);
    d->test.rule = d->text;
    draw_family(d, &f);
    draw_way(d, &f, &r);
    draw_extents(d, &f, &r);
    draw_masks(d, &r);
    draw_positions(d, &f, &r);
    draw_lists(d, &f, &r);
    draw_numbers(d, &r);
    if (d->backward && d->way.mode == CLATTN_GROUP_MODE_RING) /* all three of which a ring computes */
        d->gradients = (d->gradients & ~7U) | (unsigned)random_int(&r, 1, 7);
    if (!d->backward) {
        d->test.form.query = draw_shared(&r);
        d->test.form.key = draw_shared(&r);
        d->test.form.value = draw_shared(&r);
        draw_injection(d, &r);
    }
    describe(d);
}
