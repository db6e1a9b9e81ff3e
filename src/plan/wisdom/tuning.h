/* The parameters of a plan's geometry: solvers declare them, and wisdom or the caller may set them. */
#ifndef CLATTN_PLAN_WISDOM_TUNING_H
#define CLATTN_PLAN_WISDOM_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

#define TUNING_MOST 48 /* parameters */
#define TUNING_NAME 24 /* bytes of a name, terminator included */
#define TUNING_VALUE 999999999

/* Settings that wisdom or the caller gives: names and values that nobody has checked. */
struct settings {
    size_t count;
    struct setting {
        char name[TUNING_NAME];
        int32_t value;
    } at[TUNING_MOST];
};

/* Reads "name=1 other=0": single blanks between settings; a name has letters, digits and _, and occurs once; a value
 * has up to nine digits.  The text may be empty.  False for anything else. */
bool settings_parse(const char *text, size_t length, struct settings *settings);

/* The parameters that a plan's solver declared, and the settings that it was given. */
struct tuning {
    const struct settings *given; /* set while the plan is made; NULL: nothing is given */
    uint64_t taken;               /* which of the given settings were taken, a bit each */
    size_t count;
    struct parameter {
        const char *name;
        const int32_t *allowed; /* ends with a negative number */
        int32_t value;
    } at[TUNING_MOST];
};

/* Declares a solver's parameter `name`.  *value, the solver's choice, is replaced by the given setting if that is
 * one of `allowed` (which ends with a negative number; the array and the name are static).  Does nothing if `tuning`
 * is NULL. */
void tuning_parameter(struct tuning *tuning, const char *name, const int32_t *allowed, size_t *value);

/* Declares a parameter that is 0 or 1. */
void tuning_flag(struct tuning *tuning, const char *name, bool *value);

/* Forgets what the solver declared; the given settings stay. */
void tuning_restart(struct tuning *tuning);

/* Whether all given settings were taken; otherwise *first is one that was not. */
bool tuning_all_taken(const struct tuning *tuning, const struct setting **first);

/* Appends " name=value" for each parameter. */
void tuning_print(const struct tuning *tuning, struct strbuf *text);

#endif
