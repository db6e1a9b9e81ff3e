/* The ranks of 'clattn bench ring': threads of this process and the links between them, or processes of mpirun. */
#ifndef CLATTN_TOOL_BENCH_RING_H
#define CLATTN_TOOL_BENCH_RING_H

#include <clattn/group.h>

#include "base/os/os_threads.h"
#include "tool/attention/request.h"
#include "tool/run/device.h"
#include "tool/world/world.h"

#define RING_MOST_RANKS 64

/* What each rank sends by.  Messages go one behind the other.  A zeroed one takes no time. */
typedef struct ring_link {
    bool modelled;
    double seconds_per_byte, latency; /* of a message: its bytes' time, and seconds until it arrives */
} ring_link;

/* A rank's place at its link.  It must not move while its group is used. */
typedef struct ring_port {
    clattn_group inner; /* moves the bytes */
    ring_link link;
    double free_at; /* when the link has taken all messages */
    double waited;  /* seconds in `wait` so far */
    size_t sent;    /* bytes for other ranks so far */
} ring_port;

/* A group that does what the port's `inner` does and counts; its `wait` returns when the link has brought both messages. */
clattn_group ring_port_group(ring_port *port);

struct ring;

/* A rank.  Its thread alone uses it during a round. */
typedef struct ring_rank {
    struct ring *ring;
    ring_port port;
    cl_command_queue queue;
    cl_mem query, key, value, output;
    clattn_group_attention *attention;
    double begin, end; /* of its latest call, by os_seconds */
    double busy;       /* seconds of its calls so far */
    clattn_status status;
    char message[512]; /* of a failure */
    thrd_t thread;
    bool started;
} ring_rank;

/* All ranks.  A zeroed one holds nothing.  Close with ring_close, before the device is closed. */
typedef struct ring {
    tool_device *device; /* borrowed */
    tool_world *world;   /* borrowed */
    size_t ranks;
    size_t first, end; /* the ranks that are this process's threads: all, or one */
    clattn_group_order order;
    clattn_group_attention_desc desc;
    clattn_attention_desc attention; /* of a rank's arrays */
    clattn_group_local *local;       /* NULL: the ranks are processes */
    double whole;                    /* seconds of the latest attention of everything */
    ring_rank rank[RING_MOST_RANKS];
    /* The rounds.  The lock guards them and the ranks' status. */
    mtx_t lock;
    cnd_t changed;
    bool has_lock, has_changed;
    size_t round, busy; /* the one that runs, and how many ranks are not done with it */
    bool ended;
} ring;

/* Gives each rank its part of the arrays of `whole`, which have their numbers, and a thread.  The caller has set `device`, `world` and
 * `ranks`.  Returns an exit status, as all below; the ring is to be closed in any case. */
int ring_open(ring *r, const attention_request *whole, clattn_group_mode mode, clattn_group_order order,
              const ring_link *link);

/* All ranks make their share. */
int ring_make(ring *r);

/* All ranks call clattn_group_attention_run.  *seconds is from the first one's call until the last one's event; of processes, whose clocks
 * may differ, the longest of theirs. */
int ring_run(ring *r, double *seconds);

/* What ranks have counted: seconds of their calls since ring_forget, those of them in their group's `wait`, and the bytes of the latest
 * call for others. */
typedef struct ring_count {
    double busy, waited;
    size_t sent;
} ring_count;

/* Writes all ranks' counts to `counts`.  Processes tell each other. */
int ring_counts(ring *r, ring_count counts[RING_MOST_RANKS]);
void ring_forget(ring *r);

/* The row of the whole sequence that is row `row` of a rank that has `rows`. */
size_t ring_row(const ring *r, size_t rank, size_t rows, size_t row);

/* Copies a rank's output to `output`, which has memory for it. */
int ring_read(ring *r, size_t rank, host_array *output);

void ring_close(ring *r);

#endif
