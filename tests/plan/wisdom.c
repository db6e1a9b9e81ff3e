/* Whatever a wisdom text or file contains, no plan fails, and a text is imported completely or not at all.
 *
 * Holds: of include/clattn/tuning.h, the text, its file, and what threads may do. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plan/tuned_plan.h"
#include "support/core/threads.h"

static void malformed_text_is_refused_whole(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1"},
        {"clattn-wisdom 2\n", "another version"},
        {"clattn-wisdom 1", "line 1"},
        {"clattn-wisdom 1\r\n", "line 1"},
        {"wisdom\n", "line 1"},
        {TUNED_HEADING "\n", "line 2"},
        {TUNED_HEADING "d v k o c s 0 1", "the last line has no end"},
        {TUNED_HEADING "d v k o c s 0 1\nd v k o c s 0\n", "line 3"},
        {TUNED_HEADING "d v k o c s 8 1\n", "rank"},
        {TUNED_HEADING "d v k o c s -1 1\n", "rank"},
        {TUNED_HEADING "d v k o c s 00 1\n", "rank"},
        {TUNED_HEADING "d v k o c s 99999999999999999999999 1\n", "rank"},
        {TUNED_HEADING "d v k o c s 0 99999999999999999999\n", "nanoseconds"},
        {TUNED_HEADING "d v k o c s 0 0x10\n", "nanoseconds"},
        {TUNED_HEADING "d v k o c s 0 1 \n", "blank"},
        {TUNED_HEADING "d v k o c s 0 1  a=1\n", "parameters"},
        {TUNED_HEADING " d v k o c s 0 1\n", "too few parts"},
        {TUNED_HEADING "d v k o c  s 0 1\n", "too few parts"},
        {TUNED_HEADING "d v k o c\ts 0 1\n", "too few parts"},
        {TUNED_HEADING "d v k o c s 0 1 a\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 a=\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 =1\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 a=-1\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 a=1000000000\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 a=1 a=2\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 a=1,b=2\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 1a=1\n", "parameters"},
        {TUNED_HEADING "d v k o c s 0 1 aaaaaaaaaaaaaaaaaaaaaaaa=1\n", "parameters"},
        {TUNED_HEADING "d v k o c \xc3\xa9 0 1\n", "too few parts"},
        {TUNED_HEADING "d v k o c sssssssssssssssssssssssssssssssss 0 1\n", "solver"},
    };
    (void)state;
    char *before = tuned_learnt(tuned.context);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        clattn_status status = tuned_import(tuned.context, cases[i].text);
        if (status != CLATTN_ERROR_FORMAT)
            fail_msg("case %zu gave %d", i, (int)status);
        assert_message_has(tuned.context, cases[i].part);
    }
    /* These texts have a NUL, a line that is too long, too many parameters, or too many records. */
    assert_status(tuned.context, clattn_wisdom_import(tuned.context, TUNED_HEADING "d v k o c s 0 1\0\n", 33, NULL),
                  CLATTN_ERROR_FORMAT);
    static char big[2 * 1024 * 1024];
    char *p = big + sprintf(big, TUNED_HEADING);
    memset(p, 'd', 5000);
    strcpy(p + 5000, " v k o c s 0 1\n");
    assert_status(tuned.context, tuned_import(tuned.context, big), CLATTN_ERROR_FORMAT);
    p += sprintf(p, "d v k o c s 0 1");
    for (int i = 0; i < 49; i++)
        p += sprintf(p, " p%d=1", i);
    strcpy(p, "\n");
    assert_status(tuned.context, tuned_import(tuned.context, big), CLATTN_ERROR_FORMAT);
    p = big + sprintf(big, TUNED_HEADING);
    for (int i = 0; i < 2049; i++)
        p += sprintf(p, "d v k o c%d s 0 1\n", i);
    assert_status(tuned.context, tuned_import(tuned.context, big), CLATTN_ERROR_FORMAT);
    assert_message_has(tuned.context, "too many records");
    assert_status(tuned.context, clattn_wisdom_import(tuned.context, NULL, 0, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    char *after = tuned_export(tuned.context);
    assert_string_equal(after, before); /* nothing of the refused texts was imported */
    free(before);
    free(after);
}

/* Text that is cut anywhere or has any byte changed is refused, ignored or taken, and never makes a plan fail. */
static void damaged_text_never_fails_a_plan(void **state)
{
    (void)state;
    char *text = tuned_learnt(tuned.context), *longer;
    longer = tuned_exchanged(text, TUNED_HEADING, TUNED_HEADING "d v k o c s 0 1 a=1\n");
    size_t bytes = strlen(longer), step = is_tiny() ? 29 : 1;
    for (size_t length = 0; length < bytes; length += step) {
        clattn_status status = clattn_wisdom_import(tuned.context, longer, length, NULL);
        bool whole = length >= strlen(TUNED_HEADING) && longer[length - 1] == '\n';
        if (status != (whole ? CLATTN_SUCCESS : CLATTN_ERROR_FORMAT))
            fail_msg("cut to %zu of %zu bytes: %d", length, bytes, (int)status);
    }
    size_t plans = 0;
    for (size_t at = 0; at < strlen(text); at += is_tiny() ? 41 : 3) {
        char *bad = strdup(text);
        assert_non_null(bad);
        bad[at] ^= (char)(1 << (at % 7));
        assert_status(tuned.context, clattn_wisdom_clear(tuned.context), CLATTN_SUCCESS);
        clattn_status status = clattn_wisdom_import(tuned.context, bad, strlen(text), NULL);
        assert_status_in(tuned.context, status, STATUS_BIT(CLATTN_SUCCESS) | STATUS_BIT(CLATTN_ERROR_FORMAT));
        /* A solver reads the end of the line. */
        if (status == CLATTN_SUCCESS && at > strlen(text) - 60) {
            clattn_plan *plan = tuned_plan(tuned.context, NULL, NULL);
            tuned_check(tuned.context, plan);
            clattn_plan_release(&plan);
            plans++;
        }
        free(bad);
    }
    assert_true(plans > 0 || is_tiny());
    free(text);
    free(longer);
}

/* ---- the file ---- */

static void the_file_serves_later_contexts(void **state)
{
    char path[FOLDER_SIZE + 8];
    (void)state;
    tuned_file(path);
    char *text = tuned_learnt(tuned.context);
    assert_false(tuned_serves(&tuned.params));
    assert_status(tuned.context, clattn_wisdom_save(tuned.context, CLATTN_WISDOM_MODE_MERGE), CLATTN_SUCCESS);
    assert_true(tuned_serves(&tuned.params));

    /* Other records in the file stay, unless the caller replaces them. */
    char *more = tuned_exchanged(text, TUNED_HEADING, TUNED_HEADING "d v k o c s 0 1 a=1\n"), *all;
    write_file(path, more, strlen(more), 0600);
    assert_status(tuned.context, clattn_wisdom_save(tuned.context, CLATTN_WISDOM_MODE_MERGE), CLATTN_SUCCESS);
    clattn_context *other = new_context_with(&tuned.params);
    all = tuned_export(other);
    assert_non_null(strstr(all, "d v k o c s 0 1 a=1\n"));
    assert_non_null(strstr(all, " cpu 0 1234567 "));
    free(all);
    release_context(&other);
    assert_status(tuned.context, clattn_wisdom_save(tuned.context, CLATTN_WISDOM_MODE_REPLACE), CLATTN_SUCCESS);
    other = new_context_with(&tuned.params);
    all = tuned_export(other);
    assert_string_equal(all, text);
    free(all);
    release_context(&other);

    /* A file that is damaged is not read. */
    write_file(path, TUNED_HEADING "d v\n", strlen(TUNED_HEADING "d v\n"), 0600);
    assert_false(tuned_serves(&tuned.params));
    write_file(path, text, strlen(text), 0600);
    assert_true(tuned_serves(&tuned.params));

    clattn_context_params off = tuned.params;
    off.cache_mode = CLATTN_CACHE_MODE_OFF;
    assert_false(tuned_serves(&off));
    other = new_context_with(&off);
    assert_status(other, clattn_wisdom_save(other, CLATTN_WISDOM_MODE_MERGE), CLATTN_ERROR_UNSUPPORTED);
    /* The caller can still import the text. */
    assert_status(other, tuned_import(other, text), CLATTN_SUCCESS);
    clattn_plan *plan = tuned_plan(other, NULL, NULL);
    assert_says(plan, "geometry by wisdom:", true);
    clattn_plan_release(&plan);
    release_context(&other);
    free(more);
    free(text);
}

static void a_round_trip_is_exact(void **state)
{
    size_t records = 0, bytes = 0;
    char few[4];
    (void)state;
    char *text = tuned_learnt(tuned.context);
    assert_status(tuned.context, clattn_wisdom_clear(tuned.context), CLATTN_SUCCESS);
    assert_status(tuned.context, clattn_wisdom_import(tuned.context, text, strlen(text), &records), CLATTN_SUCCESS);
    assert_int_equal(records, 1);
    char *again = tuned_export(tuned.context);
    assert_string_equal(again, text);
    assert_status(tuned.context, clattn_wisdom_export(tuned.context, few, sizeof few, &bytes),
                  CLATTN_ERROR_BUFFER_TOO_SMALL);
    assert_int_equal(bytes, strlen(text));
    assert_status(tuned.context, clattn_wisdom_export(tuned.context, few, sizeof few, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_wisdom_export(NULL, NULL, 0, &bytes), CLATTN_ERROR_INVALID_ARGUMENT);
    free(text);
    free(again);
}

/* `clattn tune` stores in such a record where a search continues. */
static void a_record_of_an_unknown_solver_is_kept_and_ignored(void **state)
{
    char note[4096];
    (void)state;
    assert_status(tuned.context, clattn_wisdom_clear(tuned.context), CLATTN_SUCCESS);
    free(tuned_learnt(tuned.context));
    clattn_plan *plan = tuned_plan(tuned.context, NULL, NULL);
    for (int steps = 12; steps <= 65537; steps += 65525) {
        sprintf(note, "clattn-wisdom 1\n%s - 7 %d\n", clattn_wisdom_key(plan), steps);
        assert_status(tuned.context, tuned_import(tuned.context, note), CLATTN_SUCCESS);
    }
    /* The later note replaces the earlier one, and no plan uses it. */
    char *noted = tuned_export(tuned.context);
    assert_non_null(strstr(noted, " - 7 65537\n"));
    assert_null(strstr(noted, " - 7 12\n"));
    clattn_plan *follows = tuned_plan(tuned.context, NULL, NULL);
    assert_says(follows, "geometry by wisdom:", true);
    assert_says(follows, "ignored", false);
    clattn_plan_release(&follows);
    /* A new record drops the note, and so does forgetting. */
    for (int forgets = 0; forgets < 2; forgets++) {
        assert_status(tuned.context, tuned_import(tuned.context, noted), CLATTN_SUCCESS);
        assert_status(tuned.context, forgets ? clattn_wisdom_forget(plan) : clattn_wisdom_learn(plan, 0, 1),
                      CLATTN_SUCCESS);
        char *left = tuned_export(tuned.context);
        assert_null(strstr(left, " - 7 "));
        free(left);
    }
    assert_null(clattn_wisdom_key(NULL));
    clattn_plan_release(&plan);
    free(noted);
}

/* ---- threads ---- */

static const char *shared_text;
static atomic_int rounds_left;

static int change_wisdom(void *user)
{
    (void)user;
    while (atomic_fetch_sub(&rounds_left, 1) > 0) {
        size_t bytes;
        clattn_wisdom_import(tuned.context, shared_text, strlen(shared_text), NULL);
        clattn_wisdom_export(tuned.context, NULL, 0, &bytes);
        clattn_wisdom_clear(tuned.context);
    }
    return 0;
}

static int make_plans(void *user)
{
    int *failures = user;
    for (int i = 0; i < (is_tiny() ? 4 : 40); i++) {
        clattn_plan *plan = NULL;
        *failures += tuned_make(tuned.context, NULL, NULL, &plan) != CLATTN_SUCCESS;
        /* A plan sees wisdom at one moment: it names a record if and only if it follows it. */
        *failures += tuned_says(plan, "wisdom has ") != tuned_says(plan, "geometry by wisdom:");
        *failures += clattn_matmul_prewarm(tuned.context, &tuned.desc) != CLATTN_SUCCESS;
        clattn_plan_release(&plan);
    }
    return 0;
}

static void plans_are_made_while_wisdom_changes(void **state)
{
    thrd_t changing, making[2];
    int failures[2] = {0, 0};
    (void)state;
    char *text = tuned_learnt(tuned.context);
    shared_text = text;
    atomic_store(&rounds_left, 1 << 30);
    assert_int_equal(thrd_create(&changing, change_wisdom, NULL), thrd_success);
    for (int i = 0; i < 2; i++)
        assert_int_equal(thrd_create(&making[i], make_plans, &failures[i]), thrd_success);
    for (int i = 0; i < 2; i++)
        thrd_join(making[i], NULL);
    atomic_store(&rounds_left, 0);
    thrd_join(changing, NULL);
    assert_int_equal(failures[0] + failures[1], 0);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TUNED_TEST(malformed_text_is_refused_whole),
        TUNED_TEST(damaged_text_never_fails_a_plan),
        TUNED_TEST(the_file_serves_later_contexts),
        TUNED_TEST(a_round_trip_is_exact),
        TUNED_TEST(a_record_of_an_unknown_solver_is_kept_and_ignored),
        TUNED_TEST(plans_are_made_while_wisdom_changes),
    };
    return RUN_TESTS("wisdom", tests, argc, argv);
}
