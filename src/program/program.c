#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "clattn/version.h"
#include "program/driver.h"
#include "program/ptx_splice.h"

#define PROGRAMS_KEPT 256
#define PROGRAMS_DUE 1024

/* -w: PoCL prints "N warnings generated." on the application's stderr.  The tests build without it. */
const char program_base_options[] = PROGRAM_LANGUAGE " -w";
/* Leaves out the text of opencl-c.h; lib/builtins.h stands in for it. */
static const char program_builtins_option[] = " -D_OPENCL_H_";

/* How a program is stored in the binary cache.  An unchecked entry has a key of its own: a process that loads it
 * compares the kernels with the reference first, and saves them again. */
enum saved { SAVED_NOT, SAVED_UNCHECKED, SAVED_CHECKED };

struct program {
    struct program *next;
    unsigned references; /* plans that hold it; the cache itself is not counted */
    uint8_t key[SHA256_BYTES];
    bool pending; /* being loaded or built, by a thread that holds a reference */
    cl_program handle;
    char *failure; /* the message of a failed build, or NULL */
    enum saved saved;
    bool wanted; /* to be saved in the binary cache */
    bool trusted;
    char *distrust; /* how a kernel has disagreed with the reference, or NULL */
};

static clattn_status init_locks(struct program_cache *cache)
{
    if (mtx_init(&cache->lock, mtx_plain) != thrd_success)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    if (mtx_init(&cache->build, mtx_plain) == thrd_success) {
        if (cnd_init(&cache->made) == thrd_success)
            return CLATTN_SUCCESS;
        mtx_destroy(&cache->build);
    }
    mtx_destroy(&cache->lock);
    return CLATTN_ERROR_OUT_OF_MEMORY;
}

clattn_status program_cache_init(struct program_cache *cache, struct device *device,
                                 const clattn_context_params *params)
{
    clattn_status status;
    const char *folder = params->kernel_dir ? params->kernel_dir : os_environment("CLATTN_KERNEL_DIR");
    memset(cache, 0, sizeof *cache);
    cache->binaries.folder = -1;
    cache->device = device;
    cache->checks = params->self_check != CLATTN_SELF_CHECK_OFF;
    cache->checks_always = params->self_check == CLATTN_SELF_CHECK_ALWAYS;
    status = init_locks(cache);
    if (status != CLATTN_SUCCESS)
        return report_error(&device->report, status, "no memory for a lock");
    if (folder) {
        struct strbuf probe = {0};
        cache->kernel_dir = string_copy(folder);
        status = cache->kernel_dir ? source_expand(&device->report, folder, "lib/array.h", NULL, &probe)
                                   : report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY,
                                                  "no memory for the path of the kernels' folder");
        strbuf_clear(&probe);
        if (status != CLATTN_SUCCESS)
            goto fail;
    }
    TRY(binary_cache_open(&cache->binaries, &device->report, params));
    return CLATTN_SUCCESS;
fail:
    program_cache_clear(cache);
    return status;
}

static void destroy(struct program_cache *cache, struct program *program)
{
    if (program->handle)
        cache->device->cl.clReleaseProgram(program->handle);
    free(program->failure);
    free(program->distrust);
    free(program);
}

void program_cache_clear(struct program_cache *cache)
{
    while (cache->first) {
        struct program *program = cache->first;
        cache->first = program->next;
        destroy(cache, program);
    }
    binary_cache_close(&cache->binaries);
    free(cache->kernel_dir);
    cache->kernel_dir = NULL;
    /* cnd_destroy would wait in the child of a fork, where threads of the parent may seem to wait for the variable. */
    if (!device_is_foreign(cache->device))
        cnd_destroy(&cache->made);
    mtx_destroy(&cache->build);
    mtx_destroy(&cache->lock);
}

static void hash_text(struct sha256 *hash, const char *text)
{
    uint64_t length = strlen(text);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(length >> (8 * i));
    sha256_update(hash, prefix, sizeof prefix);
    sha256_update(hash, text, length);
}

