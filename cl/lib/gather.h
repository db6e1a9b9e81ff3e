/* Vectors from and to rows whose elements may lie apart, for kernels whose lanes are neighbouring columns.
 *
 *   DEFINE_GATHER(name, TYPE)    floatv name(p, c, col, unit, count): lane l is element (c + l) * col of p for
 *                                l < count and 0 beyond
 *   DEFINE_SCATTER(name, TYPE)   void name(p, c, col, unit, count, v): stores lanes l < count there
 *
 * `unit`, best a compile-time constant, says that col is 1: whole vectors are then moved at once.  If col is 0, one element
 * becomes all lanes. */
#ifndef CLATTN_CL_LIB_GATHER_H
#define CLATTN_CL_LIB_GATHER_H

#include "lib/vector.h"

#define DEFINE_GATHER(NAME, TYPE) \
    static inline floatv NAME(const global ELEMENT(TYPE) *p, args_long c, args_long col, bool unit, int count) \
    { \
        float lane[LANES]; \
        if (unit && count >= LANES) \
            return LOADV(TYPE, p, c); \
        if (!unit && col == 0 && count >= LANES) \
            return (floatv)(LOAD(TYPE, p, 0)); \
        for (int l = 0; l < LANES; l++) \
            lane[l] = l < count ? LOAD(TYPE, p, (c + l) * (unit ? 1 : col)) : 0.0f; \
        return VLOAD(0, lane); \
    }

#define DEFINE_SCATTER(NAME, TYPE) \
    static inline void NAME(global ELEMENT(TYPE) *p, args_long c, args_long col, bool unit, int count, floatv v) \
    { \
        float lane[LANES]; \
        if (unit && count >= LANES) { \
            STOREV(TYPE, p, c, v); \
        } else { \
            VSTORE(v, 0, lane); \
            for (int l = 0; l < min(count, LANES); l++) \
                STORE(TYPE, p, (c + l) * (unit ? 1 : col), lane[l]); \
        } \
    }

/* This work-group's share of `count` pieces of work: the neighbouring ones from the returned number to *end - 1. */
static inline args_long share_of_group(const private launch_part *part, args_long count, args_long *end)
{
    const args_long groups = part->groups[0], group = (args_long)group_id(part, 0);
    const args_long share = count / groups, more = count - share * groups;
    const args_long first = group * share + min(group, more);

    *end = first + share + (group < more ? 1 : 0);
    return first;
}

#endif
