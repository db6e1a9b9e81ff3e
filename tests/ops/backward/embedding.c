/* Gradients of the table of an embedding, of all types, strides, and lengths at enqueue; random ones too
 * (CLATTN_TEST_SEED draws others).
 *
 * Holds: what clattn/embedding.h says of CLATTN_DIRECTION_BACKWARD, also for an id of very many places; that rows
 * without places are +0 and ids that are in no table add nothing; NaN and infinities of the places alone; the same bits
 * in every run, with the caller's workspace, and with places around that do not count; guard bands; what is refused.
 * The tests' own gradient is held to be the transpose of embedding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/verdict.h"

typedef struct gradient_case {
    const char *rule;
    unsigned levels;
    size_t batch, length, size, rows;
    float scale;    /* 0: none is given */
    bool wrong;     /* one id in five is not in the table */
    int often;      /* so many of ten places have the id 1 */
    bool special;   /* one element in ten is NaN, and one infinite */
    bool cancelled; /* the elements are large and cancel */
    array_form ids_form, table_form, y_form;
    clattn_dtype table_type, y_type; /* 0: float32 */
    bool shorter;
    size_t actual_batch, actual_length;
    int first, all; /* the rows are those from `first` on, of a table of `all`; 0: it is whole */
} gradient_case;

static const gradient_case cases[] = {
    {"one element", ALL, .batch = 1, .length = 1, .size = 1, .rows = 1},
    {"some places", ALL, .batch = 2, .length = 5, .size = 19, .rows = 23},
    {"a vector - 1", ALL, .batch = 1, .length = 13, .size = 15, .rows = 5, .scale = 22.6f},
    {"a vector", ALL, .batch = 1, .length = 13, .size = 16, .rows = 5},
    {"a vector + 1", ALL, .batch = 1, .length = 13, .size = 17, .rows = 5},
    {"an item's vectors + 1", ALL, .batch = 1, .length = 13, .size = 65, .rows = 5},
    {"many columns", BIG, .batch = 2, .length = 31, .size = 1031, .rows = 29},
    {"many rows", BIG, .batch = 2, .length = 131, .size = 64, .rows = 5003, .scale = -1.5f},
    {"many places", BIG, .batch = 3, .length = 1031, .size = 128, .rows = 61},
    {"one row", ALL, .batch = 2, .length = 40, .size = 9, .rows = 1},
    {"rows without places are +0", ALL, .batch = 1, .length = 2, .size = 35, .rows = 40, .scale = -2},
    {"an id of several runs", ALL, .batch = 2, .length = 75, .size = 9, .rows = 7, .often = 8},
    {"an id of 1,200 places", BIG, .batch = 1, .length = 1500, .size = 9, .rows = 7, .often = 8},
    {"an id of 100,000 places", BIG, .batch = 1, .length = 125000, .size = 9, .rows = 7, .often = 8},
    {"an id of 100,000 places that cancel", BIG, .batch = 1, .length = 125000, .size = 9, .rows = 7, .often = 8,
     .cancelled = true},
    {"wrong ids", ALL, .batch = 2, .length = 19, .size = 19, .rows = 11, .wrong = true},
    {"the first rows of a table", ALL, .batch = 2, .length = 40, .size = 19, .rows = 11, .all = 31},
    {"rows amid a table, wrong ids", ALL, .batch = 2, .length = 40, .size = 19, .rows = 11, .first = 9, .all = 31,
     .wrong = true},
    {"NaN and infinities", ALL, .batch = 2, .length = 9, .size = 37, .rows = 9, .special = true},
    {"scale 0 times infinities", ALL, .batch = 2, .length = 9, .size = 37, .rows = 9, .special = true, .scale = -0.0f},
    {"columns apart", ALL, .batch = 2, .length = 9, .size = 19, .rows = 7, .table_form = FORM_SPREAD,
     .y_form = FORM_SPREAD},
    {"columns backwards", ALL, .batch = 2, .length = 9, .size = 34, .rows = 7, .table_form = FORM_MIRRORED,
     .y_form = FORM_MIRRORED},
    {"transposed", BIG, .batch = 2, .length = 9, .size = 35, .rows = 7, .table_form = FORM_TRANSPOSED,
     .y_form = FORM_TRANSPOSED},
    {"gaps", ALL, .batch = 2, .length = 9, .size = 19, .rows = 7, .ids_form = FORM_PADDED, .table_form = FORM_PADDED,
     .y_form = FORM_PADDED},
    {"ids transposed, rows backwards", ALL, .batch = 2, .length = 9, .size = 19, .rows = 7, .ids_form = FORM_TRANSPOSED,
     .table_form = FORM_FLIPPED, .y_form = FORM_FLIPPED},
    {"one gradient for all items", ALL, .batch = 3, .length = 9, .size = 19, .rows = 7, .y_form = FORM_SHARED_FIRST},
    {"float16", ALL, .batch = 2, .length = 9, .size = 35, .rows = 7, .table_type = CLATTN_DTYPE_F16,
     .y_type = CLATTN_DTYPE_F16},
    {"bfloat16 to float32", ALL, .batch = 2, .length = 9, .size = 35, .rows = 7, .y_type = CLATTN_DTYPE_BF16},
    {"bfloat16 to float16", BIG, .batch = 2, .length = 90, .size = 67, .rows = 7, .table_type = CLATTN_DTYPE_F16,
     .y_type = CLATTN_DTYPE_BF16},
    {"smaller at enqueue", ALL, .batch = 3, .length = 9, .size = 19, .rows = 7, .shorter = true, .actual_batch = 2,
     .actual_length = 5},
    {"no batch at enqueue: all +0", ALL, .batch = 3, .length = 9, .size = 19, .rows = 7, .scale = -1, .shorter = true,
     .actual_batch = 0, .actual_length = 5},
    {"a table of no rows", ALL, .batch = 2, .length = 3, .size = 19, .rows = 0},
    {"no places: all +0", ALL, .batch = 0, .length = 9, .size = 19, .rows = 7},
    {"no elements", ALL, .batch = 2, .length = 9, .size = 0, .rows = 7},
};

