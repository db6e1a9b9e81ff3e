/* The files of parameters in a model's folder: model.safetensors has the parameters, and checkpoint.safetensors all that
 * training needs to go on as if it had never stopped.
 *
 * A checkpoint has, for each parameter NAME, the tensors NAME, first_moment.NAME and second_moment.NAME, float32; the losses so
 * far, state.losses and state.checks (history.h); and `state`, a JSON object as uint8. */
#ifndef CLATTN_TOOL_TRAIN_CHECKPOINT_H
#define CLATTN_TOOL_TRAIN_CHECKPOINT_H

#include "tool/run/model_file.h"
#include "tool/train/engine.h"
#include "tool/train/history.h"

/* Write a file, whole or not at all; wait for the device.  Return an exit status.  Rank 0 writes the model; a checkpoint needs all ranks,
 * and is the same whatever their number. */
int train_model_write(const train_engine *e, const char *folder);
int train_checkpoint_write(const train_engine *e, const train_history *history, const char *folder);

/* A checkpoint that is being read.  A zeroed one is closed. */
typedef struct train_checkpoint {
    model_path path;
    clattn_safetensors *file;
} train_checkpoint;

/* Opens the folder's checkpoint, checks its version, and reads the history, which is empty before.  The weights are what
 * clattn_safetensors_lookup finds in the file.  Returns an exit status; the caller closes it in any case. */
int train_checkpoint_open(const char *folder, train_checkpoint *checkpoint, train_history *history);

/* Copies parameters and moments to the device.  Returns an exit status. */
int train_checkpoint_restore(const train_checkpoint *checkpoint, const train_engine *e);

void train_checkpoint_close(train_checkpoint *checkpoint);

#endif
