/* Tools that the operators' self-checks share: the course of a check, the private queue while it runs, small arrays
 * on host and device, reproducible contents, and the test whether a result is further from the reference than
 * arithmetic explains. */
#ifndef CLATTN_PLAN_SELF_CHECK_H
#define CLATTN_PLAN_SELF_CHECK_H

#include "plan/plan.h"

/* An array of a self-check; zeroed if there is none.  Clear it with check_array_clear. */
struct check_array {
    void *host;
    size_t elements, bytes;
    cl_mem buffer;
};

/* ---- one array ---- */

/* Allocates zeroed host memory for every element that the layout reaches. */
clattn_status check_array_room(clattn_context *context, const clattn_layout *layout, struct check_array *array);

/* Fills the array with numbers of magnitude 1/16 to 1, exact in `dtype`; if bool, three of four are true.  With
 * `excludes` some are -inf. */
void check_array_fill(struct check_array *array, clattn_dtype dtype, bool excludes, uint32_t *random);

/* Stores an integer of type int32 or int64. */
void check_put_integer(void *data, clattn_dtype dtype, int64_t at, int64_t value);

/* Sets element i of an int32 or int64 array to (step * i + first) % below; does nothing to an array that is absent. */
void check_array_count(struct check_array *array, clattn_dtype dtype, int64_t step, int64_t first, int64_t below);

/* Makes a buffer with a copy of the host's bytes, and binds it. */
clattn_status check_array_upload(clattn_context *context, struct check_array *array, clattn_binding *binding);

/* Makes and binds a buffer of `bytes` bytes, or none for 0.  A check has a workspace of its own, because the pool is
 * for callers. */
clattn_status check_workspace(clattn_context *context, size_t bytes, struct check_array *array,
                              clattn_binding *binding);

/* Waits for the context's private queue and reads the buffer back. */
clattn_status check_array_read(clattn_context *context, struct check_array *array);

void check_array_clear(clattn_context *context, struct check_array *array);

#define CHECK_SEED 0x9e3779b9

uint32_t check_random(uint32_t *random);

/* ---- all of a check's ---- */

enum check_contents {
    CHECK_ZEROS,    /* for outputs, and for arrays that the check itself fills */
    CHECK_NUMBERS,  /* check_array_fill */
    CHECK_EXCLUDES, /* check_array_fill with -inf */
};

/* One array of a check: its layout in the small description, which may be none, and its binding in the arguments. */
struct check_place {
    const clattn_layout *layout;
    clattn_binding *binding;
    enum check_contents contents;
};

/* Locks the context's private queue for a self-check, and makes it unless it exists; log lines are held.  Call
 * check_end whatever this returns. */
clattn_status check_begin(clattn_context *context);

/* Allocates and fills every array that has a layout, always with the same numbers. */
clattn_status check_arrays_make(clattn_context *context, const struct check_place *places, size_t count,
                                struct check_array *arrays);

/* Does check_array_upload on every array that has a layout. */
clattn_status check_arrays_upload(clattn_context *context, const struct check_place *places, size_t count,
                                  struct check_array *arrays);

/* Does check_array_read on every array that has a buffer. */
clattn_status check_arrays_read(clattn_context *context, struct check_array *arrays, size_t count);

/* Unlocks the private queue and clears the arrays; returns `status`. */
clattn_status check_end(clattn_context *context, struct check_array *arrays, size_t count, clattn_status status);

/* ---- the course of a check ---- */

/* Enqueues the plan on the private queue for `small`, a problem struct of its operator that needs `workspace` bytes. */
clattn_status check_enqueue(const clattn_plan *plan, const void *small, size_t workspace, const void *args);

/* A check that enqueues its plan once. */
struct check_course {
    const void *small; /* the problem, as `make` leaves it */
    const void *args;  /* the arguments, as `make` leaves them */
    struct check_array *arrays;
    size_t count, output, outputs; /* how many arrays; the first one to read back; how many to read back */
    clattn_status (*make)(void *check,
                          clattn_context *context); /* describes the problem, fills and uploads the arrays */
    /* Compares the outputs with the reference; `kernel` is the name of the plan's last kernel. */
    clattn_status (*judge)(void *check, struct report *report, const char *kernel);
    size_t workspace; /* bytes that the small problem needs; `make` binds as many */
};

/* Runs a whole check, from check_begin to check_end; `check` is the operator's own struct. */
clattn_status check_run(const clattn_plan *plan, const struct check_course *course, void *check);

/* ---- the verdict ---- */

/* The tolerance: several times the error of the naive computation, plus rounding, `state_unit` of the sum's
 * magnitude and `unit` of the result. */
double check_slack(double exact, double plain, double magnitude, double state_unit, double unit);

/* Returns SUCCESS if an element of the array `what` agrees: both NaN, the same infinity, or within `slack`.
 * Otherwise MISCOMPILED, with a message that names the kernel and the element. */
clattn_status check_element(struct report *report, const char *kernel, const char *what, const int64_t index[4],
                            double value, double exact, double slack);

#endif
