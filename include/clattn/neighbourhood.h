/* Neighbourhood attention: each pixel attends a window of pixels around it.
 *
 *   S[b,h,y,x,(i,j)] = scale * sum_d query[b,h,y,x,d] * key[b,h/g,i,j,d]  (+ bias[b,h,i,j])
 *   O[b,h,y,x,:]     = sum_(i,j) softmax(S[b,h,y,x,:] over the window of (y,x)) * value[b,h/g,i,j,:]
 *
 * with g = query heads / key-value heads.  In each dimension, of length L, with window K (odd) and dilation
 * D:
 *
 *   a position p belongs to the group of those with the same r = p mod D, where it is the t-th, t = p div D,
 * of n = ceil((L − r) / D); its window is a range of the group's positions r + D*u: CLATTN_EDGE_SHIFT   u = s
 * … s + K − 1 with s = t − K div 2, shifted to lie within 0 … n − K, so that every query has K keys in this
 * dimension; needs K*D <= L.  As NATTEN has it (Hassani et al. 2023, "Neighborhood Attention Transformer";
 * dilation: Hassani and Shi 2022). CLATTN_EDGE_CLIP    u = t − K div 2 … t + K div 2 as far as it lies within
 * 0 … n − 1: keys outside are dropped, and the query stands in the middle of what is left.
 *
 * The window of a query is the product of its two ranges.  Its cost is that of the window, K_y * K_x keys for
 * each query, and never of the whole map; scores are not written to memory.  A key outside the window cannot
 * leak, whatever it holds.  Storage is float32, float16 or bfloat16, state float32.
 *
 * A bias of −inf drops its key exactly: K there may hold anything, V takes part with weight +0 and must be
 * finite. A query all of whose keys are dropped is exactly +0 and its log-sum-exp −inf.  A NaN, or a +inf
 * score, makes its query NaN. */
#ifndef CLATTN_NEIGHBOURHOOD_H
#define CLATTN_NEIGHBOURHOOD_H

#include "plan.h"

CLATTN_BEGIN_DECLS

typedef enum clattn_edge {
    CLATTN_EDGE_SHIFT = 0,
    CLATTN_EDGE_CLIP = 1,
    CLATTN_EDGE_FORCE_32BIT = 0x7fffffff
} clattn_edge;

/* What to compute.  Set it up with CLATTN_NEIGHBOURHOOD_DESC_INIT.  Extents are the largest ones that an
 * enqueue may use.  Pairs are (y, x). */
typedef struct clattn_neighbourhood_desc {
    size_t size; /* sizeof(clattn_neighbourhood_desc) */
    clattn_direction direction;
    clattn_edge edge;
    int32_t window[2];      /* K, odd, 1 … 32767 */
    int32_t dilation[2];    /* D, 1 … 32767; 0 (default): 1 */
    int32_t explicit_scale; /* 1: `scale` counts; 0 (default): 1/sqrt(d_k) */
    float scale;            /* any finite value, 0 and negative included */
    clattn_layout query;    /* (batch, heads, query height, query width, d_k): F32, F16 or BF16, as key, value
                           * and  output, each for itself */
    clattn_layout key;      /* (batch, kv_heads, height, width, d_k); heads is a multiple of kv_heads */
    clattn_layout value;    /* (batch, kv_heads, height, width, d_v) */
    clattn_layout output;   /* (batch, heads, query height, query width, d_v) */
    clattn_layout bias;     /* none, or (batch or 1, heads or 1, height, width) CLATTN_DTYPE_F32: added to the scores of
                         * a key, whichever query asks */
    clattn_layout lse;      /* none, or (batch, heads, query height, query width) CLATTN_DTYPE_F32: natural logarithm of
                         * the sum of exp(S) over the window */
} clattn_neighbourhood_desc;

#define CLATTN_NEIGHBOURHOOD_DESC_INIT CLATTN_INIT(clattn_neighbourhood_desc)

/* What CLATTN_NEIGHBOURHOOD_DESC_INIT does.  NULL is accepted. */
CLATTN_API void clattn_neighbourhood_desc_init(clattn_neighbourhood_desc *desc);

/* Where the arrays are this time, and how much of them counts.  Set it up with
 * CLATTN_NEIGHBOURHOOD_ARGS_INIT.
 *
 * Queries may be a part of the map, a tile: query (0, 0) stands at key position (query_y, query_x), and all
 * of them within the map of keys.  The keys of a tile are then those within a margin of K div 2 * D around it
 * (where the map ends earlier, so do they), and tile by tile the result is that of the whole map.  With
 * CLATTN_EDGE_SHIFT windows at the map's edge reach further inwards: where the map's end cuts a margin, a tile has at
 * least K * D keys in that dimension, from the edge on. */
typedef struct clattn_neighbourhood_args {
    size_t size; /* sizeof(clattn_neighbourhood_args) */
    clattn_binding query, key, value, bias, output, lse;
    int32_t explicit_sizes; /* 1: the five fields below count; 0 (default): the desc's extents */
    int32_t reserved;       /* 0 */
    size_t batch;           /* each <= the desc's; 0 queries are allowed and do nothing */
    size_t query_height, query_width;
    size_t key_height, key_width;
    size_t query_y, query_x;  /* query_y + query height <= key height, and so for x; default 0 */
    clattn_binding workspace; /* at least clattn_plan_workspace_size bytes, `offset` in bytes and a multiple
                               * of 128; none (default): leased from the context */
} clattn_neighbourhood_args;

#define CLATTN_NEIGHBOURHOOD_ARGS_INIT CLATTN_INIT(clattn_neighbourhood_args)

/* What CLATTN_NEIGHBOURHOOD_ARGS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_neighbourhood_args_init(clattn_neighbourhood_args *args);

/* The five calls below behave as their namesakes in attention.h: contracts, blocking and statuses. */
CLATTN_API clattn_status clattn_neighbourhood_supports(clattn_context *context, const clattn_neighbourhood_desc *desc,
                                                       const char **reason);
CLATTN_API clattn_status clattn_neighbourhood_plan_create(clattn_context *context,
                                                          const clattn_neighbourhood_desc *desc,
                                                          const clattn_plan_options *options, clattn_plan **plan);
CLATTN_API clattn_status clattn_neighbourhood_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                      const clattn_neighbourhood_args *args, cl_uint wait_count,
                                                      const cl_event *wait_list, cl_event *event);
CLATTN_API clattn_status clattn_neighbourhood_prewarm(clattn_context *context, const clattn_neighbourhood_desc *desc);
CLATTN_API clattn_status clattn_neighbourhood_run(clattn_context *context, cl_command_queue queue,
                                                  const clattn_neighbourhood_desc *desc,
                                                  const clattn_neighbourhood_args *args, cl_uint wait_count,
                                                  const cl_event *wait_list, cl_event *event);

CLATTN_END_DECLS

#endif
