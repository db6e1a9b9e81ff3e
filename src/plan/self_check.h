/* What the operators' self-checks share: their course, the private queue for as long as one takes, small arrays on host and
 * device, reproducible contents, and when a result is further from the reference than arithmetic explains. */
#ifndef CLATTN_PLAN_SELF_CHECK_H
#define CLATTN_PLAN_SELF_CHECK_H

#include "plan/plan.h"

/* An array of a self-check.  Zeroed: none.  Clear it with check_array_clear. */
struct check_array {
    void *host;
    size_t elements, bytes;
    cl_mem buffer;
};

/* ---- one array ---- */

/* Host room for every element that the layout reaches, zeroed. */
clattn_status check_array_room(clattn_context *context, const clattn_layout *layout, struct check_array *array);

/* Fills it with numbers of magnitude 1/16 to 1, exact in `dtype`; bool: three of four true; -inf now and then with
 * `excludes`. */
void check_array_fill(struct check_array *array, clattn_dtype dtype, bool excludes, uint32_t *random);

/* Puts an integer of type int32 or int64. */
void check_put_integer(void *data, clattn_dtype dtype, int64_t at, int64_t value);

/* Makes element i of an array of type int32 or int64 (step * i + first) % below; nothing of an array that there is not. */
void check_array_count(struct check_array *array, clattn_dtype dtype, int64_t step, int64_t first, int64_t below);

/* A buffer with a copy of the host's bytes, bound. */
clattn_status check_array_upload(clattn_context *context, struct check_array *array, clattn_binding *binding);

/* A buffer of `bytes` bytes, bound; none for 0.  A check has a workspace of its own: the pool is the caller's. */
clattn_status check_workspace(clattn_context *context, size_t bytes, struct check_array *array,
                              clattn_binding *binding);

/* Waits for the context's private queue and reads the buffer back. */
clattn_status check_array_read(clattn_context *context, struct check_array *array);

void check_array_clear(clattn_context *context, struct check_array *array);

#define CHECK_SEED 0x9e3779b9

uint32_t check_random(uint32_t *random);

/* ---- all of a check's ---- */

enum check_contents {
    CHECK_ZEROS,    /* of what is written, or what the check itself fills */
    CHECK_NUMBERS,  /* check_array_fill */
    CHECK_EXCLUDES, /* the same, with -inf */
};

/* Where the small description has an array's layout, which may be none, and the arguments have its binding. */
struct check_place {
    const clattn_layout *layout;
    clattn_binding *binding;
    enum check_contents contents;
};

/* Takes the context's private queue for a self-check, made if need be; log lines are kept back.  check_end follows
 * whatever this returns. */
clattn_status check_begin(clattn_context *context);

/* Room and contents of every array that there is, always the same. */
clattn_status check_arrays_make(clattn_context *context, const struct check_place *places, size_t count,
                                struct check_array *arrays);

/* check_array_upload of every array that there is. */
clattn_status check_arrays_upload(clattn_context *context, const struct check_place *places, size_t count,
                                  struct check_array *arrays);

/* check_array_read of every array that there is. */
clattn_status check_arrays_read(clattn_context *context, struct check_array *arrays, size_t count);

/* Gives the private queue back and clears the arrays; returns `status`. */
clattn_status check_end(clattn_context *context, struct check_array *arrays, size_t count, clattn_status status);

/* ---- the course of a check ---- */

/* Enqueues the plan on the private queue for `small`, a problem struct of its operator that needs `workspace` bytes. */
clattn_status check_enqueue(const clattn_plan *plan, const void *small, size_t workspace, const void *args);

/* What a check is made of that enqueues its plan once. */
struct check_course {
    const void *small; /* the problem, and */
    const void *args;  /* the arguments, as `make` leaves them */
    struct check_array *arrays;
    size_t count, output, outputs; /* all of the arrays, the first one that is read back, and how many are */
    clattn_status (*make)(void *check,
                          clattn_context *context); /* describes the problem, fills and uploads the arrays */
    /* Compares them with the reference; `kernel` is the plan's last one. */
    clattn_status (*judge)(void *check, struct report *report, const char *kernel);
    size_t workspace; /* bytes that the small problem needs; `make` binds as many */
};

/* From check_begin to check_end; `check` is the operator's own struct. */
clattn_status check_run(const clattn_plan *plan, const struct check_course *course, void *check);

/* ---- the verdict ---- */

/* Several times what the naive computation loses, and rounding: `state_unit` of the sum's magnitude, `unit` of the
 * result. */
double check_slack(double exact, double plain, double magnitude, double state_unit, double unit);

/* SUCCESS if an element of the array `what` agrees: the class of NaN and Inf, or within `slack`.  Otherwise MISCOMPILED,
 * with a message that names the kernel and the element. */
clattn_status check_element(struct report *report, const char *kernel, const char *what, const int64_t index[4],
                            double value, double exact, double slack);

#endif
