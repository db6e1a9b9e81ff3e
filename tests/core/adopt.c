/* The library uses an application's context, device and queue as they are, retains them while it needs them, and
 * returns their reference counts; several threads may enqueue at once; events alone give order. */
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/attention/small.h"
#include "support/core/references.h"
#include "support/core/threads.h"

struct application {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    struct reference_counts counts;
};

/* Makes an OpenCL context and queue on the device under test. */
static struct application application_start(void)
{
    struct application application;
    cl_int code;
    clattn_context *chooser = new_context();
    application.device = clattn_context_opencl_device(chooser);
    release_context(&chooser);
    application.context = clCreateContext(NULL, 1, &application.device, NULL, NULL, &code);
    assert_cl(code);
    application.queue = clCreateCommandQueue(application.context, application.device, 0, &code);
    assert_cl(code);
    application.counts = reference_counts_of(application.context, application.queue);
    return application;
}

/* Fails unless all references have come back. */
static void application_end(struct application *application)
{
    assert_references(application->context, application->queue, application->counts);
    assert_cl(clReleaseCommandQueue(application->queue));
    assert_cl(clReleaseContext(application->context));
}

static clattn_context_params adopting(const struct application *application, bool with_queue)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.opencl_context = application->context;
    params.opencl_device = application->device;
    params.queue = with_queue ? application->queue : NULL;
    return params;
}

static void adopted_objects_are_used_as_they_are(void **state)
{
    struct application application = application_start();
    clattn_context_params params = adopting(&application, true);
    (void)state;
    clattn_context *context = new_context_with(&params);
    assert_ptr_equal(clattn_context_opencl_context(context), application.context);
    assert_ptr_equal(clattn_context_opencl_device(context), application.device);
    assert_ptr_equal(clattn_context_queue(context), application.queue);
    assert_true(reference_counts_of(application.context, application.queue).context > application.counts.context);
    assert_true(reference_counts_of(application.context, application.queue).queue > application.counts.queue);
    release_context(&context);
    assert_references(application.context, application.queue, application.counts);
    params = adopting(&application, false);
    context = new_context_with(&params);
    assert_non_null(clattn_context_queue(context));
    assert_ptr_not_equal(clattn_context_queue(context), application.queue);
    release_context(&context);
    application_end(&application);
}

/* Work is done by a plan and by the one-call form on an adopted queue and on another one; plan and context are released
 * in both orders. */
static void references_come_back_after_work(void **state)
{
    struct application application = application_start();
    (void)state;
    for (int order = 0; order < 3; order++) {
        struct small_attention problem;
        small_attention_open(&problem, application.context);
        clattn_context_params params = adopting(&application, order < 2);
        clattn_context *context = new_context_with(&params);
        clattn_plan *plan = NULL;
        cl_event event = NULL;
        assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
        assert_status(context, clattn_attention_enqueue(plan, application.queue, &problem.args, 0, NULL, &event),
                      CLATTN_SUCCESS);
        assert_non_null(event);
        small_attention_check(&problem, application.queue);
        assert_cl(clReleaseEvent(event));
        assert_status(context,
                      clattn_attention_run(context, application.queue, &problem.desc, &problem.args, 0, NULL, NULL),
                      CLATTN_SUCCESS);
        small_attention_check(&problem, application.queue);
        if (order == 0)
            clattn_plan_release(&plan);
        release_context(&context);
        clattn_plan_release(&plan);
        small_attention_release(&problem);
        assert_references(application.context, application.queue, application.counts);
    }
    application_end(&application);
}

/* Plan and context are released right after the enqueue, which does not disturb the work that goes on. */
static void enqueued_work_outlives_plan_and_context(void **state)
{
    struct application application = application_start();
    struct small_attention problem;
    (void)state;
    small_attention_open(&problem, application.context);
    cl_event user_event = new_user_event(application.context), done = NULL;
    clattn_context_params params = adopting(&application, true);
    clattn_context *context = new_context_with(&params);
    clattn_plan *plan = NULL;
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 1, &user_event, &done), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    release_context(&context);
    cl_int execution = 0;
    assert_cl(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof execution, &execution, NULL));
    assert_true(execution != CL_COMPLETE); /* the work still waits for the user event, so no call above has waited */
    assert_cl(clSetUserEventStatus(user_event, CL_COMPLETE));
    assert_cl(clWaitForEvents(1, &done));
    small_attention_check(&problem, application.queue);
    assert_cl(clReleaseEvent(user_event));
    assert_cl(clReleaseEvent(done));
    small_attention_release(&problem);
    application_end(&application);
}

