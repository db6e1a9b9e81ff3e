#include "support/sources.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void write_replaced(FILE *out, const char *text, const char *from, const char *to)
{
    const char *found;
    int count = 0;
    while (from && (found = strstr(text, from))) {
        assert_true(fwrite(text, 1, (size_t)(found - text), out) == (size_t)(found - text));
        fputs(to, out);
        text = found + strlen(from);
        count++;
    }
    assert_true(!from || count);
    fputs(text, out);
}

static void copy_folder(const struct sources *sources, const char *sub, const char *file, const char *from,
                        const char *to)
{
    char path[3 * SUPPORT_PATH], target[3 * SUPPORT_PATH];
    snprintf(path, sizeof path, "%s%s", KERNEL_DIR, sub);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strchr(entry->d_name, '.') || entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s%s/%s", KERNEL_DIR, sub, entry->d_name);
        snprintf(target, sizeof target, "%s%s/%s", sources->folder, sub, entry->d_name);
        char *text = read_text(path);
        FILE *out = fopen(target, "wb");
        assert_non_null(out);
        write_replaced(out, text, strcmp(entry->d_name, file) ? NULL : from, to);
        assert_int_equal(fclose(out), 0);
        free(text);
    }
    closedir(folder);
}

void sources_damage(struct sources *sources, const char *file, const char *from, const char *to)
{
    char inner[3 * SUPPORT_PATH];
    support_folder(sources->folder);
    snprintf(inner, sizeof inner, "mkdir -p '%s/inc' '%s/matrix'", sources->folder, sources->folder);
    assert_int_equal(system(inner), 0);
    copy_folder(sources, "", file, from, to);
    copy_folder(sources, "/inc", file, from, to);
    copy_folder(sources, "/matrix", file, from, to);
}

clattn_context *sources_context(const struct sources *sources, const char *cache, bool checks)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.kernel_dir = sources->folder;
    params.cache_mode = cache ? CLATTN_CACHE_ON : CLATTN_CACHE_OFF;
    params.cache_dir = cache;
    params.self_check = checks ? CLATTN_SELF_CHECK_ON : CLATTN_SELF_CHECK_OFF;
    return support_context_with(&params);
}
