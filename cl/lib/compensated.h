/* Compensated sums (Kahan 1965).
 *
 *   ADD(TYPE, sum, lost, term)   sum += term; `lost` holds what rounding has taken off the sum so far, at first 0 */
#ifndef CLATTN_CL_LIB_COMPENSATED_H
#define CLATTN_CL_LIB_COMPENSATED_H

#define ADD(TYPE, sum, lost, term) \
    do { \
        const TYPE part_ = (term) - (lost), next_ = (sum) + part_; \
        (lost) = (next_ - (sum)) - part_; \
        (sum) = next_; \
    } while (0)

#endif
