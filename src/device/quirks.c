#include "device/quirks.h"

#include <stdlib.h>
#include <string.h>

#include "device/capabilities.h"

/* The quirks of all matching rows are combined.  Each row says which version needs it and why, so that the row can
 * go when the driver is mended. */
static const struct {
    const char *platform, *name; /* substrings; NULL matches all */
    unsigned long from, below;   /* the driver's major version is in [from, below); below 0 matches all */
    unsigned quirks;
} table[] = {
    /* Mesa 22.3, LLVM 15: a kernel with 24 float16 accumulators takes over four minutes, with float4 12 s;
     * two nested loops of 1,000 counted 65,405 instead of 1,000,000. */
    {NULL, "llvmpipe", 0, 0, QUIRK_SLOW_COMPILER | QUIRK_LOOPS_STOP},
    /* Oclgrind interprets LLVM bitcode. */
    {"Oclgrind", NULL, 0, 0, QUIRK_SIMULATOR},
    /* PoCL 3.1: kernels are specialised for small grids, and compiled anew at the first large one (28 ms for
     * an empty kernel, seconds for a large one).  An empty kernel builds in 200 ms, without opencl-c.h in 45. */
    {"Portable Computing Language", NULL, 0, 0, QUIRK_COMPILES_BY_GRID | QUIRK_SLOW_HEADER},
    /* PoCL 4.0 to 6.0 may end the process while it turns a kernel into loops over work-items.  It does so for a launch with
     * more than two items a group and, when it is asked for a binary, for every kernel (for groups of any size).
     *   - handleLocalMemAllocas compares the function of each call with declarations that most programs lack.  Both are
     *     NULL for inline assembly, which is replaced by an allocation, or ends the process by an assertion.
     *   - Variables become memory, and then the pass "instcombine" runs.  As PoCL 6.0 asks for it, LLVM 18 and 19 end the
     *     process if a second run would change anything ("Instruction Combining did not reach a fixpoint"): if a value is
     *     loaded before a branch that alone needs it, and the branch's other way stores a constant.
     * PoCL's own cache keeps compiled kernels, and a process finds them there as fast.  7.0 has mended both. */
    {"Portable Computing Language", NULL, 4, 7, QUIRK_GROUPS_BREAK | QUIRK_NO_BINARIES},
    /* PoCL 4 to 7 compile attention_tile and attention_decode_rows wrongly now and then: 6.0 makes of the same text another
     * program each time, and some of these give wrong rows (docs/notes/compilers.md has how many).  7.1 ends the process where it
     * compiles additive scores with packed queries, and gives rows with entropy and sinks factors of 0.  CPUs alone are meant,
     * where loops over work-items are made, and which get either kernel by name alone. */
    {"Portable Computing Language", NULL, 4, 8, QUIRK_TILES_BREAK},
};

/* Whether the driver's text begins with a number in [from, below), or with none, so that nobody knows. */
static bool has_version(const char *driver, unsigned long from, unsigned long below)
{
    char *end;
    const unsigned long major = strtoul(driver, &end, 10);
    return below == 0 || end == driver || (major >= from && major < below);
}

unsigned quirks_of(const clattn_device_info *info)
{
    unsigned quirks = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if ((!table[i].platform || strstr(info->platform, table[i].platform)) &&
            (!table[i].name || strstr(info->name, table[i].name)) &&
            has_version(info->driver, table[i].from, table[i].below))
            quirks |= table[i].quirks;
    return quirks;
}
