/* The context that all tests of a program have, and cmocka's set-up and tear-down of it; for the program's own file. */
#ifndef TESTS_ONE_CONTEXT_H
#define TESTS_ONE_CONTEXT_H

#include "support/api.h"

static clattn_context *context;

static int set_up(void **state)
{
    (void)state;
    context = support_context();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    support_release(&context);
    return 0;
}

#endif
