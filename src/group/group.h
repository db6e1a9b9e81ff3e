/* Attention of a group of ranks: what its files share.  It calls operators as an application does, so that their plans come from the
 * context's cache, into which clattn_group_attention_create puts them. */
#ifndef CLATTN_GROUP_GROUP_H
#define CLATTN_GROUP_GROUP_H

#include <stdbool.h>

#include "clattn/group.h"
#include "ops/attention/desc.h"
#include "plan/context.h"
#include "ranks/ranks.h"
#include "ranks/staging.h"

#define MOST_PIECES 2 /* of the whole sequence, that a rank has */

struct group_problem {
    clattn_group_mode mode;
    clattn_group_order order;
    clattn_attention_desc
        attention; /* the rank's own arrays; mask, bias and their gradients with all four dimensions */
    bool backward, packed;
    size_t batch, heads, kv_heads, query_length, key_length, d_k, d_v;
    size_t pieces; /* of a rank's queries and keys */
};

clattn_status group_problem_read(const clattn_group *group, const clattn_group_attention_desc *desc,
                                 struct group_problem *problem, const char **reason);

/* Memory that ranks exchange: on the device, and the same on the host. */
struct parcel {
    cl_mem buffer;
    struct staging host;
    size_t bytes;
    cl_event read;    /* the device's memory has been read by kernels until then; NULL: nobody reads it */
    cl_event written; /* the host's memory has been copied to the device until then; NULL: it has */
};

/* The parcels of the gradients that ranks share, behind those of a mode. */
enum { SHARED = 5, SHARED_TOO, MOST_PARCELS };

struct clattn_group_attention {
    clattn_context *context;
    struct ranks ranks;
    struct group_problem problem;
    cl_command_queue transfers;
    struct parcel parcel[MOST_PARCELS];
    cl_mem partial;  /* ring: partial outputs and log-sum-exps; backward, and gathering: partial gradients */
    cl_mem whole[2]; /* gather: keys and values of all ranks, of two parts of the heads; heads: inputs, and results */
    cl_event whole_read[2];
    cl_mem score_parts; /* what a block makes of the gradients of masks, biases, vectors, slopes and sinks */
    cl_mem score_sums;  /* and what several make of those that are the rank's own */
    cl_event finished;  /* the latest call has */
};

/* A call.  While plans are made (`dry`) the same steps are taken, and each of them makes its plan. */
struct run {
    clattn_group_attention *a;
    const struct group_problem *p;
    bool dry;
    cl_command_queue queue;
    clattn_attention_args args; /* the rank's own arrays */
    cl_event last;              /* of the latest step on the queue */
};

/* ---- steps ---- */

/* Part of the rank's attention: which of its queries attend which keys. */
struct block {
    clattn_layout query, key, value, output, lse;
    clattn_binding query_at, key_at, value_at, output_at, lse_at;
    size_t head;                   /* the first of query's, of all; mask, bias, vector, slopes and sinks have all */
    size_t first_query, first_key; /* of the whole sequence */
    size_t query_row;              /* of mask and bias, which have all keys */
    bool sinks;                    /* whether the sinks take part */
    bool partial;                  /* backward: output and lse are of more keys */
    /* Backward: the gradients of output and lse, which are read, and of query, key and value. */
    clattn_layout d_output, d_lse, d_query, d_key, d_value;
    clattn_binding d_output_at, d_lse_at, d_query_at, d_key_at, d_value_at;
};

/* Attends on the run's queue, after `ready` as well, which may be NULL. */
clattn_status run_attend(struct run *r, const struct block *block, cl_event ready);

/* Adds x to y, of the same extents and float32, on the run's queue, after `ready` as well, which may be NULL. */
clattn_status run_add(struct run *r, const clattn_layout *x, clattn_binding x_at, const clattn_layout *y,
                      clattn_binding y_at, cl_event ready);

/* So many floats, one behind the other. */
clattn_layout floats(size_t count);

/* Makes floats of a buffer `value`, as the run's next step. */
clattn_status run_fill(struct run *r, cl_mem buffer, float value, size_t first, size_t count);

/* Copies an array to another one of the same extents on `queue` after `ready`, which may be NULL; `event` may be NULL. */
clattn_status run_copy(struct run *r, cl_command_queue queue, const clattn_layout *from, clattn_binding from_at,
                       const clattn_layout *to, clattn_binding to_at, cl_event ready, cl_event *event);

/* Does so on the run's queue, as its next step. */
clattn_status run_give(struct run *r, const clattn_layout *from, clattn_binding from_at, const clattn_layout *to,
                       clattn_binding to_at);

/* Lets what follows on the run's queue wait for an event of another one, which may be NULL. */
clattn_status run_join(struct run *r, cl_event other);

/* Replaces an event by another one, which may be NULL: it has happened.  One that cannot be kept is waited for. */
void event_replace(const clattn_context *context, cl_event *event, cl_event by);

/* Makes an event that a step has made, which may be NULL, the latest one. */
void run_stepped(struct run *r, cl_event made);

/* Copies the device's memory to the host's, once `ready` has happened.  Blocks. */
clattn_status parcel_fetch(struct run *r, struct parcel *parcel, cl_event ready);

/* Copies the host's memory to the device's, once nobody reads that any more; parcel->written then is its event. */
clattn_status parcel_store(struct run *r, struct parcel *parcel);

/* Waits until the host's memory may be overwritten. */
clattn_status parcel_wait(struct run *r, struct parcel *parcel);

/* Starts an exchange, and waits for it.  A dry run exchanges nothing. */
clattn_status group_start(const struct run *r, const clattn_group_exchange *exchange, void **request);
clattn_status group_finish(const struct run *r, void *request);

