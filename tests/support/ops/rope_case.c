/* Rotary position embedding: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/rope_case.h"
#include "support/verdict.h"

const char *const rope_solvers[ROPE_SOLVERS] = {"generic", "cpu"};

#define TABLE_ROWS 97

enum { X, COS, SIN, POSITIONS, OFFSETS }; /* of job.input */

static size_t rotary_of(const rope_case *test)
{
    return test->rotary ? test->rotary : test->size;
}

static size_t batch_of(const rope_case *test)
{
    return test->explicit_lengths ? test->actual_batch : test->batch;
}

static size_t length_of(const rope_case *test)
{
    return test->explicit_lengths ? test->actual_length : test->length;
}

static void make_caches(test_job *job, const rope_case *test)
{
    size_t by_position[] = {TABLE_ROWS, rotary_of(test) / 2};
    size_t by_place[] = {test->angles == ANGLES_SHARED ? 1 : test->batch, test->length, rotary_of(test) / 2};
    bool table = test->angles == ANGLES_TABLE;

    for (int which = COS; which <= SIN; which++) {
        job->input[which] =
            job_array(job, ROLE_INPUT, test->cache_type, table ? 2 : 3, table ? by_position : by_place, test->cache);
        job_fill(&job->input[which], (uint64_t)which, -1, 1, false);
    }
}

typedef struct integer_filler {
    random_stream stream;
    int64_t low, high;
} integer_filler;

/* Fills with the bounds first, then with numbers between them. */
static double fill_integer(void *context, const size_t *index)
{
    integer_filler *f = context;
    size_t which = index[0] + index[1];
    uint64_t random = random_bits(&f->stream) % (uint64_t)(f->high - f->low + 1);

    return which == 0 ? (double)f->high : which == 1 ? (double)f->low : (double)(f->low + (int64_t)random);
}

static void make_indices(test_job *job, const rope_case *test)
{
    bool offsets = test->where == WHERE_OFFSETS, given = test->low || test->high;
    size_t extent[] = {test->where == WHERE_SHARED_POSITIONS ? 1 : test->batch, test->length};
    test_array *made = &job->input[offsets ? OFFSETS : POSITIONS];
    int64_t high = offsets ? TABLE_ROWS - (int64_t)test->length : TABLE_ROWS - 1;

    *made = job_array(job, ROLE_INPUT, test->index_type ? test->index_type : CLATTN_DTYPE_I32, offsets ? 1 : 2, extent,
                      offsets ? FORM_PLAIN : FORM_PADDED);
    array_fill(made, fill_integer,
               &(integer_filler){random_start(7), given ? test->low : 0, given ? test->high : high});
    array_upload(made);
}

bool rope_make(test_job *job, const void *which, const char *solver)
{
    const rope_case *test = which;
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    clattn_rope_args args = CLATTN_ROPE_ARGS_INIT;
    size_t extent[] = {test->batch, test->heads, test->length, test->size};
    size_t written[] = {batch_of(test), test->heads, length_of(test), test->size};

    job->input[X] = job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, test->x_type, 4, extent, test->x);
    job_fill(&job->input[X], 5, -4, 4, false);
    if (test->angles != ANGLES_COMPUTED) {
        make_caches(job, test);
    }
    if (test->where != WHERE_COUNTED) {
        make_indices(job, test);
    }
    job->output[0] = test->in_place ? job->input[X] : job_array(job, ROLE_OUTPUT, test->y_type, 4, extent, test->y);
    array_own(&job->output[0], written);

    desc.pairing = test->interleaved ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc.base = test->base;
    desc.rotary_size = test->rotary;
    if (test->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        array_bind(&job->input[X], &desc.gradients.y, &args.gradients.y);
        array_bind(&job->output[0], &desc.gradients.x, &args.gradients.x);
    } else {
        array_bind(&job->input[X], &desc.x, &args.x);
        array_bind(&job->output[0], &desc.y, &args.y);
    }
    array_bind(&job->input[COS], &desc.cos, &args.cos);
    array_bind(&job->input[SIN], &desc.sin, &args.sin);
    array_bind(&job->input[POSITIONS], &desc.positions, &args.positions);
    array_bind(&job->input[OFFSETS], &desc.offsets, &args.offsets);
    args.explicit_lengths = test->explicit_lengths;
    args.batch = test->actual_batch;
    args.length = test->actual_length;
    args.position = test->position;
    job->args.rope = args;
    return job_plan(job, &rope_operator, &desc, solver, JOB_TAKEN);
}