enum { IDS, Y }; /* indices into job.input */

typedef struct filler {
    random_stream stream;
    const gradient_case *test;
} filler;

static double fill_id(void *context, const size_t *index)
{
    static const int beyond[] = {-1, 0, 1, INT32_MAX, INT32_MIN};
    filler *f = context;
    const int n = random_int(&f->stream, 0, 4), rows = f->test->all ? f->test->all : (int)f->test->rows;

    (void)index;
    if (f->test->wrong && random_int(&f->stream, 0, 4) == 0)
        return n == 1 || n == 2 ? rows + beyond[n] : beyond[n];
    if (random_int(&f->stream, 0, 9) < f->test->often)
        return 1;
    return random_int(&f->stream, 0, rows ? rows - 1 : 3);
}

static double fill_gradient(void *context, const size_t *index)
{
    filler *f = context;
    const int n = random_int(&f->stream, 0, 9);
    const double value = (double)random_float(&f->stream, -2, 2);

    if (f->test->special && n < 2)
        return n == 0 ? (double)NAN : value > 0 ? (double)INFINITY : -(double)INFINITY;
    return f->test->cancelled ? (index[1] % 2 ? -1000 : 1000) + value : value;
}

static bool make(test_job *job, const void *which, const char *solver)
{
    const gradient_case *t = which;
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;
    clattn_embedding_args args = CLATTN_EMBEDDING_ARGS_INIT;
    const size_t extent[3] = {t->batch, t->length, t->size}, table[2] = {t->rows, t->size};
    filler f = {random_start(21), t};

    job->input[IDS] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_I32, 2, extent, t->ids_form);
    array_fill(&job->input[IDS], fill_id, &f);
    array_upload(&job->input[IDS]);
    job->input[Y] = job_array(job, ROLE_INPUT, t->y_type, 3, extent, t->y_form);
    array_fill(&job->input[Y], fill_gradient, &f);
    array_upload(&job->input[Y]);
    job->output[0] = job_array(job, ROLE_OUTPUT, t->table_type, 2, table, t->table_form);
    array_own(&job->output[0], table);

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.part.first = (size_t)t->first;
    desc.part.rows = (size_t)t->all;
    desc.explicit_scale = t->scale != 0 || signbit(t->scale);
    desc.scale = t->scale;
    array_bind(&job->input[IDS], &desc.ids, &args.ids);
    array_bind(&job->input[Y], &desc.gradients.y, &args.gradients.y);
    array_bind(&job->output[0], &desc.gradients.table, &args.gradients.table);
    args.explicit_lengths = t->shorter;
    args.batch = t->actual_batch;
    args.length = t->actual_length;
    job->args.embedding = args;
    return job_plan(job, &embedding_operator, &desc, solver, JOB_LOOPS);
}

