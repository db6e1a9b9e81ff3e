/* Tools that the operators' self-checks share: the course of a check, the private queue while it runs, small arrays
 * on host and device, reproducible contents, and the test whether a result is further from the reference than
 * arithmetic explains. */
#ifndef CLATTN_PLAN_SELF_CHECK_H
#define CLATTN_PLAN_SELF_CHECK_H

#include "plan/plan.h"

enum check_contents {
    CHECK_ZEROS,    /* for outputs, and for arrays that the check itself fills */
    CHECK_NUMBERS,  /* check_array_fill */
    CHECK_EXCLUDES, /* check_array_fill with -inf */
};

/* What a self-check says of an array. */
struct check_place {
    const char *name;            /* for messages */
    const clattn_layout *layout; /* in the small problem, which may have none */
    clattn_binding *binding;     /* in the arguments */
    enum check_contents contents;
};

/* An array of a self-check; zeroed if there is none.  Clear it with check_array_clear. */
struct check_array {
    struct check_place place;
    void *host;
    void *before; /* the bytes of an output before the run, or NULL */
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

/* Makes a buffer with a copy of the host's bytes, and binds it to the array's place. */
clattn_status check_array_upload(clattn_context *context, struct check_array *array);

/* Waits for the context's private queue and reads the buffer back. */
clattn_status check_array_read(clattn_context *context, struct check_array *array);

void check_array_clear(clattn_context *context, struct check_array *array);

#define CHECK_SEED 0x9e3779b9

uint32_t check_random(uint32_t *random);

/* ---- all of a check's ---- */

/* Locks the context's private queue for a self-check, and makes it unless it exists; log lines are held.  Call
 * check_end whatever this returns. */
clattn_status check_begin(clattn_context *context);

/* Allocates and fills every array that has a layout, always with the same numbers. */
clattn_status check_arrays_make(clattn_context *context, const struct check_place *places, size_t count,
                                struct check_array *arrays);

/* Does check_array_upload on every array that has been made. */
clattn_status check_arrays_upload(clattn_context *context, struct check_array *arrays, size_t count);

/* Does check_array_read on every array that has a buffer. */
clattn_status check_arrays_read(clattn_context *context, struct check_array *arrays, size_t count);

/* Unlocks the private queue and clears the arrays, which the plan's kernels forget.  Returns `status`, or why they do not. */
clattn_status check_end(const clattn_plan *plan, struct check_array *arrays, size_t count, clattn_status status);

/* ---- the course of a check ---- */

/* Reads the description of a small problem into `small`, a problem struct of the plan's operator. */
clattn_status check_describe(const clattn_plan *plan, const void *desc, void *small);

/* Enqueues the plan on the private queue for `small`, a problem struct of its operator that needs `workspace` bytes. */
clattn_status check_enqueue(const clattn_plan *plan, const void *small, size_t workspace, const void *args);

#define CHECK_MOST_ARRAYS 10 /* a check has at most so many */

/* What `fill` and `judge` are given. */
struct check {
    const clattn_plan *plan;
    const void *problem; /* the small problem */
    struct check_array arrays[CHECK_MOST_ARRAYS];
    struct report *report;
    const char
        *kernel; /* the name of the kernel that messages blame: the plan's last one, unless `fill` sets another */
};

/* A check that enqueues its plan once. */
struct check_course {
    const struct check_place *places;
    size_t count, output;              /* how many places; the first output, behind which all are outputs */
    void (*fill)(struct check *check); /* finishes what the arrays hold before they are uploaded; NULL: nothing */
    clattn_status (*judge)(const struct check *check); /* compares the outputs with the reference */
    size_t workspace; /* bytes that the small problem needs, which is an array of its own: the pool is for callers */
};

/* Runs a whole check, from check_begin to check_end.  `desc` describes the small problem; `small` receives it as a problem
 * struct of the operator, into which the places' layouts point; `args` are the enqueue's. */
clattn_status check_run(const clattn_plan *plan, const struct check_course *course, const void *desc, void *small,
                        const void *args);

/* ---- the verdict ---- */

/* The tolerance: several times the error of the naive computation, plus rounding, `state_unit` of the sum's
 * magnitude and `unit` of the result. */
double check_slack(double exact, double plain, double magnitude, double state_unit, double unit);

/* Returns SUCCESS if an element of the array `what` agrees: both NaN, the same infinity, or within `slack`.
 * Otherwise MISCOMPILED, with a message that names the kernel and the element. */
clattn_status check_element(struct report *report, const char *kernel, const char *what, const int64_t index[4],
                            double value, double exact, double slack);

#endif
