/** @file
 * Training: gradients of a whole model, and the steps of its optimizer.
 *
 * A trainer belongs to a model (transformer.h): an encoder of tokens or features, a decoder, or both. It has a gradient and two
 * moments for every parameter. One step of training is
 *
 *     clattn_training_enqueue     once, or once for each part of a large batch: the losses, and the gradients
 *     clattn_trainer_update       clips the gradients' norm and moves the parameters, by Adam or AdamW
 *
 * Neither waits for the device, and nothing passes through the host. A training plan is made for one shape: an application
 * makes one for each pair of lengths that it pads its items to. Plans of all shapes share compiled kernels, and may share a
 * workspace.
 *
 * The loss of a token is the cross-entropy of its logits and its label (cross_entropy.h). Gradients are those of
 *
 *     scale * sum of the losses of all labels that are not -100
 *
 * so that with scale = 1 / (labels of the step) the step is that of the mean loss. A model without logits, as an encoder
 * alone, has no loss of its own: its steps are two calls, between which the application computes the gradient of the
 * model's output (clattn_training_phase).
 *
 * Every sum has one order, and there are no atomics: the same calls give the same bits on one device, driver and program.
 *
 * The model is float32, or bfloat16 with the trainer's own float32 numbers for each parameter, of which those that the model
 * computes with are rounded; gradients of parameters and moments are float32. What a layer made on the way forward is kept
 * in the workspace until its gradient has been computed; with `recompute`, only what goes into each layer is kept, and a
 * layer is computed once more on the way back.
 * A model may be used by other plans while it is trained, on the same queue; plans that hold their matrices packed
 * (clattn_encoder_desc.prepack) keep those of when they were made.
 */
#ifndef CLATTN_TRAINING_H
#define CLATTN_TRAINING_H

#include "transformer.h"

CLATTN_BEGIN_DECLS

/** Gradients and moments of a model's parameters.
 *
 * - Thread-safety: calls with one trainer are made one at a time.
 * - Ownership: the caller releases it with clattn_trainer_release. It keeps the model; plans keep the trainer. */
typedef struct clattn_trainer clattn_trainer;

/** Makes a trainer for `model`, whose parameters and activations are float32 or bfloat16. Moments and gradients are zeros. Blocks while
 * memory is allocated and the optimizer's kernels are compiled.
 *
 * If it fails, *trainer is NULL.
 *
 * @return UNSUPPORTED: the model has something that has no gradient, which the message names. OVERFLOW: a buffer of weights has
 * 2^31 numbers or more. Otherwise
 * INVALID_ARGUMENT, FORKED, OUT_OF_MEMORY, OPENCL, BUILD, MISCOMPILED, IO or INTERNAL. */
CLATTN_API clattn_status clattn_trainer_create(clattn_transformer *model, clattn_trainer **trainer);

/** Releases the trainer and sets *trainer to NULL; accepts NULL and a pointer to NULL. Does not wait for enqueued work. */
CLATTN_API void clattn_trainer_release(clattn_trainer **trainer);

/** A parameter: a tensor of the model, in each of four buffers of float32. Set it up with CLATTN_PARAMETER_INIT.
 *
 * It is contiguous and row-major, but for the matrices of convolutions: (rows, channels, kernel), whose channels are next to each
 * other. A bias that the model does not have is no parameter.
 *
 * The buffers belong to model and trainer. An application that writes to them, as to go on from a checkpoint, enqueues that
 * on the queue of the steps, and makes the model of the same values: a bfloat16 model is rounded by updates alone. */
typedef struct clattn_parameter {
    size_t size;          /**< sizeof(clattn_parameter) */
    const char *name;     /**< the canonical name (weights.h); lives as long as the model */
    clattn_layout layout; /**< its extents and strides, of rank 1 to 3 */

    /** The extents of the model's tensor. They are larger than the layout's if ranks have the model together
     * (clattn_group_transformer_create) and this rank has a part of it. */
    size_t whole[3];
    size_t first[3];         /**< the index in that tensor of the part's first element; otherwise zeros */
    clattn_binding value;    /**< the parameter itself, which an update of a bfloat16 model rounds to it */
    clattn_binding gradient; /**< its gradient, of the steps since the last update */
    clattn_binding
        first_moment; /**< the optimizer's mean of gradients; none in a group (clattn_trainer_moments_read) */
    clattn_binding second_moment; /**< the optimizer's mean of their squares; likewise */
} clattn_parameter;

/** Initialises a clattn_parameter: its size, and zeros. */
#define CLATTN_PARAMETER_INIT CLATTN_INIT(clattn_parameter)

/** Sets *parameter as CLATTN_PARAMETER_INIT does (@ref calls_init). */
CLATTN_API void clattn_parameter_init(clattn_parameter *parameter);

/** Returns the bytes of device memory that `trainer` takes besides the model's; 0 for NULL. Parts of steps
 * (clattn_training_args.accumulate) take as much as the gradients once more. */