/* Adds scale * y to each row; `narrow` to float32 after each step. */
static void reference_gradient(size_t places, size_t rows, size_t size, double scale, const double *ids,
                               const double *y, bool narrow, double *table, double *magnitude)
{
    for (size_t i = 0; i < rows * size; i++) {
        table[i] = 0;
        magnitude[i] = EXACT_ZERO;
    }
    for (size_t p = 0; p < places; p++)
        for (size_t c = 0; c < size && ids[p] >= 0 && ids[p] < (double)rows; c++) {
            const size_t at = (size_t)ids[p] * size + c;
            const double sum = table[at] + y[p * size + c], sizes = fabs(y[p * size + c] * scale);
            table[at] = narrow ? (double)(float)sum : sum;
            magnitude[at] = magnitude[at] < 0 ? sizes : magnitude[at] + sizes;
        }
    for (size_t i = 0; i < rows * size; i++)
        table[i] = magnitude[i] < 0 ? 0 : narrow ? (double)(float)(table[i] * scale) : table[i] * scale;
}

static double scale_of(const gradient_case *t)
{
    return t->scale != 0 || signbit(t->scale) ? (double)t->scale : 1;
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const gradient_case *t = which;
    const size_t batch = t->shorter ? t->actual_batch : t->batch, length = t->shorter ? t->actual_length : t->length;

    *result = result_of("gradients.table", &job->output[0]);
    result->naive = zeros(result->count);
    double *ids = array_dense(&job->input[IDS], 2, (size_t[]){batch, length});
    for (size_t i = 0; i < batch * length; i++)
        ids[i] -= t->first;
    double *y = array_dense(&job->input[Y], 3, (size_t[]){batch, length, t->size});
    const double scale = scale_of(t);
    reference_gradient(batch * length, t->rows, t->size, scale, ids, y, true, result->naive, result->magnitude);
    reference_gradient(batch * length, t->rows, t->size, scale, ids, y, false, result->reference, result->magnitude);
    /* The header's bound is tighter than what a naive sum does. */
    memcpy(result->naive, result->reference, result->count * sizeof(double));
    for (size_t i = 0; i < result->count; i++)
        if (result->magnitude[i] >= 0)
            result->magnitude[i] *= (66 + (double)(batch * length) / 1024) / 16;
    free(ids);
    free(y);
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer};
    job_check(&checker, test, solver);
}

#define MOST_RANDOM 20

static gradient_case drawn[MOST_RANDOM];

