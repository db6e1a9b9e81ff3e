/* Set-up and tear-down functions for cmocka that give each test its own context. */
#ifndef TESTS_ONE_CONTEXT_H
#define TESTS_ONE_CONTEXT_H

#include "support/device.h"
#include "support/suite.h"

extern clattn_context *context;

int open_context(void **state);
int close_context(void **state);

#endif
