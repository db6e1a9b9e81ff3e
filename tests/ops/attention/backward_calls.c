/* Attention's backward direction: what is refused, and calls without query rows. */
#include <stdlib.h>
#include <string.h>

#include "support/attention/backward_job.h"
#include "support/attention/backward_mods.h"

#define F64 CLATTN_DTYPE_F64
#define BF CLATTN_DTYPE_BF16

/* ---- refusals ---- */

static void refusals(void **state)
{
    static const attention_case t = {"", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL};
    struct backward_job j;
    (void)state;

    backward_prepare(&j, &t);
    const clattn_attention_desc good = j.desc;
    clattn_attention_desc d;
#define ANSWERS(status, change) \
    d = good; \
    change; \
    operator_answers(&attention_operator, &d, CLATTN_##status)
    ANSWERS(SUCCESS, (void)0);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.direction = 2);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.direction = CLATTN_DIRECTION_FORWARD);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.gradients.output = (clattn_layout){0});
    ANSWERS(ERROR_INVALID_ARGUMENT, d.outputs.lse = (clattn_layout){0});
    ANSWERS(ERROR_INVALID_ARGUMENT, d.gradients.query = d.gradients.key = d.gradients.value = (clattn_layout){0});
    ANSWERS(SUCCESS, d.gradients.query = d.gradients.key = (clattn_layout){0});
    ANSWERS(SUCCESS, d.outputs.partial = 1);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.outputs.partial = 2);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.outputs.entropy = d.outputs.lse);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.gradients.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 5, 7));
    ANSWERS(ERROR_INVALID_LAYOUT, d.gradients.bias = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 5, 7));
    ANSWERS(ERROR_INVALID_LAYOUT, d.gradients.key.extent[2] = 6);
    ANSWERS(ERROR_INVALID_LAYOUT, d.gradients.query.stride[3] = 0);
    ANSWERS(ERROR_UNSUPPORTED, d.gradients.query.dtype = CLATTN_DTYPE_F64);
    ANSWERS(ERROR_UNSUPPORTED, d.gradients.output.dtype = CLATTN_DTYPE_I8);
    ANSWERS(ERROR_UNSUPPORTED, d.cache.kind = CLATTN_CACHE_KIND_RING);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.snippets.score_mod = backward_bent.score_source);
    assert_message_has(device_context(), "snippets.score_mod_grad is missing");
    ANSWERS(ERROR_INVALID_ARGUMENT, d.snippets.score_mod_grad = backward_bent.grad_source);
    ANSWERS(SUCCESS, d.snippets.score_mod = backward_bent.score_source;
            d.snippets.score_mod_grad = backward_bent.grad_source);
#undef ANSWERS

    operator_refuses_plan(&attention_operator, &good, "emulated-mma", CLATTN_ERROR_UNSUPPORTED); /* float32 */
    assert_true(job_plan(&j.job, &attention_operator, &good, "generic", JOB_TAKEN));
    const clattn_attention_args given = j.job.args.attention;
    clattn_attention_args a;
#define REFUSES(status, change) \
    a = given; \
    change; \
    operator_refuses(&attention_operator, j.job.plan, &a, CLATTN_##status, __FILE__, __LINE__, #change)
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.query = (clattn_binding){0});
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.sinks = a.gradients.query);
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.value = a.gradients.key);
    REFUSES(ERROR_BUFFER_ACCESS, a.gradients.key = a.key);
    REFUSES(ERROR_INVALID_ARGUMENT, a.outputs.lse = (clattn_binding){0});
#undef REFUSES
    backward_release(&j);
}

