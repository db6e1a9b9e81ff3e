/* What ranks that have a model together have of its parameters, beside those of the whole model. */
#ifndef TESTS_SUPPORT_GROUP_SPLIT_H
#define TESTS_SUPPORT_GROUP_SPLIT_H

#include "support/nn/training_case.h"

/* The parameter of that name. */
clattn_parameter split_find(const training_world *w, const char *name);

/* How far a rank's part of a parameter is from that of the whole one, at the most and in the mean. */
double split_apart(const clattn_parameter *part, const clattn_parameter *whole, double *mean);

#endif
