/* Embeddings of ids, with positions by a table and by sinusoids and with segments, of all types, strides, offsets and
 * lengths at enqueue; random ones too (CLATTN_TEST_SEED draws others).
 *
 * Holds: what clattn/embedding.h says of each element, that an id, position or segment which is in no table makes its
 * row NaN and no other, with tables surrounded by NaN; guard bands; what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/verdict.h"

typedef struct embedding_case {
    const char *rule;
    unsigned levels;
    size_t batch, length, size;
    clattn_positions positions;
    bool offsets, segments, shared_segments;
    bool scaled;  /* scale is 22.6 */
    bool no_rows; /* the table has no rows */
    bool wrong;   /* one id in five is in no table, and so are positions and segments */
    int64_t position;
    array_form ids_form, table_form, y_form;
    clattn_dtype table_type, position_type, segment_type, y_type; /* 0: float32 */
    bool shorter;
    size_t actual_batch, actual_length;
    int first, all; /* the table has the rows from `first` on, of one of `all`; 0: it is whole */
} embedding_case;

#define ROWS 23          /* the table has no rows */
#define POSITION_ROWS 61 /* and of that of positions */
#define SEGMENT_ROWS 3
#define SCALE 22.6f
#define TABLE .positions = CLATTN_POSITIONS_TABLE
#define SINUSOIDS .positions = CLATTN_POSITIONS_SINUSOIDS

static const embedding_case cases[] = {
    {"rows alone", ALL, .batch = 2, .length = 5, .size = 19},
    {"rows alone", BIG, .batch = 3, .length = 131, .size = 512},
    {"one element", ALL, .batch = 1, .length = 1, .size = 1},
    {"a vector - 1", ALL, .batch = 1, .length = 3, .size = 15, .scaled = true},
    {"a vector + 1", ALL, .batch = 1, .length = 3, .size = 17, .segments = true},
    {"positions", ALL, .batch = 2, .length = 7, .size = 35, TABLE, .scaled = true},
    {"positions, a token", ALL, .batch = 1, .length = 1, .size = 64, TABLE, .position = 41},
    {"positions and segments", BIG, .batch = 2, .length = 31, .size = 384, TABLE, .segments = true},
    {"segments shared by all items", ALL, .batch = 3, .length = 5, .size = 20, .segments = true,
     .shared_segments = true},
    {"offsets", ALL, .batch = 3, .length = 5, .size = 20, TABLE, .offsets = true, .position = 2},
    {"sinusoids", ALL, .batch = 2, .length = 7, .size = 38, SINUSOIDS, .scaled = true},
    {"sinusoids", BIG, .batch = 1, .length = 1031, .size = 512, SINUSOIDS, .scaled = true},
    {"sinusoids, two elements", ALL, .batch = 1, .length = 5, .size = 2, SINUSOIDS},
    {"sinusoids, far", ALL, .batch = 2, .length = 5, .size = 64, SINUSOIDS, .position = 1000003},
    {"sinusoids, furthest", BIG, .batch = 2, .length = 5, .size = 130, SINUSOIDS, .position = 2147483640},
    {"sinusoids, backwards", BIG, .batch = 2, .length = 5, .size = 64, SINUSOIDS, .position = -77, .offsets = true},
    {"everything", BIG, .batch = 3, .length = 29, .size = 131, TABLE, .segments = true, .offsets = true, .scaled = true,
     .wrong = true},
    {"wrong ids", ALL, .batch = 2, .length = 9, .size = 19, .wrong = true},
    {"wrong positions and segments", ALL, .batch = 2, .length = 9, .size = 37, TABLE, .segments = true, .offsets = true,
     .position = -3, .wrong = true},
    {"columns apart", ALL, .batch = 2, .length = 5, .size = 19, TABLE, .table_form = FORM_SPREAD,
     .y_form = FORM_SPREAD},
    {"columns backwards", ALL, .batch = 2, .length = 5, .size = 34, SINUSOIDS, .table_form = FORM_MIRRORED,
     .y_form = FORM_MIRRORED},
    {"transposed", BIG, .batch = 2, .length = 5, .size = 35, .segments = true, .table_form = FORM_TRANSPOSED,
     .y_form = FORM_TRANSPOSED},
    {"gaps", ALL, .batch = 2, .length = 5, .size = 19, TABLE, .ids_form = FORM_PADDED, .table_form = FORM_PADDED,
     .y_form = FORM_PADDED},
    {"ids transposed, rows backwards", ALL, .batch = 2, .length = 5, .size = 19, .ids_form = FORM_TRANSPOSED,
     .table_form = FORM_FLIPPED, .y_form = FORM_FLIPPED},
    {"float16", ALL, .batch = 2, .length = 5, .size = 35, TABLE, .table_type = CLATTN_DTYPE_F16,
     .position_type = CLATTN_DTYPE_F16, .y_type = CLATTN_DTYPE_F16},
    {"bfloat16", ALL, .batch = 2, .length = 5, .size = 35, .segments = true, .table_type = CLATTN_DTYPE_BF16,
     .segment_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_BF16},
    {"each another", BIG, .batch = 2, .length = 5, .size = 67, TABLE, .segments = true, .table_type = CLATTN_DTYPE_F16,
     .position_type = CLATTN_DTYPE_F32, .segment_type = CLATTN_DTYPE_BF16, .y_type = CLATTN_DTYPE_F16},
    {"smaller at enqueue", ALL, .batch = 3, .length = 9, .size = 19, TABLE, .segments = true, .offsets = true,
     .shorter = true, .actual_batch = 2, .actual_length = 5},
    {"nothing at enqueue", ALL, .batch = 3, .length = 9, .size = 19, .shorter = true, .actual_batch = 0,
     .actual_length = 5},
    {"a table of no rows: NaN", ALL, .batch = 2, .length = 3, .size = 19, .no_rows = true},
    {"no places", ALL, .batch = 0, .length = 9, .size = 19},
    {"the first rows of a table", ALL, .batch = 2, .length = 19, .size = 19, .all = 61},
    {"rows amid a table, wrong ids", ALL, .batch = 2, .length = 29, .size = 35, TABLE, .scaled = true, .first = 17,
     .all = 61, .wrong = true},
    {"the last rows of a table", ALL, .batch = 2, .length = 19, .size = 16, .segments = true, .first = 38, .all = 61},
    {"a part of no rows", ALL, .batch = 2, .length = 9, .size = 19, TABLE, .no_rows = true, .first = 17, .all = 61,
     .wrong = true},
    {"no elements", ALL, .batch = 2, .length = 9, .size = 0},
};

