/* A trainer, and the plans of its steps. */
#ifndef CLATTN_NN_TRAIN_TRAINER_H
#define CLATTN_NN_TRAIN_TRAINER_H

#include "clattn/optimizer.h"
#include "clattn/training.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"
#include "ranks/ranks.h"
#include "ranks/staging.h"

/* What a buffer of the model has besides: as many numbers each. */
struct trained_buffer {
    size_t count;   /* numbers */
    size_t moments; /* of them that the trainer has moments of */
    cl_mem
        value; /* the parameters in float32: the model's buffer if that is float32, otherwise a buffer of the trainer's */
    cl_mem gradient;
    cl_mem first_moment, second_moment; /* in a group those of the rank's shares alone, one behind the other */
    cl_mem part; /* the gradient of a part of a step, to be added to the others; NULL until there is one */
    clattn_plan *adam, *squares; /* in a group, none */
};

/* Numbers of a buffer that ranks exchange together: `slice` for each of them, of which the last may have fewer or none. */
struct piece {
    size_t buffer, first, count, slice;
    size_t moment;  /* where the moments of the rank's share begin */
    cl_event ready; /* the gradients have been made, while others may not have been; NULL: that is not known */
    cl_event moved; /* while an update is under way: the share's parameters have been moved */
};

/* What a trainer has in a group. */
struct trainer_group {
    struct ranks ranks;
    cl_command_queue transfers;
    struct piece *pieces;
    size_t piece_count;
    struct staging host;
    float *out, *in; /* a piece each, of the host's memory */
};

struct clattn_trainer {
    atomic_int references;
    clattn_transformer *model;      /* retained */
    struct trained_buffer *buffers; /* model->buffer_count */
    cl_mem squares;                 /* the sum of the squares of all gradients */
    struct trainer_group *group;    /* NULL: the trainer is alone */
};

void trainer_retain(clattn_trainer *trainer);
void trainer_drop(clattn_trainer *trainer);

/* Refuses a model that cannot be trained, and says why. */
clattn_status trainer_check(const clattn_transformer *model);

/* Makes a trainer of a model that has been checked; `ranks` is NULL, or the group's. */
clattn_status trainer_make(clattn_transformer *model, const struct ranks *ranks, clattn_trainer **trainer);

/* Whether the model is narrower than the trainer's float32 parameters. */
static inline bool trainer_is_narrow(const clattn_trainer *trainer)
{
    return trainer->model->weight_dtype != CLATTN_DTYPE_F32;
}

/* The arguments of an update of numbers of buffer `index`, from `first` on, whose moments begin at `moment`. */
clattn_adam_args trainer_adam_args(const clattn_trainer *trainer, size_t index, size_t first, size_t moment,
                                   const clattn_update_args *how);

/* Rounds the parameters of a narrow model from the trainer's, on `queue`. */
clattn_status trainer_round(const clattn_trainer *trainer, size_t index, cl_command_queue queue);

/* ---- in a group ---- */

/* The rank's share of a piece: its first number in the piece, and how many there are. */
size_t piece_share(const struct piece *piece, int32_t rank, size_t *count);

/* The description of an update of so many numbers, of a share. */
clattn_adam_desc trainer_adam_desc(size_t count);

/* Makes what a trainer has in a group, once the buffers' counts are known, and sets how many moments of each the rank has. */
clattn_status trainer_group_make(clattn_trainer *trainer, const struct ranks *ranks);
void trainer_group_clear(clattn_trainer *trainer);

/* Forgets which pieces are ready. */
void trainer_forget_ready(const clattn_trainer *trainer);

/* An update of all ranks.  The arguments have been checked. */
clattn_status trainer_group_update(clattn_trainer *trainer, const struct enqueue_call *call,
                                   const clattn_update_args *how);

struct training_plan {
    clattn_plan base;
    clattn_trainer *trainer; /* retained */
    clattn_training_desc desc;
    struct graph graph;
    size_t turn;              /* the step with which the way back begins */
    struct graph_mark *marks; /* in a group: of each piece */
};

/* The slots of an enqueue's bindings.  From TRAINING_GRADIENTS on there are two for each buffer of the model: first those of the
 * gradients that the graph makes, then those of the gradients that these are added to, if they are. */
enum training_slot {
    TRAINING_SOURCE = 1,
    TRAINING_TARGET,
    TRAINING_SOURCE_SEGMENTS,
    TRAINING_TARGET_SEGMENTS,
    TRAINING_LABELS,
    TRAINING_LOSSES,
    TRAINING_OUTPUT,
    TRAINING_OUTPUT_GRADIENT,
    TRAINING_GRADIENTS
};

enum training_integers { TRAINING_SOURCE_LENGTHS = 1, TRAINING_TARGET_LENGTHS, TRAINING_INTEGERS };

/* Finds the steps after which pieces of the gradients are ready, unless parts are added up.  The graph is finished. */
clattn_status training_find_ready(struct training_plan *plan);

/* Makes the graph of a plan whose description has been checked. */
clattn_status training_make_graph(struct training_plan *plan, const clattn_plan_options *options);

#endif
