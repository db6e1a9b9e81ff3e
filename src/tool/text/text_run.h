/* The texts of `clattn translate` and `clattn generate`: cut into pieces, given to the model in portions, and written in their
 * order. */
#ifndef CLATTN_TOOL_TEXT_TEXT_RUN_H
#define CLATTN_TOOL_TEXT_TEXT_RUN_H

#include <jansson.h>

#include "tool/text/text_ranks.h"

/* A command, and the words for what it takes and makes. */
typedef struct text_command {
    const char *name, *other, *result, *input;
    text_kind kind;
} text_command;

typedef struct text_input {
    const char *text; /* borrowed */
    size_t bytes;
} text_input;

/* The caller sets the command, opens the model and the generator, and releases the run before it closes them. */
typedef struct text_run {
    const text_command *command;
    text_model model;
    text_generator generator;
    tool_world world;
    json_t *result;    /* an array of what has been made; NULL: that is printed, a line each */
    text_input *texts; /* of the portion in work */
    text_item *items;
    size_t count, before; /* texts of the portion, and of all portions before it */
    size_t read, made;    /* pieces */
    double seconds;       /* that the model has taken */
} text_run;

/* Takes `count` texts, which stay the caller's, as a portion, and refuses one that is longer than the model takes.  Needs no
 * device.  Returns an exit status. */
int text_run_take(text_run *r, const char *const *texts, size_t count);

/* Runs the model on the portion, and writes what comes of it.  Returns an exit status. */
int text_run_portion(text_run *r);

/* Does both for the lines of standard input.  Returns an exit status. */
int text_run_lines(text_run *r);

void text_run_release(text_run *r);

#endif