enum { IDS, TOKENS, POSITION_TABLE, OFFSETS, SEGMENTS, SEGMENT_TABLE }; /* indices into job.input */

typedef struct index_filler {
    random_stream stream;
    int rows;
    bool wrong;
} index_filler;

static double fill_index(void *context, const size_t *index)
{
    static const int beyond[] = {-1, 0, 1, INT32_MAX, INT32_MIN};
    index_filler *f = context;
    int n = random_int(&f->stream, 0, 4);

    (void)index;
    if (f->wrong && random_int(&f->stream, 0, 4) == 0) {
        return n == 1 || n == 2 ? f->rows + beyond[n] : beyond[n];
    }
    return random_int(&f->stream, 0, f->rows - 1);
}

static test_array indices(test_job *job, int rank, const size_t *extent, array_form form, int rows, bool wrong,
                          uint64_t salt)
{
    test_array made = job_array(job, ROLE_INPUT, CLATTN_DTYPE_I32, rank, extent, form);

    array_fill(&made, fill_index, &(index_filler){random_start(salt), rows, wrong});
    array_upload(&made);
    return made;
}

static test_array table_of(test_job *job, clattn_dtype type, size_t rows, size_t size, array_form form, uint64_t salt)
{
    test_array made = job_array(job, ROLE_INPUT, type, 2, (size_t[]){rows, size}, form);

    job_fill(&made, salt, -2, 2, false);
    return made;
}

