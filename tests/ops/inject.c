/* Calls of the system fail while each operator's plan is made, and while the plan is enqueued: the answer is a
 * status and a message, or the same bits as without the failure; everything comes back, and the same context, or
 * plan, works afterwards.
 *
 * Holds: clattn.h, "errors"; the status of a lack of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/backward_job.h"
#include "support/core/inject_run.h"
#include "support/ops/each.h"
#include "support/ops/image_case.h"
#include "support/ops/matmul_case.h"

/* Each asks for whatever its operator keeps lists or texts of. */
static const attention_case attentions[] = {
    {"everything", ALL, LITTLE, .mask = MASK_BOOL, .causal = true, .softcap = 20, .windowed = true, .left = 5,
     .right = 0, .alibi = 1, .sinks = true, .entropy = true, .list = {.keys = LIST(7, 9)}},
    {"pages of int8", ALL, .dim = {2, 2, 1, 5, 16, 8, 8}, .pages = 10, .page_size = 4, .cache = CLATTN_CACHE_KIND_PAGED,
     .type = {.key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_I8}, .key_groups = 1, .value_groups = 1},
};
static const matmul_case products[] = {
    {"bias, activation and addend", ALL, .m = 5, .n = 7, .k = 9, .bias = true, .activation = CLATTN_ACTIVATION_SWISH,
     .operand = OPERAND_ADD},
};
static const image_case images[] = {
    {"pack", ALL, .operation = CLATTN_IMAGE_OPERATION_PACK, .type = CL_UNORM_INT8, .channels = 3, .image = {5, 3},
     .region = {5, 3}},
    {"unpack", ALL, .operation = CLATTN_IMAGE_OPERATION_UNPACK, .type = CL_UNORM_INT8, .channels = 3, .image = {5, 3},
     .region = {5, 3}},
};

static const attention_case gradients = {
    "", ALL, LITTLE, .causal = true, .sinks = true, .entropy = true, .list = {.keys = LIST(7, 9)}};

/* ---- plans ---- */

typedef struct planning {
    const struct operator_calls *calls;
    const void *desc;
    const clattn_plan_options *options;
} planning;

/* Makes the plan in a context that has made none. */
static void make_plan(void *what, inject_failure how)
{
    const planning *p = what;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan *plan = NULL;
    params.get_proc = inject_get_proc;
    params.clblast = CLATTN_CLBLAST_MODE_NEVER;
    inject_mark(); /* the device's context holds its own */
    clattn_context *context = new_context_with(&params);
    inject_begin_failure(how);
    clattn_status status = p->calls->plan_create(context, p->desc, p->options, &plan);
    assert_int_equal(plan != NULL, status == CLATTN_SUCCESS);
    if (status != CLATTN_SUCCESS) {
        if (!inject_failed())
            assert_status(context, status, CLATTN_SUCCESS);
        inject_check_message(how.layer, context, status);
        inject_stop();
        assert_status(context, p->calls->plan_create(context, p->desc, p->options, &plan), CLATTN_SUCCESS);
    }
    clattn_plan_release(&plan);
    clattn_context_release(&context);
    inject_check_balance(how);
}

static void before_plan(const struct operator_calls *calls, const void *desc, const clattn_plan_options *options)
{
    clattn_plan *plan = NULL;
    /* What the solver refuses, the case expects. */
    if (calls->plan_create(device_context(), desc, options, &plan) != CLATTN_SUCCESS)
        return;
    clattn_plan_release(&plan);
    inject_each_system("plan", make_plan, &(planning){calls, desc, options});
}

/* ---- enqueues ---- */

typedef struct running {
    test_job *job;
    unsigned char *expected; /* the outputs without a failure */
} running;

static void enqueue(void *what, inject_failure how)
{
    running *r = what;
    cl_event event = NULL;
    job_poison(r->job);
    inject_refuse(device_context());
    inject_begin_failure(how);
    clattn_status status = job_enqueue(r->job, NULL, 0, NULL, &event);
    assert_int_equal(event != NULL, status == CLATTN_SUCCESS);
    if (status != CLATTN_SUCCESS) {
        if (!inject_failed())
            assert_status(device_context(), status, CLATTN_SUCCESS);
        inject_check_message(how.layer, device_context(), status);
        inject_stop();
        assert_status(device_context(), job_enqueue(r->job, NULL, 0, NULL, &event), CLATTN_SUCCESS);
    }
    assert_cl(clWaitForEvents(1, &event));
    assert_cl(clReleaseEvent(event));
    for (size_t i = 0; i < JOB_OUTPUTS; i++)
        if (r->job->output[i].memory)
            array_download(&r->job->output[i]);
    unsigned char *got = job_snapshot(r->job);
    if (r->expected)
        assert_memory_equal(got, r->expected, job_bytes(r->job));
    free(r->expected);
    r->expected = got;
}

static void before_run(test_job *job)
{
    running r = {.job = job};
    inject_each_system("enqueue", enqueue, &r);
    free(r.expected);
    job_poison(job); /* outputs that are inputs, too, have changed */
}

/* Attention's backward direction. */
static void backward_check(const void *test, const char *solver)
{
    struct backward_job j;
    backward_prepare(&j, test);
    assert_true(job_plan(&j.job, &attention_operator, &j.desc, solver, JOB_TAKEN));
    job_run(&j.job, NULL);
    backward_judge(&j);
    backward_release(&j);
}

int main(int argc, char **argv)
{
    static const char *const backward_solvers[] = {"generic", "cpu"};
    job_before = (job_hooks){before_plan, before_run};
    attention_add(attentions, COUNT_OF(attentions));
    for (size_t i = 0; i < COUNT_OF(backward_solvers); i++)
        suite_add_case(backward_check, &gradients, backward_solvers[i], "attention backward %s", backward_solvers[i]);
    matmul_add(products, COUNT_OF(products));
    each_operator_add();
    for (size_t i = 0; i < COUNT_OF(images); i++)
        for (size_t s = 0; s < IMAGE_SOLVERS; s++)
            suite_add_case(image_check, &images[i], image_solvers[s], "image %s: %s", image_solvers[s], images[i].rule);
    const int result = suite_run("ops_inject", argc, argv);
    /* The device's context has gone, too. */
    for (int i = 0; i < INJECT_KINDS; i++)
        if (inject_live((enum inject_kind)i) != 0) {
            printf("%ld %s reference(s) did not come back\n", inject_live((enum inject_kind)i),
                   inject_kind_name((enum inject_kind)i));
            inject_print_held(stderr);
            return 1;
        }
    return result;
}
