#include "support/group/parts.h"

#include <string.h>

#include "support/core/inject.h"
#include "support/core/threads.h"

size_t group_row(const group_way *way, int rank, size_t rows, size_t row)
{
    const size_t ranks = (size_t)way->ranks, own = (size_t)rank, half = rows / 2;
    if (way->order == CLATTN_GROUP_ORDER_STRAIGHT) {
        return own * rows + row;
    }
    return row < half ? own * half + row : (2 * ranks - 1 - own) * half + (row - half);
}

bool group_can(const attention_case *test, const group_way *way)
{
    const bool by_rows = test->mask_rank == 0 || (test->mask_rank >= 2 && test->mask_extent[test->mask_rank - 2] > 1);
    const bool bias_by_rows =
        test->bias_rank == 0 || (test->bias_rank >= 2 && test->bias_extent[test->bias_rank - 2] > 1);
    const size_t pieces = (size_t)way->ranks * (way->order == CLATTN_GROUP_ORDER_ZIGZAG ? 2 : 1);
    if (way->mode == CLATTN_GROUP_MODE_RING) {
        return test->dropout == 0 || (test->dim.keys / pieces % 4 == 0 && !test->list.key_starts);
    }
    return test->dim.kv_heads % (size_t)way->ranks == 0 &&
           (way->mode == CLATTN_GROUP_MODE_GATHER || !((test->mask && by_rows) || (test->bias && bias_by_rows)));
}

/* Numbers of a rank's arrays, of which the inputs have the first ones. */
enum { FIRST_OUTPUT = 16, FIRST_GIVEN = 24 };

/* The form of a rank's array: the usual one, or one that the rank draws for the `n`-th of its arrays. */
static array_form form_of(const group_way *way, int rank, int n, array_form usual)
{
    static const array_form all[] = {FORM_PLAIN,      FORM_BSHD,    FORM_PADDED,
                                     FORM_SPREAD,     FORM_FLIPPED, FORM_MIRRORED,
                                     FORM_TRANSPOSED, FORM_ALIGNED, FORM_ALIGNED_TRANSPOSED};
    random_stream stream;
    if (!way->forms) {
        return usual;
    }
    stream = random_start(way->forms * 1024 + (uint64_t)(32 * rank + n));
    return all[random_int(&stream, 0, (int)COUNT_OF(all) - 1)];
}

/* Inputs that are the same along a dimension, by a stride of 0, are so on each rank. */
static array_form input_form(const group_way *way, int rank, int n, array_form usual, const clattn_layout *whole)
{
    for (int d = 0; d < whole->rank; d++) {
        if (!whole->stride[d]) {
            return d == 0 ? FORM_SHARED_FIRST : d == whole->rank - 2 ? FORM_SHARED_ROWS : FORM_SHARED_SECOND;
        }
    }
    return form_of(way, rank, n, usual);
}

/* Copies the rows of dimension `rows_at` (-1: all) that the rank has, into an array of that form. */
static test_array take_as(test_job *job, const test_array *whole, const group_way *way, int rank, int rows_at,
                          array_form form)
{
    size_t extent[CLATTN_MAX_RANK], index[CLATTN_MAX_RANK] = {0}, from[CLATTN_MAX_RANK];
    const clattn_layout *layout = &whole->layout;
    if (!whole->memory) {
        return (test_array){0};
    }
    memcpy(extent, layout->extent, sizeof extent);
    if (rows_at >= 0 && extent[rows_at] > 1) {
        extent[rows_at] /= (size_t)way->ranks;
    } else {
        rows_at = -1;
    }
    test_array part = job_array(job, ROLE_INPUT, layout->dtype, layout->rank, extent, form);
    do {
        memcpy(from, index, sizeof from);
        if (rows_at >= 0) {
            from[rows_at] = group_row(way, rank, extent[rows_at], index[rows_at]);
        }
        array_set(&part, index, array_get(whole, from));
    } while (array_next(layout->rank, extent, index));
    array_upload(&part);
    return part;
}

/* Does so with what a backward call is given beside the inputs, the `n`-th array of the rank. */
static test_array take(test_job *job, const test_array *whole, const group_way *way, int rank, int n)
{
    return take_as(job, whole, way, rank, 2, form_of(way, rank, n, FORM_PADDED));
}

/* The dimension of output `n` that has the rank's rows, or -1: it has all rows, or none. */
static int own_rows_at(const test_array *whole, int n)
{
    const int at = n <= VALUE ? 2 : n <= BIAS ? whole->layout.rank - 2 : -1;
    return at >= 0 && whole->layout.extent[at] > 1 ? at : -1;
}

static test_array make_output(test_job *job, const test_array *whole, const group_way *way, int rank, int n)
{
    size_t extent[CLATTN_MAX_RANK];
    if (!whole->memory) {
        return (test_array){0};
    }
    memcpy(extent, whole->layout.extent, sizeof extent);
    if (own_rows_at(whole, n) >= 0) {
        extent[own_rows_at(whole, n)] /= (size_t)way->ranks;
    }
    test_array part = job_array(job, ROLE_OUTPUT, whole->layout.dtype, whole->layout.rank, extent,
                                form_of(way, rank, FIRST_OUTPUT + n, whole->layout.rank == 4 ? FORM_BSHD : FORM_PLAIN));
    array_own(&part, extent);
    return part;
}

