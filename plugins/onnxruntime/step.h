/* What one call of clattn computes of a graph: the nodes that it replaces, what it reads, and what it makes. */
#ifndef CLATTN_ONNXRUNTIME_STEP_H
#define CLATTN_ONNXRUNTIME_STEP_H

#include <clattn/clattn.h>

#include "graph.h"

#define MOST_NODES 24
#define STEP_INPUTS 10
#define STEP_OUTPUTS 4
#define STEP_READS (STEP_INPUTS + 3) /* inputs and what is read through */

typedef enum step_kind {
    STEP_ATTENTION,
    STEP_PRODUCT, /* by a constant matrix */
    STEP_NORM,
    STEP_ROPE,
    STEP_ACTIVATION,
    STEP_CONVOLUTION,
    STEP_RESIZE,      /* of pictures */
    STEP_ELEMENTWISE, /* the first of the light steps, which are taken only between the others */
    STEP_TRANSPOSE,
    STEP_SLICE,
    STEP_SPLIT,
    STEP_CONCAT,
    STEP_EXPAND,
    STEP_DEPTH_TO_SPACE,
    STEP_EINSUM,  /* that is a product of matrices */
    STEP_RESHAPE, /* costs nothing: the same elements */
    STEP_SHAPE,   /* whole numbers on the host, as are some of other kinds */
    STEP_GATHER,  /* of whole numbers */
} step_kind;

/* The inputs of each kind; other kinds have one, and perhaps TARGET. */
enum { QUERY, KEY, VALUE, MASK, PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COSINES, SINES };
enum { ATTENDED, PRESENT_KEY, PRESENT_VALUE }; /* the outputs of attention with a cache */
enum { ROPE_X, ROPE_POSITIONS };               /* and COSINES and SINES */
enum { PRODUCT_A, PRODUCT_B, PRODUCT_BIAS, PRODUCT_OPERAND };
enum { NORM_X, NORM_SCALE, NORM_BIAS, NORM_RESIDUAL, NORM_ADDEND }; /* the addend, one row, is added to the residual */
enum { NORMED, NORM_SUM };                                          /* the outputs of a norm: the sum that it is of */
enum { CONVOLVED, CONVOLUTION_WEIGHT, CONVOLUTION_BIAS };
enum { TARGET = STEP_INPUTS - 1 }; /* of a reshape or an expansion: whole numbers on the host */

/* How an array in row-major order is attention's, or a rotary embedding's, (batch, heads, length, size). */
typedef struct attention_view {
    size_t rank;    /* 4; or 3, without a batch or with heads and size in one dimension */
    size_t split;   /* the heads of an array of rank 3 whose last dimension has split * size elements; 0: it has not */
    size_t axis[4]; /* if it has not: which dimension is attention's; the first is none of an array of rank 3 */
    size_t first, heads; /* if it has: which of its heads are meant */
} attention_view;

typedef enum reshape_kind {
    RESHAPE_NONE,
    RESHAPE_TARGET,    /* `number`, or the input TARGET, is the shape: 0 keeps an extent, -1 is what is left */
    RESHAPE_SQUEEZE,   /* without the axes `number`, or without all that are 1 */
    RESHAPE_UNSQUEEZE, /* with the axes `number` */
    RESHAPE_FLATTEN    /* to two dimensions, of which the first has those before `number` */
} reshape_kind;

typedef struct step_reshape {
    reshape_kind kind;
    int64_t number[MOST_DIMENSIONS];
    size_t numbers;
    bool zeros; /* 0 is an extent of its own */
} step_reshape;

/* Functions of one or two arrays, element by element; the first is ELEMENTWISE_ADD, and the last has no name. */
#define ELEMENTWISE_ADD 0
extern const struct elementwise {
    const char *op;         /* ONNX's */
    size_t inputs;          /* 1: a; 2: a and b */
    const char *expression; /* in OpenCL C */
} elementwise_functions[];

typedef struct step {
    step_kind kind;
    size_t node[MOST_NODES]; /* of the graph, ascending */
    size_t nodes;
    size_t input[STEP_INPUTS]; /* values; NO_PLACE: there is none */
    /* Of QUERY, KEY and VALUE: the output of a transposition that is another step, which the step's nodes read in the graph, where
     * the step reads `input`. */
    size_t through[3];
    size_t output[STEP_OUTPUTS]; /* values; NO_PLACE: there is none */
    struct {
        attention_view view[3], output; /* of QUERY, KEY and VALUE, or of ROPE_X */
        bool causal, short_mask;
        bool has_scale;
        float scale, softcap;
        int64_t window; /* how many keys a query attends, its own the last; below 1: all before.  Only with LENGTHS */
    } attention;
    struct {
        bool interleaved;
        int64_t size; /* the elements of each head that are rotated; 0: all */
    } rope;
    struct {
        bool transposed; /* the matrix is (n, k) */
        bool multiplies; /* the operand is multiplied in, and otherwise added */
        bool scalar;     /* the operand is one constant number */
    } product;
    struct {
        clattn_activation function;
        float alpha;
    } activation; /* of a product, of a convolution, or alone */
    struct {
        clattn_norm_kind kind;
        size_t axes; /* the last ones */
        bool skips;  /* the output has the input's shape, whatever the residual's */
        float epsilon;
    } norm;
    struct {
        int32_t stride[2], dilation[2], padding[4]; /* of rows and columns; top, left, bottom, right */
        int32_t groups;
    } convolution;
    struct {
        clattn_resize_mode mode;
        bool align_corners, has_scale;
        float scale[2];  /* factors of rows and of columns */
        int64_t size[2]; /* their numbers, if there are no factors */
        float cubic_a;
    } resize;
    struct {
        int64_t block;
        bool crd; /* ONNX's mode: the channels of a block lie together; otherwise DCR */
    } depth;
    struct {
        int64_t index[MOST_DIMENSIONS];
        size_t count, rank;
    } gather; /* of whole numbers */
    struct {
        char index[3][MOST_DIMENSIONS + 1]; /* letters, of both inputs and of the output */
    } einsum;
    step_reshape reshape;         /* alone, or of a product's sums, before a bias, an activation or an operand */
    size_t axis[MOST_DIMENSIONS]; /* of a transposition: which dimension of the input each is; [0] of a split and of
                                   * what is put together: the dimension */
    /* Of a slice, of each dimension; of a split, `start` has the parts' extents. */
    int64_t start[MOST_DIMENSIONS], end[MOST_DIMENSIONS], stride[MOST_DIMENSIONS];
    size_t function; /* of elementwise_functions */
} step;

