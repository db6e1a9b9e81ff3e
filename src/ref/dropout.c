#include "clattn/attention.h"
#include "ref/ref.h"

double ref_dropout(const ref_dropout_problem *p, uint64_t place, double x)
{
    const uint32_t low = (uint32_t)place, high = (uint32_t)(place >> 32);
    return clattn_dropout_keep(p->seed, p->offset, p->probability, 1, 0, 0, high, low)
               ? x / (1.0 - (double)p->probability)
               : 0.0;
}
