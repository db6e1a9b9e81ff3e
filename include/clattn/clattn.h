/** @file
 * All headers except io.h and pictures.h, which are those of two more libraries.
 */

/** @mainpage clattn
 *
 * A program makes a context for a device, describes what it wants to compute, and runs it:
 *
 *     clattn_context *context;
 *     clattn_context_create(NULL, &context);                              the best device here
 *     clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;            what: layouts of the arrays
 *     clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;            where: their buffers
 *     clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL);   compiles once, enqueues each time
 *
 * All operators have the same seven calls, and one page, in plan.h, has their contract: @ref calls.
 *
 * | To begin                                                    | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | choose a device, adopt an application's OpenCL objects      | clattn_context_create, clattn_devices   |
 * | say how an array lies in memory, and where                  | clattn_layout, clattn_binding           |
 * | learn why a call failed                                     | clattn_status, clattn_context_message   |
 * | say when compiling happens; learn which solver was chosen   | plan.h, clattn_plan_explain             |
 * | make plans in the background, without blocking              | job.h                                   |
 * | keep compiled programs for the next process                 | clattn_context_save_programs            |
 * | write C++                                                   | clattn.hpp, io.hpp, pictures.hpp        |
 *
 * | Attention                                                   | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | attend: masks, windows, grouped heads, packed sequences     | attention.h                             |
 * | change scores or exclude keys by OpenCL C of one's own      | clattn_attention_desc.snippets          |
 * | append to a cache of keys and values: ring, pages, int8     | kv_append.h                             |
 * | rotate queries and keys by their positions                  | rope.h                                  |
 * | merge attentions over disjoint sets of keys                 | merge.h                                 |
 * | attend with projections, as PyTorch's nn.MultiheadAttention | mha.h                                   |
 * | attend to sequences that lie in parts on several devices    | group.h                                 |
 *
 * | Softmax and the rest of a layer                             | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | softmax of rows                                             | softmax.h                               |
 * | cross-entropy of logits and labels, with its gradient       | cross_entropy.h                         |
 * | LayerNorm, RMSNorm, GroupNorm, InstanceNorm                 | norm.h                                  |
 * | multiply matrices, with bias, activation, residual, gate    | matmul.h                                |
 * | a feed-forward network                                      | feed_forward.h                          |
 * | ReLU, LeakyReLU, GELU, Swish                                | activation.h                            |
 * | drop elements at random, and add a residual                 | dropout.h                               |
 * | look up tokens, positions and segments; gather rows         | embedding.h                             |
 * | train: Adam, AdamW, clipping by the norm of all gradients   | optimizer.h                             |
 *
 * | Models                                                      | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | describe a model, load it, run its encoder                  | transformer.h                           |
 * | name its weights as a file does                             | weights.h                               |
 * | models of pictures: ViT, DINOv2, CLIP, Swin, SAM            | vision.h                                |
 * | run its decoder with caches                                 | decoder.h                               |
 * | generate text: greedy, sampled, beams                       | generate.h                              |
 *
 * | Images                                                      | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | clean, enlarge or compare a picture in memory, in one call  | pictures.h                              |
 * | turn an image2d_t into an array, and back                   | image.h                                 |
 * | attend to pixels around a pixel                             | neighbourhood.h                         |
 * | normalise channels, or groups of them, over a picture       | norm.h                                  |
 * | convolve: strides, dilation, groups, NCHW and NHWC          | conv2d.h                                |
 * | pool windows: the largest, the mean, of the whole picture   | pool.h                                  |
 * | resize: nearest, bilinear, bicubic, with antialiasing       | resize.h                                |
 * | rearrange: pixel shuffle, windows; gather                   | activation.h, embedding.h               |
 *
 * | Tuning                                                      | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | choose a solver and its parameters                          | clattn_plan_options                     |
 * | export, import and save what measurements found             | tuning.h                                |
 *
 * | Files                                                       | see                                     |
 * | ----------------------------------------------------------- | --------------------------------------- |
 * | read .npy, safetensors, CTranslate2's models; write .npy    | io.h                                    |
 * | describe an array in host memory                            | tensor.h                                |
 */
#ifndef CLATTN_CLATTN_H
#define CLATTN_CLATTN_H

#include "activation.h"
#include "attention.h"
#include "context.h"
#include "control.h"
#include "conv2d.h"
#include "cross_entropy.h"
#include "decoder.h"
#include "dtype.h"
#include "dropout.h"
#include "embedding.h"
#include "export.h"
#include "feed_forward.h"
#include "generate.h"
#include "group.h"
#include "image.h"
#include "job.h"
#include "layout.h"
#include "matmul.h"
#include "mha.h"
#include "kv_append.h"
#include "merge.h"
#include "norm.h"
#include "neighbourhood.h"
#include "optimizer.h"
#include "plan.h"
#include "pool.h"
#include "resize.h"
#include "rope.h"
#include "softmax.h"
#include "status.h"
#include "tensor.h"
#include "training.h"
#include "transformer.h"
#include "tuning.h"
#include "version.h"
#include "vision.h"
#include "weights.h"

#endif