/* A mistake in score_mod_grad is told in its own lines, and no plan is used for another text. */
static void texts(void **state)
{
    static const attention_case t = {"", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mod = &backward_bent};
    static char text[] = GRAD "{ return 1.0f; }";
    char message[256];
    struct backward_job j;
    (void)state;

    backward_prepare(&j, &t);
    j.desc.snippets.score_mod_grad = "\n" GRAD "{\n    return score + no_such_name;\n}\n";
    operator_refuses_plan(&attention_operator, &j.desc, NULL, CLATTN_ERROR_BUILD);
    clattn_context_message(device_context(), message, sizeof message);
    assert_memory_equal(message, "score_mod_grad:4", strlen("score_mod_grad:4"));
    j.desc.snippets.score_mod_grad = text;
    unsigned long long programs[3];
    for (size_t n = 0; n < COUNT_OF(programs); n++) {
        text[strlen(text) - 4] = n == 0 ? '1' : '2'; /* changed in place */
        assert_status(device_context(),
                      clattn_attention_run(device_context(), NULL, &j.desc, &j.job.args.attention, 0, NULL, NULL),
                      CLATTN_SUCCESS);
        const clattn_program_statistics s = device_programs();
        programs[n] = s.built + s.loaded;
    }
    assert_true(programs[1] > programs[0] && programs[2] == programs[1]);
    assert_cl(clFinish(clattn_context_queue(device_context())));
    backward_release(&j);
}

static const attention_case emptied[] = {
    {"", ALL, .dim = {2, 2, 1, 5, 7, 8, 16}, .type = FOUR(BF), .form = {.key = FORM_PADDED}},
    {"", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .sinks = true, .bias = MASK_FLOAT, .bias_rank = 4,
     .bias_extent = {1, 1, 1, 7}, .list = {.keys = LIST(4, 7)}},
    {"", ALL, .dim = {2, 2, 1, 9, 11, 8, 8}, .sinks = true,
     .list = {.query_starts = LIST(0, 4, 9), .key_starts = LIST(0, 5, 11)}},
};

/* Without query rows the gradients of keys and of what is shared are +0, and inputs but lengths may be unbound; a call before does not
 * matter. */
static void nothing_to_attend(const void *unused, const char *solver)
{
    const size_t count = strcmp(solver, "emulated-mma") == 0 ? 1 : COUNT_OF(emptied);
    (void)unused;

    for (size_t n = 0; n < count; n++) {
        attention_case t = emptied[n], empty = t;
        struct backward_job j;
        empty.shorter = true;
        empty.actual.batch = 2;
        empty.actual.keys = t.dim.keys;
        backward_prepare(&j, &t);
        if (!backward_plan(&j, solver)) {
            backward_release(&j);
            return;
        }
        backward_run(&j);
        clattn_plan *const plan = j.job.plan;
        j.job.plan = NULL;
        backward_release(&j);
        backward_prepare(&j, &empty);
        j.job.plan = plan;
        clattn_attention_args *args = &j.job.args.attention;
        args->query = args->key = args->value = args->output = args->outputs.lse = (clattn_binding){0};
        args->scoring.sinks = args->bias = args->gradients.output = (clattn_binding){0};
        backward_run(&j);
        backward_judge(&j);
        backward_release(&j);
    }
}

/* Arrays that are written are looked at without query rows, too. */
static void nothing_to_attend_is_checked(void **state)
{
    struct backward_job j;
    (void)state;

    backward_prepare(&j, &emptied[1]);
    assert_true(job_plan(&j.job, &attention_operator, &j.desc, "generic", JOB_TAKEN));
    const clattn_attention_args given = j.job.args.attention;
    clattn_attention_args a;
#define REFUSES(status, change) \
    a = given; \
    a.explicit_lengths = 1; \
    a.key_length = 7; \
    change; \
    operator_refuses(&attention_operator, j.job.plan, &a, CLATTN_##status, __FILE__, __LINE__, #change)
    REFUSES(ERROR_BUFFER_TOO_SMALL, a.gradients.bias.offset = 1000);
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.bias = (clattn_binding){0});
    REFUSES(ERROR_INVALID_ARGUMENT, a.lengths.key = (clattn_binding){0}; a.batch = 2);
#undef REFUSES
    backward_release(&j);
}

/* ---- some of the keys ---- */

