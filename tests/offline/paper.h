/* Contexts on the GPUs of targets.c, for tests of which solvers their plans get.  The platform computes nothing, so that a
 * self-check finds zeros and refuses every solver that it checks. */
#ifndef TESTS_OFFLINE_PAPER_H
#define TESTS_OFFLINE_PAPER_H

#include "offline/offline.h"
#include "support/check.h"

/* What a context on paper has logged since the last call of paper_context. */
extern char paper_log[8192];

/* A context on `target`, with self-checks or without, that has no cache and writes to paper_log. */
clattn_context *paper_context(const offline_target *target, bool checks);

/* Fails the test unless `text` contains `part`. */
void assert_contains(const char *text, const char *part);

/* Changes to a copy of a target that tests of several solvers make. */
void paper_hide_capability(offline_target *target);
void paper_change_driver(offline_target *target);

#endif
