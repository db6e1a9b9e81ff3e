/* How softmax and normalisation share rows out among work-groups. */
#ifndef CLATTN_OPS_COMMON_ROWS_H
#define CLATTN_OPS_COMMON_ROWS_H

#include "base/strbuf.h"
#include "ops/common/sub_groups.h"
#include "plan/plan.h"

/* ---- CPU devices: one work-item a work-group walks rows with whole vectors, or short rows side by side ---- */

struct cpu_rows {
    size_t count;      /* all that there are */
    size_t elements;   /* of one */
    double iterations; /* loops that one takes, at the most */
    bool is_short, unit_columns;
};

/* Whether so many rows of `columns` elements lie across the lanes: a lane a row. */
bool cpu_rows_are_short(const struct capabilities *caps, size_t count, size_t columns);

/* That one row takes too many loops, or the device is none; see refuse_loops. */
const char *cpu_rows_refuse(const struct capabilities *caps, const struct cpu_rows *rows, bool forced);

/* Defines what the kernels of both operators are told, and finds the rows of a work-group and the longest row that the build
 * takes. */
void cpu_rows_plan(clattn_plan *plan, const struct cpu_rows *rows, struct strbuf *options, size_t *rows_per_group,
                   size_t *longest_row);

/* ---- GPU-class devices: a work-group a row ---- */

/* Items of a sub-group where there is a choice: in 32 Intel's compiler puts 16 kept values into memory; 8 are many parts. */
#define TILE_ROWS_SUB_GROUP 16

struct tile_rows {
    size_t elements;
    double loops;       /* of a work-item, for each element that it takes */
    size_t least_items; /* of a work-group, if the device takes so many */
    size_t keep_step;   /* from one number of elements that an item keeps in registers to the next: each is a program */
    struct sub_groups groups; /* in which a row is reduced */
};

/* That a row takes too many loops, or the work-groups' `local_bytes` an item are too many, or the device is a CPU. */
const char *tile_rows_refuse(const clattn_context *context, const struct tile_rows *rows, size_t local_bytes,
                             bool forced);

/* A work-group's items; UNSUPPORTED, reported, if a tuning gives a number that the device does not take or that is no
 * multiple of a sub-group's. */
clattn_status tile_rows_items(clattn_plan *plan, const struct tile_rows *rows, size_t *items);

/* Defines the sub-groups, WORK_GROUP and KEEP, the elements that an item keeps so that a row is read once: 0 for rows that are too long.
 * Finds the longest row that the build takes. */
void tile_rows_define(const struct tile_rows *rows, size_t items, struct strbuf *options, size_t *longest_row);

#endif
