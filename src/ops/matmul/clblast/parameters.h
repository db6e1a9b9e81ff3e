/* CLBlast's tuning parameters, as parameters of a plan. */
#ifndef CLATTN_OPS_MATMUL_CLBLAST_PARAMETERS_H
#define CLATTN_OPS_MATMUL_CLBLAST_PARAMETERS_H

#include "plan/plan.h"

/* Declares the plan's parameters, one for each of the kernels that a product of floats may take: the number of a set of the
 * kernel's own parameters, 0 for what CLBlast has.  Sets what is given by OverrideParameters.  They are the process's, so
 * that this needs CLBlast to have no other user than this plan, or to have them already: UNSUPPORTED otherwise, and of a set
 * that does not fit the device.  After clblast_library_enter, without its lock. */
clattn_status clblast_parameters_prepare(clattn_plan *plan);

#endif