/* A part of the host's memory of `out` for each rank goes to it, and parts come to `in`: `bytes` each, or the same to all (`shared`).
 * `requests` has room for as many as there are ranks. */
clattn_status group_swap_start(const struct run *r, const struct parcel *out, bool shared, struct parcel *in,
                               size_t bytes, void **requests);
clattn_status group_swap_finish(const struct run *r, void **requests);

/* Does both, from the device's memory, once `packed` has happened, to that of `in`. */
clattn_status group_swap(struct run *r, struct parcel *out, bool shared, struct parcel *in, size_t bytes,
                         cl_event packed);

/* Swaps a part of `out` for each rank, of `bytes` of floats, and adds those that come in the order of ranks: the sum is what the
 * device's memory of `in` begins with. */
clattn_status group_sum(struct run *r, struct parcel *out, struct parcel *in, size_t bytes, cl_event packed);

/* ---- masks, biases, vectors, slopes and sinks ---- */

/* Gives a block's description its part of them, and memory for the gradients of that; and adds these to the sums. */
void scores_take(const struct run *r, const struct block *b, clattn_attention_desc *d, clattn_attention_args *args);
clattn_status scores_add(struct run *r, const struct block *b, const clattn_attention_desc *d,
                         const clattn_attention_args *args);

/* Makes the sums zeros before the first block; and gives the caller those of all ranks after the last one. */
clattn_status scores_reserve(clattn_group_attention *a);
clattn_status scores_begin(struct run *r);
clattn_status scores_give(struct run *r);

/* ---- positions ---- */

/* The key position of the whole sequence's first query. */
int64_t run_position(const struct run *r);

/* Whether any query at positions `first` ... `last` attends any of `keys` keys from position 0 on, by causality and window; true if items
 * have positions of their own. */
bool attends(const struct group_problem *p, int64_t first, int64_t last, int64_t keys);

/* The whole sequence's element that piece `piece` of a rank begins with, if the rank has `length` elements. */
size_t piece_start(const struct group_problem *p, const clattn_group *group, size_t rank, size_t piece, size_t length);

/* Heads and rows of piece `piece` of one of the rank's own arrays, which may be none. */
clattn_layout rows_of(const struct group_problem *p, const clattn_layout *array, size_t head, size_t heads,
                      size_t piece, clattn_binding *at);

/* ---- arrays in parcels ---- */

/* An array of which each rank has (batch, heads, length, columns). */
struct shard {
    clattn_dtype dtype;
    size_t heads, length, columns;
};

#define MOST_SHARDS 7

/* Arrays that ranks exchange together.  A parcel has those of each rank, `bytes` each, and in them array `i` from byte at[i] on;
 * the whole arrays of all ranks' rows lie one behind the other likewise. */
struct shards {
    size_t count, at[MOST_SHARDS], bytes;
    struct shard array[MOST_SHARDS];
};

struct shards shards_make(const struct group_problem *p, size_t count, const struct shard *arrays);

/* Array `i` of one rank, whose parcel `at` is bound to. */
clattn_layout shard_local(const struct group_problem *p, const struct shards *s, size_t i, clattn_binding *at);

/* Array `i` in a parcel of all ranks as (rank, batch, head, row, column): the rows of piece `piece` of `pieces`. */
clattn_layout shard_parcel(const struct run *r, const struct shards *s, size_t i, size_t piece, size_t pieces,
                           clattn_binding *at);

/* The whole array `i`: (batch, heads, ranks * length, columns). */
clattn_layout shard_whole(const struct run *r, const struct shards *s, size_t i, clattn_binding *at);

/* Copies all arrays of a parcel into the whole ones, in the sequence's order, on the queue for transfers after `ready`. */
clattn_status shards_order(struct run *r, const struct shards *s, cl_mem parcel, cl_mem whole, cl_event ready,
                           cl_event *event);

/* Copies them back, as the next steps on the run's queue. */
clattn_status shards_cut(struct run *r, const struct shards *s, cl_mem whole, cl_mem parcel);

/* ---- a ring's keys and values ---- */

/* Those of one rank in a parcel: keys, and values behind them; or their gradients, which are float32. */
struct shards ring_shards(const struct group_problem *p, bool gradients);

/* Copies the rank's own into a parcel. */
clattn_status ring_pack(struct run *r, const struct shards *s, struct parcel *parcel, cl_event *packed);

/* Begins to pass a parcel on and to receive another one; and waits for that, which then comes to the device. */
clattn_status ring_pass(struct run *r, const struct parcel *parcel, struct parcel *next, void **request);
clattn_status ring_receive(struct run *r, struct parcel *next, void **request);

/* Whether any query of the rank's piece `piece` attends keys of the whole sequence's piece that begins at `key_start`. */
bool ring_needs(const struct run *r, size_t piece, size_t key_start);

/* The rank's piece `piece` beside the keys that begin at `key_start`: which queries and keys a block has. */
void ring_place(const struct run *r, size_t piece, size_t key_start, struct block *b);

/* ---- modes ---- */

clattn_status ring_reserve(clattn_group_attention *a);
clattn_status ring_run(struct run *r);
clattn_status ring_backward_reserve(clattn_group_attention *a);
clattn_status ring_backward_run(struct run *r);
clattn_status gather_reserve(clattn_group_attention *a);
clattn_status gather_run(struct run *r);
clattn_status heads_reserve(clattn_group_attention *a);
clattn_status heads_run(struct run *r);

/* Makes a parcel of so many bytes, or a buffer.  The queue for transfers makes them zeros, since what lies between arrays, and rows that
 * no item owns, is sent, too. */
clattn_status parcel_make(clattn_group_attention *a, struct parcel *parcel, size_t bytes);
clattn_status buffer_make(clattn_group_attention *a, cl_mem *buffer, size_t bytes);

#endif
