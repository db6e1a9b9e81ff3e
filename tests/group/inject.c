/* Calls of OpenCL and of the system, and exchanges, fail while a rank makes its share of an attention and runs it: the answer is a status
 * that names the call, every reference comes back, every exchange that was started is waited for, and the context works again.
 *
 * Holds: group.h, "after a failure". */
#include "support/group/fails.h"
#include "support/group/share.h"
#include "support/harness.h"
#include "support/suite.h"

static const share_way ways[] = {
    {CLATTN_GROUP_MODE_RING, false, false},   {CLATTN_GROUP_MODE_RING, true, false},
    {CLATTN_GROUP_MODE_GATHER, false, false}, {CLATTN_GROUP_MODE_GATHER, true, false},
    {CLATTN_GROUP_MODE_HEADS, false, false},  {CLATTN_GROUP_MODE_HEADS, true, false},
};

int main(int argc, char **argv)
{
    static fails_case calls[COUNT_OF(ways)];
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        calls[i] = (fails_case){share_run, &ways[i]};
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(fails_of_exchanges, &calls[i], "", "group: exchanges fail, mode %d, %s", (int)ways[i].mode,
                       ways[i].backward ? "backward" : "forward");
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        suite_add_case(fails_of_calls, &calls[i], "", "group: calls fail, mode %d, %s", (int)ways[i].mode,
                       ways[i].backward ? "backward" : "forward");
    return suite_run("group_inject", argc, argv);
}
