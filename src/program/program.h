/* Programs: a kernel file of cl/ specialised by -D options, built once per context. */
#ifndef CLATTN_PROGRAM_PROGRAM_H
#define CLATTN_PROGRAM_PROGRAM_H

#include "device/device.h"
#include "program/binary_cache.h"
#include "program/source.h"

/* A built program, shared by all plans that use it.  Immutable except for its reference count and its trust. */
struct program;

/* The launches for which a program's binary holds machine code (QUIRK_COMPILES_BY_GRID): small grids alone, or large
 * ones too.  PoCL 3.1 serialises a program only once, so each class has a program and a cache entry of its own. */
enum grid_class { GRID_SMALL, GRID_LARGE };

/* A context's programs.  Thread-safe.  The application's callbacks run with no lock held: while a program is
 * loaded or built it is in the list as pending, and another thread that wants it waits for `made`, so that
 * none is built twice. */
struct program_cache {
    mtx_t lock;  /* guards the list and the statistics */
    mtx_t build; /* guards the driver's compiler */
    cnd_t made;
    struct device *device;
    char *kernel_dir;   /* NULL: the embedded sources */
    bool checks;        /* programs are compared with the reference */
    bool checks_always; /* even programs that have passed before */
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

/* Returns the program of `file` with `options` (a leading-blank list of -D…) and `snippets` (may be NULL): from
 * memory, from the binary cache, or built.  The caller releases it.  A failed build is remembered, unless host
 * memory ran out, and fails again at once with its log.  No lock may be held.  Returns BUILD, OPENCL, OUT_OF_MEMORY,
 * IO, INTERNAL. */
clattn_status program_get(struct program_cache *cache, const char *file, const char *options,
                          const struct source_snippets *snippets, enum grid_class grid, struct program **program);
void program_release(struct program_cache *cache, struct program **program);

/* A new kernel of the program; the caller releases it. */
clattn_status program_kernel(struct program_cache *cache, struct program *program, const char *name, cl_kernel *kernel);

/* Whether the program's kernels have agreed with the reference on this device, in this process or in the process
 * that saved the binary as trusted.  program_trust records the agreement. */
bool program_trusted(struct program_cache *cache, struct program *program);
void program_trust(struct program_cache *cache, struct program *program);

/* program_distrust records that the program's kernels have disagreed with the reference; `message` says how.
 * program_distrusted returns the message to every later plan, or NULL if there is none.  The string lives as long as
 * the program. */
void program_distrust(struct program_cache *cache, struct program *program, const char *message);
const char *program_distrusted(struct program_cache *cache, struct program *program);

/* Saves the program's binary, as trusted or as unchecked, unless it was loaded or saved as such before.  Call it
 * when the kernels have run once in each of their grid classes: PoCL compiles at the first launch, Mali when a
 * kernel is created, and the binary holds the result.  If the driver compiles all kernels once more for the binary
 * (QUIRK_COMPILES_BY_GRID: for work-groups of any size), saving is left to program_save_due, so that the first
 * result does not wait; the program of a `trial`, one of many geometries, is then not saved.  Returns whether it is
 * left so.  program_save_next saves the first of the programs that are left, and returns false if there is none.  No
 * lock may be held. */
bool program_save(struct program_cache *cache, struct program *program, bool trial);
bool program_save_next(struct program_cache *cache);
void program_save_due(struct program_cache *cache);

/* The language of every kernel. */
#define PROGRAM_LANGUAGE "-cl-std=CL1.2"

/* The options of every build of kernels, which precede the -D list; a test checks them. */
extern const char program_base_options[];

#endif
