/* Where the rows of pictures lie, for pool and resize. */
#ifndef CLATTN_CL_LIB_PICTURE_H
#define CLATTN_CL_LIB_PICTURE_H

#include "lib/array.h"

/* A line of y: its row, and where the channel lies that it begins with, of x in row 0 and of y in that row. */
typedef struct picture_line {
    int row;
    args_long x, y;
} picture_line;

/* Sets *line to the line of that number.  Lines are counted through `rows` of y, through channels if `depth` is 1, and through
 * batch items.  `channel` is the first of a chunk.  The result is not returned, because a structure returned by two functions
 * that are inlined makes an intrinsic that Oclgrind 21.10 lacks. */
static inline void picture_find_line(picture_line *line, args_long number, int channel, int rows, int channels,
                                     int depth, const array4 *x, const array4 *y)
{
    const int counted = depth == 1 ? channels : 1;
    const args_long plane = number / rows, item = plane / counted;

    channel += (int)(plane - item * counted);
    line->row = (int)(number - plane * rows);
    line->x = x->offset + item * x->batch + channel * x->head;
    line->y = y->offset + item * y->batch + channel * y->head + line->row * y->row;
}

#endif