static void references_come_back_after_failures(void **state)
{
    struct application application = application_start();
    struct small_attention problem;
    (void)state;
    clattn_context_params params = adopting(&application, true);
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    params.kernel_dir = "/nonexistent";
    assert_int_not_equal(clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_references(application.context, application.queue, application.counts);
    small_attention_open(&problem, application.context);
    params.kernel_dir = NULL;
    context = new_context_with(&params);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = "nonsense";
    assert_int_not_equal(clattn_attention_plan_create(context, &problem.desc, &options, &plan), CLATTN_SUCCESS);
    assert_null(plan);
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    problem.args.output.offset = 1;
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_BUFFER_TOO_SMALL);
    problem.args.output.offset = 0;
    problem.args.query.buffer = NULL;
    assert_int_not_equal(clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    release_context(&context);
    small_attention_release(&problem);
    application_end(&application);
}

static void objects_that_do_not_belong_together_are_refused(void **state)
{
    struct application application = application_start(), other = application_start();
    clattn_context *context = NULL;
    (void)state;
    clattn_context_params params = adopting(&application, true);
    params.queue = other.queue;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_WRONG_CONTEXT);
    params = adopting(&application, false);
    params.queue = other.queue;
    params.opencl_device = NULL;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_WRONG_CONTEXT);
    params = adopting(&application, false);
    params.opencl_context = NULL;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    params = adopting(&application, true);
    params.opencl_context = NULL;
    params.opencl_device = NULL;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    params = adopting(&application, true);
    params.device = "0";
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(context);
    application_end(&application);
    application_end(&other);
}

/* Without a device it is the queue's, or the context's first. */
static void the_device_is_found(void **state)
{
    struct application application = application_start();
    (void)state;
    for (int queue = 0; queue < 2; queue++) {
        clattn_context_params params = adopting(&application, queue);
        params.opencl_device = NULL;
        clattn_context *context = new_context_with(&params);
        assert_ptr_equal(clattn_context_opencl_device(context), application.device);
        release_context(&context);
    }
    application_end(&application);
}

/* Several kernels are chained by events, so out-of-order queues work.  The query arrives through an event of another
 * queue, and the result leaves through one. */
static void out_of_order_queues_are_ordered_by_events(void **state)
{
    struct application application = application_start();
    (void)state;
    clattn_context_params params = adopting(&application, true);
    clattn_context *context = new_context_with(&params);
    cl_command_queue queue = new_queue(context, true);
    if (!queue) { /* devices need not support out-of-order queues */
        release_context(&context);
        application_end(&application);
        skip();
    }
    struct small_attention problem;
    small_attention_open(&problem, application.context);
    clattn_plan *plan = NULL;
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    size_t bytes = problem.count * sizeof(float);
    float *result = malloc(bytes);
    assert_non_null(result);
    for (int round = 0; round < (is_tiny() ? 2 : 50); round++) {
        cl_event user_event = new_user_event(application.context), done = NULL, read = NULL;
        assert_status(context, clattn_attention_enqueue(plan, queue, &problem.args, 1, &user_event, &done),
                      CLATTN_SUCCESS);
        assert_cl(clEnqueueReadBuffer(queue, problem.output, CL_FALSE, 0, bytes, result, 1, &done, &read));
        assert_cl(clSetUserEventStatus(user_event, CL_COMPLETE));
        assert_cl(clWaitForEvents(1, &read));
        assert_true(largest_difference(result, problem.expected, problem.count) <= 2e-6);
        clReleaseEvent(user_event);
        clReleaseEvent(done);
        clReleaseEvent(read);
    }
    free(result);
    clattn_plan_release(&plan);
    release_context(&context);
    small_attention_release(&problem);
    assert_cl(clReleaseCommandQueue(queue));
    application_end(&application);
}

