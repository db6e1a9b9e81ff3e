/* An attention whose heads several devices share, each in proportion to its speed; or one device has all of them. */
#ifndef CLATTN_TOOL_ATTENTION_SPLIT_H
#define CLATTN_TOOL_ATTENTION_SPLIT_H

#include "tool/attention/options.h"
#include "tool/run/job.h"

#define SPLIT_MOST 16 /* devices */

/* A device's part: key heads first ... first + count - 1, and their queries'.  One that would make the others wait has none. */
typedef struct split_share {
    tool_device device;
    tool_job job;
    size_t first, count;
    double seconds; /* that a key head takes here */
} split_share;

/* A zeroed one is closed. */
typedef struct attention_split {
    const attention_options *options; /* borrowed, as is the request */
    const attention_request *request;
    split_share share[SPLIT_MOST];
    size_t shares;
} attention_split;

/* Opens the devices that the options name, measures each of several, and plans.  Returns an exit status; the caller closes it in any
 * case. */
int split_open(attention_split *split, const attention_options *options, const attention_request *request);

/* Runs as --repeat says, all devices at a time, and writes the whole results. */
int split_compute(attention_split *split, const host_array results[RESULT_COUNT], timing *times);

/* A device that has heads; its job stands for all of them. */
split_share *split_first(attention_split *split);

void split_close(attention_split *split);

#endif
