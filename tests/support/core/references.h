/* Reference counts of OpenCL objects that belong to an application. */
#ifndef TESTS_SUPPORT_CORE_REFERENCES_H
#define TESTS_SUPPORT_CORE_REFERENCES_H

#include "support/check.h"

/* Reference counts of an application's objects after all enqueued work has completed and its buffers have been
 * released. */
struct reference_counts {
    cl_uint context, queue;
};
struct reference_counts reference_counts_of(cl_context context, cl_command_queue queue);

/* Fails the test unless the counts are `expected` within two seconds, because an event's callback may return a
 * reference late. */
void check_references(cl_context context, cl_command_queue queue, struct reference_counts expected, const char *file,
                      int line);
#define assert_references(context, queue, expected) check_references((context), (queue), (expected), __FILE__, __LINE__)

#endif