struct worker {
    clattn_context *context;
    clattn_plan *plan;              /* NULL: the one-call form is used */
    struct small_attention problem; /* with its own buffers */
    cl_command_queue queue;
    int rounds;
    const char *trouble;
};

/* Runs on a thread, so it reports trouble instead of asserting: cmocka's failures jump and must stay on the main
 * thread. */
static int work(void *user)
{
    struct worker *worker = user;
    const struct small_attention *problem = &worker->problem;
    float result[256];
    size_t bytes = problem->count * sizeof(float);
    for (int round = 0; round < worker->rounds && !worker->trouble; round++) {
        cl_event done = NULL;
        clattn_status status =
            worker->plan
                ? clattn_attention_enqueue(worker->plan, worker->queue, &problem->args, 0, NULL, &done)
                : clattn_attention_run(worker->context, worker->queue, &problem->desc, &problem->args, 0, NULL, &done);
        if (status != CLATTN_SUCCESS)
            worker->trouble = clattn_status_string(status);
        else if (clEnqueueReadBuffer(worker->queue, problem->output, CL_TRUE, 0, bytes, result, 1, &done, NULL))
            worker->trouble = "the result could not be read";
        else if (!(largest_difference(result, problem->expected, problem->count) <= 2e-6))
            worker->trouble = "the result is wrong";
        if (done)
            clReleaseEvent(done);
        memset(result, 0xff, sizeof result);
        clEnqueueWriteBuffer(worker->queue, problem->output, CL_TRUE, 0, bytes, result, 0, NULL, NULL);
    }
    return 0;
}

static void run_workers(clattn_context *context, clattn_plan *plan)
{
    enum { THREADS = 4 };
    struct worker workers[THREADS];
    thrd_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.context = context, .plan = plan, .rounds = is_tiny() ? 2 : 100};
        small_attention_open(&workers[i].problem, clattn_context_opencl_context(context));
        workers[i].queue = new_queue(context, false);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thrd_create(&threads[i], work, &workers[i]), thrd_success);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thrd_join(threads[i], NULL), thrd_success);
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].trouble)
            fail_msg("thread %d: %s", i, workers[i].trouble);
        small_attention_release(&workers[i].problem);
        assert_cl(clReleaseCommandQueue(workers[i].queue));
    }
}

/* Any number of threads may enqueue one plan, here on a queue for each. */
static void threads_share_a_plan(void **state)
{
    if (is_tiny())
        skip(); /* Oclgrind 21.10 ends the process when kernels run on two threads at once */
    struct application application = application_start();
    struct small_attention problem;
    clattn_context_params params = adopting(&application, true);
    clattn_plan *plan = NULL;
    (void)state;
    small_attention_prepare(&problem);
    clattn_context *context = new_context_with(&params);
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    run_workers(context, plan);
    clattn_plan_release(&plan);
    release_context(&context);
    small_attention_release(&problem);
    application_end(&application);
}

/* The first calls of several threads may all find that the plan has not been made. */
static void threads_share_the_one_call_form(void **state)
{
    if (is_tiny())
        skip(); /* Oclgrind 21.10 ends the process when kernels run on two threads at once */
    struct application application = application_start();
    clattn_context_params params = adopting(&application, false);
    (void)state;
    clattn_context *context = new_context_with(&params);
    run_workers(context, NULL);
    release_context(&context);
    application_end(&application);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopted_objects_are_used_as_they_are),
        cmocka_unit_test(references_come_back_after_work),
        cmocka_unit_test(enqueued_work_outlives_plan_and_context),
        cmocka_unit_test(references_come_back_after_failures),
        cmocka_unit_test(objects_that_do_not_belong_together_are_refused),
        cmocka_unit_test(the_device_is_found),
        cmocka_unit_test(out_of_order_queues_are_ordered_by_events),
        cmocka_unit_test(threads_share_a_plan),
        cmocka_unit_test(threads_share_the_one_call_form),
    };
    return RUN_TESTS("adopt", tests, argc, argv);
}
