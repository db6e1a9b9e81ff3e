/* The search of `clattn tune`: one parameter at a time, each candidate run in turn with the best so far.
 *
 * A candidate replaces the best so far if both its median and its shortest time are lower by at least WORTH, and it
 * was the faster one in three rounds of four.  The search's result is then compared with the untuned choice by the
 * same rule, with more rounds, because the best of many noisy measurements is usually a lucky one.  A search that
 * runs out of time records its step, and a later one goes on from there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"
#include "tool/tune/tune.h"

#define WORTH 0.02      /* the fraction of the time that a change must save */
#define ROUNDS 9        /* the rounds of a candidate */
#define ROUNDS_TO_SEE 3 /* the rounds after which a candidate that is far off is dropped */
#define FAR 1.15
#define ROUNDS_LAST 21     /* the rounds of the last comparison */
#define ROUND_SECONDS 1e-3 /* the shortest round; it has several runs if need be */
#define MOST_RUNS 2000
#define MOST_TRIED 512
#define PASSES 2
#define MOST_VALUES 32
#define DISAGREEMENT 1e-3 /* relative to the largest element: two ways to sum floats */

/* A step is the place of a candidate in the search, whether it is measured or not: solvers in their order, then the
 * values of each one's parameters.  A search that runs out of time goes on from its step another time. */
#define STEPS_OF_SOLVER 65536

typedef struct search {
    tool_job *job;
    const char *const *solvers;
    const tune_past *past;
    uint64_t steps; /* steps taken */
    bool stepped;   /* at least one step was taken in this search */
    double deadline;
    tune_outcome *outcome;
    char (*tried)[TUNE_TEXT];
    size_t tried_count;
    int status; /* the first failure of a run */
} search;

/* Times one round; returns the seconds of one run. */
static double run(search *s, clattn_plan *plan, size_t runs)
{
    clattn_plan *own = s->job->plan;
    s->job->plan = plan;
    double before = os_seconds();
    for (size_t i = 0; i < runs && s->status == TOOL_DONE; i++) {
        clattn_status status = job_run(s->job);
        if (status != CLATTN_SUCCESS)
            s->status = device_check(s->job->device, status, NULL);
    }
    s->job->plan = own;
    return (os_seconds() - before) / (double)runs;
}

/* Whether the plan's result agrees with the best so far's, within rounding: CLBlast has no self-check. */
static bool agrees(search *s, clattn_plan *plan)
{
    size_t count = s->job->outputs[0].bytes / sizeof(float);
    float *data = malloc(2 * count * sizeof *data);
    double largest = 0, difference = 0;
    bool read = data != NULL;
    for (int i = 0; i < 2 && read; i++) {
        run(s, i == 0 ? s->outcome->best[0].plan : plan, 1);
        read = s->status == TOOL_DONE && job_read(s->job, 0, data + (size_t)i * count) == CLATTN_SUCCESS;
    }
    for (size_t i = 0; i < count && read; i++) {
        double a = data[i], off = fabs(a - data[count + i]);
        largest = fabs(a) > largest ? fabs(a) : largest;
        if (!(off <= difference))
            difference = isnan(off) ? HUGE_VAL : off;
    }
    free(data);
    return read && difference <= DISAGREEMENT * largest;
}

typedef struct contest {
    double a, b; /* medians */
    bool better; /* b is faster, beyond noise */
} contest;

/* Runs two plans in turn. */
static contest compete(search *s, clattn_plan *a, clattn_plan *b, size_t rounds)
{
    double times[2][ROUNDS_LAST];
    size_t wins = 0, done = 0;
    double once = run(s, a, 1);
    run(s, b, 1);
    size_t runs = once > 0 && once < ROUND_SECONDS ? (size_t)(ROUND_SECONDS / once) + 1 : 1;
    double fastest[2] = {1e30, 1e30};
    runs = runs > MOST_RUNS ? MOST_RUNS : runs;
    while (done < rounds && s->status == TOOL_DONE && (done < ROUNDS_TO_SEE || os_seconds() < s->deadline)) {
        /* The order alternates too: the second plan finds what the first has left in the caches. */
        for (int i = 0; i < 2; i++) {
            int which = (int)(done + (size_t)i) % 2;
            times[which][done] = run(s, which ? b : a, runs);
            if (times[which][done] < fastest[which])
                fastest[which] = times[which][done];
        }
        wins += times[1][done] < times[0][done];
        done++;
        if (done == ROUNDS_TO_SEE && fastest[1] > FAR * fastest[0])
            break;
    }
    if (s->status != TOOL_DONE)
        return (contest){0};
    timing first = timing_reduce(times[0], done), second = timing_reduce(times[1], done);
    return (contest){first.median, second.median,
                     second.median < first.median * (1 - WORTH) && second.min < first.min * (1 - WORTH) &&
                         4 * wins >= 3 * done};
}

