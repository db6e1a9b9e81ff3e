/* The parameters of a plan's geometry: declared by the solver as it settles on them, given by wisdom or by the caller. */
#ifndef CLATTN_PLAN_WISDOM_TUNING_H
#define CLATTN_PLAN_WISDOM_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

#define TUNING_MOST 48 /* parameters */
#define TUNING_NAME 24 /* bytes of a name, terminator included */
#define TUNING_VALUE 999999999

/* What is given: names and values that nobody has checked. */
struct settings {
    size_t count;
    struct setting {
        char name[TUNING_NAME];
        int32_t value;
    } at[TUNING_MOST];
};

/* "name=1 other=0", single blanks between, or nothing: letters, digits and _ in a name, none of them twice, up to nine
 * digits.  False for anything else. */
bool settings_parse(const char *text, size_t length, struct settings *settings);

/* What a plan's solver made of it. */
struct tuning {
    const struct settings *given; /* while the plan is made; NULL: nothing is */
    uint64_t taken;               /* of those given, a bit each */
    size_t count;
    struct parameter {
        const char *name;
        const int32_t *allowed; /* ended by a negative one */
        int32_t value;
    } at[TUNING_MOST];
};

/* A solver's parameter `name`, for which it would choose *value: exchanged for what is given, if that is one of
 * `allowed` (ended by a negative number; it and the name are static strings and arrays).  Nothing, without a tuning. */
void tuning_parameter(struct tuning *tuning, const char *name, const int32_t *allowed, size_t *value);

/* The same of a yes or no. */
void tuning_flag(struct tuning *tuning, const char *name, bool *value);

/* Forgets what the solver declared; what is given stays. */
void tuning_restart(struct tuning *tuning);

/* Whether all that is given was taken; otherwise *first is one that was not. */
bool tuning_all_taken(const struct tuning *tuning, const struct setting **first);

/* Appends " name=value" for each parameter. */
void tuning_print(const struct tuning *tuning, struct strbuf *text);

#endif