static const attention_case divided[] = {
    {"causal, sinks", ALL, .dim = {2, 2, 1, 9, 21, 8, 8}, AT(EXPLICIT, 8), .causal = true, .sinks = true},
    {"the log-sum-exp's gradient", ALL, .dim = {2, 2, 1, 9, 21, 8, 8}, AT(EXPLICIT, 8), .entropy = true},
    {"dropout, lengths", ALL, .dim = {3, 2, 1, 9, 21, 8, 8}, .causal = true, AT(BOTTOM_RIGHT, 0), .dropout = 0.3F,
     .seed = 4, .list = {.queries = LIST(9, 5, 7), .keys = LIST(16, 21, 9)}},
    {"bfloat16", ALL, .dim = {2, 2, 1, 9, 21, 8, 8}, AT(EXPLICIT, 8), .sinks = true,
     .type = {BF, BF, BF, BF, .scores = CLATTN_DTYPE_F32}},
};

/* Lets the call have `count` keys from `first` on. */
static void take_keys(struct backward_job *j, const clattn_attention_args *whole, size_t first, size_t count)
{
    clattn_attention_args *a = &j->job.args.attention;
    const int64_t rows = (int64_t)first;
    *a = *whole;
    a->key_length = count;
    a->whole.key = first;
    a->whole.key_length = whole->key_length;
    a->key.offset += rows * j->desc.key.stride[2];
    a->value.offset += rows * j->desc.value.stride[2];
    a->gradients.key.offset += rows * j->desc.gradients.key.stride[2];
    a->gradients.value.offset += rows * j->desc.gradients.value.stride[2];
}

/* What two parts of the keys add makes the gradients of all of them, and either has that of the sinks. */
static void parts_of_keys(const void *which, const char *solver)
{
    const attention_case *t = which;
    const size_t first = 12, count = t->dim.batch * t->dim.heads * t->dim.queries * t->dim.d_k;
    struct backward_job j;
    size_t index[4] = {0};
    double *sum = calloc(count, sizeof *sum);

    assert_non_null(sum);
    backward_prepare(&j, t);
    j.desc.outputs.partial = 1;
    j.weights = strcmp(solver, "emulated-mma") == 0 ? BF : CLATTN_DTYPE_NONE;
    if (backward_plan(&j, solver)) {
        clattn_attention_args whole = j.job.args.attention;
        whole.explicit_lengths = 1;
        whole.batch = t->dim.batch;
        whole.query_length = t->dim.queries;
        whole.key_length = t->dim.keys;
        for (int part = 0; part < 2; part++) {
            take_keys(&j, &whole, part ? first : 0, part ? t->dim.keys - first : first);
            backward_run(&j);
            array_download(&j.query);
            for (size_t n = 0; n < count; n++, array_next(4, j.query.layout.extent, index)) {
                sum[n] += array_get(&j.query, index);
            }
        }
        for (size_t n = 0; n < count; n++, array_next(4, j.query.layout.extent, index)) {
            array_set(&j.query, index, sum[n]);
        }
        const test_memory *memory = j.query.memory;
        write_buffer(clattn_context_queue(device_context()), memory->buffer, 0, memory->count * memory->element_size,
                     memory->host);
        backward_judge(&j);
    }
    free(sum);
    backward_release(&j);
}

int main(int argc, char **argv)
{
    static const char *const solvers[] = {"generic", "tile", "emulated-mma"}, *const divisors[] = {"generic", "cpu",
                                                                                                   "tile",
                                                                                                   "emulated-mma"};
    suite_add(refusals, "refusals");
    suite_add(texts, "the texts of score_mod_grad");
    for (size_t i = 0; i < COUNT_OF(solvers); i++)
        suite_add_case(nothing_to_attend, NULL, solvers[i], "nothing to attend, %s", solvers[i]);
    suite_add(nothing_to_attend_is_checked, "nothing to attend is checked");
    for (size_t n = 0; n < COUNT_OF(divided); n++)
        for (size_t i = 0; i < COUNT_OF(divisors); i++)
            if (divided[n].type.query == BF || i < 3)
                suite_add_case(parts_of_keys, &divided[n], divisors[i], "some of the keys, %s: %s", divisors[i],
                               divided[n].rule);
    return suite_run("attention backward, calls", argc, argv);
}
