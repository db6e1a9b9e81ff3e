/* The parts of a whole attention that the ranks of a group have, and what they make together. */
#ifndef TESTS_SUPPORT_GROUP_PARTS_H
#define TESTS_SUPPORT_GROUP_PARTS_H

#include "support/attention/backward_job.h"

#define GROUP_MOST_RANKS 8

/* How a group divides and computes the whole. */
typedef struct group_way {
    int ranks;
    clattn_group_mode mode;
    clattn_group_order order;
    uint64_t
        forms; /* 0: all ranks have arrays of the same forms; otherwise the salt by which each rank draws its own */
} group_way;

/* One rank's part.  Its arrays are `job`'s. */
typedef struct group_part {
    int rank;
    test_job job;
    clattn_attention_desc desc;
    clattn_status status; /* what its calls returned, and the message if that is no success */
    char message[512];
    unsigned long
        kernels; /* that inject.h had counted when all ranks had their shares, and the calls were still to come */
    const struct group_part *then; /* what the same share is called with afterwards, or NULL */
} group_part;

/* Whether a group can compute the case in that way; otherwise clattn_group_attention_create returns UNSUPPORTED. */
bool group_can(const attention_case *test, const group_way *way);

/* Copies a rank's part of the arrays of `whole`, whose description is `desc`. */
void group_part_make(group_part *part, const test_job *whole, const clattn_attention_desc *desc, const group_way *way,
                     int rank);
/* Does so for the call of a backward job, of which a group computes the gradients that the job has. */
void group_part_make_backward(group_part *part, const struct backward_job *whole, const group_way *way, int rank);
void group_part_release(group_part *part);

/* Makes a local group, and its ranks. */
clattn_group_local *group_local_make(int ranks, uint32_t timeout_ms, clattn_group *groups);

/* Makes the rank's share, calls it `times` times, for each part of its list, and waits.  Asserts nothing, so that any thread may call it. */
void group_part_run(group_part *part, clattn_context *context, cl_command_queue queue, const clattn_group *group,
                    const group_way *way, int times);

/* Runs the parts of all ranks of a local group, each in a thread with a queue of its own, of which every other one is out of order if
 * the device has such queues.  Returns the first failure, and prints its message unless it is UNSUPPORTED. */
clattn_status group_parts_run(group_part *parts, clattn_context *context, const group_way *way, int times);

/* Reads the part's results, guards checked, and puts them into the whole's outputs. */
void group_part_give(group_part *part, test_job *whole, const group_way *way);

/* Reads the part's results, guards checked, and returns their bytes, job_bytes of the part's job, to be freed. */
unsigned char *group_part_bytes(group_part *part);

/* The row of the whole sequence that is row `row` of a rank that has `rows`. */
size_t group_row(const group_way *way, int rank, size_t rows, size_t row);

#endif
