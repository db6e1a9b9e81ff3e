#define _XOPEN_SOURCE 700

#include <signal.h>

#include "io/os_file.h"
#include "tool/cli/os_tool.h"

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
#define ENDING (sizeof ending / sizeof ending[0])

static volatile sig_atomic_t deferring, interrupted;

/* Handles the signal; calls only functions that a signal handler may call. */
static void on_end(int signal_number)
{
    if (deferring && !interrupted) {
        interrupted = signal_number;
        return;
    }
    os_file_remove_temporaries();
    signal(signal_number, SIG_DFL);
    raise(signal_number); /* it is blocked until this handler returns, and then ends the process */
}

void os_prepare_signals(void)
{
    struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_RESTART}, before;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < ENDING; i++)
        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL) /* nohup ignores SIGHUP */
            sigaction(ending[i], &action, NULL);
}

void os_defer_signals(void)
{
    deferring = 1;
}

int os_interrupted(void)
{
    return interrupted;
}

void os_end_by_signal(void)
{
    signal(interrupted, SIG_DFL);
    raise(interrupted);
}
