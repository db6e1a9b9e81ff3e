/* Compensated sums (Kahan 1965).
 *
 *   ADD(TYPE, sum, lost, term)       sum += term; `lost` holds what rounding has taken off the sum so far, at first 0
 *   ADD_ANY(TYPE, sum, lost, term)   the same; after an infinity the sum goes on as plain addition does, where that of ADD is NaN */
#ifndef CLATTN_CL_LIB_COMPENSATED_H
#define CLATTN_CL_LIB_COMPENSATED_H

#define ADD(TYPE, sum, lost, term) \
    do { \
        const TYPE part_ = (term) - (lost), next_ = (sum) + part_; \
        (lost) = (next_ - (sum)) - part_; \
        (sum) = next_; \
    } while (0)

#define ADD_ANY(TYPE, sum, lost, term) \
    do { \
        const TYPE part_ = (term) - (lost), next_ = (sum) + part_; \
        (lost) = select((TYPE)(0.0f), (next_ - (sum)) - part_, fabs(next_) <= (TYPE)(FLT_MAX)); \
        (sum) = next_; \
    } while (0)

#endif
