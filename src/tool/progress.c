#include "progress.h"

#include <stdbool.h>
#include <stdio.h>

#include "os_tool.h"

static struct {
    const char *label; /* NULL: none running */
    double started, drawn_at;
    bool drawn;
    int depth; /* of begin and end pairs; only the outermost has a bar */
} bar;

void progress_begin(const char *label)
{
    if (bar.depth++ > 0)
        return;
    bar.label = os_stderr_is_terminal() ? label : NULL;
    bar.started = os_seconds();
    bar.drawn_at = bar.started;
    bar.drawn = false;
}

void progress_show(double fraction)
{
    if (bar.label == NULL || bar.depth > 1)
        return;
    double now = os_seconds();
    double elapsed = now - bar.started;
    /* Nothing that will be over within two seconds draws; what cannot be foreseen draws after a second. */
    bool long_enough = elapsed >= 1.0 || (elapsed >= 0.3 && fraction > 0.0 && elapsed / fraction >= 2.0);
    if (!long_enough || (bar.drawn && now - bar.drawn_at < 0.1))
        return;
    if (fraction < 0.0)
        fraction = 0.0;
    if (fraction > 1.0)
        fraction = 1.0;
    char cells[31];
    int filled = (int)(fraction * 30.0);
    for (int i = 0; i < 30; i++)
        cells[i] = i < filled ? '#' : '.';
    cells[30] = '\0';
    fprintf(stderr, "\r%s [%s] %3d %%  %.0f s\033[K", bar.label, cells, (int)(fraction * 100.0), elapsed);
    fflush(stderr);
    bar.drawn = true;
    bar.drawn_at = now;
}

void progress_hide(void)
{
    if (!bar.drawn)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar.drawn = false;
}

void progress_end(void)
{
    if (--bar.depth > 0)
        return;
    progress_hide();
    bar.label = NULL;
}
