/* What the operators' self-checks share: small arrays on host and device, reproducible contents, and when a result is
 * further from the reference than arithmetic explains. */
#ifndef CLATTN_PLAN_SELF_CHECK_H
#define CLATTN_PLAN_SELF_CHECK_H

#include "plan/plan.h"

/* An array of a self-check.  Zeroed: none.  Clear it with check_array_clear. */
struct check_array {
    void *host;
    size_t elements, bytes;
    cl_mem buffer;
};

/* Host room for every element that the layout reaches, zeroed. */
clattn_status check_array_room(clattn_context *context, const clattn_layout *layout, struct check_array *array);

/* Fills it with numbers of magnitude 1/16 to 1, exact in `dtype`; bool: three of four true; -inf now and then with
 * `excludes`. */
void check_array_fill(struct check_array *array, int32_t dtype, bool excludes, uint32_t *random);

/* A buffer with a copy of the host's bytes, bound. */
clattn_status check_array_upload(clattn_context *context, struct check_array *array, clattn_binding *binding);

/* A buffer of `bytes` bytes, bound; none for 0.  A check has a workspace of its own: the pool is the caller's. */
clattn_status check_workspace(clattn_context *context, size_t bytes, struct check_array *array, clattn_binding *binding);

/* Waits for the context's private queue and reads the buffer back. */
clattn_status check_array_read(clattn_context *context, struct check_array *array);

void check_array_clear(clattn_context *context, struct check_array *array);

uint32_t check_random(uint32_t *random);

/* Whether a result agrees: the class of NaN and Inf, or within `slack`. */
bool check_agrees(double value, double exact, double slack);

/* Several times what the naive computation loses, and rounding: `state_unit` of the sum's magnitude, `unit` of the
 * result. */
double check_slack(double exact, double plain, double magnitude, double state_unit, double unit);

/* UNSUPPORTED, with the message of a plan whose kernel computed something else. */
clattn_status check_disagrees(struct report *report, const char *kernel, const char *what, const int64_t index[4],
                              double value, double exact);

#endif
