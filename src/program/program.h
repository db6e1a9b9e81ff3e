/* Programs: a kernel file of cl/ specialised by -D options, built once per context. */
#ifndef CLATTN_PROGRAM_PROGRAM_H
#define CLATTN_PROGRAM_PROGRAM_H

#include "device/device.h"
#include "program/binary_cache.h"
#include "program/source.h"

/* A built program.  Shared by all plans that use it; immutable but for its reference count. */
struct program;

/* For which launches a program's binary holds machine code (QUIRK_COMPILES_BY_GRID): small grids alone, or
 * large ones too.  PoCL 3.1 serialises a program once, so each has a program and an entry of its own. */
enum grid_class { GRID_SMALL, GRID_LARGE };

/* A context's programs.  Thread-safe.  The application's callbacks run with no lock held: while a program is
 * loaded or built it is in the list as pending, and another thread that wants it waits for `made`, so that
 * none is built twice. */
struct program_cache {
    mtx_t lock;  /* over the list and the statistics */
    mtx_t build; /* over the driver's compiler */
    cnd_t made;
    struct device *device;
    char *kernel_dir;   /* NULL: the embedded sources */
    bool checks;        /* programs are compared with the reference */
    bool checks_always; /* also those that have passed */
    struct binary_cache binaries;
    struct program *first; /* most recently used first */
    size_t count;
    clattn_program_statistics statistics;
};

/* `params` gives kernel_dir and the cache's fields.  Returns INVALID_ARGUMENT, IO (kernel_dir is unreadable)
 * or OUT_OF_MEMORY. */
clattn_status program_cache_init(struct program_cache *cache, struct device *device,
                                 const clattn_context_params *params);
void program_cache_clear(struct program_cache *cache);

/* The program of `file` with `options` (a leading-blank list of -D…) and `snippets` (may be NULL): from memory, from
 * the binary cache, or built.  The caller releases it.  A build that failed, but for want of host memory, is
 * remembered and fails again at once with its log.  No lock may be held.  Returns BUILD, OPENCL, OUT_OF_MEMORY, IO,
 * INTERNAL. */
clattn_status program_get(struct program_cache *cache, const char *file, const char *options,
                          const struct source_snippets *snippets, enum grid_class grid, struct program **program);
void program_release(struct program_cache *cache, struct program **program);

/* A new kernel of the program; the caller releases it. */
clattn_status program_kernel(struct program_cache *cache, struct program *program, const char *name, cl_kernel *kernel);

/* Whether the program's kernels have agreed with the reference on this device: in this process, or in the one that
 * saved the binary among the trusted ones; program_trust takes note of it. */
bool program_trusted(struct program_cache *cache, struct program *program);
void program_trust(struct program_cache *cache, struct program *program);

/* Takes note that they have not, with the message that says how, and returns it for every later plan; NULL: none.
 * The string lives as long as the program. */
void program_distrust(struct program_cache *cache, struct program *program, const char *message);
const char *program_distrusted(struct program_cache *cache, struct program *program);

/* Saves the program's binary, among the trusted or apart from them, unless it came from there or was saved
 * before.  Call it when its kernels have run once, in each of its grid classes: PoCL compiles at the first
 * launch, Mali when a kernel is created, and the binary holds that work.  Where the driver compiles all kernels once more
 * for it (QUIRK_COMPILES_BY_GRID: for work-groups of any size) the first result does not wait for that: it is left to
 * program_save_due, and of a `trial`, one of many geometries, not done.  No lock may be held. */
void program_save(struct program_cache *cache, struct program *program, bool trial);
void program_save_due(struct program_cache *cache);

/* The options that every build gets, before the -D list: a test reads it for what must never be there. */
extern const char program_base_options[];

#endif
