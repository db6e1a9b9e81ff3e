/* Shared by the tables of problems. */
#ifndef TESTS_OFFLINE_PROBLEMS_H
#define TESTS_OFFLINE_PROBLEMS_H

#include "offline.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { NOT_QUICK, QUICK };

/* Returns the status of making a problem's plan by the solver that the problem names. */
#define CREATE(name, problem, desc, plan) \
    do { \
        clattn_plan_options options_ = CLATTN_PLAN_OPTIONS_INIT; \
        options_.solver = (problem)->solver; \
        return clattn_##name##_plan_create(context, &(desc), &options_, plan); \
    } while (0)

/* Visits the rows of NAME_rows, whose plans NAME_plan makes. */
#define VISIT_ROWS(name) \
    for (size_t i = 0; i < COUNT_OF(name##_rows); i++) \
        visit(user, &(offline_problem){name##_rows[i].about, name##_rows[i].quick, name##_rows[i].solver, name##_plan, \
                                       &name##_rows[i]});

/* Visits the problems of attention and of the operators that serve only attention (problems_attention.c). */
void attention_problems_visit(void (*visit)(void *user, const offline_problem *problem), void *user);

#endif
