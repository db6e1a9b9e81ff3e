/* What the operators on rows, softmax, normalisation and cross-entropy, share: how rows are distributed among work-groups, and the solvers. */
#ifndef CLATTN_OPS_COMMON_ROWS_H
#define CLATTN_OPS_COMMON_ROWS_H

#include "base/strbuf.h"
#include "ops/common/sub_groups.h"
#include "plan/plan.h"

/* The rows of a problem. */
struct rows {
    size_t count;      /* rows */
    size_t elements;   /* of a row */
    size_t segments;   /* pieces of a row, each of which has columns with one stride */
    size_t gathered;   /* arrays of which an item moves single elements if columns are not contiguous */
    bool unit_columns; /* columns are contiguous in all arrays */
    bool plain;        /* one index tells rows apart, and each is one segment: rows may lie across the lanes */
    size_t abreast;    /* neighbouring rows of one segment that lie side by side, element by element; 0: they do not */
};

enum row_solver { ROW_CPU, ROW_CPU_SHORT, ROW_TILE, ROW_GENERIC, ROW_SOLVERS };

/* An operator on rows: the `family` of its operator_type.  Its plan struct begins with a row_plan. */
struct row_operator {
    struct rows (*rows)(const void *problem);
    void (*define)(const clattn_plan *plan, enum row_solver solver,
                   struct strbuf *options); /* the kernels' -D options */
    struct {
        const char *file, *name;
    } kernels[ROW_SOLVERS];
    cl_uint arrays; /* of each kernel, and the bytes of its arguments */
    size_t args_bytes;
    size_t least_items; /* of a work-group of the tile solvers, if the device takes so many */
    /* Adds the kernels that follow the rows' own, and the workspace; NULL: there are none. */
    clattn_status (*add_more)(clattn_plan *plan, enum row_solver solver);
    size_t keep_step; /* factor between the numbers of elements that an item may keep in registers: each is a program */
};

struct row_plan {
    clattn_plan base;
    size_t rows_per_group;
    size_t longest_row; /* that the build takes */
    bool is_abreast;    /* the build is for rows that lie side by side */
};

/* The work-groups of a launch for so many rows. */
size_t row_groups(const clattn_plan *plan, size_t rows);

/* The solvers, best first.
 *
 *   cpu                 CPU devices: one work-item a work-group walks rows with whole vectors, or short rows across the lanes
 *   sub-group, tile     GPU-class devices: a work-group a row
 *   generic             every device: one work-item a row
 *   emulated-sub-group  for tests, by name only */
#define ROW_SOLVER_COUNT 5
extern const struct solver *const row_solvers[ROW_SOLVER_COUNT];

#endif
