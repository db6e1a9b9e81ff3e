/* Ranks that do not agree, or are asked for what they cannot do; and groups of the application's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn/version.h"
#include "support/attention/small.h"
#include "support/core/threads.h"
#include "support/group/parts.h"
#include "support/suite.h"

/* ---- ranks that disagree ---- */

typedef struct maker {
    clattn_group group;
    clattn_group_attention_desc desc;
    clattn_status status;
    char message[512];
} maker;

static int make_share(void *user)
{
    maker *m = user;
    clattn_group_attention *attention = NULL;
    m->status = clattn_group_attention_create(device_context(), &m->group, &m->desc, &attention);
    if (m->status != CLATTN_SUCCESS)
        clattn_context_message(device_context(), m->message, sizeof m->message);
    clattn_group_attention_release(&attention);
    return 0;
}

static clattn_attention_desc small_desc(void)
{
    clattn_attention_desc d = CLATTN_ATTENTION_DESC_INIT;
    d.query = d.key = d.value = d.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 8, 4);
    return d;
}

static clattn_layout small_lse(void)
{
    return clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){1, 2, 8});
}

static void make_shares(maker ranks[2])
{
    clattn_group groups[2];
    thrd_t threads[2];
    clattn_group_local *local = group_local_make(2, 5000, groups);
    (void)device_context();
    for (int i = 0; i < 2; i++) {
        ranks[i].group = groups[i];
        assert_int_equal(thrd_create(&threads[i], make_share, &ranks[i]), thrd_success);
    }
    for (int i = 0; i < 2; i++)
        thrd_join(threads[i], NULL);
    clattn_group_local_release(&local);
}

static void what_ranks_disagree_about_is_named(void **state)
{
    clattn_attention_desc local[2] = {small_desc(), small_desc()};
    maker ranks[2] = {{.desc = CLATTN_GROUP_ATTENTION_DESC_INIT}, {.desc = CLATTN_GROUP_ATTENTION_DESC_INIT}};
    (void)state;
    ranks[0].desc.attention = &local[0];
    ranks[1].desc.attention = &local[1];
    ranks[1].desc.mode = CLATTN_GROUP_MODE_HEADS;
    make_shares(ranks);
    assert_int_equal(ranks[0].status, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(ranks[0].message, "rank 0 has mode=ring, and rank 1 has mode=heads");
    assert_string_equal(ranks[1].message, "rank 1 has mode=heads, and rank 0 has mode=ring");
    ranks[1].desc.mode = CLATTN_GROUP_MODE_RING;
    local[1].query = local[1].output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 6, 4);
    make_shares(ranks);
    assert_string_equal(ranks[0].message, "rank 0 has query=float32 1x2x8x4, and rank 1 has query=float32 1x2x6x4");
    local[1] = small_desc();
    local[1].causal = 1;
    make_shares(ranks);
    assert_string_equal(ranks[1].message, "rank 1 has causal=1, and rank 0 has causal=0");
    local[1] = small_desc();
    local[1].window.explicit_left = 1;
    local[1].window.left = 3;
    make_shares(ranks);
    assert_string_equal(ranks[0].message, "rank 0 has no more, and rank 1 has left=3");
    /* Gradients decide what travels. */
    for (int i = 0; i < 2; i++) {
        local[i] = small_desc();
        local[i].direction = CLATTN_DIRECTION_BACKWARD;
        local[i].outputs.lse = small_lse();
        local[i].gradients.output = local[i].query;
        *(i ? &local[i].gradients.key : &local[i].gradients.value) = local[i].key;
    }
    make_shares(ranks);
    assert_string_equal(ranks[0].message,
                        "rank 0 has gradients.key=none, and rank 1 has gradients.key=float32 1x2x8x4");
    local[0] = small_desc();
    /* One refuses its own: the other one says who has no share. */
    local[1] = small_desc();
    local[1].outputs.entropy = small_lse();
    make_shares(ranks);
    assert_int_equal(ranks[1].status, CLATTN_ERROR_UNSUPPORTED);
    assert_string_equal(ranks[1].message, "group attention: a group's attention has no entropy and no scores");
    assert_int_equal(ranks[0].status, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(ranks[0].message, "which refuses: a group's attention has no entropy and no scores"));
}

/* ---- groups of the application's own ---- */

/* A rank's, whose functions do as they are told; other ranks send what it sends. */
struct own_group {
    bool no_request, fails;
    bool of_another_version; /* the other ranks say that they are */
    int exchanges, waits;
    int wait_fails; /* the first wait that fails, as all after it do; 0: none */
};

