/* User events that the test itself completes, to see which commands wait for which. */
#ifndef TESTS_SUPPORT_CORE_USER_EVENTS_H
#define TESTS_SUPPORT_CORE_USER_EVENTS_H

#include "support/check.h"

/* Makes an event that holds back the commands that wait for it until complete_user_event completes and releases it.
 * Returns NULL, which that function accepts, on Oclgrind (level tiny), whose flush runs all commands on the queue and
 * would hang. */
cl_event make_user_event(const clattn_context *of);
void complete_user_event(cl_event user_event);

/* Whether the event is still incomplete after a tenth of a second.  Assert the result only when all user events are
 * complete: cleaning up after a failed test would hang on an incomplete one. */
bool event_waits(cl_event event);

/* Whether nothing on the in-order queue waits for a user event, so that a marker passes within a second. */
bool queue_is_empty(cl_command_queue queue);

#endif
