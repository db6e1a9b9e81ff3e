/* A table of OpenCL functions by which the device has a clock of 1 MHz, so that launches of small problems are cut, and that
 * counts kernel launches and calls a function at each. */
#ifndef TESTS_SUPPORT_CORE_SLOW_CLOCK_H
#define TESTS_SUPPORT_CORE_SLOW_CLOCK_H

#include <stddef.h>

/* For clattn_context_params.get_proc. */
void *slow_clock_get_proc(void *user, const char *name);

/* Counts launches from 0 again; calls `hook`, unless NULL, with the number of each, from 1, before it is made. */
void slow_clock_begin(void (*hook)(size_t launch, void *user), void *user);
size_t slow_clock_launches(void);

#endif
