/* The plan's members that all operators share, and the contract of solvers. */
#ifndef CLATTN_PLAN_PLAN_H
#define CLATTN_PLAN_PLAN_H

#include "clattn/plan.h"
#include "plan/context.h"

struct operator_type;

#define PLAN_KERNELS 4

/* A kernel of a plan.  Its arguments are `pointers` buffers, then one struct of `args_bytes` bytes whose
 * `batch` (or `rows`) of 0 makes it return at once. */
struct plan_kernel {
    const char *name, *file;
    char *options; /* the build options of `file` */
    struct program *program;
    cl_kernel handle;
    cl_ulong local_bytes, private_bytes; /* memory that the kernel takes, 0 if the driver does not tell */
    cl_uint pointers;
    cl_uint images; /* the first `images` of the pointers are images */
    size_t args_bytes;
    size_t local[3];
    bool prepares; /* it makes ready what the plan's other kernels read, in little time */
    size_t widest; /* work-items in the longest dimension of the largest launch; set by the operator */
};

/* The first member of every operator's own plan struct.  A plan does not change once it is made, except for its
 * count of references; enqueues take it as const. */
struct clattn_plan {
    atomic_int references;
    const struct operator_type *type;
    clattn_context *context; /* retained */
    mtx_t *lock;             /* guards setting kernel arguments and enqueueing */
    struct plan_kernel kernels[PLAN_KERNELS];
    size_t kernel_count; /* filled entries of `kernels` */
    size_t launches;     /* the most kernels that one enqueue launches */
    size_t workspace;    /* bytes */
    double efficiency;   /* share of the device's peak that a kernel reaches at least, for short launches; 0: unknown */
    const char *solver;
    const struct solver *trying;     /* the solver whose `prepare` runs */
    struct source_snippets snippets; /* the user's code in the kernels; the operator owns the texts */
    struct strbuf explain;
    struct tuning tuning;             /* the solver's parameters */
    char *wisdom_key;                 /* the wisdom key of the shape bucket; NULL: the operator is not tuned */
    void (*clear)(clattn_plan *plan); /* frees what the operator added; may be NULL */
};

/* Allocates a zeroed plan of type->bytes.plan bytes, with one reference. */
clattn_status plan_new(clattn_context *context, const struct operator_type *type, clattn_plan **plan);
void plan_retain(clattn_plan *plan);

/* Builds `file` with `options` (taken over and cleared), creates kernel `name` and checks that a work-group
 * of local[0]*local[1]*local[2] items and its local memory fit the device (UNSUPPORTED if not).  An enqueue launches the
 * kernel once, with at most the work-groups in `groups`; NULL: the caller sets both. */
clattn_status plan_add_kernel(clattn_plan *plan, const char *file, struct strbuf *options, const char *name,
                              cl_uint pointers, size_t args_bytes, const size_t local[3], const size_t groups[3]);

/* Drops the kernels again, so that another solver can try. */
void plan_drop_kernels(clattn_plan *plan);

/* Records how large the kernel's launches may become, in work-groups. */
void plan_kernel_largest(struct plan_kernel *kernel, const size_t groups[3]);

/* Runs each kernel once with nothing to do on the context's private queue and waits.  No lock may be held. */
clattn_status plan_warm(clattn_plan *plan);

/* Takes the arrays of launches that have ended out of the plan's kernels. */
clattn_status plan_forget_arrays(const clattn_plan *plan);

/* One run of an operator's self-check. */
struct self_check {
    const clattn_plan *plan;
    bool always;    /* the context's params ask for a check of everything that can be compared */
    size_t blamed;  /* set by the check: which of the plan's kernels disagrees */
    bool unchecked; /* set by the check: there is nothing to compare the kernels with */
};

/* Runs the operator's self-check on the plan, unless its programs have passed one on this device or the context's params
 * exclude it.  If the kernels disagree, only the blamed kernel's program is distrusted: the other programs may be shared
 * with solvers that agree. */
clattn_status plan_self_check(const clattn_plan *plan);

/* Saves the plan's programs; call it after plan_warm and plan_self_check.  `trial` is program_save's. */
void plan_save(const clattn_plan *plan, bool trial);

/* If the pool can never lend the plan's workspace, adds that to `explain` and logs it. */
void plan_explain_workspace(clattn_plan *plan);

/* Returns SUCCESS if `plan` is of that operator and of this process; otherwise reports INVALID_ARGUMENT or FORKED. */
clattn_status plan_check(const clattn_plan *plan, const struct operator_type *type);

/* A problem that is offered to a solver. */
struct offer {
    const struct operator_type *type;
    const struct solver *solver;
    const clattn_context *context;
    const struct capabilities *caps; /* the context's device's */
    const void *problem;
    bool forced; /* asked for by name or by wisdom */
};

/* One way to compute an operator.  `prepare` declares the numbers of its geometry that are worth measuring with
 * tuning_parameter(&plan->tuning, ...), which replaces the solver's choice by the value of wisdom or the caller.
 * `prepare` returns UNSUPPORTED for a combination that the solver does not take: any value that it is given may be
 * hostile. */
struct solver {
    const char *name; /* a name with "emulated-" in front is for tests: found by name, never listed */
    /* Why the solver does not take the problem, a static string, or NULL.  Only capabilities decide: a solver that is forced
     * must not refuse by mere preference.  If the function is NULL, the solver takes every problem. */
    const char *(*refuse)(const struct offer *offer);
    /* Chooses the geometry and adds kernels to the plan, whose operator part holds the problem.  After a failure the
     * next solver is tried, unless this one was asked for by name or host memory is out. */
    clattn_status (*prepare)(clattn_plan *plan);
    int variant; /* what solvers that share these functions differ in; `prepare` finds it through plan->trying */
    /* Why only a caller who names the solver gets it on this device, and wisdom does not: it has never been tried on
     * such hardware, or only imitates that hardware.  A static string, or NULL; the function may be NULL. */
    const char *(*only_named)(const clattn_context *context);
    double efficiency; /* what `prepare` finds in plan->efficiency */
    /* Whether the context's params prefer this solver: wisdom for another one is then ignored.  NULL: no param
     * concerns it. */
    bool (*preferred)(const clattn_context *context);
};

/* Refusals that solvers share: a reason, or NULL.  refuse_loops refuses a work-item that runs more loop iterations
 * in all than the device allows; refuse_all_but_cpu and refuse_cpu are preferences, which `forced` overrides. */
const char *refuse_loops(const struct capabilities *caps, double iterations);
const char *refuse_all_but_cpu(const struct offer *offer);
const char *refuse_cpu(const struct offer *offer);

/* Lets the first of the operator's solvers that takes the plan's problem prepare and warm the plan; fills plan->solver and
 * ->explain. */
clattn_status plan_choose(clattn_plan *plan, const clattn_plan_options *options);

/* Returns SUCCESS if one of the operator's solvers takes the problem; otherwise UNSUPPORTED with the reason of the
 * last one. */
clattn_status plan_supports(const clattn_context *context, const struct operator_type *type, const void *problem,
                            const char **reason);

/* Sets what plan_create gives to NULL: the plan, and the job that the options ask for. */
void plan_results_clear(const clattn_plan_options *options, clattn_plan **plan);

/* Copies the caller's options and fills in the defaults; a failure is reported on the context. */
clattn_status plan_options_read(clattn_context *context, const clattn_plan_options *given,
                                clattn_plan_options *options);

#endif
