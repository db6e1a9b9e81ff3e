/* A trainer, and the plans of its steps. */
#ifndef CLATTN_NN_TRAIN_TRAINER_H
#define CLATTN_NN_TRAIN_TRAINER_H

#include "clattn/training.h"
#include "nn/graph/graph.h"
#include "nn/model/model.h"

/* What a buffer of the model has besides: as many numbers each. */
struct trained_buffer {
    size_t count; /* numbers */
    cl_mem
        value; /* the parameters in float32: the model's buffer if that is float32, otherwise a buffer of the trainer's */
    cl_mem gradient, first_moment, second_moment;
    cl_mem part; /* the gradient of a part of a step, to be added to the others; NULL until there is one */
    clattn_plan *adam, *squares;
};

struct clattn_trainer {
    atomic_int references;
    clattn_transformer *model;      /* retained */
    struct trained_buffer *buffers; /* model->buffer_count */
    cl_mem squares;                 /* the sum of the squares of all gradients */
};

void trainer_retain(clattn_trainer *trainer);
void trainer_drop(clattn_trainer *trainer);

struct training_plan {
    clattn_plan base;
    clattn_trainer *trainer; /* retained */
    clattn_training_desc desc;
    struct graph graph;
    size_t turn; /* the step with which the way back begins */
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

/* Makes the graph of a plan whose description has been checked. */
clattn_status training_make_graph(struct training_plan *plan, const clattn_plan_options *options);

#endif
