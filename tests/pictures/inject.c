/* Calls of the system fail while a picture is cleaned: the status and the message say so, everything comes back,
 * and the same context works afterwards.
 *
 * Holds: include/clattn/pictures.h, "a function that fails". */
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pictures/means.h"
#include "support/core/inject_run.h"
#include "support/harness.h"

static clattn_status use_denoiser(clattn_context *context)
{
    enum { HEIGHT = 5, WIDTH = 6 };
    unsigned char noisy[HEIGHT * WIDTH], clean[HEIGHT * WIDTH];
    clattn_denoiser_params params = CLATTN_DENOISER_PARAMS_INIT;
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_denoiser *denoiser = NULL;
    clattn_io_error error = {""};
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        noisy[i] = (unsigned char)(100 + i * 37 % 50);
    params.patch = 3;
    params.radius = 1;
    args.from = clattn_picture_8bit(noisy, HEIGHT, WIDTH, 1);
    args.to = clattn_picture_8bit(clean, HEIGHT, WIDTH, 1);
    clattn_status status = clattn_denoiser_create(context, &params, &denoiser, &error);
    assert_true((status == CLATTN_SUCCESS) == (denoiser != NULL));
    for (int round = 0; round < 2 && status == CLATTN_SUCCESS; round++)
        status = clattn_denoiser_run(denoiser, NULL, &args, &error);
    clattn_denoiser_release(&denoiser);
    if (status != CLATTN_SUCCESS) {
        assert_true(error.message[0] != '\0' && strchr(error.message, '\n') == NULL);
        return status;
    }
    for (size_t i = 0; i < HEIGHT * WIDTH; i++) {
        double wanted[3];
        means_of(&args.from, 3, 1, 10, i / WIDTH, i % WIDTH, wanted);
        assert_true(fabs(clean[i] - 255 * wanted[0]) <= 0.52);
    }
    return CLATTN_SUCCESS;
}

static clattn_context *working; /* in which calls of the system fail */

static void attempt(void *what, inject_failure how)
{
    (void)what;
    inject_begin_failure(how);
    const clattn_status status = use_denoiser(working);
    inject_stop();
    if (status != CLATTN_SUCCESS && !inject_failed())
        fail_msg("status %d without a failure", (int)status);
    if (status == CLATTN_SUCCESS)
        return;
    assert_true(status == CLATTN_ERROR_OUT_OF_MEMORY || status == CLATTN_ERROR_IO || status == CLATTN_ERROR_INTERNAL ||
                status == CLATTN_ERROR_OPENCL || status == CLATTN_ERROR_BUILD);
    assert_int_equal(use_denoiser(working), CLATTN_SUCCESS);
}

static void calls_of_the_system(void **state)
{
    (void)state;
    working = new_context();
    inject_each_system("denoiser", attempt, NULL);
    release_context(&working);
}

/* In the child of a fork a call says FORKED, and a release calls nothing. */
static void forked_child(void **state)
{
    unsigned char noisy[12] = {1, 2, 3}, clean[12];
    clattn_context *context = new_context();
    clattn_denoiser *denoiser = NULL;
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    int ended = -1;
    (void)state;
    args.from = clattn_picture_8bit(noisy, 3, 4, 1);
    args.to = clattn_picture_8bit(clean, 3, 4, 1);
    assert_status(context, clattn_denoiser_create(context, NULL, &denoiser, NULL), CLATTN_SUCCESS);
    assert_status(context, clattn_denoiser_run(denoiser, NULL, &args, NULL), CLATTN_SUCCESS);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        const clattn_status status = clattn_denoiser_run(denoiser, NULL, &args, NULL);
        clattn_denoiser_release(&denoiser);
        _exit(status == CLATTN_ERROR_FORKED ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &ended, 0) == child);
    assert_int_equal(ended, 0);
    assert_status(context, clattn_denoiser_run(denoiser, NULL, &args, NULL), CLATTN_SUCCESS);
    clattn_denoiser_release(&denoiser);
    release_context(&context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_the_system),
        cmocka_unit_test(forked_child),
    };
    return RUN_TESTS("pictures_inject", tests, argc, argv);
}