/* Hashes all that a binary depends on (text, options, device, driver, this library's version), and the grid class
 * that it holds code for. */
static void make_key(const struct program_cache *cache, const char *source, const char *options, enum grid_class grid,
                     uint8_t key[SHA256_BYTES])
{
    const struct device *device = cache->device;
    const clattn_device_info *info = &device->caps.info;
    struct sha256 hash;
    sha256_init(&hash);
    hash_text(&hash, CLATTN_VERSION_STRING);
    hash_text(&hash, source);
    hash_text(&hash, options);
    hash_text(&hash, info->platform);
    hash_text(&hash, info->name);
    hash_text(&hash, info->vendor);
    hash_text(&hash, info->driver);
    hash_text(&hash, info->version);
    sha256_update(&hash, info->uuid, sizeof info->uuid);
    if (grid == GRID_LARGE)
        hash_text(&hash, "large grids");
    sha256_final(&hash, key);
}

static void entry_key(const struct program *program, enum saved kind, uint8_t key[SHA256_BYTES])
{
    struct sha256 hash;
    memcpy(key, program->key, SHA256_BYTES);
    if (kind == SAVED_CHECKED)
        return;
    sha256_init(&hash);
    sha256_update(&hash, program->key, SHA256_BYTES);
    hash_text(&hash, "unchecked");
    sha256_final(&hash, key);
}

/* True if the cache had an entry that the driver took. */
static bool load(struct program_cache *cache, const char *options, struct program *program, enum saved kind,
                 clattn_program_statistics *outcome)
{
    struct report *report = &cache->device->report;
    uint8_t *binary, key[SHA256_BYTES];
    size_t bytes;
    bool refused;
    entry_key(program, kind, key);
    if (!binary_cache_load(&cache->binaries, key, &binary, &bytes, &refused)) {
        if (refused) {
            outcome->refused++;
            report_log(report, CLATTN_LOG_LEVEL_WARNING, "a cache entry is damaged; building from source");
        }
        return false;
    }
    mtx_lock(&cache->build);
    program->saved = driver_load(cache->device, binary, bytes, options, &program->handle) ? kind : SAVED_NOT;
    program->trusted = program->saved == SAVED_CHECKED;
    mtx_unlock(&cache->build);
    free(binary);
    if (program->saved) {
        outcome->loaded++;
        return true;
    }
    outcome->refused++;
    binary_cache_drop(&cache->binaries, key);
    report_log(report, CLATTN_LOG_LEVEL_WARNING, "the driver refused a cache entry; building from source");
    return false;
}

/* Finds a program by its key and moves it to the front of the list. */
static struct program *find(struct program_cache *cache, const uint8_t key[SHA256_BYTES])
{
    for (struct program **link = &cache->first; *link; link = &(*link)->next)
        if (!memcmp((*link)->key, key, SHA256_BYTES)) {
            struct program *found = *link;
            *link = found->next;
            found->next = cache->first;
            cache->first = found;
            return found;
        }
    return NULL;
}

/* Does what find does, but waits until no thread is building the program. */
static struct program *find_made(struct program_cache *cache, const uint8_t key[SHA256_BYTES])
{
    struct program *found;
    while ((found = find(cache, key)) != NULL && found->pending)
        cnd_wait(&cache->made, &cache->lock);
    return found;
}

static void unlink_program(struct program_cache *cache, struct program *program)
{
    struct program **link = &cache->first;
    while (*link != program)
        link = &(*link)->next;
    *link = program->next;
    cache->count--;
}

/* Caller holds the lock.  Whether the program still has to be saved, and as what (*kind); programs that only trials
 * have used are never saved. */
static bool is_due(const struct program *program, enum saved *kind)
{
    *kind = program->trusted ? SAVED_CHECKED : SAVED_UNCHECKED;
    return program->wanted && !program->pending && !program->distrust && program->saved < *kind;
}