/* What both directions have: the rank's part of the inputs, and arguments without lengths. */
static void make(group_part *part, const test_job *whole, const clattn_attention_desc *desc, const group_way *way,
                 int rank)
{
    static const int inputs[] = {QUERY,  KEY,           VALUE,       MASK,      BIAS,         ALIBI,     SINKS,
                                 VECTOR, QUERY_LENGTHS, KEY_LENGTHS, POSITIONS, QUERY_STARTS, KEY_STARTS};
    static const array_form forms[] = {FORM_BSHD, FORM_TRANSPOSED, FORM_SPREAD};
    clattn_attention_desc *d = &part->desc;
    clattn_attention_args *a = &part->job.args.attention;
    memset(part, 0, sizeof *part);
    part->rank = rank;
    *d = *desc;
    *a = whole->args.attention;
    a->explicit_lengths = 0;
    a->batch = a->query_length = a->key_length = 0;
    for (size_t i = 0; i < COUNT_OF(inputs); i++) {
        const int n = inputs[i], rows_at = n <= VALUE               ? 2
                                           : n == MASK || n == BIAS ? whole->input[n].layout.rank - 2
                                                                    : -1;
        part->job.input[n] =
            take_as(&part->job, &whole->input[n], way, rank, rows_at,
                    input_form(way, rank, n, n <= VALUE ? forms[n] : FORM_PADDED, &whole->input[n].layout));
    }
    array_bind(&part->job.input[QUERY], &d->query, &a->query);
    array_bind(&part->job.input[KEY], &d->key, &a->key);
    array_bind(&part->job.input[VALUE], &d->value, &a->value);
    array_bind(&part->job.input[MASK], &d->mask, &a->mask);
    array_bind(&part->job.input[BIAS], &d->bias, &a->bias);
    array_bind(&part->job.input[ALIBI], &d->scoring.alibi, &a->scoring.alibi);
    array_bind(&part->job.input[SINKS], &d->scoring.sinks, &a->scoring.sinks);
    array_bind(&part->job.input[VECTOR], &d->scoring.vector, &a->scoring.vector);
    array_bind(&part->job.input[QUERY_LENGTHS], &d->lengths.query, &a->lengths.query);
    array_bind(&part->job.input[KEY_LENGTHS], &d->lengths.key, &a->lengths.key);
    array_bind(&part->job.input[POSITIONS], &d->lengths.positions, &a->lengths.positions);
    array_bind(&part->job.input[QUERY_STARTS], &d->lengths.query_starts, &a->lengths.query_starts);
    array_bind(&part->job.input[KEY_STARTS], &d->lengths.key_starts, &a->lengths.key_starts);
}

void group_part_make(group_part *part, const test_job *whole, const clattn_attention_desc *desc, const group_way *way,
                     int rank)
{
    clattn_attention_args *a = &part->job.args.attention;
    make(part, whole, desc, way, rank);
    for (int n = OUTPUT; n <= LSE; n++) {
        part->job.output[n] = make_output(&part->job, &whole->output[n], way, rank, n);
    }
    array_bind(&part->job.output[OUTPUT], &part->desc.output, &a->output);
    array_bind(&part->job.output[LSE], &part->desc.outputs.lse, &a->outputs.lse);
}

void group_part_make_backward(group_part *part, const struct backward_job *whole, const group_way *way, int rank)
{
    clattn_attention_desc *d = &part->desc;
    clattn_attention_args *a = &part->job.args.attention;
    make(part, &whole->job, &whole->desc, way, rank);
    test_array given = take(&part->job, &whole->given, way, rank, FIRST_GIVEN);
    test_array lse = take(&part->job, &whole->lse, way, rank, FIRST_GIVEN + 1);
    test_array given_output = take(&part->job, &whole->given_output, way, rank, FIRST_GIVEN + 2);
    test_array given_lse = take(&part->job, &whole->given_lse, way, rank, FIRST_GIVEN + 3);
    array_bind(&given, &d->output, &a->output);
    array_bind(&lse, &d->outputs.lse, &a->outputs.lse);
    array_bind(&given_output, &d->gradients.output, &a->gradients.output);
    array_bind(&given_lse, &d->gradients.lse, &a->gradients.lse);
    for (int n = 0; n < JOB_OUTPUTS; n++) {
        part->job.output[n] = make_output(&part->job, &whole->job.output[n], way, rank, n);
    }
    array_bind(&part->job.output[0], &d->gradients.query, &a->gradients.query);
    array_bind(&part->job.output[1], &d->gradients.key, &a->gradients.key);
    array_bind(&part->job.output[2], &d->gradients.value, &a->gradients.value);
    array_bind(&part->job.output[3], &d->gradients.mask, &a->gradients.mask);
    array_bind(&part->job.output[4], &d->gradients.bias, &a->gradients.bias);
    array_bind(&part->job.output[5], &d->gradients.vector, &a->gradients.vector);
    array_bind(&part->job.output[6], &d->gradients.alibi, &a->gradients.alibi);
    array_bind(&part->job.output[7], &d->gradients.sinks, &a->gradients.sinks);
}

