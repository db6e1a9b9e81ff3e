/* An attention whose heads or items several devices share, each in proportion to its speed; or one device has all of them. */
#ifndef CLATTN_TOOL_ATTENTION_SPLIT_H
#define CLATTN_TOOL_ATTENTION_SPLIT_H

#include "tool/attention/options.h"
#include "tool/pool/pool.h"
#include "tool/run/job.h"

/* A device's part: key heads first ... first + count - 1, and their queries', or so many items.  One that would make the others wait
 * has none. */
typedef struct split_share {
    tool_job job;
    size_t first, count;
    double seconds; /* that a key head or an item takes here */
} split_share;

/* A zeroed one is closed. */
typedef struct attention_split {
    const attention_options *options; /* borrowed, as is the request */
    const attention_request *request;
    tool_pool pool;
    bool of_items; /* rather than of heads */
    split_share share[POOL_MOST];
} attention_split;

/* Opens the devices that the options name, measures each of several, and plans.  Returns an exit status; the caller closes it in any
 * case. */
int split_open(attention_split *split, const attention_options *options, const attention_request *request);

/* Runs as --repeat says, all devices at a time, and writes the whole results. */
int split_compute(attention_split *split, const host_array results[RESULT_COUNT], timing *times);

/* The part of a device that has one; its job stands for all of them. */
split_share *split_first(attention_split *split);

/* Adds the devices and how much each has, if there are several. */
void split_report(const attention_split *split, tool_report *report);

void split_close(attention_split *split);

#endif
