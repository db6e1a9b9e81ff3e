/* The plan's inside: what all operators share. */
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
    char *options; /* what `file` is built with */
    struct program *program;
    cl_kernel handle;
    cl_ulong local_bytes, private_bytes; /* that it takes, where the driver tells; otherwise 0 */
    cl_uint pointers;
    cl_uint images; /* so many of the pointers, the first ones, are images */
    size_t args_bytes;
    size_t local[3];
    size_t widest; /* work-items in the longest dimension of the largest launch; set by the operator */
};

/* The first member of every operator's own plan struct.  Nothing in it changes once the plan is made, except the count of
 * references; enqueues see it as const. */
struct clattn_plan {
    atomic_int references;
    const struct operator_type *type;
    clattn_context *context; /* retained */
    mtx_t *lock;             /* over setting kernel arguments and enqueueing */
    struct plan_kernel kernels[PLAN_KERNELS];
    size_t kernel_count; /* filled entries of `kernels` */
    size_t launches;     /* kernels one enqueue launches at the most */
    size_t workspace;    /* bytes */
    bool reads_output;   /* its kernels read the output that they have written */
    const char *solver;
    struct source_snippets snippets; /* what the user adds to its kernels; the texts are the operator's */
    struct strbuf explain;
    struct tuning tuning;             /* the solver's parameters */
    char *wisdom_key;                 /* of its shape bucket; NULL: the operator is not tuned */
    void (*clear)(clattn_plan *plan); /* what the operator added, or NULL */
};

/* A zeroed plan of type->plan_bytes bytes, with one reference. */
clattn_status plan_new(clattn_context *context, const struct operator_type *type, clattn_plan **plan);
void plan_retain(clattn_plan *plan);

/* Builds `file` with `options` (taken over and cleared), creates kernel `name` and checks that a work-group
 * of local[0]*local[1]*local[2] items and its local memory fit the device (UNSUPPORTED if not). */
clattn_status plan_add_kernel(clattn_plan *plan, const char *file, struct strbuf *options, const char *name,
                              cl_uint pointers, size_t args_bytes, const size_t local[3]);

/* Drops the kernels again, so that another solver can try. */
void plan_drop_kernels(clattn_plan *plan);

/* Notes how large the kernel's launches may become, in work-groups. */
void plan_kernel_largest(struct plan_kernel *kernel, const size_t groups[3]);

/* Runs each kernel once with nothing to do on the context's private queue and waits.  No lock may be held. */
clattn_status plan_warm(clattn_plan *plan);

/* One run of an operator's self-check. */
struct self_check {
    const clattn_plan *plan;
    bool always;    /* the context's params ask for a check of everything that can be compared */
    size_t blamed;  /* the check says which of the plan's kernels disagrees, */
    bool unchecked; /* and whether there is nothing to compare the kernels with */
};

/* Runs the operator's self-check on the plan, unless its programs have passed one on this device or the context's params
 * exclude it.  If the kernels disagree, only the blamed kernel's program is distrusted: the other programs may be shared
 * with solvers that agree. */
clattn_status plan_self_check(const clattn_plan *plan);

/* Saves the plan's programs; after plan_warm and plan_self_check.  `trial` as of program_save. */
void plan_save(const clattn_plan *plan, bool trial);

/* If the pool can never lend the plan's workspace, adds that to `explain` and logs it. */
void plan_explain_workspace(clattn_plan *plan);

/* SUCCESS if `plan` is of that operator and of this process; otherwise INVALID_ARGUMENT or FORKED, reported. */
clattn_status plan_check(const clattn_plan *plan, const struct operator_type *type);

/* One way to do an operator.  `prepare` declares the numbers of its geometry that are worth measuring by
 * tuning_parameter(&plan->tuning, ...), which exchanges its own choice for what wisdom or the caller gives, and returns
 * UNSUPPORTED for a combination that it does not take: everything it is given may be hostile. */
struct solver {
    const char
        *name; /* one that begins with "emulated-" is for tests: only by name, and otherwise not even mentioned */
    /* Why it does not take the problem, a static string, or NULL.  Capabilities alone decide; with `forced`
     * (asked for by name) mere preference does not count. */
    const char *(*refuse)(const clattn_context *context, const void *problem, bool forced);
    /* Chooses geometry and adds kernels to the plan, whose operator part holds the problem.  A failure sends
     * the choice on to the next solver, unless this one was asked for by name or host memory is out. */
    clattn_status (*prepare)(clattn_plan *plan);
    /* Why on this device nobody gets it but who asks for it by name, not even by wisdom: that it has never been tried on such
     * hardware, or only imitates it there.  A static string, or NULL; the function may be NULL. */
    const char *(*only_named)(const clattn_context *context);
    /* Whether the context's params prefer this solver: then wisdom for another one is ignored.  NULL: they know nothing of
     * it. */
    bool (*preferred)(const clattn_context *context);
};

/* What solvers refuse alike, with the reason, or NULL: that a work-item loops `iterations` times, all its loops together;
 * every device but a CPU; a CPU.  The last two are preferences. */
const char *refuse_loops(const struct capabilities *caps, double iterations);
const char *refuse_all_but_cpu(const struct capabilities *caps, bool forced);
const char *refuse_cpu(const struct capabilities *caps, bool forced);

/* Lets the first of the operator's solvers that takes the plan's problem prepare and warm the plan; fills plan->solver and
 * ->explain. */
clattn_status plan_choose(clattn_plan *plan, const clattn_plan_options *options);

/* SUCCESS if one of the operator's solvers takes the problem; otherwise UNSUPPORTED and the last one's reason. */
clattn_status plan_supports(const clattn_context *context, const struct operator_type *type, const void *problem,
                            const char **reason);

/* A copy of the caller's options with what is missing defaulted; the status is reported on the context. */
clattn_status plan_options_read(clattn_context *context, const clattn_plan_options *given,
                                clattn_plan_options *options);

#endif
