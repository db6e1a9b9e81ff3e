/* One immutable capability record per device. */
#ifndef CLATTN_DEVICE_CAPABILITIES_H
#define CLATTN_DEVICE_CAPABILITIES_H

#include <stdbool.h>

#include "base/cl.h"
#include "clattn/context.h"
#include "device/matrix_engine.h"
#include "device/sub_groups.h"

struct strbuf;

/* Known faults and peculiarities of a device, found by its names; see quirks.c. */
enum quirk {
    QUIRK_SLOW_COMPILER = 1u << 0,    /* wide unrolled kernels compile for minutes: narrow vectors, smallest tiles */
    QUIRK_SIMULATOR = 1u << 1,        /* a thousand times slower than a CPU: smallest everything */
    QUIRK_COMPILES_BY_GRID = 1u << 2, /* a launch of another grid class compiles again: warm both up */
    QUIRK_LOOPS_STOP = 1u << 3,       /* a work-item's loops end silently after 65,535 iterations in all */
    QUIRK_SLOW_HEADER = 1u << 4,      /* reading the built-in functions' header takes most of a build: lib/builtins.h */
    QUIRK_GROUPS_BREAK = 1u << 5,     /* compiling a kernel for more than two work-items a group may end the process */
    QUIRK_NO_BINARIES = 1u << 6,      /* a query for a program's binary may end the process */
    QUIRK_TILES_BREAK = 1u << 7, /* attention_tile and attention_decode_rows are compiled wrongly, or end the process */
};

struct capabilities {
    clattn_device_info info; /* its strings are owned by this record */
    cl_platform_id platform;
    cl_device_id device;
    unsigned quirks;     /* enum quirk */
    uint32_t lanes;      /* floats in the widest vector that pays: 4, 8 or 16 */
    bool fused;          /* fma() is an instruction, not an emulation */
    cl_ulong local_most; /* bytes of local memory that a kernel may have; NVIDIA's driver reports fewer */
    uint32_t registers;  /* 32-bit ones that a GPU's work-item has; 0: unknown, or a CPU (its stack is in its cache) */
    bool takes_assembly; /* kernels may hold x86 instructions as inline assembly */
    bool fast_bf16;      /* takes_assembly, and vdpbf16ps exists and pays */
    bool amx_bf16;       /* takes_assembly, and AMX exists */
    enum matrix_engine matrix;
    const char *no_matrix; /* why `matrix` is MATRIX_NONE */
    bool wgmma;            /* the device has Hopper's wgmma: see cl/engine/nvidia/wgmma.h */
    const char *no_wgmma;  /* why `wgmma` is false */
    enum sub_group_means sub_groups;
    uint32_t sub_group_sizes;  /* sizes that a kernel may have: powers of two, each a bit */
    const char *no_sub_groups; /* why `sub_groups` is SUB_GROUPS_NONE */
    bool images;               /* kernels can read and write images, and the table has the functions to create them */
};

/* Reads everything; on failure the thread's message names the query.  `caps` then needs no clearing. */
clattn_status capabilities_read(const struct cl_table *cl, cl_platform_id platform, cl_device_id device,
                                struct capabilities *caps);
void capabilities_clear(struct capabilities *caps);

/* Fills `matrix`, `wgmma` and the reasons against them from the other members; capabilities_read calls it. */
void capabilities_read_matrix(const struct cl_table *cl, struct capabilities *caps);

/* Fills `sub_groups`, `sub_group_sizes` and the reason against them; capabilities_read calls it. */
void capabilities_read_sub_groups(const struct cl_table *cl, struct capabilities *caps);

/* Whether a work-item may run `iterations` loop iterations in all without being stopped silently.  A solver that
 * needs more refuses the problem with LOOPS_REASON. */
bool capabilities_allow_loops(const struct capabilities *caps, double iterations);
#define LOOPS_REASON "this device silently stops a work-item's loops after 65,535 iterations"

/* Bytes of local memory that a kernel's own arrays may take.  NVIDIA's driver (580.159, H100) adds some bytes, and an array that
 * is aligned moves behind them. */
size_t capabilities_local_room(const struct capabilities *caps);

/* Appends the -D options that every kernel for the device is built with; `items` is its work-group's size. */
void capabilities_define(const struct capabilities *caps, size_t items, struct strbuf *options);

/* Whether the device has the extension of that exact name. */
bool capabilities_have(const struct capabilities *caps, const char *extension);

/* Whether the device's compiler is known to take __builtin_prefetch. */
bool capabilities_prefetch(const struct capabilities *caps);

/* Whether the device is PoCL on an Intel processor: choices that were measured there, and help only there, depend on
 * it. */
bool capabilities_pocl_on_intel(const struct capabilities *caps);

/* Whether the device is a GPU by NVIDIA's own driver. */
bool capabilities_on_nvidia(const struct capabilities *caps);

/* Whether the device computes on the processor's own cores (CPU or PoCL class, software rasterisers). */
bool capabilities_on_cpu(const struct capabilities *caps);

/* Fills the public struct, whose `size` says which version it is; on failure the message is the thread's. */
clattn_status device_info_write(const struct capabilities *caps, clattn_device_info *info);

#endif