/* Finds the step that begins at `node`: *found tells whether there is one that clattn takes, and otherwise *reason, a static
 * string, why not, or NULL if the node is none that it knows.  `taken` says which nodes are in another step.  First come the
 * steps that compute, and in a second pass (`light`) single nodes that move or change elements. */
OrtStatus *step_match(const graph *g, size_t node, bool light, const bool *taken, step *made, bool *found,
                      const char **reason);

/* ---- Parts of step_match. ---- */

/* Each stores whether the nodes around `node` are such a step, and perhaps why not.  Of attention, rotary embeddings and norms
 * that are one node, `made` has the inputs already. */
OrtStatus *match_softmax(const graph *g, size_t softmax, const bool *taken, step *made, bool *found,
                         const char **reason);
OrtStatus *match_attention(const graph *g, size_t node, step *made, bool *found, const char **reason);
OrtStatus *match_rope(const graph *g, size_t node, step *made, bool *found, const char **reason);
OrtStatus *match_product(const graph *g, size_t node, const bool *taken, step *made, bool *found, const char **reason);

OrtStatus *match_light(const graph *g, size_t node, step *made, bool *found);

/* Shape, Gather and Cast that make whole numbers. */
OrtStatus *match_numbers(const graph *g, size_t node, step *made, bool *found);

OrtStatus *match_convolution(const graph *g, size_t node, const bool *taken, step *made, bool *found,
                             const char **reason);
OrtStatus *match_resize(const graph *g, size_t node, step *made, bool *found, const char **reason);
OrtStatus *match_depth_to_space(const graph *g, size_t node, step *made, bool *found);
OrtStatus *match_einsum(const graph *g, size_t node, step *made, bool *found);

/* RMSNorm in pieces: X · 1 / sqrt(mean(X²) + epsilon) · scale. */
OrtStatus *match_rms(const graph *g, size_t node, const bool *taken, step *made, bool *found);

/* Finds what activates `value` with nodes that are free: adds them to the step, whose output is then the result. */
OrtStatus *match_activation(const graph *g, size_t value, const bool *taken, step *made, bool *found);

/* Reads a Reshape, Squeeze, Unsqueeze or Flatten: *shape is the value that has the target, or NO_PLACE. */
OrtStatus *read_reshape(const graph *g, size_t node, step_reshape *made, size_t *shape, bool *found);

/* Reads the permutation of a Transpose: *found tells whether it is one of `rank` dimensions. */
OrtStatus *read_permutation(const graph *g, size_t node, size_t rank, size_t perm[MOST_DIMENSIONS], bool *found);

/* Adds a node; false if there are too many. */
bool step_add(step *made, size_t node);

/* The node that makes a value, if it is of ONNX's operator `op` and free. */
size_t maker_of(const graph *g, const bool *taken, size_t value, const char *op);

/* The same, if nobody else reads the value. */
size_t inner(const graph *g, const bool *taken, size_t value, const char *op);

/* The only node that reads a value, if it is of ONNX's operator `op` and free, and the place among its inputs. */
size_t follower(const graph *g, const bool *taken, size_t value, const char *op, size_t *input);

/* The other input of a node of two. */
size_t other_input(const graph *g, size_t node, size_t value);

/* Whether a value is a constant near `number`. */
bool is_number(const graph *g, size_t value, double number);

/* The only reader of `value`, of the operator `op`, whose other input is near `number`. */
size_t follower_by(const graph *g, const bool *taken, size_t value, const char *op, double number);

/* The first free reader of `value` that is of the operator `op`. */
size_t reader_of(const graph *g, const bool *taken, size_t value, const char *op);

/* The value that the nodes of a step read: one of its inputs, or one that the step reads through; or NO_PLACE. */
size_t step_reads(const step *s, size_t i);

/* Whether an input or output is there. */
bool has(const size_t *values, size_t count, size_t place);

bool is_float(const graph *g, size_t value);

/* The rank of a value, 0 if it is not known. */
size_t rank_of(const graph *g, size_t value);

/* The last extent of a value, -1 if it is not known. */
int64_t last_extent(const graph *g, size_t value);

#endif
