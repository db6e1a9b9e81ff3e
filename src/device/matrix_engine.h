/* Which matrix engine a GPU has that kernels reach: cl/engine/fragment.h. */
#ifndef CLATTN_DEVICE_MATRIX_ENGINE_H
#define CLATTN_DEVICE_MATRIX_ENGINE_H

#include <stdint.h>

/* The numbers are the kernels' MATRIX_ENGINE. */
enum matrix_engine {
    MATRIX_NONE,
    MATRIX_MMA,
    MATRIX_WMMA,
    MATRIX_MFMA,
    MATRIX_DPAS8,
    MATRIX_DPAS16,
    MATRIX_ENGINES,
};

/* What the instruction is called, and how many work-items do it together. */
const char *matrix_engine_name(enum matrix_engine engine);
uint32_t matrix_engine_lanes(enum matrix_engine engine);

#endif
