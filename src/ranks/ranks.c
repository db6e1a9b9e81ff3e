#include "ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/text/lines.h"
#include "base/try.h"

void clattn_group_init(clattn_group *group)
{
    struct_init(group, sizeof *group);
}

clattn_status ranks_read(struct ranks *ranks, struct report *report, const clattn_group *group)
{
    clattn_group *own = &ranks->group;
    *ranks = (struct ranks){.report = report};
    const clattn_status status = struct_read(own, sizeof *own, sizeof *own, group);
    if (status != CLATTN_SUCCESS)
        return report_error(report, status, "group is NULL, or its size is none that clattn_group ever had");
    if (own->ranks < 1 || own->rank < 0 || own->rank >= own->ranks || !own->exchange || !own->wait)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "group: rank %d of %d, or a function is missing",
                            (int)own->rank, (int)own->ranks);
    return status;
}

/* ---- exchanges ---- */

/* Reports what a group's function returned: its first failure. */
static clattn_status report_group(struct ranks *ranks, clattn_status status, char message[CLATTN_GROUP_MESSAGE])
{
    message[CLATTN_GROUP_MESSAGE - 1] = '\0';
    if (status == CLATTN_SUCCESS || ranks->failed)
        return status;
    ranks->failed = true;
    return report_error(ranks->report, status, "rank %d: %s", (int)ranks_number(ranks, ranks->group.rank), message);
}

clattn_status ranks_check(const struct ranks *ranks)
{
    return ranks->failed ? report_error(ranks->report, CLATTN_ERROR_GROUP, "rank %d: the group has failed before",
                                        (int)ranks_number(ranks, ranks->group.rank))
                         : CLATTN_SUCCESS;
}

clattn_status ranks_start(struct ranks *ranks, const clattn_group_exchange *exchange, void **request)
{
    const clattn_group *group = &ranks->group;
    char message[CLATTN_GROUP_MESSAGE] = "";
    *request = NULL;
    clattn_status status = ranks_check(ranks);
    if (status != CLATTN_SUCCESS)
        return status;
    status = group->exchange(group->user, exchange, request, message);
    if (status == CLATTN_SUCCESS && !*request) {
        status = CLATTN_ERROR_GROUP;
        snprintf(message, sizeof message, "the group's exchange gave no request");
    }
    ranks->started += status == CLATTN_SUCCESS;
    return report_group(ranks, status, message);
}

clattn_status ranks_finish(struct ranks *ranks, void *request)
{
    char message[CLATTN_GROUP_MESSAGE] = "";
    return report_group(ranks, ranks->group.wait(ranks->group.user, request, message), message);
}

clattn_status ranks_swap_start(struct ranks *ranks, const void *out, bool shared, void *in, size_t bytes,
                               void **requests)
{
    const size_t count = (size_t)ranks->group.ranks, rank = (size_t)ranks->group.rank;
    const unsigned char *from_here = out;
    unsigned char *to_here = in;
    clattn_status status = CLATTN_SUCCESS;
    memset(requests, 0, count * sizeof *requests);
    if (bytes)
        memcpy(to_here + rank * bytes, from_here + (shared ? 0 : rank * bytes), bytes);
    for (size_t i = 1; i < count; i++) {
        const size_t to = (rank + i) % count, from = (rank + count - i) % count;
        const clattn_group_exchange exchange = {.send = from_here + (shared ? 0 : to * bytes),
                                                .send_bytes = bytes,
                                                .to = (int32_t)to,
                                                .from = (int32_t)from,
                                                .receive = to_here + from * bytes,
                                                .receive_bytes = bytes};
        TRY(ranks_start(ranks, &exchange, &requests[i]));
    }
fail:
    if (status != CLATTN_SUCCESS)
        (void)ranks_swap_finish(ranks, requests);
    return status;
}

clattn_status ranks_swap_finish(struct ranks *ranks, void **requests)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < (size_t)ranks->group.ranks; i++) {
        if (!requests[i])
            continue;
        const clattn_status one = ranks_finish(ranks, requests[i]); /* of each, since its memory goes */
        requests[i] = NULL;
        if (status == CLATTN_SUCCESS)
            status = one;
    }
    return status;
}

static clattn_status no_memory(const struct ranks *ranks)
{
    return report_error(ranks->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a group");
}

clattn_status ranks_swap(struct ranks *ranks, const void *out, bool shared, void *in, size_t bytes)
{
    clattn_status status;
    void **requests = calloc((size_t)ranks->group.ranks, sizeof *requests);
    if (!requests)
        return no_memory(ranks);
    TRY(ranks_swap_start(ranks, out, shared, in, bytes, requests));
    status = ranks_swap_finish(ranks, requests);
fail:
    free(requests);
    return status;
}

/* ---- what ranks agree about ---- */

/* Names the first line in which two ranks differ. */
static clattn_status disagree(const struct ranks *ranks, const char *own, int32_t other, const char *its)
{
    skip_equal_lines(&own, &its);
    own = *own ? own : "no more";
    its = *its ? its : "no more";
    return report_error(ranks->report, CLATTN_ERROR_INVALID_ARGUMENT, "rank %d has %.*s, and rank %d has %.*s",
                        (int)ranks_number(ranks, ranks->group.rank), (int)line_length(own), own,
                        (int)ranks_number(ranks, other), (int)line_length(its), its);
}

clattn_status ranks_agree(struct ranks *ranks, const char own[RANKS_AGREED], bool refused)
{
    clattn_status status;
    const int32_t rank = ranks->group.rank, count = ranks->group.ranks, before = (rank + count - 1) % count;
    char its[RANKS_AGREED] = "";
    void *request;
    const clattn_group_exchange exchange = {.send = own,
                                            .send_bytes = RANKS_AGREED,
                                            .to = (rank + 1) % count,
                                            .from = before,
                                            .receive = its,
                                            .receive_bytes = sizeof its};
    TRY(ranks_start(ranks, &exchange, &request));
    TRY(ranks_finish(ranks, request));
    its[sizeof its - 1] = '\0';
    if (!refused && strcmp(own, its))
        status = disagree(ranks, own, before, its);
fail:
    return status;
}

clattn_status ranks_all_ready(struct ranks *ranks, clattn_status own, const char *what)
{
    clattn_status status;
    const int32_t code = (int32_t)own;
    int32_t *codes = calloc((size_t)ranks->group.ranks, sizeof *codes);
    if (!codes)
        return no_memory(ranks);
    TRY(ranks_swap(ranks, &code, true, codes, sizeof code));
    for (int32_t i = 0; i < ranks->group.ranks && own == CLATTN_SUCCESS; i++)
        if (codes[i]) {
            status = report_error(ranks->report, CLATTN_ERROR_GROUP, "rank %d has no %s: %s",
                                  (int)ranks_number(ranks, i), what, clattn_status_string((clattn_status)codes[i]));
            goto fail;
        }
    status = own;
fail:
    free(codes);
    return status;
}
