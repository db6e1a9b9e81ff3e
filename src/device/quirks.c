#include "device/quirks.h"

#include <string.h>

#include "device/capabilities.h"

/* The quirks of all matching rows are combined.  Each row says which version needs it and why, so that the row can
 * go when the driver is mended. */
static const struct {
    const char *platform, *name; /* substrings; NULL matches all */
    unsigned quirks;
} table[] = {
    /* Mesa 22.3, LLVM 15: a kernel with 24 float16 accumulators takes over four minutes, with float4 12 s;
     * two nested loops of 1,000 counted 65,405 instead of 1,000,000. */
    {NULL, "llvmpipe", QUIRK_SLOW_COMPILER | QUIRK_LOOPS_STOP},
    /* Oclgrind interprets LLVM bitcode. */
    {"Oclgrind", NULL, QUIRK_SIMULATOR},
    /* PoCL 3.1: kernels are specialised for small grids, and compiled anew at the first large one (28 ms for
     * an empty kernel, seconds for a large one).  An empty kernel builds in 200 ms, without opencl-c.h in 45. */
    {"Portable Computing Language", NULL, QUIRK_COMPILES_BY_GRID | QUIRK_SLOW_HEADER},
};

unsigned quirks_of(const clattn_device_info *info)
{
    unsigned quirks = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if ((!table[i].platform || strstr(info->platform, table[i].platform)) &&
            (!table[i].name || strstr(info->name, table[i].name)))
            quirks |= table[i].quirks;
    return quirks;
}
