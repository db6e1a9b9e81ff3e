/* The file of wisdom is its user's alone: one that others may have written, or a link, is not read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/plan/tuned_plan.h"

static void only_the_users_own_file_is_read(void **state)
{
    char path[FOLDER_SIZE + 8], target[FOLDER_SIZE + 16];
    struct stat info;
    (void)state;
    tuned_file(path);
    char *text = tuned_learnt(tuned.context);
    assert_status(tuned.context, clattn_wisdom_save(tuned.context, CLATTN_WISDOM_MODE_MERGE), CLATTN_SUCCESS);
    assert_true(tuned_serves(&tuned.params));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);

    write_file(path, text, strlen(text), 0622);
    assert_false(tuned_serves(&tuned.params));
    write_file(path, text, strlen(text), 0600);
    assert_true(tuned_serves(&tuned.params));
    snprintf(target, sizeof target, "%s/elsewhere", tuned.folder);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_false(tuned_serves(&tuned.params));
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {TUNED_TEST(only_the_users_own_file_is_read)};
    return RUN_TESTS("wisdom_private", tests, argc, argv);
}
