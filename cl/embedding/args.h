/* What the embedding kernel is told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_EMBEDDING_ARGS_H
#define CLATTN_CL_EMBEDDING_ARGS_H

#include "rope/args.h"

typedef struct embedding_args {
    launch_part part;
    array4 table, position_table, segment_table; /* (row, col) */
    array4 y;                                    /* (batch, -, length, col) */
    args_long ids_offset, ids_batch, ids_row;
    args_long segments_offset, segments_batch, segments_row;
    args_long offsets_offset, offsets_batch;
    args_long position; /* of the first element of each item */
    rope_args rope;     /* its turns; the rest of it is unused */
    int batch;          /* 0: nothing to do, return at once */
    int length, size;
    int rows, position_rows, segment_rows; /* of the tables */
    int first_row, all_rows;               /* the first row's id, and the rows of the table that `table` is a part of */
    int has_offsets;
    float scale;
} embedding_args;

typedef struct embedding_backward_args {
    launch_part part;
    array4 table; /* the gradient of the table: (row, col) */
    array4 y;     /* the gradient of y: (batch, -, length, col) */
    args_long ids_offset, ids_batch, ids_row;
    args_long lists_offset;  /* in elements of the workspace */
    int batch, length, size; /* of y */
    int rows;                /* of the table; 0: nothing to do, return at once */
    float scale;
    int first_row; /* the first row's id */
} embedding_backward_args;

#endif
