/* clattn cache: where compiled kernels are kept between processes, which they are, and forgetting them.
 *
 * The library decides where the cache is and whether it may be used at all; here only files that are named as
 * its entries are touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "os_tool.h"
#include "report.h"

typedef struct cache_options {
    const char *action, *device;
    bool json;
} cache_options;

#define FIELD(name) offsetof(cache_options, name)

static const option_row rows[] = {
    OPTION_ROW_DEVICE(cache_options),
    OPTION_ROW_JSON(cache_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "cache",
    .summary = "Compiled kernels kept between processes: the folder, its entries, and removing them all.",
    .operands = "path|list|clear",
    .operand_offset = FIELD(action),
    .operand_count = 1,
    .rows = rows,
};

/* `digits` hexadecimal ones, then `suffix`. */
static bool is_hexadecimal(const char *name, size_t digits, const char *suffix)
{
    return strspn(name, "0123456789abcdef") == digits && strcmp(name + digits, suffix) == 0;
}

static bool is_entry(const char *name)
{
    return is_hexadecimal(name, 64, ".bin");
}

/* What a process that was killed while it wrote has left. */
static bool is_leftover(const char *name)
{
    return name[0] == '.' && is_hexadecimal(name + 1, 16, ".tmp");
}

typedef struct cache_walk {
    const char *folder;
    bool json, clear, failed;
    json_t *entries;
    size_t count;
    uint64_t bytes;
} cache_walk;

static void list_entry(cache_walk *walk, const char *name, uint64_t bytes, int64_t changed)
{
    char when[32] = "";
    time_t seconds = (time_t)changed;
    const struct tm *parts = gmtime(&seconds);
    if (parts != NULL)
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", parts);
    if (!walk->json)
        printf("%s  %10llu  %s\n", when, (unsigned long long)bytes, name);
    else if (json_array_append_new(walk->entries, json_pack("{s:s, s:I, s:s}", "name", name, "bytes",
                                                            (json_int_t)bytes, "changed", when)) != 0)
        walk->failed = true;
}

static bool visit(void *user, const char *name, uint64_t bytes, int64_t changed)
{
    cache_walk *walk = user;
    if (walk->clear && (is_entry(name) || is_leftover(name))) {
        if (!os_remove_file(walk->folder, name))
            walk->failed = true;
    } else if (!walk->clear && is_entry(name)) {
        list_entry(walk, name, bytes, changed);
    } else {
        return true;
    }
    walk->count++;
    walk->bytes += bytes;
    return true;
}

static int walk_folder(const cache_options *options, const char *folder)
{
    cache_walk walk = {
        .folder = folder, .json = options->json, .clear = strcmp(options->action, "clear") == 0};
    tool_report report;
    walk.entries = json_array();
    if (!os_list_folder(folder, visit, &walk))
        complain(TOOL_FAILED, "%s: cannot be read, expected the folder of the cache", folder);
    else if (walk.failed)
        complain(TOOL_FAILED, walk.clear ? "%s: not every entry could be removed" : "%s: out of memory",
                 folder);
    else {
        report_begin(&report);
        report_text(&report, "path", folder);
        report_count(&report, walk.clear ? "removed" : "count", walk.count);
        report_count(&report, "bytes", (size_t)walk.bytes);
        if (!walk.clear && options->json && report.object != NULL)
            json_object_set(report.object, "entries", walk.entries);
        json_decref(walk.entries);
        return report_finish(&report, options->json);
    }
    json_decref(walk.entries);
    return TOOL_FAILED;
}

static int print_path(const cache_options *options, const char *folder)
{
    if (options->json)
        return print_json(json_pack("{s:o}", "path", json_text(folder)));
    puts(folder);
    return TOOL_DONE;
}

int cmd_cache(int argc, char **argv)
{
    cache_options options = {0};
    tool_device device = {0};
    option_outcome outcome = options_parse(&table, argc, argv, &options);
    if (outcome != OPTIONS_RUN)
        return outcome == OPTIONS_DONE ? TOOL_DONE : TOOL_BAD_INPUT;
    if (strcmp(options.action, "path") != 0 && strcmp(options.action, "list") != 0 &&
        strcmp(options.action, "clear") != 0)
        return complain(TOOL_BAD_INPUT, "cache: unknown action '%s', expected path, list or clear",
                        options.action);
    int status = device_open(options.device, &device);
    if (status != TOOL_DONE)
        return status;
    const char *reason = NULL;
    const char *folder = clattn_context_cache_dir(device.context, &reason);
    if (folder == NULL)
        status =
            complain(TOOL_FAILED, "the cache is off: %s", reason != NULL ? reason : "for an unknown reason");
    else if (strcmp(options.action, "path") == 0)
        status = print_path(&options, folder);
    else
        status = walk_folder(&options, folder);
    device_close(&device);
    return status;
}
