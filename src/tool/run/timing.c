#include "tool/run/timing.h"

#include <stdlib.h>

#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"
#include "tool/tool.h"

/* Limits the samples of a fast operator, which would fill the memory before its time is over. */
#define MOST_RUNS 100000

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

timing timing_reduce(double *seconds, size_t count)
{
    qsort(seconds, count, sizeof *seconds, compare);
    double median = count % 2 == 1 ? seconds[count / 2] : 0.5 * (seconds[count / 2 - 1] + seconds[count / 2]);
    return (timing){.runs = count, .min = seconds[0], .median = median};
}

/* The part of the rule, up to 1, that is fulfilled after `runs` runs and `spent` seconds. */
static double fulfilled(const timing_rule *rule, size_t runs, double spent)
{
    if (rule->repeat != 0)
        return (double)runs / (double)rule->repeat;
    if (runs >= MOST_RUNS)
        return 1.0;
    double by_runs = (double)runs / (double)rule->minimum;
    double by_time = rule->budget > 0.0 ? spent / rule->budget : 1.0;
    return by_runs < by_time ? by_runs : by_time;
}

int timing_measure(const timing_rule *rule, const char *label, int (*run)(void *user), void *user, timing *result)
{
    size_t capacity = rule->repeat != 0 ? rule->repeat : MOST_RUNS;
    double *seconds = calloc(capacity, sizeof *seconds);
    if (seconds == NULL)
        return complain(TOOL_FAILED, "out of memory for the times of %zu runs", capacity);

    int status = TOOL_DONE;
    progress_begin(label);
    for (size_t i = 0; i < rule->warm_up; i++)
        TOOL_TRY(run(user));
    size_t runs = 0;
    double spent = 0.0;
    while (fulfilled(rule, runs, spent) < 1.0) {
        double before = os_seconds();
        TOOL_TRY(run(user));
        seconds[runs] = os_seconds() - before;
        spent += seconds[runs++];
        progress_show(fulfilled(rule, runs, spent));
    }
    *result = timing_reduce(seconds, runs);
fail:
    progress_end();
    free(seconds);
    return status;
}