static clattn_status own_exchange(void *user, const clattn_group_exchange *exchange, void **request,
                                  char message[CLATTN_GROUP_MESSAGE])
{
    struct own_group *own = user;
    own->exchanges++;
    if (own->fails) {
        memset(message, 'x', CLATTN_GROUP_MESSAGE);
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    memcpy(exchange->receive, exchange->send, exchange->send_bytes);
    if (own->of_another_version && exchange->send_bytes > 8 && !memcmp(exchange->send, "version=", 8))
        ((char *)exchange->receive)[8] = '9';
    *request = own->no_request ? NULL : own;
    return CLATTN_SUCCESS;
}

static clattn_status own_wait(void *user, void *request, char message[CLATTN_GROUP_MESSAGE])
{
    struct own_group *own = user;
    assert_ptr_equal(request, own);
    own->waits++;
    if (!own->wait_fails || own->waits < own->wait_fails)
        return CLATTN_SUCCESS;
    snprintf(message, CLATTN_GROUP_MESSAGE, "wait %d", own->waits);
    return CLATTN_ERROR_GROUP;
}

static maker make_own(struct own_group *own, int ranks, const clattn_attention_desc *desc)
{
    maker m = {.desc = CLATTN_GROUP_ATTENTION_DESC_INIT};
    clattn_group_init(&m.group);
    m.group.ranks = ranks;
    m.group.user = own;
    m.group.exchange = own_exchange;
    m.group.wait = own_wait;
    m.desc.attention = desc;
    make_share(&m);
    return m;
}

static void own_groups_serve_and_fail(void **state)
{
    const clattn_attention_desc desc = small_desc();
    struct own_group good = {0}, silent = {.no_request = true}, bad = {.fails = true}, late = {.wait_fails = 3};
    (void)state;
    assert_int_equal(make_own(&good, 1, &desc).status, CLATTN_SUCCESS);
    assert_int_equal(good.exchanges, 1);
    assert_int_equal(good.waits, 1);
    maker m = make_own(&silent, 1, &desc);
    assert_int_equal(m.status, CLATTN_ERROR_GROUP);
    assert_string_equal(m.message, "rank 0: the group's exchange gave no request");
    assert_int_equal(silent.exchanges, 1);
    m = make_own(&bad, 1, &desc);
    assert_int_equal(m.status, CLATTN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(strlen(m.message), strlen("rank 0: ") + CLATTN_GROUP_MESSAGE - 1);
    assert_int_equal(bad.exchanges, 1);
    m = make_own(&late, 4, &desc); /* one exchange to compare descriptions, three to tell all ranks of a share */
    assert_int_equal(m.status, CLATTN_ERROR_GROUP);
    assert_string_equal(m.message, "rank 0: wait 3");
    assert_int_equal(late.exchanges, 4);
    assert_int_equal(late.waits, 4);
}

static void another_version_is_named(void **state)
{
    const clattn_attention_desc desc = small_desc();
    struct own_group other = {.of_another_version = true};
    char expected[128];
    (void)state;
    const maker m = make_own(&other, 2, &desc);
    snprintf(expected, sizeof expected, "rank 0 has version=%s, and rank 1 has version=9%s", clattn_version_string(),
             clattn_version_string() + 1);
    assert_int_equal(m.status, CLATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(m.message, expected);
}

/* ---- descriptions and arguments ---- */

static void refuses(clattn_group_attention_desc desc, clattn_attention_desc own, clattn_status expected,
                    const char *text)
{
    clattn_group groups[1];
    maker m = {.desc = desc};
    clattn_group_local *local = group_local_make(1, 1000, groups);
    m.desc.attention = &own;
    m.group = groups[0];
    make_share(&m);
    assert_int_equal(m.status, expected);
    if (text && !strstr(m.message, text))
        fail_msg("\"%s\" lacks \"%s\"", m.message, text);
    clattn_group_local_release(&local);
}

#define REFUSES(STATUS, TEXT, CHANGE) \
    do { \
        clattn_group_attention_desc g = CLATTN_GROUP_ATTENTION_DESC_INIT; \
        clattn_attention_desc d = small_desc(); \
        CHANGE; \
        refuses(g, d, CLATTN_ERROR_##STATUS, TEXT); \
    } while (0)

static void wrong_descriptions_are_refused(void **state)
{
    (void)state;
    REFUSES(INVALID_STRUCT, "ever had", g.size = 1);
    REFUSES(INVALID_STRUCT, "ever had", d.size = 1);
    REFUSES(INVALID_ARGUMENT, "unknown mode", g.mode = (clattn_group_mode)3);
    REFUSES(INVALID_ARGUMENT, "unknown order", g.order = (clattn_group_order)-1);
    REFUSES(INVALID_ARGUMENT, "unknown alignment", d.alignment = (clattn_alignment)9);
    REFUSES(INVALID_LAYOUT, "query: the layout is missing", memset(&d.query, 0, sizeof d.query));
    REFUSES(INVALID_LAYOUT, "the extents disagree", d.key.extent[3] = 3);
    REFUSES(INVALID_LAYOUT, "an extent is 0", d.query.extent[2] = d.output.extent[2] = 0);
    REFUSES(OVERFLOW, "the arrays of all ranks overflow",
            d.query = d.key = d.value = d.output =
                clattn_layout_bhsd(CLATTN_DTYPE_F32, (size_t)1 << 28, 1, (size_t)1 << 30, 1));
    REFUSES(INVALID_LAYOUT, "even in zigzag order",
            (g.order = CLATTN_GROUP_ORDER_ZIGZAG, d.query.extent[2] = d.output.extent[2] = 7));
    REFUSES(INVALID_LAYOUT, "mask and bias are",
            d.mask = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 2, (const size_t[2]){8, 5}));
    REFUSES(INVALID_ARGUMENT, "gradients are for", d.gradients.query = d.query);
    REFUSES(INVALID_LAYOUT, "gradients.output: the layout is missing", d.direction = CLATTN_DIRECTION_BACKWARD);
    REFUSES(INVALID_LAYOUT, "reads outputs.lse",
            (d.direction = CLATTN_DIRECTION_BACKWARD, d.gradients.output = d.gradients.key = d.query));
    REFUSES(INVALID_ARGUMENT, "no gradient is asked for",
            (d.direction = CLATTN_DIRECTION_BACKWARD, d.gradients.output = d.query, d.outputs.lse = small_lse()));
    REFUSES(INVALID_LAYOUT, "the extents of their arrays",
            (d.direction = CLATTN_DIRECTION_BACKWARD, d.gradients.output = d.gradients.key = d.query,
             d.outputs.lse = small_lse(), d.gradients.key.extent[3] = 3));
    REFUSES(INVALID_LAYOUT, "the extents of their arrays",
            (d.direction = CLATTN_DIRECTION_BACKWARD, d.gradients.output = d.gradients.key = d.query,
             d.outputs.lse = small_lse(), d.gradients.sinks = small_lse(), d.gradients.sinks.rank = 1));
    REFUSES(INVALID_LAYOUT, "gradients are float32",
            (d.direction = CLATTN_DIRECTION_BACKWARD, d.gradients.output = d.query, d.outputs.lse = small_lse(),
             d.bias = d.gradients.bias = clattn_layout_contiguous(CLATTN_DTYPE_F16, 2, (const size_t[2]){8, 8})));
    REFUSES(INVALID_ARGUMENT, "a boolean mask has no derivative",
            (d.direction = CLATTN_DIRECTION_BACKWARD, d.gradients.output = d.query, d.outputs.lse = small_lse(),
             d.mask = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 2, (const size_t[2]){8, 8}),
             d.gradients.mask = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){8, 8})));
    REFUSES(INVALID_LAYOUT, "mask and bias have at most 4 dimensions",
            d.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (const size_t[5]){1, 1, 1, 8, 8}));
    REFUSES(INVALID_ARGUMENT, "short_mask", d.short_mask = 77);
    REFUSES(INVALID_ARGUMENT, "outputs.partial", d.outputs.partial = 1);
    REFUSES(INVALID_LAYOUT, "outputs.lse is", (d.outputs.lse = small_lse(), d.outputs.lse.extent[1] = 1));
    REFUSES(INVALID_LAYOUT, "scoring.sinks is",
            d.scoring.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[1]){9}));
    REFUSES(INVALID_LAYOUT, "scoring.alibi is",
            d.scoring.alibi = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[1]){3}));
    REFUSES(INVALID_LAYOUT, "scoring.vector is",
            (d.scoring.kind = CLATTN_SCORE_ADDITIVE,
             d.scoring.vector = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){3, 4})));
    REFUSES(UNSUPPORTED, "no snippets", d.snippets.mask_mod = "int mask_mod;");
    REFUSES(UNSUPPORTED, "packs queries and keys, or neither",
            d.lengths.key_starts = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){2}));
    REFUSES(UNSUPPORTED, "no mask and no bias",
            (d.lengths.query_starts = d.lengths.key_starts =
                 clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){2}),
             d.mask = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 2, (const size_t[2]){8, 8})));
    REFUSES(INVALID_LAYOUT, "lengths.key_starts are (items + 1)",
            (d.lengths.query_starts = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){2}),
             d.lengths.key_starts = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){3})));
    REFUSES(INVALID_LAYOUT, "lengths.positions are (batch)",
            d.lengths.key = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){2}));
    REFUSES(INVALID_LAYOUT, "lengths.positions are (batch)",
            d.lengths.query = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[1]){1}));
    REFUSES(UNSUPPORTED, "4 divides", (d.dropout.probability = 0.5F, d.key.extent[2] = d.value.extent[2] = 6));
    REFUSES(
        UNSUPPORTED, "4 divides",
        (g.order = CLATTN_GROUP_ORDER_ZIGZAG, d.dropout.probability = 0.5F, d.key.extent[2] = d.value.extent[2] = 12));
    REFUSES(UNSUPPORTED, "no cache", d.cache.kind = CLATTN_CACHE_KIND_RING);
    REFUSES(UNSUPPORTED, "no entropy", d.outputs.entropy = small_lse());
    REFUSES(UNSUPPORTED, "float32, float16 or bfloat16",
            d.query.dtype = d.key.dtype = d.value.dtype = d.output.dtype = CLATTN_DTYPE_F64);
    REFUSES(UNSUPPORTED, "the same for all queries",
            (g.mode = CLATTN_GROUP_MODE_HEADS,
             d.mask = clattn_layout_contiguous(CLATTN_DTYPE_BOOL, 2, (const size_t[2]){8, 8})));
}

