/* The cases of attention that the solvers cpu-bf16 and cpu-amx share. */
#ifndef TESTS_SUPPORT_ATTENTION_ENGINE_CASES_H
#define TESTS_SUPPORT_ATTENTION_ENGINE_CASES_H

#include "support/attention/case.h"

/* Cases of bfloat16; those that a solver refuses name it. */
extern const attention_case attention_engine_cases[];
extern const size_t attention_engine_case_count;

/* Whether the device's emulation of AMX is too slow to be offered: Oclgrind's and llvmpipe's. */
bool emulates_amx_too_slowly(void);

#endif
