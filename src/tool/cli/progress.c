#include "tool/cli/progress.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/os/os_threads.h"
#include "tool/cli/os_tool.h"

#define INTERVAL 0.2 /* seconds between two drawings */
#define LONG_ENOUGH 2.0

static struct {
    int depth; /* nesting of begin and end; only the outermost has a bar */
    bool running;
    thrd_t thread;
    mtx_t lock; /* guards all members below */
    cnd_t ended_changed;
    const char *label;
    double started, fraction, limit; /* started and limit in seconds; a limit of 0: none */
    char note[96];
    bool drawn, ended;
} bar;

static void erase(void)
{
    if (!bar.drawn)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar.drawn = false;
}

static void draw(double elapsed)
{
    char cells[31];
    double over = bar.limit > 0.0 ? elapsed / bar.limit : 0.0;
    double fraction = over > 1.0 ? 1.0 : over > bar.fraction ? over : bar.fraction;
    int filled = (int)(fraction * 30.0);
    for (int i = 0; i < 30; i++)
        cells[i] = i < filled ? '#' : '.';
    cells[30] = '\0';
    if (fraction > 0.0)
        fprintf(stderr, "\r%s [%s] %3d %%  %.0f s%s\033[K", bar.label, cells, (int)(fraction * 100.0), elapsed,
                bar.note);
    else
        fprintf(stderr, "\r%s  %.0f s%s\033[K", bar.label, elapsed, bar.note);
    fflush(stderr);
    bar.drawn = true;
}

static int draw_until_ended(void *user)
{
    (void)user;
    mtx_lock(&bar.lock);
    while (!bar.ended) {
        cnd_wait_seconds(&bar.ended_changed, &bar.lock, INTERVAL);
        /* No bar is drawn for work that is expected to end within two seconds. */
        double elapsed = os_seconds() - bar.started;
        bool foreseen = elapsed >= 0.3 && bar.fraction > 0.0 && elapsed / bar.fraction >= LONG_ENOUGH;
        if (!bar.ended && (elapsed >= LONG_ENOUGH || foreseen))
            draw(elapsed);
    }
    mtx_unlock(&bar.lock);
    return 0;
}

void progress_begin(const char *label)
{
    progress_begin_within(label, 0.0);
}

void progress_begin_within(const char *label, double seconds)
{
    if (bar.depth++ > 0 || !os_stderr_is_terminal())
        return;
    bar.label = label;
    bar.started = os_seconds();
    bar.fraction = 0.0;
    bar.limit = seconds;
    bar.note[0] = '\0';
    bar.drawn = bar.ended = false;
    /* If no thread can start, there is no bar, and the work goes on. */
    if (mtx_init(&bar.lock, mtx_plain) != thrd_success)
        return;
    if (cnd_init(&bar.ended_changed) == thrd_success) {
        bar.running = thrd_create(&bar.thread, draw_until_ended, NULL) == thrd_success;
        if (bar.running)
            return;
        cnd_destroy(&bar.ended_changed);
    }
    mtx_destroy(&bar.lock);
}

void progress_show(double fraction)
{
    if (!bar.running || bar.depth > 1)
        return;
    mtx_lock(&bar.lock);
    bar.fraction = fraction < 0.0 ? 0.0 : fraction > 1.0 ? 1.0 : fraction;
    mtx_unlock(&bar.lock);
}

void progress_note(const char *text)
{
    if (!bar.running || bar.depth > 1)
        return;
    mtx_lock(&bar.lock);
    snprintf(bar.note, sizeof bar.note, "  %s", text);
    mtx_unlock(&bar.lock);
}

void progress_hide(void)
{
    if (!bar.running)
        return;
    mtx_lock(&bar.lock);
    erase();
    mtx_unlock(&bar.lock);
}

void progress_end(void)
{
    if (--bar.depth > 0 || !bar.running)
        return;
    mtx_lock(&bar.lock);
    bar.ended = true;
    erase();
    cnd_signal(&bar.ended_changed);
    mtx_unlock(&bar.lock);
    thrd_join(bar.thread, NULL);
    bar.running = false;
    cnd_destroy(&bar.ended_changed);
    mtx_destroy(&bar.lock);
}
