/* Queues, and user events that the test itself completes, to see what waits for what. */
#ifndef TESTS_SUPPORT_CORE_USER_EVENTS_H
#define TESTS_SUPPORT_CORE_USER_EVENTS_H

#include "support/check.h"

/* A new queue of that context; NULL if the device has no out-of-order queues. */
cl_command_queue make_queue_of(const clattn_context *of, bool out_of_order);

/* An event that holds back what waits for it until the test completes it, which also releases it.  NULL, which
 * complete_user_event accepts, on Oclgrind (level tiny): a flush runs what is on the queue there and would wait for ever. */
cl_event make_user_event(const clattn_context *of);
void complete_user_event(cl_event user_event);

/* Whether the event is incomplete now and a tenth of a second later.  Assert it only when all user events are complete: an
 * incomplete one hangs what the failed test leaves behind. */
bool event_waits(cl_event event);

/* Whether nothing on the in-order queue waits for a user event: a marker passes within a second. */
bool queue_is_empty(cl_command_queue queue);

#endif
