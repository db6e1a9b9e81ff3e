/* Jobs: what the tests of all operators do alike. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "support/job.h"

job_hooks job_before;

test_memory *job_keep(test_job *job, test_memory *memory)
{
    assert_true(job->memory_count < COUNT_OF(job->memory));
    job->memory[job->memory_count++] = memory;
    return memory;
}

test_array job_array(test_job *job, array_role role, clattn_dtype dtype, int rank, const size_t *extent,
                     array_form form)
{
    test_array made = array_create(role, dtype, rank, extent, form);

    job_keep(job, made.memory);
    return made;
}

void job_release(test_job *job)
{
    clattn_plan_release(&job->plan);
    assert_null(job->plan);
    for (size_t i = 0; i < job->memory_count; i++) {
        memory_release(job->memory[i]);
    }
    job->memory_count = 0;
    clattn_control_release(&job->control);
}

/* Puts `control` into the arguments, whose first member is their size and whose last is the control. */
static void set_control(test_job *job, clattn_control *control)
{
    unsigned char *args = (unsigned char *)&job->args;
    size_t size;
    memcpy(&size, args, sizeof size);
    memcpy(args + size - sizeof control, &control, sizeof control);
}

void job_use_control(test_job *job, uint32_t max_launch_ms, bool cancellable)
{
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    params.max_launch_ms = max_launch_ms;
    params.cancellable = cancellable;
    clattn_control_release(&job->control);
    assert_status(NULL, clattn_control_create(&params, &job->control), CLATTN_SUCCESS);
    set_control(job, job->control);
}

void job_drop_control(test_job *job)
{
    clattn_control_release(&job->control);
    set_control(job, NULL);
}

void job_two_elements(test_job *job, int rank, float first, float second)
{
    static const size_t extents[CLATTN_MAX_RANK] = {1, 1, 1, 1, 2};
    const size_t *extent = extents + CLATTN_MAX_RANK - rank;

    job->input[0] = job_floats(job, rank, extent, (float[]){first, second});
    job_output(job, rank, extent);
}

void job_expect_two_elements(test_job *job, float first, float second)
{
    float found[2];

    array_download(&job->output[0]);
    job_copy_output(job, found);
    assert_true(found[0] == first && found[1] == second);
}

typedef struct mask_filler {
    random_stream stream;
    mask_kind kind;
    const clattn_layout *layout;
} mask_filler;

static double fill_mask(void *context, const size_t *index)
{
    mask_filler *f = context;
    int last = f->layout->rank - 1;
    bool several = f->layout->extent[last] > 1;
    double addend = random_float(&f->stream, -2, 2);
    bool attended = random_int(&f->stream, 0, 4) > 0 && !(several && index[last] % 3 == 1);

    switch (f->kind) {
    case MASK_BOOL: return attended;
    case MASK_FLOAT: return attended ? addend : -INFINITY;
    case MASK_FINITE: return addend;
    case MASK_INF: return -INFINITY;
    case MASK_MINUS_1E4: return -1e4;
    case MASK_LOWEST: return -FLT_MAX;
    default: return 0;
    }
}

test_array job_mask(test_job *job, mask_kind kind, clattn_dtype dtype, int rank, const size_t *extent, array_form form,
                    uint64_t salt)
{
    test_array made = {0};

    if (kind != MASK_NONE) {
        bool boolean = kind == MASK_BOOL || kind == MASK_FALSE;
        made = job_array(job, ROLE_INPUT, boolean ? CLATTN_DTYPE_BOOL : dtype, rank, extent, form);
        array_fill(&made, fill_mask, &(mask_filler){random_start(salt), kind, &made.layout});
        array_upload(&made);
    }
    return made;
}

static double fill_integer(void *context, const size_t *index)
{
    const int64_t *values = context;
    return (double)values[index[0]];
}

test_array job_integers(test_job *job, clattn_dtype dtype, size_t count, const int64_t *values)
{
    test_array made = job_array(job, ROLE_INPUT, dtype, 1, &count, FORM_SPREAD);
    array_fill(&made, fill_integer, (void *)(uintptr_t)values);
    array_upload(&made);
    return made;
}

static double fill_float(void *context, const size_t *index)
{
    const float **next = context;
    (void)index;
    return (double)*(*next)++;
}

test_array job_floats(test_job *job, int rank, const size_t *extent, const float *values)
{
    test_array made = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, rank, extent, FORM_PLAIN);
    array_fill(&made, fill_float, &values);
    array_upload(&made);
    return made;
}

test_array *job_output(test_job *job, int rank, const size_t *extent)
{
    job->output[0] = job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, rank, extent, FORM_PLAIN);
    array_own(&job->output[0], extent);
    return &job->output[0];
}

