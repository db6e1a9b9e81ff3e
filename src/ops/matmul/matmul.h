/* What the files of the matrix product share: the checked problem, the plan, and the solvers. */
#ifndef CLATTN_OPS_MATMUL_MATMUL_H
#define CLATTN_OPS_MATMUL_MATMUL_H

#include "base/layout.h"
#include "clattn/matmul.h"
#include "matmul/args.h"
#include "plan/enqueue.h"

struct matmul_problem {
    clattn_matmul_desc desc; /* normalised */
    size_t batch, m, n, k;
    array4 a, b, c, operand; /* strides; offsets 0 */
    bool has_bias, has_operand;
    bool has_scale; /* b's are integers */
};

struct matmul_plan {
    clattn_plan base;
    struct matmul_problem problem;
    /* Enqueues the product that the kernels' args describe; the caller holds the plan's lock.  Their `batch` and `m` are the
     * actual ones, with items that lie one behind the other already folded into m. */
    clattn_status (*launch)(const struct matmul_plan *plan, const struct matmul_problem *problem, struct chain *chain,
                            const clattn_matmul_args *args, matmul_args *kernel_args);
    size_t tile_rows, tile_columns; /* of C, that a work-group owns */
    size_t panel;                   /* lanes of a packed panel */
    size_t k_step;                  /* k in an element of a packed panel */
    size_t item_rows;               /* what skinny.cl with OPTIONAL is told: streamed rows that an item owns */
    bool lanes_along_m;             /* a is packed, not b */
    bool optional; /* the kernel takes a bias and an operand, and is told what counts and which activation */
    bool foreign;  /* another library chooses the kernels, from size to size anew */
};

/* Rows of A that one B multiplies: the rows of all items that share it. */
static inline size_t matmul_rows(const struct matmul_problem *problem)
{
    return problem->m * (problem->b.batch || !problem->batch ? 1 : problem->batch);
}

/* A layout of rank 2 or 3 as (batch, -, row, col), whose batch stride is 0 unless it has a batch, and that batch. */
array4 matmul_strides(const clattn_layout *layout);
size_t matmul_batch(const clattn_layout *layout);

/* Both halves of reading a description, between which a direction has checks of its own: the copy into problem->desc, and
 * everything else, with what c is and how messages name it. */
clattn_status matmul_desc_read(const void *desc, struct matmul_problem *problem, const char **reason);
clattn_status matmul_arrays_read(struct matmul_problem *problem, enum layout_use c_use,
                                 const struct layout_words *c_words, const char **reason);
clattn_status matmul_problem_read(const void *desc, void *problem, const char **reason);

/* A copy of the caller's args with lengths filled in and all bindings checked. */
clattn_status matmul_args_read(const struct matmul_plan *plan, const struct matmul_problem *problem,
                               const clattn_matmul_args *given, clattn_matmul_args *args);

/* Fills the kernels' last argument. */
void matmul_fill_args(const struct matmul_problem *problem, const clattn_matmul_args *args, matmul_args *kernel_args);

/* The -D options that all matmul kernels share; sets plan->optional.  One program with OPTIONAL (matmul/epilogue.h) serves
 * products with any activation, with a bias, an added operand, both or neither. */
void matmul_defines(struct matmul_plan *plan, bool optional, struct strbuf *options);

/* Whether anything but a bias is done to sums: the kernels' MATMUL_EPILOGUE. */
static inline bool matmul_has_epilogue(const struct matmul_problem *problem)
{
    return problem->has_operand || problem->has_scale || problem->desc.activation;
}

/* The number of a kernel's pointers, the first two of which are what it multiplies; filling in the bindings of the others; and
 * the size of its matmul_args. */
cl_uint matmul_pointers(const struct matmul_plan *plan);
#define MATMUL_POINTERS 6
void matmul_bind(const struct matmul_plan *plan, const struct matmul_problem *problem, const clattn_matmul_args *args,
                 const clattn_binding **bindings);
size_t matmul_args_bytes(const struct matmul_plan *plan);
#define MATMUL_PLAIN_ARGS offsetof(matmul_args, operand) /* bytes of a kernel's without an epilogue */

/* `launch` of solvers with one kernel whose work-groups, (columns, rows, batch), own tile_columns x tile_rows of C, and the
 * function that adds the kernel, whose arguments are a, b, [bias], [b_scale], [operand], c.  `options` is cleared. */
clattn_status matmul_launch_tiles(const struct matmul_plan *plan, const struct matmul_problem *problem,
                                  struct chain *chain, const clattn_matmul_args *args, matmul_args *kernel_args);
clattn_status matmul_add_tiled_kernel(struct matmul_plan *plan, const char *file, const char *name,
                                      struct strbuf *options, const size_t local[3]);

/* Whether the plan's workspace holds b, and nothing else, after a product. */
bool matmul_packs_b(const clattn_plan *plan);

/* Whether both plans pack the same b into the same bytes. */
bool matmul_packs_alike(const clattn_plan *left, const clattn_plan *right);

/* A plan of two kernels of one program, the first of which packs an operand into the workspace for the second.  One function
 * adds both and clears the options; the other enqueues both, without the first if k is 0. */
struct packed_kernel {
    const char *name;
    cl_uint pointers;
    size_t groups[3]; /* of the largest launch */
};
clattn_status matmul_add_packed_kernels(struct matmul_plan *plan, const char *file, struct strbuf *options,
                                        const struct packed_kernel kernels[2]);
clattn_status matmul_launch_packed(const struct matmul_plan *plan, struct chain *chain, clattn_prepack prepack,
                                   const matmul_args *kernel_args, const clattn_binding **pack_bindings,
                                   const size_t pack_groups[3], const clattn_binding **bindings,
                                   const size_t groups[3]);

/* Compares the plan's kernels with the reference on a small product (plan_self_check). */
clattn_status matmul_self_check(struct self_check *check);

/* The operator with CLATTN_DIRECTION_BACKWARD (ops/matmul/backward). */
extern const struct operator_type matmul_backward_operator;

extern const struct solver matmul_clblast_solver;
extern const struct solver matmul_cpu_amx_solver;
extern const struct solver matmul_cpu_bf16_solver;
extern const struct solver matmul_cpu_solver;
extern const struct solver matmul_matrix_solver;
extern const struct solver matmul_wgmma_solver, matmul_wgmma_emulation;
#define MATMUL_EMULATIONS 5
extern const struct solver matmul_matrix_emulations[MATMUL_EMULATIONS];
extern const struct solver matmul_tile_solver;
extern const struct solver matmul_generic_solver;

#endif
