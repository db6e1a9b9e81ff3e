/* Attention's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_ATTENTION_ATTENTION_H
#define CLATTN_OPS_ATTENTION_ATTENTION_H

#include "clattn/attention.h"
#include "attention/args.h"
#include "plan/enqueue.h"

/* The optional arrays, in the order in which the kernels take them (attention/core.h); results last. */
enum attention_array {
    ATTENTION_MASK,
    ATTENTION_BIAS,
    ATTENTION_ALIBI,
    ATTENTION_SINKS,
    ATTENTION_VECTOR,
    ATTENTION_QUERY_LENGTHS,
    ATTENTION_KEY_LENGTHS,
    ATTENTION_POSITIONS,
    ATTENTION_QUERY_STARTS,
    ATTENTION_KEY_STARTS,
    ATTENTION_BLOCK_TABLE,
    ATTENTION_KEY_SCALE,
    ATTENTION_VALUE_SCALE,
    ATTENTION_LSE,
    ATTENTION_ENTROPY,
    ATTENTION_SCORES,
    ATTENTION_ARRAYS
};

#define ATTENTION_SIDE_ARRAYS ATTENTION_LSE /* those before are every attention kernel's */

/* The most pointers that a kernel takes: four arrays, the optional ones, the user's, `cancel`. */
#define ATTENTION_POINTERS (4 + ATTENTION_ARRAYS + CLATTN_USER_BUFFERS + 1)

/* A description that has passed attention_problem_read: normalised, consistent, within the kernels' ranges.  The
 * snippets are copies; the description's pointers to them are NULL. */
struct attention_problem {
    clattn_attention_desc desc;
    char score_mod[CLATTN_SNIPPET_LIMIT], mask_mod[CLATTN_SNIPPET_LIMIT];
    /* Made from what is above. */
    size_t batch, heads, kv_heads, query_length, key_length, d_k, d_v; /* the most that an item has */
    size_t page_size;
    float scale;
    double exact_scale;
    bool has[ATTENTION_ARRAYS];
    bool is_double, packed_queries, packed_keys;
    size_t mask_extent[4], bias_extent[4]; /* batch, heads, queries, keys: each 1 or as above; keys also in between */
    array4 mask, bias;                     /* strides, 0 where they broadcast */
};

/* Whether a window limits the keys; after attention_problem_read a side without a limit is -1. */
static inline bool attention_windowed(const clattn_attention_desc *desc)
{
    return desc->window.explicit_left || desc->window.explicit_right;
}

#define ATTENTION_DESC_BYTES offsetof(struct attention_problem, batch) /* what tells two problems apart */

struct attention_plan {
    clattn_plan base;
    struct attention_problem problem;
    /* Geometry, filled by the solver: the work-groups of a launch of kernel_args.batch items, launch_heads heads and
     * launch_queries queries. */
    void (*groups)(const struct attention_plan *plan, const attention_args *kernel_args, size_t groups[3]);
    size_t queries_per_group; /* for groups_by_queries, and what launches are cut by */
    size_t rows_per_group;    /* cpu and tile: queries, or those of all heads of a group */
    size_t heads_per_group;   /* cpu: heads, or key heads, that a work-group takes in turn */
    size_t key_tile;          /* cpu: keys for each rescaling */
    double weight_unit;       /* what rounding changes a probability by, at the most, over it; 0: they stay float */
    size_t column_chunk;      /* the generic solver's */
    size_t splits;            /* parts of the keys, each a partial of its own; 0 or 1: not split */
    double efficiency;        /* share of the device's peak that a launch reaches at least, for max_launch_ms */
    bool lends_lse;           /* the row's log-sum-exp lies in the workspace, for the scores alone */
};

static inline const clattn_layout *attention_layout(const clattn_attention_desc *desc, enum attention_array array)
{
    extern const size_t attention_layout_offset[ATTENTION_ARRAYS];
    return (const clattn_layout *)((const char *)desc + attention_layout_offset[array]);
}