void job_copy_output(const test_job *job, float *values)
{
    const test_array *output = &job->output[0];
    size_t index[CLATTN_MAX_RANK] = {0};

    do {
        *values++ = (float)array_get(output, index);
    } while (array_next(output->layout.rank, output->layout.extent, index));
}

typedef struct number_filler {
    random_stream stream;
    float low, high;
    bool integers;
} number_filler;

static double fill_number(void *context, const size_t *index)
{
    number_filler *f = context;

    (void)index;
    return f->integers ? random_int(&f->stream, (int)f->low, (int)f->high) : random_float(&f->stream, f->low, f->high);
}

void job_fill(test_array *array, uint64_t salt, float low, float high, bool integers)
{
    array_fill(array, fill_number, &(number_filler){random_start(salt), low, high, integers});
    array_upload(array);
}

bool job_refused_for_loops(clattn_status status)
{
    char message[256] = "";

    if (status != CLATTN_ERROR_UNSUPPORTED || !device_platform_contains("rusticl")) {
        return false;
    }
    clattn_context_message(device_context(), message, sizeof message);
    return strstr(message, "loops after 65,535 iterations") != NULL;
}

bool job_refused_sub_groups(const char *solver)
{
    return !strcmp(solver, "sub-group") && !device_shuffles();
}

bool job_plan_with(test_job *job, const struct operator_calls *calls, const void *desc,
                   const clattn_plan_options *options, job_answer answer)
{
    if (job_before.plan)
        job_before.plan(calls, desc, options);
    clattn_status status = calls->plan_create(device_context(), desc, options, &job->plan);
    bool refused = answer == JOB_REFUSED || (answer == JOB_LOOPS && job_refused_for_loops(status)) ||
                   job_refused_sub_groups(options->solver);

    job->calls = calls;
    if (refused) {
        assert_status(device_context(), status, CLATTN_ERROR_UNSUPPORTED);
        assert_null(job->plan);
        printf("# refused\n"); /* tests/platforms.py counts these, of the test that is reported next */
        return false;
    }
    assert_status(device_context(), status, CLATTN_SUCCESS);
    assert_non_null(job->plan);
    assert_string_equal(clattn_plan_solver(job->plan), options->solver);
    return true;
}

bool job_plan(test_job *job, const struct operator_calls *calls, const void *desc, const char *solver,
              job_answer answer)
{
    const clattn_plan_options options = {.size = sizeof options, .solver = solver};
    return job_plan_with(job, calls, desc, &options, answer);
}

clattn_status job_enqueue(const test_job *job, cl_command_queue queue, cl_uint wait_count, const cl_event *wait_list,
                          cl_event *event)
{
    return job->calls->enqueue(job->plan, queue, &job->args, wait_count, wait_list, event);
}

static void download(test_job *job)
{
    for (size_t i = 0; i < COUNT_OF(job->output); i++) {
        if (job->output[i].memory) {
            array_download(&job->output[i]);
        }
    }
}

void job_run(test_job *job, cl_command_queue queue)
{
    cl_event event = NULL;

    if (job_before.run)
        job_before.run(job);
    assert_status(device_context(), job_enqueue(job, queue, 0, NULL, &event), CLATTN_SUCCESS);
    assert_non_null(event);
    assert_cl(clWaitForEvents(1, &event));
    assert_cl(clReleaseEvent(event));
    download(job);
}

void job_run_once(test_job *job, const struct operator_calls *calls, const void *desc)
{
    assert_status(device_context(), calls->run(device_context(), NULL, desc, &job->args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    download(job);
}

void job_poison(const test_job *job)
{
    for (size_t i = 0; i < COUNT_OF(job->output); i++) {
        if (job->output[i].memory) {
            array_poison(&job->output[i]);
        }
    }
}

static size_t bytes_of(const test_array *array)
{
    return array->memory ? array->memory->count * array->memory->element_size : 0;
}

size_t job_bytes(const test_job *job)
{
    size_t bytes = 0;

    for (size_t i = 0; i < COUNT_OF(job->output); i++) {
        bytes += bytes_of(&job->output[i]);
    }
    return bytes;
}

unsigned char *job_snapshot(const test_job *job)
{
    unsigned char *copy = malloc(job_bytes(job) + 1), *to = copy;

    assert_non_null(copy);
    for (size_t i = 0; i < COUNT_OF(job->output); i++) {
        if (job->output[i].memory) {
            memcpy(to, job->output[i].memory->host, bytes_of(&job->output[i]));
            to += bytes_of(&job->output[i]);
        }
    }
    return copy;
}

void job_repeat(test_job *job, const unsigned char *given)
{
    const size_t runs = by_level(3, 100, 100, 1000);

    for (size_t i = 0; i < runs; i++) {
        job_poison(job);
        job_run(job, NULL);
        unsigned char *again = job_snapshot(job);
        assert_memory_equal(again, given, job_bytes(job));
        free(again);
    }
}
