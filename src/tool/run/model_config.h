/* A model's JSON files, whose values are checked one by one. */
#ifndef CLATTN_TOOL_RUN_MODEL_CONFIG_H
#define CLATTN_TOOL_RUN_MODEL_CONFIG_H

#include <clattn/transformer.h>

#include "tool/run/model_file.h"

/* One file.  Its values are looked for in `at`, which is `root` at first; a caller may choose an object within it. */
typedef struct model_config {
    model_path path;
    json_t *root;     /* NULL: the file is absent */
    const json_t *at; /* borrowed from the root */
    clattn_io_error error;
} model_config;

/* Opens the file `name` of a model's folder.  An absent one is an error unless it is `optional`.  Returns an exit status. */
int model_config_open(const char *folder, const char *name, bool optional, model_config *c);

/* Releases the file, and reports `status`, the failure of a check, if it is one.  Returns an exit status. */
int model_config_close(model_config *c, clattn_status status);

/* The value called `name`; NULL if it is absent or null. */
const json_t *model_config_value(const model_config *c, const char *name);

/* Refuses the value called `name`: writes what it is and what was expected to c->error. */
clattn_status model_config_wrong(model_config *c, const char *name, const char *expected);

/* Reads a whole number from 1 to `most`. */
clattn_status model_config_size(model_config *c, const char *name, size_t most, size_t *size);

/* Does the same if the value is there; *size stays otherwise. */
clattn_status model_config_optional_size(model_config *c, const char *name, size_t most, size_t *size);

/* Reads a number from `least` to `most` if it is there. */
clattn_status model_config_number(model_config *c, const char *name, double least, double most, float *number);

/* Reads true or false if it is there. */
clattn_status model_config_flag(model_config *c, const char *name, bool *flag);

/* Reads the name of an activation as Hugging Face and timm spell it. */
clattn_status model_config_activation(model_config *c, const char *name, clattn_stack_desc *stack);

/* Reports a failure that a reader of files has explained.  Returns its exit status. */
int model_file_fail(clattn_status status, const clattn_io_error *error);

#endif
