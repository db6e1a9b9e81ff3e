/* A thread's last failure has a message even if there is no memory for one.
 *
 * Holds: of clattn/context.h, clattn_context_message.  The linker leads the library's malloc here (meson.build). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "support/check.h"

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

static int first_failure = INT_MAX, calls; /* allocations from that one on fail, the first is 0 */

void *__wrap_malloc(size_t bytes)
{
    return calls++ >= first_failure ? NULL : __real_malloc(bytes);
}

static struct report report;

static const char *message(void)
{
    static char text[64];
    size_t length = report_copy(&report, text, sizeof text);
    return length == strlen(text) ? text : "a length that is not the message's";
}

/* Fails with the allocations from `allowed` on failing. */
static void lose(int allowed, clattn_status status)
{
    calls = 0;
    first_failure = allowed;
    assert_int_equal(report_error(&report, status, "the array %s is too large", "x"), status);
    first_failure = INT_MAX;
}

static int begin(void **state)
{
    (void)state;
    return report_init(&report, NULL, NULL, CLATTN_LOG_LEVEL_ERROR) == CLATTN_SUCCESS ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    report_clear(&report);
    return 0;
}

static void the_status_stands_for_a_message_that_is_lost(void **state)
{
    (void)state;
    assert_string_equal(message(), "");
    for (int allowed = 0; allowed < 2; allowed++) {
        lose(allowed, CLATTN_ERROR_UNSUPPORTED);
        assert_string_equal(message(), "unsupported");
        lose(allowed, CLATTN_ERROR_OUT_OF_MEMORY);
        assert_string_equal(message(), "out of memory");
        lose(2, CLATTN_ERROR_UNSUPPORTED);
        assert_string_equal(message(), "the array x is too large");
    }
}

static int other_thread(void *unused)
{
    (void)unused;
    return strlen(message()) == 0;
}

static void it_is_this_thread_s_and_this_report_s(void **state)
{
    thrd_t thread;
    int empty = 0;
    lose(0, CLATTN_ERROR_OVERFLOW);
    assert_int_equal(thrd_create(&thread, other_thread, NULL), thrd_success);
    assert_int_equal(thrd_join(thread, &empty), thrd_success);
    assert_true(empty);
    assert_string_equal(message(), "a size overflows");
    end(state);
    assert_int_equal(begin(state), 0); /* at the same address */
    assert_string_equal(message(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_status_stands_for_a_message_that_is_lost, begin, end),
        cmocka_unit_test_setup_teardown(it_is_this_thread_s_and_this_report_s, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