/* ---- the verdict ---- */

static double position_of(const test_job *job, const rope_case *test, size_t b, size_t s)
{
    size_t first = job->input[POSITIONS].layout.extent[0] == 1 ? 0 : b;
    double start = (double)test->position;

    switch (test->where) {
    case WHERE_POSITIONS:
    case WHERE_SHARED_POSITIONS: return start + array_get(&job->input[POSITIONS], (size_t[]){first, s});
    case WHERE_OFFSETS: return start + array_get(&job->input[OFFSETS], &b) + (double)s;
    default: return start + (double)s;
    }
}

/* Returns the cosines or sines of place (b, s), which it stores in `out`. */
static const double *given(const test_job *job, const rope_case *test, int which, size_t b, size_t s, double *out)
{
    const test_array *cache = &job->input[which];
    double position = position_of(job, test, b, s);

    for (size_t i = 0; i < rotary_of(test) / 2; i++) {
        if (test->angles != ANGLES_TABLE) {
            out[i] = array_get(cache, (size_t[]){cache->layout.extent[0] == 1 ? 0 : b, s, i});
        } else if (position >= 0 && position < TABLE_ROWS) {
            out[i] = array_get(cache, (size_t[]){(size_t)position, i});
        } else {
            out[i] = NAN;
        }
        if (which == SIN && test->backward)
            out[i] = -out[i];
    }
    return test->angles == ANGLES_COMPUTED ? NULL : out;
}

/* Holds the header's accuracy, which is tighter than the accuracy rule: it grants nothing for the errors of a naive
 * computation. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    const rope_case *test = which;
    double *cosine_row = zeros(test->size), *sine_row = zeros(test->size);

    *result = result_of(test->backward ? "gradients.x" : "y", &job->output[0]);
    double *x = array_dense(&job->input[X], 4, result->extent);
    for (size_t at = 0, row = 0; at < result->count; at += test->size, row++) {
        size_t s = row % result->extent[2], b = row / result->extent[2] / test->heads;
        const double *cosines = test->angles ? given(job, test, COS, b, s, cosine_row) : NULL;
        const double *sines = test->angles ? given(job, test, SIN, b, s, sine_row) : NULL;
        reference_rope(test->size, rotary_of(test), test->interleaved, test->base > 0 ? (double)test->base : 10000,
                       cosines, sines, position_of(job, test, b, s) * (test->backward ? -1 : 1), x + at,
                       result->reference + at, result->magnitude + at);
    }
    free(x);
    free(cosine_row);
    free(sine_row);
}

static bool inject(test_job *job, const void *which)
{
    const rope_case *test = which;
    size_t index[4] = {0};

    if (!test->inject) {
        return false;
    }
    do {
        bool beyond = index[0] >= batch_of(test) || index[2] >= length_of(test);
        bool first = !index[0] && !index[1] && !index[2] && index[3] == 1;
        if (beyond || first) {
            array_set(&job->input[X], index, first || index[3] % 2 ? NAN : INFINITY);
        }
    } while (array_next(4, job->input[X].layout.extent, index));
    array_upload(&job->input[X]);
    return true;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = rope_make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void rope_add(const rope_case *cases, size_t count)
{
    for (size_t n = 0; n < ROPE_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const rope_case *t = &cases[i];

            if (t->levels & level()) {
                suite_add_case(check, t, rope_solvers[n], "rope %s%s: %s, %s, %zux%zux%zux%zu", rope_solvers[n],
                               t->backward ? " backward" : "", t->rule, t->interleaved ? "interleaved" : "halves",
                               t->batch, t->heads, t->length, t->size);
            }
        }
    }
}