void group_part_release(group_part *part)
{
    job_release(&part->job);
}

void group_part_run(group_part *part, clattn_context *context, cl_command_queue queue, const clattn_group *group,
                    const group_way *way, int times)
{
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_group_attention *attention = NULL;
    cl_event event = NULL;
    desc.mode = way->mode;
    desc.order = way->order;
    desc.attention = &part->desc;
    part->status = clattn_group_attention_create(context, group, &desc, &attention);
    part->kernels = inject_made(INJECT_KERNEL);
    for (const group_part *call = part; call; call = call->then) {
        for (int i = 0; i < times && part->status == CLATTN_SUCCESS; i++) {
            if (event) {
                clReleaseEvent(event);
            }
            part->status = clattn_group_attention_run(attention, queue, &call->job.args.attention, 0, NULL, &event);
        }
    }
    if (part->status != CLATTN_SUCCESS) {
        clattn_context_message(context, part->message, sizeof part->message);
    }
    if (event && clWaitForEvents(1, &event) != CL_SUCCESS && part->status == CLATTN_SUCCESS) {
        part->status = CLATTN_ERROR_OPENCL;
    }
    if (event) {
        clReleaseEvent(event);
    }
    clattn_group_attention_release(&attention);
}

typedef struct rank_thread {
    group_part *part;
    clattn_context *context;
    cl_command_queue queue;
    clattn_group group;
    const group_way *way;
    int times;
    thrd_t thread;
} rank_thread;

static int run_rank(void *user)
{
    rank_thread *t = user;
    group_part_run(t->part, t->context, t->queue, &t->group, t->way, t->times);
    return 0;
}

clattn_group_local *group_local_make(int ranks, uint32_t timeout_ms, clattn_group *groups)
{
    clattn_group_local *local = NULL;
    assert_int_equal(clattn_group_local_create(ranks, timeout_ms, &local), CLATTN_SUCCESS);
    for (int i = 0; i < ranks; i++)
        assert_int_equal(clattn_group_local_rank(local, i, &groups[i]), CLATTN_SUCCESS);
    return local;
}

clattn_status group_parts_run(group_part *parts, clattn_context *context, const group_way *way, int times)
{
    static rank_thread threads[GROUP_MOST_RANKS];
    clattn_group_local *local = NULL;
    clattn_status status = CLATTN_SUCCESS;
    assert_int_equal(clattn_group_local_create(way->ranks, 0, &local), CLATTN_SUCCESS);
    for (int i = 0; i < way->ranks; i++) {
        rank_thread *t = &threads[i];
        *t = (rank_thread){.part = &parts[i], .context = context, .way = way, .times = times};
        t->queue = new_queue(context, i % 2);
        if (!t->queue) {
            t->queue = new_queue(context, false);
        }
        assert_int_equal(clattn_group_local_rank(local, i, &t->group), CLATTN_SUCCESS);
    }
    for (int i = 0; i < way->ranks; i++) {
        assert_int_equal(thrd_create(&threads[i].thread, run_rank, &threads[i]), thrd_success);
    }
    for (int i = 0; i < way->ranks; i++) {
        thrd_join(threads[i].thread, NULL);
        clReleaseCommandQueue(threads[i].queue);
        if (parts[i].status != CLATTN_SUCCESS && status == CLATTN_SUCCESS) {
            status = parts[i].status;
            if (status != CLATTN_ERROR_UNSUPPORTED) {
                print_message("# rank %d: %s\n", i, parts[i].message);
            }
        }
    }
    clattn_group_local_release(&local);
    return status;
}

void group_part_give(group_part *part, test_job *whole, const group_way *way)
{
    for (int n = 0; n < JOB_OUTPUTS; n++) {
        test_array *from = &part->job.output[n];
        size_t index[CLATTN_MAX_RANK] = {0}, to[CLATTN_MAX_RANK];
        if (!from->memory) {
            continue;
        }
        array_download(from);
        const int at = own_rows_at(&whole->output[n], n);
        do {
            memcpy(to, index, sizeof to);
            if (at >= 0) {
                to[at] = group_row(way, part->rank, from->layout.extent[at], index[at]);
            }
            const double value = array_get(from, index);
            if (own_rows_at(&whole->output[n], n) < 0 && part->rank > 0) { /* all ranks have the same */
                assert_true(value == array_get(&whole->output[n], to));
            }
            array_set(&whole->output[n], to, value);
        } while (array_next(from->layout.rank, from->layout.extent, index));
        const test_memory *memory = whole->output[n].memory;
        write_buffer(clattn_context_queue(device_context()), memory->buffer, 0, memory->count * memory->element_size,
                     memory->host);
    }
}

unsigned char *group_part_bytes(group_part *part)
{
    for (int n = 0; n < JOB_OUTPUTS; n++) {
        if (part->job.output[n].memory) {
            array_download(&part->job.output[n]);
        }
    }
    return job_snapshot(&part->job);
}
