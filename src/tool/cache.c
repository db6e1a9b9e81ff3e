/* clattn cache: shows where compiled kernels are cached between processes, lists them, and removes them.
 *
 * The library's own code, compiled in here too, decides where the cache is and whether it may be used at all, so
 * that OpenCL need not be installed.  Only files that are named as cache entries are touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tool/cli/os_tool.h"
#include "program/binary_cache.h"
#include "tool/cli/report.h"

typedef struct cache_options {
    const char *action; /* NULL: a summary */
    bool json;
} cache_options;

#define FIELD(name) offsetof(cache_options, name)

static const option_row rows[] = {
    OPTION_ROW_JSON(cache_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "cache",
    .summary = "Compiled kernels kept between processes: the folder, its entries, and removing them all; "
               "without an\n"
               "argument, the folder and how much is in it.",
    .operands = "path|list|clear",
    .operand_offset = FIELD(action),
    .operand_count = 1,
    .rows = rows,
};

/* Whether the name is `digits` hexadecimal digits and then `suffix`. */
static bool is_hexadecimal(const char *name, size_t digits, const char *suffix)
{
    return strspn(name, "0123456789abcdef") == digits && strcmp(name + digits, suffix) == 0;
}

static bool is_entry(const char *name)
{
    return is_hexadecimal(name, 64, ".bin");
}

/* Whether the file was left by a process that was killed while it wrote. */
static bool is_leftover(const char *name)
{
    return name[0] == '.' && is_hexadecimal(name + 1, 16, ".tmp");
}

typedef struct cache_walk {
    const char *folder;
    bool json, list, clear, failed;
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
    else if (json_array_append_new(walk->entries, json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)bytes,
                                                            "changed", when)) != 0)
        walk->failed = true;
}

static bool visit(void *user, const char *name, uint64_t bytes, int64_t changed)
{
    cache_walk *walk = user;
    if (walk->clear && (is_entry(name) || is_leftover(name))) {
        if (!os_remove_file(walk->folder, name))
            walk->failed = true;
    } else if (walk->clear || !is_entry(name)) {
        return true;
    } else if (walk->list) {
        list_entry(walk, name, bytes, changed);
    }
    walk->count++;
    walk->bytes += bytes;
    return true;
}

static bool action_is(const cache_options *options, const char *action)
{
    return options->action != NULL && strcmp(options->action, action) == 0;
}

static int walk_folder(const cache_options *options, const char *folder)
{
    cache_walk walk = {.folder = folder,
                       .json = options->json,
                       .list = action_is(options, "list"),
                       .clear = action_is(options, "clear")};
    int status;
    walk.entries = json_array();
    if (!os_list_folder(folder, visit, &walk)) {
        status = complain(TOOL_FAILED, "%s: cannot be read, expected the folder of the cache", folder);
    } else if (walk.failed) {
        status =
            complain(TOOL_FAILED, walk.clear ? "%s: not every entry could be removed" : "%s: out of memory", folder);
    } else {
        tool_report report = report_begin();
        report_text(&report, "path", folder);
        report_count(&report, walk.clear ? "removed" : "count", walk.count);
        report_count(&report, "bytes", (size_t)walk.bytes);
        if (walk.list && options->json)
            report_json(&report, "entries", json_incref(walk.entries));
        status = report_finish(&report, options->json);
    }
    json_decref(walk.entries);
    return status;
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
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    struct binary_cache cache;
    int status = options_parse(&table, argc, argv, &options);
    if (status != TOOL_DONE)
        return status;
    if (options.action != NULL && !action_is(&options, "path") && !action_is(&options, "list") &&
        !action_is(&options, "clear"))
        return complain(TOOL_BAD_INPUT, "cache: unknown action '%s', expected path, list or clear", options.action);
    if (binary_cache_open(&cache, NULL, &params) != CLATTN_SUCCESS)
        return complain(TOOL_FAILED, "out of memory");
    if (cache.folder < 0)
        status = complain(TOOL_FAILED, "the cache is off: %s", cache.reason);
    else if (action_is(&options, "path"))
        status = print_path(&options, cache.path);
    else
        status = walk_folder(&options, cache.path);
    binary_cache_close(&cache);
    return status;
}