CLATTN_API size_t clattn_trainer_bytes(const clattn_trainer *trainer);

/** Returns how many parameters there are; 0 for NULL. */
CLATTN_API size_t clattn_trainer_parameter_count(const clattn_trainer *trainer);

/** Writes parameter `index` to *parameter; their order is always the same. Does not block.
 *
 * @return INVALID_ARGUMENT or INVALID_STRUCT. */
CLATTN_API clattn_status clattn_trainer_parameter(const clattn_trainer *trainer, size_t index,
                                                  clattn_parameter *parameter);

/** Copies a parameter's two moments to host memory, as they lie in the layout of the parameter, behind all that `queue` has (NULL: the
 * context's own). Blocks.
 *
 * All ranks of a group (group.h) call it, for the same parameter and rank; rank `rank` gets the moments, and `first` and `second` of the
 * others may be NULL. `rank` is 0 if there is no group.
 *
 * @return INVALID_ARGUMENT, OUT_OF_MEMORY, OPENCL, GROUP or FORKED. */
CLATTN_API clattn_status clattn_trainer_moments_read(clattn_trainer *trainer, cl_command_queue queue, size_t index,
                                                     int32_t rank, float *first, float *second);

/** Copies a parameter's two moments from host memory, as clattn_trainer_moments_read has made them, behind all that `queue` has (NULL:
 * the context's own). Blocks.
 *
 * A rank of a group keeps its share of them; ranks do not wait for each other.
 *
 * @return INVALID_ARGUMENT, OPENCL or FORKED. */
CLATTN_API clattn_status clattn_trainer_moments_write(clattn_trainer *trainer, cl_command_queue queue, size_t index,
                                                      const float *first, const float *second);

/** Which way a call goes. */
typedef enum clattn_training_phase {
    CLATTN_TRAINING_PHASE_BOTH = 0,     /**< forward and back: models with logits */
    CLATTN_TRAINING_PHASE_FORWARD = 1,  /**< forward: models without logits */
    CLATTN_TRAINING_PHASE_BACKWARD = 2, /**< back, in the workspace that the way forward has left */
    CLATTN_TRAINING_PHASE_FORCE_32BIT = 0x7fffffff
} clattn_training_phase;

/** What to compute. Set it up with CLATTN_TRAINING_DESC_INIT. */
typedef struct clattn_training_desc {
    size_t size;           /**< sizeof(clattn_training_desc) */
    size_t batch;          /**< items */
    size_t source_length;  /**< tokens or frames of each item that the encoder reads; 0: the model has no encoder */
    size_t target_length;  /**< tokens of each item that the decoder reads; 0: the model has no decoder */
    float label_smoothing; /**< 0 (default) or more, and less than 1 (cross_entropy.h) */

    /** The probability with which dropout.h drops elements of what goes into the first layer, and of what each sublayer
     * makes before the residual is added, as in the paper; 0 (default): nothing is dropped. */
    float dropout;
    int32_t recompute;  /**< 1: layers are computed again on the way back; 0 (default): they are kept */
    int32_t evaluation; /**< 1: losses alone, without dropout and gradients; 0 (default): gradients, too */
} clattn_training_desc;

/** Initialises a clattn_training_desc: its size, and zeros. */
#define CLATTN_TRAINING_DESC_INIT CLATTN_INIT(clattn_training_desc)

/** Sets *desc as CLATTN_TRAINING_DESC_INIT does (@ref calls_init). */
CLATTN_API void clattn_training_desc_init(clattn_training_desc *desc);

/** Where the arrays are this time. Set it up with CLATTN_TRAINING_ARGS_INIT.
 *
 * All arrays are contiguous buffers. Ids beyond an item's length are read, and must be ids of the vocabulary; their labels
 * are -100. */
