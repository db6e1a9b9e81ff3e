/* What happens if the system does not let a process use AMX. */
#include <signal.h>
#include <string.h>

#include "support/harness.h"
#include "support/operator.h"

/* Linux refuses AMX tiles to a process whose signal stack could not hold them, and another solver takes over. */
static void another_solver_takes_over(void **state)
{
    static char little[8192];
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    clattn_context *context = new_context();
    clattn_plan *plan = NULL;
    stack_t before, with = {.ss_sp = little, .ss_size = sizeof little};
    (void)state;
    assert_int_equal(sigaltstack(&with, &before), 0);
    matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_BF16, 2, (const size_t[2]){9, 9});
    assert_status(context, clattn_matmul_plan_create(context, &matmul, NULL, &plan), CLATTN_SUCCESS);
    bool there = !strstr(clattn_plan_explain(plan), "cpu-amx: refused, no AMX");
    if (there) {
        assert_non_null(strstr(clattn_plan_explain(plan), "cpu-amx: failed, the system does not permit AMX"));
        assert_string_equal(clattn_plan_solver(plan), "cpu");
        assert_status(context, operator_makes(context, &matmul_operator, &matmul, "cpu-amx"), CLATTN_ERROR_UNSUPPORTED);
        assert_message_has(context, "the system does not permit AMX");
    }
    clattn_plan_release(&plan);
    assert_int_equal(sigaltstack(&before, NULL), 0);
    release_context(&context);
    if (!there)
        skip();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_solver_takes_over)};
    return RUN_TESTS("amx_permission", tests, argc, argv);
}
