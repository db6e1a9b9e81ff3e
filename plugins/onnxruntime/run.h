/* A chain of steps, computed. */
#ifndef CLATTN_ONNXRUNTIME_RUN_H
#define CLATTN_ONNXRUNTIME_RUN_H

#include "base/cl.h"
#include "base/os/os_threads.h"
#include "step.h"

/* What computes, for all chains of a session. */
typedef struct engine {
    const OrtApi *ort;
    clattn_context *context;
    cl_command_queue queue; /* the context's, in order */
    struct cl_table cl;
    bool shares;                   /* the device is a processor, whose memory is the host's */
    const OrtMemoryDevice *memory; /* of arrays in OpenCL buffers; NULL: the session's are all in the host's memory */
    clattn_dtype stored;           /* what float32 is stored as in chains, float16 or bfloat16; NONE: as it is */
    size_t spinning;               /* how many of the session's threads may spin on the device's cores; 0: none */
    mtx_t lock;   /* held while a run enqueues: whatever is below, and the chains, are only used then */
    cl_mem arena; /* what lies between the steps of any run: the queue's order keeps runs apart */
    size_t arena_bytes;
    cl_kernel elementwise[3]; /* of float32, float16 and bfloat16; NULL: not built yet */
} engine;

/* An array of one run. */
typedef struct run_array {
    size_t rank;
    int64_t dim[MOST_DIMENSIONS];
    size_t elements;
    clattn_dtype dtype; /* NONE: whole numbers that a step makes, which are at `host` alone */
    void *host; /* the elements of an input, a constant or an output in the host's memory, or a copy of whole numbers */
    size_t owner;          /* whose memory this array is, which may be itself */
    size_t last;           /* the last step that reads this array's memory */
    cl_mem buffer;         /* borrowed; of an owner, or of an application */
    size_t offset;         /* in bytes */
    size_t columns, pitch; /* rows of so many elements begin `pitch` apart; 0: all elements lie together */
    size_t shift;          /* from where the owner begins, in bytes */
} run_array;

/* A value of a chain. */
typedef struct chain_value {
    size_t input, output; /* of the replacing node; NO_PLACE: it is none */
    bool read;            /* by a step */
    size_t readers;  /* steps that read its elements on the device; others read its shape or its numbers on the host */
    bool constant;   /* an input that never changes */
    run_array shape; /* of a constant */
    cl_mem buffer;   /* of a constant, once it has been used */
    void *copy;      /* of a constant of whole numbers on the device: these numbers */
} chain_value;

/* What is kept of a product: a plan, and the matrix as that plan packs it. */
typedef struct chain_product {
    clattn_plan *plan;
    size_t rows; /* the most that the plan takes */
    cl_mem packed;
} chain_product;

/* Products of one array that are computed as one, by a matrix with the columns of all. */
typedef struct chain_joint {
    size_t first;          /* the step that computes all of them; NO_PLACE: the step's product is computed alone */
    size_t column, pitch;  /* which of the columns of all are the step's first, and how many there are */
    size_t step[3], steps; /* of the first: all of them */
    chain_product product; /* of the first: what is kept of it */
    cl_mem matrix, bias;   /* of the first: those of all, the matrix transposed, or NULL */
} chain_joint;

typedef struct chain {
    step *step;
    chain_product *product; /* of each step */
    bool *idle;             /* of each step: it moves what nobody reads */
    size_t *
        turn; /* of attention, the transposition that alone reads its output, perhaps behind reshapes; of that, the attention */
    size_t steps;
    chain_joint *joint; /* of each step */
    chain_value *value;
    size_t values;
    char (*name)[64]; /* of each step, for messages */
} chain;

/* Finds what is computed together, and what is not computed. */
void chain_fuse(chain *c, const graph *g);

/* A chain releases what it has, in any state. */
void chain_release(const engine *e, chain *c);

/* The extents and the type of a step's output number `part`, of its inputs'. */
OrtStatus *step_shape(const OrtApi *ort, const step *s, size_t part, run_array *const input[STEP_INPUTS],
                      run_array *output);

/* Parts of step_shape. */
OrtStatus *attention_shape(const OrtApi *ort, const step *s, size_t part, run_array *const input[], run_array *output);
OrtStatus *rope_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output);
OrtStatus *einsum_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output);

/* Whether a function has an alpha, for which descriptions have an `alpha`. */
bool has_alpha(clattn_activation function);

/* A failure that says what is wrong with a shape. */
OrtStatus *wrong_shape(const OrtApi *ort, const char *what);