typedef struct clattn_training_args {
    size_t size; /**< sizeof(clattn_training_args) */

    /** If there is an encoder: (batch, source_length) int32 ids, or (batch, source_length, features) of the model's dtype. */
    clattn_binding source;
    clattn_binding target; /**< (batch, target_length) int32 ids: what the decoder reads, shifted right by the caller */

    /** None, or the segment of each token, int32 with the extents of source, if the encoder has segments; none: they are 0.
     * Those beyond an item's length are read, too. */
    clattn_binding source_segments;
    clattn_binding target_segments; /**< the same of target, if the decoder has segments */
    clattn_binding
        labels; /**< (batch, target_length) int32: the id that each position shall predict; -100: it does not count */
    clattn_binding
        losses; /**< (batch, target_length) float32, an output: the loss of each label, 0 where it does not count */

    /** Models without logits have no labels and losses, but on the way forward this output, (batch, length, d_model) of the
     * model's dtype and the last stack's length, and on the way back its gradient, of the same extents and dtype. */
    clattn_binding output;
    clattn_binding output_gradient; /**< the derivatives of the loss by the output */

    /** NULL, or each item's own number of source tokens, 0 ... source_length, in host memory that is read during the call.
     * Tokens beyond are not attended. Of features: the number of positions behind the convolutions
     * (clattn_stack_positions). */
    const int32_t *source_lengths;
    const int32_t *target_lengths; /**< the same of target tokens */
    int32_t explicit_scale;        /**< 1: `scale` counts; 0 (default): 1 */
    float scale;                   /**< finite; multiplies the gradients */
    int32_t accumulate; /**< 1: gradients are added to those that are there; 0 (default): they replace them */

    /** BOTH with logits. Without, FORWARD and then BACKWARD, with one workspace of the caller's, which has the lengths; seed, source,
     * target and segments are the same in both, and `scale` does not count. */
    clattn_training_phase phase;
    uint64_t seed;            /**< of dropout: the same seed drops the same; another step takes another one */
    clattn_binding workspace; /**< none (default), or a workspace in a buffer (@ref calls_workspace) */
    clattn_control *control;  /**< what watches the call (control.h), or NULL */
} clattn_training_args;

/** Initialises a clattn_training_args: its size, and zeros. */
#define CLATTN_TRAINING_ARGS_INIT CLATTN_INIT(clattn_training_args)

/** Sets *args as CLATTN_TRAINING_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_training_args_init(clattn_training_args *args);

/** Compiles a plan for steps of this shape (@ref calls_plan). Blocks.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED, OUT_OF_MEMORY, FORKED, OPENCL, BUILD, MISCOMPILED, IO or
 * INTERNAL. */
CLATTN_API clattn_status clattn_training_plan_create(clattn_trainer *trainer, const clattn_training_desc *desc,
                                                     const clattn_plan_options *options, clattn_plan **plan);

/** Enqueues the way forward and, unless the plan is for evaluation, the way back (@ref calls_enqueue). Does not block.
 *
 * Calls with plans of one trainer are made one at a time. The first that accumulates allocates memory.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OVERFLOW, UNSUPPORTED (arrays in shared virtual memory), WRONG_CONTEXT,
 * BUFFER_TOO_SMALL, BUFFER_ACCESS, BUSY, OUT_OF_MEMORY, OPENCL, CANCELLED or FORKED. */
CLATTN_API clattn_status clattn_training_enqueue(clattn_plan *plan, cl_command_queue queue,
                                                 const clattn_training_args *args, cl_uint wait_count,
                                                 const cl_event *wait_list, cl_event *event);

/** How an update moves the parameters. Set it up with CLATTN_UPDATE_ARGS_INIT. */
typedef struct clattn_update_args {
    size_t size;          /**< sizeof(clattn_update_args) */
    int64_t step;         /**< which update this is, from 1 on: Adam's correction of its moments depends on it */
    double learning_rate; /**< of this update */
    double beta1;         /**< 0 (default): 0.9 */
    double beta2;         /**< 0 (default): 0.999; the paper has 0.98 */
    double epsilon;       /**< 0 (default): 1e-8; the paper has 1e-9 */
    double weight_decay;  /**< 0 (default): none */
    double clip_norm;     /**< 0 (default): none; otherwise the most that the norm of all gradients together may be */
    int32_t coupled;      /**< 1: weight decay is part of the gradients (Adam); 0 (default): it is not (AdamW) */

    /** Ranks of a group (group.h) exchange gradients: 1: behind all that the queue has, for something else than clattn_training_enqueue
     * has written to them; 0 (default): each as soon as that has made it, while others are computed. */
    int32_t changed_gradients;
} clattn_update_args;

/** Initialises a clattn_update_args: its size, and zeros. */
#define CLATTN_UPDATE_ARGS_INIT CLATTN_INIT(clattn_update_args)

/** Sets *args as CLATTN_UPDATE_ARGS_INIT does (@ref calls_init). */
CLATTN_API void clattn_update_args_init(clattn_update_args *args);

/** Enqueues the update of all parameters by their gradients (optimizer.h has the formulas). Does not block.
 *
 * If the norm of all gradients is not finite, the device changes nothing: neither parameters nor moments;
 * clattn_trainer_squares tells so.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT, OUT_OF_MEMORY, OPENCL or FORKED. */
CLATTN_API clattn_status clattn_trainer_update(clattn_trainer *trainer, cl_command_queue queue,
                                               const clattn_update_args *args, cl_uint wait_count,
                                               const cl_event *wait_list, cl_event *event);

/** Returns where the last update has written the sum of the squares of all gradients, a float32: the square of their norm before it
 * was clipped, and not finite if the update has changed nothing. The buffer is the trainer's and lives as long; a read is enqueued
 * behind the update. Unbound for NULL. */
CLATTN_API clattn_binding clattn_trainer_squares(const clattn_trainer *trainer);

CLATTN_END_DECLS

#endif
