/* The tests' own Philox generator, which shares no code with the library. */
#ifndef TESTS_SUPPORT_ATTENTION_PHILOX_H
#define TESTS_SUPPORT_ATTENTION_PHILOX_H

#include <stdint.h>

/* Philox4x32-10: result[4] of counter[4] under key[2]. */
void reference_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t result[4]);

#endif