static bool make(test_job *job, const void *which, const char *solver)
{
    const embedding_case *t = which;
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;
    clattn_embedding_args args = CLATTN_EMBEDDING_ARGS_INIT;
    size_t extent[3] = {t->batch, t->length, t->size};
    size_t written[3] = {t->shorter ? t->actual_batch : t->batch, t->shorter ? t->actual_length : t->length, t->size};

    job->input[IDS] = indices(job, 2, extent, t->ids_form, t->all ? t->all : ROWS, t->wrong, 11);
    job->input[TOKENS] = table_of(job, t->table_type, t->no_rows ? 0 : ROWS, t->size, t->table_form, 12);
    if (t->positions == CLATTN_POSITIONS_TABLE) {
        size_t rows = POSITION_ROWS;
        job->input[POSITION_TABLE] = table_of(job, t->position_type, rows, t->size, t->table_form, 13);
    }
    if (t->offsets) {
        job->input[OFFSETS] = indices(job, 1, extent, FORM_SPREAD, POSITION_ROWS - (int)t->length, t->wrong, 14);
    }
    if (t->segments) {
        size_t places[2] = {t->shared_segments ? 1 : t->batch, t->length};
        job->input[SEGMENTS] = indices(job, 2, places, t->ids_form, SEGMENT_ROWS, t->wrong, 15);
        job->input[SEGMENT_TABLE] = table_of(job, t->segment_type, SEGMENT_ROWS, t->size, t->table_form, 16);
    }
    job->output[0] = job_array(job, ROLE_OUTPUT, t->y_type, 3, extent, t->y_form);
    array_own(&job->output[0], written);

    desc.part.first = (size_t)t->first;
    desc.part.rows = (size_t)t->all;
    desc.positions = t->positions;
    desc.explicit_scale = t->scaled;
    desc.scale = SCALE;
    array_bind(&job->input[IDS], &desc.ids, &args.ids);
    array_bind(&job->input[TOKENS], &desc.table, &args.table);
    array_bind(&job->input[POSITION_TABLE], &desc.position_table, &args.position_table);
    array_bind(&job->input[OFFSETS], &desc.offsets, &args.offsets);
    array_bind(&job->input[SEGMENTS], &desc.segments, &args.segments);
    array_bind(&job->input[SEGMENT_TABLE], &desc.segment_table, &args.segment_table);
    array_bind(&job->output[0], &desc.y, &args.y);
    args.explicit_lengths = t->shorter;
    args.batch = t->actual_batch;
    args.length = t->actual_length;
    args.position = t->position;
    job->args.embedding = args;
    return job_plan(job, &embedding_operator, &desc, solver, JOB_TAKEN);
}

/* ---- the verdict ---- */

static double index_at(const test_array *array, size_t b, size_t s)
{
    size_t index[2] = {array->layout.rank == 2 && array->layout.extent[0] == 1 ? 0 : b, s};
    return array->memory ? array_get(array, index) : 0;
}

/* Returns an element of a row, or NaN if the table has no such row. */
static double row_at(const test_array *table, double row, size_t c)
{
    return row >= 0 && row < (double)table->layout.extent[0] ? array_get(table, (size_t[]){(size_t)row, c}) : NAN;
}

/* Returns an element of what an id adds: 0 if the table is a part, and another one has the row. */
static double token_at(const embedding_case *t, const test_array *table, double id, size_t c)
{
    const double row = id - t->first;
    const bool elsewhere = id >= 0 && id < t->all && !(row >= 0 && row < (double)table->layout.extent[0]);
    return elsewhere ? 0 : row_at(table, row, c);
}

/* Computes in long double because the angle of a position of 2^31 has 31 bits before its point. */
static double sinusoid(double position, size_t c, size_t size)
{
    long double angle = (long double)position * powl(10000.0L, -(long double)(c / 2 * 2) / (long double)size);
    return (double)(c % 2 ? cosl(angle) : sinl(angle));
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const embedding_case *t = which;
    size_t n = 0;

    *result = result_of("y", &job->output[0]);
    result->naive = zeros(result->count);
    for (size_t b = 0; b < result->extent[0]; b++) {
        for (size_t s = 0; s < result->extent[1]; s++) {
            double id = index_at(&job->input[IDS], b, s), segment = index_at(&job->input[SEGMENTS], b, s);
            double offset = t->offsets ? index_at(&job->input[OFFSETS], b, 0) : 0;
            double position = (double)t->position + offset + (double)s;
            for (size_t c = 0; c < t->size; c++, n++) {
                double term[3] = {token_at(t, &job->input[TOKENS], id, c) * (t->scaled ? (double)SCALE : 1), 0, 0};
                double limit = 0;
                if (t->positions == CLATTN_POSITIONS_TABLE) {
                    term[1] = row_at(&job->input[POSITION_TABLE], position, c);
                } else if (t->positions == CLATTN_POSITIONS_SINUSOIDS) {
                    term[1] = sinusoid(position, c, t->size);
                    limit = 4e-7 / (8 * 0x1p-23); /* the header's limit for sinusoids */
                }
                term[2] = t->segments ? row_at(&job->input[SEGMENT_TABLE], segment, c) : 0;
                result->reference[n] = term[0] + term[1] + term[2];
                result->naive[n] = (double)(float)((double)(float)((double)(float)term[0] + term[1]) + term[2]);
                result->magnitude[n] = (fabs(term[0]) + fabs(term[1]) + fabs(term[2])) / 8 + limit;
            }
        }
    }
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer};
    job_check(&checker, test, solver);
}

