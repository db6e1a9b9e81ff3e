/* Attention problems: from a table row to arrays. */
#include "support/attention/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct filler {
    const attention_case *test;
    random_stream stream;
    int which;
    clattn_dtype dtype;
} filler;

static double fill_operand(void *context, const size_t *index)
{
    filler *f = context;
    double unit = random_float(&f->stream, -1, 1);

    if (f->dtype == CLATTN_DTYPE_I8 || f->dtype == CLATTN_DTYPE_I4) {
        return f->dtype == CLATTN_DTYPE_I8 ? random_int(&f->stream, -128, 127) : random_int(&f->stream, -8, 7);
    }
    unit *= f->dtype == CLATTN_DTYPE_F64 ? 1 - 0x1p-40 : 1; /* digits that float does not have */
    if (f->which == VALUE || f->test->fill == FILL_UNIT) {
        return unit;
    }
    if (f->test->fill == FILL_LARGE) {
        return 60000 * unit;
    }
    if (f->test->fill == FILL_ZERO_QUERY) {
        return f->which == QUERY ? 0 : unit;
    }
    if (f->test->fill == FILL_WILD) {
        return random_int(&f->stream, -35, 35);
    }
    /* FILL_HUGE: 100 * 100 from the first dimension and small integers from the others. */
    double sign = f->which == QUERY && index[2] % 2 ? -1 : 1;
    return index[3] == 0 ? sign * 100 : random_int(&f->stream, -1, 1);
}

static void fill_operands(test_job *job, const attention_case *test, uint64_t salt)
{
    for (int which = QUERY; which <= VALUE; which++) {
        filler f = {test, random_start(salt * 8 + (uint64_t)which), which, job->input[which].layout.dtype};

        array_fill(&job->input[which], fill_operand, &f);
        array_upload(&job->input[which]);
    }
}

static test_array projected_part(const attention_case *test, test_memory *memory, size_t first_head, size_t heads)
{
    size_t width = test->dim.heads + 2 * test->dim.kv_heads;
    int64_t row = (int64_t)(width * test->dim.d_k);
    clattn_layout layout = {.dtype = CLATTN_DTYPE_F32,
                            .rank = 4,
                            .extent = {test->dim.batch, heads, test->dim.queries, test->dim.d_k},
                            .stride = {row * (int64_t)test->dim.queries, (int64_t)test->dim.d_k, row, 1}};
    return array_view(memory, first_head * test->dim.d_k, layout);
}

/* Batch and rows of key, value and their scales. */
static void key_extents(const attention_case *t, size_t *batch, size_t *rows)
{
    bool paged = t->cache == CLATTN_CACHE_KIND_PAGED;

    *batch = paged ? t->pages : t->list.key_starts ? 1 : t->dim.batch;
    *rows = paged ? t->page_size : t->dim.keys;
}

static void make_operands(test_job *job, const attention_case *t)
{
    size_t batch, rows, heads = t->dim.heads, groups = t->dim.kv_heads;

    key_extents(t, &batch, &rows);
    if (t->packed) {
        size_t width = (heads + 2 * groups) * t->dim.d_k;
        test_memory *memory =
            job_keep(job, memory_create(ROLE_INPUT, CLATTN_DTYPE_F32, batch * t->dim.queries * width));

        job->input[QUERY] = projected_part(t, memory, 0, heads);
        job->input[KEY] = projected_part(t, memory, heads, groups);
        job->input[VALUE] = projected_part(t, memory, heads + groups, groups);
        return;
    }
    const size_t query[4] = {t->list.query_starts ? 1 : t->dim.batch, heads, t->dim.queries, t->dim.d_k};
    const size_t key[4] = {batch, groups, rows, t->dim.d_k}, value[4] = {batch, groups, rows, t->dim.d_v};

    job->input[QUERY] = job_array(job, ROLE_INPUT, t->type.query, 4, query, t->form.query);
    job->input[KEY] = job_array(job, ROLE_INPUT, t->type.key, 4, key, t->form.key);
    job->input[VALUE] = job_array(job, ROLE_INPUT, t->type.value, 4, value, t->form.value);
}

