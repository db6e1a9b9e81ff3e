/* A tile of 32 x 32 sums by AMX: its tiles 0 to 3.  Rows of sums lie `width` apart; of 16 rows or fewer only the first 16 are
 * read and written.
 *
 *   AMX_SUMS_BEGIN(amx, sum, width, rows, fresh)   before the first step: from floats at `sum`, or 0 where `fresh`
 *   AMX_SUMS_END(amx, sum, width, rows)            after the last: to there */
#ifndef CLATTN_CL_ENGINE_X86_AMX_SUMS_H
#define CLATTN_CL_ENGINE_X86_AMX_SUMS_H

#include "engine/x86/amx.h"

#define AMX_SUMS_BEGIN(amx, sum, width, rows, fresh) \
    do { \
        if (fresh) { \
            AMX_ZERO(amx, 0); \
            AMX_ZERO(amx, 1); \
            AMX_ZERO(amx, 2); \
            AMX_ZERO(amx, 3); \
        } else { \
            AMX_LOAD_SUMS(amx, 0, sum, width); \
            AMX_LOAD_SUMS(amx, 1, (sum) + AMX_WORDS, width); \
            if ((rows) > AMX_ROWS) { \
                AMX_LOAD_SUMS(amx, 2, (sum) + AMX_ROWS * (width), width); \
                AMX_LOAD_SUMS(amx, 3, (sum) + AMX_ROWS * (width) + AMX_WORDS, width); \
            } \
        } \
    } while (0)
#define AMX_SUMS_END(amx, sum, width, rows) \
    do { \
        AMX_STORE_SUMS(amx, 0, sum, width); \
        AMX_STORE_SUMS(amx, 1, (sum) + AMX_WORDS, width); \
        if ((rows) > AMX_ROWS) { \
            AMX_STORE_SUMS(amx, 2, (sum) + AMX_ROWS * (width), width); \
            AMX_STORE_SUMS(amx, 3, (sum) + AMX_ROWS * (width) + AMX_WORDS, width); \
        } \
    } while (0)

#endif