static inline const clattn_binding *attention_binding(const clattn_attention_args *args, enum attention_array array)
{
    extern const size_t attention_binding_offset[ATTENTION_ARRAYS];
    return (const clattn_binding *)((const char *)args + attention_binding_offset[array]);
}

/* "mask", "bias", ... as the public structs' fields are named. */
extern const char *const attention_array_name[ATTENTION_ARRAYS];

/* Reads and checks a description; *reason is a static string when it fails. */
clattn_status attention_problem_read(const clattn_attention_desc *desc, struct attention_problem *problem,
                                     const char **reason);

/* Why the device cannot compute the problem at all, a static string, or NULL. */
const char *attention_refuse(const struct capabilities *caps, const struct attention_problem *problem);

/* The -D options that all of attention's kernels share (attention/core.h). */
void attention_defines(const struct attention_problem *problem, const struct capabilities *caps,
                       struct strbuf *options);

/* Into how many parts the keys are best split where `groups` work-groups compute all of the problem unsplit and at least
 * `wanted` should run: several when one token is decoded. */
size_t attention_splits(const struct attention_problem *problem, size_t groups, size_t wanted);

/* Work-groups that compute all of the problem unsplit, `groups` of the plan being set. */
size_t attention_group_count(const struct attention_plan *plan);

/* Bytes that an enqueue of the problem needs; false on overflow. */
bool attention_workspace(const struct attention_plan *plan, const struct attention_problem *problem, size_t *bytes);

/* All launches of one enqueue; the plan's lock is held.  `args` has passed attention_args_read. */
clattn_status attention_launch(const struct attention_plan *plan, const struct attention_problem *problem,
                               struct chain *chain, clattn_attention_args *args);

/* Adds the plan's kernel, with plan->splits the merging one, and the one for the scores if they are asked for; `options`
 * is taken over and cleared. */
clattn_status attention_add_kernel(struct attention_plan *plan, const char *file, const char *name,
                                   struct strbuf *options, const size_t local[3]);

/* (ceil(launch_queries / queries_per_group), launch_heads, batch), for `groups`. */
void attention_groups_by_queries(const struct attention_plan *plan, const attention_args *kernel_args,
                                 size_t groups[3]);

/* Fills what the kernels are told, for one launch of everything; `args` has passed attention_args_read. */
void attention_fill_args(const struct attention_problem *problem, const clattn_attention_args *args,
                         attention_args *kernel_args);

/* A copy of the caller's args with lengths filled in, all bindings checked. */
clattn_status attention_args_read(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *given, clattn_attention_args *args);

/* Appends the optional arrays that every attention kernel takes; returns the new count. */
size_t attention_side_bindings(const struct attention_problem *problem, const clattn_attention_args *args,
                               const clattn_binding **bindings, size_t count);

/* How many pointers those are. */
size_t attention_side_count(const struct attention_problem *problem);

/* ---- launches of at most desc.max_launch_ms ---- */

struct attention_slices {
    size_t batch, heads, queries; /* of one launch at the most */
};

/* Into what pieces a launch for the given lengths is cut. */
struct attention_slices attention_slice(const struct attention_plan *plan, const struct attention_problem *problem,
                                        size_t batch, size_t queries, size_t keys);

/* The next launch's range in `kernel_args`, which attention_fill_args filled for `whole`; false when there is none.
 * *position starts at 0. */
bool attention_next_slice(const struct attention_slices *slices, const attention_args *whole, size_t *position,
                          attention_args *kernel_args);

/* How many launches there are. */
size_t attention_slice_count(const struct attention_slices *slices, const attention_args *whole);

/* Compares the plan's kernels with the reference on a small problem of the same kind (plan_self_check). */
clattn_status attention_self_check(struct self_check *check);

extern const struct solver attention_cpu_amx_solver;
extern const struct solver attention_cpu_bf16_solver;
extern const struct solver attention_emulated_mma_solver;
extern const struct solver attention_matrix_solver;
extern const struct solver attention_cpu_solver;
extern const struct solver attention_sub_group_solver;
extern const struct solver attention_emulated_sub_group_solver;
extern const struct solver attention_tile_solver;
extern const struct solver attention_generic_solver;

#endif
