/* list FOLDER: writes the kernel sources that the planner would build on each GPU of targets.c for each problem of
 * problems.c into FOLDER, and on stdout a line for each kernel, its fields separated by tabs:
 *
 *   target   quick|full   planner|named   source file   kernel   work-group   options   problem
 *
 * "planner": the planner's own choice; "named": a solver that was asked for by name.  Fails if a plan cannot be
 * made, and if a plan by a matrix engine can be made for a GPU that has none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offline.h"

#define MAX_SOURCES 1024

static struct run {
    const char *folder, *target;
    clattn_context *context;
    const offline_problem *problem;
    int failures;
    struct {
        char *text, name[64];
    } sources[MAX_SOURCES];
    size_t source_count;
} run;

static void quit(const char *what, const char *which)
{
    fprintf(stderr, "list: %s %s\n", what, which);
    exit(1);
}

/* Returns the name, without its folders, of the file that the source was expanded from: the first line is
 * `#line 1 "FOLDER/NAME.cl"`. */
static void file_of(const char *source, char *name, size_t bytes)
{
    const char *first = strchr(source, '"'), *end = first ? strchr(first + 1, '"') : NULL;
    for (const char *at = first; end && at < end; at++)
        if (*at == '/')
            first = at;
    if (!end || (size_t)(end - first) > bytes)
        quit("no #line before", source);
    snprintf(name, bytes, "%.*s", (int)(end - first - 1), first + 1);
}

/* Returns the name of the source's file in the folder, which is written if the source is new. */
static const char *file_for(const char *source)
{
    char name[32], path[4096];
    size_t twins = 0;
    file_of(source, name, sizeof name);
    for (size_t i = 0; i < run.source_count; i++) {
        if (!strcmp(run.sources[i].text, source))
            return run.sources[i].name;
        twins += !strncmp(run.sources[i].name, name, strcspn(name, "."));
    }
    if (run.source_count == MAX_SOURCES)
        quit("too many sources at", name);
    char *file = run.sources[run.source_count].name;
    if (twins)
        snprintf(file, sizeof run.sources[0].name, "%.*s.%zu.cl", (int)strcspn(name, "."), name, twins + 1);
    else
        snprintf(file, sizeof run.sources[0].name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", run.folder, file);
    FILE *out = fopen(path, "w");
    if (!out || fputs(source, out) < 0 || fclose(out))
        quit("cannot write", path);
    run.sources[run.source_count++].text = strdup(source);
    return file;
}

static void print_kernel(void *user, const built_kernel *kernel)
{
    (void)user;
    printf("%s\t%s\t%s\t%s\t%s\t%zux%zux%zu\t%s\t%s\n", run.target, run.problem->quick ? "quick" : "full",
           run.problem->solver ? "named" : "planner", file_for(kernel->source), kernel->name, kernel->local[0],
           kernel->local[1], kernel->local[2], kernel->options, run.problem->about);
}

static void list_problem(void *user, const offline_problem *problem)
{
    clattn_plan *plan = NULL;
    char message[512] = "";
    (void)user;
    run.problem = problem;
    clattn_status status = problem->plan(run.context, problem, &plan);
    if (status != CLATTN_SUCCESS)
        clattn_context_message(run.context, message, sizeof message);
    /* gfx1030 has no matrix engine, attention has a kernel for NVIDIA's engine only, and wgmma exists only on
     * Hopper. */
    const char *solver = problem->solver ? problem->solver : "";
    bool refused = (!strcmp(solver, "matrix") &&
                    (!strcmp(run.target, "gfx1030") ||
                     (strncmp(run.target, "sm_", 3) && strstr(message, "for NVIDIA's engine alone")))) ||
                   (!strcmp(solver, "wgmma") && strcmp(run.target, "sm_90"));
    if (status == CLATTN_SUCCESS && !refused) {
        platform_visit_kernels(print_kernel, NULL);
    } else if (status != CLATTN_ERROR_UNSUPPORTED || !refused) {
        fprintf(stderr, "list: %s, %s: %s\n", run.target, problem->about, message);
        run.failures++;
    }
    clattn_plan_release(&plan);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        quit("usage: list", "FOLDER");
    run.folder = argv[1];
    for (size_t i = 0; i < target_count; i++) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
        char message[512];
        platform_use(&targets[i]);
        run.target = targets[i].name;
        params.get_proc = platform_get_proc;
        params.cache_mode = CLATTN_CACHE_MODE_OFF;
        params.self_check = CLATTN_SELF_CHECK_OFF; /* nothing is computed */
        if (clattn_context_create(&params, &run.context) != CLATTN_SUCCESS) {
            clattn_context_message(NULL, message, sizeof message);
            quit(targets[i].name, message);
        }
        problems_visit(list_problem, NULL);
        clattn_context_release(&run.context);
    }
    for (size_t i = 0; i < run.source_count; i++)
        free(run.sources[i].text);
    return run.failures != 0;
}
