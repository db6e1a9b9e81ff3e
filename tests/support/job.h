/* One prepared call of one operator: a plan by a named solver, its arguments, its guarded arrays. */
#ifndef TESTS_JOB_H
#define TESTS_JOB_H

#include "support/harness.h"
#include "support/operator.h"

#define JOB_OUTPUTS 8

typedef enum mask_kind {
    MASK_NONE,
    MASK_BOOL,      /* keys j % 3 == 1 never, others mostly, where the mask has several keys; otherwise random */
    MASK_FLOAT,     /* the same with −inf, and addends in [−2, 2] elsewhere */
    MASK_FINITE,    /* addends in [−2, 2] */
    MASK_FALSE,     /* boolean, nothing attended */
    MASK_INF,       /* float, all −inf */
    MASK_MINUS_1E4, /* float, all −1e4 */
    MASK_LOWEST     /* float, all −FLT_MAX */
} mask_kind;

typedef struct test_job {
    const struct operator_calls *calls; /* of the operator that the plan and the arguments are of */
    clattn_plan *plan;
    union {
        clattn_attention_args attention;
        clattn_softmax_args softmax;
        clattn_matmul_args matmul;
        clattn_mha_args mha;
        clattn_norm_args norm;
        clattn_neighbourhood_args neighbourhood;
        clattn_conv2d_args conv2d;
        clattn_pool_args pool;
        clattn_resize_args resize;
        clattn_rope_args rope;
        clattn_activation_args activation;
        clattn_cross_entropy_args cross_entropy;
        clattn_dropout_args dropout;
        clattn_embedding_args embedding;
        clattn_merge_args merge;
        clattn_kv_append_args kv_append;
        clattn_adam_args adam;
        clattn_square_sum_args square_sum;
        clattn_image_args image;
    } args;
    test_array input[24];           /* in an order of the operator's */
    test_array output[JOB_OUTPUTS]; /* those that the call writes; all but the first may be none */
    test_memory *memory[32];
    size_t memory_count;
    clattn_control *control; /* of the arguments, or NULL */
} test_job;

/* Gives the arguments a control of the job's own, which is released with it. */
void job_use_control(test_job *job, uint32_t max_launch_ms, bool cancellable);
void job_drop_control(test_job *job);

/* Makes an array that job_release gives back; CLATTN_DTYPE_NONE is float32. */
test_array job_array(test_job *job, array_role role, clattn_dtype dtype, int rank, const size_t *extent,
                     array_form form);
/* Makes, fills and uploads a mask; MASK_NONE: none.  Float masks are of type `dtype`. */
test_array job_mask(test_job *job, mask_kind kind, clattn_dtype dtype, int rank, const size_t *extent, array_form form,
                    uint64_t salt);
/* Makes and uploads a row-major float32 array of these values. */
test_array job_floats(test_job *job, int rank, const size_t *extent, const float *values);

/* Makes output[0], row-major float32, to be written as a whole. */
test_array *job_output(test_job *job, int rank, const size_t *extent);

/* Copies the elements of output[0], which job_run has read back. */
void job_copy_output(const test_job *job, float *values);

/* Makes and uploads `count` integers of type `dtype`. */
test_array job_integers(test_job *job, clattn_dtype dtype, size_t count, const int64_t *values);

/* Fills an array with numbers from [low, high), whole ones if `integers`, and uploads it. */
void job_fill(test_array *array, uint64_t salt, float low, float high, bool integers);

/* Makes input[0], which has these two elements in one row, and output[0] of the same shape, float32. */
void job_two_elements(test_job *job, int rank, float first, float second);
/* Waits for the context's queue, reads output[0] back, guards checked, and asserts that it has these two. */
void job_expect_two_elements(test_job *job, float first, float second);

test_memory *job_keep(test_job *job, test_memory *memory);
void job_release(test_job *job);

/* What a solver says to a description. */
typedef enum job_answer {
    JOB_TAKEN,
    JOB_LOOPS, /* taken, unless the device limits loops: job_refused_for_loops */
    JOB_REFUSED
} job_answer;

/* Makes the plan by the named solver and asserts that it is by this one, or, if the solver is to refuse or the device
 * lacks the sub-groups that it needs, that the answer is UNSUPPORTED and there is none.  Returns whether there is a
 * plan. */
bool job_plan(test_job *job, const struct operator_calls *calls, const void *desc, const char *solver,
              job_answer answer);
bool job_plan_with(test_job *job, const struct operator_calls *calls, const void *desc,
                   const clattn_plan_options *options, job_answer answer);

/* A solver may also refuse because of the device: llvmpipe (Mesa 22.3) stops a work-item's loops after 65,535
 * iterations.  Whether `status` (of plan_create) says that; only cases that ask for it accept it. */
bool job_refused_for_loops(clattn_status status);

/* Whether `solver` is one by the device's sub-groups and the device has none that OpenCL C 1.2 reaches. */
bool job_refused_sub_groups(const char *solver);

/* What a test does before job_plan makes a plan and before job_run enqueues one, unless NULL. */
typedef struct job_hooks {
    void (*plan)(const struct operator_calls *calls, const void *desc, const clattn_plan_options *options);
    void (*run)(test_job *job);
} job_hooks;
extern job_hooks job_before;

clattn_status job_enqueue(const test_job *job, cl_command_queue queue, cl_uint wait_count, const cl_event *wait_list,
                          cl_event *event);

/* Enqueues on `queue` (NULL: the context's), waits for the event and reads the outputs back, guards checked. */
void job_run(test_job *job, cl_command_queue queue);

/* Calls the operator's one-call form, which takes the planner's choice, and reads the outputs back, guards checked. */
void job_run_once(test_job *job, const struct operator_calls *calls, const void *desc);

/* Restores the poison of all outputs. */
void job_poison(const test_job *job);

/* The bytes of the outputs' memories, for comparing bit by bit: job_bytes of them, to be freed. */
unsigned char *job_snapshot(const test_job *job);
size_t job_bytes(const test_job *job);

/* Runs the job again and again; each run gives the bytes of the snapshot `given`. */
void job_repeat(test_job *job, const unsigned char *given);

#endif
