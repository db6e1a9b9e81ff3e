/* Links with a latency and a bandwidth between the ranks of a group.  A message goes as the inner group sends it, and besides
 * it the time at which a link would have brought it, by a clock that all ranks have; the receiver's `wait` returns no earlier. */
#include <stdio.h>
#include <stdlib.h>

#include "tool/bench/ring.h"
#include "tool/cli/os_tool.h"

/* An exchange that has been started. */
typedef struct pending {
    void *data, *times;      /* requests of the inner group */
    double arrives, brought; /* when what is sent is there, and what is received */
} pending;

/* When a message that is sent now arrives. */
static double arrival(ring_port *port, size_t bytes)
{
    const double now = os_seconds();
    port->free_at = (port->free_at > now ? port->free_at : now) + (double)bytes * port->link.seconds_per_byte;
    return port->free_at + port->link.latency;
}

static clattn_status start(void *user, const clattn_group_exchange *exchange, void **request,
                           char message[CLATTN_GROUP_MESSAGE])
{
    ring_port *port = user;
    clattn_group *inner = &port->inner;
    pending *p = calloc(1, sizeof *p);
    if (p == NULL) {
        snprintf(message, CLATTN_GROUP_MESSAGE, "no memory for an exchange");
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    const bool leaves = exchange->to != inner->rank;
    clattn_status status = inner->exchange(inner->user, exchange, &p->data, message);
    if (status == CLATTN_SUCCESS && port->link.modelled) {
        p->arrives = leaves ? arrival(port, exchange->send_bytes) : 0.0;
        const clattn_group_exchange times = {.send = &p->arrives,
                                             .send_bytes = sizeof p->arrives,
                                             .to = exchange->to,
                                             .from = exchange->from,
                                             .receive = &p->brought,
                                             .receive_bytes = sizeof p->brought};
        status = inner->exchange(inner->user, &times, &p->times, message);
        if (status != CLATTN_SUCCESS) { /* what has been started is to be waited for, whatever comes of it */
            char unused[CLATTN_GROUP_MESSAGE];
            (void)inner->wait(inner->user, p->data, unused);
        }
    }
    if (status != CLATTN_SUCCESS) {
        free(p);
        return status;
    }
    port->sent += leaves ? exchange->send_bytes : 0;
    *request = p;
    return CLATTN_SUCCESS;
}

static clattn_status finish(void *user, void *request, char message[CLATTN_GROUP_MESSAGE])
{
    ring_port *port = user;
    clattn_group *inner = &port->inner;
    pending *p = request;
    const double begin = os_seconds();
    clattn_status status = inner->wait(inner->user, p->data, message);
    if (p->times != NULL) {
        char unused[CLATTN_GROUP_MESSAGE];
        const bool failed = status != CLATTN_SUCCESS;
        const clattn_status timed = inner->wait(inner->user, p->times, failed ? unused : message);
        if (!failed)
            status = timed;
        if (status == CLATTN_SUCCESS)
            os_sleep_until(p->arrives > p->brought ? p->arrives : p->brought);
    }
    port->waited += os_seconds() - begin;
    free(p);
    return status;
}

clattn_group ring_port_group(ring_port *port)
{
    clattn_group group = port->inner;
    group.user = port;
    group.exchange = start;
    group.wait = finish;
    return group;
}