static clattn_status make(const search *s, const char *solver, const char *text, clattn_plan **plan)
{
    clattn_plan_options options = job_options(solver);
    options.tuning = text;
    return s->job->create(s->job, &options, plan);
}

/* Whether this combination has not been tried yet; records it as tried. */
static bool is_new(search *s, const char *text)
{
    for (size_t i = 0; i < s->tried_count; i++)
        if (strcmp(s->tried[i], text) == 0)
            return false;
    if (s->tried_count == MOST_TRIED)
        return false;
    snprintf(s->tried[s->tried_count++], TUNE_TEXT, "%s", text);
    return true;
}

/* Copies `from` to `to` with `name` set to `value`; false if it does not fit. */
static bool change(const char *from, const char *name, int32_t value, char to[TUNE_TEXT])
{
    size_t length = strlen(name), put = 0;
    to[0] = '\0';
    for (const char *p = from; *p != '\0'; p += strcspn(p, " "), p += *p == ' ') {
        size_t bytes = strcspn(p, " ");
        if (strncmp(p, name, length) == 0 && p[length] == '=')
            continue;
        put += (size_t)snprintf(to + put, TUNE_TEXT - put, "%s%.*s", put > 0 ? " " : "", (int)bytes, p);
        if (put >= TUNE_TEXT)
            return false;
    }
    put += (size_t)snprintf(to + put, TUNE_TEXT - put, "%s%s=%d", put > 0 ? " " : "", name, (int)value);
    return put < TUNE_TEXT;
}

/* Takes a step; true if its candidate, which may need so many seconds, is to be measured: no earlier search did, and
 * time is left.  The first candidate is always measured, so that every search makes progress. */
static bool step(search *s, double seconds)
{
    if (s->outcome->cut || s->status != TOOL_DONE || s->steps++ < s->past->steps)
        return false;
    if (!s->stepped || os_seconds() + seconds < s->deadline) {
        s->stepped = true;
        return true;
    }
    s->outcome->cut = true;
    s->outcome->steps = s->steps - 1;
    return false;
}

/* Measures one candidate against the best so far; true if the candidate has replaced it. */
static bool try_candidate(search *s, tune_best *best, const char *name, int32_t value)
{
    char text[TUNE_TEXT];
    clattn_plan *plan = NULL;
    if (!change(best->text, name, value, text) || !is_new(s, text))
        return false;
    if (make(s, best->solver, text, &plan) != CLATTN_SUCCESS)
        return false; /* a combination that the solver does not take */
    contest result = compete(s, best->plan, plan, ROUNDS);
    s->outcome->candidates++;
    if (s->status == TOOL_DONE && result.better) {
        clattn_plan *old = best->plan;
        best->plan = plan;
        plan = old;
        best->seconds = result.b;
        snprintf(best->text, TUNE_TEXT, "%s", text);
    }
    clattn_plan_release(&plan);
    return s->status == TOOL_DONE && result.better;
}

/* Tries all values of all parameters, one after the other, and again while any has improved: one may move the
 * others. */
static void descend(search *s, tune_best *best)
{
    bool moved = true;
    s->tried_count = 0;
    is_new(s, "");
    for (int pass = 0; pass < PASSES && moved; pass++) {
        moved = s->steps < s->past->steps && best->text[0] != '\0';
        for (size_t i = 0; i < clattn_plan_parameter_count(best->plan); i++) {
            clattn_plan_parameter parameter = {.size = sizeof parameter};
            char name[64];
            int32_t allowed[MOST_VALUES], value;
            size_t count = 0;
            if (clattn_plan_parameter_info(best->plan, i, &parameter) != CLATTN_SUCCESS)
                continue;
            /* The values are copied, because their plan is released when a better one comes. */
            snprintf(name, sizeof name, "%s", parameter.name);
            value = parameter.value;
            for (size_t j = 0; j < parameter.allowed_count && count < MOST_VALUES; j++)
                allowed[count++] = parameter.allowed[j];
            for (size_t j = 0; j < count; j++)
                if (step(s, 0) && allowed[j] != value)
                    moved = try_candidate(s, best, name, allowed[j]) || moved;
        }
    }
}

/* The parameters that an earlier search found for a solver, or "". */
static const char *past_text(const search *s, const char *solver)
{
    for (size_t i = 0; i < TUNE_SOLVERS && s->solvers[i] != NULL; i++)
        if (strcmp(s->solvers[i], solver) == 0)
            return s->past->text[i];
    return "";
}