/* Drops the least recently used programs that no plan holds; programs that still have to be saved go only if there
 * are more than PROGRAMS_DUE. */
static void trim(struct program_cache *cache)
{
    while (cache->count > PROGRAMS_KEPT) {
        struct program **oldest = NULL;
        enum saved kind;
        for (struct program **link = &cache->first; *link; link = &(*link)->next)
            if (!(*link)->references && (cache->count > PROGRAMS_DUE || !is_due(*link, &kind)))
                oldest = link;
        if (!oldest)
            return;
        struct program *gone = *oldest;
        unlink_program(cache, gone);
        destroy(cache, gone);
    }
}

static bool wants_splice(const char *options)
{
    return strstr(options, " -D" PTX_SPLICE_OPTION "=1") != NULL;
}

/* Replaces the program, which was just built, by one with the instructions that its compiler does not know: without
 * them it would compute nothing.  Returns driver_build's statuses. */
static clattn_status splice(struct program_cache *cache, const char *file, const char *options, struct program *program)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = cache->device;
    struct strbuf spliced = {0}, text = {0};
    size_t bytes = 0;
    uint8_t *binary = driver_read_binary(device, program->handle, &bytes);
    const char *reason = binary ? ptx_splice(binary, bytes, &spliced) : "the driver gives none";
    device->cl.clReleaseProgram(program->handle);
    program->handle = NULL;
    if (!reason && !spliced.failed) {
        status = driver_rebuild(device, file, (const uint8_t *)spliced.text, spliced.length, options, &program->handle,
                                &program->failure);
    } else {
        if (reason)
            strbuf_printf(&text, "%s: instructions cannot be put into the driver's binary: %s", file, reason);
        program->failure = reason ? strbuf_take(&text) : NULL;
        if (!program->failure)
            status = report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a program's binary");
    }
    strbuf_clear(&spliced);
    free(binary);
    return status;
}

/* Loads the program from the binary cache or builds it, without the lock on the list; *outcome counts which of the
 * two happened. */
static clattn_status load_or_build(struct program_cache *cache, const char *file, const char *source,
                                   const char *options, struct program *program, clattn_program_statistics *outcome)
{
    if (load(cache, options, program, SAVED_CHECKED, outcome) ||
        load(cache, options, program, SAVED_UNCHECKED, outcome))
        return CLATTN_SUCCESS;
    report_hold();
    mtx_lock(&cache->build);
    clattn_status status = driver_build(cache->device, file, source, options, &program->handle, &program->failure);
    if (status == CLATTN_SUCCESS && !program->failure && wants_splice(options))
        status = splice(cache, file, options, program);
    mtx_unlock(&cache->build);
    report_deliver();
    outcome->built += status == CLATTN_SUCCESS && !program->failure;
    return status;
}

/* Adds the program to the list, with a reference for the caller.  The lock is held at the call and at the return,
 * but not while the program is loaded or built. */
