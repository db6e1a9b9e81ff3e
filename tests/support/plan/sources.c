#include "support/plan/sources.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_replaced(FILE *out, const char *text, const char *from, const char *to)
{
    const char *found;
    int count = 0;
    while ((found = strstr(text, from))) {
        assert_true(fwrite(text, 1, (size_t)(found - text), out) == (size_t)(found - text));
        fputs(to, out);
        text = found + strlen(from);
        count++;
    }
    assert_true(count);
    fputs(text, out);
}

/* Copies what is in a folder. */
static void copy_folder(const char *from, const char *to)
{
    DIR *stream = opendir(from);
    assert_non_null(stream);
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        char source[2 * FOLDER_SIZE], target[2 * FOLDER_SIZE];
        struct stat about;
        size_t bytes;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(source, sizeof source, "%s/%.200s", from, entry->d_name);
        snprintf(target, sizeof target, "%s/%.200s", to, entry->d_name);
        assert_int_equal(stat(source, &about), 0);
        if (S_ISDIR(about.st_mode)) {
            assert_int_equal(mkdir(target, 0700), 0);
            copy_folder(source, target);
        } else {
            char *content = read_file(source, &bytes);
            write_file(target, content, bytes, 0600);
            free(content);
        }
    }
    closedir(stream);
}

void sources_copy(char folder[FOLDER_SIZE])
{
    new_folder(folder);
    copy_folder(KERNEL_DIR, folder);
}

void sources_damage(struct sources *sources, const char *file, const char *from, const char *to)
{
    char path[2 * FOLDER_SIZE];
    size_t bytes;
    sources_copy(sources->folder);
    snprintf(path, sizeof path, "%s/%s", sources->folder, file);
    char *text = read_file(path, &bytes);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    write_replaced(out, text, from, to);
    assert_int_equal(fclose(out), 0);
    free(text);
}

clattn_context *sources_context(const struct sources *sources, const char *cache, bool checks)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.kernel_dir = sources->folder;
    params.cache_mode = cache ? CLATTN_CACHE_MODE_ON : CLATTN_CACHE_MODE_OFF;
    params.cache_dir = cache;
    params.save_mode = CLATTN_SAVE_MODE_RELEASE;
    params.self_check = checks ? CLATTN_SELF_CHECK_ON : CLATTN_SELF_CHECK_OFF;
    return new_context_with(&params);
}

void damage_is_found(const struct operator_calls *op, const void *desc, const struct damage *damages, size_t count)
{
    for (const struct damage *d = damages; d < damages + count; d++) {
        if (op == &attention_operator && device_breaks(d->solver))
            continue;
        struct sources sources;
        sources_damage(&sources, d->file, d->from, d->to);
        clattn_context *context = sources_context(&sources, NULL, true);
        const clattn_status status = operator_makes(context, op, desc, d->solver);
        if (status != CLATTN_ERROR_MISCOMPILED)
            print_error("\"%s\" in %s is not noticed\n", d->to, d->file);
        assert_status(context, status, CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, d->message);
        release_context(&context);
    }
}
