#include "support/group/other.h"

#include <string.h>

#include "support/harness.h"

/* Goes on with a digest, by FNV-1a. */
static uint64_t digest(uint64_t sum, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    return sum;
}

static clattn_status other_exchange(void *user, const clattn_group_exchange *exchange, void **request,
                                    char message[CLATTN_GROUP_MESSAGE])
{
    other_rank *other = user;
    (void)message;
    if (other->fails_at == other->started + 1 && !other->wait_fails)
        return CLATTN_ERROR_GROUP;
    other->started++;
    assert_int_equal(exchange->send_bytes, exchange->receive_bytes);
    other->sent = digest(other->sent + 1, exchange->send, exchange->send_bytes);
    if (exchange->send_bytes > 8 && !memcmp(exchange->send, "version=", 8)) /* what ranks have to agree about */
        memcpy(exchange->receive, exchange->send, exchange->send_bytes);
    else
        memset(exchange->receive, 0, exchange->receive_bytes);
    *request = other;
    return CLATTN_SUCCESS;
}

static clattn_status other_wait(void *user, void *request, char message[CLATTN_GROUP_MESSAGE])
{
    other_rank *other = user;
    (void)message;
    assert_ptr_equal(request, other);
    return ++other->waited == other->fails_at && other->wait_fails ? CLATTN_ERROR_GROUP : CLATTN_SUCCESS;
}

clattn_group other_group(other_rank *other)
{
    clattn_group group = CLATTN_GROUP_INIT;
    group.ranks = OTHER_RANKS;
    group.user = other;
    group.exchange = other_exchange;
    group.wait = other_wait;
    return group;
}