static void draw(size_t count)
{
    static const clattn_dtype kinds[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    static const array_form forms[] = {FORM_PLAIN,  FORM_PLAIN,    FORM_PADDED,
                                       FORM_SPREAD, FORM_MIRRORED, FORM_TRANSPOSED};
    random_stream r = random_start(124);

    for (size_t i = 0; i < count; i++) {
        gradient_case c = {.rule = "random", .levels = ALL};
        c.batch = (size_t)random_int(&r, 1, 4);
        c.length = (size_t)random_int(&r, 1, 40);
        c.size = (size_t)random_int(&r, 1, 140);
        c.rows = (size_t)random_int(&r, 1, 60);
        c.scale = random_int(&r, 0, 1) ? random_float(&r, -3, 3) : 0;
        c.wrong = random_int(&r, 0, 1);
        c.often = c.rows > 1 ? random_int(&r, 0, 9) : 0;
        c.ids_form = forms[random_int(&r, 0, 5)];
        c.table_form = forms[random_int(&r, 0, 5)];
        c.y_form = forms[random_int(&r, 0, 5)];
        c.table_type = kinds[random_int(&r, 0, 2)];
        c.y_type = kinds[random_int(&r, 0, 2)];
        c.shorter = random_int(&r, 0, 3) == 0;
        c.actual_batch = (size_t)random_int(&r, 0, (int)c.batch);
        c.actual_length = (size_t)random_int(&r, 0, (int)c.length);
        drawn[i] = c;
    }
}

/* Embedding is linear in the table: g . Y(table) = gradient(g) . table. */
static void reference_is_the_transpose(void **state)
{
    enum { PLACES = 40, ROWS = 9, SIZE = 7 };
    random_stream stream = random_start(13);
    double ids[PLACES], g[PLACES * SIZE], table[ROWS * SIZE], gradient[ROWS * SIZE], magnitude[ROWS * SIZE];
    double forward = 0, backward = 0;

    (void)state;
    for (size_t i = 0; i < PLACES; i++)
        ids[i] = random_int(&stream, 0, ROWS - 1);
    for (size_t i = 0; i < ROWS * SIZE; i++)
        table[i] = (double)random_float(&stream, -2, 2);
    for (size_t i = 0; i < PLACES * SIZE; i++) {
        g[i] = (double)random_float(&stream, -2, 2);
        forward += g[i] * (22.6 * table[(size_t)ids[i / SIZE] * SIZE + i % SIZE]);
    }
    reference_gradient(PLACES, ROWS, SIZE, 22.6, ids, g, false, gradient, magnitude);
    for (size_t i = 0; i < ROWS * SIZE; i++)
        backward += gradient[i] * table[i];
    assert_true(fabs(forward - backward) < 1e-9);
}

static const gradient_case repeated = {"repeated", ALL, .batch = 3, .length = 50, .size = 67, .rows = 19, .often = 5};

/* Runs the job again and asserts that its bits are those given. */
static void gives_again(test_job *job, const unsigned char *given)
{
    job_poison(job);
    job_run(job, NULL);
    unsigned char *again = job_snapshot(job);
    assert_memory_equal(again, given, job_bytes(job));
    free(again);
}

static void same_bits(void **state)
{
    test_job job = {0};

    (void)state;
    assert_true(make(&job, &repeated, "generic"));
    job_run(&job, NULL);
    unsigned char *given = job_snapshot(&job);
    for (size_t i = 0; i < by_level(3, 100, 100, 1000); i++)
        gives_again(&job, given);
    const size_t bytes = clattn_plan_workspace_size(job.plan);
    assert_int_equal(bytes, (3 * 50 + 2 * 19) * sizeof(int32_t));
    cl_mem own =
        clCreateBuffer(clattn_context_opencl_context(device_context()), CL_MEM_READ_WRITE, bytes + 256, NULL, NULL);
    assert_non_null(own);
    job.args.embedding.workspace = clattn_binding_buffer(own, 128);
    gives_again(&job, given);
    job.args.embedding.workspace.offset = 64;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    job.args.embedding.workspace.offset = 384;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
    free(given);
    clReleaseMemObject(own);
    job_release(&job);
}

/* Places whose ids are in no table leave the bits of all sums as they are: the order is that of the places that count. */
static void places_that_do_not_count(void **state)
{
    test_job job = {0};

    (void)state;
    assert_true(make(&job, &repeated, "generic"));
    job.args.embedding.explicit_lengths = 1;
    job.args.embedding.batch = 2;
    job.args.embedding.length = 50;
    job_run(&job, NULL);
    unsigned char *given = job_snapshot(&job);
    for (size_t s = 0; s < 50; s++)
        array_set(&job.input[IDS], (size_t[]){2, s}, s % 2 ? -1 : 19);
    array_upload(&job.input[IDS]);
    job.args.embedding.batch = 3;
    gives_again(&job, given);
    free(given);
    job_release(&job);
}

static clattn_embedding_desc good_desc(void)
{
    clattn_embedding_desc desc = CLATTN_EMBEDDING_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (size_t[]){2, 3});
    desc.gradients.table = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){7, 6});
    desc.gradients.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 6});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(embedding, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    const clattn_layout none = {0};
    clattn_embedding_desc good = good_desc(), forward = good_desc();

    (void)state;
    operator_answers(&embedding_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_STRUCT, size = 16);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_ARGUMENT, positions = CLATTN_POSITIONS_SINUSOIDS);
    REFUSED(INVALID_ARGUMENT, explicit_scale = 2);
    REFUSED(INVALID_ARGUMENT, scale = (desc.explicit_scale = 1, NAN));
    REFUSED(INVALID_ARGUMENT, table = good.gradients.table);
    REFUSED(INVALID_ARGUMENT, y = good.gradients.y);
    REFUSED(INVALID_ARGUMENT, position_table = good.gradients.table);
    REFUSED(INVALID_ARGUMENT, offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (size_t[]){2}));
    REFUSED(INVALID_ARGUMENT, segments = good.ids);
    REFUSED(INVALID_ARGUMENT, segment_table = good.gradients.table);
    REFUSED(INVALID_LAYOUT, ids = none);
    REFUSED(INVALID_LAYOUT, gradients.table = none);
    REFUSED(INVALID_LAYOUT, gradients.y = none);
    REFUSED(INVALID_LAYOUT, ids.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, ids.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, gradients.table.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, gradients.table.stride[0] = 0);
    REFUSED(INVALID_LAYOUT, gradients.y.rank = 2);
    REFUSED(UNSUPPORTED, ids.dtype = CLATTN_DTYPE_I64);
    REFUSED(UNSUPPORTED, gradients.table.dtype = CLATTN_DTYPE_I8);
    REFUSED(UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_F64);
    REFUSED(OVERFLOW, gradients.table.extent[0] = (size_t)1 << 32);
    forward.direction = CLATTN_DIRECTION_FORWARD;
    forward.table = good.gradients.table;
    forward.y = good.gradients.y;
    operator_answers(&embedding_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.table = none;
    operator_answers(&embedding_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.y = none;
    operator_answers(&embedding_operator, &forward, CLATTN_SUCCESS);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(embedding, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_binding none = {0};
    test_job job = {0};

    (void)state;
    assert_true(make(&job, &repeated, "generic"));
    clattn_embedding_args good = job.args.embedding;
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_lengths = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_lengths = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, length = (args.explicit_lengths = 1, 51));
    REFUSED_ARGS(INVALID_ARGUMENT, position = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, ids = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.table = none);
    REFUSED_ARGS(INVALID_ARGUMENT, table = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, y = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, position_table = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, offsets = good.ids);
    REFUSED_ARGS(INVALID_ARGUMENT, segments = good.ids);
    REFUSED_ARGS(INVALID_ARGUMENT, segment_table = good.gradients.y);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.table.offset = 10000);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.table = good.gradients.y);
    operator_needs_both(&embedding_operator, job.plan, &good);
    clattn_plan_release(&job.plan);
    clattn_embedding_desc forward = good_desc(); /* of which no gradient and no workspace is bound */
    forward.direction = CLATTN_DIRECTION_FORWARD;
    forward.table = forward.gradients.table;
    forward.y = forward.gradients.y;
    forward.gradients.table = forward.gradients.y = (clattn_layout){0};
    job.plan = operator_plan(&embedding_operator, &forward, NULL);
    good.table = good.gradients.y;
    good.y = good.gradients.table;
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.table = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y = none);
    REFUSED_ARGS(INVALID_ARGUMENT, workspace = (args.gradients.table = args.gradients.y = none, good.y));
    job_release(&job);
}

int main(int argc, char **argv)
{
    size_t count = by_level(5, 5, 10, MOST_RANDOM);

    suite_add(reference_is_the_transpose, "embedding backward: the reference is the transpose of forward's");
    draw(count);
    for (size_t i = 0; i < COUNT_OF(cases) + count; i++) {
        const gradient_case *t = i < COUNT_OF(cases) ? &cases[i] : &drawn[i - COUNT_OF(cases)];
        if (t->levels & level()) {
            suite_add_case(check, t, "generic", "embedding backward generic: %s, %zux%zux%zu, %zu rows", t->rule,
                           t->batch, t->length, t->size, t->rows);
        }
    }
    suite_add(same_bits, "embedding backward: the same bits in every run, and with the caller's workspace");
    suite_add(places_that_do_not_count, "embedding backward: the same bits with places that do not count");
    suite_add(refused_descriptions, "embedding backward: descriptions that are refused");
    suite_add(refused_arguments, "embedding backward: arguments that are refused");
    return suite_run("embedding_backward", argc, argv);
}
