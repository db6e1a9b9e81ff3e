/* Queues, and events that the test itself completes, to see what waits for what.  cmocka first, then this. */
#ifndef TESTS_SUPPORT_CORE_GATES_H
#define TESTS_SUPPORT_CORE_GATES_H

#include <stdbool.h>

#include "clattn/clattn.h"

/* A queue of that context; NULL where the device has none out of order. */
cl_command_queue make_queue_of(const clattn_context *of, bool out_of_order);

/* An event that the test itself completes, which holds back what waits for it; NULL on Oclgrind (which is level tiny), where
 * a flush runs what is on the queue and would wait for ever. */
cl_event make_gate(const clattn_context *of);
void open_gate(cl_event gate);

/* It is not complete, nor a tenth of a second later.  To be asserted when all gates are open: a closed one hangs what the
 * failed test leaves behind. */
bool event_waits(cl_event event);

/* Nothing on the queue, which is in order, waits for a gate: a marker passes, in a second at most. */
bool queue_is_empty(cl_command_queue queue);

#endif