/* Starts with the solver's own choice of parameters, or what an earlier search found, if the solver takes the
 * problem. */
static bool begin_solver(search *s, const char *solver)
{
    const char *text = past_text(s, solver);
    tune_best *best = &s->outcome->best[s->outcome->count];
    *best = (tune_best){.solver = solver};
    if (s->outcome->count == TUNE_SOLVERS)
        return false;
    if (text[0] != '\0' && make(s, solver, text, &best->plan) == CLATTN_SUCCESS)
        snprintf(best->text, TUNE_TEXT, "%s", text);
    else if (make(s, solver, "", &best->plan) != CLATTN_SUCCESS)
        return false;
    s->outcome->count++;
    s->outcome->candidates++;
    return true;
}

static void swap(tune_best *a, tune_best *b)
{
    tune_best c = *a;
    *a = *b;
    *b = c;
}

/* Searches one solver, if time is left or an earlier search had it. */
static void search_solver(search *s, const char *solver)
{
    tune_outcome *outcome = s->outcome;
    bool original = strcmp(solver, outcome->original) == 0;
    if (!original)
        step(s, 0);
    if (outcome->cut || s->status != TOOL_DONE || !begin_solver(s, solver))
        return;
    tune_best *best = &outcome->best[outcome->count - 1];
    if (outcome->count == 1) {
        descend(s, best);
        return;
    }
    if (strcmp(solver, "clblast") == 0 && !agrees(s, best->plan)) {
        clattn_plan_release(&best->plan);
        outcome->count--;
        return;
    }
    contest result = compete(s, outcome->best[0].plan, best->plan, ROUNDS);
    best->seconds = result.b;
    if (s->status == TOOL_DONE && result.b < 4 * result.a)
        descend(s, best);
    result = compete(s, outcome->best[0].plan, best->plan, ROUNDS);
    if (s->status == TOOL_DONE && result.better)
        swap(&outcome->best[0], best);
}

/* Searches the untuned choice's solver first, then the others: the parameters only of those that are not far off. */
static void search_all(search *s)
{
    search_solver(s, s->outcome->original);
    for (size_t i = 0; s->solvers[i] != NULL; i++) {
        s->steps = (i + 1) * STEPS_OF_SOLVER;
        if (strcmp(s->solvers[i], s->outcome->original) != 0)
            search_solver(s, s->solvers[i]);
    }
}

/* Compares the search's result with the untuned choice, which stays unless the result is faster beyond noise. */
static void judge(search *s)
{
    tune_outcome *outcome = s->outcome;
    tune_best *found = &outcome->best[0];
    bool same = strcmp(found->solver, outcome->original) == 0 && found->text[0] == '\0';
    s->deadline += 1e9; /* a search that ran out of time is judged, too */
    contest result = compete(s, s->job->plan, found->plan, ROUNDS_LAST);
    if (s->status != TOOL_DONE)
        return;
    outcome->original_seconds = result.a;
    found->seconds = result.b;
    if (!same && result.better) {
        outcome->gain = 1 - result.b / result.a;
        return;
    }
    for (size_t i = 0; i < outcome->count; i++)
        if (strcmp(outcome->best[i].solver, outcome->original) == 0) {
            swap(&outcome->best[i], &outcome->best[0]);
            break;
        }
    clattn_plan_release(&found->plan);
    found->text[0] = '\0';
    found->seconds = result.a;
    clattn_status status = make(s, found->solver, "", &found->plan);
    if (status != CLATTN_SUCCESS)
        s->status = device_check(s->job->device, status, NULL);
}

int tune_search(tool_job *job, const char *const *solvers, const tune_past *past, double deadline,
                tune_outcome *outcome)
{
    search s = {.job = job, .solvers = solvers, .past = past, .deadline = deadline, .outcome = outcome};
    *outcome = (tune_outcome){0};
    snprintf(outcome->original, sizeof outcome->original, "%s", clattn_plan_solver(job->plan));
    s.tried = calloc(MOST_TRIED, sizeof *s.tried);
    if (s.tried == NULL)
        return complain(TOOL_FAILED, "out of memory for the candidates");
    search_all(&s);
    if (s.status == TOOL_DONE && outcome->count > 0)
        judge(&s);
    free(s.tried);
    return s.status;
}

void tune_outcome_release(tune_outcome *outcome)
{
    for (size_t i = 0; i < outcome->count; i++)
        clattn_plan_release(&outcome->best[i].plan);
    outcome->count = 0;
}