/* Counts an array's elements by its extents. */
OrtStatus *count_elements(const OrtApi *ort, run_array *array);

/* Part of step_shape: of a Shape and of a Gather. */
OrtStatus *numbers_shape(const OrtApi *ort, const step *s, const run_array *x, run_array *output);

/* Computes whole numbers to output->host, where there is room for MOST_DIMENSIONS. */
OrtStatus *numbers_compute(const OrtApi *ort, const step *s, run_array *const input[STEP_INPUTS],
                           const run_array *output);

/* Parts of step_shape and step_enqueue, of what pictures have. */
OrtStatus *convolution_shape(const OrtApi *ort, const step *s, run_array *const input[], run_array *output);
OrtStatus *resize_shape(const OrtApi *ort, const step *s, const run_array *x, run_array *output);
OrtStatus *depth_to_space_shape(const OrtApi *ort, const step *s, const run_array *x, run_array *output);
OrtStatus *enqueue_convolution(const engine *e, const step *s, run_array *const input[], const run_array *output);
OrtStatus *enqueue_resize(const engine *e, const step *s, const run_array *x, const run_array *y);
OrtStatus *enqueue_depth_to_space(const engine *e, const step *s, const run_array *x, const run_array *y);

/* Where a part of a split, or a slice, begins in each dimension, and its extents; of a Shape, `input` is the row of its numbers. */
void slice_bounds(const step *s, size_t part, const run_array *input, int64_t *start, int64_t *extent);

/* Changes an array's shape as `how` says; `target` has a RESHAPE_TARGET's numbers, or is NULL. */
OrtStatus *reshape(const OrtApi *ort, const step_reshape *how, const run_array *target, run_array *array);

/* Enqueues what makes a step's output number `part`; later parts come first.  The caller holds the engine's lock, also of
 * what is below. */
OrtStatus *step_enqueue(engine *e, const chain *c, size_t number, size_t part, run_array *const input[STEP_INPUTS],
                        const run_array *const outputs[STEP_OUTPUTS]);

/* The same for joint products, of which `first` is the first; `array` has all values of the chain. */
OrtStatus *enqueue_joint(const engine *e, const chain *c, size_t first, const run_array *array);

OrtStatus *enqueue_move(const engine *e, const step *s, size_t part, run_array *const input[STEP_INPUTS],
                        const run_array *output);
OrtStatus *enqueue_elementwise(engine *e, size_t function, const run_array *a, const run_array *b, const run_array *y);
OrtStatus *enqueue_attention(const engine *e, const step *s, size_t part, run_array *const given[],
                             const run_array *const outputs[]);
OrtStatus *enqueue_einsum(const engine *e, const step *s, run_array *const input[], const run_array *output);
OrtStatus *enqueue_rope(const engine *e, const step *s, run_array *const input[], const run_array *output);

/* Enqueues zeros for a whole array. */
OrtStatus *fill_zero(const engine *e, const run_array *array);

/* An array that begins so many elements behind another. */
run_array shifted(const run_array *array, int64_t elements);

/* Strides of an array: row-major, but for the rows' pitch. */
void strides_of(const run_array *array, int64_t stride[MOST_DIMENSIONS]);

/* The strides of an array that is broadcast to `shape`. */
void strides_within(const run_array *array, const run_array *shape, int64_t stride[MOST_DIMENSIONS]);

/* Enqueues a copy whose `rank` dimensions lie in `x` and `y` by these strides, joining dimensions that lie together.  The types may
 * differ. */
OrtStatus *copy(const engine *e, size_t rank, const int64_t *extent, const int64_t *x_stride, const int64_t *y_stride,
                const run_array *x, const run_array *y);

/* Makes *array one of `shape`, which it is broadcast to, in a buffer of its own if it is smaller. */
OrtStatus *expand(const engine *e, const run_array *shape, run_array *array, cl_mem *buffer);

/* Where an array lies, or none for NULL. */
clattn_binding binding_of(const run_array *array);
size_t array_bytes(const run_array *array);

/* Computes the chain from the context's inputs to its outputs, and waits for them.  Any number of threads may call it.  Threads of
 * the session's that would spin meanwhile, on cores that the device needs, sleep. */
OrtStatus *chain_run(engine *e, const chain *c, OrtKernelContext *context);

/* The failure of a status, or NULL if it is none. */
OrtStatus *judge(const engine *e, clattn_status status);

/* An OpenCL buffer for `bytes`, which are at `host` if the device shares the host's memory, or are copied from there. */
OrtStatus *engine_buffer(const engine *e, void *host, size_t bytes, bool written, cl_mem *buffer);

#endif