/* ---- at random ---- */

#define MOST_RANDOM 20

static embedding_case drawn[MOST_RANDOM];

static void draw(size_t count)
{
    static const clattn_dtype kinds[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    static const array_form forms[] = {FORM_PLAIN,  FORM_PLAIN,    FORM_PADDED,
                                       FORM_SPREAD, FORM_MIRRORED, FORM_TRANSPOSED};
    random_stream r = random_start(123);

    for (size_t i = 0; i < count; i++) {
        embedding_case c = {.rule = "random", .levels = ALL};
        c.batch = (size_t)random_int(&r, 1, 4);
        c.length = (size_t)random_int(&r, 1, 40);
        c.positions = (clattn_positions)random_int(&r, 0, 2);
        c.size = 2 * (size_t)random_int(&r, 1, 70);
        c.size += c.positions == CLATTN_POSITIONS_SINUSOIDS ? 0 : (size_t)random_int(&r, 0, 1);
        c.offsets = c.positions && random_int(&r, 0, 1);
        c.segments = random_int(&r, 0, 1);
        c.shared_segments = random_int(&r, 0, 1);
        c.scaled = random_int(&r, 0, 1);
        c.wrong = random_int(&r, 0, 1);
        c.position = random_int(&r, -3, 30);
        c.ids_form = forms[random_int(&r, 0, 5)];
        c.table_form = forms[random_int(&r, 0, 5)];
        c.y_form = forms[random_int(&r, 0, 5)];
        c.table_type = kinds[random_int(&r, 0, 2)];
        c.position_type = kinds[random_int(&r, 0, 2)];
        c.segment_type = kinds[random_int(&r, 0, 2)];
        c.y_type = kinds[random_int(&r, 0, 2)];
        c.shorter = random_int(&r, 0, 3) == 0;
        c.actual_batch = (size_t)random_int(&r, 0, (int)c.batch);
        c.actual_length = (size_t)random_int(&r, 0, (int)c.length);
        drawn[i] = c;
    }
}

/* ---- what is refused ---- */

static clattn_embedding_desc good_desc(void)
{
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;

    desc.positions = CLATTN_POSITIONS_TABLE;
    desc.ids = desc.segments = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (size_t[]){2, 3});
    desc.table = desc.position_table = desc.segment_table =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){7, 6});
    desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (size_t[]){2});
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 6});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(embedding, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_embedding_desc good = good_desc(), zeroed = CLATTN_EMBEDDING_DESC_INIT;
    clattn_layout none = {0};

    (void)state;
    operator_answers(&embedding_operator, &good, CLATTN_SUCCESS);
    good.scale = NAN; /* ignored without explicit_scale */
    operator_answers(&embedding_operator, &good, CLATTN_SUCCESS);
    operator_answers(&embedding_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&embedding_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(INVALID_ARGUMENT, positions = 3);
    REFUSED(INVALID_ARGUMENT, positions = -1);
    REFUSED(INVALID_ARGUMENT, positions = 0);                          /* and there are a table and offsets */
    REFUSED(INVALID_ARGUMENT, positions = CLATTN_POSITIONS_SINUSOIDS); /* and there is a table */
    REFUSED(INVALID_ARGUMENT, explicit_scale = 2);
    REFUSED(INVALID_ARGUMENT, scale = (desc.explicit_scale = 1, INFINITY));
    REFUSED(INVALID_ARGUMENT, segments = none);
    REFUSED(INVALID_ARGUMENT, segment_table = none);
    REFUSED(INVALID_ARGUMENT, positions = (desc.position_table = none, 0)); /* and there are offsets */
    REFUSED(INVALID_LAYOUT, position_table = none);
    REFUSED(INVALID_LAYOUT, ids = none);
    REFUSED(INVALID_LAYOUT, table = none);
    REFUSED(INVALID_LAYOUT, y = none);
    REFUSED(INVALID_LAYOUT, ids.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, ids.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, segments.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, offsets.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, table.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, position_table.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, segment_table.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, part.first = 1); /* of a table that is whole */
    REFUSED(INVALID_LAYOUT, part.rows = 6);  /* and it has 7 */
    REFUSED(INVALID_LAYOUT, part.rows = (desc.part.first = 2, 8));
    REFUSED(INVALID_LAYOUT, part.rows = (desc.part.first = 9, 8));
    REFUSED(INVALID_LAYOUT, y.rank = 2);
    REFUSED(INVALID_LAYOUT, y.stride[0] = 0);
    REFUSED(UNSUPPORTED, y.dtype = CLATTN_DTYPE_I32);
    REFUSED(UNSUPPORTED, table.dtype = CLATTN_DTYPE_I8);
    REFUSED(UNSUPPORTED, ids.dtype = CLATTN_DTYPE_I64);
    REFUSED(UNSUPPORTED, offsets.dtype = CLATTN_DTYPE_I64);
    REFUSED(UNSUPPORTED, segments.dtype = CLATTN_DTYPE_F32);
    REFUSED(OVERFLOW, table.extent[0] = (size_t)1 << 32);
    good.positions = CLATTN_POSITIONS_SINUSOIDS;
    good.position_table = none;
    operator_answers(&embedding_operator, &good, CLATTN_SUCCESS);
    good.table.extent[1] = good.segment_table.extent[1] = good.y.extent[2] = 5;
    operator_answers(&embedding_operator, &good, CLATTN_ERROR_UNSUPPORTED);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(embedding, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    static const embedding_case all = {.batch = 2, .length = 3, .size = 6, TABLE, .offsets = true};
    clattn_binding none = {0};
    test_job job = {0};

    (void)state;
    assert_true(make(&job, &all, "generic"));
    clattn_embedding_args good = job.args.embedding;
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_lengths = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_lengths = 1, 3));
    REFUSED_ARGS(INVALID_ARGUMENT, length = (args.explicit_lengths = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, position = ((int64_t)1 << 31) + 1);
    REFUSED_ARGS(INVALID_ARGUMENT, ids = none);
    REFUSED_ARGS(INVALID_ARGUMENT, position_table = none);
    REFUSED_ARGS(INVALID_ARGUMENT, segments = good.ids);
    REFUSED_ARGS(BUFFER_TOO_SMALL, table.offset = 1000);
    REFUSED_ARGS(BUFFER_ACCESS, y = good.table);
    operator_needs_both(&embedding_operator, job.plan, &good);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;
    clattn_embedding_args args = CLATTN_EMBEDDING_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 2, -3, 4.5); /* a table of one row */
    test_array id = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_I32, 2, (size_t[]){1, 1}, FORM_PLAIN);
    array_set(&id, (size_t[]){0, 0}, 0);
    array_upload(&id);
    array_bind(&id, &desc.ids, &args.ids);
    array_bind(&job.input[0], &desc.table, &args.table);
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){1, 1, 2});
    args.y = array_binding(&job.output[0]);
    operator_runs_prewarmed(&embedding_operator, &desc, &args);
    job_expect_two_elements(&job, -3, 4.5);
    job_release(&job);
}

int main(int argc, char **argv)
{
    size_t count = by_level(5, 5, 10, MOST_RANDOM);

    draw(count);
    for (size_t i = 0; i < COUNT_OF(cases) + count; i++) {
        const embedding_case *t = i < COUNT_OF(cases) ? &cases[i] : &drawn[i - COUNT_OF(cases)];
        if (t->levels & level()) {
            suite_add_case(check, t, "generic", "embedding generic: %s, %zux%zux%zu", t->rule, t->batch, t->length,
                           t->size);
        }
    }
    suite_add(refused_descriptions, "embedding: descriptions that are refused");
    suite_add(refused_arguments, "embedding: arguments that are refused");
    suite_add(one_call, "embedding: prewarm and run");
    return suite_run("embedding", argc, argv);
}
