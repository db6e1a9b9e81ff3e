/* Parameters of which each rank has a part (clattn_group_transformer_create), and the whole tensors that files have. */
#ifndef CLATTN_TOOL_TRAIN_PARTS_H
#define CLATTN_TOOL_TRAIN_PARTS_H

#include "tool/train/engine.h"

/* Whether the parameter is a part of the model's tensor. */
bool train_is_part(const clattn_parameter *p);

/* How many numbers the part has. */
size_t train_part_count(const clattn_parameter *p);

/* How many numbers the whole model has.  Rank 0 calls it, which has a part of each tensor. */
size_t train_whole_count(const train_engine *e);

/* Copies the part's numbers from the whole tensor. */
void train_part_cut(const clattn_parameter *p, const float *whole, float *part);

/* Gives rank 0 the whole tensor of the parts of the first row's ranks, who call it; `whole` of the others is NULL.  Returns an exit
 * status. */
int train_parts_collect(const train_engine *e, const clattn_parameter *p, const float *part, float *whole);

#endif
