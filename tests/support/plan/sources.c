#include "support/plan/sources.h"

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

void sources_damage(struct sources *sources, const char *file, const char *from, const char *to)
{
    char command[3 * FOLDER_SIZE], path[2 * FOLDER_SIZE];
    size_t bytes;
    new_folder(sources->folder);
    snprintf(command, sizeof command, "cp -R '%s/.' '%s'", KERNEL_DIR, sources->folder);
    assert_int_equal(system(command), 0);
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
