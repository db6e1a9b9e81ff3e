/* A tile of 32 x 32 sums by AMX: its tiles 0 to 3.  Rows of sums lie `width` apart; of 16 rows or fewer only the first 16 are
 * read and written. */
#ifndef CLATTN_INC_AMX_SUMS_H
#define CLATTN_INC_AMX_SUMS_H

#include "matrix/x86_amx.h"

/* Before the first step: 0 where `fresh`; and after the last. */
INLINE void amx_sums_begin(amx_state *amx, const float *sum, int width, int rows, int fresh)
{
    const float *const more = sum + AMX_ROWS * width;

    if (fresh) {
        AMX_ZERO(amx, 0);
        AMX_ZERO(amx, 1);
        AMX_ZERO(amx, 2);
        AMX_ZERO(amx, 3);
    } else {
        AMX_LOAD_SUMS(amx, 0, sum, width);
        AMX_LOAD_SUMS(amx, 1, sum + AMX_WORDS, width);
        if (rows > AMX_ROWS) {
            AMX_LOAD_SUMS(amx, 2, more, width);
            AMX_LOAD_SUMS(amx, 3, more + AMX_WORDS, width);
        }
    }
}

INLINE void amx_sums_end(amx_state *amx, float *sum, int width, int rows)
{
    float *const more = sum + AMX_ROWS * width;

    AMX_STORE_SUMS(amx, 0, sum, width);
    AMX_STORE_SUMS(amx, 1, sum + AMX_WORDS, width);
    if (rows > AMX_ROWS) {
        AMX_STORE_SUMS(amx, 2, more, width);
        AMX_STORE_SUMS(amx, 3, more + AMX_WORDS, width);
    }
}

#endif