/* Scales that bring integers of either size to about [−1, 1]. */
static void make_scales(test_job *job, const attention_case *t, uint64_t salt)
{
    const struct {
        size_t groups;
        clattn_dtype type, of;
        int which;
    } table[] = {{t->key_groups, t->type.key_scale, t->type.key, KEY_SCALE},
                 {t->value_groups, t->type.value_scale, t->type.value, VALUE_SCALE}};
    size_t extent[4] = {0, t->dim.kv_heads, 0, 0};

    key_extents(t, &extent[0], &extent[2]);
    for (size_t n = 0; n < COUNT_OF(table); n++) {
        float most = table[n].of == CLATTN_DTYPE_I8 ? 1 / 64.f : 1 / 4.f;

        extent[3] = table[n].groups;
        if (extent[3]) {
            test_array *made = &job->input[table[n].which];
            *made = job_array(job, ROLE_INPUT, table[n].type, 4, extent, t->scale_form);
            job_fill(made, salt * 32 + (uint64_t)table[n].which, most / 8, most, false);
        }
    }
}

static void make_addends(test_job *job, const attention_case *t, uint64_t salt)
{
    size_t batch, queries, keys, heads = t->dim.heads, d_k = t->dim.d_k;
    const size_t slopes[2] = {t->shared_alibi ? 1 : t->dim.batch, heads};
    const size_t vector[2] = {t->shared_vector ? 1 : heads, d_k};
    float spread = 2 / sqrtf((float)d_k);

    attention_lengths(t, &batch, &queries, &keys);
    const size_t whole[4] = {t->dim.batch, heads, t->longest ? t->longest : t->dim.queries, t->dim.keys};
    job->input[MASK] = job_mask(job, t->mask, t->type.mask, t->mask_rank ? t->mask_rank : 4,
                                t->mask_rank ? t->mask_extent : whole, t->form.mask, salt * 8 + MASK);
    job->input[BIAS] = job_mask(job, t->bias, t->type.bias, t->bias_rank ? t->bias_rank : 4,
                                t->bias_rank ? t->bias_extent : whole, FORM_PADDED, salt * 32 + BIAS);
    if (t->alibi) {
        job->input[ALIBI] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, t->alibi, slopes + 2 - t->alibi, FORM_SPREAD);
        job_fill(&job->input[ALIBI], salt * 32 + ALIBI, 0.02f, 0.5f, false);
    }
    if (t->sinks) {
        job->input[SINKS] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, &heads, FORM_SPREAD);
        job_fill(&job->input[SINKS], salt * 32 + SINKS, -2, 3, false);
    }
    if (t->additive) {
        job->input[VECTOR] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, vector, FORM_SPREAD);
        job_fill(&job->input[VECTOR], salt * 32 + VECTOR, -spread, spread, false);
    }
}

/* Every page once before any comes again, neighbours apart. */
static void make_block_table(test_job *job, const attention_case *t, clattn_dtype dtype)
{
    size_t blocks = t->dim.keys / t->page_size, count = t->dim.batch * blocks, step = 5;
    int64_t *table = malloc(count * sizeof *table + 1);

    assert_non_null(table);
    while (t->pages % step == 0) {
        step += 2;
    }
    for (size_t n = 0; n < count; n++) {
        table[n] = t->table ? t->table[n] : (int64_t)((n * step + 1) % t->pages);
    }
    test_array flat = job_integers(job, dtype, count, table);
    clattn_layout layout = {.dtype = dtype,
                            .rank = 2,
                            .extent = {t->dim.batch, blocks},
                            .stride = {(int64_t)blocks * flat.layout.stride[0], flat.layout.stride[0]}};
    flat.layout = layout;
    job->input[BLOCK_TABLE] = flat;
    free(table);
}