static void wrong_groups_and_arguments_are_refused(void **state)
{
    clattn_group groups[1], wrong;
    clattn_attention_desc own;
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_group_attention *attention = NULL;
    clattn_context *context = device_context();
    struct small_attention problem;
    (void)state;
    small_attention_open(&problem, clattn_context_opencl_context(context));
    own = problem.desc;
    desc.attention = &own;
    clattn_group_local *local = group_local_make(1, 1000, groups);
    wrong = groups[0];
    wrong.rank = 1;
    assert_int_equal(clattn_group_attention_create(context, &wrong, &desc, &attention), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "rank 1 of 1");
    wrong = groups[0];
    wrong.wait = NULL;
    assert_int_equal(clattn_group_attention_create(context, &wrong, &desc, &attention), CLATTN_ERROR_INVALID_ARGUMENT);
    wrong.size = 3;
    assert_int_equal(clattn_group_attention_create(context, &wrong, &desc, &attention), CLATTN_ERROR_INVALID_STRUCT);
    assert_int_equal(clattn_group_attention_create(context, NULL, &desc, &attention), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_attention_create(context, &groups[0], &desc, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_group_attention_create(NULL, &groups[0], &desc, &attention), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_group_attention_create(context, &groups[0], &desc, &attention), CLATTN_SUCCESS);
    clattn_attention_args args = problem.args;
    args.explicit_lengths = 1;
    assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "takes no lengths");
    for (int field = 0; field < 2; field++) {
        args = problem.args;
        *(field ? &args.whole.heads : &args.whole.batch) = 4;
        assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL),
                         CLATTN_ERROR_INVALID_ARGUMENT);
        assert_message_has(context, "whole");
    }
    args = problem.args;
    args.query = (clattn_binding){0};
    assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "query");
    args = problem.args;
    args.position = INT64_MAX;
    assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "at most 2^62");
    assert_int_equal(clattn_group_attention_run(NULL, NULL, &problem.args, 0, NULL, NULL),
                     CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_context *other = new_context();
    assert_int_equal(clattn_group_attention_run(attention, clattn_context_queue(other), &problem.args, 0, NULL, NULL),
                     CLATTN_ERROR_WRONG_CONTEXT);
    release_context(&other);
    /* It is whole after all of that. */
    assert_status(context, clattn_group_attention_run(attention, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(context));
    /* A call on another queue follows the one before, also if one was refused in between. */
    cl_command_queue queue = new_queue(context, false);
    for (int i = 0; i < 20; i++) {
        assert_status(context,
                      clattn_group_attention_run(attention, i % 2 ? queue : NULL, &problem.args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
        assert_int_equal(clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL),
                         CLATTN_ERROR_INVALID_ARGUMENT);
    }
    small_attention_check(&problem, queue);
    clReleaseCommandQueue(queue);
    clattn_group_attention_release(&attention);
    clattn_group_attention_release(&attention);
    clattn_group_attention_release(NULL);
    clattn_group_local_release(&local);
    small_attention_release(&problem);
}

int main(int argc, char **argv)
{
    suite_add(own_groups_serve_and_fail, "group: an application's own, and how it fails");
    suite_add(another_version_is_named, "group attention: a rank of another version is named");
    suite_add(what_ranks_disagree_about_is_named, "group attention: what ranks disagree about is named");
    suite_add(wrong_descriptions_are_refused, "group attention: wrong descriptions are refused");
    suite_add(wrong_groups_and_arguments_are_refused, "group attention: wrong groups and arguments are refused");
    return suite_run("group_refusals", argc, argv);
}
