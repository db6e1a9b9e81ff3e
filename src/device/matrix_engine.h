/* The matrix engine of a GPU that kernels can reach (cl/engine/fragment.h). */
#ifndef CLATTN_DEVICE_MATRIX_ENGINE_H
#define CLATTN_DEVICE_MATRIX_ENGINE_H

#include <stdbool.h>
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

/* The instruction's name, and the number of work-items that execute it together. */
const char *matrix_engine_name(enum matrix_engine engine);
uint32_t matrix_engine_lanes(enum matrix_engine engine);

/* Whether a GPU has executed the instruction in the tests; explain says so of engines of which none has. */
bool matrix_engine_has_run(enum matrix_engine engine);

#endif