static clattn_status make(struct program_cache *cache, const char *file, const char *source, const char *options,
                          const uint8_t key[SHA256_BYTES], struct program **made)
{
    clattn_program_statistics outcome = {0};
    struct program *program = calloc(1, sizeof *program);
    if (!program)
        return report_error(&cache->device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a program");
    memcpy(program->key, key, SHA256_BYTES);
    program->pending = true;
    program->references = 1;
    program->next = cache->first;
    cache->first = program;
    cache->count++;
    mtx_unlock(&cache->lock);
    clattn_status status = load_or_build(cache, file, source, options, program, &outcome);
    mtx_lock(&cache->lock);
    cache->statistics.built += outcome.built;
    cache->statistics.loaded += outcome.loaded;
    cache->statistics.refused += outcome.refused;
    program->pending = false;
    cnd_broadcast(&cache->made);
    if (status != CLATTN_SUCCESS) {
        unlink_program(cache, program);
        destroy(cache, program);
        return status;
    }
    *made = program;
    return CLATTN_SUCCESS;
}

static clattn_status get_locked(struct program_cache *cache, const char *file, const char *source, const char *options,
                                const uint8_t key[SHA256_BYTES], struct program **program)
{
    clattn_status status = CLATTN_SUCCESS;
    struct program *found = find_made(cache, key);
    if (found)
        found->references++;
    else
        status = make(cache, file, source, options, key, &found);
    if (status == CLATTN_SUCCESS && found->failure) {
        found->references--;
        status = report_error(&cache->device->report, CLATTN_ERROR_BUILD, "%s", found->failure);
    }
    if (status == CLATTN_SUCCESS)
        *program = found;
    trim(cache);
    return status;
}

/* Does what program_get does; `builtins`: the kernel is built with lib/builtins.h in place of the driver's own header. */
static clattn_status get(struct program_cache *cache, const char *file, const char *options,
                         const struct source_snippets *snippets, enum grid_class grid, bool builtins,
                         struct program **program)
{
    clattn_status status;
    struct report *report = &cache->device->report;
    struct strbuf source = {0}, all = {0};
    uint8_t key[SHA256_BYTES];
    if (builtins)
        TRY(source_expand(report, cache->kernel_dir, "lib/builtins.h", NULL, &source));
    TRY(source_expand(report, cache->kernel_dir, file, snippets, &source));
    source_append(&source, options, snippets);
    strbuf_printf(&all, "%s%s%s", program_base_options, builtins ? program_builtins_option : "", options);
    if (all.failed || source.failed) {
        status = report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a kernel's source and options");
        goto fail;
    }
    make_key(cache, source.text, all.text, grid, key);
    report_hold();
    mtx_lock(&cache->lock);
    status = get_locked(cache, file, source.text, all.text, key, program);
    mtx_unlock(&cache->lock);
    report_deliver();
fail:
    strbuf_clear(&source);
    strbuf_clear(&all);
    return status;
}

/* A snippet may call any function. */
static bool takes_builtins(const struct program_cache *cache, const struct source_snippets *snippets)
{
    bool snippet = false;
    for (int i = 0; snippets && i < SOURCE_SNIPPETS; i++)
        snippet = snippet || snippets->snippet[i].name;
    return !snippet && (cache->device->caps.quirks & QUIRK_SLOW_HEADER);
}

/* Whether the compiler found a mistake in the thread's last build, in clang's words: a declaration may be missing. */
static bool is_mistake(struct report *report)
{
    char text[4096];
    report_copy(report, text, sizeof text);
    return strstr(text, "error:") != NULL;
}

clattn_status program_get(struct program_cache *cache, const char *file, const char *options,
                          const struct source_snippets *snippets, enum grid_class grid, struct program **program)
{
    clattn_status status;
    const bool builtins = takes_builtins(cache, snippets);
    *program = NULL;
    status = get(cache, file, options, snippets, grid, builtins, program);
    if (!builtins || status != CLATTN_ERROR_BUILD || !is_mistake(&cache->device->report))
        return status;
    status = get(cache, file, options, snippets, grid, false, program);
    if (status == CLATTN_SUCCESS)
        report_log(&cache->device->report, CLATTN_LOG_LEVEL_WARNING,
                   "%s calls a function that lib/builtins.h lacks: its first build takes twice as long", file);
    return status;
}

void program_release(struct program_cache *cache, struct program **program)
{
    /* The lock may be held for ever in the child of a fork; the program is freed with its context. */
    if (!*program || device_is_foreign(cache->device)) {
        *program = NULL;
        return;
    }
    mtx_lock(&cache->lock);
    (*program)->references--;
    trim(cache);
    mtx_unlock(&cache->lock);
    *program = NULL;
}

clattn_status program_kernel(struct program_cache *cache, struct program *program, const char *name, cl_kernel *kernel)
{
    cl_int code;
    *kernel = cache->device->cl.clCreateKernel(program->handle, name, &code);
    if (*kernel && code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    *kernel = NULL;
    return report_opencl(&cache->device->report, "clCreateKernel", code);
}

bool program_trusted(struct program_cache *cache, struct program *program)
{
    mtx_lock(&cache->lock);
    bool trusted = program->trusted;
    mtx_unlock(&cache->lock);
    return trusted;
}

void program_trust(struct program_cache *cache, struct program *program)
{
    mtx_lock(&cache->lock);
    program->trusted = true;
    mtx_unlock(&cache->lock);
}

void program_distrust(struct program_cache *cache, struct program *program, const char *message)
{
    char *copy = string_copy(message);
    mtx_lock(&cache->lock);
    if (!program->distrust) {
        program->distrust = copy;
        copy = NULL;
    }
    mtx_unlock(&cache->lock);
    free(copy);
}

const char *program_distrusted(struct program_cache *cache, struct program *program)
{
    mtx_lock(&cache->lock);
    const char *message = program->distrust;
    mtx_unlock(&cache->lock);
    return message;
}

static bool has_text(const uint8_t *bytes, size_t count, const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= count; i++)
        if (bytes[i] == (uint8_t)text[0] && memcmp(bytes + i, text, length) == 0)
            return true;
    return false;
}

/* Whether a binary lacks the program, or the code that was checked.  PoCL gathers a binary from the folder of its
 * own cache, which may have been emptied since the kernels ran; a process that loads an incomplete binary may not be
 * able to run it. */
static bool is_incomplete(const struct program_cache *cache, const uint8_t *binary, size_t bytes)
{
    return (cache->device->caps.quirks & QUIRK_COMPILES_BY_GRID) &&
           !(has_text(binary, bytes, "/program.bc") && has_text(binary, bytes, "-goffs0"));
}

static void save(struct program_cache *cache, struct program *program, enum saved kind)
{
    size_t bytes;
    uint8_t key[SHA256_BYTES];
    mtx_lock(&cache->build);
    uint8_t *binary = driver_read_binary(cache->device, program->handle, &bytes);
    mtx_unlock(&cache->build);
    entry_key(program, kind, key);
    if (!binary || is_incomplete(cache, binary, bytes) || !binary_cache_store(&cache->binaries, key, binary, bytes))
        report_log(&cache->device->report, CLATTN_LOG_LEVEL_WARNING, "a program could not be saved in the cache");
    free(binary);
}

static bool defers_saving(const struct program_cache *cache)
{
    return cache->device->caps.quirks & QUIRK_COMPILES_BY_GRID;
}

/* Caller holds the lock.  Returns the first program that still has to be saved, with a reference for the caller and
 * marked as saved; or NULL. */
static struct program *take_due(struct program_cache *cache, enum saved *kind)
{
    for (struct program *program = cache->first; program; program = program->next)
        if (is_due(program, kind)) {
            program->references++;
            program->saved = *kind;
            return program;
        }
    return NULL;
}

bool program_save(struct program_cache *cache, struct program *program, bool trial)
{
    enum saved kind;
    if ((cache->binaries.folder < 0 && !cache->binaries.store) || (trial && defers_saving(cache)) ||
        !cache->device->caps.info.saves_programs)
        return false;
    mtx_lock(&cache->lock);
    program->wanted = true;
    bool due = is_due(program, &kind), now = due && !defers_saving(cache);
    if (now)
        program->saved = kind;
    mtx_unlock(&cache->lock);
    if (now)
        save(cache, program, kind);
    return due && !now;
}

bool program_save_next(struct program_cache *cache)
{
    enum saved kind;
    mtx_lock(&cache->lock);
    struct program *program = take_due(cache, &kind);
    mtx_unlock(&cache->lock);
    if (!program)
        return false;
    save(cache, program, kind);
    program_release(cache, &program);
    return true;
}

void program_save_due(struct program_cache *cache)
{
    while (program_save_next(cache))
        ;
}