static void make_lists(test_job *job, const attention_case *t)
{
    const struct {
        const int64_t *values;
        int which;
        size_t more;
    } lists[] = {{t->list.queries, QUERY_LENGTHS, 0},
                 {t->list.keys, KEY_LENGTHS, 0},
                 {t->list.positions, POSITIONS, 0},
                 {t->list.query_starts, QUERY_STARTS, 1},
                 {t->list.key_starts, KEY_STARTS, 1}};
    clattn_dtype dtype = t->type.integers ? t->type.integers : CLATTN_DTYPE_I32;

    for (size_t n = 0; n < COUNT_OF(lists); n++) {
        if (lists[n].values) {
            job->input[lists[n].which] = job_integers(job, dtype, t->dim.batch + lists[n].more, lists[n].values);
        }
    }
    if (t->cache == CLATTN_CACHE_KIND_PAGED) {
        make_block_table(job, t, dtype);
    }
}

static void make_user(test_job *job, const attention_mod *mod, uint64_t salt)
{
    for (int n = 0; mod && n < CLATTN_USER_BUFFERS; n++) {
        bool is_signed = mod->user[n] != CLATTN_DTYPE_U8 && mod->user[n] != CLATTN_DTYPE_BOOL;

        if (mod->user[n]) {
            job->input[USER + n] = job_array(job, ROLE_INPUT, mod->user[n], 1, &mod->elements[n], FORM_PLAIN);
            job_fill(&job->input[USER + n], salt * 32 + USER + (uint64_t)n, is_signed ? -3 : 0, 3, true);
        }
    }
}

/* Which rows must be written: those of every item. */
static void own_rows(const test_job *job, test_array *array, const attention_case *t)
{
    size_t batch, queries, keys, index[4], none[4] = {0};

    attention_lengths(t, &batch, &queries, &keys);
    array_own(array, none);
    for (size_t b = 0; b < batch; b++) {
        attention_item item = attention_item_of(t, b);
        for (size_t h = 0; h < t->dim.heads; h++) {
            for (size_t i = 0; i < item.rows; i++) {
                assert_true(attention_row_index(job, t, false, b, h, i, index));
                for (index[3] = 0; index[3] < (array->layout.rank == 4 ? t->dim.d_v : 1); index[3]++) {
                    array_own_element(array, index);
                }
            }
        }
    }
}

static void make_outputs(test_job *job, const attention_case *t)
{
    const size_t rows[4] = {t->list.query_starts ? 1 : t->dim.batch, t->dim.heads, t->dim.queries, t->dim.d_v};
    size_t scores[4] = {t->dim.batch, t->dim.heads, t->dim.queries, t->dim.keys};

    job->output[OUTPUT] = job_array(job, ROLE_OUTPUT, t->type.output, 4, rows, t->form.output);
    own_rows(job, &job->output[OUTPUT], t);
    if (!t->no_lse) {
        job->output[LSE] = job_array(job, t->scores == SCORES_OF(PROBABILITIES) ? ROLE_READABLE_OUTPUT : ROLE_OUTPUT,
                                     CLATTN_DTYPE_F32, 3, rows, t->form.output);
        own_rows(job, &job->output[LSE], t);
    }
    if (t->entropy) {
        job->output[ENTROPY] = job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 3, rows, FORM_PADDED);
        own_rows(job, &job->output[ENTROPY], t);
    }
    if (t->scores) {
        job->output[SCORES] = job_array(job, ROLE_OUTPUT, t->type.scores, 4, scores, FORM_PADDED);
        attention_lengths(t, &scores[0], &scores[2], &scores[3]);
        array_own(&job->output[SCORES], scores);
    }
}

void attention_make_arrays(test_job *job, const attention_case *test, uint64_t salt)
{
    make_operands(job, test);
    fill_operands(job, test, salt);
    make_scales(job, test, salt);
    make_addends(job, test, salt);
    make_lists(job, test);
    make_user(job, test->mod, salt);
    make_outputs(job, test);
}
