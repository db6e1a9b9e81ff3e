/* What the tests of operators share: the device under test, guarded arrays, the tests' own reference in double
 * precision, the accuracy rule, reproducible random numbers, and suites that are built from tables of cases.
 *
 * Every function that can find a mistake reports it through cmocka (it does not return then), so that a test is a
 * straight line. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include "support/accuracy.h"
#include "support/array.h"
#include "support/check.h"
#include "support/device.h"
#include "support/random.h"
#include "support/reference.h"
#include "support/storage.h"
#include "support/suite.h"

#endif
