/* The calls that all operators share: they turn a description into a supports answer, a plan, or a cached plan and
 * its enqueue. */
#ifndef CLATTN_PLAN_OPERATOR_H
#define CLATTN_PLAN_OPERATOR_H

#include "base/size.h"
#include "plan/plan.h"

#define BUCKET_BYTES 240

struct enqueue_call; /* plan/enqueue.h */

/* Where a description has the layout of an array. */
struct layout_place {
    const char *name;
    size_t offset;
};
#define LAYOUT_PLACE(operator_name, array) {#array, offsetof(clattn_##operator_name##_desc, array)}

/* An operator.  Its plan struct begins with a clattn_plan; its problem struct, a member of the plan struct,
 * begins with the normalised description. */
struct operator_type {
    const char *name;
    struct {
        size_t plan, problem_offset, problem, desc;
        size_t control_offset; /* of `control` in the struct of arguments */
    } bytes;                   /* of its structs; OPERATOR_BYTES */
    /* Reads and checks a description into a problem; *reason is a static string when it fails. */
    clattn_status (*read)(const void *desc, void *problem, const char **reason);
    /* Enqueues one of its plans with the operator's own struct of arguments. */
    clattn_status (*enqueue)(const clattn_plan *plan, const struct enqueue_call *call, const void *args);
    /* Copies into a new plan what its problem points to and the caller owns; NULL: there is nothing. */
    clattn_status (*take)(clattn_plan *plan);
    /* Readies a new plan for whichever solver it gets; NULL: there is nothing to do.  A failure is the plan's. */
    clattn_status (*begin)(clattn_plan *plan);
    /* The description's arrays, whose extents are told if they contradict each other; the last one's name is NULL.  NULL: none
     * are told. */
    const struct layout_place *layouts;
    const struct solver *const
        *solvers; /* best first; NULL: the operator consists of others, and the last two members are set */
    size_t solver_count;
    const void *family; /* what solvers that the operator shares with others have to know of it */
    /* The operator that takes the same descriptions and arguments with CLATTN_DIRECTION_BACKWARD; NULL: none does. */
    const struct operator_type *backward;
    /* Compares a plan's kernels with the reference: MISCOMPILED with a message if they disagree.  NULL: no check. */
    clattn_status (*check)(struct self_check *check);
    /* Writes the problem's shape bucket, for wisdom: one token of at most BUCKET_BYTES, of letters, digits and -_.:,+ alone.
     * NULL: the operator is not tuned. */
    void (*shape_bucket)(const void *problem, struct strbuf *text);
    clattn_status (*supports)(clattn_context *context, const void *problem, const char **reason);
    clattn_status (*make)(clattn_plan *plan, const clattn_plan_options *options);
};

/* `bytes` of the operator with struct NAME_plan, struct NAME_problem and clattn_NAME_desc. */
#define OPERATOR_BYTES(name) \
    {sizeof(struct name##_plan), offsetof(struct name##_plan, problem), sizeof(struct name##_problem), \
     sizeof(clattn_##name##_desc), offsetof(clattn_##name##_args, control)}

/* The smallest power of two that is at least `length`, to which a shape bucket rounds its lengths up. */
static inline size_t bucket_length(size_t length)
{
    size_t power = 1;
    while (power < length && power <= SIZE_MAX / 2)
        power *= 2;
    return length ? power : 0;
}

/* The plan's problem struct, whose type is the operator's. */
static inline const void *operator_problem(const clattn_plan *plan)
{
    return (const unsigned char *)plan + plan->type->bytes.problem_offset;
}

/* Makes what a new plan with a problem still lacks: kernels or other plans. */
clattn_status plan_finish(clattn_plan *plan, const clattn_plan_options *options);

clattn_status operator_supports(const struct operator_type *type, clattn_context *context, const void *desc,
                                const char **reason);
clattn_status operator_plan_create(const struct operator_type *type, clattn_context *context, const void *desc,
                                   const clattn_plan_options *options, clattn_plan **plan);

/* Finds the context's cached plan for `desc`, or makes a plan and caches it; the caller releases it. */
clattn_status operator_plan_find(const struct operator_type *type, clattn_context *context, const void *desc,
                                 clattn_plan **plan);

/* Does operator_plan_find only to fill the cache. */
clattn_status operator_prewarm(const struct operator_type *type, clattn_context *context, const void *desc);

/* Calls the operator's enqueue if `plan` is one of its plans and was made in this process. */
clattn_status operator_enqueue(const struct operator_type *type, clattn_plan *plan, cl_command_queue queue,
                               const void *args, cl_uint wait_count, const cl_event *wait_list, cl_event *event);

/* The one-call form: operator_plan_find, then operator_enqueue. */
clattn_status operator_run(const struct operator_type *type, clattn_context *context, cl_command_queue queue,
                           const void *desc, const void *args, cl_uint wait_count, const cl_event *wait_list,
                           cl_event *event);

/* Defines the public functions of an operator, whose operator_type is NAME_operator, under the names given. */
#define OPERATOR_CALLS(name, desc_init, args_init, supports, plan_create, enqueue, prewarm, run) \
    void desc_init(clattn_##name##_desc *desc) \
    { \
        struct_init(desc, sizeof *desc); \
    } \
    void args_init(clattn_##name##_args *args) \
    { \
        struct_init(args, sizeof *args); \
    } \
    clattn_status supports(clattn_context *context, const clattn_##name##_desc *desc, const char **reason) \
    { \
        return operator_supports(&name##_operator, context, desc, reason); \
    } \
    clattn_status plan_create(clattn_context *context, const clattn_##name##_desc *desc, \
                              const clattn_plan_options *options, clattn_plan **plan) \
    { \
        return operator_plan_create(&name##_operator, context, desc, options, plan); \
    } \
    clattn_status enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_##name##_args *args, \
                          cl_uint wait_count, const cl_event *wait_list, cl_event *event) \
    { \
        return operator_enqueue(&name##_operator, plan, queue, args, wait_count, wait_list, event); \
    } \
    clattn_status prewarm(clattn_context *context, const clattn_##name##_desc *desc) \
    { \
        return operator_prewarm(&name##_operator, context, desc); \
    } \
    clattn_status run(clattn_context *context, cl_command_queue queue, const clattn_##name##_desc *desc, \
                      const clattn_##name##_args *args, cl_uint wait_count, const cl_event *wait_list, \
                      cl_event *event) \
    { \
        return operator_run(&name##_operator, context, queue, desc, args, wait_count, wait_list, event); \
    }

#endif
